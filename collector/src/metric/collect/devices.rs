//! Points of devices: what they are, their sensors and health reporters, their way to the host.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Gather, identity};
use crate::inventory::{AerTotal, CounterSet, DeviceId, DeviceRecord, PcieRecord, gbps};
use crate::metric::Value;
use crate::metric::declared::{
    AER_ERRORS, AER_SEVERITY, DEVICE_INFO, DRIVER, FUNCTION, HEALTH_ERRORS, HEALTH_STATE, HW_FIRMWARE, HW_LIMIT,
    HW_MODEL, HW_PARENT, HW_SENSOR, PCIE_BANDWIDTH, PCIE_BANDWIDTH_LIMIT, PCIE_WIDTH, REPORTER, TEMPERATURE,
    TEMPERATURE_LIMIT,
};
use crate::observation::{AerSeverity, CounterSource, Nanos};

/// Sensors and health reporters are read every ten seconds.
const FRESH_NS: Nanos = 30_000_000_000;

/// The points of all devices, and of the functions on their way to a root port.
pub(super) fn gather(gather: &mut Gather<'_>) {
    let world = gather.world;
    let mut functions: BTreeSet<Arc<str>> = BTreeSet::new();
    for (id, device) in world.present() {
        info(gather, id, device);
        for set in device.sets.iter().filter(|set| world.now.saturating_sub(set.t) <= FRESH_NS) {
            match set.source {
                CounterSource::Hwmon => sensors(gather, id, set),
                CounterSource::Devlink => reporters(gather, id, set),
                _ => {}
            }
        }
        let netdev = || world.ports_of(id).find_map(|port| port.netdev_pci.as_ref());
        if let Some(record) = device.pci.as_ref().or_else(netdev).and_then(|pci| world.pcie.get(pci)) {
            bus(gather, id, record);
            functions.extend(record.path.iter().cloned().chain([record.pci.clone()]));
        }
    }
    for function in functions {
        if let Some(record) = world.pcie.get(&function) {
            aer(gather, record);
        }
    }
}

fn info(gather: &mut Gather<'_>, id: DeviceId, device: &DeviceRecord) {
    let mut attributes = gather.device(id);
    attributes.extend(gather.world.parent(id).map(|parent| (HW_PARENT, identity(gather.world, parent))));
    for (key, value) in [(HW_MODEL, &device.model), (HW_FIRMWARE, &device.fw), (DRIVER, &device.driver)] {
        attributes.extend(value.as_ref().map(|value| (key, value.clone())));
    }
    let now = gather.now();
    gather.gauge(&DEVICE_INFO, attributes, now, Value::Int(1));
}

fn sensors(gather: &mut Gather<'_>, id: DeviceId, set: &CounterSet) {
    for series in &set.series {
        let (Some(millicelsius), Some((sensor, what))) = (series.value(), series.name.split_once('_')) else {
            continue;
        };
        let mut attributes = gather.device(id);
        attributes.push((HW_SENSOR, sensor.into()));
        let value = Value::Float(millicelsius as f64 / 1000.0);
        match what {
            "input" => gather.gauge(&TEMPERATURE, attributes, series.t, value),
            "crit" => {
                attributes.push((HW_LIMIT, gather.words.of("high.critical")));
                gather.gauge(&TEMPERATURE_LIMIT, attributes, series.t, value);
            }
            _ => {}
        }
    }
}

fn reporters(gather: &mut Gather<'_>, id: DeviceId, set: &CounterSet) {
    for series in &set.series {
        let Some((reporter, what)) = series.name.rsplit_once('.') else { continue };
        let mut attributes = gather.device(id);
        attributes.push((REPORTER, reporter.into()));
        match (what, series.value(), series.total()) {
            ("state", Some(state), _) => {
                gather.gauge(&HEALTH_STATE, attributes, series.t, Value::Int(u64::from(state != 0)));
            }
            ("error_count", _, Some(total)) => gather.total(&HEALTH_ERRORS, attributes, total),
            _ => {}
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate above 0 and far below 2^64")]
fn bus(gather: &mut Gather<'_>, id: DeviceId, record: &PcieRecord) {
    if gather.blind("pcie") {
        return;
    }
    let mut attributes = gather.device(id);
    attributes.push((FUNCTION, record.pci.clone()));
    let now = gather.now();
    let bytes = |gbps: f64| Value::Int((gbps * 1e9 / 8.0).round() as u64);
    if let Some(gbps) = record.link.gbps().filter(|gbps| *gbps > 0.0) {
        gather.gauge(&PCIE_BANDWIDTH, attributes.clone(), now, bytes(gbps));
    }
    if let (Some(speed), Some(width)) = (record.link.max_speed_gts, record.link.max_width) {
        gather.gauge(&PCIE_BANDWIDTH_LIMIT, attributes.clone(), now, bytes(gbps(speed, width)));
    }
    if let Some(width) = record.link.width {
        gather.gauge(&PCIE_WIDTH, attributes, now, Value::Int(u64::from(width)));
    }
}

/// Errors by severity: the line that counts all of a severity, or the sum of those that count one kind each. Messages a
/// root port received from below are not its own.
fn aer(gather: &mut Gather<'_>, record: &PcieRecord) {
    let Some(totals) = record.counts().filter(|_| !gather.blind("pcie")) else { return };
    let words =
        [(AerSeverity::Corrected, "correctable"), (AerSeverity::Nonfatal, "nonfatal"), (AerSeverity::Fatal, "fatal")];
    for (severity, word) in words {
        let own = |total: &&AerTotal| total.severity == severity && !total.name.contains("rootport");
        let lines: Vec<&AerTotal> = totals.iter().filter(own).collect();
        let all: Vec<&AerTotal> = lines.iter().copied().filter(|total| total.is_sum()).collect();
        let counted = if all.is_empty() { lines } else { all };
        let Some(start) = counted.iter().map(|total| total.start).max() else { continue };
        let value = counted.iter().fold(0u64, |sum, total| sum.saturating_add(total.value));
        let attributes = vec![(FUNCTION, record.pci.clone()), (AER_SEVERITY, gather.words.of(word))];
        let now = gather.now();
        gather.counted(&AER_ERRORS, attributes, (start, now), Value::Int(value));
    }
}
