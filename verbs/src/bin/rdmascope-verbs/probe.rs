//! One connection of a port to itself, and the measuring.
//!
//! A queue pair whose other end is itself: what is posted goes through the adapter, or the software device, and back into
//! this process's memory, and never onto the wire.

use std::time::{Duration, Instant};

use verbs::{Context, Endpoint, Error, Port, Remote, Timers};

/// An operation that is not back after this is lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// A measurement begins no further operation after this: where each takes long, those that are done say so as well, and
/// the device's other ports wait for no more than one of them.
const MEASURE: Duration = Duration::from_secs(1);
/// So long the processor is used for waiting. After that it is looked again each time the wait has become longer by this
/// part of itself: so waiting costs little, and what takes long is measured too long by no more than that part.
const SPIN: Duration = Duration::from_micros(200);
const NAP: u32 = 8;
/// 67 ms until it is sent again, three times: a lost packet of a loopback is a fault, and is to show as one soon.
const TIMERS: Timers = Timers { timeout: 14, retry: 3 };

/// The connection.
pub(crate) struct Probe {
    endpoint: Endpoint,
    bytes: u32,
    target: Remote,
    /// The port as it was.
    port: Port,
}

impl Probe {
    /// Makes it, on Ethernet by the `nth` best GID.
    pub(crate) fn open(context: &Context, number: u8, port: Port, bytes: u32, nth: usize) -> Result<Self, Error> {
        // The first half is written into the second.
        let mut endpoint = Endpoint::open(context, number, 2 * bytes as usize, 1, nth)?;
        endpoint.create(1)?;
        endpoint.connect(&endpoint.address(), TIMERS)?;
        let target = endpoint.memory(bytes as usize);
        Ok(Self { endpoint, bytes, target, port })
    }

    /// The port's addresses are still those the connection was made with.
    pub(crate) fn is_current(&self, port: Port) -> bool {
        self.port == port && self.endpoint.gid_is_current()
    }

    /// Times so many operations, one after the other, ns each; fewer where they take long, but one.
    pub(crate) fn measure(&mut self, operations: u32) -> Result<Vec<u64>, String> {
        let start = Instant::now();
        in_time(operations, || start.elapsed(), || self.one())
    }

    fn one(&mut self) -> Result<u64, String> {
        let start = Instant::now();
        self.endpoint.write(self.bytes, self.target).map_err(|error| error.to_string())?;
        loop {
            let done = self.endpoint.poll();
            let took = start.elapsed();
            if let Some(done) = done.into_iter().next() {
                return done
                    .map(|()| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))
                    .map_err(|status| format!("a write to the port itself failed: {status}"));
            }
            if took > PATIENCE {
                return Err(format!("a write to the port itself is not back after {} s", PATIENCE.as_secs()));
            }
            // A software device may need this very processor.
            if took > SPIN { std::thread::sleep(took / NAP) } else { std::thread::yield_now() }
        }
    }
}

/// Does so many operations, but begins none after [`MEASURE`].
fn in_time<T, E>(
    operations: u32,
    elapsed: impl Fn() -> Duration,
    mut one: impl FnMut() -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let mut done = Vec::new();
    while done.is_empty() || (done.len() < operations as usize && elapsed() < MEASURE) {
        done.push(one()?);
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_measurement_of_slow_operations_ends_after_a_second_with_those_that_are_done() {
        for (each_ms, expected) in [(0, 32), (20, 32), (300, 4), (1900, 1)] {
            let passed = Cell::new(Duration::ZERO);
            let one = || {
                passed.set(passed.get() + Duration::from_millis(each_ms));
                Ok::<_, ()>(())
            };
            let done = in_time(32, || passed.get(), one).expect("none fails");
            assert_eq!(done.len(), expected, "{each_ms} ms");
            assert!(passed.get() < MEASURE + PATIENCE, "{each_ms} ms");
        }
        assert_eq!(in_time(32, || Duration::ZERO, || Err::<(), _>("lost")), Err("lost"));
    }
}
