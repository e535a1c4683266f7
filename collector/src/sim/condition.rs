//! What is wrong with a port, or right.

use super::congestion::{Control, Marking};

/// A port's condition. The default is a healthy port of a well-configured fabric.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    /// How the switch marks towards this port and its peers; `None` does not.
    pub(super) marking: Option<Marking>,
    /// What senders make of CNPs.
    pub(super) control: Control,
    /// This node answers no mark with a CNP.
    pub(super) np_off: bool,
    /// This node obeys no CNP.
    pub(super) rp_off: bool,
    /// The parameters the driver shows say so.
    pub(super) shown: bool,
    /// RDMA rides priority 0, without PFC and ECN.
    pub(super) wrong_class: bool,
    /// Packets the NIC itself marks, as a share of those received.
    pub(super) host_marking: f64,
    /// Percent of the time the NIC waits for the host.
    pub(super) pci_stalled: u64,
    /// Share of the time for which the fabric pauses this port, besides the model's.
    pub(super) paused: f64,
    /// Bit error ratio before FEC, and the lane that has nearly all of it.
    pub(super) bit_errors: f64,
    pub(super) bad_lane: Option<usize>,
    /// Symbol errors after FEC, CRC errors, each per second.
    pub(super) post_fec_per_s: f64,
    pub(super) crc_per_s: f64,
    /// Requests that find no receive buffer at the peer, and here, each per second.
    pub(super) rnr_sent_per_s: f64,
    pub(super) rnr_received_per_s: f64,
    /// What PCIe lets through, Gb/s.
    pub(super) cap_gbps: Option<f64>,
    /// Latency that QP contexts fetched anew add to each operation, ns.
    pub(super) fetch_ns: f64,
    /// Firmware answers every read with ones.
    pub(super) all_ones: bool,
    /// Counters are not answered at all.
    pub(super) silent: bool,
    /// Above the usual temperature, 10⁻³ °C.
    pub(super) heat: u64,
}

impl Default for Condition {
    fn default() -> Self {
        Self {
            marking: Some(Marking::USUAL),
            control: Control::Nic,
            np_off: false,
            rp_off: false,
            shown: true,
            wrong_class: false,
            host_marking: 0.0,
            pci_stalled: 2,
            paused: 0.0,
            bit_errors: 1e-8,
            bad_lane: None,
            post_fec_per_s: 0.0,
            crc_per_s: 0.0,
            rnr_sent_per_s: 0.0,
            rnr_received_per_s: 0.0,
            cap_gbps: None,
            fetch_ns: 0.0,
            all_ones: false,
            silent: false,
            heat: 0,
        }
    }
}

impl Marking {
    /// Thresholds of about twice the bandwidth-delay product of a pod, as data centre fabrics use them at 400 Gb/s.
    pub(super) const USUAL: Self = Self { kmin_bytes: 1_024e3, kmax_bytes: 2_048e3, pmax: 0.05 };
    /// Thresholds for 40 Gb/s left in place.
    pub(super) const LOW: Self = Self { kmin_bytes: 5e3, kmax_bytes: 200e3, pmax: 0.01 };
}
