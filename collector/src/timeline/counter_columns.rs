//! The closed columns of the counter table: units, widths, kinds, meanings.

use crate::observation::CounterSource;

/// A column: an enum and the words that stand for its values in the table.
macro_rules! column {
    ($(#[$doc:meta])* $type:ident { $($(#[$value_doc:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type { $($(#[$value_doc])* $value,)* }

        impl $type {
            /// Every value, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$value,)*];

            /// The word in the table and in output.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $word,)* }
            }

            /// The value of a word of the table.
            #[must_use]
            pub fn from_name(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$value),)* _ => None }
            }
        }
    };
}

column! {
    /// Where a counter of the table is read.
    TableSource {
        /// `ports/N/counters/`, the PMA, and `counters_ext/` of kernels before 4.5.
        Counters = "counters",
        /// `hw_counters/` and the same set over netlink, of a port, a device or a QP.
        Hw = "hw",
        /// The network device's own statistics (`ethtool -S`).
        Ethtool = "ethtool",
        /// The standard FEC statistics (`ETHTOOL_MSG_FEC_GET`).
        Fec = "fec",
        /// The vnic health reporter of devlink.
        Vnic = "vnic",
        /// mlx5's congestion control parameters in debugfs.
        CcParams = "cc_params",
        /// `aer_dev_*` of a PCI function.
        Aer = "aer",
        /// Attributes of a PCI function.
        Pci = "pci",
        /// Attributes of a network device.
        Netdev = "netdev",
        /// Attributes of an RDMA port.
        Port = "port",
        /// Temperatures.
        Hwmon = "hwmon",
        /// Health reporters of a device.
        Devlink = "devlink",
        /// Packets seen by the packet source.
        Packets = "packets",
        /// Lines of an imported log that tell of the same thing.
        Log = "log",
    }
}

impl TableSource {
    /// The table's source of a counter set; `None` for a source this version does not know.
    #[must_use]
    pub const fn of(source: CounterSource) -> Option<Self> {
        match source {
            CounterSource::Log => Some(Self::Log),
            CounterSource::Counters => Some(Self::Counters),
            CounterSource::HwCounters | CounterSource::Nldev | CounterSource::Qp => Some(Self::Hw),
            CounterSource::Ethtool => Some(Self::Ethtool),
            CounterSource::Netdev => Some(Self::Netdev),
            CounterSource::Devlink => Some(Self::Devlink),
            CounterSource::Hwmon => Some(Self::Hwmon),
            CounterSource::Packets => Some(Self::Packets),
            CounterSource::Other => None,
        }
    }
}

column! {
    /// What one count is.
    Unit {
        /// Octets.
        Bytes = "bytes",
        /// Four octets: only `port_xmit_data` and `port_rcv_data` of the PMA (IBA 16.1.3.5), whatever the lane count.
        Words4 = "words4",
        /// Packets.
        Packets = "packets",
        /// Ethernet frames.
        Frames = "frames",
        /// Events.
        Events = "events",
        /// Requests.
        Requests = "requests",
        /// Messages.
        Messages = "messages",
        /// Work requests.
        Wrs = "wrs",
        /// Ticks of a length that depends on the device: compare only with itself, never read as a time.
        Ticks = "ticks",
        /// 10⁻⁶ s.
        Microseconds = "microseconds",
        /// Seconds.
        Seconds = "seconds",
        /// 0–100.
        Percent = "percent",
        /// Bits.
        Bits = "bits",
        /// Symbols of the line code.
        Symbols = "symbols",
        /// FEC code words.
        Blocks = "blocks",
        /// Things there are.
        Objects = "objects",
        /// 10⁻³ °C.
        Millicelsius = "millicelsius",
        /// A setting, not a measurement.
        Parameter = "parameter",
        /// A state, a capability.
        State = "state",
        /// Not known, or no unit.
        None = "none",
    }
}

impl Unit {
    /// Bytes per count; `None` where the counter does not count bytes.
    #[must_use]
    pub const fn bytes_factor(self) -> Option<u64> {
        match self {
            Self::Bytes => Some(1),
            Self::Words4 => Some(4),
            _ => None,
        }
    }
}

column! {
    /// Counter or gauge.
    Kind {
        /// Only ever grows, between resets.
        Counter = "counter",
        /// Goes up and down: it has no delta.
        Gauge = "gauge",
    }
}

column! {
    /// What a counter does at its limit.
    Overflow {
        /// Stops at all-ones until it is cleared (every PMA counter: IBA 16.1.3.5).
        Sticks = "sticks",
        /// Goes on at zero.
        Wraps = "wraps",
        /// Neither is stated anywhere.
        Unknown = "unknown",
    }
}

column! {
    /// What a counter is good for.
    Class {
        /// Something went wrong.
        Error = "error",
        /// An error that was mended: everyday life of a link with FEC, a sign only by its trend.
        Corrected = "corrected",
        /// Something was moved.
        Traffic = "traffic",
        /// Something had to wait, was marked or was dropped for want of room.
        Congestion = "congestion",
        /// How the transport is doing: what came late, in the wrong order or again.
        Transport = "transport",
        /// What the device does and has in use: it grows where all is well.
        Work = "work",
        /// The way to the host.
        Pcie = "pcie",
    }
}

column! {
    /// What a counter means, whatever the driver calls it.
    Meaning {
        /// RDMA bytes sent.
        TxBytes = "tx_bytes",
        /// RDMA bytes received.
        RxBytes = "rx_bytes",
        /// RDMA packets sent.
        TxPackets = "tx_packets",
        /// RDMA packets received.
        RxPackets = "rx_packets",
        /// Unicast RDMA packets sent.
        TxUnicastPackets = "tx_unicast_packets",
        /// Unicast RDMA packets received.
        RxUnicastPackets = "rx_unicast_packets",
        /// Multicast RDMA packets sent.
        TxMulticastPackets = "tx_multicast_packets",
        /// Multicast RDMA packets received.
        RxMulticastPackets = "rx_multicast_packets",
        /// All bytes sent on the physical port: every function, RDMA or not.
        WireTxBytes = "wire_tx_bytes",
        /// All bytes received on the physical port.
        WireRxBytes = "wire_rx_bytes",
        /// All packets sent on the physical port.
        WireTxPackets = "wire_tx_packets",
        /// All packets received on the physical port.
        WireRxPackets = "wire_rx_packets",
        /// Bytes switched inside the NIC, never on the wire.
        LoopbackBytes = "loopback_bytes",
        /// Bytes sent in one priority.
        PriorityTxBytes = "priority_tx_bytes",
        /// Bytes received in one priority.
        PriorityRxBytes = "priority_rx_bytes",
        /// Packets sent in one priority.
        PriorityTxPackets = "priority_tx_packets",
        /// Packets received in one priority.
        PriorityRxPackets = "priority_rx_packets",
        /// RDMA READ requests received.
        RxReadRequests = "rx_read_requests",
        /// RDMA WRITE requests received.
        RxWriteRequests = "rx_write_requests",
        /// Atomic requests received.
        RxAtomicRequests = "rx_atomic_requests",

        /// RoCE packets received with CE.
        EcnMarkedRx = "ecn_marked_rx",
        /// CNPs sent.
        CnpSent = "cnp_sent",
        /// CNPs received that slowed a sender down; CNPs received where the driver counts no more than that.
        CnpHandled = "cnp_handled",
        /// CNPs received that changed nothing.
        CnpIgnored = "cnp_ignored",
        /// CNPs received, beside a counter of those handled.
        CnpReceived = "cnp_received",
        /// CNPs sent without a mark, by slow restart.
        SlowRestartCnps = "slow_restart_cnps",
        /// Packets the NIC itself marked because the host was slow.
        HostMarked = "host_marked",
        /// Ticks with something to send and nothing sent.
        TxWait = "tx_wait",
        /// Packets discarded on the way out.
        TxDiscards = "tx_discards",
        /// Packets received and dropped for want of room, or by a limiter.
        RxDrops = "rx_drops",
        /// Packets dropped on the way out by a limiter.
        TxDrops = "tx_drops",
        /// Pause frames received: this port was told to stop.
        RxPauseFrames = "rx_pause_frames",
        /// Pause frames sent: this host told others to stop.
        TxPauseFrames = "tx_pause_frames",
        /// Time this port was stopped, µs.
        RxPauseDuration = "rx_pause_duration",
        /// Time this host stopped others, µs.
        TxPauseDuration = "tx_pause_duration",
        /// The device sent pause for too long.
        PauseStorms = "pause_storms",

        /// Packets sent again.
        Retransmissions = "retransmissions",
        /// Bytes sent again.
        RetransmittedBytes = "retransmitted_bytes",
        /// Retransmissions of the adaptive kind (lossy RoCE); 0 says nothing about the ordinary kind.
        AdaptiveRetransmissions = "adaptive_retransmissions",
        /// Requests received out of sequence.
        OutOfSequence = "out_of_sequence",
        /// Sequence NAKs received.
        SequenceNak = "sequence_nak",
        /// Responses missing or out of sequence at the requester.
        ImpliedNak = "implied_nak",
        /// Requests received twice: the peer sent again.
        DuplicateRequest = "duplicate_request",
        /// ACK timers that ran out.
        AckTimeout = "ack_timeout",
        /// RNR NAKs received: the peer had no receive buffer.
        RnrNak = "rnr_nak",
        /// RNR NAKs sent: this host had no receive buffer.
        RnrNakSent = "rnr_nak_sent",
        /// Retries used up: a QP went to error.
        RetryExceeded = "retry_exceeded",
        /// RNR retries used up: a QP went to error.
        RnrRetryExceeded = "rnr_retry_exceeded",
        /// Packets dropped because no receive work request was posted.
        OutOfBuffer = "out_of_buffer",
        /// The peer does not answer (EFA).
        RemoteUnresponsive = "remote_unresponsive",

        /// Requester completions with error.
        ReqCqeError = "req_cqe_error",
        /// Responder completions with error.
        RespCqeError = "resp_cqe_error",
        /// Flushed completions: a consequence, never a cause.
        FlushErrors = "flush_errors",
        /// Remote access errors, of either side: the application's.
        AccessErrors = "access_errors",
        /// Invalid requests: the application's.
        InvalidRequests = "invalid_requests",
        /// Length errors: the application's.
        LengthErrors = "length_errors",
        /// Protection errors of local memory: the application's.
        ProtectionErrors = "protection_errors",
        /// Operations that failed at a QP or at the remote side.
        OperationErrors = "operation_errors",

        /// Minor link errors of the PMA.
        SymbolError = "symbol_error",
        /// Link retrainings that succeeded.
        LinkErrorRecovery = "link_error_recovery",
        /// Times the link went down.
        LinkDowned = "link_downed",
        /// Times the local physical error threshold was passed.
        LocalLinkIntegrity = "local_link_integrity",
        /// Buffer overruns over the threshold.
        BufferOverrun = "buffer_overrun",
        /// Packets received with an error.
        RcvErrors = "rcv_errors",
        /// Packets another link had already damaged.
        RemotePhysicalErrors = "remote_physical_errors",
        /// Packets a partition or raw filter stopped.
        ConstraintErrors = "constraint_errors",
        /// Management packets dropped.
        Vl15Dropped = "vl15_dropped",
        /// Frames with a bad FCS, packets with a bad CRC.
        CrcErrors = "crc_errors",
        /// Packets with a bad ICRC: damage that no link check saw.
        IcrcErrors = "icrc_errors",
        /// Errors FEC could not correct.
        PostFecErrors = "post_fec_errors",
        /// Bits FEC corrected.
        PreFecCorrectedBits = "pre_fec_corrected_bits",
        /// Raw errors of one lane.
        LaneErrors = "lane_errors",
        /// Bits that could have been received: the denominator of an error ratio.
        RxBits = "rx_bits",
        /// Cable or module trouble.
        ModuleFaults = "module_faults",

        /// Percent of the last second in which reads waited for credits of the bus.
        PcieStallRead = "pcie_stall_read",
        /// Percent of the last second in which writes waited for credits of the bus.
        PcieStallWrite = "pcie_stall_write",
        /// Seconds with reads stalled more than 30 %.
        PcieStallReadSeconds = "pcie_stall_read_seconds",
        /// Seconds with writes stalled more than 30 %.
        PcieStallWriteSeconds = "pcie_stall_write_seconds",
        /// Packets dropped because the bus to the host could not take them.
        PcieOverflow = "pcie_overflow",
        /// Recoveries of the bus link.
        PcieSignalIntegrity = "pcie_signal_integrity",
        /// Bus errors a verb ran into.
        PcieErrors = "pcie_errors",

        /// QPs in use.
        ActiveQps = "active_qps",
        /// QPs the device is slowing down.
        CongestedQps = "congested_qps",
        /// Host pages the device uses for contexts.
        IcmPages = "icm_pages",
        /// Commands given to the device.
        CommandsSubmitted = "commands_submitted",
        /// Commands the device finished.
        CommandsCompleted = "commands_completed",
        /// Commands that failed.
        CommandErrors = "command_errors",
        /// Signs of life from the device: it must advance.
        KeepAlives = "keep_alives",
        /// Temperature of the device.
        Temperature = "temperature",
    }
}

/// How wide a reading can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// So many bits: 4, 8, 16, 32 or 64.
    Bits(u8),
    /// 64 bits where the device has the extended table, else 32, and the reader cannot see which. The value
    /// 2³²−1 exactly is taken for the 32-bit limit; anything above shows that the counter has 64 bits.
    Bits32Or64,
}

impl Width {
    /// From the table.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "4" => Some(Self::Bits(4)),
            "8" => Some(Self::Bits(8)),
            "16" => Some(Self::Bits(16)),
            "32" => Some(Self::Bits(32)),
            "64" => Some(Self::Bits(64)),
            "32|64" => Some(Self::Bits32Or64),
            _ => None,
        }
    }

    /// All-ones of this width: the largest reading, and where a counter that sticks stays.
    #[must_use]
    pub const fn ceiling(self) -> u64 {
        match self {
            Self::Bits(64) => u64::MAX,
            Self::Bits(bits) => (1 << bits) - 1,
            Self::Bits32Or64 => 0xffff_ffff,
        }
    }
}

/// How the deltas of the counters of one rank make one delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// `prefer`: there is one counter of this rank. Should a driver ever show two, the first in name order counts.
    Prefer,
    /// `sum`: parts of one whole, added. The whole is unknown when one of them is.
    Sum,
    /// `max`: times that can overlap (pause of several priorities): the longest.
    Max,
}

/// The place of a counter among those of the same meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Combine {
    /// 1 is the best.
    pub rank: u8,
    /// What to do with several of this rank.
    pub how: How,
}

impl Combine {
    /// From the table: `prefer:1`, `sum:2`, `max:1`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let (how, rank) = word.split_once(':')?;
        let how = match how {
            "prefer" => How::Prefer,
            "sum" => How::Sum,
            "max" => How::Max,
            _ => return None,
        };
        let rank = rank.parse().ok().filter(|rank| (1..=9).contains(rank))?;
        Some(Self { rank, how })
    }
}

/// Peculiarities of a counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    /// `all_ones_na`: 2⁶⁴−1 is the driver's way to say that there is no value (`ionic`).
    pub all_ones_na: bool,
    /// `vf_zero`: the driver counts it on a physical function only; 0 on a virtual function is no value.
    pub vf_zero: bool,
    /// `lag_sum`: under LAG the value is the sum over the ports, so rails cannot be told apart.
    pub lag_sum: bool,
    /// `optional`: there only after somebody switched it on; absence says nothing.
    pub optional: bool,
    /// `unreliable`: the driver is known to put something else there.
    pub unreliable: bool,
}

impl Flags {
    /// From the table: words with commas, or `-`.
    #[must_use]
    pub fn parse(words: &str) -> Option<Self> {
        let mut flags = Self::default();
        if words == "-" {
            return Some(flags);
        }
        for word in words.split(',') {
            match word {
                "all_ones_na" => flags.all_ones_na = true,
                "vf_zero" => flags.vf_zero = true,
                "lag_sum" => flags.lag_sum = true,
                "optional" => flags.optional = true,
                "unreliable" => flags.unreliable = true,
                _ => return None,
            }
        }
        Some(flags)
    }
}
