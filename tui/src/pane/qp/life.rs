//! What moved the QP from state to state, and what its timers let it live through.

use collector::inventory::{By, QpRecord};
use collector::observation::{Nanos, QpState};
use ratatui::text::{Line, Span};

use super::{Scene, state_style};
use crate::number::{self, UNKNOWN};
use crate::theme::Theme;

/// Unit of the ACK timeout: 4.096 µs · 2^timeout (IBA 9.7.6.1.3).
const TIMEOUT_UNIT_NS: u64 = 4_096;

pub(super) fn changes<'a>(scene: Scene<'a>, qp: &'a QpRecord) -> Vec<Line<'a>> {
    let (world, theme) = (&**scene.world, scene.theme);
    let Some(detail) = qp.detail.as_ref().filter(|detail| !detail.changes.is_empty()) else {
        return vec![Line::styled(" no change of state was seen", theme.dim)];
    };
    let mut lines = Vec::new();
    if detail.changes.dropped > 0 {
        lines.push(Line::styled(format!(" {} earlier changes forgotten", detail.changes.dropped), theme.dim));
    }
    let mut before: Option<Nanos> = None;
    for (t, change) in detail.changes.iter() {
        let name = |state: Option<QpState>| state.map_or(UNKNOWN, QpState::name);
        let to = if change.by == By::Destroy { "gone" } else { name(change.to) };
        let after = before.map_or(String::new(), |before| format!("+{}", number::short_time(t.saturating_sub(before))));
        let style = change.to.map_or(theme.dim, |to| state_style(to, theme));
        let who = match (change.by, change.to) {
            (By::Create, _) => "created by its process",
            (By::Modify, Some(QpState::Err)) => "the process asked for it",
            (By::Modify, Some(QpState::Sqd)) => "the process drains it",
            (By::Modify, _) => "modify_qp",
            (By::Destroy, _) => "destroyed",
            (By::Found, Some(QpState::Err)) => "nobody asked for it",
            (By::Found, _) => "found so",
        };
        let errno = change.errno.map_or(String::new(), |errno| format!(" FAILED errno {errno}"));
        lines.push(Line::from(vec![
            Span::styled(format!(" {} {after:>9}  ", number::moment(world, *t, true)), theme.dim),
            Span::styled(format!("{:>5} → {to:<5}", name(change.from)), style),
            Span::styled(format!("  {who}"), theme.text),
            Span::styled(errno, theme.warning),
        ]));
        before = Some(*t);
    }
    lines
}

/// The time after which a QP that gets no answer gives up, ns: every try waits for the timeout at least once, at most
/// four times (IBA 9.7.6.1.3). `None` when a timer is not known, or the timeout is 0, which means for ever.
fn retry_window(qp: &QpRecord) -> Option<(u64, u64)> {
    let exponent = u32::from(qp.timeout.filter(|timeout| (1..32).contains(timeout))?);
    let least = TIMEOUT_UNIT_NS.checked_shl(exponent)?.checked_mul(u64::from(qp.retry_cnt?) + 1)?;
    Some((least, least.saturating_mul(4)))
}

pub(super) fn timers<'a>(qp: &QpRecord, theme: &Theme) -> Vec<Line<'a>> {
    let number = |n: Option<u8>| n.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string());
    let timeout = match qp.timeout {
        None => UNKNOWN.to_owned(),
        Some(0) => "0 (for ever)".to_owned(),
        Some(n) => format!("{n} = {}", number::short_time(TIMEOUT_UNIT_NS.checked_shl(n.into()).unwrap_or(u64::MAX))),
    };
    let rnr = if qp.rnr_retry == Some(7) { "7 (for ever)".to_owned() } else { number(qp.rnr_retry) };
    let survives = match (qp.timeout, retry_window(qp)) {
        (Some(0), _) => "never gives up on a silent path".to_owned(),
        (_, None) => format!("could survive {UNKNOWN} of silence (timers not known)"),
        (_, Some((least, most))) => format!(
            "could survive at least {} of silence, at most {}",
            number::short_time(least),
            number::short_time(most)
        ),
    };
    vec![
        Line::styled(format!(" timeout {timeout}   retries {}   RNR retries {rnr}", number(qp.retry_cnt)), theme.text),
        Line::styled(format!(" path MTU {}", number::known_bytes(qp.path_mtu_bytes.map(u64::from))), theme.text),
        Line::styled(format!(" {survives}"), theme.strong),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_retry_window_is_what_the_timers_say() {
        let world = sample::healthy();
        let mut qp = world.qps.iter().next().unwrap().clone();
        (qp.timeout, qp.retry_cnt) = (Some(14), Some(7));
        assert_eq!(retry_window(&qp).unwrap().0, 536_870_912);
        qp.timeout = Some(0);
        assert_eq!(retry_window(&qp), None);
        qp.timeout = None;
        assert_eq!(retry_window(&qp), None);
    }
}
