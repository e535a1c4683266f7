//! `w`: what other marking at the switch would do at this port's rate, load and parameters, by the packet model of
//! `rdmascope whatif`. It runs in a thread of its own: about a second of one core, when somebody asks. While it runs, the
//! newest question waits and all others are forgotten: a key that is held asks many times a second.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use collector::command::whatif::Question;
use collector::dcqcn::{control, markings};
use collector::inventory::PortRecord;
use collector::sim::packet::{Red, Workload};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::{put, row, wrap};
use crate::key::Action;
use crate::number;
use crate::selection::Selection;
use crate::theme::Theme;

/// Loads the model is asked about: nothing happens near zero, and a full link is a question of its own.
const LOADS: (f64, f64) = (0.05, 0.95);

/// What came of it: the report, or why there is none.
type Answer = Arc<OnceLock<Result<String, String>>>;

/// A question that was asked.
struct Asked {
    title: String,
    answer: Answer,
    /// Its answer was drawn.
    told: bool,
}

/// The one thread that answers.
#[derive(Default)]
struct Worker {
    /// It runs.
    busy: bool,
    /// What it answers next.
    next: Option<(Question, Answer)>,
}

impl Worker {
    /// Answers this next; what waited is forgotten.
    fn ask(worker: &Arc<Mutex<Self>>, question: Question, answer: &Answer) {
        let mut state = worker.lock().unwrap_or_else(PoisonError::into_inner);
        state.next = Some((question, answer.clone()));
        if state.busy {
            return;
        }
        let own = worker.clone();
        match std::thread::Builder::new().name("what-if".to_owned()).spawn(move || Self::run(&own)) {
            Ok(_) => state.busy = true,
            Err(error) => {
                state.next = None;
                // Nobody else answers.
                let _ = answer.set(Err(format!("no thread for the model: {error}")));
            }
        }
    }

    fn run(worker: &Mutex<Self>) {
        loop {
            let mut state = worker.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((question, answer)) = state.next.take() else {
                state.busy = false;
                return;
            };
            drop(state);
            let report = question.answer().map(|report| report.text()).map_err(|error| error.to_string());
            let _ = answer.set(report);
        }
    }
}

/// The questions of the pane.
#[derive(Default)]
pub(super) struct WhatIf {
    worker: Arc<Mutex<Worker>>,
    asked: Option<Asked>,
    /// Which of the known markings comes next.
    next: usize,
    text: Selection,
    lines: usize,
}

impl WhatIf {
    /// A question is open, answered or not.
    pub(super) fn is_open(&self) -> bool {
        self.asked.is_some()
    }

    /// Forgets the question; a model that runs ends by itself.
    pub(super) fn close(&mut self) {
        let worker = std::mem::take(&mut self.worker);
        worker.lock().unwrap_or_else(PoisonError::into_inner).next = None;
        *self = Self { worker, ..Self::default() };
    }

    /// An answer came that was not drawn yet.
    pub(super) fn news(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| !asked.told && asked.answer.get().is_some())
    }

    /// An answer is on the way, or not yet told.
    pub(super) fn waits(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| !asked.told)
    }

    /// Asks about a port; each time about the next marking that is in use somewhere.
    pub(super) fn ask(&mut self, name: &str, port: &PortRecord) {
        let (question, against) = question(port, self.next);
        self.next += 1;
        let answer = Answer::default();
        let title = format!("{name}: what if its switch marked by {against}?");
        self.asked = Some(Asked { title, answer: answer.clone(), told: false });
        self.text = Selection::default();
        Worker::ask(&self.worker, question, &answer);
    }

    /// Scrolls; says whether the action was one.
    pub(super) fn scroll(&mut self, action: Action) -> bool {
        self.text.scroll(action, self.lines)
    }

    /// The question and its answer as text.
    pub(super) fn as_text(&self) -> Option<String> {
        let asked = self.asked.as_ref()?;
        let answer = match asked.answer.get() {
            None => "not answered yet",
            Some(Ok(report)) => report,
            Some(Err(why)) => why,
        };
        Some(format!("{}\n{answer}\n", asked.title))
    }

    /// Draws the question and its answer.
    pub(super) fn draw(&mut self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let Some(asked) = &mut self.asked else { return };
        asked.told = asked.answer.get().is_some();
        let hint = "   w next, PgDn, Esc";
        let title = vec![Span::styled(format!(" {}", asked.title), theme.strong), Span::styled(hint, theme.dim)];
        put(buf, area, 0, &Line::from(title));
        let (text, style) = match asked.answer.get() {
            None => ("the model runs, packet by packet …", theme.info),
            Some(Ok(report)) => (&**report, theme.text),
            Some(Err(why)) => (&**why, theme.warning),
        };
        let width = usize::from(area.width).saturating_sub(2).max(20);
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines() {
            // Tables keep their columns; sentences are wrapped.
            if line.chars().count() <= width { lines.push(line.to_owned()) } else { lines.extend(wrap(line, width)) }
        }
        self.lines = lines.len();
        self.text.height = usize::from(area.height.saturating_sub(1));
        self.text.top = self.text.top.min(lines.len().saturating_sub(self.text.height));
        for (at, line) in (1u16..).zip(lines.iter().skip(self.text.top)) {
            put(buf, row(area, at), 0, &Line::styled(format!(" {line}"), style));
        }
    }
}

/// The question about a port, and the name of what the given marking is held against.
fn question(port: &PortRecord, next: usize) -> (Question, String) {
    let mut question = Question::common();
    let params = &mut question.params;
    params.rate_gbps = port.rate_gbps.filter(|rate| *rate > 0.0).unwrap_or(params.rate_gbps);
    if let Some(read) = &port.congestion {
        params.control = control(&read.np, &read.rp, params.rate_gbps).0;
    }
    let load = port.throughput().rx_gbps.map(|rx| (rx / params.rate_gbps).clamp(LOADS.0, LOADS.1));
    if let (Workload::Bursts { load: offered, .. }, Some(load)) = (&mut params.workload, load) {
        *offered = load;
    }
    question.against.control = params.control;
    let known = markings(params.rate_gbps, params.rtt_ns);
    // The first question is the common one; then those in use somewhere that differ from what is given.
    let others: Vec<_> = known.iter().filter(|marking| differs(marking.red, params.red)).collect();
    let at = next % (others.len() + 1);
    let name = match at.checked_sub(1).and_then(|at| others.get(at)) {
        Some(marking) => {
            question.against.red = marking.red;
            format!("{} ({})", written(marking.red), marking.name)
        }
        None => written(question.against.red),
    };
    // What its switch port marks by a host cannot read.
    let given = written(question.params.red);
    (question, format!("Kmin–Kmax {name}, not {given}"))
}

/// Thresholds or the share of marks differ by more than a tenth: less than that is not worth a second.
fn differs(a: Red, b: Red) -> bool {
    let apart = |a: f64, b: f64| (a - b).abs() > 0.1 * a.max(b);
    apart(a.kmin_bytes as f64, b.kmin_bytes as f64)
        || apart(a.kmax_bytes as f64, b.kmax_bytes as f64)
        || apart(a.pmax, b.pmax)
}

fn written(red: Red) -> String {
    format!("{}–{}", number::bytes(red.kmin_bytes), number::bytes(red.kmax_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use std::time::{Duration, Instant};

    #[test]
    fn every_marking_in_use_gets_its_turn_and_the_first_comes_again() {
        let world = sample::faulty();
        let port = &world.ports[1];
        let against: Vec<String> = (0..12).map(|next| question(port, next).1).collect();
        let turn = against.iter().skip(1).position(|name| *name == against[0]).unwrap() + 1;
        assert!(turn > 2, "{against:?}");
        for next in 0..turn {
            question(port, next).0.check().unwrap();
        }
    }

    #[test]
    fn an_answer_is_news_once_and_gone_when_it_is_closed() {
        let world = sample::faulty();
        let mut what_if = WhatIf::default();
        what_if.ask("mlx5_1/1", &world.ports[1]);
        let deadline = Instant::now() + Duration::from_secs(120);
        while !what_if.news() {
            assert!(Instant::now() < deadline, "no answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        let theme = Theme::new(crate::theme::ThemeName::Dark, true);
        let area = Rect::new(0, 0, 100, 30);
        what_if.draw(&mut Buffer::empty(area), area, &theme);
        assert!(!what_if.news());
        let text = what_if.as_text().unwrap();
        assert!(text.contains("queue p99") && text.contains("marked"), "{text}");
        what_if.close();
        assert!(!what_if.is_open() && what_if.as_text().is_none());
    }

    #[test]
    fn of_many_questions_asked_while_the_model_runs_the_newest_alone_is_answered() {
        let world = sample::faulty();
        let mut what_if = WhatIf::default();
        // The model runs.
        what_if.worker.lock().unwrap().busy = true;
        let answers: Vec<Answer> = (0..60)
            .map(|_| {
                what_if.ask("mlx5_1/1", &world.ports[1]);
                what_if.asked.as_ref().unwrap().answer.clone()
            })
            .collect();
        Worker::run(&what_if.worker);
        let answered: Vec<usize> = (0..60).filter(|at| answers[*at].get().is_some()).collect();
        assert_eq!(answered, [59]);
        assert!(!what_if.worker.lock().unwrap().busy);
        what_if.worker.lock().unwrap().busy = true;
        what_if.ask("mlx5_1/1", &world.ports[1]);
        what_if.close();
        assert!(what_if.worker.lock().unwrap().next.is_none(), "nobody waits for it any more");
    }
}
