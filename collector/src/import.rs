//! What people copy and paste becomes observations: copies of `/sys`, and the output of other tools (docs/import.md).
//!
//! | file | holds |
//! |---|---|
//! | `walk`, `text`, `section` | which files there are, their clean text, whose format which lines are |
//! | `calendar`, `moment` | dates, and how the clocks of several files are laid on one |
//! | `machine`, `sink` | what is known of the machine so far, and where readers put what they find |
//! | `tree` | copies of `/sys`, read by the sources of the live node |
//! | `ethtool`, `rdma_*`, `perfquery`, `ibqueryerrors`, `pma`, `port_series` | one reader a format |
//! | `kernel_log`, `log_line`, `aer_log`, `log_counts`, `nccl` | logs |
//!
//! A bundle is of one machine. What no format claims, and what cannot be read, costs itself only and is said.

mod aer_log;
mod calendar;
mod ethtool;
mod ibqueryerrors;
mod kernel_log;
mod log_counts;
mod log_line;
mod machine;
mod moment;
mod nccl;
mod perfquery;
mod pma;
mod port_series;
mod rdma_line;
mod rdma_link;
mod rdma_resource;
mod rdma_statistic;
mod report;
mod section;
mod sink;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod walk;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

pub use self::report::{ImportReport, NotRecognised, Recognised};

use self::machine::Machine;
use self::moment::{Clock, Layout, Moment};
use self::section::{Format, Section};
use self::sink::{Found, Sink};
use self::tree::Trees;
use self::walk::Walk;
use crate::observation::recording::Header;
use crate::observation::{Body, Nanos, Observation, Seeing, SourceState};
use crate::source::Emit;

/// Why a sysfs tree could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The directory cannot be opened.
    #[error("cannot open the tree {}: {source}", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Files that were recognised, read and put in order of time.
#[derive(Debug, Default)]
pub struct Import {
    trees: Vec<(PathBuf, Moment)>,
    found: Vec<Found>,
    machine: Machine,
    layout: Layout,
    /// How the times of files were come by.
    times: BTreeSet<&'static str>,
    /// The last moment at which a file is said to have been taken.
    taken: Vec<Moment>,
    report: ImportReport,
}

impl Import {
    /// Looks at the paths and reads the texts. What cannot be used is in the [`ImportReport`].
    #[must_use]
    pub fn open(paths: &[PathBuf]) -> Self {
        let mut walk = Walk::default();
        for path in paths {
            walk.add(path);
        }
        let mut import = Self { trees: walk.trees, ..Self::default() };
        import.trees.sort_by_key(|(_, moment)| order(*moment));
        for (path, why) in walk.not {
            import.report.not(&path, why);
        }
        let mut trees = std::mem::take(&mut import.trees);
        trees.retain(|(path, _)| match tree::learn(path, &mut import.machine) {
            Ok(()) => true,
            Err(error) => {
                import.report.not(path, error.to_string());
                false
            }
        });
        import.trees = trees;
        let mut texts = Vec::new();
        for file in walk.texts {
            match text::read(&file.path) {
                Ok(text) => texts.push((file, text)),
                Err(why) => import.report.not(&file.path, why),
            }
        }
        // What one file says of ports and hosts helps to read another.
        for (_, text::Text { text, .. }) in &texts {
            for section in section::sections(text, "").0.iter().filter(|s| s.format == Format::RdmaLink) {
                for port in rdma_link::ports(section) {
                    import.machine.see_port(&port);
                }
            }
        }
        // Logs of the machine tell its name; a job's log may be of many.
        texts.sort_by_key(|(_, text)| text.text.contains(" NCCL "));
        let mut tie = None;
        for (file, text) in &texts {
            tie = import.text(&file.path, file.moment, text).or(tie);
        }
        import.lay(tie);
        import
    }

    /// Reads one text; gives back the tie of the clocks where it has one.
    fn text(&mut self, path: &Path, given: Option<Moment>, text: &text::Text) -> Option<i64> {
        let text::Text { text, note } = text;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (sections, unclaimed) = section::sections(text, &name);
        if sections.is_empty() {
            let why =
                if text.trim().is_empty() { "empty: whoever was asked gave no answer" } else { why_foreign(text) };
            self.report.not(path, why.to_owned());
            return None;
        }
        let modified = modified(path);
        let given_wall = given.and_then(|m| if let Clock::Wall(t) = m.clock { Some(t) } else { None });
        let mut tie = None;
        let mut sink = Sink::new(&mut self.machine, &name, Moment::at(Clock::Unknown), given_wall.or(modified));
        let mut whys = Vec::new();
        let mut how = BTreeSet::new();
        let mut formats = BTreeSet::new();
        for section in &sections {
            let (moment, from) = match (section.date, given, modified) {
                (Some(date), ..) => (Moment::at(Clock::Wall(date)), "the text"),
                (None, Some(given), _) => (given, "TIMES or the tree beside"),
                (None, None, Some(modified)) => (Moment::at(Clock::Wall(modified)), "the file's modification"),
                (None, None, None) => (Moment::at(Clock::Unknown), "nothing: put at the end"),
            };
            sink.moment = moment;
            match read(section, &name, &mut sink) {
                Ok(()) => {
                    formats.insert(section.format);
                    how.insert(if section.format == Format::KernelLog { "the text" } else { from });
                }
                Err(why) => whys.push(format!("{}: {why}", section.format.name())),
            }
        }
        if sink.year_taken && sink.taken.is_some() {
            how.insert(if given_wall.is_some() {
                "TIMES, for the years"
            } else {
                "the file's modification, for the years"
            });
        }
        let harvest = sink.harvest();
        tie = harvest.tie.or(tie);
        for why in &whys {
            self.report.not(path, why.clone());
        }
        if formats.is_empty() {
            return tie;
        }
        if let Some(given) = given {
            self.taken.push(given);
        }
        let formats: Vec<&str> = formats.into_iter().map(Format::name).collect();
        let observations = harvest.found.iter().filter(|found| !matches!(found.body, Body::Note(_))).count();
        self.report.recognised(Recognised {
            path: path.to_owned(),
            format: formats.join(", "),
            observations,
            time: how.iter().copied().collect::<Vec<_>>().join(", "),
            unclaimed,
            notes: note.iter().cloned().chain(harvest.notes).collect(),
        });
        self.times.extend(how);
        self.found.extend(harvest.found);
        tie
    }

    /// Lays the clocks.
    fn lay(&mut self, tie: Option<i64>) {
        let moments: Vec<Moment> = self
            .found
            .iter()
            .map(|f| f.moment)
            .chain(self.trees.iter().map(|t| t.1))
            .chain(self.taken.iter().copied())
            .collect();
        self.layout = Layout::of(&moments, tie);
        for ((device, port), names) in &self.machine.not_enabled {
            for found in &mut self.found {
                if let Body::Counters(set) = &mut found.body
                    && *set.device == **device
                    && set.port == Some(*port)
                    && set.source == crate::observation::CounterSource::Nldev
                {
                    for name in names.iter().filter(|name| set.values.get(name).is_none()) {
                        set.unavailable.push(name.clone(), "supported, not switched on".into());
                    }
                }
            }
        }
        for (path, _) in &self.trees {
            self.report.recognised(Recognised {
                path: path.clone(),
                format: "sysfs tree".to_owned(),
                time: "TIMES or none".to_owned(),
                ..Recognised::default()
            });
        }
    }

    /// Nothing was recognised.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.report.files.is_empty()
    }

    /// Sysfs trees among what was recognised.
    #[must_use]
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    /// What was recognised and what was not.
    #[must_use]
    pub fn report(&self) -> &ImportReport {
        &self.report
    }

    /// The header of the recording: the machine's name where all logs agree on it, the wall clock where a file has dates, and
    /// in `note` how times were come by and why there is no device, where there is none.
    #[must_use]
    pub fn header(&self) -> Header {
        let mut notes = Vec::new();
        let device =
            self.found.iter().any(|found| names_device(&found.body)) || self.machine.introductions().next().is_some();
        if !device {
            let why = self.trees.first().and_then(|(path, _)| tree::why_empty(path));
            let nothing = || self.trees.is_empty().then(|| "the imported files name no RDMA device".to_owned());
            notes.extend(why.or_else(nothing));
        }
        if !self.times.is_empty() {
            let how: Vec<&str> = self.times.iter().copied().collect();
            notes.push(format!("times are from {}", how.join(", ")));
        }
        notes.extend(self.layout.note.clone());
        let (unix_ns, mono_ns) = self.layout.anchor.unzip();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Header { unix_ns, mono_ns, host: self.machine.host().map(str::to_owned), note, ..Header::new() }
    }

    /// Emits all observations in order of time.
    ///
    /// # Errors
    /// A tree that was there before can no longer be opened. What was emitted before stands.
    pub fn emit(&self, emit: &mut Emit<'_>) -> Result<(), ImportError> {
        let at = |moment| self.layout.t(moment);
        let mut texts: Vec<(Nanos, &Found)> = self.found.iter().map(|found| (at(found.moment), found)).collect();
        // Stable: what one file says of one moment stays in its order.
        texts.sort_by_key(|(t, _)| *t);
        let mut trees = self.trees.iter().map(|(path, moment)| (at(*moment), path)).peekable();
        let first = texts.first().map(|(t, _)| *t).into_iter().chain(trees.peek().map(|(t, _)| *t)).min().unwrap_or(0);
        for body in self.machine.introductions() {
            emit(&Observation { t: first, body });
        }
        let mut polled = Trees::default();
        let mut end = first;
        for (t, found) in texts {
            while let Some((at, path)) = trees.next_if(|(at, _)| *at <= t) {
                polled.poll(path, at, emit)?;
            }
            // The body is the import's own; only what is lent is handed on.
            emit(&Observation { t, body: found.body.clone() });
            end = end.max(t);
        }
        for (at, path) in trees {
            polled.poll(path, at, emit)?;
            end = end.max(at);
        }
        let taken = self.taken.iter().map(|moment| at(*moment)).max();
        if let Some(t) = taken.filter(|t| *t > end) {
            // The bundle was taken later than the last thing it tells: until then nothing more happened.
            let state = SourceState { source: "import".into(), state: Seeing::Ok, reason: None };
            emit(&Observation { t, body: Body::Source(state) });
        }
        Ok(())
    }
}

/// A sort key of samples.
fn order(moment: Moment) -> (i64, u32) {
    let t = match moment.clock {
        Clock::Uptime(t) | Clock::Relative(t) => i64::try_from(t).unwrap_or(i64::MAX),
        Clock::Wall(t) => t,
        Clock::Unknown => i64::MAX,
    };
    (t, moment.order)
}

fn names_device(body: &Body<'_>) -> bool {
    matches!(body, Body::Device(_) | Body::Port(_) | Body::Counters(_) | Body::Qp(_) | Body::Async(_))
}

/// Reads a section with its format's reader.
fn read(section: &Section<'_>, file: &str, sink: &mut Sink<'_>) -> Result<(), String> {
    match section.format {
        Format::Ethtool => return ethtool::read(section, file, sink),
        Format::RdmaStatistic => return rdma_statistic::read(section, sink),
        Format::RdmaResource => return rdma_resource::read(section, sink),
        Format::Perfquery => return perfquery::read(section, sink),
        Format::RdmaLink => rdma_link::read(section, sink),
        Format::Ibqueryerrors => ibqueryerrors::read(section, sink),
        Format::KernelLog => kernel_log::read(section, sink),
        Format::Nccl => nccl::read(section, sink),
        Format::PortSeries => port_series::read(section, sink),
    }
    Ok(())
}

/// Why a text is not recognised.
fn why_foreign(text: &str) -> &'static str {
    let first = text.lines().next().unwrap_or_default();
    if first.contains("rdmascope-recording") {
        "a recording already: replay it"
    } else {
        "no line of a format that is read"
    }
}

/// When a file was last written, in whole seconds: copying a bundle without its times writes all files at once. Archives
/// that keep no times give 1970 or 1980: a time before RDMA adapters is none.
fn modified(path: &Path) -> Option<i64> {
    const YEAR_2000_S: u64 = 946_684_800;
    let since = std::fs::metadata(path).ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(Some(since.as_secs()).filter(|s| *s > YEAR_2000_S)?).ok()?.checked_mul(1_000_000_000)
}

/// Seconds from 0 to a century as nanoseconds.
fn seconds(text: &str) -> Option<Nanos> {
    let ns = (text.parse::<f64>().ok()? * 1e9).round();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range by the test before it")]
    (0.0..3.0e18).contains(&ns).then_some(ns as Nanos)
}

/// What one text gives, for the readers' tests.
#[cfg(test)]
#[derive(Debug)]
struct TextRead {
    found: Vec<Found>,
    notes: Vec<String>,
    not: Vec<String>,
    tie: Option<i64>,
}

/// Reads one text that nobody gave a time.
#[cfg(test)]
fn read_text(file: &str, text: &str) -> TextRead {
    let text = text::text(text.as_bytes()).unwrap_or_default();
    let mut import = Import::default();
    for section in section::sections(&text.text, "").0.iter().filter(|s| s.format == Format::RdmaLink) {
        for port in rdma_link::ports(section) {
            import.machine.see_port(&port);
        }
    }
    let tie = import.text(Path::new(file), None, &text);
    let notes = import.report.files.iter().flat_map(|file| file.notes.clone()).collect();
    let not = import.report.not_recognised.iter().map(|not| not.why.clone()).collect();
    TextRead { found: import.found, notes, not, tie }
}
