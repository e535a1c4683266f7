//! 9 Self: what the program sees and does not see, what it lost, what it costs.

use collector::feed::Mode;
use collector::inventory::{Likelihood, ProbeGroupRecord, UnseenProcess, World};
use collector::observation::{CounterSource, Nanos, Seeing};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::history::Write;
use super::judged::{Judged, NotJudged, nowhere};
use super::{Pane, Reaction, Scene, more_below, put, wrap};
use crate::key::Action;
use crate::number::{self, UNKNOWN};
use crate::selection::Selection;

/// The pane.
#[derive(Default)]
pub(crate) struct Own {
    text: Selection,
    lines: usize,
    /// Who posts unseen, and in which world: finding it out takes a look at each QP.
    unseen: Option<((u64, Nanos), Vec<UnseenProcess>)>,
    judged: Judged,
}

impl Own {
    fn page<'s>(&mut self, scene: Scene<'s>, width: usize) -> Page<'s> {
        let world = (scene.world.windows, scene.world.now);
        if self.unseen.as_ref().is_none_or(|(of, _)| *of != world) {
            self.unseen = Some((world, scene.world.unseen()));
        }
        let unjudged = self.judged.missing(scene.world);
        Page::of(scene, width, self.unseen.as_ref().map_or(&[], |(_, unseen)| unseen), &unjudged)
    }
}

impl Pane for Own {
    fn draw(&mut self, scene: Scene<'_>, area: Rect, buf: &mut Buffer) {
        let lines = self.page(scene, usize::from(area.width)).lines;
        self.lines = lines.len();
        self.text.height = usize::from(area.height);
        self.text.top = self.text.top.min(lines.len().saturating_sub(self.text.height));
        for (at, line) in (0u16..).zip(lines.iter().skip(self.text.top).take(self.text.height)) {
            put(buf, area, at, line);
        }
        more_below(buf, area, self.text.top + self.text.height < self.lines, "", scene.theme);
    }

    fn act(&mut self, action: Action, scene: Scene<'_>) -> Reaction {
        if action == Action::Copy {
            let lines = self.page(scene, 120).lines;
            let lines: Vec<String> = lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect();
            let text = lines.join("\n");
            return Reaction::Copy(text, "this page");
        }
        if self.text.scroll(action, self.lines) { Reaction::Done } else { Reaction::Ignored }
    }
}

/// When a source last brought something the world keeps; `None` for sources that bring none of it.
fn last_data(world: &World, source: &str) -> Option<Nanos> {
    let counters = |wanted: &[CounterSource]| {
        let sets = world.ports.iter().flat_map(|port| &port.sets);
        let sets = sets.chain(world.devices.iter().flat_map(|device| &device.sets));
        sets.filter(|set| wanted.contains(&set.source)).map(|set| set.t).max()
    };
    match source {
        "sysfs" => counters(&[CounterSource::Counters, CounterSource::HwCounters])
            .into_iter()
            .chain(world.ports.iter().map(|port| port.t))
            .max(),
        "nldev" => counters(&[CounterSource::Nldev]),
        "ethtool" => counters(&[CounterSource::Ethtool]),
        "pcie" => world.pcie.values().map(|record| record.t).max(),
        "probes" => world.probes.as_ref().map(|probes| probes.t),
        _ => None,
    }
}

/// The time ages are told from: of a live world that of its publication, for a collector that is behind is no fresher.
fn present(scene: Scene<'_>) -> Nanos {
    match scene.status.mode {
        Mode::Replay => scene.world.now,
        Mode::Live | Mode::Demo => scene.status.published_at.max(scene.world.now),
    }
}

/// How a group of data-path probes stands in its budget.
fn standing(group: &ProbeGroupRecord) -> String {
    let windows = match (group.window, group.paused) {
        (None, false) => "attached all the time".to_owned(),
        (None, true) => "paused: over budget".to_owned(),
        (Some((window, period)), paused) => format!(
            "{}attached for {} of each {}, and counted only then",
            if paused { "paused, " } else { "" },
            number::span(window),
            number::span(period)
        ),
    };
    let how = if group.measured { "measured" } else { "assumed" };
    let cost = number::short_time(group.hit_ns);
    format!("{} hits/s at {cost} each ({how}), {windows}", number::per_second(group.hits_per_s))
}

/// The page being written.
struct Page<'s> {
    scene: Scene<'s>,
    width: usize,
    lines: Vec<Line<'static>>,
}

impl<'s> Page<'s> {
    fn of(scene: Scene<'s>, width: usize, unseen: &[UnseenProcess], unjudged: &[NotJudged]) -> Self {
        let mut page = Self { scene, width, lines: Vec::new() };
        page.notices();
        page.sources();
        page.probes();
        page.unseen(unseen);
        page.rules(unjudged);
        page.losses();
        page.cost();
        page
    }

    fn title(&mut self, title: &str) {
        if !self.lines.is_empty() {
            self.lines.push(Line::raw(""));
        }
        self.lines.push(Line::styled(format!(" {title}"), self.scene.theme.strong));
    }

    /// A line with a lead; the text goes on below itself.
    fn entry(&mut self, lead: &str, lead_style: Style, text: &str, style: Style) {
        let indent = lead.chars().count();
        let width = self.width.saturating_sub(indent + 1).max(20);
        for (at, part) in wrap(text, width).into_iter().enumerate() {
            let lead = if at == 0 { lead.to_owned() } else { " ".repeat(indent) };
            self.lines.push(Line::from(vec![Span::styled(lead, lead_style), Span::styled(part, style)]));
        }
    }

    fn notices(&mut self) {
        let (status, theme) = (self.scene.status, self.scene.theme);
        if let Some(recording) = &status.recording {
            self.title("recording");
            let size = number::bytes(recording.bytes);
            let text = format!(
                "{}, {size} before compression, {} observations",
                recording.path.display(),
                number::grouped(recording.observations)
            );
            let (lead, style) =
                if recording.stopped.is_none() { ("   running  ", theme.warning) } else { ("   ended    ", theme.dim) };
            self.entry(lead, style, &text, theme.text);
            if let Some(why) = &recording.stopped {
                self.entry("            ", theme.dim, why, theme.text);
            }
        }
        if !status.notices.is_empty() || !status.done.is_empty() {
            self.title("notices");
            for notice in status.notices.iter().rev() {
                self.entry("   ● ", theme.warning, notice, theme.text);
            }
            for done in status.done.iter().rev() {
                self.entry("   – ", theme.dim, done, theme.dim);
            }
        }
    }

    fn sources(&mut self) {
        let (world, status, theme) = (self.scene.world, self.scene.status, self.scene.theme);
        self.title("sources");
        let look = |state: Seeing| match state {
            Seeing::Ok => ("ok", theme.good),
            Seeing::Partial => ("partial", theme.warning),
            Seeing::Off => ("off", theme.dim),
        };
        for source in &status.sources {
            let (seeing, style) = look(source.state);
            let said = last_data(world, source.name).map(|t| present(self.scene).saturating_sub(t));
            let said = said.map_or(String::new(), |age| format!(", last data {} ago", number::age(age)));
            self.entry(
                &format!("   {seeing:<8}{:<12} ", source.name),
                style,
                &format!("{}{said}", if source.sees.is_empty() { "nothing" } else { &source.sees }),
                theme.text,
            );
            for missing in &source.missing {
                let fix = missing.fix.as_ref().map_or(String::new(), |fix| format!(" → {fix}"));
                let text = format!("{}: {}{fix}", missing.what, missing.reason);
                self.entry("              – ", theme.dim, &text, theme.dim);
            }
        }
        for (name, record) in &world.sources {
            if status.sources.iter().any(|source| *source.name == **name) {
                continue;
            }
            let (seeing, style) = look(record.state);
            let now = present(self.scene);
            let age = number::age(now.saturating_sub(record.t));
            let reason = record.reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
            let text = match last_data(world, name) {
                Some(t) => format!("last data {} ago{reason}", number::age(now.saturating_sub(t))),
                None => format!("said so {age} ago{reason}"),
            };
            self.entry(&format!("   {seeing:<8}{name:<12} "), style, &text, theme.text);
        }
        if status.sources.is_empty() && world.sources.is_empty() {
            self.entry("   ", theme.dim, "no source has said anything yet", theme.dim);
        }
    }

    fn probes(&mut self) {
        let (world, status, theme) = (self.scene.world, self.scene.status, self.scene.theme);
        self.title("probes");
        let Some(probes) = &world.probes else {
            self.entry(
                "   ",
                theme.dim,
                "no probe has reported: QPs are seen only as far as the kernel lists them",
                theme.dim,
            );
            return;
        };
        let style = if probes.attached < probes.wanted { theme.warning } else { theme.good };
        let hits = number::per_second(probes.hits_per_s);
        let cost = number::percent(probes.cost_share);
        let text = format!(
            "{hits} hits/s on the data path, estimated cost {cost} of one core{}, {} hits in all",
            probes.budget_share.map_or(String::new(), |share| format!(" of {} allowed", number::percent(Some(share)))),
            number::known_count(probes.hits)
        );
        self.entry(&format!("   {}/{} attached  ", probes.attached, probes.wanted), style, &text, theme.text);
        for group in &probes.groups {
            let style = if group.paused { theme.warning } else { theme.dim };
            self.entry(&format!("     {:<13} ", group.group), style, &standing(group), theme.text);
        }
        for (name, reason) in &probes.failed {
            self.entry(&format!("   – {name:<24} "), theme.warning, reason, theme.text);
        }
        for probe in &status.probes {
            if probes.failed.iter().any(|(name, _)| **name == *probe.name) {
                continue;
            }
            let (mark, style) = match (probe.attached, probe.wanted) {
                (true, _) => ("+", theme.good),
                (false, true) => ("–", theme.warning),
                (false, false) => ("–", theme.dim),
            };
            let at = probe.at.as_deref().unwrap_or("");
            let reason = probe.reason.as_deref().unwrap_or("");
            self.entry(&format!("   {mark} {:<24} ", probe.name), style, &format!("{at} {reason}"), theme.dim);
        }
    }

    /// Who posts, or may post, where no probe sees it; nothing where nobody does.
    fn unseen(&mut self, unseen: &[UnseenProcess]) {
        let theme = self.scene.theme;
        if unseen.is_empty() {
            return;
        }
        self.title("who posts, or may post, unseen");
        for process in unseen {
            let (mark, style) = match process.likelihood {
                Likelihood::Likely => ("●", theme.warning),
                Likelihood::Possible => ("–", theme.dim),
            };
            let text = format!("{} {}", process.who(), process.text(|bytes| Write::Bits.text(Some(bytes))));
            self.entry(&format!("   {mark} "), style, &text, theme.text);
        }
    }

    fn rules(&mut self, unjudged: &[NotJudged]) {
        let theme = self.scene.theme;
        self.title("rules");
        let all = collector::rule::all().len();
        let judged = all - nowhere(unjudged);
        let style = if unjudged.is_empty() { theme.good } else { theme.text };
        self.entry(&format!("   {judged}/{all} judged  "), style, "", theme.text);
        for (rule, reason, _) in unjudged {
            self.entry(&format!("   – {rule:<24} "), theme.dim, reason, theme.dim);
        }
    }

    fn losses(&mut self) {
        let (world, theme) = (self.scene.world, self.scene.theme);
        self.title("what was lost or forgotten");
        let mut any = false;
        for (source, n) in world.lost.iter().filter(|(_, n)| **n > 0) {
            any = true;
            self.entry(
                "   ● ",
                theme.warning,
                &format!("{source}: {} observations lost", number::grouped(*n)),
                theme.text,
            );
        }
        let counters: u64 = world.ports.iter().flat_map(|port| &port.sets).map(|set| set.dropped).sum();
        let bound: u64 = world.ports.iter().map(|port| port.bound.dropped).sum();
        for (n, what) in [
            (world.findings_dropped, "findings only counted: too many of one rule"),
            (world.qps.details_dropped, "QP histories dropped to make room for busier ones"),
            (world.qps.gone_dropped, "destroyed QPs no longer remembered"),
            (world.qp_failures.dropped, "QP failures no longer remembered"),
            (counters, "counter readings of sets with too many counters not stored"),
            (bound, "readings of bound counter sets not stored: too many sets on a port"),
        ] {
            if n > 0 {
                any = true;
                self.entry("   ● ", theme.info, &format!("{} {what}", number::grouped(n)), theme.text);
            }
        }
        if !any {
            self.entry("   ", theme.dim, "nothing", theme.dim);
        }
    }

    fn cost(&mut self) {
        let (world, status, theme) = (self.scene.world, self.scene.status, self.scene.theme);
        self.title("this program");
        let own = status.own;
        let text = format!(
            "cpu {} of one core, memory {}, a look every {}, {} windows of {}, {} QPs, {} with a history",
            number::percent(own.cpu_share),
            number::known_bytes(own.resident_bytes),
            number::span(status.interval_ns),
            number::grouped(world.windows),
            number::span(world.window_ns),
            number::grouped(world.qps.len() as u64),
            number::grouped(world.qps.details() as u64),
        );
        self.entry("   ", theme.text, &text, theme.text);
        let header = &world.header;
        let tool = header.tool.as_deref().unwrap_or(UNKNOWN);
        let kernel = header.kernel.as_deref().unwrap_or(UNKNOWN);
        let node = header.host.as_deref().unwrap_or(UNKNOWN);
        self.entry("   ", theme.text, &format!("node {node}, kernel {kernel}, observed by {tool}"), theme.dim);
    }
}
