//! What the programs themselves make for a package: manual pages, completions, the sample configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Programs, directory, emptied};
use crate::command;

/// Makes them anew in `target/package/files`, whose names `tui/Cargo.toml` and the rpm's specification know.
pub(super) fn make(programs: &Programs) -> Result<PathBuf> {
    let program = &programs.rdmascope;
    let files = directory().join("files");
    emptied(&files)?;
    let pages = files.join("man");
    fs::create_dir(&pages)?;
    command::output(clean(program).args(["man", "--output"]).arg(&pages))?;
    let page = command::output(clean(&programs.verbs).arg("man"))?;
    fs::write(pages.join("rdmascope-verbs.1"), page).context("cannot write the page of rdmascope-verbs")?;
    for (name, arguments) in [
        ("rdmascope.toml", &["config"][..]),
        ("rdmascope.bash", &["completions", "bash"]),
        ("_rdmascope", &["completions", "zsh"]),
        ("rdmascope.fish", &["completions", "fish"]),
    ] {
        let content = command::output(clean(program).args(arguments))?;
        fs::write(files.join(name), content).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(files)
}

/// The program without the variables of whoever packs: they would show in its pages as current values.
fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command
}
