//! What runs in the guest: the scripts and C programs of `tests/guest/`, and the product.
//!
//! A payload is `tests/guest/NAME.sh`. Comment lines at its head say what it needs:
//! `# order: N` (payloads run in this order), `# timeout: SECONDS`, `# needs: rdmascope` (or `rdmascope-verbs`, or the
//! example `drain_on_warning`, or several), `# init: systemd` (in a boot of their own, with the .deb's files laid over the root),
//! `# kernel: FAMILY` (only on that one) and `# only: named` (a measurement: it runs when it is asked for by name).
//! `lib.sh` holds what the scripts share. Every `*.c` is compiled on the host; `// link: -l…` names its libraries.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::kernel::Family;
use crate::{command, package, workspace};

const SHARED: &str = "lib.sh";
/// The product's package and its binary.
const PRODUCT: &str = "rdmascope";
/// The program beside it, and the library's example, which need libibverbs.
const BESIDE: &str = "rdmascope-verbs";
const EXAMPLE: &str = "drain_on_warning";
const DEFAULT_ORDER: u32 = 100;
const DEFAULT_TIMEOUT_S: u64 = 120;
/// What runs the payloads, whatever the guest's init is.
const RUN: &str = include_str!("run.sh");

/// The guest's first process behind the initrd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Init {
    /// A script that mounts what there must be: the quickest boot.
    Script,
    /// systemd, with the .deb's files over the root.
    Systemd,
}

impl Init {
    /// Each, in the order they are booted.
    pub(crate) const ALL: [Self; 2] = [Self::Script, Self::Systemd];

    /// The name in messages and of the console's log.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Systemd => "systemd",
        }
    }

    fn script(self) -> &'static str {
        match self {
            Self::Script => include_str!("init.sh"),
            Self::Systemd => include_str!("init-systemd.sh"),
        }
    }
}

/// One payload.
pub(crate) struct Payload {
    pub(crate) name: String,
    /// Its limit in the guest, in seconds.
    pub(crate) timeout_s: u64,
    pub(crate) init: Init,
    /// The only kernel it runs on; `None`: on each.
    kernel: Option<String>,
    order: u32,
    needs: Vec<String>,
    only_named: bool,
}

impl Payload {
    fn read(name: &str, script: &str) -> Result<Self> {
        let header = |key: &str| {
            script
                .lines()
                .take_while(|line| line.starts_with('#'))
                .find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
        };
        let number = |key: &str, default: u64| {
            let Some(value) = header(key) else { return Ok(default) };
            value.trim().parse().with_context(|| format!("`{key}: {value}` in {name}.sh is no number"))
        };
        let init = match header("init") {
            None => Init::Script,
            Some("systemd") => Init::Systemd,
            Some(other) => bail!("`init: {other}` in {name}.sh is not systemd"),
        };
        Ok(Self {
            name: name.to_owned(),
            init,
            kernel: header("kernel").map(str::to_owned),
            timeout_s: number("timeout", DEFAULT_TIMEOUT_S)?,
            order: u32::try_from(number("order", DEFAULT_ORDER.into())?).unwrap_or(u32::MAX),
            only_named: match header("only") {
                None => false,
                Some("named") => true,
                Some(other) => bail!("`only: {other}` in {name}.sh is not named"),
            },
            needs: header("needs").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
        })
    }

    /// Whether it is for this kernel.
    pub(crate) fn runs_on(&self, family: Family) -> bool {
        self.kernel.as_ref().is_none_or(|kernel| kernel == family.name())
    }
}

/// Where scripts and programs of the guest are kept.
fn sources() -> PathBuf {
    workspace::root().join("tests/guest")
}

/// The payloads called `names`, or all, in the order they run.
pub(crate) fn select(names: &[String]) -> Result<Vec<Payload>> {
    let mut payloads = Vec::new();
    for path in files_of_kind("sh")? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.file_name().is_some_and(|file| file != SHARED) {
            payloads.push(Payload::read(&name, &fs::read_to_string(&path)?)?);
        }
    }
    payloads.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
    let known: Vec<_> = payloads.iter().map(|payload| payload.name.clone()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!("there is no payload `{unknown}`; there are: {}", known.join(", "));
    }
    payloads.retain(|payload| names.contains(&payload.name) || names.is_empty() && !payload.only_named);
    Ok(payloads)
}

/// Builds what the payloads of one boot need and writes the archive that puts it all into `/payload` of the guest.
pub(crate) fn pack(init: Init, payloads: &[&Payload], extra: &[PathBuf], work: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::new(Vec::new());
    archive.directory("payload")?;
    archive.file("payload/init.sh", init.script().as_bytes())?;
    archive.file("payload/run.sh", RUN.as_bytes())?;
    if init == Init::Systemd {
        let package = package::deb::make(&package::Programs::build()?)?;
        let files = command::output(command::system("dpkg-deb").arg("--fsys-tarfile").arg(package))?;
        archive.file("payload/package.tar", &files)?;
    }
    let order: Vec<_> = payloads.iter().map(|payload| format!("{} {}\n", payload.name, payload.timeout_s)).collect();
    archive.file("payload/order", order.concat().as_bytes())?;
    archive.copy(&format!("payload/{SHARED}"), &sources().join(SHARED))?;
    for payload in payloads {
        let script = format!("{}.sh", payload.name);
        archive.copy(&format!("payload/{script}"), &sources().join(&script))?;
    }
    for source in files_of_kind("c")? {
        let program = compile(&source, work)?;
        archive.copy(&format!("payload/{}", file_name(&program)), &program)?;
    }
    for program in [PRODUCT, BESIDE, EXAMPLE] {
        let given = extra.iter().any(|path| path.file_name().is_some_and(|name| name == program));
        if !given && payloads.iter().any(|payload| payload.needs.iter().any(|need| need == program)) {
            let built = match program {
                BESIDE => package::Programs::build()?.verbs,
                EXAMPLE => build_example()?,
                _ => package::Programs::build_product()?,
            };
            archive.copy(&format!("payload/{program}"), &built)?;
        }
    }
    for path in extra {
        archive.copy(&format!("payload/{}", file_name(path)), path)?;
    }
    Ok(archive.finish()?)
}

fn files_of_kind(extension: &str) -> Result<Vec<PathBuf>> {
    let directory = sources();
    let mut files = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn compile(source: &Path, work: &Path) -> Result<PathBuf> {
    let program = work.join(source.file_stem().unwrap_or_default());
    let text = fs::read_to_string(source)?;
    let libraries = text.lines().find_map(|line| line.strip_prefix("// link: ")).unwrap_or_default();
    command::output(
        command::system("gcc")
            .args(["-std=gnu17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(source)
            .args(libraries.split_whitespace()),
    )?;
    Ok(program)
}

/// Builds the example, and returns its path. Not optimised: nothing is measured of it. Selected among all packages, as the
/// tests are, so that it shares their builds of what it depends on.
fn build_example() -> Result<PathBuf> {
    command::run(command::cargo(["build", "--quiet", "--workspace", "--example"]).arg(EXAMPLE))?;
    Ok(workspace::target().join("debug/examples").join(EXAMPLE))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_script_says_when_how_long_and_with_what_it_runs() {
        let script = "# Shows things.\n# order: 20\n# timeout: 90\n# needs: rdmascope other\n\n# order: 99\n";
        let payload = Payload::read("shows", script).expect("the head is well-formed");
        assert_eq!((payload.order, payload.timeout_s), (20, 90));
        assert_eq!(payload.needs, [PRODUCT, "other"]);

        let plain = Payload::read("plain", "true\n").expect("no head is a head");
        assert_eq!((plain.order, plain.timeout_s), (DEFAULT_ORDER, DEFAULT_TIMEOUT_S));
        assert_eq!(plain.needs, Vec::<String>::new());

        assert_eq!(plain.init, Init::Script);
        assert!(plain.runs_on(Family::V6_1) && plain.runs_on(Family::V6_12));
        let service = Payload::read("service", "# init: systemd\n# kernel: 6.1\n").expect("the head is well-formed");
        assert_eq!(service.init, Init::Systemd);
        assert!(service.runs_on(Family::V6_1) && !service.runs_on(Family::V6_12));

        assert!(Payload::read("odd", "# timeout: soon\n").is_err());
        assert!(Payload::read("odd", "# init: runit\n").is_err());
    }

    #[test]
    fn every_payload_of_the_repository_can_be_selected_and_an_unknown_name_is_an_error() {
        let all = select(&[]).expect("the scripts' heads are well-formed");
        assert!(all.iter().any(|payload| payload.name == "bench"));
        assert!(all.iter().all(|payload| payload.name != "lib" && payload.name != "screen_cost"));
        assert_eq!(select(&["screen_cost".to_owned()]).expect("a measurement has a name").len(), 1);
        assert!(select(&["no such payload".to_owned()]).is_err());
    }
}
