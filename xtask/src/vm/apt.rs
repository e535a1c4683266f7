//! Packages for the guest, fetched with the host's apt as if nothing were installed; the host's own state is not touched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{command, debian};

/// Downloads one package, without what it depends on, into `directory`; returns the file.
pub(crate) fn download(package: &str, directory: &Path) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let prefix = format!("{package}_");
    let in_cache = || -> Result<Option<PathBuf>> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                return Ok(Some(entry.path()));
            }
        }
        Ok(None)
    };
    if let Some(path) = in_cache()? {
        return Ok(path);
    }
    command::output(sandboxed(&mut debian::apt_get()).args(["download", package]).current_dir(directory))?;
    in_cache()?.with_context(|| format!("apt downloaded {package}, but not into {}", directory.display()))
}

/// Downloads `packages` and everything they depend on below `cache`; returns their files in the order of installation.
pub(crate) fn download_with_dependencies(packages: &[&str], cache: &Path) -> Result<Vec<PathBuf>> {
    let archives = cache.join("debs");
    fs::create_dir_all(archives.join("partial"))?;
    // An empty status file: apt believes nothing is installed.
    let status = cache.join("status");
    fs::write(&status, "")?;
    let install = |extra: &str| {
        let mut command = debian::apt_get();
        sandboxed(&mut command)
            .arg("-o")
            .arg(format!("Dir::State::status={}", status.display()))
            .arg("-o")
            .arg(format!("Dir::Cache::archives={}", archives.display()))
            .args(["-o", "Debug::NoLocking=1", "-qq", "-y", "--no-install-recommends", extra, "install"])
            .args(packages);
        command
    };
    let plan = command::text(&mut install("--simulate"))?;
    command::output(&mut install("--download-only"))?;
    let files: Vec<_> = plan.lines().filter_map(file_name).map(|name| archives.join(name)).collect();
    for file in &files {
        if !file.exists() {
            anyhow::bail!("apt did not download {}", file.display());
        }
    }
    Ok(files)
}

/// apt drops root for downloads by default, to a user who may not write below the target directory.
fn sandboxed(command: &mut Command) -> &mut Command {
    command.args(["-o", "APT::Sandbox::User=root"])
}

/// The archive's file name out of a line of apt's plan: `Inst NAME (VERSION ORIGIN [ARCHITECTURE]) …`.
fn file_name(line: &str) -> Option<String> {
    let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
    let (version, rest) = rest.split_once(' ')?;
    let (_, rest) = rest.split_once('[')?;
    let (architecture, _) = rest.split_once(']')?;
    let name = name.split(':').next()?;
    Some(format!("{name}_{}_{architecture}.deb", version.replace(':', "%3a")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_plan_names_the_archive() {
        assert_eq!(
            file_name("Inst procps (2:4.0.2-3 Debian:12.14/oldstable [amd64]) []").as_deref(),
            Some("procps_2%3a4.0.2-3_amd64.deb")
        );
        assert_eq!(
            file_name("Inst libc6:amd64 (2.36-9 Debian:12.14/oldstable [amd64])").as_deref(),
            Some("libc6_2.36-9_amd64.deb")
        );
        assert_eq!(file_name("Conf procps (2:4.0.2-3 Debian:12.14/oldstable [amd64])"), None);
    }
}
