//! Makes the table from the packet model, and measures how far the table is from it elsewhere.

use super::grid::{self, Point};
use super::{Conditions, Congestion, Control, Marking};
use crate::sim::packet::{self, Cnp, Ecn, Message, Observer, Packet, Params, Pfc, Picos, Probe, Red, Workload};
use crate::sim::random::Random;

/// Simulated time of a run, and of its warm-up, ns.
const RUN_NS: u64 = 60_000_000;
const WARM_UP_NS: u64 = 10_000_000;
const RATE_GBPS: f64 = 400.0;
const PS_PER_MS: u64 = 1_000_000_000;

/// The whole table as it is kept, from the packet model. Takes minutes.
#[must_use]
pub fn table_text() -> String {
    let mut text = String::from(
        "# Figures of the packet model for the conditions of grid.rs, in their order; made by\n\
         # cargo bench -p collector --bench sim -- table\n\
         # utilisation/load, ln mark share, ln dispersion, CNPs/mark, ln pause share, ln ns: small p50 p90 p99 p99.9, large p50 p99\n",
    );
    for (row, point) in grid::points().enumerate() {
        let figures = measure(&point, row as u64).row(point.load);
        let cells: Vec<String> = figures.iter().map(|value| trimmed(*value)).collect();
        text.push_str(&cells.join("\t"));
        text.push('\n');
    }
    text
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// One comparison of table and packet model.
#[derive(Debug, Clone, Copy)]
pub struct Residual {
    /// Drawn at random within the table's range.
    pub conditions: Conditions,
    /// By the table.
    pub table: Congestion,
    /// By the packet model.
    pub packets: Congestion,
}

/// Compares at `n` conditions drawn at random.
#[must_use]
pub fn residuals(n: u64, seed: u64) -> Vec<Residual> {
    let mut random = Random::new(seed);
    (0..n)
        .map(|at| {
            let log = |random: &mut Random, low: f64, high: f64| low * (high / low).powf(random.unit());
            let kmin_bytes = log(&mut random, 5e3, 512e3);
            let conditions = Conditions {
                load: 0.1 + 0.8 * random.unit(),
                burst_bytes: log(&mut random, 16e3, 1_024e3),
                senders: log(&mut random, 4.0, 16.0).round(),
                marking: (random.below(8) > 0).then(|| Marking {
                    kmin_bytes,
                    kmax_bytes: log(&mut random, kmin_bytes.max(200e3), 4_096e3),
                    pmax: log(&mut random, 0.01, 0.2),
                }),
                control: grid::CONTROLS[random.index(grid::CONTROLS.len())],
            };
            Residual { conditions, table: conditions.congestion(), packets: measure(&conditions.point(), seed ^ at) }
        })
        .collect()
}

/// Runs the packet model at a point.
fn measure(point: &Point, seed: u64) -> Congestion {
    let whole = |value: f64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a queue")]
        let whole = value.max(0.0) as u64;
        whole
    };
    let (kmin, kmax, pmax) = point.marking.unwrap_or((1e8, 1e8, 0.0));
    let control = match point.control {
        Control::Paper => packet::Control::paper(RATE_GBPS),
        Control::Nic | Control::Off => packet::Control::nic(RATE_GBPS),
    };
    let params = Params {
        rate_gbps: RATE_GBPS,
        senders: u32::try_from(whole(point.senders)).unwrap_or(16),
        workload: Workload::Bursts { bytes: whole(point.burst_bytes), load: point.load },
        red: Red { kmin_bytes: whole(kmin), kmax_bytes: whole(kmax), pmax },
        control,
        pfc: Some(Pfc { xoff_bytes: 2_000_000, xon_bytes: 1_600_000, delay_ns: 4_000 }),
        probe: Some(Probe { bytes: 100, gap_ns: 12_000 }),
        faults: packet::Faults {
            marking_off: point.marking.is_none(),
            rp_off: point.control == Control::Off,
            ..packet::Faults::default()
        },
        seed,
        duration_ns: RUN_NS,
        warm_up_ns: WARM_UP_NS,
        ..Params::example()
    };
    let mut tally = Tally::new();
    packet::run(&params, &mut tally);
    tally.figures()
}

/// Counts what a node would.
struct Tally {
    bytes: u64,
    packets: u64,
    marks: u64,
    cnps: u64,
    /// Marks of each millisecond.
    by_ms: Vec<u64>,
    paused_ps: Picos,
    silent_since: Option<Picos>,
    small: Vec<u64>,
    large: Vec<u64>,
}

impl Tally {
    fn new() -> Self {
        Self {
            bytes: 0,
            packets: 0,
            marks: 0,
            cnps: 0,
            by_ms: vec![0; usize::try_from((RUN_NS - WARM_UP_NS) / 1_000_000).unwrap_or(1)],
            paused_ps: 0,
            silent_since: None,
            small: Vec::new(),
            large: Vec::new(),
        }
    }

    fn figures(mut self) -> Congestion {
        let span_ps = (RUN_NS - WARM_UP_NS) as f64 * 1e3;
        if let Some(since) = self.silent_since {
            self.paused_ps += (RUN_NS * 1_000).saturating_sub(since);
        }
        let mean = self.marks as f64 / self.by_ms.len() as f64;
        let variance = self.by_ms.iter().map(|n| (*n as f64 - mean).powi(2)).sum::<f64>() / self.by_ms.len() as f64;
        let quantile = |list: &mut Vec<u64>, share: f64| {
            list.sort_unstable();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index of the list")]
            let at = (share * list.len() as f64) as usize;
            list.get(at.min(list.len().saturating_sub(1))).map_or(0.0, |ps| *ps as f64 / 1e3)
        };
        Congestion {
            utilisation: self.bytes as f64 * 8e12 / (RATE_GBPS * 1e9) / span_ps,
            mark_share: self.marks as f64 / (self.packets as f64).max(1.0),
            mark_dispersion: if self.marks == 0 { 1.0 } else { variance / mean },
            cnp_per_mark: if self.marks == 0 { 1.0 } else { (self.cnps as f64 / self.marks as f64).min(1.0) },
            pause_share: self.paused_ps as f64 / span_ps,
            small_ns: [0.5, 0.9, 0.99, 0.999].map(|share| quantile(&mut self.small, share)),
            large_ns: [0.5, 0.99].map(|share| quantile(&mut self.large, share)),
        }
    }
}

const WARM_UP_PS: Picos = WARM_UP_NS * 1_000;

impl Observer for Tally {
    fn packet(&mut self, packet: &Packet) {
        let Some(t) = packet.t_ps.checked_sub(WARM_UP_PS) else { return };
        self.bytes += u64::from(packet.bytes);
        self.packets += 1;
        if packet.ecn == Ecn::Ce {
            self.marks += 1;
            if let Some(n) = usize::try_from(t / PS_PER_MS).ok().and_then(|ms| self.by_ms.get_mut(ms)) {
                *n += 1;
            }
        }
    }

    fn cnp_sent(&mut self, cnp: &Cnp) {
        self.cnps += u64::from(cnp.t_ps >= WARM_UP_PS);
    }

    fn message(&mut self, message: &Message) {
        if message.start_ps >= WARM_UP_PS {
            let list = if message.probe { &mut self.small } else { &mut self.large };
            list.push(message.end_ps - message.start_ps);
        }
    }

    fn pause(&mut self, t_ps: Picos, silent: bool) {
        if silent {
            self.silent_since = Some(t_ps.max(WARM_UP_PS));
        } else if let Some(since) = self.silent_since.take() {
            self.paused_ps += t_ps.saturating_sub(since);
        }
    }
}
