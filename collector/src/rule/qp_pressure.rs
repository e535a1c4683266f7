//! Many QPs in turn: pressure on the adapter's cache of QP contexts, inferred.

use super::clock::{at_least, least, ns};
use super::judged::{Judged, Part};
use super::link::names;
use super::span::mean;
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{LEAST_SHARE, Level, OVERHEAD, PortRecord, PostWindow};
use crate::observation::Nanos;
use crate::timeline::counter_table::Meaning;

/// Where more than this share of what a port sends is not explained by posts that are seen, they are no measure of it.
pub(super) const MOSTLY: f64 = 0.5;
/// Newest windows that tell what is known of posts now.
const LOOKED_AT: usize = 10;
/// Windows a quiet level rests on at least.
const QUIET_WINDOWS: usize = 10;
/// Windows in which no more, and no fewer, work requests were posted than so many times as now are alike.
const ALIKE: f64 = 2.0;
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

/// Share of what a port sends that neither posts nor headers explain; `None` where nobody knows what it sends.
pub(super) fn unseen(view: &View<'_>, port: &PortRecord, posted: &Posted) -> Option<f64> {
    let sent = port.rates.get(&Meaning::TxBytes).and_then(|ring| mean(ring.newest_first().take(LOOKED_AT)))?;
    if sent <= 0.0 {
        return Some(0.0);
    }
    // Until enough windows are known: by the posts of those that are, with headers for each.
    let left =
        || Some(sent - posted.bytes_per_s - posted.wrs_per_s * OVERHEAD).filter(|left| *left > LEAST_SHARE * sent);
    let bytes = view.world.unexplained(port).or_else(left).unwrap_or(0.0);
    Some((bytes / sent).min(1.0))
}

/// How far a rule on posts is judged. It says nothing of a port that posts and of whose posts it does not know what it needs:
/// that is in the QPs' histories, of which there may be too few.
pub(super) fn traced(view: &View<'_>, needs: &str, known: fn(&PostWindow) -> bool) -> Judged {
    view.of_ports(|all| {
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
    })
}

/// How far a rule on posts is judged where they are known: not on ports of which most of what they send is not explained by
/// posts that are seen, be it that none was.
pub(super) fn mostly_unseen(view: &View<'_>, window_s: f64) -> Judged {
    let share = |port: &PortRecord| match posted(view, port, window_s) {
        Posts::Are(posted) => unseen(view, port, &posted),
        Posts::Paused => None,
        Posts::Unknown => view.world.unexplained(port).zip(sent(port)).map(|(bytes, sent)| bytes / sent),
    };
    view.of_ports(|all| {
        let blind = |port: &&PortRecord| share(port).is_some_and(|share| share > MOSTLY);
        let blind: Vec<&PortRecord> = all.iter().copied().filter(blind).collect();
        view.without(&blind, all.len(), |ports| {
            format!("most of what {ports} sends is not explained by posts that are seen")
        })
    })
}

/// Bytes per second that a port sends, if any.
fn sent(port: &PortRecord) -> Option<f64> {
    let sent = port.rates.get(&Meaning::TxBytes).and_then(|ring| mean(ring.newest_first().take(LOOKED_AT)));
    sent.filter(|sent| *sent > 0.0)
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
        let mut lines = vec!["rdma resource      # QPs of each device, in use or not".to_owned()];
        if let Some((device, port)) = names(finding) {
            lines.push(format!(
                "rdma resource show qp link {device}/{port} type RC | grep -o 'comm [^ ]*' | sort | uniq -c"
            ));
            lines.push(format!("rdmascope qps --json | jq '[.qps[] | select(.device == \"{device}\" and .port == {port} and .posts > 0)] | length'    # twice: how many post, and how much"));
        }
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
    let seen = traced(view, "turns of QPs and latency", known);
    seen.or(|| mostly_unseen(view, view.settings.qp_cache_pressure.window_s)).or(|| {
        let all = || view.world.present_ports().map(|(_, port)| port);
        let measured = all().any(|port| port.posting.newest_first().any(|window| window.small_latency.0 > 0));
        if measured {
            return Judged::All;
        }
        let reason = "the latency of small operations is not measured: by the number of QPs alone";
        Judged::with(all().count(), reason)
    })
}

/// What small operations are held against: windows with at most half as many QPs.
struct Quiet {
    /// Their mean latency in the quietest quarter of those windows, ns.
    latency_ns: f64,
    /// Windows it rests on.
    windows: usize,
    /// Work requests a second in the middle one of them.
    wrs_per_s: f64,
    /// About as much was posted in them: what differs is the number of QPs.
    alike: bool,
}

/// Windows with a similar load where there are enough of them, else all: then load and number of QPs went up together.
fn quiet_level(port: &PortRecord, posted: &Posted) -> Option<Quiet> {
    let all = port.posting.small_levels(posted.qps / 2);
    let similar =
        |level: &Level| level.wrs_per_s * ALIKE >= posted.wrs_per_s && level.wrs_per_s <= posted.wrs_per_s * ALIKE;
    let same: Vec<Level> = all.iter().copied().filter(similar).collect();
    let alike = same.len() >= QUIET_WINDOWS;
    let mut levels = if alike { same } else { all };
    if levels.len() < QUIET_WINDOWS {
        return None;
    }
    let mut loads: Vec<f64> = levels.iter().map(|level| level.wrs_per_s).collect();
    let (_, wrs_per_s, _) = loads.select_nth_unstable_by(levels.len() / 2, f64::total_cmp);
    let at = levels.len() / 4;
    let (_, level, _) = levels.select_nth_unstable_by(at, |a, b| a.latency_ns.total_cmp(&b.latency_ns));
    Some(Quiet { latency_ns: level.latency_ns, wrs_per_s: *wrs_per_s, alike, windows: loads.len() })
}

/// When the condition began, of the windows it was judged by: the first with so many QPs and, where that is part of it, with
/// so high a latency.
fn began(view: &View<'_>, port: &PortRecord, posted: &Posted, least: u32, limit_ns: Option<f64>) -> Nanos {
    let from = view.ago(posted.span_s);
    let slow = |window: &PostWindow| {
        limit_ns.is_none_or(|limit| window.mean_small_latency_ns().is_none_or(|latency| latency > limit))
    };
    let windows = port.posting.newest_first().take_while(|window| window.t > from);
    let first = windows.filter(|window| window.qps >= least && slow(window)).last();
    first.map_or(view.since(posted.span_s), |window| window.t.saturating_sub(window.ns)).max(view.world.started)
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
    let least_qps = if raised { settings.qps / 2 } else { settings.qps };
    let switches = posted.switches.map(|(_, share)| share);
    if posted.qps < least_qps || switches.is_some_and(|share| share < settings.switch_share) {
        return None;
    }
    let busy_link = port.rate_gbps.is_some_and(|rate| posted.bytes_per_s * 8.0 / 1e9 > BUSY_LINK * rate);
    let level = quiet_level(port, &posted);
    let slower = posted.small_latency_ns.zip(level.as_ref()).map(|(now, quiet)| now / quiet.latency_ns);
    let slower = slower.filter(|_| !busy_link);
    let risen = slower.is_some_and(|times| times > settings.slower);
    // Between the two a finding stays as it is, however a latency near the threshold swings about it.
    if raised && !risen && slower.is_some_and(|times| times > 1.0 + (settings.slower - 1.0) / 2.0) {
        return Some(Verdict::Keep(key));
    }
    // Without a latency only a number that is large for any adapter's cache is worth a word.
    if !risen && (slower.is_some() || posted.qps < settings.many || switches.is_none()) {
        return None;
    }
    let unseen = unseen(view, port, &posted);
    let sampled = view.world.probes.as_ref().is_some_and(|probes| probes.posts_watched_ns.is_some());
    let in_part = sampled || unseen.is_none_or(|share| share > 0.0);
    let mut evidence = turns(view, port, &posted, in_part);
    let window = Some(posted.span_s);
    let (latency, alike) = match (posted.small_latency_ns, &level) {
        (Some(now), Some(quiet)) if risen => {
            let (now, before) = (now / 1000.0, quiet.latency_ns / 1000.0);
            evidence.push(Evidence::new(
                "latency of small operations, mean",
                window,
                now,
                before * settings.slower,
                "µs",
            ));
            evidence.push(Evidence::new("the same with at most half as many QPs", None, before, None, "µs"));
            evidence.push(Evidence::new("work requests", window, posted.wrs_per_s, None, "1/s"));
            evidence.push(Evidence::new("the same with at most half as many QPs", None, quiet.wrs_per_s, None, "1/s"));
            let windows = quiet.windows;
            let load = if quiet.alike { String::new() } else { load(&posted, quiet) };
            let text = format!(
                "; small operations take {now:.1} µs, with at most half as many QPs {before:.1} µs ({windows} windows{load})"
            );
            (text, quiet.alike)
        }
        (Some(now), _) if busy_link => {
            (format!("; small operations take {:.1} µs, which the busy link explains as well", now / 1000.0), false)
        }
        (Some(now), None) => {
            let now = now / 1000.0;
            (format!("; small operations take {now:.1} µs, and no time with at most half as many QPs was seen"), false)
        }
        _ => ("; whether operations take longer is not known".to_owned(), false),
    };
    let limit = level.filter(|_| risen).map(|quiet| quiet.latency_ns * settings.slower);
    if let Some(pages) = port.reading(Meaning::IcmPages).and_then(|reading| reading.total) {
        evidence.push(Evidence::new("memory for contexts", None, pages as f64 * 4096.0 / 1e6, None, "MB"));
    }
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if risen { Severity::Warning } else { Severity::Info },
        // More QPs that ask for more: either makes operations take longer.
        grade: if risen && alike { Grade::Probable } else { Grade::Suspected },
        summary: format!(
            "QP contexts may not fit the adapter's cache (inferred): {}{} QPs posted to in one window{}{latency}",
            at_least(in_part),
            posted.qps,
            switches.map(|share| format!(", another QP in {:.0} % of posts", share * 100.0)).unwrap_or_default()
        ),
        evidence,
        advice:
            "Use fewer QPs (shared or dynamically connected transport, fewer connections per process pair), or post \
                 several work requests to one QP before going to the next."
                .to_owned(),
        would_raise: match (risen, alike) {
            (true, true) => "a counter of context misses, which no driver offers",
            (true, false) => "windows with few QPs in which about as much was posted",
            (false, _) if posted.small_latency_ns.is_some() && busy_link => "a time in which the link is less busy",
            (false, _) if posted.small_latency_ns.is_some() => "a time with at most half as many QPs, to compare with",
            (false, _) => "the latency of small operations, measured by the probes",
        }
        .to_owned(),
        part_of: None,
        since: began(view, port, &posted, least_qps, limit),
        revision: u64::from(risen) | u64::from(posted.qps.checked_ilog2().unwrap_or(0)) << 1,
    })))
}

/// How many QPs are posted to, and how often the QP changes.
fn turns(view: &View<'_>, port: &PortRecord, posted: &Posted, in_part: bool) -> Vec<Evidence> {
    let settings = &view.settings.qp_cache_pressure;
    let window = Some(posted.span_s);
    let mut evidence = vec![Evidence::new(
        least("QPs posted to in one window", in_part),
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
    evidence
}

/// What was posted in the windows that the latency is held against, where that is not about as much.
fn load(posted: &Posted, quiet: &Quiet) -> String {
    let times = posted.wrs_per_s / quiet.wrs_per_s.max(1.0);
    if (times.round() - 1.0).abs() < f64::EPSILON || ((1.0 / times).round() - 1.0).abs() < f64::EPSILON {
        ", of which too few had a like load".to_owned()
    } else if times >= 1.0 {
        format!(", in which {times:.0} times fewer requests were posted: the load explains it as well")
    } else {
        format!(", in which {:.0} times more requests were posted", 1.0 / times)
    }
}
