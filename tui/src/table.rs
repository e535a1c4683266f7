//! Columns that give way in a stated order when the width is short.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Rect};
use ratatui::style::Style;
use ratatui::text::Line;

use crate::key::Action;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    /// Its title.
    pub(crate) title: &'static str,
    /// Its width, cells.
    pub(crate) width: u16,
    /// How its cells are aligned.
    pub(crate) align: Alignment,
    /// When the width is short the column with the lowest number goes first; 255 never goes.
    pub(crate) keep: u8,
    /// It takes a share of the width that is left.
    pub(crate) grows: bool,
}

/// A column of text, or of numbers.
const fn column(title: &'static str, width: u16, align: Alignment, keep: u8) -> Column {
    Column { title, width, align, keep, grows: false }
}

/// A column of text.
pub(crate) const fn text(title: &'static str, width: u16, keep: u8) -> Column {
    column(title, width, Alignment::Left, keep)
}

/// A column of numbers.
pub(crate) const fn number(title: &'static str, width: u16, keep: u8) -> Column {
    column(title, width, Alignment::Right, keep)
}

impl Column {
    /// Lets the column take a share of the width that is left.
    pub(crate) const fn growing(self) -> Self {
        Self { grows: true, ..self }
    }
}

/// A column's place on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Which column.
    pub(crate) index: usize,
    /// Its first cell, from the left of the table.
    pub(crate) x: u16,
    /// Its width.
    pub(crate) width: u16,
}

/// Places the columns into `width` cells. The first column stays; `skip` columns after it are scrolled out.
pub(crate) fn fit(columns: &[Column], width: u16, skip: usize) -> Vec<Placed> {
    let mut kept: Vec<usize> = (0..columns.len()).filter(|index| *index == 0 || *index > skip).collect();
    let need = |kept: &[usize]| -> u16 {
        kept.iter().map(|index| columns[*index].width + 1).fold(0u16, u16::saturating_add).saturating_sub(1)
    };
    while need(&kept) > width {
        let weakest = kept.iter().copied().filter(|index| columns[*index].keep < 255).min_by_key(|i| columns[*i].keep);
        let Some(weakest) = weakest else { break };
        kept.retain(|index| *index != weakest);
    }
    let mut left = width.saturating_sub(need(&kept));
    let mut growing = u16::try_from(kept.iter().filter(|index| columns[**index].grows).count()).unwrap_or(0);
    let mut x = 0;
    let mut placed = Vec::with_capacity(kept.len());
    for index in kept {
        let mut wide = columns[index].width;
        if columns[index].grows && growing > 0 {
            let share = left / growing;
            (wide, left, growing) = (wide + share, left - share, growing - 1);
        }
        let wide = wide.min(width.saturating_sub(x));
        placed.push(Placed { index, x, width: wide });
        x = x.saturating_add(wide + 1);
    }
    placed.retain(|column| column.width > 0);
    placed
}

/// How many columns are not in sight although they were not scrolled out.
fn hidden(columns: &[Column], placed: &[Placed], skip: usize) -> usize {
    let shown = |index: usize| placed.iter().any(|place| place.index == index);
    (skip + 1..columns.len()).filter(|index| !shown(*index)).count()
}

/// How many columns to scroll out so that at least one comes into sight that is not; as many as now where none would.
fn further(columns: &[Column], width: u16, skip: usize) -> usize {
    let shown: Vec<usize> = fit(columns, width, skip).iter().map(|place| place.index).collect();
    let brings = |skip: &usize| fit(columns, width, *skip).iter().any(|place| !shown.contains(&place.index));
    (skip + 1..columns.len()).find(brings).unwrap_or(skip)
}

/// The step before this one on the way there.
fn nearer(columns: &[Column], width: u16, skip: usize) -> usize {
    let mut at = 0;
    loop {
        let next = further(columns, width, at);
        if next >= skip || next == at {
            return at;
        }
        at = next;
    }
}

/// How far a table's columns are scrolled, and what of them was not in sight when last placed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sideways {
    skip: usize,
    hidden: usize,
    width: u16,
}

impl Sideways {
    /// Places the columns into `width` cells.
    pub(crate) fn fit(&mut self, columns: &[Column], width: u16) -> Vec<Placed> {
        let placed = fit(columns, width, self.skip);
        self.hidden = hidden(columns, &placed, self.skip);
        self.width = width;
        placed
    }

    /// Scrolls; false for an action that is none of this.
    pub(crate) fn act(&mut self, action: Action, columns: &[Column]) -> bool {
        self.skip = match action {
            Action::Left => nearer(columns, self.width, self.skip),
            Action::Right => further(columns, self.width, self.skip),
            _ => return false,
        };
        true
    }

    /// What the footer says of columns that are not in sight.
    pub(crate) fn hint(&self) -> Option<String> {
        let more = more(self.hidden).map(|more| format!("{more} [l]"));
        match (more, self.skip) {
            (more, 0) => more,
            (None, _) => Some("columns before: h".to_owned()),
            (Some(more), _) => Some(format!("{more}, before: h")),
        }
    }
}

/// That so many columns are not in sight.
fn more(hidden: usize) -> Option<String> {
    match hidden {
        0 => None,
        1 => Some("1 column more".to_owned()),
        n => Some(format!("{n} columns more")),
    }
}

/// What the footer says of columns of a table that is not scrolled.
pub(crate) fn hint_of_width(columns: &[Column], placed: &[Placed]) -> Option<String> {
    more(hidden(columns, placed, 0)).map(|more| format!("{more} where it is wider"))
}

/// Draws the titles; `marks` adds to a title (the sort arrow).
pub(crate) fn draw_titles(
    buf: &mut Buffer,
    area: Rect,
    columns: &[Column],
    placed: &[Placed],
    style: Style,
    mark: Option<(usize, &str)>,
) {
    for place in placed {
        let column = &columns[place.index];
        let text = match mark {
            Some((index, mark)) if index == place.index => format!("{}{mark}", column.title),
            _ => column.title.to_owned(),
        };
        draw_cell(buf, area, *place, column.align, &Line::styled(text, style));
    }
}

/// Draws one row into the first line of `area`.
pub(crate) fn draw_row(buf: &mut Buffer, area: Rect, columns: &[Column], placed: &[Placed], cells: &[Line<'_>]) {
    for place in placed {
        if let Some(cell) = cells.get(place.index) {
            draw_cell(buf, area, *place, columns[place.index].align, cell);
        }
    }
}

fn draw_cell(buf: &mut Buffer, area: Rect, place: Placed, align: Alignment, cell: &Line<'_>) {
    if area.height == 0 || place.x >= area.width {
        return;
    }
    let wide = place.width.min(area.width - place.x);
    let long = u16::try_from(cell.width()).unwrap_or(u16::MAX);
    let indent = if align == Alignment::Right { wide.saturating_sub(long) } else { 0 };
    buf.set_line(area.x + place.x + indent, area.y, cell, wide - indent);
    if long > wide && wide > 1 {
        // What was cut is marked: a cut number would be another number.
        buf[(area.x + place.x + wide - 1, area.y)].set_symbol("…");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [text("A", 6, 255), number("B", 5, 1), number("C", 5, 3), text("D", 4, 2)];

    fn kept(width: u16, skip: usize) -> Vec<usize> {
        fit(&COLUMNS, width, skip).iter().map(|place| place.index).collect()
    }

    #[test]
    fn columns_go_in_the_stated_order() {
        assert_eq!(kept(80, 0), [0, 1, 2, 3]);
        assert_eq!(kept(22, 0), [0, 2, 3]);
        assert_eq!(kept(13, 0), [0, 2]);
        assert_eq!(kept(7, 0), [0]);
    }

    #[test]
    fn scrolling_brings_hidden_columns_into_sight() {
        assert_eq!(kept(13, 2), [0, 3]);
    }

    #[test]
    fn each_step_to_the_right_brings_a_column_and_the_way_back_is_the_same() {
        let mut steps = vec![0];
        while further(&COLUMNS, 13, steps[steps.len() - 1]) != steps[steps.len() - 1] {
            let skip = steps[steps.len() - 1];
            let next = further(&COLUMNS, 13, skip);
            let before = kept(13, skip);
            assert!(kept(13, next).iter().any(|index| !before.contains(index)), "{steps:?}");
            assert_eq!(nearer(&COLUMNS, 13, next), skip);
            steps.push(next);
        }
        assert!(steps.len() > 1);
    }

    #[test]
    fn what_is_out_of_sight_is_announced_until_the_last_column_is_there() {
        let mut sideways = Sideways::default();
        let mut told = Vec::new();
        for _ in 0..3 {
            sideways.fit(&COLUMNS, 13);
            told.extend(sideways.hint());
            assert!(sideways.act(Action::Right, &COLUMNS));
        }
        assert_eq!(told, ["2 columns more [l]", "columns before: h", "columns before: h"]);
        assert!(!sideways.act(Action::Down, &COLUMNS));
        assert_eq!(hint_of_width(&COLUMNS, &fit(&COLUMNS, 22, 0)).as_deref(), Some("1 column more where it is wider"));
    }

    #[test]
    fn a_cut_cell_is_marked() {
        let area = Rect::new(0, 0, 6, 1);
        let mut buf = Buffer::empty(area);
        draw_row(&mut buf, area, &COLUMNS, &fit(&COLUMNS, 6, 0), &[Line::raw("123456789")]);
        assert_eq!(buf[(5, 0)].symbol(), "…");
    }
}
