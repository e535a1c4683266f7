//! A source that takes long to start (loading programs, reading the kernel's type information), started aside so that
//! the others and the screen need not wait for it.

use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use super::{Availability, Emit, Missing, ProbeReport, Source};
use crate::observation::{Nanos, Seeing};

/// How often it is asked whether it has started, ns.
const ASK_EVERY_NS: Nanos = 50_000_000;

/// A source that is being started in a thread of its own.
pub struct Starting {
    name: &'static str,
    due: Nanos,
    state: State,
}

enum State {
    Starting(Receiver<Box<dyn Source>>),
    Started(Box<dyn Source>),
    Failed(&'static str),
}

impl Starting {
    /// Begins to start the source.
    #[must_use]
    pub fn new(name: &'static str, start: impl FnOnce() -> Box<dyn Source> + Send + 'static) -> Self {
        let (tell, told) = channel();
        let thread = std::thread::Builder::new().name(format!("start {name}")).spawn(move || {
            // Nobody may want it any more; then it ends with this.
            let _ = tell.send(start());
        });
        let state = if thread.is_ok() { State::Starting(told) } else { State::Failed("cannot start a thread") };
        Self { name, due: 0, state }
    }

    fn started(&self) -> Option<&dyn Source> {
        if let State::Started(source) = &self.state { Some(&**source) } else { None }
    }
}

impl Source for Starting {
    fn name(&self) -> &'static str {
        self.name
    }

    fn availability(&self) -> Availability {
        let reason = match &self.state {
            State::Started(source) => return source.availability(),
            State::Starting(_) => "starting",
            State::Failed(reason) => reason,
        };
        let missing = Missing { what: "everything".to_owned(), reason: reason.to_owned(), fix: None };
        Availability { name: self.name, state: Seeing::Off, sees: String::new(), missing: vec![missing] }
    }

    fn due(&self) -> Nanos {
        match &self.state {
            State::Started(source) => source.due(),
            State::Starting(_) => self.due,
            State::Failed(_) => Nanos::MAX,
        }
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        if let State::Starting(told) = &self.state {
            match told.try_recv() {
                Ok(source) => self.state = State::Started(source),
                Err(TryRecvError::Empty) => self.due = now + ASK_EVERY_NS,
                Err(TryRecvError::Disconnected) => {
                    self.state = State::Failed("internal error while it was started; please report it");
                }
            }
        }
        if let State::Started(source) = &mut self.state {
            source.poll(now, emit);
        }
    }

    fn set_interval(&mut self, interval_ns: u64) {
        if let State::Started(source) = &mut self.state {
            source.set_interval(interval_ns);
        }
    }

    fn nudge(&mut self, now: Nanos) {
        if let State::Started(source) = &mut self.state {
            source.nudge(now);
        }
    }

    fn wake_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.started().map(Source::wake_fds).unwrap_or_default()
    }

    fn probes(&self) -> Vec<ProbeReport> {
        self.started().map(Source::probes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;

    struct Ready;

    impl Source for Ready {
        fn name(&self) -> &'static str {
            "ready"
        }

        fn availability(&self) -> Availability {
            Availability { name: "ready", state: Seeing::Ok, sees: "all".to_owned(), missing: Vec::new() }
        }

        fn due(&self) -> Nanos {
            77
        }

        fn poll(&mut self, _: Nanos, _: &mut Emit<'_>) {}
    }

    #[test]
    fn it_says_that_it_is_starting_and_then_is_the_source() {
        let (go, wait) = channel::<()>();
        let mut source = Starting::new("ready", move || {
            let _ = wait.recv();
            Box::new(Ready)
        });
        source.poll(0, &mut |_| {});
        assert_eq!(source.availability().reason().as_deref(), Some("everything: starting"));
        go.send(()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while source.availability().state != Seeing::Ok {
            assert!(Instant::now() < deadline, "it never started");
            std::thread::yield_now();
            source.poll(1, &mut |_| {});
        }
        assert_eq!(source.due(), 77);
    }

    #[test]
    fn a_start_that_panics_is_an_answer_too() {
        let mut source = Starting::new("bad", || panic!("expected by the test"));
        let deadline = Instant::now() + Duration::from_secs(10);
        while source.due() != Nanos::MAX {
            assert!(Instant::now() < deadline, "it never failed");
            std::thread::yield_now();
            source.poll(1, &mut |_| {});
        }
        assert!(source.availability().reason().is_some_and(|reason| reason.contains("internal error")));
    }
}
