//! What is printed: one line of JSON at a time; of the state of ports only what changes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use collector::observation::recording::write_observation;
use collector::observation::{Body, Loopback, Observation};
use collector::source::loopback::line::{Line, Measured};

use crate::stop::Stop;

/// Standard output, shared by the threads.
pub(crate) struct Say {
    inner: Mutex<Inner>,
    stop: Arc<Stop>,
}

struct Inner {
    output: Box<dyn Write + Send>,
    /// What was said of each port, and of devices as a whole.
    told: BTreeMap<(String, Option<u32>), Measured>,
}

impl Say {
    /// Prints there; when nobody reads any more, `stop` is set.
    pub(crate) fn new(output: Box<dyn Write + Send>, stop: Arc<Stop>) -> Self {
        Self { inner: Mutex::new(Inner { output, told: BTreeMap::new() }), stop }
    }

    /// Prints a line.
    pub(crate) fn line(&self, line: &Line) {
        self.with(|inner| inner.line(line));
    }

    /// Prints a measurement.
    pub(crate) fn measured(&self, t: u64, loopback: Loopback<'_>) {
        self.with(|inner| {
            let mut line = Vec::new();
            write_observation(&Observation { t, body: Body::Loopback(loopback) }, &mut line)?;
            line.push(b'\n');
            inner.output.write_all(&line)?;
            inner.output.flush()
        });
    }

    /// Says how it is with a port, or with a device as a whole, unless that is known.
    pub(crate) fn port(&self, device: &str, port: Option<u32>, state: Measured) {
        self.with(|inner| inner.port((device.to_owned(), port), state));
    }

    /// The device is gone, and all its ports with it.
    pub(crate) fn gone(&self, device: &str) {
        self.with(|inner| {
            let of: Vec<_> = inner.told.keys().filter(|(name, _)| name == device).cloned().collect();
            of.into_iter().try_for_each(|key| inner.port(key, Measured::Gone))
        });
    }

    fn with(&self, print: impl FnOnce(&mut Inner) -> io::Result<()>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if print(&mut inner).is_err() {
            self.stop.set();
        }
    }
}

impl Inner {
    fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.output.write_all(&text)?;
        self.output.flush()
    }

    fn port(&mut self, key: (String, Option<u32>), state: Measured) -> io::Result<()> {
        let known = self.told.get(&key);
        if known == Some(&state) || known.is_none() && state == Measured::Gone {
            return Ok(());
        }
        let line = Line::Port { device: key.0.clone(), port: key.1, state: state.clone() };
        if state == Measured::Gone {
            self.told.remove(&key);
        } else {
            self.told.insert(key, state);
        }
        self.line(&line)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no writer panics").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_state_is_said_when_it_changes_and_a_device_takes_its_ports_along() {
        let (paper, stop) = (Paper::default(), Arc::new(Stop::default()));
        let say = Say::new(Box::new(paper.clone()), stop);
        say.port("a", None, Measured::Gone);
        for state in [Measured::Yes, Measured::Yes, Measured::Inactive, Measured::Yes] {
            say.port("a", Some(1), state);
        }
        say.port("ab", Some(1), Measured::Yes);
        say.gone("a");
        say.port("a", Some(1), Measured::Gone);
        let text = String::from_utf8(paper.0.lock().expect("no writer panics").clone()).expect("text");
        let states: Vec<_> = text
            .lines()
            .map(|line| match serde_json::from_str(line).expect("a line") {
                Line::Port { device, state, .. } => (device, state),
                other => panic!("{other:?}"),
            })
            .collect();
        let a = |state| ("a".to_owned(), state);
        assert_eq!(
            states,
            [
                a(Measured::Yes),
                a(Measured::Inactive),
                a(Measured::Yes),
                ("ab".to_owned(), Measured::Yes),
                a(Measured::Gone)
            ]
        );
    }

    #[test]
    fn a_measurement_is_a_line_of_its_own() {
        let paper = Paper::default();
        let say = Say::new(Box::new(paper.clone()), Arc::default());
        say.measured(7, Loopback { device: "a".into(), port: 1, n: 32, ..Loopback::default() });
        say.line(&Line::Alive { t: 8, cpu_ns: 1 });
        let text = String::from_utf8(paper.0.lock().expect("no writer panics").clone()).expect("text");
        let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
        assert!(matches!(lines[..], [Line::Loopback { t: 7, n: 32, .. }, Line::Alive { t: 8, .. }]), "{text}");
    }

    #[test]
    fn when_nobody_reads_any_more_it_is_over() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let stop = Arc::new(Stop::default());
        Say::new(Box::new(Closed), stop.clone()).line(&Line::Alive { t: 1, cpu_ns: 1 });
        assert!(stop.wait_until(Instant::now()));
    }
}
