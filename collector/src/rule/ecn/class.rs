//! `ecn.wrong_class`: data outside of the class that is protected, or in the class of CNPs.

use super::control::{cnp_dscp, cnp_priority, np_enabled, rp_enabled};
use super::packets::Packets;
use super::span::Span;
use super::words::{definition, hand_check, percent};
use super::{View, ports};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::observation::Nanos;
use crate::rule::Rule;
use crate::timeline::counter_table::Meaning;

/// DSCP of CNPs on NVIDIA's NICs unless set otherwise (CS6).
const CNP_DSCP: u8 = 48;
/// Packets of data in the CNPs' DSCP that a finding needs.
const MIN_PACKETS: u64 = 100;
/// A stretch that the counters' own lists hold also at 10 ms, ns.
const SHORT_NS: Nanos = 800_000_000;

/// `ecn.wrong_class`.
pub(in crate::rule) struct WrongClass;

impl Rule for WrongClass {
    fn id(&self) -> &'static str {
        "ecn.wrong_class"
    }

    fn meaning(&self) -> &'static str {
        "RDMA data rides in a priority other than the one PFC or ECN is set up for, so it is neither marked nor protected; or \
         it shares the class of the CNPs (DSCP 48 by default) and delays the very packets that should slow it down. Where \
         priorities are not known nothing is said."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        let mut lines = hand_check(view, finding);
        lines.push("mlnx_qos -i NETDEV; dcb pfc show dev NETDEV; dcb app show dev NETDEV".to_owned());
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        let judge = |port| by_packets(view, port).or_else(|| by_priority(view, port));
        ports(view).filter_map(judge).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        let known = |port: &PortRecord| protected(port).is_some() || cnp_priority(port).is_some();
        let counted = |port: &PortRecord| port.reading(Meaning::PriorityTxBytes).is_some();
        let packets = |port: &PortRecord| Packets::since(port, 0).is_some();
        if ports(view).any(|port| packets(port) || (known(port) && counted(port))) {
            return None;
        }
        Some(match (ports(view).next().is_some(), ports(view).any(counted)) {
            (false, _) => "there is no RoCE port".to_owned(),
            (true, false) => "no port counts bytes by priority".to_owned(),
            (true, true) => "which priorities PFC and ECN are set up for is not known".to_owned(),
        })
    }
}

/// Priorities PFC or ECN is on for; `None` when not known, or when it is all or none of them.
fn protected(port: &PortRecord) -> Option<[bool; 8]> {
    let pfc = port.congestion.as_ref().and_then(|config| config.pfc_enabled);
    let sets = [pfc, np_enabled(port), rp_enabled(port)];
    let mut any: Option<[bool; 8]> = None;
    for set in sets.into_iter().flatten().filter(|set| set.iter().any(|on| *on) && !set.iter().all(|on| *on)) {
        let sum = any.get_or_insert([false; 8]);
        sum.iter_mut().zip(set).for_each(|(sum, on)| *sum |= on);
    }
    any
}

/// Bytes by priority since `from`, in the direction of the meaning; `None` where one is not known.
fn bytes_by_priority(port: &PortRecord, meaning: Meaning, from: Nanos) -> Option<[u64; 8]> {
    let mut bytes = [0u64; 8];
    let mut any = false;
    for series in port.series_of(meaning) {
        let Some(slot) = series.def.index_in(&series.name).and_then(|n| bytes.get_mut(usize::from(n))) else {
            continue;
        };
        let growth = series.growth_since(from)?;
        if growth.broken {
            return None;
        }
        *slot = growth.sum;
        any = true;
    }
    any.then_some(bytes)
}

/// What a direction carried.
struct Carried {
    /// RDMA bytes of so many seconds.
    all: u64,
    seconds: f64,
    /// Those of them that the bytes by priority can hold.
    rdma: u64,
    by_priority: [u64; 8],
}

/// What a direction carried of late. The bytes by priority may be read more rarely than those of RDMA: what was carried after
/// their last reading is in no priority yet, and what lies before `from` makes them more at most.
fn carried(port: &PortRecord, span: &Span<'_>, all: Meaning, by: Meaning) -> Option<Carried> {
    let told = port.series_of(by).map(|series| series.t).min()?;
    // Counters that move at every one of many readings keep only the last of them: then a shorter time is looked at.
    [span.from, span.to.saturating_sub(SHORT_NS), span.to.saturating_sub(SHORT_NS / 2)].into_iter().find_map(|from| {
        let since = |from| Some(port.growth(all, from).filter(|growth| !growth.broken)?.sum);
        let all = since(from)?;
        Some(Carried {
            all,
            seconds: span.to.saturating_sub(from) as f64 / 1e9,
            rdma: all.saturating_sub(since(told.max(from))?),
            by_priority: bytes_by_priority(port, by, from)?,
        })
    })
}

fn by_priority(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_wrong_class;
    let span = Span::newest(view, port, settings.windows)?;
    let (key, _) = view.port_subject(port);
    let raised = view.raised("ecn.wrong_class", &key).is_some();
    let directions = [
        ("sent", Meaning::TxBytes, Meaning::PriorityTxBytes),
        ("received", Meaning::RxBytes, Meaning::PriorityRxBytes),
    ];
    for (word, all, by) in directions {
        let Some(Carried { all, seconds, rdma, by_priority: bytes }) = carried(port, &span, all, by) else { continue };
        let rate = port.rate_gbps? * 1e9 / 8.0 * seconds;
        if (all as f64) < settings.utilisation * rate || rdma == 0 {
            if raised {
                return Some(Verdict::Keep(key));
            }
            continue;
        }
        if let Some(protected) = protected(port) {
            let inside: u64 = bytes.iter().zip(protected).filter(|(_, on)| *on).map(|(n, _)| *n).sum();
            let (at, most) = bytes
                .iter()
                .zip(protected)
                .enumerate()
                .filter(|(_, (_, on))| !*on)
                .map(|(at, (n, _))| (at, *n))
                .max_by_key(|(at, n)| (*n, std::cmp::Reverse(*at)))?;
            // Other traffic may ride there too; what the protected ones carry bounds the RDMA bytes in them.
            let outside = 1.0 - inside as f64 / rdma as f64;
            if outside >= settings.share && most as f64 >= settings.share * rdma as f64 {
                let on: Vec<String> = (0..8).filter(|at| protected[*at]).map(|at| at.to_string()).collect();
                let summary = format!(
                    "at least {} of the RDMA bytes {word} ride outside of the protected priority {}; priority {at} carried {most} \
                     bytes of {rdma}",
                    percent(outside),
                    on.join(", ")
                );
                let row = Evidence::new(
                    format!("RDMA bytes {word} outside of protected priorities"),
                    Some(span.seconds()),
                    outside,
                    settings.share,
                    "share",
                );
                return Some(conclude(view, port, &span, &summary, vec![row], Grade::Suspected));
            }
        }
        if let Some(cnp) = cnp_priority(port).map(usize::from) {
            let elsewhere: u64 = bytes.iter().enumerate().filter(|(at, _)| *at != cnp).map(|(_, n)| *n).sum();
            let inside = 1.0 - elsewhere as f64 / rdma as f64;
            if inside >= settings.share {
                let summary = format!(
                    "at least {} of the RDMA bytes {word} ride in priority {cnp}, that of the CNPs",
                    percent(inside)
                );
                let row = Evidence::new(
                    format!("RDMA bytes {word} in the CNPs' priority"),
                    Some(span.seconds()),
                    inside,
                    settings.share,
                    "share",
                );
                return Some(conclude(view, port, &span, &summary, vec![row], Grade::Suspected));
            }
        }
    }
    None
}

/// Data in the DSCP of the CNPs, as packets show it.
fn by_packets(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.ecn_wrong_class;
    let span = Span::newest(view, port, settings.windows)?;
    let packets = Packets::since(port, span.from)?;
    let cnp = cnp_dscp(port).unwrap_or(CNP_DSCP);
    for (word, prefix, all) in [("sent", "tx_dscp_", "tx_data"), ("received", "rx_dscp_", "rx_data")] {
        let (Some(all), by_dscp) = (packets.growth(all), packets.by_number(prefix)) else { continue };
        let Some((_, there)) = by_dscp.iter().find(|(dscp, _)| *dscp == cnp) else { continue };
        let share = *there as f64 / all.max(1) as f64;
        if *there >= MIN_PACKETS && share >= settings.packet_share {
            let summary =
                format!("{} of the RDMA data packets {word} carry DSCP {cnp}, that of the CNPs", percent(share));
            let row = Evidence::new(
                format!("{prefix}{cnp} / data packets"),
                Some(span.seconds()),
                share,
                settings.packet_share,
                "share",
            );
            return Some(conclude(view, port, &span, &summary, vec![row], Grade::Confirmed));
        }
    }
    None
}

fn conclude(
    view: &View<'_>,
    port: &PortRecord,
    span: &Span<'_>,
    summary: &str,
    evidence: Vec<Evidence>,
    grade: Grade,
) -> Verdict {
    let (key, subject) = view.port_subject(port);
    let trust = port.congestion.as_ref().and_then(|config| config.trust.as_deref());
    let trust = match trust {
        Some("pcp") => "The port trusts the VLAN priority: DSCP has no effect. ",
        Some("dscp") => "The port trusts DSCP: what the application sets as traffic class decides. ",
        _ => "",
    };
    Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade,
        summary: format!("{summary}. {}", definition(view, port)),
        evidence,
        advice: format!(
            "{trust}Give the data the traffic class of the protected priority (not DSCP 48, CS6, which is the CNPs' own), on \
             both ends, and let every switch of the path map it to the same class."
        ),
        would_raise: if grade == Grade::Confirmed { String::new() } else { "packets: the DSCP they carry".to_owned() },
        part_of: None,
        since: span.from,
        revision: 0,
    }))
}
