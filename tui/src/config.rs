//! The configuration: flags and variables over the file over the defaults, and the commented sample.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use collector::node::NodeOptions;
use collector::rule::Settings;
use collector::sink::hook::HookSettings;
use collector::source::nldev::binding::{BindBy, Changes};
use collector::source::packets::{DEFAULT_BUDGET, Watch};
use collector::source::probes::{Budget as ProbeBudget, ProbeOptions};
use serde::Deserialize;

use crate::args::{self, Budget, Global, When};
use crate::journal::Level;
use crate::outputs::{self, CollectTable, HookTable};

/// The configuration file. Keys are the flags' names.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    device: Vec<String>,
    exclude: Vec<String>,
    sysfs_root: Option<PathBuf>,
    interval: Option<String>,
    no_ebpf: bool,
    probe_budget: Option<String>,
    max_qps: Option<u32>,
    packets: Option<String>,
    packet_budget: Option<u32>,
    loopback: bool,
    verbs_program: Option<PathBuf>,
    allow_changes: bool,
    bind_by: Option<String>,
    log: Option<String>,
    color: Option<String>,
    ascii: bool,
    collect: CollectTable,
    hook: Vec<HookTable>,
    rule: Settings,
}

/// What was asked, after all sources of configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) node: NodeOptions,
    pub(crate) rules: Settings,
    pub(crate) color: When,
    pub(crate) ascii: bool,
    /// What `collect` does besides watching; its own flags go before this.
    pub(crate) collect: CollectTable,
    pub(crate) hooks: Vec<HookSettings>,
    /// How much `collect` says.
    pub(crate) log: Level,
    /// The file as it stands.
    pub(crate) file: toml::Table,
}

/// Puts flags and variables over the file over the defaults.
pub(crate) fn resolve(global: &Global) -> anyhow::Result<Config> {
    let Some(path) = &global.config else { return resolved(global, File::default(), toml::Table::new()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    // It is a table, or it would have had no keys. What flags and variables say was looked at before: what is wrong now
    // stands in the file.
    resolved(global, file, text.parse().unwrap_or_default())
        .map_err(|error| anyhow!("{}: {}{error}", path.display(), line_of(&text, &error.to_string())))
}

/// `line 7: ` where an error names a key that stands in that line.
fn line_of(text: &str, error: &str) -> String {
    let key = error.split(':').next().unwrap_or(error);
    let mut table = "";
    for (at, line) in text.lines().map(str::trim).enumerate() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            table = name.trim();
        }
        // Errors about keys of `[collect]` and the like do not name the table.
        let own = key.strip_prefix(table).and_then(|rest| rest.strip_prefix('.')).unwrap_or(key);
        if line.strip_prefix(own).is_some_and(|rest| rest.trim_start().starts_with('=')) {
            return format!("line {}: ", at + 1);
        }
    }
    String::new()
}

fn resolved(global: &Global, file: File, table: toml::Table) -> anyhow::Result<Config> {
    let log = match (global.log, &file.log) {
        (Some(level), _) => level,
        (None, Some(text)) => {
            Level::from_str(text, false).map_err(|_| anyhow!("log: {text:?} is none of error, warn, info, debug"))?
        }
        (None, None) => Level::default(),
    };
    let interval = match (global.interval, &file.interval) {
        (Some(interval), _) => interval,
        (None, Some(text)) => key("interval", args::interval(text))?,
        (None, None) => Duration::from_secs(1),
    };
    let budget = match (global.probe_budget, &file.probe_budget) {
        (Some(budget), _) => budget,
        (None, Some(text)) => key("probe-budget", args::budget(text))?,
        (None, None) => Budget::Share(0.01),
    };
    let packets = match (&global.packets, &file.packets) {
        (Some(watch), _) => watch.clone(),
        (None, Some(text)) => key("packets", text.parse())?,
        (None, None) => Watch::default(),
    };
    let bind_by = match (global.bind_by, &file.bind_by) {
        (Some(by), _) => by,
        (None, Some(text)) => key("bind-by", text.parse())?,
        (None, None) => BindBy::default(),
    };
    file.rule.check().map_err(|what| anyhow!(what))?;
    if file.packet_budget == Some(0) {
        bail!("packet-budget: at least 1 packet a second");
    }
    let color = match (global.color, file.color.as_deref()) {
        (Some(when), _) => when,
        (None, None | Some("auto")) => When::Auto,
        (None, Some("always")) => When::Always,
        (None, Some("never")) => When::Never,
        (None, Some(other)) => bail!("color: {other:?} is none of auto, always, never"),
    };
    let or = |flags: &[String], file: Vec<String>| if flags.is_empty() { file } else { flags.to_vec() };
    let (device, exclude) = (or(&global.device, file.device), or(&global.exclude, file.exclude));
    let mut rules = file.rule;
    // A pattern that is none is told when it is used.
    if let Ok(watched) = collector::node::filter(&device, &exclude) {
        rules.link_down.expected.keep(|device| watched(device));
    }
    let default = ProbeOptions::default();
    let probes = ProbeOptions {
        budget: match budget {
            Budget::Off => ProbeBudget::Off,
            Budget::Share(share) => ProbeBudget::Share(share),
        },
        ..default
    };
    Ok(Config {
        node: NodeOptions {
            sysfs_root: global.sysfs_root.clone().or(file.sysfs_root),
            device,
            exclude,
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            making: (global.allow_changes || file.allow_changes)
                .then(|| global.verbs_program.clone().or_else(|| file.verbs_program.clone())),
            probes: (!global.no_ebpf && !file.no_ebpf).then_some(probes),
            max_qps: global.max_qps.or(file.max_qps),
            packets,
            packet_budget: global.packet_budget.or(file.packet_budget).unwrap_or(DEFAULT_BUDGET),
            loopback: (global.loopback || file.loopback).then(|| global.verbs_program.clone().or(file.verbs_program)),
            changes: if global.allow_changes || file.allow_changes { Changes::Bind(bind_by) } else { Changes::None },
            probes_aside: false,
        },
        collect: file.collect,
        hooks: outputs::hooks(file.hook)?,
        rules,
        color,
        ascii: global.ascii || file.ascii,
        log,
        file: table,
    })
}

pub(crate) fn key<T>(name: &str, value: Result<T, String>) -> anyhow::Result<T> {
    value.map_err(|error| anyhow::anyhow!("{name}: {error}"))
}

/// One line: where, and what is wrong there.
fn parse(text: &str) -> Result<File, String> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}"))
    })
}

/// The sample, every key with its default.
pub(crate) fn sample() -> String {
    format!("{SAMPLE}\n{}\n{}", outputs::SAMPLE, Settings::sample_toml())
}

const SAMPLE: &str = r#"# rdmascope configuration. Every key is shown with its default. A flag or an RDMASCOPE_* variable goes before this file.

# Watch only devices whose name matches one of these patterns (* and ?); empty: all.
device = []

# Never open anything of devices whose name matches one of these patterns.
exclude = []

# Read another tree than /sys; switches off every source that is not sysfs or PCIe.
# sysfs-root = "/host/sys"

# Time between two readings of the counters, 100ms to 1h.
interval = "1s"

# Attach no eBPF program.
no-ebpf = false

# Share of one core the data-path probes may cost; "off" = no limit, "0" = no data-path probe.
probe-budget = "1%"

# QPs the probes have room for; default: twice the QPs there are at start, at least 16384.
# max-qps = 4096

# Look at RoCE packets: "auto" (software RDMA devices), a network device, "mirror:" with one, or several with commas.
packets = "off"

# Packets looked at in a second; what comes beyond is lost, and counted.
packet-budget = 100000

# Measure how long a write from each port to itself takes, once a second. Makes a queue pair on each active port.
loopback = false

# The program that measures it; default: rdmascope-verbs beside rdmascope, else on PATH.
# verbs-program = "/usr/bin/rdmascope-verbs"

# Allow what changes the node and is undone at the end: binding QPs made from now on to hardware counters by their type.
allow-changes = false

# By what they are bound: "type", or "type,pid" for a set of counters for each process.
bind-by = "type"

# How much collect says on standard error: "error", "warn", "info" or "debug".
log = "info"

# When to colour: "auto", "always" or "never"; NO_COLOR is obeyed.
color = "auto"

# Draw with ASCII characters only.
ascii = false
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_the_default_configuration() {
        let file = parse(&sample()).expect("the sample parses");
        assert_eq!(file.rule, Settings::default());
        assert_eq!(file.interval.as_deref(), Some("1s"));
        assert!(file.device.is_empty() && !file.no_ebpf && !file.ascii);
    }

    #[test]
    fn every_flag_of_all_commands_has_a_variable_and_a_key_in_the_sample() {
        use clap::CommandFactory;
        let sample = sample();
        let command = crate::args::Cli::command();
        let flags: Vec<_> = command.get_arguments().filter(|flag| flag.is_global_set()).collect();
        assert!(flags.len() >= 10, "{flags:?}");
        for flag in flags {
            let long = flag.get_long().expect("a flag has a long name");
            let variable = format!("RDMASCOPE_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(flag.get_env().and_then(|name| name.to_str()), Some(&*variable), "--{long}");
            // The one flag that names the file itself.
            if long != "config" {
                let key = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{long} = "));
                assert!(sample.lines().any(key), "{long} is not in the sample");
            }
        }
    }

    #[test]
    fn a_key_that_is_a_comment_in_the_sample_is_a_key() {
        let file = parse("sysfs-root = \"/host/sys\"\nmax-qps = 4096\n").expect("the keys are known");
        assert_eq!((file.sysfs_root, file.max_qps), (Some("/host/sys".into()), Some(4096)));
    }

    #[test]
    fn a_wrong_key_is_named_with_its_line() {
        let error = parse("interval = \"1s\"\nintervall = 3\n").unwrap_err();
        assert!(error.contains("line 2") && error.contains("intervall"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn a_value_that_no_flag_would_take_is_named_with_its_file_and_line() {
        let said = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let global = Global { config: Some(file.path().to_owned()), ..Global::default() };
            let error = resolve(&global).unwrap_err().to_string();
            error.strip_prefix(&format!("{}: ", file.path().display())).expect("the file comes first").to_owned()
        };
        assert!(said("# x\ninterval = \"5x\"\n").starts_with("line 2: interval: "));
        assert!(said("device = []\n\nprobe-budget = \"5x\"\n").starts_with("line 3: probe-budget: "));
        assert!(said("[rule]\nwindow_s = 0.0\n").starts_with("line 2: rule.window_s: 0 is not within 0.1 to 3600"));
        let text = "[rule.phy_crc]\nof = 4\n[rule.phy_post_fec]\nof = 0\n";
        assert!(said(text).starts_with("line 4: rule.phy_post_fec.of: 0 is not within 1 to 60"));
        assert!(said("rule.phy_crc.of = 0\n").starts_with("line 1: rule.phy_crc.of: 0"));
        assert!(said("packet-budget = 0\n").starts_with("line 1: packet-budget: "));
    }
}
