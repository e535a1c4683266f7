//! Thresholds of the rules about ECN.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::range::{self, at_least, between};

table! {
    /// The definition of a true mark, which the `ecn.*` rules state with their findings.
    Ecn {
        /// A mark is true if the queue stays above K* = 0.17·rate·RTT for so many round trips around it.
        l: f64 [between(0.5, 16.0)] = 2.0,
        /// Round-trip time without queueing in microseconds: an end host does not know it.
        rtt_us: f64 [between(0.5, 1000.0)] = 8.0,
    }
}

table! {
    /// Settings of `ecn.premature`.
    EcnPremature {
        /// Windows that must show it.
        windows: u32 [between(1.0, 60.0)] = 3,
        /// Share of received packets that must be marked, above which marks are looked at.
        mark_rate: f64 [between(0.0, 1.0)] = 1e-4,
        /// The same where counters alone speak: fewer isolated marks are also what a long queue gives at a low marking
        /// probability.
        counters_mark_rate: f64 [between(0.0, 1.0)] = 1e-3,
        /// Above this share counters alone say nothing: so many marks are not isolated, and a CNP for each shows no more
        /// than that many flows take turns.
        counters_mark_rate_most: f64 [between(0.0, 1.0)] = 0.03,
        /// Share of the port's rate that must not be received, in the mean and where the marks fell.
        utilisation: f64 [between(0.0, 1.0)] = 0.5,
        /// What the signs must weigh together, natural logarithm of odds.
        weight: f64 [between(0.0, 10.0)] = 1.3,
        /// The same where counters alone speak: 2.0 is a CNP for nine in ten marks.
        counters_weight: f64 [between(0.0, 10.0)] = 2.0,
    }
}

table! {
    /// Settings of `ecn.missed`.
    EcnMissed {
        /// Windows that must show it.
        windows: u32 [between(1.0, 60.0)] = 3,
        /// Share of the time the port must be told to stop. A queue long enough to stop senders is far above every
        /// sensible Kmin, so little of it without a mark is enough.
        pause: f64 [between(0.0, 1.0)] = 0.005,
        /// Share of packets below which they count as not marked.
        mark_rate: f64 [between(0.0, 1.0)] = 1e-5,
        /// Packets a second that must be lost or out of sequence.
        lost_per_s: f64 [at_least(1.0)] = 100.0,
        /// Times its quiet level the median latency must be for the grade probable.
        latency_factor: f64 [at_least(1.0)] = 3.0,
    }
}

table! {
    /// Settings of `ecn.not_ect`.
    EcnNotEct {
        /// Windows that must show it.
        windows: f64 [between(1.0, 600.0)] = 3.0,
        /// Share of data packets that must be Not-ECT where packets are seen.
        share: f64 [between(0.0, 1.0)] = 0.01,
    }
}

table! {
    /// Settings of `ecn.wrong_class`.
    EcnWrongClass {
        /// Windows that must show it.
        windows: u32 [between(1.0, 60.0)] = 3,
        /// Share of the RDMA bytes that must be in the wrong priority.
        share: f64 [between(0.0, 1.0)] = 0.5,
        /// Share of data packets that must carry the CNPs' DSCP where packets are seen.
        packet_share: f64 [between(0.0, 1.0)] = 0.01,
        /// Share of the port's rate below which nothing is said.
        utilisation: f64 [between(0.0, 1.0)] = 0.01,
    }
}

table! {
    /// Settings of `ecn.no_cnp`.
    EcnNoCnp {
        /// Windows that must show it.
        windows: u32 [between(1.0, 60.0)] = 3,
        /// Marked packets that must be exceeded in all of them.
        marks: u64 [at_least(0.0)] = 1000,
    }
}

table! {
    /// Settings of `ecn.cnp_ignored`.
    EcnCnpIgnored {
        /// Windows that must show it.
        windows: u32 [between(1.0, 60.0)] = 3,
        /// Ignored CNPs that must be reached in all of them.
        cnps: u64 [at_least(1.0)] = 100,
        /// Share of the received CNPs that must be ignored.
        share: f64 [between(0.0, 1.0)] = 0.05,
        /// CNPs handled per second and QP that a port at full rate cannot have obeyed. Looked at only where the
        /// probes see at least nine tenths of the bytes: of unseen QPs nobody knows how many there are.
        handled_per_s: f64 [at_least(1.0)] = 10_000.0,
        /// Share of the port's rate that is full rate.
        utilisation: f64 [between(0.0, 1.0)] = 0.9,
        /// QPs above which a port can keep its rate although each flow is slowed down to its share.
        qps: u32 [at_least(0.0)] = 1,
    }
}

table! {
    /// Settings of `ecn.cnp_without_ce`.
    EcnCnpWithoutCe {
        /// Windows that must show it.
        windows: u32 [between(1.0, 60.0)] = 10,
        /// CNPs that nothing explains, to be exceeded.
        cnps: u64 [at_least(0.0)] = 100,
        /// Share of the sent CNPs that nothing explains, to be exceeded.
        share: f64 [between(0.0, 1.0)] = 0.02,
    }
}

table! {
    /// Settings of `ecn.cnp_lost`.
    EcnCnpLost {
        /// Windows that must show it.
        windows: u32 [between(1.0, 600.0)] = 10,
        /// CNPs the peer must have sent.
        cnps: u64 [at_least(1.0)] = 1000,
        /// Share of them that must be lost.
        share: f64 [between(0.0, 1.0)] = 0.01,
    }
}

table! {
    /// Settings of `ecn.host_marking`.
    EcnHostMarking {
        /// Windows that must show it.
        windows: u32 [between(1.0, 60.0)] = 3,
        /// Percent of the last second in which PCIe must be stalled.
        stalled_percent: f64 [between(0.0, 100.0)] = 30.0,
    }
}

table! {
    /// Settings of `ecn.rail_asymmetry`.
    EcnRailAsymmetry {
        /// Windows that are compared.
        windows: u32 [between(1.0, 60.0)] = 4,
        /// Times the median of the other rails.
        factor: f64 [at_least(1.0)] = 5.0,
        /// Rails whose load differs by more than this share are not compared.
        load_within: f64 [between(0.0, 1.0)] = 0.2,
        /// Share of the rate a rail must receive at least.
        load: f64 [between(0.0, 1.0)] = 0.02,
        /// Share of packets that must be marked at least.
        mark_rate: f64 [between(0.0, 1.0)] = 1e-4,
        /// Marked packets that must be there at least.
        marks: u64 [at_least(1.0)] = 1000,
    }
}

table! {
    /// Settings of `ecn.inversion`.
    EcnInversion {
        /// Windows with marks that are needed.
        windows: usize [between(10.0, 1800.0)] = 60,
        /// Rank correlation of load and mark rate that must be reached. With few windows more is asked, for
        /// chance alone makes some.
        correlation: f64 [between(-1.0, 0.0)] = -0.3,
        /// Least swing of the load, 10th to 90th percentile, share of the port's rate.
        load_swing: f64 [between(0.0, 1.0)] = 0.1,
    }
}
