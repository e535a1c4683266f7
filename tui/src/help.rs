//! `?`: the keys of the open pane, from the table of keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

use crate::key::{BINDINGS, Where};
use crate::pane::{PaneId, put};
use crate::theme::Theme;

/// What the marks on the screen mean.
const LEGEND: [&str; 4] = [
    "–  unknown (never zero)      0  zero      >n  at least n      ?  suspected only",
    "RETR ERR AER  of the last 60 s      PAUSE  share of time this port was told to stop",
    "CNP/s  sent and handled      NOW  last interval, bits per second of RDMA",
    "grade  suspected: counters · probable: and per-QP data · confirmed: event or packets",
];

/// Draws the help over the pane.
pub(crate) fn draw(buf: &mut Buffer, area: Rect, pane: PaneId, replay: bool, theme: &Theme) {
    Clear.render(area, buf);
    put(buf, area, 0, &Line::styled(format!(" Keys in {} (any key closes)", pane.title()), theme.strong));
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
    let legend = u16::try_from(LEGEND.len()).unwrap_or(0);
    let rows = area.height.saturating_sub(3 + legend).max(1);
    let columns = u16::try_from(lines.len()).unwrap_or(u16::MAX).div_ceil(rows).max(1);
    let wide = area.width / columns;
    for (at, line) in (0u16..).zip(&lines) {
        let column = Rect { x: area.x + at / rows * wide, width: wide.saturating_sub(1), ..area };
        put(buf, column, 2 + at % rows, line);
    }
    for (at, text) in (0u16..).zip(LEGEND) {
        put(buf, area, area.height.saturating_sub(legend) + at, &Line::styled(format!(" {text}"), theme.dim));
    }
}
