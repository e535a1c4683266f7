//! What was counted of the QP: posts, sizes, latencies, the hardware's counters, and what of it is not seen.

use collector::inventory::{PortRecord, QpDetail, QpRecord, UnseenWay, World};
use collector::observation::Histogram;
use ratatui::text::{Line, Span};

use super::wrap;
use crate::lane;
use crate::number::{self, UNKNOWN};
use crate::theme::Theme;

/// Hardware counters of the sets that count this QP: those that are not 0. What a set counts of several QPs is of no one, and
/// it counts on when one of them ends.
pub(super) fn bound<'a>(port: &PortRecord, qp: &QpRecord, theme: &Theme) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for set in port.bound.counting(qp.qpn) {
        let whose = if set.by.qpn == Some(qp.qpn) {
            "of this QP alone".to_owned()
        } else {
            let n = set.qpns.len();
            format!("{} QP{} now; also of QPs that ended", number::grouped(n as u64), if n == 1 { "" } else { "s" })
        };
        lines.push(Line::raw(""));
        lines.push(Line::from(vec![
            Span::styled(" hardware counters", theme.strong),
            Span::styled(format!(" bound to {}: {whose}", set.of()), theme.text),
        ]));
        let counted = set.counters.series.iter().filter_map(|s| Some((s, s.value().filter(|value| *value > 0)?)));
        let before = lines.len();
        for (series, value) in counted {
            let rate = number::per_second(series.rate);
            lines.push(Line::styled(
                format!("   {:<32} {:>16} {rate:>9}/s", series.name, number::grouped(value)),
                theme.text,
            ));
        }
        if lines.len() == before {
            lines.push(Line::styled("   every counter that can be read is 0", theme.dim));
        }
    }
    lines
}

pub(super) fn histograms<'a>(world: &World, qp: &QpRecord, width: usize, theme: &Theme) -> Vec<Line<'a>> {
    let traced = qp.stats_t.is_some();
    let mut lines = vec![Line::styled(
        if traced {
            format!(
                " {} posts, {} work requests, {}, {} errors",
                number::count(qp.posts),
                number::count(qp.wrs),
                number::bytes(qp.bytes),
                number::known_count(qp.errors)
            )
        } else {
            " not traced: no numbers (9 says why)".to_owned()
        },
        theme.text,
    )];
    lines.extend(unseen(world, qp, width, theme));
    let Some(detail) = &qp.detail else { return lines };
    for (name, n) in &detail.errors {
        lines.push(Line::styled(format!("   {name} {}", number::count(*n)), theme.critical));
    }
    let opcodes: Vec<String> = detail.opcodes.iter().map(|(name, n)| format!("{name} {}", number::count(*n))).collect();
    if !opcodes.is_empty() {
        lines.push(Line::styled(format!(" {}", opcodes.join("  ")), theme.dim));
    }
    blind(detail, &mut lines, theme);
    histogram("message size", detail.size_log2.as_ref(), number::bytes, width, theme, &mut lines);
    histogram("post-to-poll latency", detail.latency_log2_ns.as_ref(), number::short_time, width, theme, &mut lines);
    lines
}

/// Where else the QP's owner may post.
fn unseen<'a>(world: &World, qp: &QpRecord, width: usize, theme: &Theme) -> Vec<Line<'a>> {
    let said = match qp.pid {
        Some(pid) => world.processes.get(&pid).map(|process| {
            let ways: Vec<String> = process.ways.iter().map(UnseenWay::text).collect();
            format!(
                "its process may{} post through {}",
                if qp.stats_t.is_some() { " also" } else { "" },
                ways.join(", ")
            )
        }),
        None if qp.stats_t.is_none() && qp.comm.is_some() => {
            Some("the kernel's own: its posts are not watched".to_owned())
        }
        None => None,
    };
    let parts = said.map_or_else(Vec::new, |said| wrap(&said, width.saturating_sub(2).max(20)));
    parts.into_iter().map(|part| Line::styled(format!(" {part}"), theme.warning)).collect()
}

fn blind(detail: &QpDetail, lines: &mut Vec<Line<'_>>, theme: &Theme) {
    let watched = [("posts", detail.sampled_ns), ("completions", detail.completions_sampled_ns)];
    for (what, ns) in watched.into_iter().filter_map(|(what, ns)| Some((what, ns?))) {
        lines.push(Line::styled(format!(" {what} watched for {} in all", number::short_time(ns)), theme.dim));
    }
    if detail.completions_missed {
        let why = " completions not counted in full: several QPs use its extended queue";
        lines.push(Line::styled(why, theme.dim));
    }
    if detail.truncated > 0 {
        let n = number::count(detail.truncated);
        lines.push(Line::styled(format!(" {n} work requests more in lists too long to walk"), theme.warning));
    }
}

fn histogram(
    name: &str,
    histogram: Option<&Histogram>,
    write: fn(u64) -> String,
    width: usize,
    theme: &Theme,
    lines: &mut Vec<Line<'_>>,
) {
    let Some(histogram) = histogram else {
        lines.push(Line::styled(format!(" {name}: {UNKNOWN}"), theme.dim));
        return;
    };
    let bound = |q: f64| histogram.quantile_bound(q).map_or_else(|| UNKNOWN.to_owned(), |n| format!("<{}", write(n)));
    lines.push(Line::from(vec![
        Span::styled(format!(" {name}"), theme.strong),
        Span::styled(format!("  p50 {}  p99 {}", bound(0.5), bound(0.99)), theme.text),
    ]));
    let first = histogram.0.iter().position(|n| *n > 0).unwrap_or(0);
    let last = histogram.0.iter().rposition(|n| *n > 0).unwrap_or(0);
    let most = histogram.0.iter().copied().max().unwrap_or(0).max(1);
    for (bucket, n) in histogram.0.iter().enumerate().take(last + 1).skip(first) {
        let from = u32::try_from(bucket).ok().and_then(|bucket| 1u64.checked_shl(bucket)).unwrap_or(u64::MAX);
        let from = if bucket == 0 { 0 } else { from };
        let bar = lane::bar(*n as f64 / most as f64, width.saturating_sub(24).clamp(4, 40));
        lines.push(Line::from(vec![
            Span::styled(format!(" {:>9} ", write(from)), theme.dim),
            Span::styled(bar, theme.send),
            Span::styled(format!(" {:>6}", number::count(*n)), theme.text),
        ]));
    }
}

#[cfg(test)]
mod tests {
    use super::super::port_of;
    use super::*;
    use crate::theme::ThemeName;

    /// What the pane says of bound counters for a QP, on a port with one set that counts `qpns`: of type RC, or of one `alone`.
    fn said(qpn: u32, qpns: &[u32], alone: Option<u32>) -> String {
        use collector::engine::Engine;
        use collector::observation::recording::Header;
        use collector::observation::{Body, CounterSource, Counters, Observation, Port, Qp, QpEvent};
        let mut engine = Engine::new(Header::new(), collector::rule::Settings::default());
        let mut take = |body| engine.take(&Observation { t: 1_000_000_000, body });
        take(Body::Port(Port { device: "mlx5_0".into(), port: 1, ..Port::default() }));
        take(Body::Qp(Qp { device: "mlx5_0".into(), qpn, port: Some(1), event: QpEvent::Seen, ..Qp::default() }));
        take(Body::Counters(Counters {
            device: "mlx5_0".into(),
            port: Some(1),
            source: CounterSource::Qp,
            qp_type: alone.is_none().then(|| "RC".into()),
            qpn: alone,
            set: Some(4),
            qpns: Some(qpns.to_vec()),
            values: [("out_of_sequence".into(), 1_234), ("packet_seq_err".into(), 0)].into_iter().collect(),
            ..Counters::default()
        }));
        let world = engine.world();
        let qp = world.qps.iter().next().unwrap();
        let theme = Theme::new(crate::theme::ThemeName::default(), false);
        let lines = bound(port_of(world, qp).unwrap(), qp, &theme);
        lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_a_set_counts_of_several_qps_is_said_to_be_of_all_of_them() {
        let text = said(17, &[17, 18, 19], None);
        assert!(text.contains("bound to type RC: 3 QPs now; also of QPs that ended"), "{text}");
        assert!(
            text.contains("out_of_sequence") && text.contains("1,234") && !text.contains("packet_seq_err"),
            "{text}"
        );
        assert!(said(17, &[17], None).contains("type RC: 1 QP now; also of QPs that ended"));
        assert!(said(17, &[17], Some(17)).contains("of this QP alone"));
        assert_eq!(said(17, &[18, 19], None), "", "a set that does not count it");
    }

    #[test]
    fn for_how_long_posts_and_completions_were_watched_is_said_apart() {
        let said = |detail: &QpDetail| {
            let mut lines = Vec::new();
            blind(detail, &mut lines, &Theme::new(ThemeName::Dark, true));
            lines.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(said(&QpDetail::default()), Vec::<String>::new());
        let detail = QpDetail {
            sampled_ns: Some(30_000_000_000),
            completions_sampled_ns: Some(600_000_000),
            completions_missed: true,
            ..QpDetail::default()
        };
        let said = said(&detail);
        assert_eq!(said[..2], [" posts watched for 30.0 s in all", " completions watched for 600 ms in all"]);
        assert!(said[2].starts_with(" completions not counted in full"), "{said:?}");
    }
}
