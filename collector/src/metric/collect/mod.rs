//! What is exported now: the world as points, a pure function of the world and of what the program reports of itself.
//!
//! ```text
//! words     texts that many points share
//! totals    which meaning is which metric of a port
//! ports     the ports' other points: state, rates, histograms
//! devices   sensors, health reporters, the bus
//! qps       QPs by state, by process, the busiest
//! own       the program itself
//! ```
//!
//! A point is there only when its value is known now: the counter could be read, its last reading is no older than three
//! periods, and its device is there.

mod devices;
mod own;
mod ports;
mod qps;
mod totals;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use foldhash::fast::FixedState;

use self::words::Words;
use super::{Family, Metric, Options, Point, SelfReport, Value, declared};
use crate::inventory::{DeviceId, PortRecord, World};
use crate::observation::{Nanos, Seeing};
use crate::timeline::Total;

/// Attributes of a point.
type Attributes = Vec<(&'static str, Arc<str>)>;

/// Everything that is exported now, in the order of the declarations. A metric of which nothing is known is not in it.
#[must_use]
pub fn collect(world: &World, own: &SelfReport, options: Options) -> Vec<Family> {
    let families = declared::all().map(|metric| Family { metric, points: Vec::new() }).collect();
    let mut gather = Gather { world, words: Words::default(), families };
    let ports = gather.ports();
    totals::gather(&mut gather, &ports, options);
    ports::gather(&mut gather, &ports);
    devices::gather(&mut gather);
    qps::gather(&mut gather, options);
    own::gather(&mut gather, own);
    let mut families = gather.families;
    families.retain(|family| !family.points.is_empty());
    families
}

/// The places of the metrics in the declarations.
static ORDER: LazyLock<HashMap<&'static str, usize, FixedState>> =
    LazyLock::new(|| declared::all().enumerate().map(|(at, metric)| (metric.name, at)).collect());

/// A port whose points are gathered.
struct PortPoints<'w> {
    device: DeviceId,
    record: &'w PortRecord,
    /// `hw.id`, `hw.name`, `rdma.port`.
    attributes: Attributes,
    /// The same with `hw.type`, as `hw.*` metrics have them.
    hardware: Attributes,
}

impl PortPoints<'_> {
    fn attributes(&self, metric: &Metric) -> &Attributes {
        if metric.attributes.contains(&declared::HW_TYPE) { &self.hardware } else { &self.attributes }
    }
}

/// The families as they come to be.
struct Gather<'w> {
    world: &'w World,
    words: Words,
    /// In the order of the declarations, each at its place in [`ORDER`].
    families: Vec<Family>,
}

impl<'w> Gather<'w> {
    fn now(&self) -> Nanos {
        self.world.now
    }

    /// The source that tells the states of ports does not see: what it said last may be long over.
    fn blind(&self, source: &str) -> bool {
        self.world.sources.get(source).is_some_and(|source| source.state == Seeing::Off)
    }

    /// The ports that are there.
    fn ports(&mut self) -> Vec<PortPoints<'w>> {
        let network = self.words.of("network");
        let of = |record: &'w PortRecord| {
            let device = record.key.device;
            let mut attributes = self.device(device);
            attributes.push((declared::PORT, record.key.port.to_string().into()));
            let mut hardware = attributes.clone();
            hardware.insert(2, (declared::HW_TYPE, network.clone()));
            PortPoints { device, record, attributes, hardware }
        };
        self.world.present_ports().map(|(_, record)| of(record)).collect()
    }

    /// What names a device: `hw.id`, which survives a rename, and `hw.name`.
    fn device(&self, id: DeviceId) -> Attributes {
        vec![(declared::HW_ID, identity(self.world, id)), (declared::HW_NAME, self.world.device(id).name.clone())]
    }

    fn family(&mut self, metric: &'static Metric) -> &mut Vec<Point> {
        let at = ORDER.get(metric.name).copied().expect("every metric is in the declarations' list");
        &mut self.families[at].points
    }

    /// A point of something that is counted from `start` on.
    fn counted(&mut self, metric: &'static Metric, attributes: Attributes, (start, t): (Nanos, Nanos), value: Value) {
        let point = Point { attributes: attributes.into(), start, t, value };
        self.family(metric).push(point);
    }

    /// A point of a counter's total.
    fn total(&mut self, metric: &'static Metric, attributes: Attributes, total: Total) {
        self.counted(metric, attributes, (total.start, total.t), Value::Int(total.value));
    }

    /// A point of what the program itself has counted since it began to observe.
    fn sum(&mut self, metric: &'static Metric, attributes: Attributes, value: u64) {
        self.counted(metric, attributes, (self.world.started, self.world.now), Value::Int(value));
    }

    /// A point of now.
    fn gauge(&mut self, metric: &'static Metric, attributes: Attributes, t: Nanos, value: Value) {
        self.counted(metric, attributes, (t, t), value);
    }

    /// Attributes, and one more.
    fn with(&mut self, attributes: &Attributes, key: &'static str, word: &'static str) -> Attributes {
        let mut more = Vec::with_capacity(attributes.len() + 1);
        more.extend_from_slice(attributes);
        more.push((key, self.words.of(word)));
        more
    }
}

/// The identity of a device in one word: its PCI function, else its node GUID, else its name. A second device at a
/// function (a management sub-device, a port of its own) has its name behind it, also when the first one is gone.
fn identity(world: &World, id: DeviceId) -> Arc<str> {
    let device = world.device(id);
    match device.place() {
        None => device.name.clone(),
        Some(place) if device.second => format!("{place}/{}", device.name).into(),
        Some(place) => place.clone(),
    }
}

#[cfg(test)]
mod tests;
