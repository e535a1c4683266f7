//! Running other programs, with errors that name the program and what it said.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Where system programs lie although a user's `PATH` may not name them.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The path of a program, from `PATH` or the system directories.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// A command for a system program, found also outside a user's `PATH`.
pub(crate) fn system(program: &str) -> Command {
    Command::new(find(program).unwrap_or_else(|| PathBuf::from(program)))
}

/// Cargo, the same that runs this program, in the working copy; without what `cargo run` told this program of its own
/// package: build scripts of others would take that for a change, and everything behind them would be built anew.
pub(crate) fn cargo<I: IntoIterator<Item: AsRef<OsStr>>>(arguments: I) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(crate::workspace::root());
    // What cargo told this program of its own package is no business of others: build scripts (ring's) that look at such
    // variables would run again each time a build is started from somewhere else.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command whose output goes to ours.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", name(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", name(command));
    }
    Ok(())
}

/// Runs a command and returns what it wrote to standard output; its error output is part of the error.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", name(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}\n{}", name(command), output.status, said.trim_end());
    }
    Ok(output.stdout)
}

/// [`output`] as text.
pub(crate) fn text(command: &mut Command) -> Result<String> {
    String::from_utf8(output(command)?).with_context(|| format!("{} wrote something that is not UTF-8", name(command)))
}

fn name(command: &Command) -> String {
    let first = command.get_args().next().map(|argument| format!(" {}", argument.display())).unwrap_or_default();
    format!("`{}{first} …`", command.get_program().display())
}
