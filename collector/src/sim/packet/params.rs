//! What a run of the model is made of.

use thiserror::Error;

use super::dcqcn::Control;

/// One run: the same parameters give the same run on every machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Rate of the bottleneck and of each sender's own link, Gb/s (10⁹ bit/s).
    pub rate_gbps: f64,
    /// Round trip without queueing, ns.
    pub rtt_ns: u64,
    /// Bytes of a packet on the wire.
    pub packet_bytes: u32,
    /// Number of senders. Their flow numbers count from 0; the probe, if there is one, is the flow after the last.
    pub senders: u32,
    /// What they send.
    pub workload: Workload,
    /// The switch's marking.
    pub red: Red,
    /// The NICs' congestion control.
    pub control: Control,
    /// Pause, with the finite buffer it protects; `None` is a buffer without end.
    pub pfc: Option<Pfc>,
    /// A stream of small messages through the same queue.
    pub probe: Option<Probe>,
    /// What is broken.
    pub faults: Faults,
    /// Seed of everything random.
    pub seed: u64,
    /// Simulated time, ns, the warm-up included.
    pub duration_ns: u64,
    /// Time before [`Measure`](super::Measure) begins to count, ns.
    pub warm_up_ns: u64,
}

/// What the senders send, wire bytes throughout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Workload {
    /// Each sender sends packets at even distances, its share of the load.
    Paced {
        /// Share of the bottleneck's rate, all senders together, 0–1.
        load: f64,
        /// Size of a message; a completion is told after each.
        message_bytes: u64,
    },
    /// Each sender sends a burst as fast as it may, is silent for an exponentially distributed time, and begins again.
    /// The silence begins when the burst is sent: a burst that takes longer lowers the load, as a job that waits does.
    Bursts {
        /// Size of a burst, which is one message.
        bytes: u64,
        /// Share of the bottleneck's rate if every burst were sent at line rate, all senders together, above 0.
        load: f64,
    },
    /// Each sender always has something to send.
    Incast {
        /// Size of a message; a completion is told after each.
        message_bytes: u64,
    },
}

/// Random early detection on the instantaneous queue length, decided when a packet arrives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Red {
    /// Below this no packet is marked, bytes.
    pub kmin_bytes: u64,
    /// Above this every packet is marked, bytes.
    pub kmax_bytes: u64,
    /// Share of packets marked just below `kmax_bytes`, 0–1; it grows from 0 at `kmin_bytes` in a straight line.
    pub pmax: f64,
}

/// Priority flow control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pfc {
    /// A queue longer than this asks for silence, bytes.
    pub xoff_bytes: u64,
    /// A queue that has fallen to this allows sending again, bytes; at most `xoff_bytes`.
    pub xon_bytes: u64,
    /// Time from the decision until the senders' packets stop arriving, ns.
    pub delay_ns: u64,
}

/// Small messages through the same queue, one at a time: the next is sent a while after the last was answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// Size on the wire, bytes; at most a packet.
    pub bytes: u32,
    /// Time between an answer and the next message, ns.
    pub gap_ns: u64,
}

/// Faults, for labelled traces. The default is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Faults {
    /// The switch marks nothing.
    pub marking_off: bool,
    /// Share of packets sent Not-ECT, which no switch may mark, 0–1.
    pub not_ect_share: f64,
    /// Share of ECT packets marked whatever the queue is, 0–1: premature by construction.
    pub random_marking: f64,
    /// The receiver sends no CNP.
    pub np_off: bool,
    /// Share of CNPs lost on their way, 0–1.
    pub cnp_loss: f64,
    /// The senders ignore CNPs.
    pub rp_off: bool,
}

/// Why a run cannot be made.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ParamsError {
    /// A parameter is outside its range.
    #[error("{name} is {value}; it must be {range}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is possible.
        range: String,
    },
    /// The thresholds do not follow one another.
    #[error("{low} must not be above {high}")]
    Order {
        /// What must be the smaller one.
        low: &'static str,
        /// What must be the larger one.
        high: &'static str,
    },
}

impl Params {
    /// Sixteen senders into 400 Gb/s with bursts of 256 KB at 80 %, RTT 8 µs, marking 5 KB / 200 KB / 1 %, the DCQCN
    /// paper's parameters, 100 ms of which 20 ms are warm-up.
    #[must_use]
    pub fn example() -> Self {
        Self {
            rate_gbps: 400.0,
            rtt_ns: 8_000,
            packet_bytes: 4_178,
            senders: 16,
            workload: Workload::Bursts { bytes: 256_000, load: 0.8 },
            red: Red { kmin_bytes: 5_000, kmax_bytes: 200_000, pmax: 0.01 },
            control: Control::paper(400.0),
            pfc: None,
            probe: None,
            faults: Faults::default(),
            seed: 1,
            duration_ns: 100_000_000,
            warm_up_ns: 20_000_000,
        }
    }

    /// Whether every parameter is in its range. A run with others may be meaningless, but it ends.
    pub fn check(&self) -> Result<(), ParamsError> {
        within("the rate in Gb/s", self.rate_gbps, 1.0, 3_200.0)?;
        within("the round-trip time in ns", self.rtt_ns as f64, 100.0, 10_000_000.0)?;
        within("the packet size", f64::from(self.packet_bytes), 64.0, 65_536.0)?;
        within("the number of senders", f64::from(self.senders), 1.0, 4_096.0)?;
        match self.workload {
            Workload::Paced { load, message_bytes } => {
                within("the load", load, 0.001, 1.0)?;
                within("the message size", message_bytes as f64, 1.0, 1e9)?;
            }
            Workload::Bursts { bytes, load } => {
                within("the load", load, 0.001, f64::from(self.senders))?;
                within("the burst size", bytes as f64, 1.0, 1e9)?;
            }
            Workload::Incast { message_bytes } => within("the message size", message_bytes as f64, 1.0, 1e9)?,
        }
        within("Pmax", self.red.pmax, 0.0, 1.0)?;
        within("Kmax", self.red.kmax_bytes as f64, 0.0, 1e9)?;
        ordered("Kmin", self.red.kmin_bytes, "Kmax", self.red.kmax_bytes)?;
        if let Some(pfc) = self.pfc {
            within("XOFF", pfc.xoff_bytes as f64, f64::from(self.packet_bytes), 1e9)?;
            ordered("XON", pfc.xon_bytes, "XOFF", pfc.xoff_bytes)?;
            within("the pause delay in ns", pfc.delay_ns as f64, 0.0, 1_000_000.0)?;
        }
        if let Some(probe) = self.probe {
            within("the probe's size", f64::from(probe.bytes), 1.0, f64::from(self.packet_bytes))?;
            within("the probe's gap in ns", probe.gap_ns as f64, 0.0, 1e12)?;
        }
        within("the Not-ECT share", self.faults.not_ect_share, 0.0, 1.0)?;
        within("the share of random marks", self.faults.random_marking, 0.0, 1.0)?;
        within("the share of lost CNPs", self.faults.cnp_loss, 0.0, 1.0)?;
        within("the seconds to simulate", self.duration_ns as f64 / 1e9, 1e-6, 60.0)?;
        self.control.check()?;
        ordered("the warm-up", self.warm_up_ns, "the simulated time", self.duration_ns)
    }
}

pub(super) fn within(name: &'static str, value: f64, least: f64, most: f64) -> Result<(), ParamsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ParamsError::OutOfRange { name, value: value.to_string(), range: format!("{least} to {most}") })
}

fn ordered(low: &'static str, smaller: u64, high: &'static str, larger: u64) -> Result<(), ParamsError> {
    if smaller <= larger { Ok(()) } else { Err(ParamsError::Order { low, high }) }
}
