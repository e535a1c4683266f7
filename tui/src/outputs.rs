//! The configuration of what `collect` does besides watching: the tables `[collect]` and `[[hook]]`.

use std::path::PathBuf;

use anyhow::bail;
use collector::finding::{FindingState, Severity};
use collector::sink::hook::HookSettings;
use serde::Deserialize;

use crate::args;
use crate::config::key;

/// `[collect]`. Keys are the flags' names.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CollectTable {
    pub(crate) socket: Option<String>,
    pub(crate) socket_group: Option<String>,
    pub(crate) record: Option<PathBuf>,
    pub(crate) record_max_size: Option<String>,
    pub(crate) record_force: bool,
    pub(crate) ring: Option<PathBuf>,
    pub(crate) ring_minutes: Option<u32>,
    pub(crate) ring_max_size: Option<String>,
    pub(crate) incident_after: Option<String>,
    pub(crate) incident_max: Option<u32>,
    pub(crate) incident_max_size: Option<String>,
    pub(crate) incident_remove_oldest: bool,
    pub(crate) prometheus: Option<String>,
    pub(crate) prometheus_names: Option<String>,
    pub(crate) export_processes: bool,
    pub(crate) export_qps: usize,
    pub(crate) otlp: bool,
    pub(crate) otlp_spans: bool,
    pub(crate) otlp_queue: Option<String>,
}

/// One `[[hook]]`. A key that is not there has its default.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct HookTable {
    command: Vec<String>,
    rules: Option<Vec<String>>,
    severity: Option<String>,
    states: Option<Vec<String>>,
    debounce: Option<String>,
    timeout: Option<String>,
    max_concurrent: Option<usize>,
    consequences: bool,
}

/// The hooks as they are asked for; whether they can be started is not looked at here.
pub(crate) fn hooks(tables: Vec<HookTable>) -> anyhow::Result<Vec<HookSettings>> {
    tables.into_iter().map(hook).collect()
}

fn hook(table: HookTable) -> anyhow::Result<HookSettings> {
    let default = HookSettings::default();
    let severity = match table.severity.as_deref() {
        None => default.severity,
        Some("info") => Severity::Info,
        Some("warning") => Severity::Warning,
        Some("critical") => Severity::Critical,
        Some(other) => bail!("hook: severity: {other:?} is none of info, warning, critical"),
    };
    let state = |word: String| match word.as_str() {
        "raised" => Ok(FindingState::Raised),
        "updated" => Ok(FindingState::Updated),
        "cleared" => Ok(FindingState::Cleared),
        _ => bail!("hook: states: {word:?} is none of raised, updated, cleared"),
    };
    let time = |name: &str, text: Option<String>, default| match text {
        Some(text) => key(&format!("hook: {name}"), args::time(&text)),
        None => Ok(default),
    };
    Ok(HookSettings {
        command: table.command,
        rules: table.rules.unwrap_or(default.rules),
        severity,
        states: match table.states {
            Some(words) => words.into_iter().map(state).collect::<anyhow::Result<_>>()?,
            None => default.states,
        },
        debounce: time("debounce", table.debounce, default.debounce)?,
        timeout: time("timeout", table.timeout, default.timeout)?,
        max_concurrent: table.max_concurrent.unwrap_or(default.max_concurrent),
        consequences: table.consequences,
    })
}

/// The tables' part of the commented sample.
pub(crate) const SAMPLE: &str = r#"[collect]
# Local socket for programs of this node that act on findings; "off": none. Default: /run/rdmascope/events.sock for root,
# otherwise $XDG_RUNTIME_DIR/rdmascope/events.sock.
# socket = "/run/rdmascope/events.sock"

# Group that may connect, besides the owner: a name in /etc/group, or a number.
# socket-group = "rdma"

# Write what is observed to this file; compressed when its name ends in .zst.
# record = "/var/lib/rdmascope/node.jsonl.zst"

# Begin a new file after so many bytes before compression, 1M or more.
# record-max-size = "1G"

# Replace a recording that exists.
record-force = false

# Keep the last minutes of what is observed in this directory, and save them as an incident when a critical finding is raised.
# ring = "/var/lib/rdmascope/ring"

# Minutes that are kept, 1 to 1440.
ring-minutes = 10

# What they may take on disk, 1M or more.
ring-max-size = "256M"

# What follows a critical finding and is saved with it.
incident-after = "1m"

# Incidents that are kept, and what they may take on disk together, 1M or more.
incident-max = 20
incident-max-size = "1G"

# Make room for a new incident by removing the oldest; otherwise no more are saved.
incident-remove-oldest = false

# Serve a page for Prometheus at this address; "off": none.
prometheus = "off"

# How its metrics are called: "otel", or "node" for the names of node_exporter.
prometheus-names = "otel"

# Export metrics by process, too: their series come and go with the processes.
export-processes = false

# Export metrics of so many of the busiest QPs, too.
export-qps = 0

# Export by OTLP also when no OTEL_EXPORTER_OTLP_ENDPOINT is set: to localhost. Everything else about it is said by the
# standard OTEL_* variables (docs/otlp.md).
otlp = false

# Export the lifetimes of QPs and the phases of failovers as spans, too.
otlp-spans = false

# What may wait while an endpoint takes nothing, 16K or more; what does not fit is dropped and counted.
# otlp-queue = "4M"

# A program that collect starts when a finding changes; there may be several. None is started unless it is named here.
# [[hook]]
# The program, by its absolute path, and its arguments; there is no shell. It reads the finding as JSON on standard input.
# command = ["/usr/local/sbin/drain-node", "--now"]
# Rules by their ids, with * and ?.
# rules = ["*"]
# The least severity: "info", "warning" or "critical".
# severity = "warning"
# What is told of a finding: "raised", "updated", "cleared".
# states = ["raised"]
# Time between two starts about the same rule, subject and state; the newest of what comes between is told after it.
# debounce = "30s"
# A process that runs longer is killed with everything it started.
# timeout = "10s"
# Processes at the same time; further findings wait.
# max-concurrent = 4
# Also findings that are a consequence of another one. A rule named without a wildcard is told in any case.
# consequences = false
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        hook: Vec<HookTable>,
    }

    #[test]
    fn the_hook_in_the_sample_is_one_with_the_defaults() {
        let (_, hook) = SAMPLE.split_once("# [[hook]]").expect("the sample shows a hook");
        let keys: String = hook
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .filter(|line| line.contains(" = "))
            .fold("[[hook]]\n".to_owned(), |text, line| text + line + "\n");
        let file: File = toml::from_str(&keys).expect("it parses");
        let shown = hooks(file.hook).expect("its values are in order").remove(0);
        let command = shown.command.clone();
        assert_eq!(command[0], "/usr/local/sbin/drain-node");
        assert_eq!(shown, HookSettings { command, ..HookSettings::default() });
    }

    #[test]
    fn every_flag_of_collect_that_has_a_variable_has_a_key() {
        use clap::CommandFactory;
        let command = args::Cli::command();
        let collect = command.find_subcommand("collect").expect("there is collect");
        let with_variable = |flag: &&clap::Arg| flag.get_env().is_some() && !flag.is_global_set();
        let flags: Vec<_> = collect.get_arguments().filter(with_variable).collect();
        assert!(flags.len() >= 5, "{flags:?}");
        for flag in flags {
            let long = flag.get_long().expect("a flag has a long name");
            let key = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{long} = "));
            assert!(SAMPLE.lines().any(key), "{long} is not in the sample");
        }
    }

    #[test]
    fn a_wrong_value_is_named() {
        for (line, word) in [
            ("severity = \"bad\"", "critical"),
            ("states = [\"gone\"]", "cleared"),
            ("debounce = \"soon\"", "debounce"),
            ("timeout = \"10\"", "timeout"),
        ] {
            let file: File = toml::from_str(&format!("[[hook]]\n{line}")).expect("it parses");
            let error = hooks(file.hook).expect_err(line).to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(toml::from_str::<File>("[[hook]]\ncommnd = []").is_err());
    }
}
