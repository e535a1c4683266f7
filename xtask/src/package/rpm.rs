//! The rpm, by rpmbuild.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::{Programs, directory, emptied, files, only};
use crate::{command, workspace};

/// Makes the rpm of a release build, and returns its path.
pub(super) fn make(programs: &Programs) -> Result<PathBuf> {
    if command::find("rpmbuild").is_none() {
        bail!("no rpmbuild: the package `rpm` of Debian, `rpm-build` of Fedora");
    }
    let files = files::make(programs)?;
    let output = directory().join("rpm");
    emptied(&output)?;
    let work = tempfile::tempdir_in(directory())?;
    let define = |name: &str, value: &Path| format!("{name} {}", value.display());
    let defines = [
        define("_topdir", work.path()),
        define("_rpmdir", &output),
        define("_sourcedir", workspace::root()),
        define("files_of_build", &files),
        define("program_of_build", &programs.rdmascope),
        define("verbs_of_build", &programs.verbs),
        "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned(),
        format!("version_of_build {}", env!("CARGO_PKG_VERSION")),
    ];
    let mut rpmbuild = command::system("rpmbuild");
    rpmbuild.args(["-bb", "--quiet"]);
    for definition in &defines {
        rpmbuild.args(["--define", definition]);
    }
    command::output(rpmbuild.arg(workspace::root().join("packaging/rpm/rdmascope.spec")))?;
    only(&output, "rpm")
}

/// What is in it.
pub(super) fn listing(package: &Path) -> Result<String> {
    command::text(command::system("rpm").args(["--query", "--list", "--verbose", "--package"]).arg(package))
}
