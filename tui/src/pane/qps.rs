//! 3 QPs: all of them, sorted and filtered. Rows are found once per world, sort and filter; only those in sight are
//! drawn.

mod columns;
mod groups;
mod order;
mod picker;

use collector::inventory::{QpRef, World};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::about::About;
use super::{Pane, PaneId, Reaction, Scene, Target, below, put, row, watched};
use columns::{COLUMNS, FIELDS, Of, cell};
use groups::{By, Group};
use order::Order;
use picker::{Picked, Picker};

use crate::filter::Filter;
use crate::key::Action;
use crate::number;
use crate::selection::Selection;
use crate::table::{self, Column};

/// The pane.
pub(crate) struct Qps {
    rows: Order,
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
    /// The rows in sight as they were drawn last, and the QP that bore the mark or was selected since: a key means what
    /// somebody sees, not what a newer world has in its place.
    drawn: Vec<QpRef>,
    marked: Option<QpRef>,
    sideways: table::Sideways,
    /// Columns that somebody does not want, a bit each.
    hidden: u32,
    picker: Option<Picker>,
    by: By,
    groups: Vec<Group>,
    /// The selected group stays selected when rows move.
    selected_group: Option<String>,
    /// The group that bore the mark when last drawn, or was selected since.
    marked_group: Option<String>,
    /// What the groups were made for, besides the rows.
    grouped_for: Option<(By, usize, bool)>,
    /// The column of the groups they are sorted by.
    group_sort: usize,
    /// Rows that what the pane shows takes beside the first.
    shift: u16,
    /// Where the columns stood when last drawn, and which columns they are.
    placed: Vec<(table::Placed, usize)>,
}

impl Default for Qps {
    fn default() -> Self {
        Self {
            rows: Order::default(),
            found_for: None,
            sort: COLUMNS.iter().position(|(of, _)| *of == Of::Rate).unwrap_or(0),
            ascending: false,
            filter: Filter::default(),
            filter_text: String::new(),
            typed: None,
            error: None,
            selection: Selection::default(),
            selected: None,
            drawn: Vec::new(),
            marked: None,
            sideways: table::Sideways::default(),
            hidden: 0,
            picker: None,
            by: By::default(),
            groups: Vec::new(),
            selected_group: None,
            marked_group: None,
            grouped_for: None,
            group_sort: groups::RATE,
            shift: 0,
            placed: Vec::new(),
        }
    }
}

impl Qps {
    fn find(&mut self, scene: Scene<'_>) {
        let wanted = (scene.generation, self.sort, self.ascending, self.filter_text.clone());
        if self.found_for.as_ref() == Some(&wanted) {
            return;
        }
        // Somebody asked for other rows: the mark is where it will be drawn.
        let other = |(_, sort, ascending, filter): &(u64, usize, bool, String)| {
            (*sort, *ascending, filter) != (wanted.1, wanted.2, &wanted.3)
        };
        if self.found_for.as_ref().is_some_and(other) {
            self.marked = None;
        }
        self.rows.find(scene.world, COLUMNS[self.sort].0, self.ascending, &self.filter);
        if let Some(at) = self.selected.and_then(|id| self.rows.place_of(id)) {
            self.selection.row = at;
        }
        self.found_for = Some(wanted);
        self.grouped_for = None;
    }

    fn group(&mut self, world: &World) {
        let wanted = Some((self.by, self.group_sort, self.ascending));
        if self.grouped_for != wanted {
            self.groups = groups::groups(world, self.rows.ids(), self.by, self.group_sort, self.ascending);
            let at = self.selected_group.as_ref().and_then(|name| self.groups.iter().position(|g| g.name == *name));
            self.selection.row = at.unwrap_or(self.selection.row);
            if self.grouped_for.is_some() {
                // Other groups were asked for.
                self.marked_group = None;
            }
            self.grouped_for = wanted;
        }
    }

    /// Rows of the list: QPs, or groups of them.
    fn len(&self) -> usize {
        if self.by == By::Nothing { self.rows.len() } else { self.groups.len() }
    }

    /// The columns that are wanted.
    fn wanted(&self) -> Vec<usize> {
        (0..COLUMNS.len()).filter(|at| self.hidden & 1 << at == 0).collect()
    }

    fn columns(&self) -> Vec<Column> {
        self.wanted().into_iter().map(|at| COLUMNS[at].1).collect()
    }

    fn sort_by(&mut self, column: usize) {
        let sorted = if self.by == By::Nothing { &mut self.sort } else { &mut self.group_sort };
        // The same once more is the other way round.
        self.ascending = *sorted == column && !self.ascending;
        *sorted = column;
    }

    fn pick(&mut self, picked: Picked) {
        match picked {
            // The device's name stays: a QP's number alone names nothing.
            Picked::Nothing | Picked::Toggle(0) => {}
            Picked::Toggle(column) => self.hidden ^= 1 << column,
            Picked::Sort(column) => self.sort_by(column),
            Picked::All => self.hidden = 0,
            Picked::Close => self.picker = None,
        }
    }

    /// Into a group: only its QPs are left.
    fn open_group(&mut self) {
        let marked = self.groups.iter().find(|group| self.marked_group.as_ref() == Some(&group.name));
        let group = marked.or_else(|| self.groups.get(self.selection.row));
        let Some(group) = group.filter(|group| !group.filter.is_empty()) else { return };
        let text = format!("{} {}", self.filter_text, group.filter).trim().to_owned();
        if let Ok(filter) = Filter::parse(&columns::as_in_table(&text), &FIELDS) {
            (self.filter, self.filter_text, self.by) = (filter, text, By::Nothing);
            (self.selection, self.selected, self.marked) = (Selection::default(), None, None);
            self.drawn.clear();
        }
    }

    fn draw_groups(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
        let placed = table::fit(&groups::COLUMNS, inner.width, 0);
        let mark = if self.ascending { "▲" } else { "▼" };
        let sorted = Some((self.group_sort, mark));
        table::draw_titles(buf, row(inner, 0), &groups::COLUMNS, &placed, scene.theme.title, sorted);
        let list = below(area, 1);
        self.selection.fit(self.groups.len(), usize::from(list.height));
        let shown = self.groups.iter().enumerate().skip(self.selection.top).take(self.selection.height);
        for (line, (index, group)) in (0u16..).zip(shown) {
            if index == self.selection.row {
                buf.set_style(row(list, line), scene.theme.selected);
                put(buf, list, line, &Line::raw("►"));
                self.marked_group = Some(group.name.clone());
            }
            let cells = group.cells(scene.theme);
            table::draw_row(buf, row(below(inner, 1), line), &groups::COLUMNS, &placed, &cells);
        }
        self.placed = placed.into_iter().map(|place| (place, place.index)).collect();
    }

    /// The table as text: every wanted column of the rows that are on the screen.
    fn as_text(&self, scene: Scene<'_>) -> String {
        let join = |cells: &[Line<'_>]| cells.iter().map(ToString::to_string).collect::<Vec<_>>().join("\t") + "\n";
        if self.by != By::Nothing {
            let rows = self.selection.top..(self.selection.top + self.selection.height).min(self.groups.len());
            let titles: Vec<Line<'_>> = groups::COLUMNS.iter().map(|column| Line::raw(column.title)).collect();
            let groups = self.groups.get(rows).unwrap_or_default();
            return join(&titles) + &groups.iter().map(|group| join(&group.cells(scene.theme))).collect::<String>();
        }
        let wanted = self.wanted();
        let titles: Vec<Line<'_>> = wanted.iter().map(|at| Line::raw(COLUMNS[*at].1.title)).collect();
        let qps = self.drawn.iter().filter_map(|id| scene.world.qps.get(*id)).map(|qp| {
            let cells: Vec<Line<'_>> = wanted.iter().map(|at| cell(scene, qp, COLUMNS[*at].0)).collect();
            join(&cells)
        });
        join(&titles) + &qps.collect::<String>()
    }

    fn open(&mut self) -> Reaction {
        if self.by != By::Nothing {
            self.open_group();
            return Reaction::Done;
        }
        let marked = self.marked.or_else(|| self.in_order(self.selection.row));
        marked.map_or(Reaction::Done, |id| Reaction::Open(Target::Qp(id)))
    }

    /// The QP of a row, which need not be in order yet.
    fn in_order(&mut self, row: usize) -> Option<QpRef> {
        self.rows.sort(row..row + 1);
        self.rows.get(row)
    }

    fn click_group(&mut self, index: usize) -> Reaction {
        if index >= self.groups.len() {
            return Reaction::Ignored;
        }
        let again = index == self.selection.row;
        self.selection.row = index;
        self.remember();
        if again { self.open() } else { Reaction::Done }
    }

    fn remember(&mut self) {
        if self.by != By::Nothing {
            self.selected_group = self.groups.get(self.selection.row).map(|group| group.name.clone());
            self.marked_group.clone_from(&self.selected_group);
            return;
        }
        self.selected = self.in_order(self.selection.row);
        self.marked = self.selected;
    }

    /// Draws what the pane shows; gives back the area whose first row is the last of it.
    fn draw_status(&self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) -> Rect {
        let (world, theme) = (&**scene.world, scene.theme);
        if let Some(typed) = &self.typed {
            let mut spans = vec![Span::styled(" / ", theme.strong), Span::raw(format!("{typed}▏"))];
            match &self.error {
                Some(error) => spans.push(Span::styled(format!("  {error}"), theme.warning)),
                None => spans.push(Span::styled("  Enter keeps, Esc clears", theme.dim)),
            }
            put(buf, area, 0, &Line::from(spans));
            return area;
        }
        let total = number::grouped(world.qps.len() as u64);
        let grouped = self.by != By::Nothing;
        let sort = if grouped { groups::COLUMNS[self.group_sort].title } else { COLUMNS[self.sort].1.title };
        let direction = if self.ascending { "▲" } else { "▼" };
        let what = if self.filter.is_empty() {
            format!("{total} QPs")
        } else {
            format!("{} of {total} QPs", number::grouped(self.rows.len() as u64))
        };
        let asked = if self.filter_text.is_empty() { String::new() } else { format!("/ {}", self.filter_text) };
        let blind = world.qps.len().saturating_sub(scene.coverage.qps_traced);
        let unseen = match (&world.probes, blind) {
            (None, _) => "posts (no probes)".to_owned(),
            (Some(_), 0) => String::new(),
            (Some(_), blind) => format!("posts of {} [9]", number::grouped(blind as u64)),
        };
        let beyond = if unseen.is_empty() { "their peers' side" } else { "" };
        let how = match watched::how(world.probes.as_deref()) {
            how if how.is_empty() => "listed".to_owned(),
            how => how,
        };
        let sure = format!("{how} since {}", number::moment(world, world.watched_since(), false));
        // The dead send nothing: they would be where nobody looks.
        let dead_first = !grouped && COLUMNS[self.sort].0 == Of::Rate && !self.ascending;
        let first = if dead_first && self.rows.in_error() != (0, 0) { "the dead, then " } else { "" };
        About::what(theme, what)
            .asked(asked)
            .asked(if grouped { format!("{} by {}", self.groups.len(), self.by.name()) } else { String::new() })
            .asked(format!("{first}by {sort} {direction}"))
            .alarm(in_error(self.rows.in_error()))
            .sure(sure)
            .unseen(unseen)
            .beyond(beyond)
            .draw(buf, area)
    }
}

/// How many are in error, with the filter that finds just those.
fn in_error((err, sqe): (usize, usize)) -> String {
    let told = |n: usize, state: &str| format!("{} in {state} [/ state={state}]", number::grouped(n as u64));
    match (err, sqe) {
        (0, 0) => String::new(),
        (0, sqe) => told(sqe, "SQE"),
        (err, 0) => told(err, "ERR"),
        (err, sqe) => format!("{}, {} in SQE", told(err, "ERR"), number::grouped(sqe as u64)),
    }
}

impl Pane for Qps {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        self.find(scene);
        if self.by != By::Nothing {
            self.group(scene.world);
        }
        let whole = area;
        let area = self.draw_status(scene, area, buf);
        self.shift = area.y - whole.y;
        if self.by != By::Nothing {
            self.draw_groups(scene, below(area, 1), buf);
            return;
        }
        let wanted = self.wanted();
        let columns = self.columns();
        let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(1), ..area };
        let placed = self.sideways.fit(&columns, inner.width);
        let mark = if self.ascending { "▲" } else { "▼" };
        let sorted = wanted.iter().position(|at| *at == self.sort).map(|at| (at, mark));
        self.placed = placed.iter().map(|place| (*place, wanted[place.index])).collect();
        table::draw_titles(buf, row(inner, 1), &columns, &placed, scene.theme.title, sorted);
        let list = below(area, 2);
        self.selection.fit(self.rows.len(), usize::from(list.height));
        let in_sight = self.selection.top..self.selection.top + self.selection.height;
        self.rows.sort(in_sight.clone());
        if self.rows.len() == 0 {
            let why = if scene.world.qps.is_empty() {
                "no QP is seen (9 says which sources look for them)"
            } else {
                "no QP matches the filter"
            };
            put(buf, list, 0, &Line::styled(format!(" {why}"), scene.theme.dim));
        }
        self.drawn = in_sight.filter_map(|row| self.rows.get(row)).collect();
        self.marked = self.drawn.get(self.selection.row.saturating_sub(self.selection.top)).copied();
        for (line, id) in (0u16..).zip(&self.drawn) {
            let Some(qp) = scene.world.qps.get(*id) else { continue };
            if Some(*id) == self.marked {
                buf.set_style(row(list, line), scene.theme.selected);
                put(buf, list, line, &Line::raw("►"));
            }
            let cells: Vec<Line<'_>> = wanted.iter().map(|at| cell(scene, qp, COLUMNS[*at].0)).collect();
            table::draw_row(buf, row(below(inner, 2), line), &columns, &placed, &cells);
        }
        if let Some(picker) = &mut self.picker {
            let names: Vec<(&str, bool)> =
                COLUMNS.iter().enumerate().map(|(at, (_, c))| (c.title, self.hidden & 1 << at == 0)).collect();
            picker.draw(buf, below(area, 1), &names, self.sort, scene.theme);
        }
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        self.find(scene);
        if self.by != By::Nothing {
            self.group(scene.world);
        }
        match action {
            Action::Enter => return self.open(),
            Action::Copy => return Reaction::Copy(self.as_text(scene), "table"),
            Action::Columns if self.by == By::Nothing => self.picker = Some(Picker::default()),
            Action::Group => {
                self.by = self.by.next();
                (self.selected_group, self.marked_group) = (None, None);
                self.selection = Selection::default();
            }
            Action::Leave if self.by != By::Nothing => self.by = By::Nothing,
            Action::Filter => {
                self.typed = Some(self.filter_text.clone());
                self.error = None;
            }
            Action::Sort if self.by != By::Nothing => {
                self.group_sort = (self.group_sort + 1) % groups::COLUMNS.len();
            }
            Action::Sort => {
                let wanted = self.wanted();
                let next = wanted.iter().position(|at| *at > self.sort).unwrap_or(0);
                self.sort = wanted.get(next).copied().unwrap_or(0);
            }
            Action::SortReverse => self.ascending = !self.ascending,
            Action::Left | Action::Right => {
                let columns = self.columns();
                self.sideways.act(action, &columns);
            }
            Action::Leave if !self.filter_text.is_empty() => {
                self.filter_text.clear();
                self.filter = Filter::default();
            }
            _ if self.selection.act(action, self.len()) => self.remember(),
            _ => return Reaction::Ignored,
        }
        Reaction::Done
    }

    fn click(&mut self, column: u16, at: u16, _scene: Scene<'_>) -> Reaction {
        let Some(at) = at.checked_sub(self.shift) else { return Reaction::Ignored };
        if at == 1 {
            // A title: sort by it.
            let x = column.saturating_sub(1);
            let hit = self.placed.iter().find(|(place, _)| (place.x..=place.x + place.width).contains(&x));
            if let Some((_, column)) = hit {
                self.sort_by(*column);
            }
            return Reaction::Done;
        }
        let Some(line) = at.checked_sub(2).map(usize::from) else { return Reaction::Ignored };
        let index = self.selection.top + line;
        if self.by != By::Nothing {
            return self.click_group(index);
        }
        let Some(id) = self.drawn.get(line).copied() else { return Reaction::Ignored };
        let again = self.marked == Some(id);
        self.selection.row = index;
        (self.selected, self.marked) = (Some(id), Some(id));
        if again { self.open() } else { Reaction::Done }
    }

    fn points_at(&self, pane: PaneId, scene: Scene<'_>) -> Option<Target> {
        if self.by != By::Nothing {
            return None;
        }
        let qp = scene.world.qps.get(self.marked?)?;
        match pane {
            PaneId::Qp => Some(Target::Qp(qp.id)),
            PaneId::Port => super::qp::port_of(scene.world, qp).map(|port| Target::Port(port.key)),
            _ => None,
        }
    }

    fn note(&self) -> Option<String> {
        if self.by == By::Nothing { self.sideways.hint() } else { None }
    }

    fn typing(&self) -> bool {
        self.typed.is_some() || self.picker.is_some()
    }

    fn type_key(&mut self, key: KeyEvent) {
        if let Some(picker) = &mut self.picker {
            let picked = picker.key(key, COLUMNS.len());
            self.pick(picked);
            return;
        }
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
        match Filter::parse(&columns::as_in_table(typed), &FIELDS) {
            Ok(filter) => {
                self.filter = filter;
                self.filter_text.clone_from(typed);
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }
}

#[cfg(test)]
mod tests;
