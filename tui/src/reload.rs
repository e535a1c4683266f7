//! SIGHUP: the configuration is read again, judged as a whole, and only then put in force. One that is wrong changes
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use collector::clock;
use collector::feed::ReloadStatus;
use collector::remote::{Command, Remote};
use collector::sink::hook::{Exchange, Hooks};
use collector::sink::socket::{SocketError, group_id};
use toml::{Table, Value};

use crate::args::Global;
use crate::config::{self, Config};
use crate::journal;
use crate::notify::Manager;

/// Keys that are put in force at once; of the others it is said that they need a restart.
const AT_ONCE: [&str; 4] = ["interval", "log", "hook", "collect.socket-group"];
/// Keys that are nothing to the service.
const OF_SCREENS: [&str; 2] = ["color", "ascii"];

/// Gives the socket to another group; `None`: to the collector's own.
pub(crate) type Regroup = Box<dyn Fn(Option<u32>) -> Result<(), SocketError> + Send>;

/// What can be changed while the service runs.
pub(crate) struct Reload {
    pub(crate) global: Global,
    /// The group by flag or variable, which goes before the file.
    pub(crate) group_asked: Option<String>,
    /// The file as it was at the start: what needs a restart is compared with it.
    pub(crate) started: Table,
    /// The length of a window at the start.
    pub(crate) window_s: f64,
    pub(crate) remote: Remote,
    pub(crate) hooks: Exchange,
    pub(crate) regroup: Option<Regroup>,
    pub(crate) manager: Manager,
    pub(crate) status: Arc<Mutex<ReloadStatus>>,
}

impl Reload {
    /// Reads it again.
    pub(crate) fn run(&mut self) {
        self.manager.reloading();
        let outcome = self.apply();
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.asked += 1;
        status.unix_ns = Some(clock::unix_ns());
        match outcome {
            Ok(line) => {
                status.error = None;
                journal::inform(&line);
            }
            Err(error) => {
                let error = format!("{error:#}");
                journal::complain(&format!("the configuration is wrong, everything stays as it was: {error}"));
                status.refused += 1;
                status.error = Some(error);
            }
        }
        drop(status);
        self.manager.reloaded();
    }

    /// Judges the whole, then puts it in force.
    fn apply(&mut self) -> anyhow::Result<String> {
        let Some(file) = self.global.config.clone() else {
            return Ok("SIGHUP: there is no configuration file to read again; nothing changes".to_owned());
        };
        let config = config::resolve(&self.global)?;
        let hooks = Hooks::check(config.hooks.clone())?;
        let group = self.group_asked.as_ref().or(config.collect.socket_group.as_ref());
        let group = group.filter(|name| !name.is_empty()).map(|name| group_id(name)).transpose()?;
        crate::collect::judge(&config)?;
        // The one thing that can still fail goes first.
        if let Some(regroup) = &self.regroup {
            regroup(group)?;
        }
        self.hooks.put(hooks);
        self.remote.send(Command::Interval(config.node.interval_ns));
        self.remote.send(Command::Settings(Box::new(config.rules.clone())));
        journal::set_level(config.log);
        Ok(self.line(&file, &config))
    }

    fn line(&self, file: &Path, config: &Config) -> String {
        let mut waiting = changed(&self.started, &config.file);
        if config.rules.window_s.to_bits() != self.window_s.to_bits() {
            waiting.insert("rule.window_s".to_owned());
        }
        let mut line = format!("{} read again and in force", file.display());
        if !waiting.is_empty() {
            let keys: Vec<String> = waiting.into_iter().collect();
            line += &format!("; changes of {} need a restart", keys.join(", "));
        }
        line
    }
}

/// The keys that differ and need a restart. A key below `collect` has its table's name before it.
fn changed(before: &Table, now: &Table) -> BTreeSet<String> {
    let (before, now) = (flat(before), flat(now));
    let keys = before.keys().chain(now.keys()).filter(|key| before.get(*key) != now.get(*key));
    let known = |key: &&String| !AT_ONCE.contains(&key.as_str()) && !OF_SCREENS.contains(&key.as_str());
    keys.filter(known).cloned().collect()
}

/// The rules are a table of tables, all of which are put in force at once.
fn flat(table: &Table) -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    for (name, value) in table.iter().filter(|(name, _)| *name != "rule") {
        match value {
            Value::Table(inner) => {
                keys.extend(inner.iter().map(|(key, value)| (format!("{name}.{key}"), value.clone())));
            }
            _ => drop(keys.insert(name.clone(), value.clone())),
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_restart_is_named_and_what_does_not_is_not() {
        let parse = |text: &str| text.parse::<Table>().expect("TOML");
        let before = parse("interval = \"1s\"\ndevice = [\"a\"]\n[collect]\nsocket-group = \"a\"\nrecord = \"x\"\n");
        let now = parse(
            "interval = \"2s\"\ncolor = \"never\"\n[collect]\nsocket-group = \"b\"\nrecord = \"y\"\n[[hook]]\n\
             command = [\"/bin/true\"]\n[rule.link_flap]\nflaps = 9\n",
        );
        let keys: Vec<String> = changed(&before, &now).into_iter().collect();
        assert_eq!(keys, ["collect.record", "device"]);
        assert!(changed(&now, &now).is_empty());
    }
}
