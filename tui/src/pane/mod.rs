//! The panes: one file each. A pane reads a [`Scene`], draws itself and answers keys; it knows no other pane, but may
//! ask to open something ([`Reaction::Open`]).

mod about;
mod beginning;
mod digest;
pub(crate) mod ecn;
mod evidence_source;
pub(crate) mod failover;
mod finding_charts;
mod finding_row;
pub(crate) mod findings;
mod history;
mod judged;
mod looked;
pub(crate) mod overview;
pub(crate) mod own;
pub(crate) mod pcie;
pub(crate) mod port;
mod port_row;
pub(crate) mod qp;
pub(crate) mod qps;
mod watched;

use std::sync::Arc;

use collector::feed::Status;
use collector::finding::SubjectKey;
use collector::inventory::{Coverage, PortKey, QpRef, World};
use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

#[cfg(test)]
pub(crate) use history::misnamed;

use crate::key::Action;
use crate::theme::Theme;

/// Rows of a pane of one port or QP that has none to spare.
const LOW: u16 = 16;

/// The panes, by the number of their tab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PaneId {
    /// All ports, newest findings.
    #[default]
    Overview,
    /// One port.
    Port,
    /// All QPs.
    Qps,
    /// One QP.
    Qp,
    /// Findings.
    Findings,
    /// Marks, CNPs and congestion control.
    Ecn,
    /// The PCIe tree.
    Pcie,
    /// Failovers.
    Failover,
    /// The program itself.
    Own,
}

impl PaneId {
    /// Every pane, in the order of the tabs.
    pub const ALL: [Self; 9] = [
        Self::Overview,
        Self::Port,
        Self::Qps,
        Self::Qp,
        Self::Findings,
        Self::Ecn,
        Self::Pcie,
        Self::Failover,
        Self::Own,
    ];

    /// The number of its tab.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Overview => 1,
            Self::Port => 2,
            Self::Qps => 3,
            Self::Qp => 4,
            Self::Findings => 5,
            Self::Ecn => 6,
            Self::Pcie => 7,
            Self::Failover => 8,
            Self::Own => 9,
        }
    }

    /// The name on its tab.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Port => "Port",
            Self::Qps => "QPs",
            Self::Qp => "QP",
            Self::Findings => "Findings",
            Self::Ecn => "ECN",
            Self::Pcie => "PCIe",
            Self::Failover => "Failover",
            Self::Own => "Self",
        }
    }

    /// A shorter name, for narrow screens.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Overview => "Over",
            Self::Findings => "Find",
            Self::Failover => "Fail",
            pane => pane.title(),
        }
    }

    /// The pane of a name (`overview`, `qps`) or of a number.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pane| pane.title().eq_ignore_ascii_case(word) || pane.number().to_string() == word)
    }
}

/// What a pane sees.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    /// The world shown.
    pub(crate) world: &'a Arc<World>,
    /// The producer's state.
    pub(crate) status: &'a Status,
    /// How much of what goes on is seen.
    pub(crate) coverage: &'a Coverage,
    /// Changes when the world does.
    pub(crate) generation: u64,
    /// How things look.
    pub(crate) theme: &'a Theme,
}

/// What can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A port.
    Port(PortKey),
    /// A QP.
    Qp(QpRef),
    /// A finding.
    Finding(&'static str, SubjectKey),
}

/// What a pane answers to a key or a click.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// Not for this pane.
    Ignored,
    /// Done.
    Done,
    /// Open this.
    Open(Target),
    /// Copy this text; the second says what it is.
    Copy(String, &'static str),
}

/// A pane.
pub(crate) trait Pane {
    /// Draws itself.
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer);

    /// Answers a key of the table.
    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction;

    /// Answers a click into row `row` and column `column` of its area; `again` when the row was selected already.
    fn click(&mut self, _column: u16, _row: u16, _scene: Scene<'_>) -> Reaction {
        Reaction::Ignored
    }

    /// What pane `pane` should show when it is opened from here: the selected port, the selected QP.
    fn points_at(&self, _pane: PaneId, _scene: Scene<'_>) -> Option<Target> {
        None
    }

    /// There is something that Enter opens.
    fn opens(&self) -> bool {
        true
    }

    /// What the footer should say of it: columns that are out of sight.
    fn note(&self) -> Option<String> {
        None
    }

    /// Something of its own came that is not on the screen yet.
    fn news(&self) -> bool {
        false
    }

    /// Something of its own is on the way.
    fn waits(&self) -> bool {
        false
    }

    /// Text is being typed: every key goes to [`Pane::type_key`].
    fn typing(&self) -> bool {
        false
    }

    /// Takes a key while text is being typed.
    fn type_key(&mut self, _key: KeyEvent) {}
}

/// Draws a line into row `row` of an area, if it has one. What does not fit is said to go on: a cut number is another number.
pub(crate) fn put(buf: &mut Buffer, area: Rect, row: u16, line: &Line<'_>) {
    if row >= area.height || area.width == 0 {
        return;
    }
    buf.set_line(area.x, area.y + row, line, area.width);
    let width = usize::from(area.width);
    if line.width() > width && Line::raw(line.to_string().trim_end()).width() > width {
        buf[(area.right() - 1, area.y + row)].set_symbol("…");
    }
}

/// Marks the last row of a text of which more lies below.
pub(crate) fn more_below(buf: &mut Buffer, area: Rect, left: bool, keys: &str, theme: &Theme) {
    if left && area.height > 0 {
        let more = Line::styled(format!(" ↓ more{keys} "), theme.info);
        let wide = u16::try_from(more.width()).unwrap_or(0).min(area.width);
        buf.set_line(area.right() - wide, area.bottom() - 1, &more, wide);
    }
}

/// Lines as plain text, for the clipboard.
pub(crate) fn as_text(lines: &[Line<'_>]) -> String {
    lines.iter().map(|line| line.to_string().trim_end().to_owned() + "\n").collect()
}

/// Row `row` of an area as an area; empty when there is none.
pub(crate) fn row(area: Rect, row: u16) -> Rect {
    Rect { y: area.y + row.min(area.height), height: u16::from(row < area.height), ..area }
}

/// What is left of an area below its first `rows` rows.
pub(crate) fn below(area: Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    Rect { y: area.y + rows, height: area.height - rows, ..area }
}

/// A section heading over the whole width: `─ findings ─────`.
pub(crate) fn heading(buf: &mut Buffer, area: Rect, at: u16, title: &str, theme: &Theme) {
    let used = title.chars().count() + 4;
    let rest = "─".repeat(usize::from(area.width).saturating_sub(used));
    let line = Line::from(vec![
        Span::styled("── ", theme.rule),
        Span::styled(title.to_owned(), theme.strong),
        Span::styled(format!(" {rest}"), theme.rule),
    ]);
    put(buf, area, at, &line);
}

/// Breaks a text into lines of at most `width` columns, at spaces where there are any.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let mut word = word;
        let mut wide = Span::raw(word).width();
        if used > 0 && used + 1 + wide > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        while wide > width && width > 0 {
            // A word longer than a line is cut; nothing of it is lost.
            let cut = word.char_indices().nth(width).map_or(word.len(), |(at, _)| at);
            lines.push(word[..cut].to_owned());
            word = &word[cut..];
            wide = Span::raw(word).width();
            if word.is_empty() {
                break;
            }
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += wide;
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Breaks a command into lines of at most `width` columns, at spaces that are in no quotes. A line that goes on ends as the
/// shell has it, so that it can be pasted; a comment, which does not go on, is broken into several.
pub(crate) fn wrap_command(command: &str, width: usize) -> Vec<String> {
    if Span::raw(command).width() <= width {
        return vec![command.to_owned()];
    }
    let (command, comment) = without_comment(command);
    let mut lines = wrap_words(command, width);
    let Some(comment) = comment else { return lines };
    match lines.last_mut() {
        Some(line) if Span::raw(&*line).width() + 2 + Span::raw(comment).width() <= width => {
            line.push_str("  ");
            line.push_str(comment);
        }
        _ => {
            let words = wrap(comment.trim_start_matches('#'), width.saturating_sub(6).max(1));
            lines.extend(words.into_iter().map(|words| format!("    # {words}")));
        }
    }
    lines
}

/// A command, and the comment behind it: from a `#` that begins a word and is in no quotes.
fn without_comment(command: &str) -> (&str, Option<&str>) {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in command.char_indices() {
        match (quote, c) {
            (None, '#') if before == ' ' => return (command[..at].trim_end(), Some(&command[at..])),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        before = c;
    }
    (command, None)
}

/// Breaks what is no comment.
fn wrap_words(command: &str, width: usize) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (None, ' ') => {
                words.push(String::new());
                continue;
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
        if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if Span::raw(&*line).width() + Span::raw(&*word).width() + 3 <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(line) => {
                line.push_str(" \\");
                let room = Span::raw(&*word).width() + 6 <= width;
                lines.push(if room { format!("    {word}") } else { word });
            }
            None => lines.push(word),
        }
    }
    // A word that is longer than a line is cut where the line ends.
    let mut fitting = Vec::new();
    for line in lines {
        let chars: Vec<char> = line.chars().collect();
        fitting.extend(chars.chunks(width.max(1)).map(String::from_iter));
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_goes_on_is_one_for_the_shell() {
        let command = "$ ethtool -S eth5 | grep -E 'symbol_err|corrected bits|err lane' | tail -n 40";
        for width in [40, 50, 60] {
            let lines = wrap_command(command, width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
            let parts: Vec<&str> = lines.iter().map(|line| line.trim_end_matches(" \\").trim_start()).collect();
            assert_eq!(parts.join(" "), command, "{width}: {lines:?}");
            let (last, others) = lines.split_last().unwrap();
            assert!(others.iter().all(|line| line.ends_with(" \\")) && !last.ends_with('\\'), "{width}: {lines:?}");
            assert!(lines.iter().all(|line| line.matches('\'').count() % 2 == 0), "{width}: {lines:?}");
        }
        assert_eq!(wrap_command(command, 200), [command]);
    }

    #[test]
    fn a_comment_behind_a_command_does_not_go_on() {
        let command = "grep . /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_{data,packets}      # twice: words \
                       of 4 bytes a packet";
        assert_eq!(wrap_command(command, 200), [command]);
        assert_eq!(
            wrap_command(&format!("$ {command}"), 70),
            [
                "$ grep . \\",
                "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_{data,packets}",
                "    # twice: words of 4 bytes a packet",
            ]
        );
        for width in [30, 50, 80] {
            let lines = wrap_command("jq '.a # no comment' file | grep a#b      # a comment", width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
            let goes_on = |line: &String| line.ends_with('\\') && without_comment(line).1.is_some();
            assert!(!lines.iter().any(goes_on), "{width}: {lines:?}");
            assert!(lines.last().unwrap().ends_with("# a comment"), "{width}: {lines:?}");
        }
    }

    #[test]
    fn wrapped_lines_fit_and_lose_nothing() {
        let text = "port left ACTIVE 14:02:49.118; averyveryverylongwordthatisnoword and 64 QPs";
        for width in 1..40 {
            let lines = wrap(text, width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
            let joined: String = lines.concat().split_whitespace().collect();
            assert_eq!(joined, text.split_whitespace().collect::<String>(), "{width}");
        }
    }

    #[test]
    fn panes_are_found_by_name_and_number() {
        assert_eq!(PaneId::from_name("qps"), Some(PaneId::Qps));
        assert_eq!(PaneId::from_name("9"), Some(PaneId::Own));
        assert_eq!(PaneId::from_name("pcie"), Some(PaneId::Pcie));
        assert_eq!(PaneId::from_name("0"), None);
    }
}
