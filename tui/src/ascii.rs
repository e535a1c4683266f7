//! `--ascii`: one pass over the finished screen that leaves nothing but ASCII, so that no pane has to know about it.

use ratatui::buffer::Buffer;

/// Replaces every symbol that is not ASCII by one that says the same.
pub(crate) fn flatten(buf: &mut Buffer) {
    for cell in &mut buf.content {
        if !cell.symbol().is_ascii() {
            let symbol = replacement(cell.symbol());
            cell.set_symbol(symbol);
        }
    }
}

fn replacement(symbol: &str) -> &'static str {
    match symbol {
        "▁" => "_",
        "▂" | "░" | "·" => ".",
        "▃" => ":",
        "▄" | "─" | "–" | "…" => "-",
        "▅" => "=",
        "▆" | "└" | "┌" | "┐" | "┘" | "├" => "+",
        "▇" | "●" => "*",
        "◆" => "@",
        "▓" | "█" | "▉" | "▊" | "▋" | "▌" | "━" => "#",
        "▍" | "▎" | "▏" | "┆" | "│" => "|",
        "▒" => "%",
        "►" | "→" | "≥" => ">",
        "←" | "≤" | "◄" => "<",
        "▲" | "↑" => "^",
        "▼" | "↓" => "v",
        "×" => "x",
        "µ" => "u",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    #[test]
    fn nothing_but_ascii_is_left_and_unknown_is_still_not_zero() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 30, 1));
        buf.set_string(0, 0, "– µs ▇▇▁ 名 ● → ━", Style::new());
        flatten(&mut buf);
        let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        assert!(text.is_ascii(), "{text}");
        assert!(text.starts_with("- us **_ ? "), "{text}");
    }
}
