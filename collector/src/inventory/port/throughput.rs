//! What flows through a port now, and the share of its rate that is.

use super::PortRecord;
use crate::observation::PortState;
use crate::timeline::counter_table::Meaning;

/// Throughput of the last interval, Gb/s; `None` is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Throughput {
    /// Sent.
    pub tx_gbps: Option<f64>,
    /// Received.
    pub rx_gbps: Option<f64>,
}

impl PortRecord {
    /// Sent and received bits per second of the last interval, Gb/s.
    #[must_use]
    pub fn throughput(&self) -> Throughput {
        let gbps = |meaning| self.rate(meaning).map(|bytes| bytes * 8.0 / 1e9);
        Throughput { tx_gbps: gbps(Meaning::TxBytes), rx_gbps: gbps(Meaning::RxBytes) }
    }

    /// The busier direction's share of the signalling rate, 0–1; `None` when throughput or rate is unknown, or the port
    /// is down (its rate is then no negotiated one).
    #[must_use]
    pub fn utilisation(&self) -> Option<f64> {
        let rate = self.rate_gbps.filter(|rate| *rate > 0.0 && self.state == PortState::Active)?;
        let now = self.throughput();
        let busier = match (now.tx_gbps, now.rx_gbps) {
            (Some(tx), Some(rx)) => tx.max(rx),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return None,
        };
        Some(busier / rate)
    }
}
