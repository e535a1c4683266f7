//! The hwmon source: temperatures of the RDMA devices' adapters, from `class/hwmon`, every ten seconds.
//!
//! A sensor belongs to a device when it hangs below the device's PCI function. Names are the files' own
//! (`temp1_input`), values 10⁻³ °C; `temp1_crit` and `temp1_max` are limits the adapter states. Some temperatures are read
//! from the module's or the adapter's firmware: more often than this they do not change by much. A value below zero has
//! no place in a counter set and is unavailable.

use std::sync::Arc;

use super::files::{Files, base_name, errno_name};
use super::ports::PortMap;
use super::sysfs::device::is_pci_address;
use super::{Availability, Emit, Missing, Source};
use crate::observation::{Body, CounterSource, Counters, Nanos, Observation, Pairs, Seeing, Text};

/// The source's name.
pub const NAME: &str = "hwmon";

/// Between two readings, ns.
const PERIOD: Nanos = 10_000_000_000;

/// What is read of a sensor beside its temperature.
const LIMITS: [&str; 3] = ["crit", "max", "highest"];

/// Reads temperatures.
pub struct Hwmon {
    files: Arc<dyn Files>,
    ports: PortMap,
    due: Nanos,
    devices: usize,
    sensors: Vec<String>,
    /// Why temperatures that are there cannot be read.
    refused: Vec<(String, Text<'static>)>,
}

impl Hwmon {
    /// A source for these ports' devices.
    #[must_use]
    pub fn new(files: Arc<dyn Files>, ports: PortMap) -> Self {
        Self { files, ports, due: 0, devices: 0, sensors: Vec::new(), refused: Vec::new() }
    }

    /// Goes on in another tree of the same machine, taken later.
    pub fn look_at(&mut self, files: Arc<dyn Files>) {
        self.files = files;
        self.due = 0;
    }

    fn read(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let files = &*self.files;
        let ports = self.ports.now();
        // Directories of sensors by the function they hang below; `device` alone would miss one below the function's PHY.
        let monitors: Vec<(String, String)> = (files.list("class/hwmon").unwrap_or_default().into_iter())
            .filter_map(|entry| {
                let path = files.resolve(&format!("class/hwmon/{}", entry.name)).ok()?;
                let function = path.split('/').rev().find(|part| is_pci_address(part))?.to_owned();
                Some((function, path))
            })
            .collect();
        (self.devices, self.sensors, self.refused) = (0, Vec::new(), Vec::new());
        let mut said: Vec<&str> = Vec::new();
        for port in &*ports {
            if said.contains(&port.device.as_str()) {
                continue;
            }
            said.push(&port.device);
            self.devices += 1;
            let Some(pci) = &port.pci else { continue };
            let (mut values, mut unavailable) = (Pairs::with_capacity(4), Pairs::with_capacity(0));
            for (_, path) in monitors.iter().filter(|(function, _)| function == pci) {
                let names = read_sensors(files, path, &mut values, &mut unavailable);
                self.sensors.extend(names);
            }
            let refused =
                unavailable.iter().map(|(name, reason)| (format!("{name} of {}", port.device), reason.clone()));
            self.refused.extend(refused);
            if values.is_empty() && unavailable.is_empty() {
                continue;
            }
            let device = port.device.as_str().into();
            let set = Counters { device, source: CounterSource::Hwmon, values, unavailable, ..Counters::default() };
            emit(&Observation { t: now, body: Body::Counters(set) });
        }
    }
}

/// Reads the temperatures of one directory; gives back what each sensor is called.
fn read_sensors(
    files: &dyn Files,
    path: &str,
    values: &mut Pairs<'static, u64>,
    unavailable: &mut Pairs<'static, Text<'static>>,
) -> Vec<String> {
    let mut sensors = Vec::new();
    for entry in files.list(path).unwrap_or_default() {
        let Some(sensor) = entry.name.strip_prefix("temp").and_then(|rest| rest.strip_suffix("_input")) else {
            continue;
        };
        if sensor.is_empty() || !sensor.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let sensor = format!("temp{sensor}");
        let read = |what: &str| millidegrees(files, &format!("{path}/{sensor}_{what}"));
        // Two directories of one function have sensors of the same name: the first stands.
        if values.get(&entry.name).is_some() {
            continue;
        }
        match read("input") {
            Ok(value) => values.push(entry.name.clone(), value),
            Err(reason) => unavailable.push(entry.name.clone(), reason),
        }
        for limit in LIMITS {
            // Few adapters state all of them.
            if let Ok(value) = read(limit) {
                values.push(format!("{sensor}_{limit}"), value);
            }
        }
        let label = files.text(&format!("{path}/{sensor}_label")).ok().filter(|label| !label.is_empty());
        sensors.push(label.unwrap_or(sensor));
    }
    sensors
}

fn millidegrees(files: &dyn Files, path: &str) -> Result<u64, Text<'static>> {
    let text = files.text(path).map_err(|error| errno_name(&error))?;
    match text.parse::<i64>() {
        Ok(value) => u64::try_from(value).map_err(|_| "below 0 °C".into()),
        Err(_) => Err(format!("{} holds no number", base_name(path)).into()),
    }
}

impl Source for Hwmon {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        let lack = |what: &str, reason: &str| Missing { what: what.to_owned(), reason: reason.to_owned(), fix: None };
        let mut missing: Vec<Missing> = self.refused.iter().map(|(what, reason)| lack(what, reason)).collect();
        if self.devices == 0 {
            missing.push(lack("temperatures", "no RDMA device here"));
        } else if self.sensors.is_empty() {
            missing.push(lack("temperatures", "no RDMA device's driver here shows one"));
        }
        let state = match (self.sensors.is_empty(), missing.is_empty()) {
            (true, _) => Seeing::Off,
            (false, true) => Seeing::Ok,
            (false, false) => Seeing::Partial,
        };
        let mut sees = format!("{} temperatures", self.sensors.len());
        if !self.sensors.is_empty() {
            sees.push_str(&format!(" ({})", self.sensors.join(", ")));
        }
        Availability { name: NAME, state, sees, missing }
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        if now < self.due {
            return;
        }
        self.read(now, emit);
        // Where the devices are not known yet they will be soon.
        self.due = now.saturating_add(if self.devices == 0 { PERIOD / 10 } else { PERIOD });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::source::files::RootedFiles;
    use crate::source::ports::RdmaPort;

    const SECOND: Nanos = 1_000_000_000;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Arc<dyn Files>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("class/hwmon")).unwrap();
        for (path, text) in files {
            let path = dir.path().join("devices").join(path);
            let hwmon = path.parent().unwrap().to_owned();
            std::fs::create_dir_all(&hwmon).unwrap();
            let link = dir.path().join("class/hwmon").join(hwmon.file_name().unwrap());
            if !link.exists() {
                let inside = hwmon.strip_prefix(dir.path()).unwrap();
                symlink(format!("../../{}", inside.display()), &link).unwrap();
            }
            std::fs::write(path, text).unwrap();
        }
        let files = Arc::new(RootedFiles::new(dir.path()).unwrap());
        (dir, files)
    }

    fn ports() -> PortMap {
        let port = |device: &str, port: u32, pci: Option<&str>| RdmaPort {
            device: device.to_owned(),
            port,
            pci: pci.map(str::to_owned),
            ..RdmaPort::default()
        };
        let ports = PortMap::default();
        let function = Some("0000:3b:00.0");
        ports.set(vec![port("mlx5_0", 1, function), port("mlx5_0", 2, function), port("siw0", 1, None)]);
        ports
    }

    fn poll(source: &mut Hwmon, now: Nanos) -> Vec<String> {
        let mut said = Vec::new();
        source.poll(now, &mut |observation| {
            let Body::Counters(set) = &observation.body else { panic!("counters") };
            assert_eq!((set.source, set.port), (CounterSource::Hwmon, None));
            let values = set.values.iter().map(|(name, value)| format!("{name}={value}"));
            let unavailable = set.unavailable.iter().map(|(name, why)| format!("{name}:{why}"));
            said.push(format!("{} {}", set.device, values.chain(unavailable).collect::<Vec<_>>().join(" ")));
        });
        said
    }

    #[test]
    fn temperatures_and_limits_of_the_devices_function_are_read_and_no_others() {
        let (_dir, files) = tree(&[
            ("pci0000:3a/0000:3b:00.0/hwmon/hwmon3/temp1_input", "61000\n"),
            ("pci0000:3a/0000:3b:00.0/hwmon/hwmon3/temp1_crit", "105000\n"),
            ("pci0000:3a/0000:3b:00.0/hwmon/hwmon3/temp1_label", "asic\n"),
            ("pci0000:3a/0000:3b:00.0/hwmon/hwmon3/temp2_input", "48000\n"),
            ("pci0000:3a/0000:3b:00.0/hwmon/hwmon3/temp2_max", "70000\n"),
            ("pci0000:3a/0000:3b:00.0/hwmon/hwmon3/fan1_input", "9000\n"),
            ("pci0000:00/0000:01:00.0/hwmon/hwmon0/temp1_input", "30000\n"),
            ("platform/coretemp.0/hwmon/hwmon1/temp1_input", "40000\n"),
        ]);
        let mut source = Hwmon::new(files, ports());
        let said = "mlx5_0 temp1_input=61000 temp1_crit=105000 temp2_input=48000 temp2_max=70000";
        assert_eq!(poll(&mut source, SECOND), [said]);
        assert_eq!(source.availability().sees, "2 temperatures (asic, temp2)");
        assert!(poll(&mut source, 10 * SECOND).is_empty());
        assert_eq!(poll(&mut source, 11 * SECOND), [said]);
    }

    #[test]
    fn a_temperature_that_is_no_number_or_below_zero_is_unavailable() {
        let (_dir, files) = tree(&[
            ("pci0000:3a/0000:3b:00.0/hwmon/hwmon3/temp1_input", "N/A\n"),
            ("pci0000:3a/0000:3b:00.0/hwmon/hwmon3/temp2_input", "-5000\n"),
            ("pci0000:3a/0000:3b:00.0/hwmon/hwmon3/temp3_input", "0\n"),
        ]);
        let mut source = Hwmon::new(files, ports());
        let said = "mlx5_0 temp3_input=0 temp1_input:temp1_input holds no number temp2_input:below 0 °C";
        assert_eq!(poll(&mut source, SECOND), [said]);
        assert_eq!(source.availability().state, Seeing::Partial);
    }

    #[test]
    fn devices_without_a_sensor_say_so() {
        let (_dir, files) = tree(&[]);
        let mut source = Hwmon::new(files, ports());
        assert!(poll(&mut source, SECOND).is_empty());
        let reason = source.availability().reason().unwrap();
        assert_eq!(reason, "temperatures: no RDMA device's driver here shows one");
    }
}
