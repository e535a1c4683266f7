//! Lanes: bars and marks on one time axis, the newest at the right edge.

use collector::observation::Nanos;
use collector::timeline::Ring;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Cells filled from below, in eighths.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Cells filled from the left, in eighths.
const LEFT_EIGHTHS: [&str; 9] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];

/// Spans of time a chart can show, windows.
pub(crate) const SPANS: [usize; 10] = [60, 120, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400];

/// A stretch of time on a row of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Axis {
    /// The time at the right edge.
    pub(crate) now: Nanos,
    /// Windows shown.
    pub(crate) windows: usize,
    /// Length of a window, ns.
    pub(crate) window_ns: u64,
    /// Cells.
    pub(crate) width: u16,
}

impl Axis {
    /// An axis of about `windows` windows: a cell is a whole number of windows, or a window a number of cells.
    pub(crate) fn new(now: Nanos, windows: usize, window_ns: u64, width: u16) -> Self {
        let cells = usize::from(width.max(1));
        let windows = if windows > cells { windows.div_ceil(cells) * cells } else { windows.max(1) };
        Self { now, windows, window_ns, width }
    }

    /// The time shown, ns.
    pub(crate) fn span_ns(&self) -> u64 {
        self.window_ns.saturating_mul(self.windows as u64)
    }

    /// The first time shown.
    pub(crate) fn from(&self) -> Nanos {
        self.now.saturating_sub(self.span_ns())
    }

    /// The cell of a time; `None` before the axis begins.
    pub(crate) fn cell(&self, t: Nanos) -> Option<u16> {
        let age = self.now.saturating_sub(t);
        let span = self.span_ns().max(1);
        if age >= span || self.width == 0 {
            return None;
        }
        let back = u128::from(age) * u128::from(self.width) / u128::from(span);
        u16::try_from(back).ok().map(|back| self.width - 1 - back.min(self.width - 1))
    }

    /// The time of the right edge of a cell.
    pub(crate) fn time(&self, cell: u16) -> Nanos {
        let back = u128::from(self.width.saturating_sub(1).saturating_sub(cell)) * u128::from(self.span_ns())
            / u128::from(self.width.max(1));
        self.now.saturating_sub(u64::try_from(back).unwrap_or(u64::MAX))
    }

    /// A value a cell of a history.
    pub(crate) fn values(&self, ring: &Ring) -> Vec<Option<f64>> {
        let cells = usize::from(self.width);
        if self.windows >= cells {
            return ring.resampled(self.windows, cells);
        }
        let values = ring.resampled(self.windows, self.windows);
        (0..cells).map(|cell| values.get(cell * self.windows / cells).copied().flatten()).collect()
    }
}

/// Draws values as bars over the whole area, `top` being full height. Zero is a line at the foot, a value above it is
/// higher, an unknown one is a gap marked at the foot.
pub(crate) fn bars(buf: &mut Buffer, area: Rect, values: &[Option<f64>], top: f64, style: Style, quiet: Style) {
    let height = f64::from(area.height);
    for (x, value) in (area.x..area.right()).zip(values) {
        let Some(value) = value else {
            if area.height > 0 {
                buf.set_string(x, area.bottom() - 1, "·", quiet);
            }
            continue;
        };
        let eighths = filled(*value, top, height);
        let style = if *value > 0.0 { style } else { quiet };
        for y in 0..area.height {
            let filled = eighths.saturating_sub(usize::from(y) * 8).min(8);
            if filled > 0 {
                buf.set_string(x, area.bottom() - 1 - y, EIGHTHS[filled], style);
            }
        }
    }
}

/// A history in one line of text; `top` is full height.
pub(crate) fn sparkline(values: &[Option<f64>], top: f64) -> String {
    values
        .iter()
        .map(|value| match value {
            None => "·",
            Some(value) => EIGHTHS[filled(*value, top, 1.0)],
        })
        .collect()
}

/// A history in lines of text, the highest first; `top` is full height.
pub(crate) fn rows(values: &[Option<f64>], top: f64, height: usize) -> Vec<String> {
    let cell = |value: &Option<f64>, above: usize| match value {
        None if above == 0 => "·",
        None => " ",
        Some(value) => EIGHTHS[filled(*value, top, height as f64).saturating_sub(above * 8).min(8)],
    };
    (0..height).rev().map(|above| values.iter().map(|value| cell(value, above)).collect()).collect()
}

/// A horizontal bar of `width` cells.
pub(crate) fn bar(share: f64, width: usize) -> String {
    let eighths = eighths(share.clamp(0.0, 1.0) * width as f64).max(usize::from(share > 0.0));
    (0..width).map(|cell| LEFT_EIGHTHS[eighths.saturating_sub(cell * 8).min(8)]).collect()
}

/// The eighths of a history's cell that are filled, of `height` cells. Zero has a foot, for it is known; what is above it
/// is higher than the foot.
fn filled(value: f64, top: f64, height: f64) -> usize {
    if value <= 0.0 {
        return 1;
    }
    let share = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
    eighths(share * height).max(2)
}

fn eighths(cells: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of at most 2^16 cells")]
    let eighths = (cells * 8.0).round() as usize;
    eighths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_value_is_visible_and_an_unknown_one_is_not_zero() {
        assert_eq!(sparkline(&[Some(0.0), Some(1e-9), None, Some(1.0)], 1.0), "▁▂·█");
        assert_eq!(rows(&[Some(0.0), Some(1e-9), None, Some(1.0)], 1.0, 1), ["▁▂·█"]);
        let (area, style) = (Rect::new(0, 0, 4, 1), Style::new());
        let mut buf = Buffer::empty(area);
        bars(&mut buf, area, &[Some(0.0), Some(1e-9), None, Some(1.0)], 1.0, style, style);
        assert_eq!(buf.content.iter().map(ratatui::buffer::Cell::symbol).collect::<String>(), "▁▂·█");
        assert_eq!(bar(1e-9, 3), "▏  ");
        assert_eq!(bar(0.0, 3), "   ");
        assert_eq!(bar(0.5, 3), "█▌ ");
    }

    #[test]
    fn a_tall_history_fills_its_rows_from_below() {
        let values = [Some(0.0), Some(1.0), None, Some(2.0)];
        assert_eq!(rows(&values, 2.0, 2), ["   █", "▁█·█"]);
    }

    #[test]
    fn times_and_cells_agree() {
        let axis = Axis::new(100_000_000_000, 60, 1_000_000_000, 30);
        assert_eq!(axis.windows, 60);
        assert_eq!(axis.cell(axis.now), Some(29));
        assert_eq!(axis.cell(axis.now - 59_000_000_000), Some(0));
        assert_eq!(axis.cell(axis.now - 60_000_000_000), None);
        for cell in 0..30 {
            assert_eq!(axis.cell(axis.time(cell)), Some(cell));
        }
    }

    #[test]
    fn a_short_history_is_stretched_over_a_wide_axis() {
        let mut ring = Ring::default();
        ring.push(Some(1.0));
        ring.push(Some(2.0));
        let axis = Axis::new(2, 2, 1, 6);
        let expected: Vec<Option<f64>> = [1.0, 1.0, 1.0, 2.0, 2.0, 2.0].map(Some).to_vec();
        assert_eq!(axis.values(&ring), expected);
    }
}
