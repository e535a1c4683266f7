//! `ecn.missed`: a queue without marks. `ecn.not_ect`: data that no switch may mark.

use super::control::{Control, rp_enabled};
use super::packets::Packets;
use super::span::{Span, Sums};
use super::weigh::floor;
use super::words::{confounders, definition, hand_check, joined, percent, share, us};
use super::{View, lacking, lag, ports};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::{Baseline, LatencyWindow, PortRecord, SizeClass};
use crate::observation::Nanos;
use crate::rule::clock::when;
use crate::rule::{Part, Rule};
use crate::timeline::counter_table::Meaning;

/// Windows a quiet latency must rest on before it is compared with.
const BASE_WINDOWS: usize = 5;
/// Small operations that are enough to tell of a queue, and the share of them that must have met it where it cannot be told
/// from pause.
const LATE: (u64, f64) = (100, 0.01);
/// A stop of others for more than this share of the own pause makes this host the slow receiver.
const OWN_PART: f64 = 0.2;
/// Marks are looked for over this time before, ns.
const HOUR_NS: Nanos = 3_600_000_000_000;
/// Not-ECT data packets in all that a finding needs.
const MIN_NOT_ECT: u64 = 100;

/// `ecn.missed`.
pub(in crate::rule) struct Missed;

impl Rule for Missed {
    fn id(&self) -> &'static str {
        "ecn.missed"
    }

    fn meaning(&self) -> &'static str {
        "There is congestion on the way (pause, or packets lost in order) and nothing is marked, so no sender slows down \
         before it hurts: marking is off in the class of the data, its thresholds are above those of pause, or the data is \
         sent Not-ECT. Pause that this host causes itself, as a slow receiver, is not meant."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        hand_check(view, finding)
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        ports(view).filter_map(|port| missed(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        if let Some(reason) = lacking(view, NEEDS).nowhere() {
            return Some(reason);
        }
        let seen = |port: &PortRecord| {
            [Meaning::RxPauseDuration, Meaning::OutOfSequence, Meaning::TxDiscards]
                .iter()
                .any(|meaning| port.reading(*meaning).is_some())
        };
        (!ports(view).any(seen)).then(|| "no port counts pause, discards or packets out of sequence".to_owned())
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        lacking(view, NEEDS).in_part()
    }
}

const NEEDS: &[(Meaning, &str)] =
    &[(Meaning::EcnMarkedRx, "packets received with CE"), (Meaning::RxPackets, "received packets")];

/// Signs of congestion without a mark.
pub(super) struct Unmarked {
    sums: Sums,
    m: f64,
    /// CNPs for each packet sent.
    cnp: Option<f64>,
    /// Share of time this port was stopped.
    pause: Option<f64>,
    /// Packets lost or out of order.
    lost: u64,
    by_pause: bool,
    by_loss: bool,
}

impl Unmarked {
    /// What a span shows, where it shows something. `ease` is below 1 for a finding that is raised.
    fn of(view: &View<'_>, span: &Span<'_>, ease: f64) -> Option<Self> {
        let settings = &view.settings.ecn_missed;
        let sums = span.sums();
        let m = sums.mark_rate()?;
        let cnp = sums.cnp_rate();
        // Marks on what this port sends are counted by its peers; their CNPs tell of them here.
        if m > settings.mark_rate || cnp.is_some_and(|cnp| cnp > settings.mark_rate) {
            return None;
        }
        let pause = span.pause(Meaning::RxPauseDuration);
        let own = span.pause(Meaning::TxPauseDuration).unwrap_or(0.0);
        if own > OWN_PART * pause.unwrap_or(0.0) && own > settings.pause * OWN_PART {
            return None;
        }
        let by_pause = pause.is_some_and(|pause| pause > settings.pause * ease);
        let lost: u64 = [Meaning::OutOfSequence, Meaning::TxDiscards, Meaning::SequenceNak]
            .iter()
            .filter_map(|meaning| span.growth(*meaning))
            .fold(0, u64::saturating_add);
        // Damage on the link loses packets too.
        let damaged = [Meaning::CrcErrors, Meaning::IcrcErrors, Meaning::PostFecErrors]
            .iter()
            .any(|meaning| span.growth(*meaning).is_some_and(|n| n > 0));
        let by_loss = lost as f64 >= settings.lost_per_s * span.seconds() * ease && !damaged;
        (by_pause || by_loss).then_some(Self { sums, m, cnp, pause, lost, by_pause, by_loss })
    }

    fn rows(&self, view: &View<'_>, window: Option<f64>) -> Vec<Evidence> {
        let settings = &view.settings.ecn_missed;
        vec![
            Evidence::new("pause received", window, self.pause, settings.pause, "share of time"),
            Evidence::new(
                "packets out of sequence, discarded, NAKed",
                window,
                self.lost as f64,
                settings.lost_per_s,
                "packets",
            ),
            Evidence::new("marked / received packets", window, self.m, settings.mark_rate, "share"),
            Evidence::new("CNPs received / packets sent", window, self.cnp, settings.mark_rate, "share"),
            Evidence::new("received share of the rate", window, self.sums.u_rx, None, "share"),
        ]
    }

    fn sentence(&self) -> String {
        let mut parts = Vec::new();
        if self.by_pause {
            parts.push(format!("this port was told to stop for {} of the time", percent(self.pause.unwrap_or(0.0))));
        }
        if self.by_loss {
            parts.push(format!("{} packets were lost or out of sequence", self.lost));
        }
        parts.push(match self.cnp {
            Some(cnp) => {
                format!("marks are {} of the packets received and CNPs {} of those sent", share(self.m), share(cnp))
            }
            None => format!("marks are {} of the packets received; CNPs received are not known", share(self.m)),
        });
        joined(&parts)
    }
}

fn missed(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_missed;
    let span = Span::newest(view, port, settings.windows)?;
    let (key, subject) = view.port_subject(port);
    let raised = view.raised("ecn.missed", &key).is_some();
    let Some(found) = Unmarked::of(view, &span, 1.0) else {
        let stays = raised && Unmarked::of(view, &span, 0.5).is_some();
        return stays.then_some(Verdict::Keep(key));
    };
    let window = Some(span.seconds());
    let mut evidence = found.rows(view, window);
    let mut summary = format!("congestion without marks: {}", found.sentence());
    let slow = slowness(port, &span);
    if let Some((class, now, base)) = &slow {
        let l50 = now.quantile_ns(0.5).unwrap_or(0.0);
        let name = format!("median latency of {class} operations");
        evidence.push(Evidence::new(name, window, l50, base.median_ns * settings.latency_factor, "ns"));
        summary.push_str(&format!(
            "; the median of {class} operations is {} against {} {base}",
            us(l50),
            us(base.median_ns)
        ));
    }
    let standing = slow.as_ref().is_some_and(|(_, now, base)| {
        now.quantile_ns(0.5).is_some_and(|l50| l50 > settings.latency_factor * base.median_ns)
    });
    let late = late_share(port, &span);
    let wanted = found.pause.filter(|_| found.by_pause).unwrap_or(0.0).max(LATE.1);
    // Where the level of an empty queue is not known, what takes no longer than the least says nothing.
    let empty_known = slow.as_ref().is_some_and(|(_, _, base)| base.quiet);
    if let Some(late) = late.filter(|late| empty_known || *late >= wanted) {
        evidence.push(Evidence::new("small operations later than twice the least", window, late, wanted, "share"));
        summary.push_str(&format!("; {} of the small operations take more than twice the least", share(late)));
    }
    let standing = standing || late.is_some_and(|late| late >= wanted);
    if found.by_pause && !standing && empty_known {
        summary.push_str(", which speaks against a queue on their way: the pause may be of another class than theirs");
    }
    let before = marked_before(view, port, &span);
    if let Some((until, most)) = before {
        evidence.push(Evidence::new("marked / received packets, the most before", None, most, None, "share"));
        summary.push_str(&format!(
            "; marks were seen until {} (up to {} of the packets received)",
            when(view, until),
            share(most)
        ));
    }
    let look = match before {
        Some((until, _)) => format!(
            "The last mark came at {}: look what changed on the switches of the path at that time (ECN of the class of the \
             data, the class the data is put into, Kmin and Kmax, the thresholds of pause), and whether another path is taken since.",
            when(view, until)
        ),
        None => {
            "See whether ECN marking is on for the class of the data on every switch of the path, whether its Kmax is \
                 below the threshold of pause, and whether the data is sent ECT."
                .to_owned()
        }
    };
    let control = Control::of(port);
    let mut notes = confounders(view, port, &span);
    notes.push("adaptive routing puts packets out of sequence without a loss".to_owned());
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: if control.needs_marks() { Severity::Warning } else { Severity::Info },
        grade: if standing && lag(view, port).is_none() { Grade::Probable } else { Grade::Suspected },
        summary: format!("{summary}. {}", definition(view, port)),
        evidence,
        advice: format!("{look} Bear in mind: {}.", joined(&notes)),
        would_raise: "latency of the QPs' operations against a quiet hour; packets; the switch's marking counters"
            .to_owned(),
        part_of: None,
        // Not before the marks ended.
        since: before.map_or(span.from, |(until, _)| span.from.max(until)),
        revision: 0,
    })))
}

/// Where none of the packets of the span is marked: the end of the newest window before it with a mark, and the largest share of
/// marks of a window before it. Of the last hour.
fn marked_before(view: &View<'_>, port: &PortRecord, span: &Span<'_>) -> Option<(Nanos, f64)> {
    if span.sums().marks.is_none_or(|marks| marks > 0.0) {
        return None;
    }
    let window_ns = view.world.window_ns.max(1);
    let (marks, packets) = (port.rates.get(&Meaning::EcnMarkedRx)?, port.rates.get(&Meaning::RxPackets)?);
    let closed = view.now.saturating_sub(view.world.started) / window_ns * window_ns + view.world.started;
    let hour = usize::try_from(HOUR_NS / window_ns).unwrap_or(usize::MAX);
    let windows = (0u64..).zip(marks.newest_first().zip(packets.newest_first())).take(hour);
    let marked = windows.filter_map(|(back, (marks, packets))| {
        let t = closed.saturating_sub(back * window_ns);
        let (marks, packets) = (marks?, packets?);
        (marks > 0.0 && packets > 0.0).then_some((t, marks / packets))
    });
    marked.fold(None, |all: Option<(Nanos, f64)>, (t, share)| {
        Some(all.map_or((t, share), |(newest, most)| (newest.max(t), most.max(share))))
    })
}

/// Share of the small operations that took more than twice the least. A queue that stops senders holds more than a round
/// trip, so of the operations behind it at least as large a share is late as the time the port was stopped for; where the
/// pause was for another class, or for a queue these QPs do not pass, none is. Where a queue never empties the least is not
/// known, and none is late.
fn late_share(port: &PortRecord, span: &Span<'_>) -> Option<f64> {
    let small = port.latencies.sum(SizeClass::Small, span.from).filter(|small| small.n >= LATE.0)?;
    let bucket = floor(port, &small)?;
    Some(small.at_least(bucket + 2) as f64 / small.n as f64)
}

/// Latency now and in quiet times, small operations before large ones.
fn slowness(port: &PortRecord, span: &Span<'_>) -> Option<(&'static str, LatencyWindow, Baseline)> {
    [(SizeClass::Small, "small"), (SizeClass::Large, "large")].into_iter().find_map(|(class, name)| {
        let base = port.latencies.reference(class).filter(|base| base.windows >= BASE_WINDOWS)?;
        Some((name, port.latencies.sum(class, span.from)?, base))
    })
}

/// `ecn.not_ect`.
pub(in crate::rule) struct NotEct;

impl Rule for NotEct {
    fn id(&self) -> &'static str {
        "ecn.not_ect"
    }

    fn meaning(&self) -> &'static str {
        "RoCE data is sent with ECN bits 00 (Not-ECT): no switch may mark it, and a switch with WRED drops it instead. From \
         counters alone this cannot be told from a switch that does not mark: then it is a possible cause of ecn.missed and \
         named as its part. InfiniBand has no such bits."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let mut lines = hand_check(view, finding);
        lines.push("tcpdump -ni NETDEV -c 100 -v 'udp port 4791'   # tos: the last two bits".to_owned());
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        ports(view).filter_map(|port| seen_not_ect(view, port).or_else(|| never_marked(view, port))).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        let packets = ports(view).any(|port| Packets::since(port, 0).is_some());
        if packets { None } else { lacking(view, NEEDS).nowhere() }
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        let packets = ports(view).any(|port| Packets::since(port, 0).is_some());
        if packets { None } else { lacking(view, NEEDS).in_part() }
    }
}

/// Packets show it.
fn seen_not_ect(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_not_ect;
    let seconds = settings.windows * view.world.window_ns as f64 / 1e9;
    let packets = Packets::since(port, view.ago(seconds))?;
    let (not_ect, data) = (packets.growth("tx_not_ect")?, packets.growth("tx_data")?);
    let fraction = not_ect as f64 / data.max(1) as f64;
    if not_ect < MIN_NOT_ECT || fraction < settings.share {
        return None;
    }
    let (key, subject) = view.port_subject(port);
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade: Grade::Confirmed,
        summary: format!(
            "{} of the RoCE data packets this port sends are Not-ECT ({not_ect} of {data})",
            percent(fraction)
        ),
        evidence: vec![Evidence::new("tx_not_ect / tx_data", Some(seconds), fraction, settings.share, "share")],
        advice: ADVICE.to_owned(),
        would_raise: String::new(),
        part_of: None,
        since: view.since(seconds),
        revision: 0,
    })))
}

const ADVICE: &str = "Set the two low bits of the traffic class where it is given (rdma_cm: the type of service; NCCL: \
                      NCCL_IB_TC; the NIC: its default traffic class) to 10, and switch the reaction point on for the \
                      priority of the data: some NICs send ECT only then.";

/// Not one mark since the counters began, while there is congestion.
fn never_marked(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_not_ect;
    let (key, subject) = view.port_subject(port);
    let none = |meaning| port.reading(meaning).and_then(|reading| reading.total).map(|total| total == 0);
    if none(Meaning::EcnMarkedRx) != Some(true) || none(Meaning::CnpHandled) == Some(false) {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few windows")]
    let span = Span::newest(view, port, settings.windows.max(1.0) as u32)?;
    let raised = view.raised("ecn.not_ect", &key).is_some();
    let found = Unmarked::of(view, &span, if raised { 0.5 } else { 1.0 })?;
    let off = rp_enabled(port).is_some_and(|by_priority| by_priority.iter().all(|on| !on));
    let window = Some(span.seconds());
    let mut evidence = found.rows(view, window);
    let total = port.reading(Meaning::EcnMarkedRx).and_then(|reading| reading.total).map(|total| total as f64);
    evidence.push(Evidence::new("packets received with CE, ever", None, total, 0.0, "packets"));
    let why = if off { "; the reaction point is off for every priority, and some NICs then send Not-ECT" } else { "" };
    Some(Verdict::Holds(Box::new(Conclusion {
        part_of: Some(("ecn.missed", key.clone())),
        key,
        subject,
        severity: if Control::of(port).needs_marks() { Severity::Warning } else { Severity::Info },
        grade: if off { Grade::Probable } else { Grade::Suspected },
        summary: format!(
            "not one packet was ever marked while {}{why}: data sent Not-ECT would look like this, and so would a switch \
             that does not mark",
            found.sentence()
        ),
        evidence,
        advice: ADVICE.to_owned(),
        would_raise: "packets: their ECN bits".to_owned(),
        since: span.from,
        revision: 0,
    })))
}
