//! The adapter's own path, measured by loopback: a port that writes to itself.

use super::clock::{lasting, plural};
use super::judged::{Judged, Part};
use super::link::names;
use super::root;
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{LoopbackSample, PortRecord};
use crate::observation::Nanos;

/// Newest samples of which the middle one is judged: one slow measurement is the scheduler's.
const NEWEST: usize = 3;
/// A baseline rests on at least so many samples.
const LEAST: usize = 30;
/// A measurement older than this, or than five times the usual distance, says nothing of now, ns.
const FRESH_NS: Nanos = 10_000_000_000;

/// The evidence row of the baseline, which a raised finding is held against from then on.
const BASELINE: &str = "loopback latency, baseline";

/// `loopback.high`.
pub(super) struct High;

impl Rule for High {
    fn id(&self) -> &'static str {
        "loopback.high"
    }

    fn meaning(&self) -> &'static str {
        "An operation from the port to itself takes far longer than it used to: the adapter, its firmware or its way to the \
         host's memory is in trouble, or overloaded. A loopback never crosses the cable: it says nothing of the optic, the \
         switch or the peer. It is measured when asked for (`--loopback`)."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some((device, port)) = names(finding) else { return Vec::new() };
        let gid = super::link::port_of(view.world, finding).and_then(|port| port.gids.first().map(|gid| gid.0));
        let gid = gid.map(|index| format!(" -x {index}")).unwrap_or_default();
        vec![
            format!(
                "ib_write_lat -d {device} -i {port}{gid} & sleep 1; ib_write_lat -d {device} -i {port}{gid} localhost"
            ),
            format!("rdma statistic show link {device}/{port}"),
        ]
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present_ports().filter_map(|(_, port)| high(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        extent(view).in_part()
    }
}

fn extent(view: &View<'_>) -> Judged {
    let all: Vec<&PortRecord> = view.world.present_ports().map(|(_, port)| port).collect();
    let Some(most) = all.iter().map(|port| port.loopbacks.len()).max().filter(|most| *most > 0) else {
        return Judged::Not("no loopback is measured: off unless asked for (--loopback)".to_owned());
    };
    if most < LEAST + NEWEST {
        let measured = plural(most as u64, "loopback");
        return Judged::Not(format!("{measured} measured of the {} a baseline rests on", LEAST + NEWEST));
    }
    let few = |port: &&PortRecord| port.loopbacks.len() < LEAST + NEWEST;
    let blind: Vec<&PortRecord> = all.iter().copied().filter(few).collect();
    view.without(&blind, all.len(), |ports| {
        format!("fewer than the {} loopbacks a baseline rests on are measured on {ports}", LEAST + NEWEST)
    })
}

/// Median latency now and its baseline with the number of samples it rests on, ns.
fn now_and_baseline(view: &View<'_>, port: &PortRecord) -> Option<(u64, u64, usize, Nanos)> {
    let measured = |(t, sample): &(Nanos, LoopbackSample)| (sample.n > 0).then_some((*t, sample.p50_ns));
    let samples: Vec<(Nanos, u64)> = port.loopbacks.iter().rev().filter_map(measured).collect();
    let (newest_t, _) = *samples.first()?;
    let distance = samples.get(1).map_or(0, |(before, _)| newest_t.saturating_sub(*before));
    if samples.len() < LEAST + NEWEST || view.now.saturating_sub(newest_t) > FRESH_NS.max(distance.saturating_mul(5)) {
        return None;
    }
    let (newest, before) = samples.split_at(NEWEST);
    let mut newest: Vec<u64> = newest.iter().map(|(_, p50)| *p50).collect();
    newest.sort_unstable();
    let mut before: Vec<u64> = before.iter().map(|(_, p50)| *p50).collect();
    let at = before.len() / 4;
    let (_, baseline, _) = before.select_nth_unstable(at);
    Some((newest[NEWEST / 2], *baseline, samples.len() - NEWEST, newest_t))
}

fn high(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.loopback_high;
    let (now, baseline, samples, t) = now_and_baseline(view, port)?;
    let (key, subject) = view.port_subject(port);
    let raised = view.raised("loopback.high", &key);
    // A latency that stays high becomes what is usual; it is held against what was usual before.
    let row = raised.and_then(|finding| finding.evidence.iter().find(|row| row.series == BASELINE));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was a number of ns")]
    let before = row.and_then(|row| row.value).map(|us| (us * 1000.0).round() as u64);
    let baseline = before.map_or(baseline, |before| before.min(baseline));
    let limit = (baseline as f64 * settings.factor).max(settings.least_us * 1000.0);
    if now as f64 <= limit {
        return (raised.is_some() && now as f64 > limit / 2.0).then_some(Verdict::Keep(key));
    }
    let us = |ns: u64| ns as f64 / 1000.0;
    let times = now as f64 / baseline.max(1) as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a logarithm of a ratio of latencies")]
    let doubled = times.log2().max(0.0) as u64;
    let since = raised.map_or(t, |finding| finding.first_t);
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade: Grade::Probable,
        summary: format!(
            "loopback takes {} (median), {times:.0} times its own {:.1} µs ({samples} measurements)",
            if now < 1_000_000 { format!("{:.0} µs", us(now)) } else { lasting(now) },
            us(baseline)
        ),
        evidence: vec![
            Evidence::new("loopback latency, median", None, us(now), limit / 1000.0, "µs"),
            Evidence::new(BASELINE, None, us(baseline), None, "µs"),
        ],
        advice: "Look at the other findings about this adapter and its PCIe path (stalls, errors, speed), and at the load of \
                 the CPU the measurement runs on. If all ports of the node are slow, it is the host."
            .to_owned(),
        would_raise: "a finding about the same adapter or its PCIe path".to_owned(),
        part_of: root::of_port(view, port, &["link.down", "nic.stuck", "pcie.aer_fatal", "nic.health"], since, root::ANY),
        since,
        revision: doubled,
    })))
}

/// The slowest median measured within a stretch of time, ns; `None` when nothing was measured.
pub(super) fn slowest(port: &PortRecord, from: Nanos, to: Nanos) -> Option<u64> {
    let samples = port.loopbacks.since(from).filter(|(t, sample)| *t <= to && sample.n > 0);
    samples.map(|(_, sample)| sample.p50_ns).max()
}
