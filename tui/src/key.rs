//! The one table of keys: what they do, where, and what `?` says of them.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::pane::PaneId;

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Open a pane.
    Open(PaneId),
    /// The next tab.
    NextTab,
    /// The tab before.
    PreviousTab,
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// A screenful up.
    PageUp,
    /// A screenful down.
    PageDown,
    /// To the first row.
    Top,
    /// To the last row.
    Bottom,
    /// Columns or cursor to the left.
    Left,
    /// Columns or cursor to the right.
    Right,
    /// Back in time, in a replay.
    Back,
    /// On in time, in a replay.
    Forward,
    /// A minute back.
    MinuteBack,
    /// A minute on.
    MinuteForward,
    /// To the beginning of a replay.
    ToStart,
    /// To the end of a replay.
    ToEnd,
    /// Into the selected thing.
    Enter,
    /// Out again.
    Leave,
    /// The thing before, of the kind the pane shows.
    Previous,
    /// The next thing, of the kind the pane shows.
    Next,
    /// Type a filter.
    Filter,
    /// Sort by the next column.
    Sort,
    /// Sort the other way round.
    SortReverse,
    /// Choose columns.
    Columns,
    /// Put rows together by the next thing.
    Group,
    /// A longer span of time.
    Longer,
    /// A shorter span of time.
    Shorter,
    /// Ask the model what other marking would do.
    WhatIf,
    /// Pause or go on.
    Pause,
    /// Poll less often, replay slower.
    Slower,
    /// Poll more often, replay faster.
    Faster,
    /// Start or stop a recording.
    Record,
    /// Copy as text.
    Copy,
    /// The next theme.
    Theme,
    /// Explain the keys.
    Help,
    /// Stop, and give the terminal to the shell until `fg`.
    Suspend,
    /// End.
    Quit,
}

/// How time goes on the screen: some keys depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    /// It is now.
    Running,
    /// A moment is held while the producer goes on.
    Frozen,
    /// A recording is played.
    Replay,
}

impl Time {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 3] = [Self::Running, Self::Frozen, Self::Replay];
}

/// Where a key is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// Everywhere.
    Everywhere,
    /// In these panes.
    In(&'static [PaneId]),
    /// Only in a replay.
    Replay,
    /// Not in a replay.
    Live,
    /// While the screen is frozen.
    Frozen,
    /// In a replay, and while the screen is frozen.
    Held,
}

/// A line of the table.
pub(crate) struct Binding {
    /// The keys.
    pub(crate) keys: &'static [KeyCode],
    /// The keys as the help names them.
    pub(crate) shown: &'static str,
    /// What they ask for.
    pub(crate) action: Action,
    /// Where.
    pub(crate) at: Where,
    /// What the help says.
    pub(crate) help: &'static str,
    /// The word in the footer, for those that stand there.
    pub(crate) footer: Option<&'static str>,
}

const fn bind(
    keys: &'static [KeyCode],
    shown: &'static str,
    action: Action,
    at: Where,
    help: &'static str,
    footer: Option<&'static str>,
) -> Binding {
    Binding { keys, shown, action, at, help, footer }
}

use KeyCode::{BackTab, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up};
use PaneId::{Ecn, Failover, Findings, Overview, Own, Pcie, Port, Qp, Qps};
use Where::{Everywhere, In};

/// Panes that show one thing of several.
const ONES: Where = In(&[Port, Qp, Findings]);
/// Panes with columns out of sight, or a cursor.
const CHARTS: Where = In(&[Overview, Port, Qps, Qp, Findings, Ecn, Pcie, Failover]);
const LISTS: Where = In(&[Overview, Qps, Findings, Ecn, Pcie, Failover]);

/// The table. Of two lines with the same key the first one that holds in the pane counts.
pub(crate) const BINDINGS: &[Binding] = &[
    bind(&[Enter], "Enter", Action::Enter, LISTS, "open the selected row", Some("open")),
    bind(&[Esc, KeyCode::Backspace], "Esc", Action::Leave, Everywhere, "back to where you came from", None),
    bind(&[Down, Char('j')], "Down j", Action::Down, Everywhere, "down", None),
    bind(&[Up, Char('k')], "Up k", Action::Up, Everywhere, "up", None),
    bind(&[PageDown], "PgDn", Action::PageDown, Everywhere, "a screenful down", None),
    bind(&[PageUp], "PgUp", Action::PageUp, Everywhere, "a screenful up", None),
    bind(&[Char('g'), Home], "g Home", Action::Top, Everywhere, "to the first row", None),
    bind(&[Char('G'), End], "G End", Action::Bottom, Everywhere, "to the last row", None),
    bind(&[Right], "Right", Action::Forward, Where::Replay, "one window on; 10 s on while it runs", None),
    bind(&[Left], "Left", Action::Back, Where::Replay, "one window back; 10 s back while it runs", None),
    bind(&[Left], "Left", Action::Back, Where::Frozen, "to the moment before, of those that are kept", Some("back")),
    bind(&[Right], "Right", Action::Forward, Where::Frozen, "to the moment after it", Some("on")),
    bind(&[Char('{')], "{", Action::MinuteBack, Where::Held, "a minute back", None),
    bind(&[Char('}')], "}", Action::MinuteForward, Where::Held, "a minute on", None),
    bind(&[Char('E')], "E", Action::ToEnd, Where::Replay, "to the end, as fast as it goes; Esc stops", Some("end")),
    bind(&[Char('B')], "B", Action::ToStart, Where::Replay, "to the beginning", None),
    bind(&[Char('l'), Right], "Right l", Action::Right, CHARTS, "columns out of sight; in charts the cursor", None),
    bind(&[Char('h'), Left], "Left h", Action::Left, CHARTS, "the same to the left", None),
    bind(&[Char(']')], "]", Action::Next, ONES, "the next port, QP or finding", Some("next")),
    bind(&[Char('[')], "[", Action::Previous, ONES, "the port, QP or finding before", None),
    bind(&[Char('/')], "/", Action::Filter, In(&[Qps]), "filter: comm=nccl errors>0 state=ERR qpn=17", Some("filter")),
    bind(&[Char('/')], "/", Action::Filter, In(&[Port]), "only counters with these words", Some("filter")),
    bind(&[Char('s')], "s", Action::Sort, In(&[Port]), "counters as listed, or telling ones first", Some("order")),
    bind(&[Char('s')], "s", Action::Sort, In(&[Qps]), "sort by the next column", Some("sort")),
    bind(&[Char('S')], "S", Action::SortReverse, In(&[Qps]), "sort the other way round", None),
    bind(&[Char('b')], "b", Action::Group, In(&[Qps]), "group by process, peer, port, not at all", Some("group")),
    bind(&[Char('c')], "c", Action::Columns, In(&[Qps]), "choose the columns", Some("columns")),
    bind(&[Char('+'), Char('=')], "+", Action::Longer, In(&[Port, Qp]), "charts over a longer time", Some("longer")),
    bind(&[Char('-')], "-", Action::Shorter, In(&[Port, Qp]), "charts over a shorter time", Some("shorter")),
    bind(
        &[Char('w')],
        "w",
        Action::WhatIf,
        In(&[Ecn]),
        "what if the switch marked otherwise; again: next",
        Some("what-if"),
    ),
    bind(&[Char('y')], "y", Action::Copy, Everywhere, "copy as text", Some("copy")),
    bind(&[Char(' ')], "space", Action::Pause, Everywhere, "freeze; Left Right look back; again: go on", Some("pause")),
    bind(&[Char('<')], "<", Action::Slower, Everywhere, "poll half as often; replay half as fast", None),
    bind(&[Char('>')], ">", Action::Faster, Everywhere, "poll twice as often; replay twice as fast", None),
    bind(
        &[Char('r'), Char('R')],
        "r",
        Action::Record,
        Where::Live,
        "record to a file here; again: stop",
        Some("record"),
    ),
    bind(&[Char('t')], "t", Action::Theme, Everywhere, "next theme", None),
    bind(&[Tab], "Tab", Action::NextTab, Everywhere, "next pane", None),
    bind(&[BackTab], "Shift-Tab", Action::PreviousTab, Everywhere, "pane before", None),
    bind(&[Char('1')], "1", Action::Open(Overview), Everywhere, "Overview: all ports, newest findings", None),
    bind(&[Char('2')], "2", Action::Open(Port), Everywhere, "Port: charts and all counters", None),
    bind(&[Char('3')], "3", Action::Open(Qps), Everywhere, "QPs: the table", None),
    bind(&[Char('4')], "4", Action::Open(Qp), Everywhere, "QP: one QP's life", None),
    bind(&[Char('5')], "5", Action::Open(Findings), Everywhere, "Findings: what, why, how sure, what to do", None),
    bind(&[Char('6')], "6", Action::Open(Ecn), Everywhere, "ECN: marks, CNPs, pause, parameters", None),
    bind(&[Char('7')], "7", Action::Open(Pcie), Everywhere, "PCIe: tree, links, errors, load", None),
    bind(&[Char('8')], "8", Action::Open(Failover), Everywhere, "Failover: the stopwatch of each incident", None),
    bind(&[Char('9')], "9", Action::Open(Own), Everywhere, "Self: sources, probes, drops, own cost", None),
    bind(&[Char('?'), KeyCode::F(1)], "?", Action::Help, Everywhere, "this help", Some("help")),
    bind(&[Char('q')], "q", Action::Quit, Everywhere, "quit (Ctrl-C too; Ctrl-Z: to the shell)", Some("quit")),
];

impl Binding {
    /// The line holds in this pane, as time goes.
    pub(crate) fn holds(&self, pane: PaneId, time: Time) -> bool {
        match self.at {
            Where::Everywhere => true,
            Where::In(panes) => panes.contains(&pane),
            Where::Replay => time == Time::Replay,
            Where::Live => time != Time::Replay,
            Where::Frozen => time == Time::Frozen,
            Where::Held => time != Time::Running,
        }
    }

    /// Its keys as the help names them: without the arrows where those lead through time.
    pub(crate) fn named(&self, time: Time) -> &'static str {
        match self.action {
            Action::Left | Action::Right if time != Time::Running => {
                self.shown.trim_start_matches("Left ").trim_start_matches("Right ")
            }
            _ => self.shown,
        }
    }
}

/// What a key asks for in a pane.
pub(crate) fn action(key: KeyEvent, pane: PaneId, time: Time) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            Char('c') => Some(Action::Quit),
            Char('z') => Some(Action::Suspend),
            Char('d' | 'f') => Some(Action::PageDown),
            Char('u' | 'b') => Some(Action::PageUp),
            _ => None,
        };
    }
    BINDINGS
        .iter()
        .find(|binding| binding.keys.contains(&key.code) && binding.holds(pane, time))
        .map(|binding| binding.action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_in_the_same_place() {
        for pane in PaneId::ALL {
            for time in Time::ALL {
                let mut seen = Vec::new();
                for binding in BINDINGS.iter().filter(|binding| binding.holds(pane, time)) {
                    for key in binding.keys {
                        // The arrows lead through time where that stands, and move columns otherwise: the first line counts.
                        if !(time != Time::Running && matches!(key, Left | Right)) {
                            assert!(!seen.contains(key), "{key:?} in {pane:?}");
                        }
                        seen.push(*key);
                    }
                }
            }
        }
    }

    /// The key that the help calls so.
    fn called(name: &str) -> KeyEvent {
        let code = match name {
            "Enter" => Enter,
            "Esc" => Esc,
            "Down" => Down,
            "Up" => Up,
            "Left" => Left,
            "Right" => Right,
            "PgDn" => PageDown,
            "PgUp" => PageUp,
            "Home" => Home,
            "End" => End,
            "Tab" => Tab,
            "Shift-Tab" => BackTab,
            "space" => Char(' '),
            name => {
                let mut letters = name.chars();
                let (Some(letter), None) = (letters.next(), letters.next()) else { panic!("no key is called {name}") };
                Char(letter)
            }
        };
        KeyEvent::from(code)
    }

    #[test]
    fn every_key_that_the_help_names_does_what_it_says_and_can_be_written_with_ascii() {
        for pane in PaneId::ALL {
            for time in Time::ALL {
                for binding in BINDINGS.iter().filter(|binding| binding.holds(pane, time)) {
                    let named = binding.named(time);
                    assert!(named.is_ascii() && binding.help.is_ascii(), "{named}: {}", binding.help);
                    for name in named.split_whitespace() {
                        assert_eq!(
                            action(called(name), pane, time),
                            Some(binding.action),
                            "{name} in {pane:?}, {time:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn arrows_lead_through_time_in_a_replay_and_a_frozen_screen_and_move_columns_otherwise() {
        let right = KeyEvent::from(Right);
        assert_eq!(action(right, PaneId::Qps, Time::Replay), Some(Action::Forward));
        assert_eq!(action(right, PaneId::Qps, Time::Frozen), Some(Action::Forward));
        assert_eq!(action(right, PaneId::Qps, Time::Running), Some(Action::Right));
        assert_eq!(action(KeyEvent::from(Char('l')), PaneId::Qps, Time::Frozen), Some(Action::Right));
    }

    #[test]
    fn control_c_quits_everywhere() {
        let key = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(key, PaneId::Overview, Time::Running), Some(Action::Quit));
    }
}
