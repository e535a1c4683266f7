//! A source in the loop, and what is said of how much it sees: when that changes, and so that time goes on in silence.

use super::Live;
use crate::observation::{Body, Nanos, Observation, Seeing, SourceState};
use crate::source::{Availability, Missing, Source};

/// When nothing was observed for so long, ns, the state of one source is said again. Time is in the observations: it would
/// stand still on a node without a device.
const SILENCE_NS: u64 = 3_000_000_000;

/// A source, and what the loop knows of it.
pub(super) struct Slot {
    pub(super) source: Box<dyn Source>,
    /// What was said last: how much it sees, and why not all.
    said: Option<(Seeing, Option<String>)>,
    /// It was polled since it was last asked what it sees.
    pub(super) polled: bool,
    /// The source panicked: it is not asked again.
    pub(super) broken: Option<String>,
}

impl Slot {
    pub(super) fn new(source: Box<dyn Source>) -> Self {
        Self { source, said: None, polled: true, broken: None }
    }

    /// What the source sees; nothing when it is broken.
    pub(super) fn availability(&self) -> Availability {
        match &self.broken {
            None => self.source.availability(),
            Some(reason) => Availability {
                name: self.source.name(),
                state: Seeing::Off,
                sees: String::new(),
                missing: vec![Missing { what: "everything".to_owned(), reason: reason.clone(), fix: None }],
            },
        }
    }
}

impl Live {
    /// Tells the recording and the engine when a source sees more or less than before. Only what was polled can.
    pub(super) fn say_sources(&mut self, now: Nanos) {
        for index in 0..self.sources.len() {
            let slot = &mut self.sources[index];
            if !std::mem::take(&mut slot.polled) {
                continue;
            }
            let availability = slot.availability();
            let says = (availability.state, availability.reason());
            if slot.said.as_ref() == Some(&says) {
                continue;
            }
            slot.said = Some(says);
            self.say_source(index, now);
        }
        self.hand_on_findings();
    }

    /// Says what is known of a source.
    fn say_source(&mut self, index: usize, now: Nanos) {
        let slot = &self.sources[index];
        let Some((state, reason)) = slot.said.clone() else { return };
        let source = SourceState { source: slot.source.name().into(), state, reason: reason.map(Into::into) };
        self.tell_all(&Observation { t: now, body: Body::Source(source) });
    }

    /// Lets time pass for the engine, the sinks and a recording when there is nothing to observe.
    pub(super) fn break_silence(&mut self, now: Nanos) {
        if now < self.last_observed.saturating_add(SILENCE_NS) {
            return;
        }
        if let Some(index) = self.sources.iter().position(|slot| slot.said.is_some()) {
            self.say_source(index, now);
            self.hand_on_findings();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::feed::Mode;
    use crate::inventory::World;
    use crate::live::TICK_NS;
    use crate::observation::recording::Header;
    use crate::rule::Settings;
    use crate::sink::Sink;

    #[test]
    fn where_nothing_is_observed_a_source_is_said_again_and_time_goes_on() {
        struct Told(Arc<Mutex<Vec<(Nanos, String)>>>);
        impl Sink for Told {
            fn observation(&mut self, observation: &Observation<'_>, _: &World) {
                if let Body::Source(source) = &observation.body {
                    self.0.lock().unwrap().push((observation.t / TICK_NS, source.source.to_string()));
                }
            }
        }
        /// Its only port is down, and goes with its device at the third poll.
        struct Leaving(u32);
        impl Source for Leaving {
            fn name(&self) -> &'static str {
                "leaving"
            }
            fn availability(&self) -> Availability {
                Availability { name: "leaving", state: Seeing::Ok, sees: String::new(), missing: Vec::new() }
            }
            fn due(&self) -> Nanos {
                0
            }
            fn poll(&mut self, now: Nanos, emit: &mut crate::source::Emit<'_>) {
                use crate::observation::{Device, Port, PortState};
                self.0 += 1;
                let state = if self.0 == 1 { PortState::Active } else { PortState::Down };
                let device = Device { device: "mlx5_0".into(), pci: Some("0000:3b:00.0".into()), ..Device::default() };
                match self.0 {
                    1 | 2 => {
                        emit(&Observation { t: now, body: Body::Device(device) });
                        let port = Port { device: "mlx5_0".into(), port: 1, state, ..Port::default() };
                        emit(&Observation { t: now, body: Body::Port(port) });
                    }
                    3 => {
                        let device = Device { removed: Some(true), ..device };
                        emit(&Observation { t: now, body: Body::Device(device) });
                    }
                    _ => {}
                }
            }
        }
        let told = Arc::default();
        let mut live = Live::new(Mode::Live, Header::new(), Settings::default(), vec![Box::new(Leaving(0))])
            .sink(Box::new(Told(Arc::clone(&told))));
        let mut most = 0;
        for s in 100..400 {
            live.poll_sources(s * TICK_NS);
            live.break_silence(s * TICK_NS);
            most = most.max(live.engine().world().findings.len());
        }
        assert!(most > 0, "a port that goes down is a finding");
        assert_eq!(live.engine().world().findings, [], "which ends some time after its device went");
        let told: Vec<u64> = told.lock().unwrap().iter().map(|(s, _)| *s).collect();
        assert_eq!(told[..4], [100, 105, 108, 111]);
        assert_eq!(live.engine().world().now / TICK_NS, 399);
    }
}
