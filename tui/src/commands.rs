//! What each command does: it opens a producer, runs it, and prints or shows what comes out.

use std::fs::Metadata;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::CommandFactory;
use collector::command::table::{counted, plain};
use collector::command::{check, doctor, failovers, findings, ports, qps};
use collector::engine::Engine;
use collector::feed::{Feed, Mode, OwnCost, RecordingStatus};
use collector::inventory::World;
use collector::live::Live;
use collector::node::{Node, NodeOptions};
use collector::observation::Observation;
use collector::observation::recording::Header;
use collector::remote::Remote;
use collector::replay::{Player, judge};
use collector::sim::{Simulator, scenarios};
use collector::sink::Sink;
use collector::sink::findings::{FindingLines, line};
use collector::sink::recording::{Recording, RecordingOptions, RecordingStartError};
use collector::source::nldev::binding::{self, Changes};
use rdmascope_screens::{ColorChoice, ScreenOptions};

use crate::args::{Cli, Command, Demo, Import, Record, Replay, Table, When};
use crate::collect;
use crate::config::{self, Config};
use crate::journal;
use crate::obey::{self, Role};

/// Runs what was asked.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // What needs no configuration works whatever is in the file: it may be what makes the file.
    match cli.command {
        Some(Command::VerbsOperations) => return Ok(collector::source::verbs::child_main()),
        Some(Command::ConfinedReturn) => return Ok(collector::source::probes::confined_main()),
        Some(Command::Config) => return printed(&config::sample()),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "rdmascope", &mut script);
            return printed(&String::from_utf8_lossy(&script));
        }
        Some(Command::Man { output: None }) => return printed(&manual()?),
        Some(Command::Man { output: Some(directory) }) => {
            clap_mangen::generate_to(Cli::command(), &directory)
                .with_context(|| format!("cannot write pages into {}", directory.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(Command::WhatIf(asked)) => {
            let report = asked.answer()?;
            return printed(&if asked.json { json(&report) } else { report.text() });
        }
        _ => {}
    }
    let config = config::resolve(&cli.global)?;
    match cli.command {
        None => live(&config),
        Some(Command::Demo(demo)) => self::demo(&config, &demo),
        Some(Command::Replay(replay)) => self::replay(&config, &replay),
        Some(Command::Record(record)) => self::record(&config, &record),
        Some(Command::Collect(asked)) => collect::run(&cli.global, &config, &asked),
        Some(Command::Check(asked)) => {
            let (engine, _) = judged(&config, asked.recording.as_deref(), Some(asked.time))?;
            let view = engine.view();
            let report = check::report(&view);
            let text = if asked.json { json(&report) } else { report.text(view.world) };
            print(&text)?;
            Ok(ExitCode::from(report.verdict.exit_code()))
        }
        Some(Command::Doctor { json, verbose }) => self::doctor(&config, json, verbose),
        Some(Command::Ports(table)) => print_table(&config, &table, |world, as_json| {
            let report = ports::report(world);
            if as_json { json(&report) } else { report.text() }
        }),
        Some(Command::Qps(table)) => print_table(&config, &table, |world, as_json| {
            let report = qps::report(world);
            if as_json { json(&report) } else { report.text() }
        }),
        Some(Command::Findings(table)) => print_table(&config, &table, |world, as_json| {
            let report = findings::report(world);
            if as_json { json(&report) } else { findings::text(world, &report.findings) }
        }),
        Some(Command::Failovers(table)) => print_table(&config, &table, |world, as_json| {
            let report = failovers::report(world);
            if as_json { json(&report) } else { failovers::text(world, &report) }
        }),
        Some(Command::Import(import)) => self::import(&import),
        Some(
            Command::Config
            | Command::Completions { .. }
            | Command::Man { .. }
            | Command::WhatIf(_)
            | Command::VerbsOperations
            | Command::ConfinedReturn,
        ) => Ok(ExitCode::SUCCESS),
    }
}

/// The live screen; on a node without RDMA the demo under a banner that says why.
fn live(config: &Config) -> anyhow::Result<ExitCode> {
    let node = Node::open(&NodeOptions { probes_aside: true, ..config.node.clone() })?;
    if !std::io::stdout().is_terminal() {
        let hint = match &node.no_device {
            Some(why) => format!("{why}; standard output is no terminal: try rdmascope demo --json"),
            None => "standard output is no terminal: try rdmascope ports, check or record".to_owned(),
        };
        print(&format!("{hint}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(why) = &node.no_device {
        let banner = format!("{why} — this is the demo aer-then-down, not this node");
        return show_demo(config, "aer-then-down", 1, Some(banner));
    }
    let live = Live::new(Mode::Live, node.header, config.rules.clone(), node.sources).interval(config.node.interval_ns);
    let feed = live.feed();
    let shown = show(config, &feed, || live.spawn());
    // The terminal is as before: what was undone, or could not be, is said where it stays.
    let latest = feed.latest();
    let told = latest.world.notes.iter().filter_map(|(_, note)| note.strip_prefix(binding::NAME)?.strip_prefix(": "));
    for told in told {
        journal::tell(format_args!("rdmascope: {}", plain(told)));
    }
    shown
}

fn show_demo(config: &Config, scenario: &str, seed: u64, banner: Option<String>) -> anyhow::Result<ExitCode> {
    let simulator =
        simulator(scenario, seed)?.starting_at(collector::clock::monotonic_ns(), collector::clock::unix_ns());
    let header = simulator.header();
    let live = Live::new(Mode::Demo, header, config.rules.clone(), vec![Box::new(simulator)]).banner(banner);
    show(config, &live.feed(), || live.spawn())
}

fn show(
    config: &Config,
    feed: &Feed,
    spawn: impl FnOnce() -> std::io::Result<std::thread::JoinHandle<()>>,
) -> anyhow::Result<ExitCode> {
    let producer = spawn().context("cannot start the collector thread")?;
    let shown = rdmascope_screens::run(feed.clone(), options(config));
    feed.send(collector::feed::Command::Stop);
    // A source stuck in a read must not hold the exit.
    let deadline = Instant::now() + Duration::from_secs(2);
    while !producer.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    shown.map(|()| ExitCode::SUCCESS)
}

fn options(config: &Config) -> ScreenOptions {
    let color = match config.color {
        When::Always => ColorChoice::Always,
        When::Never => ColorChoice::Never,
        When::Auto => ColorChoice::Auto,
    };
    ScreenOptions { color, ascii: config.ascii, ..ScreenOptions::default() }
}

pub(crate) fn simulator(scenario: &str, seed: u64) -> anyhow::Result<Simulator> {
    Simulator::new(scenario, seed).with_context(|| {
        let names: Vec<&str> = scenarios().iter().map(|scenario| scenario.name).collect();
        format!("there is no scenario {scenario:?}; there are: {}", names.join(", "))
    })
}

fn demo(config: &Config, demo: &Demo) -> anyhow::Result<ExitCode> {
    if demo.list {
        let mut text = String::new();
        for scenario in scenarios() {
            text.push_str(&format!("{:<20} {}\n", scenario.name, scenario.summary));
        }
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !demo.json {
        simulator(&demo.scenario, demo.seed)?;
        terminal_needed("demo --json")?;
        return show_demo(config, &demo.scenario, demo.seed, None);
    }
    let mut simulator = simulator(&demo.scenario, demo.seed)?;
    let mut engine = Engine::new(simulator.header(), config.rules.clone());
    let mut text = String::new();
    let end = u64::try_from(demo.time.as_nanos()).unwrap_or(u64::MAX);
    simulator.advance(end, &mut |observation| {
        engine.take(observation);
        for finding in engine.drain() {
            text.push_str(&line(&finding));
            text.push('\n');
        }
    });
    engine.finish();
    for finding in engine.drain() {
        text.push_str(&line(&finding));
        text.push('\n');
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn replay(config: &Config, replay: &Replay) -> anyhow::Result<ExitCode> {
    let name = replay.file.display();
    if !replay.json {
        let player = Player::open(&replay.file, config.rules.clone(), replay.speed)
            .map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        terminal_needed("replay --json")?;
        return show(config, &player.feed(), || player.spawn());
    }
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    let mut failed = None;
    let judged = judge(&replay.file, config.rules.clone(), |changed, _| {
        for finding in changed {
            if failed.is_none() {
                failed = writeln!(output, "{}", line(finding)).err();
            }
        }
    });
    let flushed = output.flush();
    let (_, notices) = judged.map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
    for notice in notices.lines() {
        journal::tell(format_args!("rdmascope: {name}: {}", plain(&notice)));
    }
    quiet_pipe(failed.map_or(flushed, Err))?;
    Ok(ExitCode::SUCCESS)
}

fn record(config: &Config, record: &Record) -> anyhow::Result<ExitCode> {
    let remote = Remote::default();
    let _signals = obey::signals(remote.clone(), Role::Command)?;
    let node = Node::open(&config.node)?;
    let mut header = node.header.clone();
    header.note = node.no_device.as_ref().map(ToString::to_string);
    not_onto(&record.file, &config.node.sysfs_root)?;
    let options = RecordingOptions { path: record.file.clone(), force: record.force, max_bytes: record.max_size };
    let recording = start_recording(options, &header, "--force")?;
    if let Some(why) = &node.no_device {
        journal::tell(format_args!("rdmascope: {why}; recording what there is"));
    }
    let status = recording.status();
    let mut live = Live::new(Mode::Live, header, config.rules.clone(), node.sources)
        .obeying(remote)
        .sink(Box::new(recording))
        .sink(Box::new(Undone))
        .until(record.time.map(end_of));
    if record.json {
        live = live.sink(Box::new(FindingLines::new(std::io::stdout())));
    }
    let progress = std::io::stderr().is_terminal() && !record.json;
    let said = Arc::new(AtomicBool::new(false));
    if !progress {
        live = live.sink(Box::new(Stopped { status: status.clone(), said: said.clone() }));
    }
    if progress {
        live = live.sink(Box::new(Progress { status: status.clone(), last: (0, Instant::now()) }));
    }
    live.run();
    if progress {
        journal::tell(format_args!(""));
    }
    let status = status.lock().map_or_else(|error| error.into_inner().clone(), |status| status.clone());
    if let Some(stopped) = status.stopped {
        if said.load(Ordering::Relaxed) {
            return Ok(ExitCode::from(2));
        }
        bail!("{stopped}");
    }
    journal::tell(format_args!(
        "rdmascope: {}, {} bytes before compression in {}",
        counted(status.observations, "observation"),
        status.bytes,
        record.file.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Begins a recording; where the file exists the error names the flag that replaces it.
pub(crate) fn start_recording(options: RecordingOptions, header: &Header, force: &str) -> anyhow::Result<Recording> {
    if options.path == Path::new("-") {
        bail!("- is no file name; /dev/stdout writes to standard output, ./- to a file of that name");
    }
    Recording::start(options, header.clone()).map_err(|error| match error {
        RecordingStartError::Exists(_) => anyhow::anyhow!("{error}; {force} replaces it"),
        RecordingStartError::Io(..) => error.into(),
    })
}

/// What is written is none of the files that are read: it would be emptied first.
pub(crate) fn not_onto<P: AsRef<Path>>(output: &Path, inputs: impl IntoIterator<Item = P>) -> anyhow::Result<()> {
    // What is not there, and what holds nothing, cannot be lost.
    let Some(there) = output.metadata().ok().filter(Metadata::is_file) else { return Ok(()) };
    let resolved = output.canonicalize().unwrap_or_else(|_| output.to_owned());
    for input in inputs {
        let input = input.as_ref();
        let Ok(own) = input.metadata() else { continue };
        let same = (own.dev(), own.ino()) == (there.dev(), there.ino());
        let within = own.is_dir() && input.canonicalize().is_ok_and(|directory| resolved.starts_with(directory));
        if same || within {
            let what = if same { "is" } else { "lies in" };
            bail!("{} {what} {}, which is read: write to another file", output.display(), input.display());
        }
    }
    Ok(())
}

/// Says at once, where there is no progress line, that the recording has stopped; findings go on.
struct Stopped {
    status: Arc<std::sync::Mutex<RecordingStatus>>,
    said: Arc<AtomicBool>,
}

impl Sink for Stopped {
    fn tick(&mut self, _: &World, _: &OwnCost) {
        let Ok(status) = self.status.lock() else { return };
        if let Some(stopped) = &status.stopped
            && !self.said.swap(true, Ordering::Relaxed)
        {
            journal::tell(format_args!("rdmascope: {stopped}"));
        }
    }
}

/// Says what was undone of what was changed.
struct Undone;

impl Sink for Undone {
    fn observation(&mut self, observation: &Observation<'_>, _: &World) {
        if let Some(told) = binding::told(&observation.body) {
            journal::tell(format_args!("rdmascope: {}", plain(told)));
        }
    }
}

/// The progress line of `record`.
struct Progress {
    status: Arc<std::sync::Mutex<RecordingStatus>>,
    last: (u64, Instant),
}

impl Sink for Progress {
    fn tick(&mut self, _: &World, _: &OwnCost) {
        let Ok(status) = self.status.lock() else { return };
        let (bytes, at) = self.last;
        let rate = status.bytes.saturating_sub(bytes) as f64 / at.elapsed().as_secs_f64().max(0.001) / 1024.0;
        self.last = (status.bytes, Instant::now());
        let stopped = status.stopped.as_deref().unwrap_or("");
        let _ = write!(
            std::io::stderr(),
            "\r\x1b[K{}, {} KiB, {rate:.0} KiB/s {stopped}",
            counted(status.observations, "observation"),
            status.bytes / 1024
        );
    }
}

/// The options of a command that looks for a moment: it binds and makes nothing, but undoes what a killed run left, where it may.
fn looking(config: &Config) -> NodeOptions {
    let changes = match config.node.changes {
        Changes::None => Changes::None,
        Changes::Undo | Changes::Bind(_) => Changes::Undo,
    };
    NodeOptions { changes, making: None, ..config.node.clone() }
}

fn doctor(config: &Config, as_json: bool, verbose: bool) -> anyhow::Result<ExitCode> {
    let node = Node::open(&looking(config))?;
    let mut live = Live::new(Mode::Live, node.header, config.rules.clone(), node.sources);
    live.poll_once();
    let (sources, probes) = live.availability();
    let report = doctor::DoctorReport::new(sources, probes, live.engine().world());
    print(&if as_json { json(&report) } else { report.text(verbose) })?;
    Ok(if report.sees_anything() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print_table(config: &Config, table: &Table, report: impl Fn(&World, bool) -> String) -> anyhow::Result<ExitCode> {
    let (engine, _) = judged(config, table.recording.as_deref(), table.time)?;
    print(&report(engine.world(), table.json))?;
    Ok(ExitCode::SUCCESS)
}

/// How much later than asked a watch ends, at most, so that its last reading is in it.
const MOST_LATE: Duration = Duration::from_millis(100);

/// The engine at the end of a recording, or after watching this node for a time.
fn judged(config: &Config, recording: Option<&Path>, time: Option<Duration>) -> anyhow::Result<(Engine, Vec<String>)> {
    if let Some(path) = recording {
        let (engine, notices) = judge(path, config.rules.clone(), |_, _| {})
            .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        for notice in notices.lines() {
            journal::tell(format_args!("rdmascope: {}: {}", path.display(), plain(&notice)));
        }
        return Ok((engine, notices.lines()));
    }
    let node = Node::open(&looking(config))?;
    let mut header: Header = node.header;
    header.note = node.no_device.as_ref().map(ToString::to_string);
    let mut live = Live::new(Mode::Live, header, config.rules.clone(), node.sources);
    match time.filter(|time| !time.is_zero()) {
        Some(time) => {
            let remote = Remote::default();
            let _signals = obey::signals(remote.clone(), Role::Command)?;
            let interval = Duration::from_nanos(config.node.interval_ns);
            if time < interval {
                journal::tell(format_args!(
                    "rdmascope: --for {} is shorter than the interval of {}: one reading, and no rates",
                    humantime::format_duration(time),
                    humantime::format_duration(interval)
                ));
            }
            // The reading that is due at the end is one of them: it comes a little later than the first one and its time.
            let late = if time < interval { Duration::ZERO } else { (interval / 10).min(MOST_LATE) };
            let time = time + late;
            live = live.obeying(remote).until(Some(end_of(time)));
            live.run_on();
        }
        None => live.poll_once(),
    }
    let (engine, status) = live.into_engine();
    Ok((engine, status.notices))
}

/// Files named in an error, which is one line.
const FEW: usize = 3;

fn import(asked: &Import) -> anyhow::Result<ExitCode> {
    let import = collector::import::Import::open(&asked.paths);
    let report = import.report();
    let not = || report.not_recognised.iter().map(|not| format!("{}: {}", not.path.display(), not.why));
    if import.is_empty() {
        let more = match report.not_recognised.len().saturating_sub(FEW) {
            0 => String::new(),
            n => format!("; and {n} more"),
        };
        bail!("nothing to import: {}{more}", not().take(FEW).collect::<Vec<_>>().join("; "));
    }
    let within = report.files.iter().map(|file| &file.path).chain(report.not_recognised.iter().map(|not| &not.path));
    not_onto(&asked.output, asked.paths.iter().chain(within))?;
    let options = RecordingOptions { path: asked.output.clone(), force: asked.force, max_bytes: None };
    let header = import.header();
    let mut recording = start_recording(options, &header, "--force")?;
    let status = recording.status();
    let world = World::new(header);
    import.emit(&mut |observation| recording.observation(observation, &world))?;
    print(&if asked.json { json(report) } else { report.text() })?;
    for not in not() {
        journal::tell(format_args!("rdmascope: not recognised: {}", plain(&not)));
    }
    recording.finish();
    let status = status.lock().map_or_else(|error| error.into_inner().clone(), |status| status.clone());
    if let Some(stopped) = status.stopped {
        bail!("{stopped}");
    }
    let (trees, files) = (import.trees(), report.files.len() - import.trees());
    let some = |n: usize, one: &str| (n > 0).then(|| counted(u64::try_from(n).unwrap_or(u64::MAX), one));
    let from: Vec<String> = [some(trees, "tree"), some(files, "file")].into_iter().flatten().collect();
    journal::tell(format_args!(
        "rdmascope: {} from {} in {}",
        counted(status.observations, "observation"),
        from.join(" and "),
        asked.output.display()
    ));
    Ok(if report.not_recognised.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn manual() -> anyhow::Result<String> {
    let mut page = Vec::new();
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("rdmascope-{}", sub.get_name());
        let man = clap_mangen::Man::new(sub.clone().name(name));
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    String::from_utf8(page).context("the manual page is not UTF-8")
}

fn terminal_needed(instead: &str) -> anyhow::Result<()> {
    if !std::io::stdout().is_terminal() {
        bail!("standard output is no terminal; try rdmascope {instead}");
    }
    Ok(())
}

/// So long from now, `CLOCK_MONOTONIC` ns.
pub(crate) fn end_of(time: Duration) -> u64 {
    collector::clock::monotonic_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn json(report: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    text.push('\n');
    text
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    quiet_pipe(output.write_all(text.as_bytes()).and_then(|()| output.flush()))
}

fn printed(text: &str) -> anyhow::Result<ExitCode> {
    print(text).map(|()| ExitCode::SUCCESS)
}

/// A reader that has seen enough (`| head`) is no error.
pub(crate) fn quiet_pipe(result: std::io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn a_command_that_looks_once_binds_and_makes_nothing_though_changes_are_allowed() {
        let cli = Cli::try_parse_from(["rdmascope", "--allow-changes", "doctor"]).expect("it parses");
        let config = crate::config::resolve(&cli.global).expect("the defaults");
        assert!(config.node.making.is_some(), "the screen and the service make some");
        let options = looking(&config);
        assert_eq!((options.changes, options.making), (Changes::Undo, None));
        let config = Config { node: NodeOptions { changes: Changes::None, ..config.node.clone() }, ..config };
        assert_eq!(looking(&config).changes, Changes::None);
    }
}
