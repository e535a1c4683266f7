//! The command line: what can be asked, and with which flags. Every flag has an `RDMASCOPE_*` variable and a
//! configuration key; the order of precedence is flag, variable, configuration file, default.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use collector::source::nldev::binding::BindBy;
use collector::source::packets::Watch;

use crate::journal::Level;

/// Watch RDMA on one node: per-QP and per-port timelines, early fault signs, ECN mis-marking.
///
/// Without a command: the live screen of this node.
#[derive(Debug, Parser)]
#[command(name = "rdmascope", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What is looked at in the place of this node: the command, and the arguments that say so; none where the command never
/// looks at it.
const INSTEAD: [(&str, &[&str]); 10] = [
    ("demo", &[]),
    ("replay", &[]),
    ("import", &[]),
    ("collect", &["replay", "scenario"]),
    ("check", &["recording"]),
    ("ports", &["recording"]),
    ("qps", &["recording"]),
    ("findings", &["recording"]),
    ("failovers", &["recording"]),
    ("whatif", &[]),
];
/// What says how this node is looked at.
const LOOKING: [&str; 11] = [
    "device",
    "exclude",
    "sysfs_root",
    "interval",
    "probe_budget",
    "max_qps",
    "packets",
    "packet_budget",
    "loopback",
    "allow_changes",
    "bind_by",
];

impl Cli {
    /// Reads the command line. A flag that would do nothing there is refused; a variable, which may be set for all commands,
    /// is not.
    pub(crate) fn of_args<I, T>(args: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let matches = Self::command().try_get_matches_from(args)?;
        if let Some((name, of)) = matches.subcommand() {
            let given =
                |id: &&str| of.try_contains_id(id).is_ok() && of.value_source(id) == Some(ValueSource::CommandLine);
            let instead = INSTEAD.iter().find(|(command, _)| *command == name).and_then(|(_, ids)| match ids {
                [] => Some(name.to_owned()),
                ids => ids.iter().find(|id| given(id)).map(|id| flag(id)),
            });
            // Only what judges a recording at its end has no time of its own.
            let ended = instead.as_deref() == Some("--recording");
            if let Some(instead) = instead
                && let Some(of_node) = LOOKING.into_iter().chain(ended.then_some("time")).find(|id| given(id))
            {
                let of_node = if of_node == "time" { "--for".to_owned() } else { flag(of_node) };
                let text = format!("{of_node} is about watching this node, which {instead} does not\n");
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
            }
        }
        Self::from_arg_matches(&matches)
    }
}

fn flag(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

/// Flags of every command.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Global {
    /// Configuration file (TOML); `rdmascope config` prints a sample
    #[arg(long, global = true, env = "RDMASCOPE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Watch only devices whose name matches this pattern (* and ?); may be given more than once
    #[arg(long, global = true, env = "RDMASCOPE_DEVICE", value_name = "GLOB", value_delimiter = ',')]
    pub(crate) device: Vec<String>,
    /// Never open anything of devices whose name matches this pattern; may be given more than once
    #[arg(long, global = true, env = "RDMASCOPE_EXCLUDE", value_name = "GLOB", value_delimiter = ',')]
    pub(crate) exclude: Vec<String>,
    /// Read this tree instead of /sys; switches off every source that is not sysfs or PCIe
    #[arg(long, global = true, env = "RDMASCOPE_SYSFS_ROOT", value_name = "DIR")]
    pub(crate) sysfs_root: Option<PathBuf>,
    /// Time between two readings of the counters, 100ms or more [default: 1s]
    #[arg(long, global = true, env = "RDMASCOPE_INTERVAL", value_name = "TIME", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
    /// Attach no eBPF program
    #[arg(long, global = true, env = "RDMASCOPE_NO_EBPF", value_parser = switch())]
    pub(crate) no_ebpf: bool,
    /// Share of one core the data-path probes may cost, for example 1%; off = no limit, 0 = no data-path probe
    /// [default: 1%]
    #[arg(long, global = true, env = "RDMASCOPE_PROBE_BUDGET", value_name = "SHARE", value_parser = budget)]
    pub(crate) probe_budget: Option<Budget>,
    /// QPs the probes have room for [default: twice those there are at start, at least 16384]
    #[arg(long, global = true, env = "RDMASCOPE_MAX_QPS", value_name = "N")]
    pub(crate) max_qps: Option<u32>,
    /// Look at RoCE packets: auto = on the network devices of software RDMA devices; NETDEV; mirror:NETDEV for a port that
    /// carries copies; off; several with commas [default: off]
    #[arg(long, global = true, env = "RDMASCOPE_PACKETS", value_name = "WHERE")]
    pub(crate) packets: Option<Watch>,
    /// Packets looked at in a second; what comes beyond is lost, and counted [default: 100000]
    #[arg(long, global = true, env = "RDMASCOPE_PACKET_BUDGET", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) packet_budget: Option<u32>,
    /// Measure how long a write from each port to itself takes, once a second; makes a queue pair on each
    #[arg(long, global = true, env = "RDMASCOPE_LOOPBACK", value_parser = switch())]
    pub(crate) loopback: bool,
    /// The program that measures it [default: rdmascope-verbs beside this one, else on PATH]
    #[arg(long, global = true, env = "RDMASCOPE_VERBS_PROGRAM", value_name = "FILE")]
    pub(crate) verbs_program: Option<PathBuf>,
    /// Allow what changes the node and is undone at the end: QPs made from now on are bound to hardware counters by their
    /// type, where nobody else has bound any, and a QP and a CQ of each kind are made for an instant (screen, record,
    /// collect); what a killed run left is undone
    #[arg(long, global = true, env = "RDMASCOPE_ALLOW_CHANGES", value_parser = switch())]
    pub(crate) allow_changes: bool,
    /// By what they are bound: type, or type,pid for a set of counters for each process [default: type]
    #[arg(long, global = true, env = "RDMASCOPE_BIND_BY", value_name = "WHAT")]
    pub(crate) bind_by: Option<BindBy>,
    /// How much collect says on standard error [default: info]
    #[arg(long, global = true, env = "RDMASCOPE_LOG", value_enum, value_name = "LEVEL")]
    pub(crate) log: Option<Level>,
    /// When to colour [default: auto; `NO_COLOR` is obeyed]
    #[arg(long, global = true, env = "RDMASCOPE_COLOR", value_enum, value_name = "WHEN")]
    pub(crate) color: Option<When>,
    /// Draw with ASCII characters only
    #[arg(long, global = true, env = "RDMASCOPE_ASCII", value_parser = switch())]
    pub(crate) ascii: bool,
}

/// When to colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What the data-path probes may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Budget {
    /// No limit.
    Off,
    /// A share of one core, 0–1; 0 attaches no data-path probe.
    Share(f64),
}

/// What can be asked.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The screen on a simulated fabric
    Demo(Demo),
    /// The screen on a recording
    Replay(Replay),
    /// Write observations to a file
    Record(Record),
    /// Watch without a screen until told to end: local socket, hooks, recording
    Collect(Collect),
    /// One-shot health check: exit 0 ok, 1 warning, 2 critical, 3 unknown
    Check(Check),
    /// What can be seen on this node, and why not the rest
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Print each probe in a line of its own, with its place and why it is there
        #[arg(long, short)]
        verbose: bool,
    },
    /// Print every port once
    Ports(Table),
    /// Print every QP once
    Qps(Table),
    /// Print the findings once
    Findings(Table),
    /// Print the failovers once: what happened when, and whether it kept within the budgets
    Failovers(Table),
    /// Turn sysfs trees, saved output of tools and logs into a recording
    Import(Import),
    /// Two ECN, DCQCN or PFC settings side by side, by a model of one queue
    #[command(name = "whatif")]
    WhatIf(crate::whatif::WhatIf),
    /// Print the commented sample configuration
    Config,
    /// Print a completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man {
        /// Write a page for each command into this directory instead
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// The child that opens the verbs devices to read their operation tables.
    #[command(name = collector::source::verbs::CHILD_ARG, hide = true)]
    VerbsOperations,
    /// The child that returns from a probed function while it is confined.
    #[command(name = collector::source::probes::CONFINED_ARG, hide = true)]
    ConfinedReturn,
}

/// `demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The scenario
    #[arg(long, default_value = "aer-then-down", value_name = "NAME")]
    pub(crate) scenario: String,
    /// List the scenarios
    #[arg(long)]
    pub(crate) list: bool,
    /// Print findings as JSON lines at full speed instead of the screen
    #[arg(long)]
    pub(crate) json: bool,
    /// Simulated time of --json
    #[arg(long = "for", default_value = "60s", value_name = "TIME", value_parser = time)]
    pub(crate) time: Duration,
    /// Seed of the simulation
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
}

/// `replay`.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The recording
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print findings as JSON lines instead of the screen
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds of the recording per second, or max
    #[arg(long, default_value = "1", value_name = "N|max", value_parser = speed)]
    pub(crate) speed: f64,
}

/// `record`.
#[derive(Debug, Args)]
pub(crate) struct Record {
    /// The file; compressed when its name ends in .zst
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// Begin a new file after so many bytes before compression, 1M or more (K, M, G allowed)
    #[arg(long, value_name = "BYTES", value_parser = file_bytes)]
    pub(crate) max_size: Option<u64>,
    /// Replace a file that exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Print findings as JSON lines while recording
    #[arg(long)]
    pub(crate) json: bool,
}

/// `collect`. Each flag that a service needs has a variable and a key under `[collect]`.
#[derive(Debug, Default, Args)]
pub(crate) struct Collect {
    /// Local socket for programs that act on findings, or off [default: /run/rdmascope/events.sock for root, else
    /// rdmascope/events.sock below `XDG_RUNTIME_DIR`]
    #[arg(long, env = "RDMASCOPE_SOCKET", value_name = "PATH|off")]
    pub(crate) socket: Option<String>,
    /// Group that may connect, besides the owner: a name in /etc/group, or a number
    #[arg(long, env = "RDMASCOPE_SOCKET_GROUP", value_name = "GROUP")]
    pub(crate) socket_group: Option<String>,
    /// Write what is observed to this file; compressed when its name ends in .zst
    #[arg(long, env = "RDMASCOPE_RECORD", value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Begin a new file after so many bytes before compression, 1M or more (K, M, G allowed)
    #[arg(long, env = "RDMASCOPE_RECORD_MAX_SIZE", value_name = "BYTES", value_parser = file_bytes)]
    pub(crate) record_max_size: Option<u64>,
    /// Replace a recording that exists
    #[arg(long, env = "RDMASCOPE_RECORD_FORCE", value_parser = switch())]
    pub(crate) record_force: bool,
    /// Keep the last minutes in this directory, and save them as an incident when a critical finding is raised
    #[arg(long, env = "RDMASCOPE_RING", value_name = "DIR")]
    pub(crate) ring: Option<PathBuf>,
    /// Minutes that are kept, 1 to 1440 [default: 10]
    #[arg(long, env = "RDMASCOPE_RING_MINUTES", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1440))]
    pub(crate) ring_minutes: Option<u32>,
    /// What they may take on disk, 1M or more (K, M, G allowed) [default: 256M]
    #[arg(long, env = "RDMASCOPE_RING_MAX_SIZE", value_name = "BYTES", value_parser = file_bytes)]
    pub(crate) ring_max_size: Option<u64>,
    /// What follows a critical finding and is saved with it [default: 1m]
    #[arg(long, env = "RDMASCOPE_INCIDENT_AFTER", value_name = "TIME", value_parser = time)]
    pub(crate) incident_after: Option<Duration>,
    /// Incidents that are kept [default: 20]
    #[arg(long, env = "RDMASCOPE_INCIDENT_MAX", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) incident_max: Option<u32>,
    /// What incidents may take on disk together, 1M or more (K, M, G allowed) [default: 1G]
    #[arg(long, env = "RDMASCOPE_INCIDENT_MAX_SIZE", value_name = "BYTES", value_parser = file_bytes)]
    pub(crate) incident_max_size: Option<u64>,
    /// Make room for a new incident by removing the oldest; otherwise no more are saved
    #[arg(long, env = "RDMASCOPE_INCIDENT_REMOVE_OLDEST", value_parser = switch())]
    pub(crate) incident_remove_oldest: bool,
    /// Serve a page for Prometheus at this address, for example 127.0.0.1:9948
    #[arg(long, env = "RDMASCOPE_PROMETHEUS", value_name = "ADDRESS|off")]
    pub(crate) prometheus: Option<String>,
    /// How its metrics are called: otel, or node for the names of `node_exporter` [default: otel]
    #[arg(long, env = "RDMASCOPE_PROMETHEUS_NAMES", value_name = "otel|node")]
    pub(crate) prometheus_names: Option<String>,
    /// Export metrics by process, too
    #[arg(long, env = "RDMASCOPE_EXPORT_PROCESSES", value_parser = switch())]
    pub(crate) export_processes: bool,
    /// Export metrics of so many of the busiest QPs, too [default: 0]
    #[arg(long, env = "RDMASCOPE_EXPORT_QPS", value_name = "N")]
    pub(crate) export_qps: Option<usize>,
    /// Export by OTLP also when no `OTEL_EXPORTER_OTLP_ENDPOINT` is set: to localhost
    #[arg(long, env = "RDMASCOPE_OTLP", value_parser = switch())]
    pub(crate) otlp: bool,
    /// Export the lifetimes of QPs and the phases of failovers as spans, too
    #[arg(long, env = "RDMASCOPE_OTLP_SPANS", value_parser = switch())]
    pub(crate) otlp_spans: bool,
    /// What may wait while an endpoint takes nothing, 16K or more; what does not fit is dropped and counted (K, M, G
    /// allowed) [default: 4M]
    #[arg(long, env = "RDMASCOPE_OTLP_QUEUE", value_name = "BYTES", value_parser = queue_bytes)]
    pub(crate) otlp_queue: Option<u64>,
    /// Stop after this time [default: at SIGTERM or Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// A recording in the place of this node, to try hooks and sinks on
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    pub(crate) replay: Option<PathBuf>,
    /// Seconds of that recording per second, or max
    #[arg(long, default_value = "1", value_name = "N|max", value_parser = speed, requires = "replay")]
    pub(crate) speed: f64,
    /// Go on after the end of that recording
    #[arg(long, requires = "replay")]
    pub(crate) stay: bool,
    /// A simulated node in the place of this one
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<String>,
}

/// `check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// How long to watch
    #[arg(long = "for", default_value = "5s", value_name = "TIME", value_parser = time)]
    pub(crate) time: Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Judge a recording at its end instead of this node
    #[arg(long, value_name = "FILE")]
    pub(crate) recording: Option<PathBuf>,
}

/// `ports`, `qps`, `findings`, `failovers`.
#[derive(Debug, Args)]
pub(crate) struct Table {
    /// How long to watch first; rates need two readings
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub(crate) time: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Judge a recording at its end instead of this node
    #[arg(long, value_name = "FILE")]
    pub(crate) recording: Option<PathBuf>,
}

/// `import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Copies of /sys, saved output of tools, logs, or directories of them; a file TIMES beside them gives their times
    /// (lines `t0 0`, `dmesg.txt 2026-01-01T02:00:00Z`)
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// The recording to write
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what was recognised as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The text of a flag's variable: `1`, `yes`, `true` and `on` switch it on; `0`, `no`, `false`, `off` and nothing do not.
fn switch() -> impl clap::builder::TypedValueParser<Value = bool> {
    use clap::builder::TypedValueParser;
    clap::builder::StringValueParser::new().try_map(|text| match text.to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "true" | "t" | "on" => Ok(true),
        "" | "0" | "n" | "no" | "false" | "f" | "off" => Ok(false),
        _ => Err("neither yes nor no"),
    })
}

/// A time up to a year: what is added to a clock must not overflow it.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time > Duration::from_secs(366 * 86_400) { Err("the longest time is a year".to_owned()) } else { Ok(time) }
}

/// 100 ms or more.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < Duration::from_millis(100) {
        return Err("the shortest interval is 100ms".to_owned());
    }
    if time > Duration::from_secs(3600) {
        return Err("the longest interval is 1h".to_owned());
    }
    Ok(time)
}

/// `off`, `1%`, `0`.
pub(crate) fn budget(text: &str) -> Result<Budget, String> {
    if text == "off" {
        return Ok(Budget::Off);
    }
    let wrong = || format!("{text:?} is neither a share of one core such as 1% nor off");
    let number = text.strip_suffix('%').unwrap_or(if text == "0" { "0" } else { "" });
    let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
    if !(0.0..=100.0).contains(&percent) {
        return Err(wrong());
    }
    Ok(Budget::Share(percent / 100.0))
}

fn speed(text: &str) -> Result<f64, String> {
    if text == "max" {
        return Ok(f64::INFINITY);
    }
    let speed: f64 = text.parse().map_err(|_| format!("{text:?} is neither a number nor max"))?;
    let slowest = collector::replay::MIN_SPEED;
    if speed.is_finite() && speed >= slowest { Ok(speed) } else { Err(format!("the slowest speed is {slowest}")) }
}

/// A size of files: with less than 1 MiB a node with a few adapters fills one in a second.
pub(crate) fn file_bytes(text: &str) -> Result<u64, String> {
    least(bytes(text)?, 1 << 20, "1M")
}

/// A size of a queue that has room for one export.
pub(crate) fn queue_bytes(text: &str) -> Result<u64, String> {
    least(bytes(text)?, 16 << 10, "16K")
}

fn least(bytes: u64, least: u64, words: &str) -> Result<u64, String> {
    if bytes < least { Err(format!("{bytes} bytes are too few; the least is {words}")) } else { Ok(bytes) }
}

pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no number of bytes (K, M and G are allowed)");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).filter(|n| *n > 0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_about_this_node_is_refused_beside_what_is_in_its_place() {
        let of = |line: &str| Cli::of_args(line.split(' ')).map(drop).map_err(|error| error.to_string());
        for (line, words) in [
            ("x ports --recording a --for 1s", "--for is about watching this node, which --recording does not"),
            ("x check --recording a --for 1s", "--for "),
            ("x --sysfs-root b qps --recording a", "--sysfs-root "),
            ("x findings --recording a --device b", "--device "),
            ("x replay a --interval 1s", "which replay does not"),
            ("x demo --probe-budget 0", "--probe-budget "),
            ("x import a -o b --exclude c", "--exclude "),
            ("x collect --replay a --packets auto", "which --replay does not"),
            ("x collect --scenario a --loopback", "which --scenario does not"),
        ] {
            assert!(of(line).is_err_and(|error| error.contains(words)), "{line}");
        }
        for line in [
            "x",
            "x --interval 1s",
            "x ports --for 1s --device a",
            "x check --recording a",
            "x demo --for 1s --json",
            "x --ascii replay a --speed max",
            "x collect --replay a --for 1s",
            // What it asks for is so there.
            "x demo --no-ebpf",
            "x --config c ports --recording a",
        ] {
            assert_eq!(of(line), Ok(()), "{line}");
        }
        let known = Cli::command();
        let mut ids: Vec<&str> = known.get_arguments().map(|argument| argument.get_id().as_str()).collect();
        ids.retain(|id| {
            !["config", "no_ebpf", "verbs_program", "log", "color", "ascii", "help", "version"].contains(id)
        });
        assert_eq!(ids, LOOKING, "each flag of all commands is about this node or not");
    }

    #[test]
    fn budgets_are_shares_of_a_core_or_off() {
        assert_eq!(budget("1%"), Ok(Budget::Share(0.01)));
        assert_eq!(budget("0"), Ok(Budget::Share(0.0)));
        assert_eq!(budget("off"), Ok(Budget::Off));
        for wrong in ["1", "-1%", "101%", "x", "", "NaN%"] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_speeds_outside_their_range_are_refused() {
        assert_eq!(bytes("10M"), Ok(10 << 20));
        assert_eq!(file_bytes("1M"), Ok(1 << 20));
        assert_eq!(file_bytes("1023K").unwrap_err(), "1047552 bytes are too few; the least is 1M");
        assert!(file_bytes("1").is_err() && queue_bytes("15K").is_err() && queue_bytes("16K").is_ok());
        assert!(bytes("0").is_err() && bytes("10X").is_err() && bytes("99999999999G").is_err());
        assert_eq!(speed("max"), Ok(f64::INFINITY));
        assert!(speed("0").is_err() && speed("inf").is_err() && speed("fast").is_err());
        assert!(time("500000000000years").is_err() && time("5s").is_ok());
        assert!(speed("1e-300").is_err());
        assert!(interval("50ms").is_err() && interval("1s").is_ok());
    }
}
