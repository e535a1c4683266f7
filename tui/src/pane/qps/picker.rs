//! `c`: which columns the table has, and which one it is sorted by.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

use super::super::{put, row};
use crate::selection::Selection;
use crate::theme::Theme;

/// Its width, cells.
const WIDTH: u16 = 36;

/// What a key did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Picked {
    /// Nothing to be done.
    Nothing,
    /// Show or hide this column.
    Toggle(usize),
    /// Sort by this column.
    Sort(usize),
    /// All columns again.
    All,
    /// Done.
    Close,
}

/// The open picker.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Picker {
    list: Selection,
}

impl Picker {
    /// Answers a key.
    pub(super) fn key(&mut self, key: KeyEvent, columns: usize) -> Picked {
        let last = columns.saturating_sub(1);
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => self.list.row = self.list.row.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.list.row = (self.list.row + 1).min(last),
            KeyCode::Home | KeyCode::Char('g') => self.list.row = 0,
            KeyCode::End | KeyCode::Char('G') => self.list.row = last,
            KeyCode::Char(' ' | 'x') | KeyCode::Enter => return Picked::Toggle(self.list.row),
            KeyCode::Char('s') => return Picked::Sort(self.list.row),
            KeyCode::Char('a') => return Picked::All,
            KeyCode::Esc | KeyCode::Char('c' | 'q') => return Picked::Close,
            _ => {}
        }
        Picked::Nothing
    }

    /// Draws it at the right of the table: columns as name and whether it is shown.
    pub(super) fn draw(&mut self, buf: &mut Buffer, area: Rect, columns: &[(&str, bool)], sort: usize, theme: &Theme) {
        let width = WIDTH.min(area.width);
        let height = u16::try_from(columns.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
        let place = Rect { x: area.right() - width, width, height, ..area };
        Clear.render(place, buf);
        put(buf, place, 0, &Line::styled("│ columns", theme.strong));
        self.list.fit(columns.len(), usize::from(height.saturating_sub(2)));
        let shown = columns.iter().enumerate().skip(self.list.top).take(self.list.height);
        for (line, (index, (name, is_shown))) in (1u16..).zip(shown) {
            if index == self.list.row {
                buf.set_style(row(place, line), theme.selected);
            }
            let lead = if index == self.list.row { "►" } else { " " };
            let mark = if *is_shown { "[x]" } else { "[ ]" };
            let sorted = if index == sort { "  sorted by" } else { "" };
            let spans = vec![
                Span::styled("│", theme.rule),
                Span::raw(format!("{lead}{mark} {name}")),
                Span::styled(sorted, theme.dim),
            ];
            put(buf, place, line, &Line::from(spans));
        }
        put(buf, place, height - 1, &Line::styled("│ space show  s sort  a all  Esc ok", theme.dim));
    }
}
