//! A reliable connection between two devices, both ends in this process, through libibverbs.

use verbs::{Context, Endpoint, Error, State, Timers};

/// Everything is done on port 1.
const PORT: u8 = 1;

/// A pair of ends. They live as long as the process.
pub(crate) struct Path {
    a: Endpoint,
    b: Endpoint,
    size: u32,
    /// Work requests posted.
    pub(crate) posted: u64,
    /// Work requests that succeeded.
    pub(crate) completed: u64,
    /// Work requests that failed or were flushed.
    pub(crate) failed: u64,
}

/// What a look at the completion queue showed.
pub(crate) struct Completions {
    /// Status of the first failed one.
    pub(crate) failed: Option<String>,
}

impl Path {
    /// Opens both devices and registers memory for `depth` operations at once; there is no QP yet.
    pub(crate) fn open(device: &str, peer: &str, size: u32, depth: u32) -> Result<Self, String> {
        let open = |device: &str| {
            let end = Context::open(device).and_then(|context| Endpoint::open(&context, PORT, size as usize, depth, 0));
            end.map_err(|error| format!("{device}: {error}"))
        };
        Ok(Self { a: open(device)?, b: open(peer)?, size, posted: 0, completed: 0, failed: 0 })
    }

    /// Makes and connects the QPs.
    pub(crate) fn connect(&mut self, timeout: u8, retry: u8, depth: u32) -> Result<(), String> {
        let timers = Timers { timeout, retry };
        let mut connect = || {
            self.a.create(depth)?;
            self.b.create(depth)?;
            self.a.connect(&self.b.address(), timers)?;
            self.b.connect(&self.a.address(), timers)
        };
        connect().map_err(|error: Error| error.to_string())
    }

    /// Number of this end's QP; 0 before there is one.
    pub(crate) fn qpn(&self) -> u32 {
        self.a.qpn()
    }

    /// Work requests that have not come back.
    pub(crate) fn outstanding(&self) -> u64 {
        self.posted - self.completed - self.failed
    }

    /// Posts a write of the whole memory, signalled.
    pub(crate) fn post(&mut self) -> Result<(), String> {
        self.a.write(self.size, self.b.memory(0)).map_err(|error| error.to_string())?;
        self.posted += 1;
        Ok(())
    }

    /// Takes what has come back.
    pub(crate) fn poll(&mut self) -> Completions {
        let mut first = None;
        for done in self.a.poll() {
            match done {
                Ok(()) => self.completed += 1,
                Err(status) => {
                    self.failed += 1;
                    first.get_or_insert(status);
                }
            }
        }
        // The peer's failures follow from this end's.
        self.b.poll();
        Completions { failed: first }
    }

    /// Stops the send queue after what is posted; the errno when the device cannot.
    pub(crate) fn move_to_sqd(&mut self) -> Result<(), i32> {
        moved(self.a.move_to(State::Sqd))
    }

    /// Ends both QPs.
    pub(crate) fn move_to_err(&mut self) -> Result<(), i32> {
        moved(self.a.move_to(State::Err)).and(moved(self.b.move_to(State::Err)))
    }
}

fn moved(done: Result<(), Error>) -> Result<(), i32> {
    done.map_err(|error| error.errno().unwrap_or(0))
}
