//! 3 QPs: all of them, sorted and filtered. Rows are found once per world, sort and filter; only those in sight are
//! drawn.

use std::collections::HashMap;

use collector::inventory::{QpRecord, QpRef, World};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Pane, PaneId, Reaction, Scene, Target, below, put, row};
use crate::filter::{Field, Filter, Value};
use crate::key::Action;
use crate::number::{self, UNKNOWN};
use crate::selection::Selection;
use crate::table::{self, Column};
use collector::observation::QpState;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Device,
    Port,
    Qpn,
    Type,
    State,
    Pid,
    Comm,
    Rate,
    Posts,
    Bytes,
    Errors,
    PeerQpn,
    PeerGid,
    Age,
    Container,
}

/// The columns in the order of the table; when the width is short they go from the lowest number of the second field.
const COLUMNS: [(Of, Column); 15] = [
    (Of::Device, table::text("DEVICE", 10, 255)),
    (Of::Port, table::number("P", 2, 30)),
    (Of::Qpn, table::number("QPN", 8, 250)),
    (Of::Type, table::text("TYPE", 5, 50)),
    (Of::State, table::text("STATE", 5, 240)),
    (Of::Pid, table::number("PID", 8, 80)),
    (Of::Comm, table::text("COMM", 15, 200).growing()),
    (Of::Rate, table::number("TX b/s", 7, 220)),
    (Of::Posts, table::number("POSTS", 7, 40)),
    (Of::Bytes, table::number("BYTES", 8, 60)),
    (Of::Errors, table::number("ERR", 6, 210)),
    (Of::PeerQpn, table::number("PEER QPN", 9, 70)),
    (Of::PeerGid, table::text("PEER GID", 20, 20).growing()),
    (Of::Age, table::number("AGE", 8, 90)),
    (Of::Container, table::text("CONTAINER", 12, 10)),
];

/// What a filter can name.
const FIELDS: [Field<Of>; 15] = [
    Field { names: &["device", "dev"], numeric: false, id: Of::Device },
    Field { names: &["port"], numeric: true, id: Of::Port },
    Field { names: &["qpn", "qp"], numeric: true, id: Of::Qpn },
    Field { names: &["type"], numeric: false, id: Of::Type },
    Field { names: &["state"], numeric: false, id: Of::State },
    Field { names: &["pid"], numeric: true, id: Of::Pid },
    Field { names: &["comm"], numeric: false, id: Of::Comm },
    Field { names: &["rate"], numeric: true, id: Of::Rate },
    Field { names: &["posts"], numeric: true, id: Of::Posts },
    Field { names: &["bytes"], numeric: true, id: Of::Bytes },
    Field { names: &["errors", "err"], numeric: true, id: Of::Errors },
    Field { names: &["peer_qpn"], numeric: true, id: Of::PeerQpn },
    Field { names: &["peer", "gid"], numeric: false, id: Of::PeerGid },
    Field { names: &["age"], numeric: true, id: Of::Age },
    Field { names: &["container"], numeric: false, id: Of::Container },
];

/// Fields a bare word is looked for in.
const TEXTS: [Of; 6] = [Of::Device, Of::Type, Of::State, Of::Comm, Of::PeerGid, Of::Container];

/// A key that is sorted last whichever way round: the value is not known.
const LAST: u64 = u64::MAX;

/// The pane.
pub(crate) struct Qps {
    rows: Vec<QpRef>,
    /// What the rows were found for: generation, column, direction, filter.
    found_for: Option<(u64, usize, bool, String)>,
    sort: usize,
    ascending: bool,
    filter: Filter<Of>,
    filter_text: String,
    /// The filter being typed.
    typed: Option<String>,
    error: Option<String>,
    selection: Selection,
    /// The selected QP stays selected when rows move.
    selected: Option<QpRef>,
    skip: usize,
}

impl Default for Qps {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            found_for: None,
            sort: COLUMNS.iter().position(|(of, _)| *of == Of::Rate).unwrap_or(0),
            ascending: false,
            filter: Filter::default(),
            filter_text: String::new(),
            typed: None,
            error: None,
            selection: Selection::default(),
            selected: None,
            skip: 0,
        }
    }
}

impl Qps {
    fn find(&mut self, scene: Scene<'_>) {
        let wanted = (scene.generation, self.sort, self.ascending, self.filter_text.clone());
        if self.found_for.as_ref() == Some(&wanted) {
            return;
        }
        self.rows = rows(scene.world, COLUMNS[self.sort].0, self.ascending, &self.filter);
        if let Some(at) = self.selected.and_then(|id| self.rows.iter().position(|row| *row == id)) {
            self.selection.row = at;
        }
        self.found_for = Some(wanted);
    }

    fn open(&self) -> Reaction {
        self.rows.get(self.selection.row).map_or(Reaction::Done, |id| Reaction::Open(Target::Qp(*id)))
    }

    fn remember(&mut self) {
        self.selected = self.rows.get(self.selection.row).copied();
    }

    fn status_line(&self, scene: Scene<'_>) -> Line<'static> {
        let theme = scene.theme;
        if let Some(typed) = &self.typed {
            let mut spans = vec![Span::styled(" / ", theme.strong), Span::raw(format!("{typed}▏"))];
            match &self.error {
                Some(error) => spans.push(Span::styled(format!("  {error}"), theme.warning)),
                None => spans.push(Span::styled("  Enter keeps, Esc clears", theme.dim)),
            }
            return Line::from(spans);
        }
        let total = scene.world.qps.len();
        let (sort, direction) = (COLUMNS[self.sort].1.title, if self.ascending { "▲" } else { "▼" });
        let mut spans = vec![Span::styled(
            if self.filter.is_empty() {
                format!(" {} QPs", number::grouped(total as u64))
            } else {
                format!(" {} of {} QPs", number::grouped(self.rows.len() as u64), number::grouped(total as u64))
            },
            theme.strong,
        )];
        if !self.filter_text.is_empty() {
            spans.push(Span::styled(format!("   / {}", self.filter_text), theme.info));
        }
        spans.push(Span::styled(format!("   by {sort} {direction}"), theme.dim));
        Line::from(spans)
    }
}

impl Pane for Qps {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        self.find(scene);
        put(buf, area, 0, &self.status_line(scene));
        let columns: Vec<Column> = COLUMNS.iter().map(|(_, column)| *column).collect();
        let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
        let placed = table::fit(&columns, inner.width, self.skip);
        let mark = if self.ascending { "▲" } else { "▼" };
        table::draw_titles(buf, row(inner, 1), &columns, &placed, scene.theme.title, Some((self.sort, mark)));
        let list = below(area, 2);
        self.selection.fit(self.rows.len(), usize::from(list.height));
        if self.rows.is_empty() {
            let why = if scene.world.qps.is_empty() {
                "no QP is seen (9 says which sources look for them)"
            } else {
                "no QP matches the filter"
            };
            put(buf, list, 0, &Line::styled(format!(" {why}"), scene.theme.dim));
        }
        let shown = self.rows.iter().enumerate().skip(self.selection.top).take(self.selection.height);
        for (line, (index, id)) in (0u16..).zip(shown) {
            let Some(qp) = scene.world.qps.get(*id) else { continue };
            if index == self.selection.row {
                buf.set_style(row(list, line), scene.theme.selected);
                put(buf, list, line, &Line::raw("►"));
            }
            let cells: Vec<Line<'_>> = COLUMNS.iter().map(|(of, _)| cell(scene, qp, *of)).collect();
            table::draw_row(buf, row(below(inner, 2), line), &columns, &placed, &cells);
        }
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        self.find(scene);
        match action {
            Action::Enter => return self.open(),
            Action::Filter => {
                self.typed = Some(self.filter_text.clone());
                self.error = None;
            }
            Action::Sort => self.sort = (self.sort + 1) % COLUMNS.len(),
            Action::SortReverse => self.ascending = !self.ascending,
            Action::Left => self.skip = self.skip.saturating_sub(1),
            Action::Right => self.skip = (self.skip + 1).min(COLUMNS.len() - 2),
            Action::Leave if !self.filter_text.is_empty() => {
                self.filter_text.clear();
                self.filter = Filter::default();
            }
            _ if self.selection.act(action, self.rows.len()) => self.remember(),
            _ => return Reaction::Ignored,
        }
        Reaction::Done
    }

    fn click(&mut self, _column: u16, at: u16, _scene: Scene<'_>) -> Reaction {
        let Some(line) = at.checked_sub(2) else { return Reaction::Ignored };
        let index = self.selection.top + usize::from(line);
        if index >= self.rows.len() {
            return Reaction::Ignored;
        }
        let again = index == self.selection.row;
        self.selection.row = index;
        self.remember();
        if again { self.open() } else { Reaction::Done }
    }

    fn points_at(&self, pane: PaneId, scene: Scene<'_>) -> Option<Target> {
        let qp = scene.world.qps.get(*self.rows.get(self.selection.row)?)?;
        match pane {
            PaneId::Qp => Some(Target::Qp(qp.id)),
            PaneId::Port => super::qp::port_of(scene.world, qp).map(|port| Target::Port(port.key)),
            _ => None,
        }
    }

    fn typing(&self) -> bool {
        self.typed.is_some()
    }

    fn type_key(&mut self, key: KeyEvent) {
        let Some(typed) = &mut self.typed else { return };
        match key.code {
            KeyCode::Esc => {
                self.typed = None;
                self.filter_text.clear();
                self.filter = Filter::default();
                return;
            }
            KeyCode::Enter => {
                // A filter with a mistake is not kept: the line stays open with the reason.
                if self.error.is_none() {
                    self.typed = None;
                }
                return;
            }
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => typed.clear(),
            KeyCode::Char(c) if !key.modifiers.contains(KeyModifiers::CONTROL) => typed.push(c),
            _ => return,
        }
        match Filter::parse(typed, &FIELDS) {
            Ok(filter) => {
                self.filter = filter;
                self.filter_text.clone_from(typed);
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }
}

fn value<'w>(world: &'w World, qp: &'w QpRecord, of: Of) -> Value<'w> {
    let text = |text: Option<&'w str>| text.map_or(Value::Unknown, Value::Text);
    let number = |n: Option<f64>| n.map_or(Value::Unknown, Value::Number);
    match of {
        Of::Device => Value::Text(&world.device(qp.device).name),
        Of::Port => number(qp.port.map(f64::from)),
        Of::Qpn => Value::Number(f64::from(qp.qpn)),
        Of::Type => text(qp.qp_type.as_deref()),
        Of::State if qp.state == QpState::Unknown => Value::Unknown,
        Of::State => Value::Text(qp.state.name()),
        Of::Pid => number(qp.pid.map(f64::from)),
        Of::Comm => text(qp.comm.as_deref()),
        Of::Rate => number(world.qps.rate_now(qp, world.now).map(|bytes| bytes * 8.0)),
        Of::Posts => number(qp.stats_t.map(|_| qp.posts as f64)),
        Of::Bytes => number(qp.stats_t.map(|_| qp.bytes as f64)),
        Of::Errors => number(qp.errors.map(|n| n as f64)),
        Of::PeerQpn => number(qp.remote_qpn.map(f64::from)),
        Of::PeerGid => text(qp.remote_gid.as_deref()),
        Of::Age => Value::Number(world.now.saturating_sub(qp.since) as f64 / 1e9),
        Of::Container => text(qp.container.as_deref()),
    }
}

/// The QPs that pass the filter, sorted. Keys are numbers (texts are replaced by their rank), so that a quarter of a
/// million rows are sorted in milliseconds.
fn rows(world: &World, by: Of, ascending: bool, filter: &Filter<Of>) -> Vec<QpRef> {
    let passing = world.qps.iter().filter(|qp| filter.is_empty() || filter.matches(&TEXTS, |of| value(world, qp, of)));
    let mut keyed: Vec<(u64, u32, QpRef)> = Vec::with_capacity(if filter.is_empty() { world.qps.len() } else { 0 });
    let mut texts: HashMap<&str, u64> = HashMap::new();
    for qp in passing {
        let key = match value(world, qp, by) {
            Value::Unknown => LAST,
            // The bits of a number that is not negative are in its order.
            Value::Number(n) => n.max(0.0).to_bits(),
            Value::Text(text) => {
                let next = texts.len() as u64;
                *texts.entry(text).or_insert(next)
            }
        };
        keyed.push((key, qp.qpn, qp.id));
    }
    let ranks = ranks(&texts);
    for (key, _, _) in keyed.iter_mut().filter(|(key, _, _)| *key != LAST) {
        if let Some(rank) = usize::try_from(*key).ok().and_then(|key| ranks.get(key)) {
            *key = *rank;
        }
        if !ascending {
            *key = LAST - 1 - *key;
        }
    }
    keyed.sort_unstable_by_key(|(key, qpn, id)| (*key, *qpn, *id));
    keyed.into_iter().map(|(_, _, id)| id).collect()
}

/// The alphabetical rank of each text, by the number it was given; empty when no text was seen.
fn ranks(texts: &HashMap<&str, u64>) -> Vec<u64> {
    let mut sorted: Vec<(&str, u64)> = texts.iter().map(|(text, given)| (*text, *given)).collect();
    sorted.sort_unstable();
    let mut ranks = vec![0; sorted.len()];
    for (rank, (_, given)) in (0u64..).zip(sorted) {
        if let Some(slot) = usize::try_from(given).ok().and_then(|given| ranks.get_mut(given)) {
            *slot = rank;
        }
    }
    ranks
}

fn cell<'w>(scene: Scene<'w>, qp: &'w QpRecord, of: Of) -> Line<'w> {
    let (world, theme) = (&**scene.world, scene.theme);
    let known = |text: Option<&'w str>| match text {
        Some(text) => Line::styled(text, theme.text),
        None => Line::styled(UNKNOWN, theme.dim),
    };
    let plain = |text: String| {
        let style = if text == UNKNOWN { theme.dim } else { theme.text };
        Line::styled(text, style)
    };
    let number = |n: Option<u32>| plain(n.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string()));
    match of {
        Of::Device => Line::styled(&*world.device(qp.device).name, theme.strong),
        Of::Port => number(qp.port.map(u32::from)),
        Of::Qpn => number(Some(qp.qpn)),
        Of::Type => known(qp.qp_type.as_deref()),
        Of::State => Line::styled(
            qp.state.name(),
            match qp.state {
                QpState::Rts => theme.good,
                QpState::Err => theme.critical,
                QpState::Sqe | QpState::Sqd => theme.warning,
                _ => theme.dim,
            },
        ),
        Of::Pid => number(qp.pid),
        Of::Comm => known(qp.comm.as_deref()),
        Of::Rate => plain(number::bits(world.qps.rate_now(qp, world.now))),
        Of::Posts => plain(number::known_count(qp.stats_t.map(|_| qp.posts))),
        Of::Bytes => plain(number::known_bytes(qp.stats_t.map(|_| qp.bytes))),
        Of::Errors => match qp.errors {
            Some(n) if n > 0 => Line::styled(number::count(n), theme.critical),
            errors => plain(number::known_count(errors)),
        },
        Of::PeerQpn => number(qp.remote_qpn),
        Of::PeerGid => known(qp.remote_gid.as_deref()),
        Of::Age => {
            let age = number::age(world.now.saturating_sub(qp.since));
            Line::styled(if qp.created { age } else { format!(">{age}") }, theme.text)
        }
        Of::Container => known(qp.container.as_deref()),
    }
}

#[cfg(test)]
mod tests;
