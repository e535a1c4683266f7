//! Determinism: a throughput that is high on average and low at times.

use super::clock::{ns, plural};
use super::link::names;
use super::span::interval;
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{PortRecord, Role};
use crate::observation::PortState;
use crate::timeline::Ring;
use crate::timeline::counter_table::Meaning;

/// The longest time looked back over, s.
const LONGEST_S: f64 = 3600.0;
/// Rails that must be busy at the same time to tell whether one stands out.
const RAILS: usize = 3;

/// `port.unstable_bandwidth`.
pub(super) struct Unstable;

impl Rule for Unstable {
    fn id(&self) -> &'static str {
        "port.unstable_bandwidth"
    }

    fn meaning(&self) -> &'static str {
        "While the port is busy its throughput is far below its own mean in one of twenty windows: who waits for the slowest \
         part gets that, not the mean. What the application asks for is not known: one that asks for less at times looks the \
         same, unless the other rails of the node are steady at the same time. What all rails do together is not told. The \
         beginning and the end of a busy stretch are left out."
    }

    fn hand_check(&self, _view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some((device, port)) = names(finding) else { return Vec::new() };
        let counters = format!("/sys/class/infiniband/{device}/ports/{port}/counters/port_{{xmit,rcv}}_data");
        vec![format!("while sleep 1; do cat {counters} | paste -s; done     # words of 4 bytes")]
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let present = view.world.present_ports().map(|(_, port)| port).filter(|port| port.state == PortState::Active);
        // Mostly no port was busy for so long, and its rails need not be looked at.
        if !present.clone().any(|port| was_busy(view, port)) {
            return Vec::new();
        }
        let all: Vec<Throughput<'_>> = present
            .filter(|port| !matches!(view.world.role(port.key.device), Some(Role::Vf | Role::Management)))
            .map(|port| Throughput::of(view, port))
            .collect();
        all.iter().filter_map(|own| unstable(view, own, &all)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        let least = view.settings.port_unstable_bandwidth.least_windows;
        let most = view.world.present_ports().map(|(_, port)| Throughput::of(view, port).inner(view).len()).max();
        match most {
            None => Some("there is no port".to_owned()),
            Some(n) if n < least => {
                Some(format!("{} of the {least} busy windows it takes", plural(n as u64, "busy window")))
            }
            Some(_) => None,
        }
    }
}

/// What some readings were like, Gb/s.
#[derive(Debug, Clone, Copy)]
struct Level {
    mean: f64,
    p5: f64,
}

impl Level {
    fn of(mut gbps: Vec<f64>) -> Option<Self> {
        let n = gbps.len();
        if n == 0 {
            return None;
        }
        let mean = gbps.iter().sum::<f64>() / n as f64;
        let (_, p5, _) = gbps.select_nth_unstable_by(n / 20, f64::total_cmp);
        Some(Self { mean, p5: *p5 })
    }

    /// How far the low readings are below the mean, as a share of it.
    fn spread(&self) -> f64 {
        (self.mean - self.p5) / self.mean
    }
}

/// Windows that one reading tells of: a counter read more rarely than once a window shows its last rate until it is read
/// again, which makes no more readings of it.
fn per_reading(view: &View<'_>, port: &PortRecord) -> usize {
    let engine_ns = ns(view.settings.window_s).max(1);
    let interval = [Meaning::TxBytes, Meaning::RxBytes].map(|meaning| interval(port, meaning)).into_iter().max();
    let windows = interval.unwrap_or(0).saturating_add(engine_ns / 2) / engine_ns;
    usize::try_from(windows.clamp(1, 120)).unwrap_or(1)
}

/// Windows looked back over: more of them where readings are rarer, so that as many readings fall into them.
fn look_back(view: &View<'_>, per_reading: usize) -> usize {
    let engine_ns = ns(view.settings.window_s).max(1);
    let windows = |seconds: f64| usize::try_from(ns(seconds) / engine_ns).unwrap_or(1);
    let own = windows(view.settings.port_unstable_bandwidth.window_s);
    own.saturating_mul(per_reading).min(windows(LONGEST_S).max(own))
}

/// One direction of the port was busy in as many of the readings as it takes, wherever among them.
fn was_busy(view: &View<'_>, port: &PortRecord) -> bool {
    let settings = &view.settings.port_unstable_bandwidth;
    let Some(rate) = port.rate_gbps.filter(|rate| *rate > 0.0) else { return false };
    let per_reading = per_reading(view, port);
    let n = look_back(view, per_reading);
    let is_busy = |bytes: &f64| bytes * 8.0 / 1e9 > settings.busy * rate;
    [Meaning::TxBytes, Meaning::RxBytes].into_iter().filter_map(|meaning| port.rates.get(&meaning)).any(|ring| {
        let readings = ring.newest_first().take(n).step_by(per_reading);
        readings.flatten().filter(is_busy).count() >= least(view)
    })
}

/// Busy readings it takes.
fn least(view: &View<'_>) -> usize {
    view.settings.port_unstable_bandwidth.least_windows.max(20)
}

/// Throughput of a port's busier direction over the time looked back over.
struct Throughput<'w> {
    port: &'w PortRecord,
    /// Gb/s, one for each reading, the newest first.
    gbps: Vec<Option<f64>>,
    /// Windows that one reading tells of, and how many are looked back over.
    per_reading: usize,
    windows: usize,
}

impl<'w> Throughput<'w> {
    fn of(view: &View<'_>, port: &'w PortRecord) -> Self {
        let per_reading = per_reading(view, port);
        let n = look_back(view, per_reading);
        let windows = |meaning| -> Vec<Option<f64>> {
            let newest = |ring: &Ring| ring.newest_first().take(n).step_by(per_reading).collect();
            port.rates.get(&meaning).map(newest).unwrap_or_default()
        };
        let (tx, rx) = (windows(Meaning::TxBytes), windows(Meaning::RxBytes));
        let sum = |all: &[Option<f64>]| all.iter().flatten().sum::<f64>();
        let busier = if sum(&tx) >= sum(&rx) { tx } else { rx };
        let gbps = busier.iter().map(|rate| rate.map(|bytes| bytes * 8.0 / 1e9)).collect();
        Self { port, gbps, per_reading, windows: n }
    }

    /// The busy readings by their place, without the first and last of each stretch: those are busy in part only.
    fn inner(&self, view: &View<'_>) -> Vec<(usize, f64)> {
        let share = view.settings.port_unstable_bandwidth.busy;
        let Some(rate) = self.port.rate_gbps.filter(|rate| *rate > 0.0) else { return Vec::new() };
        let busy = |at: usize| self.gbps.get(at).copied().flatten().is_some_and(|gbps| gbps > share * rate);
        (1..self.gbps.len())
            .filter(|at| busy(at - 1) && busy(*at) && busy(at + 1))
            .filter_map(|at| Some((at, self.gbps[at]?)))
            .collect()
    }

    /// What this port, another rail of the same kind, carried in just those readings of `own`; nothing where it was idle then
    /// or many of its readings are missing.
    fn meanwhile(&self, view: &View<'_>, own: &Self, inner: &[(usize, f64)]) -> Option<Level> {
        let (one, other) = (own.port, self.port);
        let alike = other.rate_gbps == one.rate_gbps && other.link_layer == one.link_layer;
        if other.key == one.key || !alike || self.per_reading != own.per_reading {
            return None;
        }
        let then: Vec<f64> = inner.iter().filter_map(|(at, _)| self.gbps.get(*at).copied().flatten()).collect();
        if then.len() < inner.len() / 10 * 9 {
            return None;
        }
        // A rail that swings around the limit with the port is not idle.
        let least = view.settings.port_unstable_bandwidth.busy / 2.0 * other.rate_gbps?;
        Level::of(then).filter(|level| level.mean > least)
    }
}

fn unstable(view: &View<'_>, carried: &Throughput<'_>, all: &[Throughput<'_>]) -> Option<Verdict> {
    let settings = &view.settings.port_unstable_bandwidth;
    let port = carried.port;
    let inner = carried.inner(view);
    if inner.len() < least(view) {
        return None;
    }
    let own = Level::of(inner.iter().map(|(_, gbps)| *gbps).collect())?;
    let (key, subject) = view.port_subject(port);
    if own.spread() <= settings.spread {
        let keep = own.spread() > settings.spread * 0.8 && view.raised("port.unstable_bandwidth", &key).is_some();
        return keep.then_some(Verdict::Keep(key));
    }
    let mut others: Vec<f64> =
        all.iter().filter_map(|other| Some(other.meanwhile(view, carried, &inner)?.spread())).collect();
    others.sort_unstable_by(f64::total_cmp);
    let middle = (others.len() + 1 >= RAILS).then(|| others[others.len() / 2]);
    // All rails together are the job's own rhythm.
    if middle.is_some_and(|middle| middle >= settings.spread / 2.0) {
        return None;
    }
    let limit = own.mean * (1.0 - settings.spread);
    let each_s = carried.per_reading as f64 * view.settings.window_s;
    let window_s = carried.windows as f64 * view.settings.window_s;
    // It began with the first reading that is low, of those looked back over.
    let first_low = inner.iter().rev().find(|(_, gbps)| *gbps < limit).map_or(0, |(at, _)| *at);
    let what = if each_s > view.settings.window_s { "readings" } else { "windows" };
    let percent = |share: f64| share * 100.0;
    let window = Some(window_s);
    let mut evidence = vec![
        Evidence::new("throughput, mean", window, own.mean, None, "Gb/s"),
        Evidence::new("throughput, lowest 5 % (p5)", window, own.p5, limit, "Gb/s"),
        Evidence::new("(mean − p5) / mean", window, percent(own.spread()), percent(settings.spread), "percent"),
    ];
    if let Some(middle) = middle {
        evidence.push(Evidence::new(
            "(mean − p5) / mean, middle of the other rails then",
            window,
            percent(middle),
            None,
            "percent",
        ));
    }
    let rails = middle
        .map(|middle| format!("; the other rails are steady in the same time ({:.1} %)", percent(middle)))
        .unwrap_or_default();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share between 0 and 1")]
    let tenth = (own.spread() * 10.0) as u64;
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        // What the job asked for is not known: a measure to compare runs by, no fault.
        severity: Severity::Info,
        grade: Grade::Suspected,
        summary: format!(
            "{:.0} Gb/s on average and {:.0} in the lowest 5 % of {} busy {what}: {:.1} % below; what is asked for is not known{rails}",
            own.mean,
            own.p5,
            inner.len(),
            percent(own.spread())
        ),
        evidence,
        advice: "Look what happens in the low windows: pause, retransmissions, marks, stalls of the bus, other traffic on the \
                 same path. A port that differs from its rails has a problem of its own path."
            .to_owned(),
        would_raise: "work requests waiting in the low windows (the demand), seen by the probes".to_owned(),
        part_of: super::root::of_port(view, port, &["phy.post_fec", "link.flap", "nic.stuck"], view.now, 0),
        since: view.since((first_low + 1) as f64 * each_s),
        revision: tenth,
    })))
}
