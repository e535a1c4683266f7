//! Thresholds of the rules about ECN.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

table! {
    /// The definition of a true mark, which the `ecn.*` rules state with their findings.
    Ecn {
        /// A mark is true if the queue stays above K* = 0.17·rate·RTT for so many round trips around it, 0.5 to 16.
        l: f64 = 2.0,
        /// Round-trip time without queueing in microseconds, 0.5 to 1000: an end host does not know it.
        rtt_us: f64 = 8.0,
    }
}

table! {
    /// Settings of `ecn.premature`.
    EcnPremature {
        /// Windows that must show it, 1 to 60.
        windows: u32 = 3,
        /// Share of received packets that must be marked, above which marks are looked at, 0 to 1.
        mark_rate: f64 = 1e-4,
        /// The same where counters alone speak: fewer isolated marks are also what a long queue gives at a low marking
        /// probability, 0 to 1.
        counters_mark_rate: f64 = 1e-3,
        /// Above this share counters alone say nothing: so many marks are not isolated, and a CNP for each shows no more
        /// than that many flows take turns, 0 to 1.
        counters_mark_rate_most: f64 = 0.03,
        /// Share of the port's rate that must not be received, in the mean and where the marks fell, 0 to 1.
        utilisation: f64 = 0.5,
        /// What the signs must weigh together, natural logarithm of odds, 0 to 10.
        weight: f64 = 1.3,
        /// The same where counters alone speak, 0 to 10: 2.0 is a CNP for nine in ten marks.
        counters_weight: f64 = 2.0,
    }
}

table! {
    /// Settings of `ecn.missed`.
    EcnMissed {
        /// Windows that must show it, 1 to 60.
        windows: u32 = 3,
        /// Share of the time the port must be told to stop, 0 to 1. A queue long enough to stop senders is far above every
        /// sensible Kmin, so little of it without a mark is enough.
        pause: f64 = 0.005,
        /// Share of packets below which they count as not marked, 0 to 1.
        mark_rate: f64 = 1e-5,
        /// Packets a second that must be lost or out of sequence, 1 or more.
        lost_per_s: f64 = 100.0,
        /// Times its quiet level the median latency must be for the grade probable, 1 or more.
        latency_factor: f64 = 3.0,
    }
}

table! {
    /// Settings of `ecn.not_ect`.
    EcnNotEct {
        /// Windows that must show it, 1 to 600.
        windows: f64 = 3.0,
        /// Share of data packets that must be Not-ECT where packets are seen, 0 to 1.
        share: f64 = 0.01,
    }
}

table! {
    /// Settings of `ecn.wrong_class`.
    EcnWrongClass {
        /// Windows that must show it, 1 to 60.
        windows: u32 = 3,
        /// Share of the RDMA bytes that must be in the wrong priority, 0 to 1.
        share: f64 = 0.5,
        /// Share of data packets that must carry the CNPs' DSCP where packets are seen, 0 to 1.
        packet_share: f64 = 0.01,
        /// Share of the port's rate below which nothing is said, 0 to 1.
        utilisation: f64 = 0.01,
    }
}

table! {
    /// Settings of `ecn.no_cnp`.
    EcnNoCnp {
        /// Windows that must show it, 1 to 60.
        windows: u32 = 3,
        /// Marked packets that must be exceeded in all of them, 0 or more.
        marks: u64 = 1000,
    }
}

table! {
    /// Settings of `ecn.cnp_ignored`.
    EcnCnpIgnored {
        /// Windows that must show it, 1 to 60.
        windows: u32 = 3,
        /// Ignored CNPs that must be reached in all of them, 1 or more.
        cnps: u64 = 100,
        /// Share of the received CNPs that must be ignored, 0 to 1.
        share: f64 = 0.05,
        /// CNPs handled per second and QP that a port at full rate cannot have obeyed, 1 or more. Looked at only where the
        /// probes see at least nine tenths of the bytes: of unseen QPs nobody knows how many there are.
        handled_per_s: f64 = 10_000.0,
        /// Share of the port's rate that is full rate, 0 to 1.
        utilisation: f64 = 0.9,
        /// QPs above which a port can keep its rate although each flow is slowed down to its share, 0 or more.
        qps: u32 = 1,
    }
}

table! {
    /// Settings of `ecn.cnp_without_ce`.
    EcnCnpWithoutCe {
        /// Windows that must show it, 1 to 60.
        windows: u32 = 10,
        /// CNPs that nothing explains, to be exceeded, 0 or more.
        cnps: u64 = 100,
        /// Share of the sent CNPs that nothing explains, to be exceeded, 0 to 1.
        share: f64 = 0.02,
    }
}

table! {
    /// Settings of `ecn.cnp_lost`.
    EcnCnpLost {
        /// Windows that must show it, 1 to 600.
        windows: u32 = 10,
        /// CNPs the peer must have sent, 1 or more.
        cnps: u64 = 1000,
        /// Share of them that must be lost, 0 to 1.
        share: f64 = 0.01,
    }
}

table! {
    /// Settings of `ecn.host_marking`.
    EcnHostMarking {
        /// Windows that must show it, 1 to 60.
        windows: u32 = 3,
        /// Percent of the last second in which PCIe must be stalled, 0 to 100.
        stalled_percent: f64 = 30.0,
    }
}

table! {
    /// Settings of `ecn.rail_asymmetry`.
    EcnRailAsymmetry {
        /// Windows that are compared, 1 to 60.
        windows: u32 = 4,
        /// Times the median of the other rails, 1 or more.
        factor: f64 = 5.0,
        /// Rails whose load differs by more than this share are not compared, 0 to 1.
        load_within: f64 = 0.2,
        /// Share of the rate a rail must receive at least, 0 to 1.
        load: f64 = 0.02,
        /// Share of packets that must be marked at least, 0 to 1.
        mark_rate: f64 = 1e-4,
        /// Marked packets that must be there at least, 1 or more.
        marks: u64 = 1000,
    }
}

table! {
    /// Settings of `ecn.inversion`.
    EcnInversion {
        /// Windows with marks that are needed, 10 to 1800.
        windows: usize = 60,
        /// Rank correlation of load and mark rate that must be reached, -1 to 0. With few windows more is asked, for
        /// chance alone makes some.
        correlation: f64 = -0.3,
        /// Least swing of the load, 10th to 90th percentile, share of the port's rate, 0 to 1.
        load_swing: f64 = 0.1,
    }
}
