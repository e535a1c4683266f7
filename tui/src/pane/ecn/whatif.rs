//! `w`: what other marking at the switch would do at this port's rate, load and parameters, by the packet model of
//! `rdmascope whatif`. It runs in a thread of its own: a second or two of one core, when somebody asks. While it runs, the
//! newest question waits and all others are forgotten: a key that is held asks many times a second.
//!
//! How the switch marks, and how bursts come, no host can read: both are assumed, and told as such. What the port does
//! measure, the share of packets that are marked, is held against the model first. Bursts are taken of the size with which
//! the model comes nearest; where it comes near with none, there is no comparison: it would be of another network.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use collector::command::whatif::Question;
use collector::dcqcn::{control, markings};
use collector::inventory::{PortRecord, World};
use collector::observation::Nanos;
use collector::sim::packet::{Measure, Pfc, Red, Workload};
use collector::timeline::counter_table::Meaning;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::{below, more_below, put, row, wrap};
use crate::key::Action;
use crate::number;
use crate::selection::Selection;
use crate::theme::Theme;

/// Loads the model is asked about: nothing happens near zero, and a full link is a question of its own.
const LOADS: (f64, f64) = (0.05, 0.95);

/// Sizes of bursts that are tried; of two of the same distance the usual one counts.
const BURSTS: [u64; 4] = [16 << 10, 64 << 10, USUAL_BURST, 1 << 20];
const USUAL_BURST: u64 = 256 << 10;
/// How often a size between two of them is tried, where they mark more and less than what was measured.
const BETWEEN: usize = 3;
/// The model comes near when it marks at most so many times what was measured, or so many times less.
const NEAR: f64 = 2.0;
/// The measured share is of the newest windows, at most so many, and of this many at least.
const WINDOWS: usize = 60;
const LEAST: usize = 10;
/// Packets of a run that only looks for the size of the bursts.
const MOST_PACKETS: u64 = 10_000_000;
/// Where a switch is told to pause, bytes: nobody knows, but it does.
const XOFF: u64 = 2 << 20;

/// What came of it: the report, or why there is none.
type Answer = Arc<OnceLock<Result<String, String>>>;

/// A question that was asked.
struct Asked {
    title: String,
    answer: Answer,
    /// Its answer was drawn.
    told: bool,
}

/// What is known of the packets a port received and of those that were marked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Measured {
    /// They are not counted.
    NotCounted,
    /// They are, but in too few of the newest windows, or none came: so many are known, for this time, ns.
    TooFew { windows: usize, ns: Nanos },
    /// This share was marked of those that came in this time, ns.
    Share { marked: f64, ns: Nanos },
}

/// A question, and what was measured.
type Asking = (Question, Measured);

/// The one thread that answers.
#[derive(Default)]
struct Worker {
    /// It runs.
    busy: bool,
    /// What it answers next.
    next: Option<(Asking, Answer)>,
}

impl Worker {
    /// Answers this next; what waited is forgotten.
    fn ask(worker: &Arc<Mutex<Self>>, asking: Asking, answer: &Answer) {
        let mut state = worker.lock().unwrap_or_else(PoisonError::into_inner);
        state.next = Some((asking, answer.clone()));
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
            let Some(((question, measured), answer)) = state.next.take() else {
                state.busy = false;
                return;
            };
            drop(state);
            let _ = answer.set(report(question, measured));
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
    pub(super) fn ask(&mut self, name: &str, world: &World, port: &PortRecord) {
        let (question, against) = question(port, self.next);
        let measured = measured(port, world.window_ns);
        self.next += 1;
        let answer = Answer::default();
        let title = format!("{name}: what if its switch marked by Kmin–Kmax {against}? (a model, much of it assumed)");
        self.asked = Some(Asked { title, answer: answer.clone(), told: false });
        self.text = Selection::default();
        Worker::ask(&self.worker, (question, measured), &answer);
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
        let width = usize::from(area.width).saturating_sub(2).max(20);
        let hint = "   w next, PgDn, Esc";
        let mut title: Vec<Line<'_>> =
            wrap(&asked.title, width).into_iter().map(|part| Line::styled(format!(" {part}"), theme.strong)).collect();
        if let Some(last) = title.last_mut().filter(|last| last.width() + hint.chars().count() <= width) {
            last.push_span(Span::styled(hint, theme.dim));
        }
        for (at, line) in (0u16..).zip(&title) {
            put(buf, area, at, line);
        }
        let area = below(area, u16::try_from(title.len()).unwrap_or(u16::MAX));
        let (text, style) = match asked.answer.get() {
            None => ("the model runs, packet by packet …", theme.info),
            Some(Ok(report)) => (&**report, theme.text),
            Some(Err(why)) => (&**why, theme.warning),
        };
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines() {
            // Tables keep their columns; sentences are wrapped.
            if line.chars().count() <= width { lines.push(line.to_owned()) } else { lines.extend(wrap(line, width)) }
        }
        self.lines = lines.len();
        self.text.height = usize::from(area.height);
        self.text.top = self.text.top.min(lines.len().saturating_sub(self.text.height));
        for (at, line) in (0u16..).zip(lines.iter().skip(self.text.top)) {
            put(buf, row(area, at), 0, &Line::styled(format!(" {line}"), style));
        }
        more_below(buf, area, self.text.top + self.text.height < self.lines, " [PgDn]", theme);
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
    if port.congestion.as_ref().and_then(|read| read.pfc_enabled).is_some_and(|on| on.contains(&true)) {
        let pfc = Pfc { xoff_bytes: XOFF, xon_bytes: XOFF / 10 * 9, delay_ns: 1_000 };
        (question.params.pfc, question.against.pfc) = (Some(pfc), Some(pfc));
    }
    (question, name)
}

/// What is known of the marks of the newest windows. Both numbers are taken of the same windows: one without the other says
/// nothing.
fn measured(port: &PortRecord, window_ns: Nanos) -> Measured {
    let rings = [Meaning::EcnMarkedRx, Meaning::RxPackets].map(|meaning| port.rates.get(&meaning));
    let [Some(marked), Some(all)] = rings else { return Measured::NotCounted };
    let both = marked.newest_first().zip(all.newest_first()).take(WINDOWS);
    let known: Vec<(f64, f64)> = both.filter_map(|(marked, all)| marked.zip(all)).collect();
    let ns = window_ns.saturating_mul(known.len() as u64);
    let (marked, all) = known.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if known.len() < LEAST || all <= 0.0 {
        return Measured::TooFew { windows: known.len(), ns };
    }
    Measured::Share { marked: marked / all, ns }
}

/// The answer with what it rests on, or why there is none.
fn report(mut question: Question, measured: Measured) -> Result<String, String> {
    let fit = match measured {
        Measured::NotCounted => "The model is held against nothing: this port's marks are not counted.".to_owned(),
        Measured::TooFew { windows, .. } if windows >= LEAST => {
            "The model is held against nothing: this port received no packet.".to_owned()
        }
        Measured::TooFew { ns, .. } => {
            format!("The model is held against nothing: this port's marks are known for {} only.", number::span(ns))
        }
        Measured::Share { marked: 0.0, ns } => {
            return Err(format!(
                "No packet this port received in {} was marked. There is nothing the model could be held against: how the \
                 switch marks would be assumed, and so would all that follows. No comparison.",
                number::span(ns)
            ));
        }
        Measured::Share { marked, ns } => calibrated(&mut question, marked, ns)?,
    };
    let report = question.answer().map_err(|error| error.to_string())?;
    Ok(format!("{}\n{fit}\n\n{}", assumed(&question), report.text()))
}

/// Takes bursts of the size with which the model marks nearest to what was measured in this time, ns; why not, where none is
/// near.
fn calibrated(question: &mut Question, measured: f64, ns: Nanos) -> Result<String, String> {
    let run = |bytes: u64| {
        let mut params = question.params.clone();
        if let Workload::Bursts { bytes: size, .. } = &mut params.workload {
            *size = bytes;
        }
        let marked = Measure::of_at_most(&params, &[question.l], MOST_PACKETS).and_then(|figures| figures.mark_rate);
        (bytes, marked.unwrap_or(0.0), params.workload)
    };
    let mut tried = BURSTS.map(run).to_vec();
    let apart = |marked: f64| if marked > 0.0 { (marked / measured).ln().abs() } else { f64::INFINITY };
    let near = |tried: &[(u64, f64, Workload)]| tried.iter().any(|(_, marked, _)| apart(*marked) <= NEAR.ln());
    for _ in 0..BETWEEN {
        // Smaller bursts are marked less, as a rule: the first pair with what was measured between them.
        let between = tried.windows(2).position(|pair| (pair[0].1 < measured) != (pair[1].1 < measured));
        let Some(at) = between.filter(|_| !near(&tried)) else { break };
        // The middle of both as factors, in whole packets.
        let middle = (tried[at].0 as f64 * tried[at + 1].0 as f64).sqrt();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two sizes")]
        let bytes = (middle as u64).next_multiple_of(4096);
        tried.insert(at + 1, run(bytes));
    }
    let share = |share: f64| number::plain(Some(share * 100.0)).into_owned();
    let unusual = |bytes: u64| bytes.abs_diff(USUAL_BURST);
    let nearest = tried
        .iter()
        .min_by(|a, b| apart(a.1).total_cmp(&apart(b.1)).then(unusual(a.0).cmp(&unusual(b.0))))
        .filter(|tried| apart(tried.1) <= NEAR.ln());
    let Some((bytes, marked, workload)) = nearest else {
        let tried: Vec<_> = tried.iter().map(|(b, m, _)| format!("{} {} %", number::bytes(*b), share(*m))).collect();
        return Err(format!(
            "The model does not fit this port: {} % of the packets it received in {} were marked; with the switch marking by {}, which is assumed, the model marks, by the size of the bursts: {}. No comparison: it would be of \
             another network. With settings of your own: rdmascope whatif --help.",
            share(measured),
            number::span(ns),
            written(question.params.red),
            tried.join(", ")
        ));
    };
    question.params.workload = *workload;
    Ok(format!(
        "Held against this port: {} % of the packets it received in {} were marked; with bursts of {} the model marks {} %.",
        share(measured),
        number::span(ns),
        number::bytes(*bytes),
        share(*marked)
    ))
}

/// What nobody could read on this host, and what the columns are.
fn assumed(question: &Question) -> String {
    let red = question.params.red;
    let pause = if question.params.pfc.is_some() { ", where it pauses" } else { "" };
    format!(
        "Assumed, for no host can read it: how the switch marks now (GIVEN: {}, at most {} %){pause}, a round trip of {}, {} \
         senders, the size of their bursts. AGAINST: the same with the other marking.",
        written(red),
        red.pmax * 100.0,
        number::short_time(question.params.rtt_ns),
        question.params.senders
    )
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
        // The marking it is held against is named, what is assumed of its switch is not told as a fact.
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
        what_if.ask("mlx5_1/1", &world, &world.ports[1]);
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
        assert!(text.contains("much of it assumed") && text.contains("marked"), "{text}");
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
                what_if.ask("mlx5_1/1", &world, &world.ports[1]);
                what_if.asked.as_ref().unwrap().answer.clone()
            })
            .collect();
        Worker::run(&what_if.worker);
        let answered: Vec<usize> = (0..60).filter(|at| answers[*at].get().is_some()).collect();
        assert_eq!(answered, [59]);
        assert!(!what_if.worker.lock().unwrap().busy);
        what_if.worker.lock().unwrap().busy = true;
        what_if.ask("mlx5_1/1", &world, &world.ports[1]);
        what_if.close();
        assert!(what_if.worker.lock().unwrap().next.is_none(), "nobody waits for it any more");
    }

    fn short(load: f64) -> Question {
        let mut question = Question::common();
        question.params.workload = Workload::Bursts { bytes: 256 << 10, load };
        question.params.duration_ns = 10_000_000;
        question.params.warm_up_ns = 2_000_000;
        question.seeds = 1;
        question
    }

    /// A share of the packets of a minute.
    fn of(marked: f64) -> Measured {
        Measured::Share { marked, ns: 60_000_000_000 }
    }

    #[test]
    fn the_share_of_marks_is_of_windows_in_which_both_are_known_and_says_of_how_many() {
        let world = sample::faulty();
        let mut port = (*world.ports[1]).clone();
        let mut measured_of = |windows: &[(Option<f64>, Option<f64>)]| {
            port.rates.clear();
            for (marked, all) in windows {
                port.rates.or_default(Meaning::EcnMarkedRx).push(*marked);
                port.rates.or_default(Meaning::RxPackets).push(*all);
            }
            measured(&port, 10_000_000_000)
        };
        assert_eq!(measured_of(&[]), Measured::NotCounted);
        // Marks were counted while there were few packets; of the time with many nothing is known of them.
        let mut windows = vec![(Some(10.0), Some(100.0)); LEAST];
        windows.extend([(None, Some(1e6)); 20]);
        windows.extend([(Some(1e3), None); 20]);
        let Measured::Share { marked, ns } = measured_of(&windows) else { panic!("it is measured") };
        assert!((marked - 0.1).abs() < 1e-6 && ns == 100_000_000_000, "{marked} in {ns} ns");
        windows.remove(0);
        assert_eq!(measured_of(&windows), Measured::TooFew { windows: LEAST - 1, ns: 90_000_000_000 });
        let told = report(short(0.4), measured_of(&windows)).unwrap();
        assert!(told.contains("held against nothing: this port's marks are known for 90 s only."), "{told}");
        let idle = measured_of(&[(Some(0.0), Some(0.0)); LEAST]);
        assert!(report(short(0.4), idle).unwrap().contains("this port received no packet"));
    }

    #[test]
    fn a_port_that_the_model_does_not_fit_gets_no_comparison() {
        for measured in [0.0, 1e-6, 0.9] {
            let why = report(short(0.4), of(measured)).unwrap_err();
            assert!(why.contains("No comparison") && !why.contains("AGAINST"), "{why}");
        }
        let why = report(short(0.4), of(0.9)).unwrap_err();
        assert!(why.contains("90 % of the packets it received in 60 s") && why.contains("64.0 KiB"), "{why}");
    }

    #[test]
    fn a_share_between_those_of_two_sizes_is_met_by_one_between_them() {
        let marked = |bytes: u64| {
            let mut params = short(0.6).params;
            params.workload = Workload::Bursts { bytes, load: 0.6 };
            Measure::of_at_most(&params, &[2.0], MOST_PACKETS).unwrap().mark_rate.unwrap()
        };
        let (low, high) = (marked(BURSTS[1]), marked(BURSTS[2]));
        assert!(high > 4.0 * low, "{low} {high}: there is a gap");
        let mut question = short(0.6);
        calibrated(&mut question, (low * high).sqrt(), 60_000_000_000).unwrap();
        let Workload::Bursts { bytes, .. } = question.params.workload else { panic!("bursts") };
        assert!(BURSTS[1] < bytes && bytes < BURSTS[2], "{bytes}");
    }

    #[test]
    fn bursts_are_taken_of_the_size_with_which_the_model_marks_as_the_port_does() {
        let mut question = short(0.6);
        let marked = |bytes: u64| {
            let mut params = short(0.6).params;
            params.workload = Workload::Bursts { bytes, load: 0.6 };
            Measure::of_at_most(&params, &[2.0], MOST_PACKETS).unwrap().mark_rate.unwrap()
        };
        let measured = marked(64 << 10);
        assert!(measured > 0.0 && marked(256 << 10) > NEAR * measured);
        calibrated(&mut question, measured, 60_000_000_000).unwrap();
        assert!(matches!(question.params.workload, Workload::Bursts { bytes: 65_536, .. }), "{:?}", question.params);
        let told = report(question, of(measured)).unwrap();
        assert!(
            told.starts_with("Assumed, for no host can read it") && told.contains("Held against this port"),
            "{told}"
        );
        assert!(told.contains("queue p99") && told.contains("GIVEN: 5.00 KiB–200 KiB"), "{told}");
        // Not counted is not zero: there is an answer, and it says that it is held against nothing.
        assert!(report(short(0.6), Measured::NotCounted).unwrap().contains("held against nothing"));
    }
}
