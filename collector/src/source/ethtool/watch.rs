//! One network device between the polls: what it offers, what it refused and until when, and its counters as read.

use crate::observation::{Body, CounterSource, Counters, Nanos, Observation, Pairs, Text};
use crate::source::files::errno_name;
use crate::source::ports::RdmaPort;
use crate::source::{Emit, Missing};

use super::driver::{Driver, Statistics};
use super::standard::{QUESTIONS, Question, Standard, errno};

/// What a driver does not offer is asked for again after this long: it may be another driver by then, ns.
const ASK_AGAIN: Nanos = 60_000_000_000;

/// A network device that is gone is looked for again after this long: its driver may have been loaded anew, ns.
const LOOK_AGAIN: Nanos = 10_000_000_000;

const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// What came of a question.
#[derive(Debug, Clone, Default, PartialEq)]
enum Outcome {
    /// Not asked yet.
    #[default]
    Unasked,
    /// Answered.
    Read,
    /// The driver does not offer it; not asked again before then.
    NotOffered(Nanos),
    /// It failed, and why.
    Failed(Text<'static>),
}

impl Outcome {
    fn asks(&self, now: Nanos) -> bool {
        !matches!(self, Self::NotOffered(until) if now < *until)
    }

    fn of(error: &std::io::Error, now: Nanos) -> Self {
        match error.raw_os_error() {
            Some(EOPNOTSUPP) => Self::NotOffered(now.saturating_add(ASK_AGAIN)),
            // `ENODEV` is said as the network device's own end.
            _ => Self::Failed(errno_name(error)),
        }
    }
}

/// A network device of an RDMA port.
pub(super) struct Watch {
    pub(super) netdev: String,
    device: String,
    port: u32,
    driver: Driver,
    own: Outcome,
    standard: [Outcome; QUESTIONS.len()],
    /// The standard counters of the last poll.
    counters: Vec<(String, u64)>,
    /// It was gone at the last poll.
    gone: bool,
    /// When to look for it again.
    look_again: Nanos,
}

impl Watch {
    pub(super) fn new(netdev: &str, port: &RdmaPort) -> Self {
        Self {
            netdev: netdev.to_owned(),
            device: port.device.clone(),
            port: port.port,
            driver: Driver::default(),
            own: Outcome::default(),
            standard: Default::default(),
            counters: Vec::new(),
            gone: false,
            look_again: 0,
        }
    }

    /// It is this network device of this port, and it was there at the last poll.
    pub(super) fn is(&self, netdev: &str, port: &RdmaPort) -> bool {
        !self.gone && self.netdev == netdev && self.device == port.device && self.port == port.port
    }

    /// Counters of the last poll.
    pub(super) fn counters(&self) -> usize {
        self.counters.len() + self.driver.counters().count()
    }

    /// Counters of single queues that are left out.
    pub(super) fn of_queues(&self) -> usize {
        self.driver.of_queues
    }

    /// What of it is not seen.
    pub(super) fn missing(&self) -> Vec<Missing> {
        let netdev = &self.netdev;
        let mut missing = Vec::new();
        let mut lack = |what: String, reason: String| missing.push(Missing { what, reason, fix: None });
        if self.gone {
            lack(format!("statistics of {netdev}"), "the network device is gone (ENODEV)".to_owned());
            return missing;
        }
        if let Outcome::Failed(reason) = &self.own {
            lack(format!("the driver's statistics of {netdev}"), reason.to_string());
        }
        for (question, outcome) in QUESTIONS.iter().zip(&self.standard) {
            if let Outcome::Failed(reason) = outcome {
                lack(format!("{} of {netdev}", question.what()), reason.to_string());
            }
        }
        if self.driver.doubled > 0 {
            let reason = format!("{} have a name that an earlier one has", self.driver.doubled);
            lack(format!("statistics of {netdev}"), reason);
        }
        if self.driver.nameless > 0 {
            lack(format!("statistics of {netdev}"), format!("{} have no name", self.driver.nameless));
        }
        missing
    }

    /// Reads and emits what the network device offers.
    pub(super) fn poll(
        &mut self,
        driver: Option<&mut Box<dyn Statistics>>,
        standard: Option<&mut Standard>,
        now: Nanos,
        emit: &mut Emit<'_>,
    ) {
        if now < self.look_again {
            return;
        }
        let was_gone = std::mem::take(&mut self.gone);
        self.counters.clear();
        // Netlink first: of a network device that is gone it says so, while the ioctl would look for a module of its name.
        if let Some(standard) = standard {
            self.read_standard(standard, now);
        }
        if let Some(driver) = driver.filter(|_| !self.gone) {
            self.read_own(&mut **driver, now);
        }
        // The driver's own stands.
        let own = &self.driver;
        self.counters.retain(|(name, _)| !own.has(name));
        if self.gone {
            self.end(was_gone, now, emit);
        } else {
            self.emit(now, emit);
        }
    }

    fn read_standard(&mut self, standard: &mut Standard, now: Nanos) {
        for (question, outcome) in QUESTIONS.into_iter().zip(&mut self.standard) {
            if !outcome.asks(now) {
                continue;
            }
            let before = self.counters.len();
            let counters = &mut self.counters;
            let answer = standard.read(question, &self.netdev, &mut |name, value| {
                if !counters.iter().any(|(known, _)| known == name) {
                    counters.push((name.to_owned(), value));
                }
            });
            *outcome = match answer {
                // Answered, and not one counter in it.
                Ok(_) if self.counters.len() == before && question != Question::Groups => {
                    Outcome::NotOffered(now.saturating_add(ASK_AGAIN))
                }
                Ok(_) => Outcome::Read,
                Err(fault) => match errno(&fault) {
                    Some(error) if error.raw_os_error() == Some(ENODEV) => {
                        self.gone = true;
                        return;
                    }
                    // An older kernel does not know the question: 6.1 has no link-down count, for example.
                    Some(error) if error.raw_os_error() == Some(EINVAL) => {
                        Outcome::NotOffered(now.saturating_add(ASK_AGAIN))
                    }
                    Some(error) => Outcome::of(&error, now),
                    None => Outcome::Failed(fault.to_string().into()),
                },
            };
        }
    }

    fn read_own(&mut self, driver: &mut dyn Statistics, now: Nanos) {
        if !self.own.asks(now) {
            return;
        }
        self.own = match self.driver.read(driver, &self.netdev, now) {
            Ok(()) => Outcome::Read,
            Err(error) => {
                self.driver.forget_values();
                self.gone = error.raw_os_error() == Some(ENODEV);
                Outcome::of(&error, now)
            }
        };
    }

    /// Says once that nothing can be read any more.
    fn end(&mut self, was_gone: bool, now: Nanos, emit: &mut Emit<'_>) {
        self.look_again = now.saturating_add(LOOK_AGAIN);
        self.counters.clear();
        self.driver = Driver::default();
        (self.own, self.standard) = Default::default();
        if !was_gone {
            let mut unavailable = Pairs::with_capacity(1);
            unavailable.push("*", Text::from("ENODEV"));
            self.say(Pairs::default(), unavailable, now, emit);
        }
    }

    fn emit(&self, now: Nanos, emit: &mut Emit<'_>) {
        let mut values = Pairs::with_capacity(self.driver.counters().count() + self.counters.len());
        let mut unavailable = Pairs::with_capacity(0);
        for (name, value) in self.driver.counters() {
            values.push(name, value);
        }
        for (name, value) in &self.counters {
            values.push(name.as_str(), *value);
        }
        if let Outcome::Failed(reason) = &self.own {
            for name in self.driver.names() {
                unavailable.push(name, reason.clone());
            }
        }
        if !(values.is_empty() && unavailable.is_empty()) {
            self.say(values, unavailable, now, emit);
        }
    }

    fn say<'a>(&'a self, values: Pairs<'a, u64>, unavailable: Pairs<'a, Text<'a>>, now: Nanos, emit: &mut Emit<'_>) {
        let set = Counters {
            device: self.device.as_str().into(),
            port: Some(self.port),
            netdev: Some(self.netdev.as_str().into()),
            source: CounterSource::Ethtool,
            values,
            unavailable,
            ..Counters::default()
        };
        emit(&Observation { t: now, body: Body::Counters(set) });
    }
}
