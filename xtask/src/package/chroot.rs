//! A minimal Debian 12 in a folder, for the test that installs the .deb: made once by debootstrap, kept below
//! `target/package`, copied by each test that uses it.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use super::{directory, emptied};
use crate::command;

/// The release, and what the .deb needs beside the packages every Debian has.
const RELEASE: &str = "bookworm";
const INCLUDED: &str = "libibverbs1,systemd-standalone-sysusers";

/// Why there can be none here, if so.
pub(crate) fn unavailable() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can make and enter a chroot".to_owned());
    }
    command::find("debootstrap").is_none().then(|| "no debootstrap: cargo xtask setup".to_owned())
}

/// The folder, made now unless it is there.
pub(crate) fn base() -> Result<PathBuf> {
    let base = directory().join(format!("{RELEASE}-with-{INCLUDED}"));
    if !base.exists() {
        // Made beside its place: an interrupted run leaves nothing that looks finished.
        let (unfinished, debs) = (directory().join("unfinished-chroot"), directory().join("debs"));
        emptied(&unfinished)?;
        fs::create_dir_all(&debs)?;
        let mut debootstrap = command::system("debootstrap");
        debootstrap.args(["--variant=minbase", &format!("--include={INCLUDED}")]);
        debootstrap.arg(format!("--cache-dir={}", debs.display()));
        command::output(debootstrap.arg(RELEASE).arg(&unfinished))?;
        fs::rename(&unfinished, &base)?;
    }
    Ok(base)
}
