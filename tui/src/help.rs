//! `?`: what the open pane shows and what its marks mean; its keys, from the table of keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

use crate::key::{Action, BINDINGS, Time, Where};
use crate::pane::{PaneId, below, put, wrap};
use crate::selection::Selection;
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
             second of RDMA; RETR ERR AER count the last 60 s; PAUSE is the share of time this port was told to stop; CNP/s: \
             sent and handled together. HEALTH is the worst finding in a word; ok, note: a finding that \
             is no trouble; ok, in part: nobody reads its link errors, PCIe or adapter, or too little is seen of its QPs (see 2). In the header: \"seen\", bytes and QPs the probes see; \"cost\", this program and its \
             probes, of one core."
        }
        PaneId::Port => {
            "One port over time, the newest at the right, and every counter. The cursor reads the charts at its time. Events: A \
             AER, Q a QP failed, E an event of the port or its device, R its counters were set back. TOTAL is \
             what the driver counts, since it was loaded or reset: never a sign of a fault alone. WHERE is the source. A \
             counter that cannot be read says why."
        }
        PaneId::Qps => {
            "Every QP the kernel lists or the probes saw. b/s, POSTS, BYTES and ERR come from the probes, for QPs of \
             processes they reach; – for others. AGE with > : it was there before the watching began."
        }
        PaneId::Qp => {
            "One QP: its states and who moved it, its port meanwhile, its rate, sizes and latency. \"nobody asked for it\": no \
             call was seen, the hardware or the kernel did it. Latency is sampled; timers are known where its way to RTS was \
             seen."
        }
        PaneId::Findings => {
            "What rules concluded: worst first, what belongs to it below (└), what is over last; > before an age: it was so \
             when the watching began. The detail says what, since when, how sure and what would make it surer, what to do, \
             the numbers it rests on with their limits and history (▼: it began; ◆: the cursor), commands to check by hand, \
             and what the rule means and does not mean."
        }
        PaneId::Ecn => {
            "Marks (CE), CNPs and pause of every port. MARKED: of the packets received. PER CE: CNPs sent for each mark; less \
             than one is normal. PAUSED: told to stop; PAUSES: tells others. p50, QUIET: small operations now and at quiet \
             times (<: at the least, without pause). Marks at low load without pause: marked too early. Pause without marks: marking is off or too late. \
             Congestion: a queue above K* = 0.17 · rate · RTT for L round trips."
        }
        PaneId::Pcie => {
            "Root ports, switches, adapters and their neighbours. LINK NOW against OF: what it could be. CAN: bits per second \
             after line coding. RDMA: of the ports below it, the busier direction. CORR, UNCORR: AER errors of the last hour; \
             –: nobody counts them there."
        }
        PaneId::Failover => {
            "Each incident on a stopwatch: t0 first sign (an error of the minute before, or what a finding began with), t1 port down, t2 first QP, t3 bond switches, t4 first operation on \
             another path. ● when it was seen; ─ it may have been earlier (≤); ◄ long before. OUTAGE: from the first of t1 t2 t3 to t4, at \
             least–at most. FLOOR: how soon a QP's own timers give up. ? : the times are not exact enough to tell."
        }
        PaneId::Own => {
            "What this program sees and does not see, and why; what it lost; what it costs. An arrow (→) leads to what would \
             help. A rule that cannot be judged has found nothing because it could not look."
        }
    }
}

/// The least width of a column of keys.
const KEYS: u16 = 48;

/// The help as a page that can be scrolled; its place in it is the caller's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Help {
    place: Selection,
    lines: usize,
}

impl Help {
    /// Scrolls; says whether the action was one.
    pub(crate) fn scroll(&mut self, action: Action) -> bool {
        self.place.scroll(action, self.lines)
    }

    /// Draws it over the pane.
    pub(crate) fn draw(&mut self, buf: &mut Buffer, area: Rect, pane: PaneId, time: Time, theme: &Theme) {
        Clear.render(area, buf);
        let title = format!(" {} {}", pane.number(), pane.title());
        let title =
            vec![Span::styled(title, theme.strong), Span::styled("   Down Up scroll, any other key closes", theme.dim)];
        put(buf, area, 0, &Line::from(title));
        let body = below(area, 1);
        let lines = page(pane, time, body.width, theme);
        self.lines = lines.len();
        self.place.height = usize::from(body.height);
        self.place.top = self.place.top.min(self.lines.saturating_sub(self.place.height));
        for (at, line) in (0u16..).zip(lines.iter().skip(self.place.top)) {
            put(buf, body, at, line);
        }
        if self.place.top + self.place.height < self.lines && body.height > 0 {
            let more = Line::styled(" ↓ more ", theme.info);
            let wide = u16::try_from(more.width()).unwrap_or(0).min(body.width);
            buf.set_line(body.right() - wide, body.bottom() - 1, &more, wide);
        }
    }
}

/// What the pane means, its own keys, the marks, the keys everywhere.
fn page(pane: PaneId, time: Time, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let text = usize::from(width).saturating_sub(2).max(20);
    let mut lines: Vec<Line<'static>> = Vec::new();
    lines.extend(wrap(meaning(pane), text).into_iter().map(|part| Line::styled(format!(" {part}"), theme.text)));
    let (everywhere, own): (Vec<_>, Vec<_>) =
        BINDINGS.iter().filter(|binding| binding.holds(pane, time)).partition(|b| b.at == Where::Everywhere);
    lines.push(Line::raw(""));
    lines.extend(keys(&own.iter().map(|b| (b.named(time), b.help)).collect::<Vec<_>>(), width, theme));
    lines.push(Line::raw(""));
    for mark in LEGEND {
        lines.extend(wrap(mark, text).into_iter().map(|part| Line::styled(format!(" {part}"), theme.dim)));
    }
    lines.push(Line::raw(""));
    // The tabs say which number is which pane.
    let panes = everywhere.iter().filter(|b| !matches!(b.action, Action::Open(_))).map(|b| (b.named(time), b.help));
    let panes: Vec<_> = std::iter::once(("1 – 9", "open a pane; the tabs name them")).chain(panes).collect();
    lines.extend(keys(&panes, width, theme));
    lines
}

/// Keys in as many columns as the width has.
fn keys(keys: &[(&'static str, &'static str)], width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let columns = usize::from((width / KEYS).clamp(1, 3));
    let wide = usize::from(width) / columns;
    let rows = keys.len().div_ceil(columns);
    let row = |row: usize| {
        let mut spans = Vec::new();
        for (shown, help) in keys.iter().skip(row).step_by(rows.max(1)) {
            spans.push(Span::styled(format!(" {shown:>9}  "), theme.strong));
            let room = wide.saturating_sub(13);
            spans.push(Span::styled(format!("{help:<room$} "), theme.text));
        }
        Line::from(spans)
    };
    (0..rows).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::ThemeName;

    #[test]
    fn every_key_of_a_pane_is_in_its_help() {
        let theme = Theme::new(ThemeName::Dark, true);
        for pane in PaneId::ALL {
            for (time, width) in Time::ALL.into_iter().zip([60, 120, 200]) {
                let page = crate::pane::as_text(&page(pane, time, width, &theme));
                for binding in BINDINGS.iter().filter(|binding| binding.holds(pane, time)) {
                    let told = matches!(binding.action, Action::Open(_)) || page.contains(binding.help);
                    assert!(told, "{pane:?}: {}\n{page}", binding.help);
                }
            }
        }
    }
}
