//! `collect`: watching without a screen, for a service. What is concluded goes to a local socket and to hooks, what is
//! observed to a recording.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::bail;
use collector::clock;
use collector::command::table::counted;
use collector::feed::{Mode, OwnCost, RecordingStatus, ReloadStatus};
use collector::finding::{Finding, FindingState};
use collector::inventory::World;
use collector::live::Live;
use collector::metric::Reports;
use collector::node::{Node, NodeOptions};
use collector::observation::recording::Header;
use collector::observation::{Body, Observation, Seeing};
use collector::remote::Remote;
use collector::replay::Stream;
use collector::sink::hook::{Exchange, HookStatus, Hooks};
use collector::sink::otlp::SignalStatus;
use collector::sink::prometheus::PrometheusStatus;
use collector::sink::recording::{Recording, RecordingOptions, parts_there};
use collector::sink::ring::{Ring, RingOptions, RingStatus};
use collector::sink::socket::{Socket, SocketError, SocketOptions, SocketStatus, group_id};
use collector::sink::{Log, Sink};
use collector::source::nldev::binding;

use crate::args::{self, Collect, Global};
use crate::commands::{end_of, not_onto, simulator, start_recording};
use crate::config::{Config, key};
use crate::journal::{self, Level, inform, say};
use crate::notify::Manager;
use crate::obey::{self, Role, Signals};
use crate::otlp;
use crate::reload::{Regroup, Reload};
use crate::scrape;

/// Runs until a signal, or the end of what it was asked for.
pub(crate) fn run(global: &Global, config: &Config, asked: &Collect) -> anyhow::Result<ExitCode> {
    journal::set_level(config.log);
    let remote = Remote::default();
    let signals = obey::signals(remote.clone(), Role::Service)?;
    let manager = Manager::find();
    let service = Service { global, config, asked, remote: remote.clone(), signals, manager };
    let until = asked.time.map(end_of);
    if let Some(file) = &asked.replay {
        let named = |error| anyhow::anyhow!("{}: {error}", file.display());
        let stream = Stream::open(file, config.rules.clone(), asked.speed, asked.stay).map_err(named)?;
        let mut stream = stream.obeying(remote).until(until);
        let outputs = Outputs::start(config, asked, stream.header())?;
        inform(&format!("collecting from the recording {}; {}", file.display(), outputs.what));
        let (sinks, account) = service.begin(outputs)?;
        for sink in sinks {
            stream.sink(sink);
        }
        let notices = stream.run().map_err(named)?;
        for line in notices.lines() {
            say(&line);
        }
        return Ok(account.end());
    }
    if let Some(name) = &asked.scenario {
        let simulator = simulator(name, 1)?.starting_at(clock::monotonic_ns(), clock::unix_ns());
        let header = simulator.header();
        let outputs = Outputs::start(config, asked, &header)?;
        inform(&format!("collecting from the simulated node {name}; {}", outputs.what));
        let (sinks, account) = service.begin(outputs)?;
        let live = Live::new(Mode::Demo, header, config.rules.clone(), vec![Box::new(simulator)]);
        sinks.into_iter().fold(live.obeying(remote).until(until), Live::sink).run();
        return Ok(account.end());
    }
    // What can be wrong about the outputs is said before the probes are started.
    let mut node = Node::open(&NodeOptions { probes_aside: true, ..config.node.clone() })?;
    node.header.note = node.no_device.as_ref().map(ToString::to_string);
    let outputs = Outputs::start(config, asked, &node.header)?;
    inform(&format!("collecting from {}; {}", where_from(config), outputs.what));
    if let Some(why) = &node.no_device {
        inform(&format!("{why}; waiting for a device"));
    }
    let (sinks, account) = service.begin(outputs)?;
    let live = Live::new(Mode::Live, node.header, config.rules.clone(), node.sources).interval(config.node.interval_ns);
    sinks.into_iter().fold(live.obeying(remote).until(until), Live::sink).run();
    Ok(account.end())
}

/// What makes a service of it: signals, the service manager, and a configuration that can be read again.
struct Service<'a> {
    global: &'a Global,
    config: &'a Config,
    asked: &'a Collect,
    remote: Remote,
    signals: Signals,
    manager: Manager,
}

impl Service<'_> {
    /// From here on a hang-up has the configuration read again, and the service manager is told what goes on.
    fn begin(self, outputs: Outputs) -> anyhow::Result<(Vec<Box<dyn Sink>>, Account)> {
        let Outputs { mut sinks, account, exchange, regroup, .. } = outputs;
        let mut reload = Reload {
            global: self.global.clone(),
            group_asked: self.asked.socket_group.clone(),
            started: self.config.file.clone(),
            window_s: self.config.rules.window_s,
            remote: self.remote,
            hooks: exchange,
            regroup,
            manager: self.manager.clone(),
            status: account.reload.clone(),
        };
        self.signals.reload_with(move || reload.run())?;
        if let Some(pulse) = self.manager.pulse(account.reload.clone()) {
            sinks.insert(0, Box::new(pulse));
        }
        Ok((sinks, account))
    }
}

/// Whether `collect` could be started with this: what is looked at before it is put in force.
pub(crate) fn judge(config: &Config) -> anyhow::Result<()> {
    let asked = Collect::default();
    max_record_bytes(config, &asked)?;
    otlp::queue_bytes(config, &asked)?;
    ring_options(config, &asked).map(drop)
}

fn where_from(config: &Config) -> String {
    let root = config.node.sysfs_root.as_ref();
    root.map_or_else(|| "this node".to_owned(), |root| root.display().to_string())
}

/// Where findings and observations go.
struct Outputs {
    sinks: Vec<Box<dyn Sink>>,
    account: Account,
    /// In a few words.
    what: String,
    /// What can be changed while they run.
    exchange: Exchange,
    regroup: Option<Regroup>,
}

/// What became of them, for the last line.
struct Account {
    recording: Option<Arc<Mutex<RecordingStatus>>>,
    ring: Option<Box<dyn Fn() -> RingStatus>>,
    socket: Option<Box<dyn Fn() -> SocketStatus>>,
    hooks: Box<dyn Fn() -> Vec<HookStatus>>,
    /// Findings that no hook saw.
    hooks_lost: Box<dyn Fn() -> u64>,
    prometheus: Option<Box<dyn Fn() -> PrometheusStatus>>,
    otlp: Option<OtlpStatus>,
    raised: Arc<AtomicU64>,
    reload: Arc<Mutex<ReloadStatus>>,
}

type OtlpStatus = Box<dyn Fn() -> [SignalStatus; 3]>;

impl Outputs {
    fn start(config: &Config, asked: &Collect, header: &Header) -> anyhow::Result<Self> {
        let log: Log = Arc::new(say);
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        let mut what = Vec::new();
        // The hooks first: nothing is to come between an event and their start.
        let hooks = Hooks::start(config.hooks.clone(), header, log.clone())?;
        let exchange = hooks.exchange();
        let hooks_status = Box::new(hooks.status());
        let hooks_lost = Box::new(hooks.lost());
        let reports = Reports::default();
        scrape::report_hooks(&reports, hooks.status(), hooks.lost());
        sinks.push(Box::new(hooks));
        let socket = socket(config, asked, header, &log)?;
        let (socket, words) = socket;
        what.push(words);
        let socket_status = socket.as_ref().map(|socket| Box::new(socket.status()) as Box<dyn Fn() -> SocketStatus>);
        let regroup = socket.as_ref().map(|socket| Box::new(socket.regroup()) as Regroup);
        if let Some(socket) = &socket {
            scrape::report_socket(&reports, socket.status());
        }
        sinks.extend(socket.map(|socket| Box::new(socket) as Box<dyn Sink>));
        what.push(match config.hooks.len() {
            0 => "no hook".to_owned(),
            1 => "1 hook".to_owned(),
            n => format!("{n} hooks"),
        });
        let recording = recording(config, asked, header)?;
        what.push(match &recording {
            Some((path, _)) => format!("recording {}", path.display()),
            None => "no recording".to_owned(),
        });
        let recording = recording.map(|(_, recording)| recording);
        let recording_status = recording.as_ref().map(Recording::status);
        if let Some(status) = &recording_status {
            scrape::report_recording(&reports, status.clone());
        }
        let prometheus = scrape::prometheus(config, asked, &reports, &log)?;
        let prometheus_status = prometheus.as_ref().map(|(page, _)| Box::new(page.status()) as Box<_>);
        if let Some((page, words)) = prometheus {
            what.push(words);
            sinks.push(Box::new(page));
        }
        let otlp = otlp::start(config, asked, header, &reports, &log)?;
        let otlp_status = otlp.as_ref().map(|(otlp, _)| Box::new(otlp.status()) as OtlpStatus);
        if let Some((otlp, words)) = otlp {
            what.push(words);
            sinks.push(Box::new(otlp));
        }
        sinks.extend(recording.map(|recording| Box::new(recording) as Box<dyn Sink>));
        let ring = ring(config, asked, header, &log)?;
        what.extend(ring.as_ref().map(|(path, _)| format!("ring {}", path.display())));
        let ring_status = ring.as_ref().map(|(_, ring)| Box::new(ring.status()) as Box<dyn Fn() -> RingStatus>);
        sinks.extend(ring.map(|(_, ring)| Box::new(ring) as Box<dyn Sink>));
        let raised = Arc::new(AtomicU64::new(0));
        let stopped = recording_status.clone();
        sinks.push(Box::new(Notes { raised: raised.clone(), recording: stopped, said: false }));
        let account = Account {
            recording: recording_status,
            ring: ring_status,
            socket: socket_status,
            hooks: hooks_status,
            hooks_lost,
            prometheus: prometheus_status,
            otlp: otlp_status,
            raised,
            reload: Arc::default(),
        };
        Ok(Self { sinks, account, what: what.join(", "), exchange, regroup })
    }
}

/// The socket, and what is to be said of it.
fn socket(config: &Config, asked: &Collect, header: &Header, log: &Log) -> anyhow::Result<(Option<Socket>, String)> {
    let wanted = asked.socket.as_ref().or(config.collect.socket.as_ref());
    let group = asked.socket_group.as_ref().or(config.collect.socket_group.as_ref());
    let group = group.filter(|name| !name.is_empty()).map(|name| group_id(name)).transpose()?;
    let path = match wanted.map(String::as_str) {
        Some("off") => return Ok((None, "no socket".to_owned())),
        Some("") => bail!("--socket: an empty path; off makes no socket"),
        Some(path) => PathBuf::from(path),
        None => match default_socket() {
            Some(path) => path,
            None => return Ok((None, "no socket (no XDG_RUNTIME_DIR)".to_owned())),
        },
    };
    match Socket::start(&SocketOptions { path: path.clone(), group }, header.clone(), log.clone()) {
        Ok(socket) => Ok((Some(socket), format!("socket {}", path.display()))),
        // Nobody asked for it here, for example in a container without /run.
        Err(SocketError::Io(_, error)) if wanted.is_none() => {
            Ok((None, format!("no socket ({}: {error})", path.display())))
        }
        Err(error) => Err(error.into()),
    }
}

fn default_socket() -> Option<PathBuf> {
    // systemd names the directories that the unit's RuntimeDirectory= made, with colons between them.
    let made = std::env::var("RUNTIME_DIRECTORY").unwrap_or_default();
    if let Some(directory) = made.split(':').next().filter(|directory| directory.starts_with('/')) {
        return Some(PathBuf::from(directory).join("events.sock"));
    }
    if rustix::process::geteuid().is_root() {
        return Some("/run/rdmascope/events.sock".into());
    }
    let directory = std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty())?;
    Some(PathBuf::from(directory).join("rdmascope/events.sock"))
}

fn recording(config: &Config, asked: &Collect, header: &Header) -> anyhow::Result<Option<(PathBuf, Recording)>> {
    // A wrong size is an error also where nothing is recorded.
    let max_bytes = max_record_bytes(config, asked)?;
    let Some(path) = asked.record.clone().or_else(|| config.collect.record.clone()) else { return Ok(None) };
    let force = asked.record_force || config.collect.record_force;
    let parts = if max_bytes.is_some() { parts_there(&path) } else { Vec::new() };
    for output in std::iter::once(&path).chain(&parts) {
        not_onto(output, asked.replay.iter().chain(&config.node.sysfs_root))?;
    }
    let options = RecordingOptions { path: path.clone(), force, max_bytes };
    Ok(Some((path, start_recording(options, header, "--record-force")?)))
}

fn max_record_bytes(config: &Config, asked: &Collect) -> anyhow::Result<Option<u64>> {
    or_key("record-max-size", asked.record_max_size, config.collect.record_max_size.as_deref(), args::file_bytes)
}

/// The flag's value, or the key's.
fn or_key<T>(
    name: &str,
    flag: Option<T>,
    text: Option<&str>,
    read: fn(&str) -> Result<T, String>,
) -> anyhow::Result<Option<T>> {
    match (flag, text) {
        (None, Some(text)) => key(name, read(text)).map(Some),
        (flag, _) => Ok(flag),
    }
}

fn ring(config: &Config, asked: &Collect, header: &Header, log: &Log) -> anyhow::Result<Option<(PathBuf, Ring)>> {
    let Some(options) = ring_options(config, asked)? else { return Ok(None) };
    let path = options.directory.clone();
    Ok(Some((path, Ring::start(&options, header.clone(), log.clone())?)))
}

fn ring_options(config: &Config, asked: &Collect) -> anyhow::Result<Option<RingOptions>> {
    let file = &config.collect;
    let directory = asked.ring.clone().or_else(|| file.ring.clone()).unwrap_or_default();
    let default = RingOptions::new(directory);
    let minutes = asked.ring_minutes.or(file.ring_minutes);
    if minutes.is_some_and(|minutes| !(1..=1440).contains(&minutes)) {
        bail!("ring-minutes: 1 to 1440");
    }
    let most = asked.incident_max.or(file.incident_max);
    if most == Some(0) {
        bail!("incident-max: 1 or more");
    }
    let size = |name, flag, text: &Option<String>| or_key(name, flag, text.as_deref(), args::file_bytes);
    let options = RingOptions {
        keep: minutes.map_or(default.keep, |minutes| Duration::from_secs(60 * u64::from(minutes))),
        max_bytes: size("ring-max-size", asked.ring_max_size, &file.ring_max_size)?.unwrap_or(default.max_bytes),
        after: or_key("incident-after", asked.incident_after, file.incident_after.as_deref(), args::time)?
            .unwrap_or(default.after),
        max_incidents: most.map_or(default.max_incidents, |most| usize::try_from(most).unwrap_or(usize::MAX)),
        max_incident_bytes: size("incident-max-size", asked.incident_max_size, &file.incident_max_size)?
            .unwrap_or(default.max_incident_bytes),
        remove_oldest: asked.incident_remove_oldest || file.incident_remove_oldest,
        ..default
    };
    // Wrong values are errors also where there is no ring.
    Ok((!options.directory.as_os_str().is_empty()).then_some(options))
}

/// Counts, and says at once when the recording has stopped; the rest goes on.
struct Notes {
    raised: Arc<AtomicU64>,
    recording: Option<Arc<Mutex<RecordingStatus>>>,
    said: bool,
}

impl Sink for Notes {
    fn observation(&mut self, observation: &Observation<'_>, _: &World) {
        if let Body::Source(source) = &observation.body
            && journal::says(Level::Debug)
        {
            let reason = source.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            let state = match source.state {
                Seeing::Ok => "sees everything",
                Seeing::Partial => "sees a part",
                Seeing::Off => "sees nothing",
            };
            journal::detail(&format!("source {} {state}{reason}", source.source));
        }
        if let Some(told) = binding::told(&observation.body) {
            inform(told);
        }
    }

    fn findings(&mut self, findings: &[Arc<Finding>], _: &World) {
        let told = |finding: &&Arc<Finding>| finding.state != FindingState::Updated && journal::says(Level::Debug);
        for finding in findings.iter().filter(told) {
            let (id, state, severity) = (finding.id(), finding.state.name(), finding.severity.name());
            journal::detail(&format!("{state} {id} ({severity}): {}", finding.summary));
        }
        let raised = findings.iter().filter(|finding| finding.state == FindingState::Raised).count();
        self.raised.fetch_add(u64::try_from(raised).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn tick(&mut self, _: &World, _: &OwnCost) {
        let Some(Ok(status)) = self.recording.as_ref().map(|status| status.lock()) else { return };
        if let Some(stopped) = status.stopped.as_ref().filter(|_| !self.said) {
            journal::complain(stopped);
            self.said = true;
        }
    }
}

impl Account {
    /// The last line. A recording that stopped is the only failure at the end: everything else was said when it came.
    fn end(self) -> ExitCode {
        let mut words = vec![format!("{} raised", counted(self.raised.load(Ordering::Relaxed), "finding"))];
        let hooks = (self.hooks)();
        if !hooks.is_empty() {
            let sum = |count: fn(&HookStatus) -> u64| hooks.iter().map(count).sum::<u64>();
            words.push(format!(
                "{} started, {} failed",
                counted(sum(|hook| hook.started), "hook"),
                sum(|hook| hook.failed)
            ));
            let untold = sum(|hook| hook.dropped) + sum(|hook| hook.suppressed) + (self.hooks_lost)();
            if untold > 0 {
                words.push(format!("{} not told to a hook", counted(untold, "finding")));
            }
        }
        if let Some(socket) = self.socket.map(|status| status()) {
            words.push(format!("{}, {} dropped", counted(socket.connected, "reader"), socket.dropped));
            if socket.refused > 0 || socket.lost > 0 {
                words.push(format!(
                    "{} refused, {} lost",
                    counted(socket.refused, "reader"),
                    counted(socket.lost, "line")
                ));
            }
        }
        if let Some(pages) = self.prometheus.map(|status| status()) {
            words.push(format!("{} served to Prometheus", counted(pages.served, "page")));
        }
        words.extend(self.otlp.map(|status| otlp::words(&status())));
        let recording =
            self.recording.map(|status| status.lock().map_or_else(|e| e.into_inner().clone(), |s| s.clone()));
        if let Some(status) = &recording {
            words.push(format!("{} recorded", counted(status.observations, "observation")));
        }
        if let Some(ring) = self.ring.map(|status| status()) {
            words.push(format!("{} saved", counted(ring.incidents, "incident")));
            if ring.not_saved > 0 || ring.lost > 0 {
                words.push(format!(
                    "{} not saved, {} missing in the ring",
                    ring.not_saved,
                    counted(ring.lost, "observation")
                ));
            }
        }
        inform(&format!("ended: {}", words.join("; ")));
        journal::finish();
        if recording.is_some_and(|status| status.stopped.is_some()) { ExitCode::from(2) } else { ExitCode::SUCCESS }
    }
}
