//! Where the readers of the formats put what they find.

use std::collections::{BTreeMap, HashMap};

use super::machine::Machine;
use super::moment::{Clock, Moment};
use crate::observation::{Body, Counters, Note};

/// Different notes kept of one file; further ones are counted.
const MAX_NOTES: usize = 200;
/// Observations of one file; what comes beyond is counted.
const MAX_READINGS: usize = 4_000_000;

/// One thing a file says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    /// When.
    pub(super) moment: Moment,
    /// What.
    pub(super) body: Body<'static>,
}

/// A sentence and how often it was said.
#[derive(Debug)]
struct Said {
    first: Moment,
    n: u64,
}

/// Takes what the reader of one section finds.
#[derive(Debug)]
pub(super) struct Sink<'m> {
    /// What is known of the machine.
    pub(super) machine: &'m mut Machine,
    /// When the section was taken, unless its lines have their own times.
    pub(super) moment: Moment,
    /// When the file was taken, ns since 1970, where that is known: dates without a year are before it.
    pub(super) taken: Option<i64>,
    /// The file's name in notes.
    file: String,
    found: Vec<Found>,
    said: BTreeMap<String, Said>,
    order: Vec<String>,
    dropped: u64,
    repeats: HashMap<String, u32>,
    /// The date of uptime 0, where a line told it.
    pub(super) tie: Option<i64>,
    /// A date had no year, and it was taken from when the file was taken.
    pub(super) year_taken: bool,
}

/// What a file gave.
#[derive(Debug, Default)]
pub(super) struct Harvest {
    /// Observations, notes included, in the order of the file.
    pub(super) found: Vec<Found>,
    /// The notes' sentences.
    pub(super) notes: Vec<String>,
    /// The date of uptime 0.
    pub(super) tie: Option<i64>,
}

impl<'m> Sink<'m> {
    /// A sink for one file.
    pub(super) fn new(machine: &'m mut Machine, file: &str, moment: Moment, taken: Option<i64>) -> Self {
        Self {
            machine,
            moment,
            taken,
            file: file.to_owned(),
            found: Vec::new(),
            said: BTreeMap::new(),
            order: Vec::new(),
            dropped: 0,
            repeats: HashMap::new(),
            tie: None,
            year_taken: false,
        }
    }

    /// Says something of the section's moment.
    pub(super) fn say(&mut self, body: Body<'static>) {
        self.push(self.moment, body);
    }

    /// Says something of a line's own time.
    pub(super) fn say_at(&mut self, clock: Clock, body: Body<'static>) {
        self.push(Moment::at(clock), body);
    }

    fn push(&mut self, moment: Moment, body: Body<'static>) {
        if self.found.len() < MAX_READINGS {
            self.found.push(Found { moment, body });
        } else {
            self.dropped += 1;
        }
    }

    /// Says a counter set. A second one of the same place in one file is a later reading, when nobody says how much later:
    /// it keeps its order and gives no rate.
    pub(super) fn counters(&mut self, set: Counters<'static>) {
        self.counters_at(self.moment, set);
    }

    /// The same at a line's own time.
    pub(super) fn counters_at(&mut self, moment: Moment, set: Counters<'static>) {
        let place = format!(
            "{} {:?} {:?} {:?} {:?} {:?} {:?} {moment:?}",
            set.device, set.port, set.netdev, set.source, set.qpn, set.qp_type, set.pid
        );
        let n = self.repeats.entry(place).or_default();
        let moment = Moment { order: moment.order + *n, ..moment };
        *n += 1;
        self.push(moment, Body::Counters(set));
    }

    /// Notes something that no observation holds.
    pub(super) fn note(&mut self, text: impl Into<String>) {
        self.note_at(self.moment.clock, text);
    }

    /// The same at a line's own time. What is noted again is counted.
    pub(super) fn note_at(&mut self, clock: Clock, text: impl Into<String>) {
        let text = text.into();
        if let Some(said) = self.said.get_mut(&text) {
            said.n += 1;
        } else if self.order.len() < MAX_NOTES {
            self.order.push(text.clone());
            self.said.insert(text, Said { first: Moment::at(clock), n: 1 });
        } else {
            self.dropped += 1;
        }
    }

    /// What was found.
    pub(super) fn harvest(mut self) -> Harvest {
        let mut notes = Vec::new();
        for text in std::mem::take(&mut self.order) {
            let Some(said) = self.said.get(&text) else { continue };
            let sentence = if said.n > 1 { format!("{text} (×{})", said.n) } else { text };
            let note = Note { source: self.file.clone().into(), text: sentence.clone().into() };
            self.found.push(Found { moment: said.first, body: Body::Note(note) });
            notes.push(sentence);
        }
        if self.dropped > 0 {
            let lost = crate::observation::Lost { source: self.file.clone().into(), n: self.dropped };
            self.found.push(Found { moment: self.moment, body: Body::Lost(lost) });
            notes.push(format!("{} further things were only counted", self.dropped));
        }
        Harvest { found: self.found, notes, tie: self.tie }
    }
}
