//! Marks against load: what tells marking that comes too early from congestion.

use collector::inventory::{PortRecord, Signal, Slice};
use collector::observation::Nanos;
use collector::timeline::counter_table::Meaning;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::{Scene, put};
use crate::number;

/// The newest points of the scatter are marked, ns.
const NEWEST_NS: Nanos = 5_000_000_000;
/// Cells of the scatter's scale.
const SCALE: u16 = 8;
/// How many points in one cell look like what.
const DENSITY: [&str; 3] = ["░", "▒", "█"];

/// A point of the scatter: when, the load as a share of the rate, marked packets a second.
type Point = (Nanos, f64, f64);

fn points(port: &PortRecord) -> Vec<Point> {
    let Some(rate) = port.rate_gbps.filter(|rate| *rate > 0.0) else { return Vec::new() };
    let point = |slice: &Slice| {
        let load = slice.rate(Signal::RxBytes)? * 8.0 / 1e9 / rate;
        Some((slice.to, load, slice.rate(Signal::Marked)?))
    };
    port.slices.iter().filter_map(point).collect()
}

/// Marks against load: every reading kept is a point, the newest stand out.
pub(super) fn draw_scatter(scene: Scene<'_>, area: Rect, buf: &mut Buffer, port: &PortRecord) {
    let (world, theme) = (&**scene.world, scene.theme);
    let points = points(port);
    if area.height < 4 {
        return;
    }
    let Some(first) = points.first() else {
        let why = if port.reading(Meaning::EcnMarkedRx).is_none() {
            "this port's marks are not counted"
        } else {
            "no readings yet"
        };
        put(buf, area, 0, &Line::styled(format!("  {why}"), theme.dim));
        return;
    };
    let plot = Rect { x: area.x + SCALE, width: area.width.saturating_sub(SCALE + 2), height: area.height - 2, ..area };
    let most = points.iter().map(|(_, _, marks)| *marks).fold(0.0, f64::max);
    put(buf, area, 0, &Line::styled(format!("{:>7}", number::per_second(Some(most))), theme.dim));
    put(buf, area, plot.height - 1, &Line::styled(format!("{:>7}", 0), theme.dim));
    if plot.height > 3 {
        put(buf, area, plot.height / 2, &Line::styled("  CE/s", theme.dim));
    }
    for y in 0..plot.height {
        buf.set_string(plot.x - 1, plot.y + y, "│", theme.rule);
    }
    let mut cells = vec![(0u32, false); usize::from(plot.width) * usize::from(plot.height)];
    let newest = world.now.saturating_sub(NEWEST_NS);
    for (t, load, marks) in &points {
        let x = place(*load, plot.width);
        let y = if most > 0.0 { place(marks / most, plot.height) } else { 0 };
        let at = usize::from(plot.height - 1 - y) * usize::from(plot.width) + usize::from(x);
        if let Some(cell) = cells.get_mut(at) {
            *cell = (cell.0 + 1, cell.1 || *t >= newest);
        }
    }
    let width = plot.width.max(1);
    for (at, (n, new)) in (0u32..).zip(cells) {
        let (x, y) = (at % u32::from(width), at / u32::from(width));
        let (Ok(x), Ok(y), true) = (u16::try_from(x), u16::try_from(y), n > 0) else { continue };
        let (symbol, style) = match (new, n) {
            (true, _) => ("●", theme.strong),
            (_, 1) => (DENSITY[0], theme.warning),
            (_, 2..=9) => (DENSITY[1], theme.warning),
            _ => (DENSITY[2], theme.warning),
        };
        buf.set_string(plot.x + x, plot.y + y, symbol, style);
    }
    let scale = format!("{:<wide$}100%", "0%", wide = usize::from(plot.width).saturating_sub(4));
    put(buf, Rect { x: plot.x, width: plot.width, ..area }, plot.height, &Line::styled(scale, theme.dim));
    let span = number::span(world.now.saturating_sub(first.0).max(1_000_000_000));
    let legends = [
        format!("  load received; {} readings of {span}, ● the last 5 s", points.len()),
        format!("  load received over {span}, ● last 5 s"),
        "  load received".to_owned(),
    ];
    let legend =
        legends.into_iter().find(|legend| legend.chars().count() < usize::from(area.width)).unwrap_or_default();
    put(buf, area, plot.height + 1, &Line::styled(legend, theme.dim));
}

/// The cell of a share.
fn place(share: f64, cells: u16) -> u16 {
    let last = f64::from(cells.saturating_sub(1));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a u16")]
    let cell = (share.clamp(0.0, 1.0) * last).round() as u16;
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_the_scatter_are_inside() {
        assert_eq!((place(0.0, 40), place(1.0, 40), place(1.4, 40), place(0.5, 41)), (0, 39, 39, 20));
    }
}
