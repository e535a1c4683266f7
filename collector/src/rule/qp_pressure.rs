//! Many QPs in turn: pressure on the adapter's cache of QP contexts, inferred.

use super::clock::ns;
use super::judged::{Judged, Part};
use super::qp::qp_check;
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{PortRecord, PostWindow};
use crate::observation::Nanos;
use crate::timeline::counter_table::Meaning;

/// Newest windows that tell what is known of posts now.
const LOOKED_AT: usize = 10;
/// Windows a quiet level rests on at least.
const QUIET_WINDOWS: usize = 10;
/// Above this share of the line rate a queue on the link explains a latency as well.
const BUSY_LINK: f64 = 0.8;

/// Windows that say what is posted where posts are paused now and then, at least: each of them is an estimate from a part of
/// a second.
const SAMPLES: usize = 3;
/// They are looked for over a time so many times longer than where posts are watched all the time.
const SAMPLED_REACH: u64 = 12;
/// A report of the probes that is older is no sign of now, ns.
const REPORTED_NS: Nanos = 3_000_000_000;

/// What can be said of what a port posts.
pub(super) enum Posts {
    Are(Posted),
    /// They are paused, or were too often: nothing that was said is taken back for that.
    Paused,
    /// Nothing was posted, or it is not known.
    Unknown,
}

/// What the probes saw a port post over the last windows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posted {
    /// How far back those windows go, s.
    pub(super) span_s: f64,
    /// QPs that posted in one window, the most of them.
    pub(super) qps: u32,
    pub(super) wrs_per_s: f64,
    pub(super) bytes_per_s: f64,
    /// Times a process posted to another QP than before, per second and as a share of posts; `None` where it is not
    /// counted.
    pub(super) switches: Option<(f64, f64)>,
    /// Share of the work requests of known size that are small; `None` when no size is known.
    pub(super) small_share: Option<f64>,
    /// Mean latency, ns; `None` where it is not measured.
    pub(super) latency_ns: Option<f64>,
    /// The same of small operations.
    pub(super) small_latency_ns: Option<f64>,
}

/// Over the last windows that make `window_s`. Where posts are paused now and then there are fewer of them, and further
/// apart.
pub(super) fn posted(view: &View<'_>, port: &PortRecord, window_s: f64) -> Posts {
    let engine_ns = ns(view.settings.window_s).max(1);
    let n = usize::try_from(ns(window_s).div_ceil(engine_ns)).unwrap_or(1).max(1);
    let age = |window: &PostWindow| view.now.saturating_sub(window.t);
    let fresh = |traced: &[&PostWindow]| traced.first().is_some_and(|window| age(window) < engine_ns.saturating_mul(2));
    let newest = port.posting.newest_first();
    let probes = view.world.probes.as_ref().filter(|probes| probes.posts_watched_ns.is_some());
    let Some(probes) = probes else {
        let traced: Vec<&PostWindow> = newest.take(n).collect();
        let enough = traced.len() == n && fresh(&traced);
        return if enough { over(&traced, window_s) } else { Posts::Unknown };
    };
    let reach = ns(window_s).saturating_mul(SAMPLED_REACH);
    let traced: Vec<&PostWindow> = newest.take_while(|window| age(window) < reach).take(n).collect();
    let Some(oldest) = traced.last().filter(|_| view.now.saturating_sub(probes.t) < REPORTED_NS) else {
        return Posts::Unknown;
    };
    if traced.len() < n.min(SAMPLES) || !fresh(&traced) {
        return Posts::Paused;
    }
    over(&traced, (age(oldest).saturating_add(oldest.ns)) as f64 / 1e9)
}

fn over(traced: &[&PostWindow], span_s: f64) -> Posts {
    let seconds = traced.iter().fold(0u64, |sum, window| sum.saturating_add(window.ns)).max(1) as f64 / 1e9;
    let sum =
        |of: fn(&PostWindow) -> u64| traced.iter().fold(0u64, |sum, window| sum.saturating_add(of(window))) as f64;
    let mean = |of: fn(&PostWindow) -> (u64, f64)| {
        let (n, total) = traced
            .iter()
            .map(|window| of(window))
            .fold((0u64, 0.0), |(n, sum), (m, more)| (n.saturating_add(m), sum + more));
        (n > 0).then(|| total / n as f64)
    };
    let (wrs, sized) = (sum(|w| w.wrs), sum(|w| w.sized));
    let (switches, posts) = (sum(|w| w.switches.0), sum(|w| w.switches.1));
    if wrs == 0.0 {
        return Posts::Unknown;
    }
    Posts::Are(Posted {
        span_s,
        qps: traced.iter().map(|window| window.qps).max().unwrap_or(0),
        wrs_per_s: wrs / seconds,
        bytes_per_s: sum(|w| w.bytes) / seconds,
        switches: (posts > 0.0).then(|| (switches / seconds, switches / posts)),
        small_share: (sized > 0.0).then(|| sum(|w| w.small) / sized),
        latency_ns: mean(|w| w.latency),
        small_latency_ns: mean(|w| w.small_latency),
    })
}

/// How far a rule on posts is judged. It says nothing of a port that posts and of whose posts it does not know what it needs:
/// that is in the QPs' histories, of which there may be too few.
pub(super) fn traced(view: &View<'_>, needs: &str, known: fn(&PostWindow) -> bool) -> Judged {
    let all: Vec<&PortRecord> = view.world.present_ports().map(|(_, port)| port).collect();
    if all.is_empty() {
        return Judged::Not("there is no port".to_owned());
    }
    if all.iter().all(|port| port.posting.newest_first().next().is_none()) {
        return Judged::Not("no posts are traced".to_owned());
    }
    let recent = |port: &PortRecord| -> Vec<PostWindow> {
        port.posting.newest_first().take(LOOKED_AT).filter(|window| window.wrs > 0).copied().collect()
    };
    let unseen = |port: &&PortRecord| {
        let posting = recent(port);
        !posting.is_empty() && !posting.iter().any(known)
    };
    let blind: Vec<&PortRecord> = all.iter().copied().filter(unseen).collect();
    view.without(&blind, all.len(), |ports| {
        format!(
            "{needs} of what {ports} posts are not known: the histories of its QPs are not kept, for there are too many"
        )
    })
}

/// `qp.cache_pressure`.
pub(super) struct CachePressure;

impl Rule for CachePressure {
    fn id(&self) -> &'static str {
        "qp.cache_pressure"
    }

    fn meaning(&self) -> &'static str {
        "Processes post to very many QPs in turn. An adapter keeps the contexts of QPs in a cache; when they do not fit it \
         fetches them from the host's memory, and every operation takes longer. No driver counts such misses: this is \
         inferred from how many QPs are posted to, how often the QP changes, and from small operations that take longer than \
         with fewer QPs. Many QPs that are idle are no finding."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let mut lines = qp_check(finding);
        lines.push("rdma resource".to_owned());
        let pci = finding.subject.device.as_deref().and_then(|name| view.world.device_named(name)?.1.pci.clone());
        lines.extend(pci.map(|pci| format!("devlink health diagnose pci/{pci} reporter vnic      # icm_consumption")));
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present_ports().filter_map(|(_, port)| pressure(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        extent(view).in_part()
    }
}

fn extent(view: &View<'_>) -> Judged {
    let known = |window: &PostWindow| window.switches.1 > 0 || window.small_latency.0 > 0;
    traced(view, "turns of QPs and latency", known).or(|| {
        let all = || view.world.present_ports().map(|(_, port)| port);
        let measured = all().any(|port| port.posting.newest_first().any(|window| window.small_latency.0 > 0));
        if measured {
            return Judged::All;
        }
        let reason = "the latency of small operations is not measured: by the number of QPs alone";
        Judged::with(all().count(), reason)
    })
}

/// Mean latency of small operations in the quietest windows with at most half as many QPs, ns, and on how many it rests.
fn quiet_level(port: &PortRecord, qps: u32) -> Option<(f64, usize)> {
    let mut levels = port.posting.small_levels(qps / 2);
    if levels.len() < QUIET_WINDOWS {
        return None;
    }
    let at = levels.len() / 4;
    let (_, level, _) = levels.select_nth_unstable_by(at, f64::total_cmp);
    Some((*level, levels.len()))
}

fn pressure(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.qp_cache_pressure;
    let (key, subject) = view.port_subject(port);
    let posted = match posted(view, port, settings.window_s) {
        Posts::Are(posted) => posted,
        Posts::Paused => return Some(Verdict::Keep(key)),
        Posts::Unknown => return None,
    };
    let raised = view.raised("qp.cache_pressure", &key).is_some();
    let least = if raised { settings.qps / 2 } else { settings.qps };
    let switches = posted.switches.map(|(_, share)| share);
    if posted.qps < least || switches.is_some_and(|share| share < settings.switch_share) {
        return None;
    }
    let busy_link = port.rate_gbps.is_some_and(|rate| posted.bytes_per_s * 8.0 / 1e9 > BUSY_LINK * rate);
    let level = quiet_level(port, posted.qps);
    let slower = posted.small_latency_ns.zip(level).map(|(now, (before, _))| now / before).filter(|_| !busy_link);
    let risen = slower.is_some_and(|times| times > settings.slower);
    // Between the two a finding stays as it is, however a latency near the threshold swings about it.
    if raised && !risen && slower.is_some_and(|times| times > 1.0 + (settings.slower - 1.0) / 2.0) {
        return Some(Verdict::Keep(key));
    }
    // Without a latency only a number that is large for any adapter's cache is worth a word.
    if !risen && (slower.is_some() || posted.qps < settings.many || switches.is_none()) {
        return None;
    }
    let window = Some(posted.span_s);
    let mut evidence = vec![Evidence::new(
        "QPs posted to in one window",
        Some(view.settings.window_s),
        f64::from(posted.qps),
        f64::from(settings.qps),
        "QPs",
    )];
    if let Some((per_s, share)) = posted.switches {
        evidence.push(Evidence::new("changes of the QP", window, per_s, None, "1/s"));
        evidence.push(Evidence::new(
            "changes of the QP, of all posts",
            window,
            share * 100.0,
            settings.switch_share * 100.0,
            "percent",
        ));
    }
    let device = view.world.device(port.key.device);
    if let Some((spread, span_ns)) = device.fan_out.spread(view.ago(posted.span_s)) {
        let window = Some(span_ns as f64 / 1e9);
        let mut told = |what: &'static str, value: u64| {
            evidence.push(Evidence::new(what, window, value as f64, None, "QPs"));
        };
        told("distinct QPs within 1 ms, 99th percentile (lower bound)", spread.in_1ms.p99);
        if let Some(long) = spread.in_100ms {
            told("distinct QPs within 100 ms, 99th percentile (lower bound)", long.p99);
        }
        if let Some(reuse) = spread.reuse {
            told("switches until a QP's next turn, median (lower bound)", reuse.p50);
        }
    }
    let latency = match (posted.small_latency_ns, level) {
        (Some(now), Some((before, windows))) if risen => {
            let limit = before * settings.slower / 1000.0;
            evidence.push(Evidence::new("latency of small operations, mean", window, now / 1000.0, limit, "µs"));
            evidence.push(Evidence::new("the same with at most half as many QPs", None, before / 1000.0, None, "µs"));
            format!(
                "; small operations take {:.1} µs, with at most half as many QPs {:.1} µs ({windows} windows)",
                now / 1000.0,
                before / 1000.0
            )
        }
        _ => "; whether operations take longer is not known".to_owned(),
    };
    if let Some(pages) = port.reading(Meaning::IcmPages).and_then(|reading| reading.total) {
        evidence.push(Evidence::new("memory for contexts", None, pages as f64 * 4096.0 / 1e6, None, "MB"));
    }
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if risen { Severity::Warning } else { Severity::Info },
        grade: if risen { Grade::Probable } else { Grade::Suspected },
        summary: format!(
            "QP contexts may not fit the adapter's cache (inferred): {} QPs posted to in one window{}{latency}",
            posted.qps,
            switches.map(|share| format!(", another QP in {:.0} % of posts", share * 100.0)).unwrap_or_default()
        ),
        evidence,
        advice:
            "Use fewer QPs (shared or dynamically connected transport, fewer connections per process pair), or post \
                 several work requests to one QP before going to the next."
                .to_owned(),
        would_raise: if risen {
            "a counter of context misses, which no driver offers".to_owned()
        } else {
            "the latency of small operations, measured by the probes".to_owned()
        },
        part_of: None,
        since: view.since(posted.span_s),
        revision: u64::from(risen) | u64::from(posted.qps.checked_ilog2().unwrap_or(0)) << 1,
    })))
}
