//! The line in which a pane says what is looked at, since when, how sure it is, and what is not seen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{below, put};
use crate::theme::Theme;

/// Cells between two pieces.
const GAP: usize = 3;
/// How dear a hint is: no piece is cheaper.
const HINT: u8 = 10;
/// A pane of so many rows can spare a second one for what does not fit into the first.
const TALL: u16 = 18;

/// The line being put together; two where the width is short and the pane is tall. When that does not do there go: hints,
/// since when, how sure, what is not seen; what is looked at stays.
pub(crate) struct About<'t> {
    theme: &'t Theme,
    pieces: Vec<(u8, Span<'static>)>,
}

impl<'t> About<'t> {
    /// What is looked at.
    pub(crate) fn what(theme: &'t Theme, text: impl Into<String>) -> Self {
        Self { theme, pieces: vec![(255, Span::styled(text.into(), theme.strong))] }
    }

    fn with(mut self, keep: u8, text: impl Into<String>, style: Style) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.pieces.push((keep, Span::styled(text, style)));
        }
        self
    }

    /// Since when.
    pub(crate) fn since(self, text: impl Into<String>) -> Self {
        let style = self.theme.dim;
        self.with(50, text, style)
    }

    /// How sure, or how it was found out.
    pub(crate) fn sure(self, text: impl Into<String>) -> Self {
        let style = self.theme.dim;
        self.with(60, text, style)
    }

    /// How it is sorted, filtered or laid out: what somebody asked for.
    pub(crate) fn asked(self, text: impl Into<String>) -> Self {
        let style = self.theme.info;
        self.with(220, text, style)
    }

    /// What needs a look.
    pub(crate) fn alarm(self, text: impl Into<String>) -> Self {
        let style = self.theme.critical;
        self.with(230, text, style)
    }

    /// What is not seen here that could be.
    pub(crate) fn unseen(self, text: impl Into<String>) -> Self {
        let style = self.theme.warning;
        let text = text.into();
        let text = if text.is_empty() { text } else { format!("not seen: {text}") };
        self.with(80, text, style)
    }

    /// What nobody could see from here.
    pub(crate) fn beyond(self, text: impl Into<String>) -> Self {
        let style = self.theme.dim;
        let text = text.into();
        let text = if text.is_empty() { text } else { format!("not seen: {text}") };
        self.with(70, text, style)
    }

    /// What else to know.
    pub(crate) fn hint(self, text: impl Into<String>) -> Self {
        let style = self.theme.dim;
        self.with(HINT, text, style)
    }

    /// Draws it into the first row of an area, or the first two. Gives back the area whose first row is the last of them.
    pub(crate) fn draw(mut self, buf: &mut Buffer, area: Rect) -> Rect {
        let room = usize::from(area.width).saturating_sub(2);
        let rows = if area.height >= TALL { 2 } else { 1 };
        if self.lines(room).len() > 1 {
            // A hint is not worth a row.
            self.pieces.retain(|(keep, _)| *keep > HINT);
        }
        while self.pieces.len() > 1 && self.lines(room).len() > rows {
            let cheapest = self.pieces.iter().enumerate().min_by_key(|(_, (keep, _))| *keep).map(|(at, _)| at);
            let Some(cheapest) = cheapest else { break };
            self.pieces.remove(cheapest);
        }
        let lines = self.lines(room);
        for (at, line) in (0u16..).zip(&lines) {
            put(buf, area, at, line);
        }
        below(area, u16::try_from(lines.len()).unwrap_or(1).saturating_sub(1))
    }

    /// The pieces in lines of at most so many cells.
    fn lines(&self, room: usize) -> Vec<Line<'static>> {
        let mut lines = vec![Line::raw(" ")];
        let mut used = 0;
        for (_, piece) in &self.pieces {
            if used > 0 && used + GAP + piece.width() > room {
                lines.push(Line::raw(" "));
                used = 0;
            }
            let line = lines.last_mut().expect("the first line was put in at the start");
            if used > 0 {
                line.spans.push(Span::raw(" ".repeat(GAP)));
                used += GAP;
            }
            line.spans.push(piece.clone());
            used += piece.width();
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::ThemeName;

    fn drawn(width: u16, height: u16) -> Vec<String> {
        let theme = Theme::new(ThemeName::Dark, true);
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        let about = About::what(&theme, "5 things").since("since noon").sure("counted").unseen("the rest").hint("l");
        let rest = about.draw(&mut buf, area);
        let rows = usize::from(height - rest.height) + 1;
        let text = buf.content.chunks(usize::from(width)).take(rows);
        text.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim().to_owned()).collect()
    }

    #[test]
    fn pieces_go_in_the_stated_order() {
        assert_eq!(drawn(80, 1), ["5 things   since noon   counted   not seen: the rest   l"]);
        assert_eq!(drawn(55, 1), ["5 things   since noon   counted   not seen: the rest"]);
        assert_eq!(drawn(50, 1), ["5 things   counted   not seen: the rest"]);
        assert_eq!(drawn(35, 1), ["5 things   not seen: the rest"]);
        assert_eq!(drawn(12, 1), ["5 things"]);
    }

    #[test]
    fn a_tall_pane_has_a_second_row_for_what_does_not_fit_into_the_first() {
        assert_eq!(drawn(80, TALL), ["5 things   since noon   counted   not seen: the rest   l"]);
        assert_eq!(drawn(50, TALL), ["5 things   since noon   counted", "not seen: the rest"]);
        assert_eq!(drawn(25, TALL), ["5 things   counted", "not seen: the rest"]);
    }
}
