//! The line in which a pane says what is looked at, since when, how sure it is, and what is not seen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::put;
use crate::theme::Theme;

/// Cells between two pieces.
const GAP: usize = 3;

/// The line being put together. When the width is short there go: hints, since when, how sure, what is not seen; what is
/// looked at stays.
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
        self.with(10, text, style)
    }

    /// Draws it into the first row of an area.
    pub(crate) fn draw(mut self, buf: &mut Buffer, area: Rect) {
        let room = usize::from(area.width).saturating_sub(2);
        let need = |pieces: &[(u8, Span<'static>)]| pieces.iter().map(|(_, piece)| piece.width() + GAP).sum::<usize>();
        while self.pieces.len() > 1 && need(&self.pieces).saturating_sub(GAP) > room {
            let cheapest = self.pieces.iter().enumerate().min_by_key(|(_, (keep, _))| *keep).map(|(at, _)| at);
            let Some(cheapest) = cheapest else { break };
            self.pieces.remove(cheapest);
        }
        let mut spans = vec![Span::raw(" ")];
        for (at, (_, piece)) in self.pieces.into_iter().enumerate() {
            if at > 0 {
                spans.push(Span::raw(" ".repeat(GAP)));
            }
            spans.push(piece);
        }
        put(buf, area, 0, &Line::from(spans));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::ThemeName;

    fn drawn(width: u16) -> String {
        let theme = Theme::new(ThemeName::Dark, true);
        let area = Rect::new(0, 0, width, 1);
        let mut buf = Buffer::empty(area);
        let about = About::what(&theme, "5 things").since("since noon").sure("counted").unseen("the rest").hint("l");
        about.draw(&mut buf, area);
        let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.trim().to_owned()
    }

    #[test]
    fn pieces_go_in_the_stated_order() {
        assert_eq!(drawn(80), "5 things   since noon   counted   not seen: the rest   l");
        assert_eq!(drawn(55), "5 things   since noon   counted   not seen: the rest");
        assert_eq!(drawn(50), "5 things   counted   not seen: the rest");
        assert_eq!(drawn(35), "5 things   not seen: the rest");
        assert_eq!(drawn(12), "5 things");
    }
}
