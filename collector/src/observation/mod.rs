//! The observation: one timestamped fact from one source. Everything right of the sources is a function of these.
//!
//! [`Body`] is the table of all that can be observed. What belongs together has a file, named after it: a port with its
//! GIDs, a PCIe function with its AER events. They mirror the recording format (docs/recording.md) field by field;
//! [`recording`] reads and writes them as JSON Lines, with two forms of JSON that serde cannot lend (`text`) and a count
//! of the fields it would skip (`fields`).
//!
//! Strings are borrowed where they can be: a live source lends its own names, a replay lends
//! the line it has just read, so a counter costs no allocation on its way into the engine.

mod bond;
mod congestion;
mod counters;
mod device;
mod event;
mod fan_out;
mod fields;
mod loopback;
mod note;
mod pcie;
mod port;
mod probes;
mod process;
mod qp;
mod qp_stats;
pub mod recording;
mod source_state;
mod text;
mod truth;

use std::borrow::Cow;

pub use bond::{Bond, Slave};
pub use congestion::CongestionConfig;
pub use counters::{CounterSource, Counters};
pub use device::Device;
pub use event::{Async, Health};
pub use fan_out::FanOut;
pub use loopback::Loopback;
pub use note::Note;
pub use pcie::{Aer, AerSeverity, AerTotals, Pcie};
pub use port::{Gid, LinkLayer, Port, PortState};
pub use probes::{FailedProbe, ProbeGroup, Probes};
pub use process::{Process, Unseen, Way};
pub use qp::{Qp, QpEvent, QpState};
pub use qp_stats::QpStats;
pub use source_state::{Lost, Seeing, SourceState};
pub use text::{Histogram, Pairs};
pub use truth::Truth;

/// A string that is lent by a live source or by the line of a recording.
pub type Text<'a> = Cow<'a, str>;

/// `CLOCK_MONOTONIC`, in nanoseconds.
pub type Nanos = u64;

/// One timestamped fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation<'a> {
    /// When it was observed, `CLOCK_MONOTONIC` nanoseconds of the observed node.
    pub t: Nanos,
    /// What was observed.
    pub body: Body<'a>,
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $variant:ident($type:ty) = $name:literal,)*) => {
        /// What was observed; the recording's `type`.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "observations are passed by reference, never stored in bulk")]
        pub enum Body<'a> { $($(#[$doc])* $variant($type),)* }

        impl<'a> Body<'a> {
            /// The recording's `type` of this body.
            #[must_use]
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            /// Writes the body's fields as a JSON object.
            pub(crate) fn write_json(&self, out: &mut Vec<u8>) -> serde_json::Result<()> {
                match self { $(Self::$variant(body) => serde_json::to_writer(out, body),)* }
            }

            /// Reads a body of the given `type` from a whole line; `None` when this version does not know the type.
            /// Adds the number of unknown fields to `unknown`.
            pub(crate) fn from_json(name: &str, line: &'a str, unknown: &mut u32) -> serde_json::Result<Option<Self>> {
                match name {
                    $($name => fields::from_str(line, unknown).map(|body| Some(Self::$variant(body))),)*
                    _ => Ok(None),
                }
            }
        }
    };
}

bodies! {
    /// A device appeared, changed its name or vanished.
    Device(Device<'a>) = "device",
    /// The state of one port.
    Port(Port<'a>) = "port",
    /// One set of counters, exactly as read.
    Counters(Counters<'a>) = "counters",
    /// The state of a bond.
    Bond(Bond<'a>) = "bond",
    /// A PCIe function, its path and its link.
    Pcie(Pcie<'a>) = "pcie",
    /// One AER event.
    Aer(Aer<'a>) = "aer",
    /// One asynchronous event (`IBV_EVENT_*`).
    Async(Async<'a>) = "async",
    /// A message of a device's own health reporter.
    Health(Health<'a>) = "health",
    /// A QP was created, changed, destroyed or found in the kernel's list.
    Qp(Qp<'a>) = "qp",
    /// Cumulative statistics of one QP.
    QpStats(QpStats<'a>) = "qp_stats",
    /// How many QPs of a device are in use at once.
    FanOut(FanOut<'a>) = "fan_out",
    /// A loopback latency measurement.
    Loopback(Loopback<'a>) = "loopback",
    /// The NIC's congestion control parameters.
    CongestionConfig(CongestionConfig<'a>) = "congestion_config",
    /// What a source can see, so that a replay shows what the live screen showed.
    Source(SourceState<'a>) = "source",
    /// Which probes are attached, and what they cost.
    Probes(Probes<'a>) = "probes",
    /// A process that posts, or may post, where no probe sees it.
    Process(Process<'a>) = "process",
    /// Simulator only: the ground truth. The engine never sees it.
    Truth(Truth<'a>) = "truth",
    /// Observations that were lost before this point.
    Lost(Lost<'a>) = "lost",
    /// What somebody who looks at the node should know and no other type holds.
    Note(Note<'a>) = "note",
}
