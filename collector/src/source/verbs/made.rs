//! Where the functions lie that QPs and CQs have of their own, before any process has made one.
//!
//! They are known only of a QP or CQ that exists. `rdmascope-verbs operations` makes one of each kind on each device, reads
//! their pointers and destroys them: a change, if a short one, so it is asked only where changes are allowed. Without it
//! they are learned from each process that makes its own.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{Error, Operation, Place, ask, for_a_child, usable};
use crate::source::Missing;
use crate::source::loopback::find_program;

/// How to ask.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Making {
    /// The program; `None`: the one that is found.
    pub program: Option<PathBuf>,
    /// Make something only on devices that match one of these patterns; none: all.
    pub device: Vec<String>,
    /// Make nothing on devices that match one of these.
    pub exclude: Vec<String>,
}

impl Making {
    /// Asks, and blocks up to `timeout`.
    ///
    /// # Errors
    /// Why nothing is known, and what to do about it.
    pub(in crate::source) fn places(&self, timeout: Duration) -> Result<Vec<(Operation, Place)>, Missing> {
        let missing = |reason: String, fix: Option<&str>| Missing {
            what: "functions that QPs and CQs have of their own, before a process makes some".to_owned(),
            reason,
            fix: fix.map(str::to_owned),
        };
        usable(std::path::Path::new("/sys/class")).map_err(|error| missing(error.to_string(), error.fix()))?;
        let program =
            find_program(self.program.as_deref()).map_err(|absent| missing(absent.reason, absent.fix.as_deref()))?;
        let found = ask(self.command(program), timeout).map_err(|error| {
            let text = match &error {
                Error::Failed(why) => format!("rdmascope-verbs: {why}"),
                other => other.to_string(),
            };
            missing(text, None)
        })?;
        let places: Vec<_> = found.devices.iter().flat_map(|made| made.places.clone()).collect();
        match found.devices.iter().find_map(|made| Some(format!("{}: {}", made.device, made.error.as_ref()?))) {
            // That a device has no QP of some kind is no news where another kind told.
            Some(error) if places.is_empty() => Err(missing(error, None)),
            _ => Ok(places),
        }
    }

    fn command(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        command.args(["operations", "--allow-changes"]);
        for (flag, patterns) in [("--device", &self.device), ("--exclude", &self.exclude)] {
            command.args(patterns.iter().flat_map(|pattern| [flag, pattern.as_str()]));
        }
        for_a_child(&mut command);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_alone_is_left_alone_by_the_program_too() {
        let asked = Making {
            program: None,
            device: vec!["mlx5_*".to_owned()],
            exclude: vec!["mlx5_2".to_owned(), "mlx5_3".to_owned()],
        };
        let command = asked.command("/usr/bin/rdmascope-verbs".into());
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(
            words,
            ["operations", "--allow-changes", "--device", "mlx5_*", "--exclude", "mlx5_2", "--exclude", "mlx5_3"]
        );
    }

    #[test]
    fn what_the_program_prints_is_read_with_functions_that_are_not_known_here_left_out() {
        let place = r#"{"path":"/p.so","dev":[8,1],"inode":7,"offset":4096}"#;
        let line = format!(
            r#"{{"found":{{"devices":[{{"device":"d","made":"qp rc","places":{{"wr_start":{place},"wr_flush":{place}}},"error":null}}],"modify_qp":null}}}}"#
        );
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("echo '{line}'")]);
        let found = ask(shell, Duration::from_secs(60)).expect("an answer");
        let names: Vec<_> = found.devices[0].places.keys().map(|operation| operation.name()).collect();
        assert_eq!(names, ["wr_start"]);
    }
}
