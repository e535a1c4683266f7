//! What a hook is, and which findings it wants.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::{Glob, GlobSet, GlobSetBuilder};
use rustix::fs::{Access, access};

use crate::finding::{Finding, FindingState, Severity};
use crate::rule;

/// One `[[hook]]` of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct HookSettings {
    /// The program (an absolute path) and its arguments. There is no shell.
    pub command: Vec<String>,
    /// Globs of rule ids.
    pub rules: Vec<String>,
    /// The least severity.
    pub severity: Severity,
    /// States of a finding that are told.
    pub states: Vec<FindingState>,
    /// Time between two starts about the same rule, subject and state.
    pub debounce: Duration,
    /// A process that runs longer is killed.
    pub timeout: Duration,
    /// Processes of this hook at the same time, 1 or more.
    pub max_concurrent: usize,
    /// Also findings that are a consequence of another one. A rule that is named without a wildcard is always told.
    pub consequences: bool,
}

impl Default for HookSettings {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            rules: vec!["*".to_owned()],
            severity: Severity::Warning,
            states: vec![FindingState::Raised],
            debounce: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
            max_concurrent: 4,
            consequences: false,
        }
    }
}

/// What is wrong with a hook.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// It names no program.
    #[error("a hook has an empty command")]
    NoCommand,
    /// The program's path depends on who looks.
    #[error("hook {0:?}: the program must be an absolute path")]
    Relative(String),
    /// There is no such file.
    #[error("hook {}: {}", .0.display(), .1)]
    Program(PathBuf, io::Error),
    /// It is a directory or something else.
    #[error("hook {}: it is no file", .0.display())]
    NoFile(PathBuf),
    /// It cannot be executed.
    #[error("hook {}: it is not executable by this user; chmod +x, or another user", .0.display())]
    NotExecutable(PathBuf),
    /// A pattern of rules is none.
    #[error("hook {0}: {1:?} is no pattern of rules: {2}")]
    Pattern(String, String, String),
    /// A pattern matches no rule.
    #[error("hook {0}: there is no rule that matches {1:?}")]
    NoRule(String, String),
    /// A list is empty.
    #[error("hook {0}: {1} is empty, so it would never be started")]
    Never(String, &'static str),
    /// No process would be allowed.
    #[error("hook {0}: max-concurrent must be 1 or more")]
    NoPlace(String),
    /// A process would be killed at once.
    #[error("hook {0}: timeout must be more than 0")]
    NoTime(String),
    /// The thread could not be started.
    #[error("cannot start the hooks' thread: {0}")]
    Thread(io::Error),
}

/// A hook that can be started.
#[derive(Debug)]
pub(super) struct Hook {
    settings: HookSettings,
    rules: GlobSet,
}

impl Hook {
    /// Checks what can be checked before it is needed.
    pub(super) fn new(settings: HookSettings) -> Result<Self, HookError> {
        let program = settings.command.first().filter(|program| !program.is_empty()).ok_or(HookError::NoCommand)?;
        let name = program.clone();
        let path = Path::new(program);
        if !path.is_absolute() {
            return Err(HookError::Relative(name));
        }
        let metadata = path.metadata().map_err(|error| HookError::Program(path.to_owned(), error))?;
        if !metadata.is_file() {
            return Err(HookError::NoFile(path.to_owned()));
        }
        if access(path, Access::EXEC_OK).is_err() {
            return Err(HookError::NotExecutable(path.to_owned()));
        }
        for (empty, what) in [(settings.rules.is_empty(), "rules"), (settings.states.is_empty(), "states")] {
            if empty {
                return Err(HookError::Never(name, what));
            }
        }
        if settings.max_concurrent == 0 {
            return Err(HookError::NoPlace(name));
        }
        if settings.timeout.is_zero() {
            return Err(HookError::NoTime(name));
        }
        let mut rules = GlobSetBuilder::new();
        for pattern in &settings.rules {
            let wrong =
                |error: &globset::Error| HookError::Pattern(name.clone(), pattern.clone(), error.kind().to_string());
            let glob = Glob::new(pattern).map_err(|error| wrong(&error))?;
            let matcher = glob.compile_matcher();
            if !rule::all().iter().any(|rule| matcher.is_match(rule.id())) {
                return Err(HookError::NoRule(name, pattern.clone()));
            }
            rules.add(glob);
        }
        let rules = rules.build().map_err(|error| HookError::Pattern(name, String::new(), error.kind().to_string()))?;
        Ok(Self { settings, rules })
    }

    pub(super) fn settings(&self) -> &HookSettings {
        &self.settings
    }

    /// The program's path.
    pub(super) fn program(&self) -> String {
        self.settings.command[0].clone()
    }

    pub(super) fn arguments(&self) -> impl Iterator<Item = OsString> + '_ {
        self.settings.command[1..].iter().map(OsString::from)
    }

    /// Findings of the rule, at least as severe, that are no mere consequence.
    pub(super) fn concerns(&self, finding: &Finding) -> bool {
        let settings = &self.settings;
        let named = || settings.rules.iter().any(|rule| rule == finding.rule);
        self.rules.is_match(finding.rule)
            && finding.severity >= settings.severity
            && (settings.consequences || finding.part_of.is_none() || named())
    }

    /// It is to be started for this one.
    pub(super) fn wants(&self, finding: &Finding) -> bool {
        self.settings.states.contains(&finding.state) && self.concerns(finding)
    }
}
