//! The carrier counts of one network device, from files that stay open: reading them takes no lock, while asking
//! rtnetlink does.

use crate::observation::{Body, CounterSource, Counters, Nanos, Observation, Pairs, Text};
use crate::source::Emit;
use crate::source::files::{Files, OpenFile, errno_name};
use crate::source::ports::RdmaPort;

/// What is read (`carrier_up_count` and `carrier_down_count` since Linux 4.16).
const FILES: [&str; 3] = ["carrier_changes", "carrier_up_count", "carrier_down_count"];

/// One count: its file, and what it said last.
struct Count {
    name: &'static str,
    file: Result<Box<dyn OpenFile>, Text<'static>>,
    value: Result<u64, Text<'static>>,
}

/// The carrier counts of one network device.
pub(super) struct Carrier {
    pub(super) netdev: String,
    device: String,
    port: u32,
    counts: Vec<Count>,
}

impl Carrier {
    pub(super) fn new(netdev: &str, port: &RdmaPort) -> Self {
        let unread = |name| Count { name, file: Err("not read yet".into()), value: Err("not read yet".into()) };
        let counts = FILES.map(unread).into();
        Self { netdev: netdev.to_owned(), device: port.device.clone(), port: port.port, counts }
    }

    /// Reads and emits the counts.
    pub(super) fn read(&mut self, files: &dyn Files, now: Nanos, emit: &mut Emit<'_>) {
        for count in &mut self.counts {
            if count.value.is_err() {
                // Not opened yet, or the network device went and may have come again.
                let path = format!("class/net/{}/{}", self.netdev, count.name);
                count.file = files.open(&path).map_err(|error| errno_name(&error));
            }
            count.value = count.file.as_ref().map_err(Clone::clone).and_then(|file| {
                let mut buf = [0u8; 32];
                let n = file.read(&mut buf).map_err(|error| errno_name(&error))?;
                let text = String::from_utf8_lossy(&buf[..n]);
                text.trim().parse().map_err(|_| Text::from("not a number"))
            });
        }
        self.say(now, emit);
    }

    /// The kernel told the counts in an event: emits them if they are higher than the last. An event can be older than
    /// the last reading, and the counts of a network device only rise.
    pub(super) fn hear(&mut self, told: &[(&'static str, u32)], now: Nanos, emit: &mut Emit<'_>) {
        let mut news = false;
        for count in &mut self.counts {
            if let Some((_, value)) = told.iter().find(|(name, _)| *name == count.name) {
                let value = u64::from(*value);
                // Before the first reading nothing is news.
                if count.value.as_ref().is_ok_and(|known| value > *known) {
                    count.value = Ok(value);
                    news = true;
                }
            }
        }
        if news {
            self.say(now, emit);
        }
    }

    /// Why no count can be read; `None` when one can.
    pub(super) fn missing(&self) -> Option<String> {
        let mut reasons = self.counts.iter().map(|count| count.value.as_ref().err());
        if reasons.any(|reason| reason.is_none()) {
            return None;
        }
        self.counts.first().and_then(|count| count.value.as_ref().err()).map(ToString::to_string)
    }

    fn say(&self, now: Nanos, emit: &mut Emit<'_>) {
        let (mut values, mut unavailable) = (Pairs::with_capacity(FILES.len()), Pairs::with_capacity(0));
        for count in &self.counts {
            match &count.value {
                Ok(value) => values.push(count.name, *value),
                Err(reason) => unavailable.push(count.name, reason.clone()),
            }
        }
        let set = Counters {
            device: self.device.as_str().into(),
            port: Some(self.port),
            netdev: Some(self.netdev.as_str().into()),
            source: CounterSource::Netdev,
            values,
            unavailable,
            ..Counters::default()
        };
        emit(&Observation { t: now, body: Body::Counters(set) });
    }
}
