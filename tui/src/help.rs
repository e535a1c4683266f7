//! `?`: what the open pane shows and what its marks mean; its keys, from the table of keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

use crate::key::{BINDINGS, Where};
use crate::pane::{PaneId, put, wrap};
use crate::theme::Theme;

/// What the marks on every screen mean.
const LEGEND: [&str; 2] = [
    "– unknown, never zero · 0 zero · >n at least n · ? only suspected · dotted chart: nothing known",
    "suspected: from counters · probable: and per-QP data · confirmed: an event, or packets",
];

/// What a pane shows, since when, how sure it is, and what it cannot show.
fn meaning(pane: PaneId) -> &'static str {
    match pane {
        PaneId::Overview => {
            "Every port in a row, what it does now, and below the findings, worst first. NOW is the last interval, bits per \
             second of RDMA; RETR ERR AER count the last 60 s; PAUSE is the share of time this port was told to stop; CNP/s \
             sent and handled. HEALTH is the worst finding in a word. \"seen\" in the header: bytes and QPs the probes see."
        }
        PaneId::Port => {
            "One port over time, the newest at the right, and every counter. The cursor reads the charts at its time. TOTAL is \
             what the driver counts, since it was loaded or reset: never a sign of a fault alone. WHERE is the source. A \
             counter that cannot be read says why."
        }
        PaneId::Qps => {
            "Every QP the kernel lists or the probes saw. TX, POSTS, BYTES and ERR come from the probes, for QPs of \
             processes they reach; – for others. AGE with > : it was there before the watching began."
        }
        PaneId::Qp => {
            "One QP: its states and who moved it, its port meanwhile, its rate, sizes and latency. \"nobody asked for it\": no \
             call was seen, the hardware or the kernel did it. Latency is sampled; timers are known where its way to RTS was \
             seen."
        }
        PaneId::Findings => {
            "What rules concluded: worst first, what follows from it below (└), what is over last. The detail says what, since \
             when, how sure and what would make it surer, what to do, the numbers it rests on with their limits and history \
             (▼: it began), commands to check by hand, and what the rule means and does not mean."
        }
        PaneId::Ecn => {
            "Marks (CE), CNPs and pause of every port. MARKED: of the packets received. PER CE: CNPs sent for each mark; less \
             than one is normal. PAUSED: told to stop; PAUSES: tells others. p50, QUIET: small operations now and at quiet \
             times. Marks at low load without pause: marked too early. Pause without marks: marking is off or too late."
        }
        PaneId::Pcie => {
            "Root ports, switches, adapters and their neighbours. LINK NOW against OF: what it could be. CAN: bits per second \
             after line coding. RDMA: of the ports below it, the busier direction. CORR, UNCORR: AER errors of the last hour; \
             –: nobody counts them there."
        }
        PaneId::Failover => {
            "Each incident on a stopwatch: t0 first sign, t1 port down, t2 first QP, t3 bond switches, t4 first operation on \
             another path. ● when it was seen; ─ it may have been earlier (≤). OUTAGE: from the first of t1 t2 t3 to t4, at \
             least–at most. FLOOR: how soon a QP's own timers give up. ? : the times are not exact enough to tell."
        }
        PaneId::Own => {
            "What this program sees and does not see, and why; what it lost; what it costs. An arrow (→) leads to what would \
             help. A rule that cannot be judged has found nothing because it could not look."
        }
    }
}

/// Draws the help over the pane.
pub(crate) fn draw(buf: &mut Buffer, area: Rect, pane: PaneId, replay: bool, theme: &Theme) {
    Clear.render(area, buf);
    let title = format!(" {} {} (any key closes)", pane.number(), pane.title());
    put(buf, area, 0, &Line::styled(title, theme.strong));
    let width = usize::from(area.width).saturating_sub(2).max(20);
    let told: Vec<String> = LEGEND.iter().flat_map(|text| wrap(text, width)).collect();
    let meaning = wrap(meaning(pane), width);
    let mut y = 1;
    for text in &meaning {
        put(buf, area, y, &Line::styled(format!(" {text}"), theme.text));
        y += 1;
    }
    let lines: Vec<Line<'_>> = BINDINGS
        .iter()
        .filter(|binding| binding.holds(pane, replay))
        // What is special to this pane comes first.
        .filter(|binding| binding.at != Where::Everywhere)
        .chain(BINDINGS.iter().filter(|binding| binding.at == Where::Everywhere))
        .map(|binding| {
            Line::from(vec![
                Span::styled(format!(" {:>9}  ", binding.shown), theme.strong),
                Span::styled(binding.help, theme.text),
            ])
        })
        .collect();
    let legend = u16::try_from(told.len()).unwrap_or(0);
    let keys = y + 1;
    let rows = area.height.saturating_sub(keys + 1 + legend).max(1);
    let columns = u16::try_from(lines.len()).unwrap_or(u16::MAX).div_ceil(rows).max(1);
    let wide = area.width / columns;
    for (at, line) in (0u16..).zip(&lines) {
        let column = Rect { x: area.x + at / rows * wide, width: wide.saturating_sub(1), ..area };
        put(buf, column, keys + at % rows, line);
    }
    for (at, text) in (0u16..).zip(told) {
        put(buf, area, area.height.saturating_sub(legend) + at, &Line::styled(format!(" {text}"), theme.dim));
    }
}
