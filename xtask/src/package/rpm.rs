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
    pack(programs, &files, work.path(), &output)?;
    only(&output, "rpm")
}

/// Packs the programs and the files they made into `output`; `work` is for rpmbuild's own.
fn pack(programs: &Programs, files: &Path, work: &Path, output: &Path) -> Result<()> {
    let define = |name: &str, value: &Path| format!("{name} {}", value.display());
    let defines = [
        define("_topdir", work),
        define("_rpmdir", output),
        define("_sourcedir", workspace::root()),
        define("files_of_build", files),
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
    Ok(())
}

/// What is in it.
pub(super) fn listing(package: &Path) -> Result<String> {
    command::text(command::system("rpm").args(["--query", "--list", "--verbose", "--package"]).arg(package))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    /// Where the .deb has what the rpm has too, but elsewhere or under another name.
    const OF_DEBIAN: [(&str, &str); 4] = [
        ("/usr/share/zsh/vendor-completions/_rdmascope", "/usr/share/zsh/site-functions/_rdmascope"),
        ("/usr/share/doc/rdmascope/copyright", "/usr/share/licenses/rdmascope/LICENSE-MIT"),
        ("/usr/share/doc/rdmascope/changelog", "/usr/share/doc/rdmascope/CHANGELOG.md"),
        ("/usr/share/man/man1/rdmascope.1", "/usr/share/man/man1/rdmascope.1.gz"),
    ];

    /// What goes into the .deb, by its metadata.
    fn in_the_deb() -> BTreeSet<String> {
        let manifest = workspace::root().join("tui/Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
        let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
        let place = |from: &str, to: &str| {
            let name = Path::new(from).file_name().unwrap().to_str().unwrap();
            if to.ends_with('/') { format!("/{to}{name}") } else { format!("/{to}") }
        };
        let mut places = BTreeSet::new();
        for asset in assets {
            let (from, to) = (asset[0].as_str().unwrap(), asset[1].as_str().unwrap());
            match from.strip_prefix("../").and_then(|from| from.split_once("/*.")) {
                // The pages are made by the programs; what stands in for them here is one.
                Some(("target/package/files/man", _)) => drop(places.insert(place("rdmascope.1", to))),
                Some((folder, extension)) => {
                    for entry in fs::read_dir(workspace::root().join(folder)).unwrap() {
                        let path = entry.unwrap().path();
                        if path.extension().is_some_and(|other| other == extension) {
                            places.insert(place(path.to_str().unwrap(), to));
                        }
                    }
                }
                None => drop(places.insert(place(from, to))),
            }
        }
        places
    }

    #[test]
    fn rpmbuild_packs_what_is_in_the_deb() {
        if command::find("rpmbuild").is_none() {
            println!("skipped: no rpmbuild (Debian package rpm)");
            return;
        }
        // What stands in for the programs and what they make: how it is packed does not depend on what is in it.
        let folder = tempfile::tempdir().unwrap();
        let [files, work, output] = ["files", "work", "output"].map(|name| folder.path().join(name));
        for made in [&files.join("man"), &work, &output] {
            fs::create_dir_all(made).unwrap();
        }
        for name in ["man/rdmascope.1", "rdmascope.bash", "_rdmascope", "rdmascope.fish", "rdmascope.toml"] {
            fs::write(files.join(name), name).unwrap();
        }
        let programs = Programs { rdmascope: folder.path().join("program"), verbs: folder.path().join("verbs") };
        for program in [&programs.rdmascope, &programs.verbs] {
            fs::copy("/bin/true", program).unwrap();
        }
        pack(&programs, &files, &work, &output).unwrap();
        let package = only(&output, "rpm").unwrap();
        let listed = command::text(command::system("rpm").args(["--query", "--list", "--package"]).arg(package));
        let listed: BTreeSet<String> = listed.unwrap().lines().map(str::to_owned).collect();
        let deb = in_the_deb();
        assert!(deb.contains("/usr/bin/rdmascope-verbs") && deb.len() > 20, "{deb:?}");
        let name = |place: &String| {
            let other = OF_DEBIAN.iter().find(|(debian, _)| debian == place);
            other.map_or(place.clone(), |(_, rpm)| (*rpm).to_owned())
        };
        let missing: Vec<String> = deb.iter().map(name).filter(|place| !listed.contains(place)).collect();
        assert_eq!(missing, Vec::<String>::new(), "of {listed:?}");
        let unit = "/usr/lib/systemd/system/rdmascope.service";
        assert!(listed.contains(unit), "{listed:?}");
    }
}
