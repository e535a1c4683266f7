//! What came back from a guest: a folder per payload, with its exit code among the files.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};

use crate::command;

/// The exit code by which a payload says that it could not run here; its reason is in its file `skipped`.
const SKIPPED: i32 = 77;
/// The exit codes of `timeout` for a command that it ended, or had to kill.
const TIMED_OUT: [i32; 2] = [124, 137];

/// How a payload ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Unpacks the archives that a guest sent, one behind the other, into `directory`. The last one may be cut short.
pub(crate) fn unpack(archives: &Path, directory: &Path) -> Result<()> {
    if fs::metadata(archives).map_or(0, |file| file.len()) == 0 {
        return Ok(());
    }
    let status = command::system("tar")
        .args(["-x", "--ignore-zeros", "--no-same-owner", "-C"])
        .arg(directory)
        .stdin(File::open(archives)?)
        .status()
        .context("cannot start tar")?;
    if !status.success() {
        println!("the last results are incomplete: the guest ended while it sent them");
    }
    Ok(())
}

/// How the payload ended whose files are in `folder`; `None` when the guest ended first.
pub(crate) fn outcome(folder: &Path) -> Option<Outcome> {
    let code = fs::read_to_string(folder.join("rc")).ok()?;
    Some(match code.trim().parse() {
        Ok(0) => Outcome::Passed,
        Ok(SKIPPED) => Outcome::Skipped(reason(folder)),
        Ok(code) if TIMED_OUT.contains(&code) => Outcome::Failed("it reached its time limit".to_owned()),
        _ => Outcome::Failed(format!("exit code {}, see {}", code.trim(), folder.join("log").display())),
    })
}

fn reason(folder: &Path) -> String {
    fs::read_to_string(folder.join("skipped"))
        .map_or_else(|_| "no reason given".to_owned(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_decides_and_a_missing_one_is_no_outcome() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let with = |code: &str| {
            fs::write(folder.path().join("rc"), code).expect("a temporary folder takes files");
            outcome(folder.path())
        };
        assert_eq!(with("0\n"), Some(Outcome::Passed));
        assert_eq!(with("77\n"), Some(Outcome::Skipped("no reason given".to_owned())));
        assert_eq!(with("124\n"), Some(Outcome::Failed("it reached its time limit".to_owned())));
        assert!(matches!(with("1\n"), Some(Outcome::Failed(_))));
        assert!(matches!(with("not a number"), Some(Outcome::Failed(_))));
        fs::remove_file(folder.path().join("rc")).expect("it was just written");
        assert_eq!(outcome(folder.path()), None);
    }
}
