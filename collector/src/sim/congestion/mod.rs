//! What congestion does to one window of a port's traffic.
//!
//! The packet model ([`super::packet`]) is far too slow for hours of a whole node. Here its figures are looked up in a
//! table instead ([`grid`] says for which conditions, [`calibration`] made it) and interpolated: share of marked packets
//! and how they cluster, CNPs for each mark, pause, utilisation, latencies of small and large messages.
//! `cargo bench -p collector --bench sim` prints how far the interpolation is from the packet model at conditions that
//! are not in the table; `… -- table` makes the table anew.
//!
//! All of it is for 400 Gb/s, a round trip of 8 µs, packets of 4178 bytes and pause at a queue of 2 MB. What the table
//! does not have: correlation longer than a millisecond, and anything that is not one queue.

pub mod calibration;
mod grid;

use std::sync::OnceLock;

use grid::{POINTS, Point};

use super::random::Random;

/// Congestion control of the NICs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// DCQCN with the NICs' default parameters.
    Nic,
    /// DCQCN with the paper's parameters.
    Paper,
    /// Senders obey no CNP.
    Off,
}

/// A switch's marking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Marking {
    /// Below this queue no packet is marked, bytes.
    pub kmin_bytes: f64,
    /// Above this queue every packet is marked, bytes.
    pub kmax_bytes: f64,
    /// Share marked just below it, 0–1.
    pub pmax: f64,
}

/// What the traffic is like while it flows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// Offered load as a share of the rate, 0–1.
    pub load: f64,
    /// Size of a burst, bytes.
    pub burst_bytes: f64,
    /// Senders that share the queue.
    pub senders: f64,
    /// Marking; `None` marks nothing.
    pub marking: Option<Marking>,
    /// Congestion control.
    pub control: Control,
}

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Congestion {
    /// Share of the rate that is carried, 0–1.
    pub utilisation: f64,
    /// Share of packets that are marked, 0–1.
    pub mark_share: f64,
    /// Variance of the marks in a millisecond over their mean: 1 when they come one by one, more in clusters.
    pub mark_dispersion: f64,
    /// CNPs for each mark, 0–1.
    pub cnp_per_mark: f64,
    /// Share of the time for which senders are paused, 0–1.
    pub pause_share: f64,
    /// Latency of small messages, ns: median, p90, p99, p99.9.
    pub small_ns: [f64; 4],
    /// Time from handing over a burst to its acknowledgement, ns: median and p99.
    pub large_ns: [f64; 2],
}

/// Figures of a row of the table.
const COLUMNS: usize = 11;
/// Shares below this are none.
const LEAST_SHARE: f64 = 1e-8;

impl Congestion {
    /// The row of the table: shares and latencies as logarithms, utilisation by the load.
    fn row(&self, load: f64) -> [f64; COLUMNS] {
        let ln = |share: f64| (share + LEAST_SHARE).ln();
        let small = self.small_ns.map(|ns| ns.max(1.0).ln());
        let large = self.large_ns.map(|ns| ns.max(1.0).ln());
        [
            self.utilisation / load,
            ln(self.mark_share),
            self.mark_dispersion.max(0.1).ln(),
            self.cnp_per_mark,
            ln(self.pause_share),
            small[0],
            small[1],
            small[2],
            small[3],
            large[0],
            large[1],
        ]
    }

    fn from_row(row: &[f64; COLUMNS], load: f64) -> Self {
        let share = |ln: f64| (ln.exp() - LEAST_SHARE).clamp(0.0, 1.0);
        // The table begins at a tenth of the rate; below it bursts meet the more rarely the fewer they are.
        let thin = (load / grid::LOADS[0]).min(1.0);
        Self {
            utilisation: (row[0] * load).clamp(0.0, 1.0),
            mark_share: share(row[1]) * thin,
            mark_dispersion: row[2].exp(),
            cnp_per_mark: row[3].clamp(0.0, 1.0),
            pause_share: share(row[4]) * thin,
            small_ns: [row[5].exp(), row[6].exp(), row[7].exp(), row[8].exp()],
            large_ns: [row[9].exp(), row[10].exp()],
        }
    }

    /// Marks and CNPs of so many packets within a time, as they would be counted.
    pub(super) fn marks(&self, packets: f64, random: &mut Random) -> (u64, u64) {
        let mean = self.mark_share * packets;
        if mean <= 0.0 {
            return (0, 0);
        }
        let cluster = self.mark_dispersion.max(1.0);
        let clusters = random.poisson(mean / cluster);
        let marks = if cluster > 1.5 {
            (0..clusters.min(64)).map(|_| -cluster * (1.0 - random.unit()).ln()).sum::<f64>()
                + clusters.saturating_sub(64) as f64 * cluster
        } else {
            clusters as f64
        };
        let marks = random.count(marks).min(random.count(packets));
        (marks, random.count(marks as f64 * self.cnp_per_mark).min(marks))
    }
}

impl Conditions {
    /// Looks up what these conditions do.
    #[must_use]
    pub fn congestion(&self) -> Congestion {
        let table = table();
        let mut row = [0.0; COLUMNS];
        grid::around(&self.point(), |at, weight| {
            for (sum, value) in row.iter_mut().zip(&table[at]) {
                *sum += weight * value;
            }
        });
        Congestion::from_row(&row, self.load)
    }

    fn point(&self) -> Point {
        Point {
            load: self.load,
            burst_bytes: self.burst_bytes,
            senders: self.senders,
            marking: self.marking.map(|m| (m.kmin_bytes, m.kmax_bytes, m.pmax)),
            control: self.control,
        }
    }
}

/// The table, read once.
fn table() -> &'static [[f64; COLUMNS]] {
    static TABLE: OnceLock<Vec<[f64; COLUMNS]>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let rows: Vec<[f64; COLUMNS]> = include_str!("table.tsv")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let mut row = [0.0; COLUMNS];
                let values = line.split('\t').map(|value| value.parse().expect("the kept table holds numbers"));
                for (at, value) in row.iter_mut().zip(values) {
                    *at = value;
                }
                row
            })
            .collect();
        assert_eq!(rows.len(), POINTS, "the kept table has a row for each point");
        rows
    })
}
