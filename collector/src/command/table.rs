//! Aligned text tables, and lines of text that a terminal may be shown.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

/// How long something has lasted: `0:38`, `2:05:11`, `3d 04h`.
#[must_use]
pub fn age(s: u64) -> String {
    match s {
        0..3_600 => format!("{}:{:02}", s / 60, s % 60),
        3_600..86_400 => format!("{}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60),
        _ => format!("{}d {:02}h", s / 86_400, s / 3_600 % 24),
    }
}

/// `1 observation`, `3 observations`.
#[must_use]
pub fn counted(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// Which side of a column the text stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// An aligned table: a header and rows.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    #[must_use]
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; missing cells stay empty. Cells are made [`plain`].
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell).into_owned()).collect());
    }

    /// There is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width());
            cells.chain([self.columns[at].0.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut line = |cell: &dyn Fn(usize) -> String| {
            let mut text = String::new();
            for (at, (_, align)) in self.columns.iter().enumerate() {
                let cell = cell(at);
                let pad = " ".repeat(widths[at].saturating_sub(cell.width()));
                match align {
                    Align::Left => text.push_str(&format!("{cell}{pad}  ")),
                    Align::Right => text.push_str(&format!("{pad}{cell}  ")),
                }
            }
            writeln!(f, "{}", text.trim_end())
        };
        line(&|at| self.columns[at].0.to_owned())?;
        for row in &self.rows {
            line(&|at| row.get(at).cloned().unwrap_or_default())?;
        }
        Ok(())
    }
}

/// One line of text as a terminal may be shown it: each control character is a `?`, and so is each that reorders the
/// text around it. A process chooses its comm, a recording everything; neither may drive the terminal of who reads it.
#[must_use]
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.contains(drives_terminal) { text.replace(drives_terminal, "?").into() } else { text.into() }
}

/// C0, DEL, C1, line and paragraph separators, and the controls of writing direction.
fn drives_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

/// Appends a line, made [`plain`].
pub(crate) fn line(out: &mut String, text: &str) {
    out.push_str(&plain(text));
    out.push('\n');
}

/// A value that may be unknown, as text; `–` when it is.
#[must_use]
pub fn or_dash<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_hours_and_days() {
        let of = [38, 3_599, 7_511, 86_399, 86_437_398].map(age);
        assert_eq!(of, ["0:38", "59:59", "2:05:11", "23:59:59", "1000d 10h"]);
        assert_eq!((counted(1, "reader"), counted(0, "reader")), ("1 reader".to_owned(), "0 readers".to_owned()));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let mut table = Table::new(&[("DEVICE", Align::Left), ("QPS", Align::Right), ("NOTE", Align::Left)]);
        table.row(vec!["mlx5_0".into(), "–".into(), String::new()]);
        table.row(vec!["ibp152s0f0".into(), "12".into(), "x".into()]);
        assert_eq!(table.to_string(), "DEVICE      QPS  NOTE\nmlx5_0        –\nibp152s0f0   12  x\n");
    }

    #[test]
    fn no_cell_drives_the_terminal_and_wide_characters_take_two_columns() {
        let mut table = Table::new(&[("COMM", Align::Left), ("N", Align::Right)]);
        table.row(vec!["\u{1b}[2J\u{7f}\u{9b}a\nb\u{202e}".into(), "1".into()]);
        table.row(vec!["計算計算計算".into(), "2".into()]);
        assert_eq!(table.to_string(), "COMM          N\n?[2J??a?b?    1\n計算計算計算  2\n");
        assert!(matches!(plain("é – 計算"), Cow::Borrowed("é – 計算")));
    }
}
