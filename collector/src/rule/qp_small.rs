//! Small messages: a rate that is bound by latency and depth, not by the link.

use super::judged::{Judged, Part};
use super::link::names;
use super::qp_pressure::{MOSTLY, Posted, Posts, mostly_unseen, posted, traced, unseen};
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::observation::PortState;

/// Mean size up to which the bytes are those of small messages, bytes: sizes are known as powers of two.
const SMALL_BYTES: f64 = 8192.0;

/// `qp.small_messages`.
pub(super) struct Small;

impl Rule for Small {
    fn id(&self) -> &'static str {
        "qp.small_messages"
    }

    fn meaning(&self) -> &'static str {
        "Nearly all work requests of the port are small, there are many of them, and too few are outstanding at a time to \
         fill the link: every one waits for the one before it. It is a bound of latency, not a loss of bandwidth: a \
         400 Gb/s link is full with some 12 operations of 4 KB outstanding for each µs that one takes. Small messages at a sufficient depth, and few of \
         them beside large ones, are no finding."
    }

    fn hand_check(&self, _view: &View<'_>, finding: &Finding) -> Vec<String> {
        let Some((device, port)) = names(finding) else { return Vec::new() };
        vec![
            format!(
                "rdmascope qps --json | jq '.qps[] | select(.device == \"{device}\" and .port == {port}) | [.qpn, .comm, .msg_p50_bytes, .posts]'"
            ),
            format!(
                "grep . /sys/class/infiniband/{device}/ports/{port}/counters/port_xmit_{{data,packets}}      # twice: words of 4 bytes a packet"
            ),
            format!(
                "ib_write_lat -d {device} -i {port} -s 4096 PEER; ib_write_bw -d {device} -i {port} -s 4096 -t 64 PEER"
            ),
        ]
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present_ports().filter_map(|(_, port)| small(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        extent(view).in_part()
    }
}

fn extent(view: &View<'_>) -> Judged {
    let seen = traced(view, "sizes", |window| window.sized > 0);
    seen.or(|| mostly_unseen(view, view.settings.qp_small_messages.window_s))
}

fn small(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.qp_small_messages;
    let rate = port.rate_gbps.filter(|rate| *rate > 0.0 && port.state == PortState::Active)?;
    let (key, subject) = view.port_subject(port);
    let posted = match posted(view, port, settings.window_s) {
        Posts::Are(posted) => posted,
        Posts::Paused => return Some(Verdict::Keep(key)),
        Posts::Unknown => return None,
    };
    let share = posted.small_share?;
    let size = posted.bytes_per_s / posted.wrs_per_s;
    let gbps = posted.bytes_per_s * 8.0 / 1e9;
    let efficiency = gbps / rate;
    let raised = view.raised("qp.small_messages", &key).is_some();
    let many = posted.wrs_per_s > if raised { settings.per_s / 2.0 } else { settings.per_s };
    if share < settings.share || size > SMALL_BYTES || !many || efficiency > settings.efficiency {
        return None;
    }
    let unseen = unseen(view, port, &posted);
    // A finding does not come and go with a share about the limit.
    let most = if raised { MOSTLY * 1.2 } else { MOSTLY };
    if unseen.is_some_and(|share| share > most) {
        // What is seen of it is no measure of the port.
        return None;
    }
    // Little's law: what is outstanding is what comes in a second times how long each stays. What fills the link is what
    // it carries in the time of an operation that nothing holds up.
    let depth = posted.latency_ns.map(|latency| posted.wrs_per_s * latency / 1e9);
    let fills = |latency_ns: f64| rate * latency_ns / (size * 8.0);
    let unloaded = fills(settings.unloaded_us * 1000.0);
    if depth.is_some_and(|depth| depth >= unloaded) {
        return None;
    }
    // Every QP that posts has one operation outstanding all the time: it waits for nothing but the latency.
    let waits = depth.is_some_and(|depth| depth >= 0.8 * f64::from(posted.qps.max(1)));
    let window = Some(posted.span_s);
    let mut evidence = rows(view, &posted, (share, size, efficiency), unseen);
    let gap = 1e6 / posted.wrs_per_s;
    let how = match depth.zip(posted.latency_ns) {
        Some((depth, latency)) => {
            let latency_us = latency / 1000.0;
            // At the latency that is measured, not at that of an idle fabric: with more outstanding it does not fall.
            let needed = fills(latency);
            evidence.push(Evidence::new(
                "operations outstanding (rate × latency)",
                window,
                depth,
                needed,
                "operations",
            ));
            evidence.push(Evidence::new("latency, mean", window, latency_us, None, "µs"));
            format!(
                "{depth:.1} outstanding at {latency_us:.1} µs each; at that latency some {needed:.0} fill the link, and at \
                 {} µs without load some {unloaded:.0}",
                settings.unloaded_us
            )
        }
        None => format!(
            "how many are outstanding is not known (latency is not measured), some {unloaded:.0} fill the link where each \
             takes {} µs",
            settings.unloaded_us
        ),
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share between 0 and 1")]
    let tenth = (efficiency * 10.0) as u64;
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if waits { Severity::Warning } else { Severity::Info },
        grade: if depth.is_some() { Grade::Probable } else { Grade::Suspected },
        summary: format!(
            "{:.0} % of {:.0} k work requests a second{} are small ({size:.0} bytes on average, one each {gap:.2} µs): {:.1} % \
             of the line rate; {how}",
            share * 100.0,
            posted.wrs_per_s / 1000.0,
            of_what_is_seen(unseen),
            efficiency * 100.0
        ),
        evidence,
        advice:
            "Let the application keep more operations outstanding (deeper queues, several in flight), or join small \
                 messages into larger ones. A faster link does not help."
                .to_owned(),
        would_raise: if depth.is_some() {
            "latency of every operation, and the application's own queue".to_owned()
        } else {
            "latency, measured by the probes".to_owned()
        },
        part_of: None,
        since: view.since(posted.span_s),
        revision: tenth << 2 | u64::from(waits) << 1 | u64::from(depth.is_some()),
    })))
}

/// What is behind a number of what was posted where not all that the port sends is explained by it.
fn of_what_is_seen(unseen: Option<f64>) -> String {
    match unseen {
        None => ", of what is seen (what the port sends in all is not known)".to_owned(),
        Some(share) if share > 0.0 => {
            format!(", of what is seen ({:.0} % of the bytes sent are not)", share * 100.0)
        }
        Some(_) => String::new(),
    }
}

/// What is posted, and how much of what the port sends that is.
fn rows(
    view: &View<'_>,
    posted: &Posted,
    (share, size, efficiency): (f64, f64, f64),
    unseen: Option<f64>,
) -> Vec<Evidence> {
    let settings = &view.settings.qp_small_messages;
    let window = Some(posted.span_s);
    let mut evidence = vec![
        Evidence::new("work requests of at most 4 KB", window, share * 100.0, settings.share * 100.0, "percent"),
        Evidence::new("work requests", window, posted.wrs_per_s, settings.per_s, "1/s"),
        Evidence::new("mean size", window, size, None, "bytes"),
        Evidence::new(
            "share of the line rate, by these",
            window,
            efficiency * 100.0,
            settings.efficiency * 100.0,
            "percent",
        ),
    ];
    if unseen.is_none_or(|share| share > 0.0) {
        evidence.push(Evidence::new(
            "of the bytes sent, explained by nothing that was seen",
            None,
            unseen.map(|share| share * 100.0),
            MOSTLY * 100.0,
            "percent",
        ));
    }
    evidence
}
