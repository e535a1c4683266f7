//! Aligned text tables.

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

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
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
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
            cells.chain([self.columns[at].0.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut line = |cell: &dyn Fn(usize) -> String| {
            let mut text = String::new();
            for (at, (_, align)) in self.columns.iter().enumerate() {
                let cell = cell(at);
                let pad = " ".repeat(widths[at].saturating_sub(cell.chars().count()));
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

/// A value that may be unknown, as text; `–` when it is.
#[must_use]
pub fn or_dash<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let mut table = Table::new(&[("DEVICE", Align::Left), ("QPS", Align::Right), ("NOTE", Align::Left)]);
        table.row(vec!["mlx5_0".into(), "–".into(), String::new()]);
        table.row(vec!["ibp152s0f0".into(), "12".into(), "x".into()]);
        assert_eq!(table.to_string(), "DEVICE      QPS  NOTE\nmlx5_0        –\nibp152s0f0   12  x\n");
    }
}
