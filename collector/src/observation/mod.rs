//! The observation: one timestamped fact from one source. Everything right of the sources is a function of these.
//!
//! `Observation` and its bodies mirror the recording format (docs/recording.md) field by field; [`recording`] reads and
//! writes them as JSON Lines. Strings are borrowed where they can be: a live source lends its own names, a replay lends
//! the line it has just read, so a counter costs no allocation on its way into the engine.

mod fields;
pub mod recording;
mod text;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use text::{Histogram, Pairs};

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

/// A device appeared, changed its name or vanished.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Device<'a> {
    /// The kernel's name now; never an identity.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// The RDMA device index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The kernel driver bound to the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Text<'a>>,
    /// `0011:2233:4455:6677`; an all-zero GUID counts as absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_guid: Option<Text<'a>>,
    /// Firmware version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fw: Option<Text<'a>>,
    /// The PCI function, `0000:3b:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<Text<'a>>,
    /// The physical function's address, when this device is a virtual function whose `physfn` can be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physfn: Option<Text<'a>>,
    /// The device is a virtual function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vf: Option<bool>,
    /// The adapter's board or HCA type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text<'a>>,
    /// The device is gone. A rename is a removal of the old name, then the new name with the same identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<bool>,
    /// Why nothing more of the device can be read (for example a class link without its target).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<Text<'a>>,
}

/// The link layer of a port, as the kernel names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// Neither (for example EFA), or not readable.
    #[default]
    #[serde(other)]
    Unspecified,
}

/// The logical state of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PortState {
    /// No link.
    Down,
    /// Link trained, not yet configured by a subnet manager.
    Init,
    /// Configured, not yet active.
    Armed,
    /// Carries data.
    Active,
    /// The state could not be read or is not one of the four.
    #[default]
    #[serde(other)]
    Unknown,
}

impl PortState {
    /// The name in the recording and on the screen; `–` when it is not known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "DOWN",
            Self::Init => "INIT",
            Self::Armed => "ARMED",
            Self::Active => "ACTIVE",
            Self::Unknown => "–",
        }
    }
}

/// The state of one port.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Port<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number, from 1.
    pub port: u32,
    /// Link layer.
    #[serde(default)]
    pub link_layer: LinkLayer,
    /// Logical state.
    #[serde(default)]
    pub state: PortState,
    /// The physical state's name as the kernel wrote it, or its number where number and name disagree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phys_state: Option<Text<'a>>,
    /// Signalling rate in Gb/s (10^9 bit/s); absent when it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_gbps: Option<f64>,
    /// Lanes in use (1, 2, 4, 8, 12), from the rate's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u32>,
    /// InfiniBand local identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lid: Option<u32>,
    /// Network devices of this port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub netdevs: Vec<Text<'a>>,
    /// The PCI function behind the port's network device, where the RDMA device itself has none (a software device):
    /// its PCIe path is this function's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netdev_pci: Option<Text<'a>>,
    /// The bond the port's network device belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Text<'a>>,
    /// Milliseconds for which the driver serves `hw_counters` from its cache (`lifespan`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifespan_ms: Option<u32>,
    /// GID table entries in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gids: Vec<Gid<'a>>,
    /// What was odd about reading this port, for the notes of the screen and of `ports --json`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Text<'a>>,
    /// When it left ACTIVE, where that was observed before the recording began: said once, with the first line of a port
    /// that is not ACTIVE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_active_t: Option<Nanos>,
}

/// One used entry of a port's GID table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Gid<'a> {
    /// Table index.
    pub index: u32,
    /// The GID in the kernel's notation.
    #[serde(borrow)]
    pub gid: Text<'a>,
    /// `IB/RoCE v1` or `RoCE v2`, as the kernel writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Text<'a>>,
    /// Network device behind the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netdev: Option<Text<'a>>,
}

/// Where a counter set was read. Among counters of one meaning and rank those of the first source here are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterSource {
    /// Lines of a log that tell of the same thing, counted since the log's beginning (imports only).
    Log,
    /// `ports/N/counters/` (PMA), with `counters_ext/` where an old kernel has it.
    Counters,
    /// `hw_counters/` of the port, or of the device when the set has no port.
    HwCounters,
    /// `RDMA_NLDEV_CMD_STAT_GET`.
    Nldev,
    /// The network device's statistics through ethtool.
    Ethtool,
    /// The carrier counts of the network device.
    Netdev,
    /// A counter set bound to one QP or one QP type.
    Qp,
    /// Health reporters of the device (`devlink health`).
    Devlink,
    /// Temperatures (`hwmon`), 10⁻³ °C.
    Hwmon,
    /// Packets seen on the network device of a software device, or at a mirror port: of one QP where the set has a
    /// `qpn`, else of the port.
    Packets,
    /// A source this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl CounterSource {
    /// The name in the recording.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Counters => "counters",
            Self::HwCounters => "hw_counters",
            Self::Nldev => "nldev",
            Self::Ethtool => "ethtool",
            Self::Netdev => "netdev",
            Self::Qp => "qp",
            Self::Devlink => "devlink",
            Self::Hwmon => "hwmon",
            Self::Packets => "packets",
            Self::Other => "other",
        }
    }
}

/// One set of counters. Names and units are the driver's own, exactly as read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number; absent for a set of the whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// Network device, for `ethtool` sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netdev: Option<Text<'a>>,
    /// Where the set was read.
    pub source: CounterSource,
    /// The QP a bound set belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// The QP type a bound set belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qp_type: Option<Text<'a>>,
    /// The process whose QPs a bound set counts, where it counts those of one process only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The kernel's number of a bound set (`RDMA_NLDEV_ATTR_STAT_COUNTER_ID`), unique to the device while the set lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<u32>,
    /// The QPs a bound set counts together; absent: those last said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpns: Option<Vec<u32>>,
    /// The bound set is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<bool>,
    /// Raw values by the driver's names.
    #[serde(borrow, default)]
    pub values: Pairs<'a, u64>,
    /// Why a counter could not be read. The name `*` stands for the whole set.
    #[serde(borrow, default, skip_serializing_if = "Pairs::is_empty")]
    pub unavailable: Pairs<'a, Text<'a>>,
}

/// The state of a bond.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bond<'a> {
    /// Name of the bond.
    #[serde(borrow)]
    pub bond: Text<'a>,
    /// Mode as the kernel names it, for example `active-backup`.
    pub mode: Text<'a>,
    /// The active network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Text<'a>>,
    /// The bond's members.
    #[serde(default)]
    pub slaves: Vec<Slave<'a>>,
    /// The kernel told this change as it happened. Absent: read at a poll, so that it may be as old as the poll before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<bool>,
}

/// One member of a bond.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Slave<'a> {
    /// Network device.
    #[serde(borrow)]
    pub netdev: Text<'a>,
    /// The link is up.
    pub up: bool,
}

/// A PCIe function, its path and its link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pcie<'a> {
    /// The function's address, `0000:3b:00.0`.
    #[serde(borrow)]
    pub pci: Text<'a>,
    /// Class code as sysfs writes it, `0x020700`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Text<'a>>,
    /// Addresses from the root port to the function itself.
    #[serde(default)]
    pub path: Vec<Text<'a>>,
    /// Current link speed, GT/s per lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_gts: Option<f64>,
    /// Current link width, lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Highest speed of the function, GT/s per lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_speed_gts: Option<f64>,
    /// Highest width of the function, lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_width: Option<u32>,
    /// Maximum payload size, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mps: Option<u32>,
    /// The operating system owns AER on this function; absent when it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aer_owned: Option<bool>,
    /// AER totals; absent where the function shows none.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub aer: Option<AerTotals<'a>>,
}

/// AER totals of one function by severity, as `aer_dev_*` lists them (names such as `RxErr`, `TOTAL_ERR_COR`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AerTotals<'a> {
    /// `aer_dev_correctable`.
    #[serde(borrow, default)]
    pub correctable: Pairs<'a, u64>,
    /// `aer_dev_nonfatal`.
    #[serde(borrow, default)]
    pub nonfatal: Pairs<'a, u64>,
    /// `aer_dev_fatal`.
    #[serde(borrow, default)]
    pub fatal: Pairs<'a, u64>,
}

/// Severity of an AER event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AerSeverity {
    /// Corrected by the hardware.
    Corrected,
    /// Uncorrected, the link still works.
    Nonfatal,
    /// Uncorrected, the link is unreliable.
    Fatal,
}

/// One AER event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Aer<'a> {
    /// The function that reported, `0000:3b:00.0`.
    #[serde(borrow)]
    pub pci: Text<'a>,
    /// Severity.
    pub severity: AerSeverity,
    /// The status register's bits; 0 when the report carried none.
    #[serde(default)]
    pub status: u32,
    /// The bits' names in the PCIe specification's short form, for example `Rollover`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Text<'a>>,
    /// The logged TLP header, when it is valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tlp: Vec<u32>,
    /// In which part the function had in the failed transaction, where the report says so, for example `Receiver ID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Text<'a>>,
}

/// One asynchronous event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Async<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// The port concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// The QP concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// `IBV_EVENT_*` without the prefix, for example `PORT_ERR`.
    pub event: Text<'a>,
}

/// A message of a device's own health reporter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Health<'a> {
    /// Device name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Text<'a>>,
    /// PCI function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<Text<'a>>,
    /// Reporter, for example `fw_fatal`.
    #[serde(borrow)]
    pub reporter: Text<'a>,
    /// Its message.
    pub message: Text<'a>,
}

/// What happened to a QP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QpEvent {
    /// Created.
    Create,
    /// `modify_qp` returned.
    Modify,
    /// Destroyed.
    Destroy,
    /// Found in the kernel's list.
    #[default]
    Seen,
}

/// State of a QP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum QpState {
    /// Just created.
    Reset,
    /// Initialised.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained.
    Sqd,
    /// Send queue error (UD, UC).
    Sqe,
    /// Error.
    Err,
    /// Not known.
    #[default]
    #[serde(other)]
    Unknown,
}

impl QpState {
    /// The name in the recording and on the screen; `–` when it is not known.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
            Self::Unknown => "–",
        }
    }

    /// From the kernel's `enum ib_qp_state` (`include/rdma/ib_verbs.h`).
    #[must_use]
    pub fn from_kernel(state: u32) -> Self {
        match state {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqd,
            5 => Self::Sqe,
            6 => Self::Err,
            _ => Self::Unknown,
        }
    }
}

/// A QP was created, changed, destroyed or found in the kernel's list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Qp<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// QP number, 24 bits.
    pub qpn: u32,
    /// Port number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// What happened.
    pub event: QpEvent,
    /// Type as the kernel names it, for example `RC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qp_type: Option<Text<'a>>,
    /// State before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<QpState>,
    /// State asked for, or found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<QpState>,
    /// The call's error as a positive errno; absent when it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<u32>,
    /// Owning process; absent for the kernel's own QPs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The owner's `comm`, or the kernel module's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<Text<'a>>,
    /// Container id, where the cgroup tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Text<'a>>,
    /// The peer's QPN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_qpn: Option<u32>,
    /// The peer's GID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_gid: Option<Text<'a>>,
    /// Local ACK timeout exponent: 4.096 µs · 2^timeout; 0 = infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u8>,
    /// Transport retries, 0–7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_cnt: Option<u8>,
    /// RNR retries, 0–7; 7 = infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rnr_retry: Option<u8>,
    /// Path MTU in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_mtu: Option<u32>,
}

/// Cumulative statistics of one QP since it was first traced.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QpStats<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// QP number.
    pub qpn: u32,
    /// `post_send` calls.
    pub posts: u64,
    /// Work requests in those calls.
    pub wrs: u64,
    /// Bytes those work requests asked to move (sum of SGE lengths).
    pub bytes: u64,
    /// Work requests with `IBV_SEND_SIGNALED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signaled: Option<u64>,
    /// Work requests by size: bucket i counts sizes in [2^i, 2^(i+1)) bytes, bucket 0 also 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_log2: Option<Histogram>,
    /// Work requests by opcode name.
    #[serde(borrow, default, skip_serializing_if = "Pairs::is_empty")]
    pub opcodes: Pairs<'a, u64>,
    /// Time actually watched in ns, if less than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_ns: Option<u64>,
    /// Receive work requests posted to the QP's own receive queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recv_wrs: Option<u64>,
    /// Successful completions of sends among them; absent where some could not be told from receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Completions polled, of sends and receives. Absent where they are not watched, and where none was ever seen: the
    /// process may poll on a path that is not watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions: Option<u64>,
    /// Time for which completions were watched in ns, if less than all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions_sampled_ns: Option<u64>,
    /// Completions of the QP may have gone uncounted although they were watched: several QPs use one extended queue, and
    /// nobody tells whose a completion is; or its library was written over, and not attached to until it was looked at anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completions_missed: bool,
    /// Error completions by `ibv_wc_status` name.
    #[serde(borrow, default, skip_serializing_if = "Pairs::is_empty")]
    pub errors: Pairs<'a, u64>,
    /// The provider's own code of the first error completion that is no flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_err: Option<u32>,
    /// Post-to-poll latency: bucket i counts [2^i, 2^(i+1)) ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_log2_ns: Option<Histogram>,
    /// Times the process posted to this QP right after another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<u64>,
    /// Time of the last post.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_post_t: Option<Nanos>,
    /// Work requests that were in lists too long to be walked to the end: they are in none of the numbers above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<u64>,
}

/// How many QPs of a device are posted to at once, and how soon one comes round again: cumulative since the start, over the
/// time posts were watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FanOut<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Posts that came right after a post of the same process to another QP.
    pub switches: u64,
    /// Milliseconds with posts, by the number of distinct QPs posted to: bucket i counts [2^i, 2^(i+1)).
    pub in_1ms: Histogram,
    /// The same for intervals of 100 ms.
    pub in_100ms: Histogram,
    /// Switches back to a QP, by the switches since its last turn: an upper bound of the distinct QPs in between.
    pub reuse: Histogram,
}

/// A loopback latency measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loopback<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number.
    pub port: u32,
    /// Median, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// Maximum, ns.
    pub max_ns: u64,
    /// Operations measured.
    pub n: u64,
}

/// The NIC's congestion control parameters by the driver's own names; an absent key is unknown. One that says nothing of
/// its port takes back what was said: it cannot be read any more.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CongestionConfig<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number.
    pub port: u32,
    /// Notification point (receiver) parameters.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub np: serde_json::Map<String, serde_json::Value>,
    /// Reaction point (sender) parameters.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub rp: serde_json::Map<String, serde_json::Value>,
    /// PFC by priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pfc_enabled: Option<[bool; 8]>,
    /// What the port trusts: `pcp` or `dscp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Text<'a>>,
    /// DSCP of CNPs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cnp_dscp: Option<u8>,
    /// `dcqcn`, `rtt` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc_algorithm: Option<Text<'a>>,
}

impl CongestionConfig<'_> {
    /// Nothing is known of the port.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        let Self { device: _, port: _, np, rp, pfc_enabled, trust, cnp_dscp, cc_algorithm } = self;
        let parameters = !np.is_empty() || !rp.is_empty() || cnp_dscp.is_some() || cc_algorithm.is_some();
        !parameters && pfc_enabled.is_none() && trust.is_none()
    }
}

/// How much of its subject a source sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seeing {
    /// All it is meant to see.
    Ok,
    /// Some of it; the reason says what is missing.
    Partial,
    /// Nothing.
    #[default]
    Off,
}

/// What a source can see.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceState<'a> {
    /// The source's name.
    #[serde(borrow)]
    pub source: Text<'a>,
    /// How much it sees.
    pub state: Seeing,
    /// Why not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'a>>,
}

/// Which probes are attached, and what they cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Probes<'a> {
    /// Probes wanted.
    pub wanted: u32,
    /// Probes attached.
    pub attached: u32,
    /// Those that could not be attached.
    #[serde(borrow, default)]
    pub failed: Vec<FailedProbe<'a>>,
    /// Length of the attach window, ns; absent when the data-path probes are attached all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// Period of the windows, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// Time for which posts were watched since the start, ns; absent when that is all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub posts_watched_ns: Option<u64>,
    /// Time for which completions were watched since the start, ns; absent when that is all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completions_watched_ns: Option<u64>,
    /// Data-path probe hits since start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// Estimated cost of those hits, ns of CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// Share of one core the data-path probes may cost, 0–1; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_share: Option<f64>,
    /// The groups of data-path probes that are or were attached.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ProbeGroup<'a>>,
}

/// Data-path probes that are attached and detached together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeGroup<'a> {
    /// `posts` or `completions`.
    #[serde(borrow)]
    pub group: Text<'a>,
    /// Its hits since start.
    pub hits: u64,
    /// What one hit costs, ns of CPU.
    pub hit_ns: u64,
    /// The cost was measured at start; otherwise it is assumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured: bool,
    /// It is detached now, for the budget's sake.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Length of its last window, ns; absent when it was never paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ns: Option<u64>,
    /// From the beginning of that window to the next one's, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
}

/// A probe that could not be attached, or was detached.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FailedProbe<'a> {
    /// The probe's name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// Why.
    pub reason: Text<'a>,
}

/// A process that posts, or may post, where no probe sees it: everything that is known of it now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Process<'a> {
    /// Process id, in the node's own pid namespace.
    pub pid: u32,
    /// Its name.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub comm: Option<Text<'a>>,
    /// The ways it has; none: it has none any more, or is gone.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<Unseen<'a>>,
}

/// A way to post that no probe sees.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Unseen<'a> {
    /// Which.
    pub way: Way,
    /// The file that the process maps and that is the evidence. That it is mapped does not say that it is used.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", rename = "library")]
    pub file: Option<Text<'a>>,
    /// What was found, in words, where there is no such file.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'a>>,
}

/// How a process can post where no probe sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The GPU writes work requests and rings the doorbell.
    Gpu,
    /// UCX's accelerated transports write work requests themselves.
    UcxMlx5,
    /// DPDK writes work requests itself.
    Dpdk,
    /// DOCA's libraries write work requests themselves.
    Doca,
    /// Queues are made as DEVX objects, which the kernel's list of QPs does not have.
    Devx,
    /// The program asks the provider where its queues lie, to write work requests itself.
    DirectVerbs,
    /// The process's provider is not attached to: where its functions lie is not known.
    UnknownProvider,
    /// The kernel posts for itself: its functions are not watched. Never recorded: the QP's owner tells.
    Kernel,
    /// One this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

impl Way {
    /// The name in the recording and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::UcxMlx5 => "ucx_mlx5",
            Self::Dpdk => "dpdk",
            Self::Doca => "doca",
            Self::Devx => "devx",
            Self::DirectVerbs => "direct_verbs",
            Self::UnknownProvider => "unknown_provider",
            Self::Kernel => "kernel",
            Self::Other => "other",
        }
    }

    /// What it is, in a few words that follow `posts through`.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Gpu => "the GPU",
            Self::UcxMlx5 => "UCX's accelerated transports",
            Self::Dpdk => "DPDK",
            Self::Doca => "DOCA",
            Self::Devx => "DEVX objects",
            Self::DirectVerbs => "direct access to its queues",
            Self::UnknownProvider => "a provider that is not attached to",
            Self::Kernel => "the kernel's own functions",
            Self::Other => "a way this version does not know",
        }
    }
}

/// Simulator only: the ground truth.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Truth<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// Port number.
    pub port: u32,
    /// Class of the fault.
    pub class: Text<'a>,
    /// The fault is active from here on.
    pub active: bool,
}

/// Observations that were lost before this point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lost<'a> {
    /// The source that lost them.
    #[serde(borrow)]
    pub source: Text<'a>,
    /// How many.
    pub n: u64,
}

/// What somebody who looks at the node should know and no other type holds. No rule looks at it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Note<'a> {
    /// Where it comes from, for example the name of an imported file.
    #[serde(borrow)]
    pub source: Text<'a>,
    /// A sentence.
    pub text: Text<'a>,
}
