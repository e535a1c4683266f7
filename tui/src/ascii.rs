//! `--ascii`: one pass over the finished screen that leaves nothing but ASCII, so that no pane has to know about it.

use ratatui::buffer::Buffer;

/// Replaces every symbol that is not ASCII by one that says the same.
pub(crate) fn flatten(buf: &mut Buffer) {
    for at in 0..buf.content.len() {
        let symbol = buf.content[at].symbol();
        if symbol.is_ascii() {
            continue;
        }
        let bound = matches!(symbol, "≤" | "≥");
        let replaced = replacement(symbol);
        buf.content[at].set_symbol(replaced);
        // Where there is room behind it a bound is written in full: < alone excludes what it bounds.
        if let Some(next) = buf.content.get_mut(at + 1).filter(|next| bound && next.symbol() == " ") {
            next.set_symbol("=");
        }
    }
}

fn replacement(symbol: &str) -> &'static str {
    match symbol {
        "▁" => "_",
        "▂" | "░" => ",",
        "·" => ".",
        "…" => "~",
        "▃" => ":",
        "▄" | "─" | "–" => "-",
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

    #[test]
    fn what_was_cut_does_not_look_unknown_and_a_bound_is_one() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 30, 1));
        buf.set_string(0, 0, "12:01:10.34… ≤ +231 ms ≤0.002", Style::new());
        flatten(&mut buf);
        let text: String = buf.content.iter().map(ratatui::buffer::Cell::symbol).collect();
        assert_eq!(text.trim_end(), "12:01:10.34~ <=+231 ms <0.002");
    }
}
