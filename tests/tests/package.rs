//! What is promised of the packages: the .deb in a minimal Debian 12, and the unit as systemd judges it.
//! `cargo xtask test` makes the .deb and the Debian, and names them; see `xtask/src/package.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use end_to_end::binary::Run;
use serde_json::Value;

/// The environment variables that name the .deb, and the folder with the Debian to install it in.
const DEB: &str = "RDMASCOPE_DEB";
const CHROOT: &str = "RDMASCOPE_CHROOT";

/// The highest exposure, of 10, that `systemd-analyze security` may find.
const EXPOSURE: f64 = 3.0;

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path)
}

/// A path out of the environment; prints the skip when `cargo xtask test` did not name one.
fn named(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        println!("skipped: {variable} names nothing; cargo xtask test makes it, as root");
    }
    path
}

/// A copy of the Debian, removed when the test is over.
struct Debian {
    folder: tempfile::TempDir,
}

impl Debian {
    fn copy(base: &Path) -> Self {
        // Beside the original: a hidden reason less to run out of space on a small /tmp.
        let folder = tempfile::tempdir_in(base.parent().expect("the base lies in a folder")).expect("a folder");
        let copied = Run::new(Command::new("cp").arg("-a").arg(base.join(".")).arg(folder.path()));
        assert_eq!(copied.code, Some(0), "{copied:?}");
        Self { folder }
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(inside.trim_start_matches('/'))
    }

    /// Runs a command in it, which must succeed; returns both of its outputs.
    fn run(&self, command: &[&str]) -> String {
        let mut chroot = Command::new("chroot");
        chroot.arg(self.folder.path()).args(command).env_clear();
        chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        let run = Run::new(&mut chroot);
        assert_eq!(run.code, Some(0), "{command:?}: {run:?}");
        run.stdout + &run.stderr
    }
}

#[test]
fn the_deb_installs_on_debian_12_works_there_and_a_purge_leaves_only_what_it_names() {
    let (Some(deb), Some(base)) = (named(DEB), named(CHROOT)) else { return };
    let debian = Debian::copy(&base);
    let before = files(&debian);
    fs::copy(&deb, debian.path("/tmp/package.deb")).unwrap();
    // No --force and no network: everything it depends on is there, or it fails.
    debian.run(&["dpkg", "--install", "/tmp/package.deb"]);
    // As often as wanted.
    debian.run(&["dpkg", "--install", "/tmp/package.deb"]);

    let version = debian.run(&["rdmascope", "--version"]);
    assert_eq!(version.trim(), concat!("rdmascope ", env!("CARGO_PKG_VERSION")));
    // It starts, so the library it links is there: the package depends on it.
    let version = debian.run(&["rdmascope-verbs", "--version"]);
    assert_eq!(version.trim(), concat!("rdmascope-verbs ", env!("CARGO_PKG_VERSION")));
    assert!(debian.run(&["rdmascope-verbs", "--help"]).contains("loopback"));
    let depends = debian.run(&["dpkg-query", "--show", "--showformat=${Depends}", "rdmascope"]);
    assert!(depends.contains("libibverbs1"), "{depends}");
    let page = debian.run(&["zcat", "/usr/share/man/man1/rdmascope-verbs.1.gz"]);
    assert!(page.contains(".TH rdmascope-verbs 1"), "{page}");
    // The shipped configuration is one that the program takes.
    let ports =
        debian.run(&["rdmascope", "--config", "/etc/rdmascope/rdmascope.toml", "demo", "--json", "--for", "1s"]);
    assert!(!ports.contains("rdmascope:"), "{ports}");
    let user = debian.run(&["getent", "passwd", "rdmascope"]);
    assert!(user.contains(":/var/lib/rdmascope:/usr/sbin/nologin"), "{user}");
    assert!(debian.run(&["getent", "group", "rdmascope"]).starts_with("rdmascope:"));

    let commands = subcommands(&debian);
    assert!(commands.iter().any(|command| command == "collect"), "{commands:?}");
    for page in commands.iter().map(|command| format!("rdmascope-{command}")).chain(["rdmascope".to_owned()]) {
        let text = debian.run(&["zcat", &format!("/usr/share/man/man1/{page}.1.gz")]);
        assert!(text.contains(&format!(".TH {page} 1")), "{page}: {}", &text[..text.len().min(300)]);
    }
    let completion = ". /usr/share/bash-completion/completions/rdmascope; COMP_WORDS=(rdmascope col); COMP_CWORD=1; \
        _rdmascope rdmascope col rdmascope; echo \"${COMPREPLY[@]}\"";
    assert_eq!(debian.run(&["bash", "-c", completion]).trim(), "collect");
    for shell in ["/usr/share/zsh/vendor-completions/_rdmascope", "/usr/share/fish/vendor_completions.d/rdmascope.fish"]
    {
        assert!(fs::read_to_string(debian.path(shell)).unwrap().contains("collect"), "{shell}");
    }
    let mode = debian.run(&["stat", "-c", "%a %U", "/etc/rdmascope/environment"]);
    assert_eq!(mode.trim(), "600 root");
    // Installed, not enabled: a service with capabilities starts when its owner says so.
    assert!(debian.path("/usr/lib/systemd/system/rdmascope.service").exists());
    assert!(!debian.path("/etc/systemd/system/multi-user.target.wants/rdmascope.service").exists());

    // A changed configuration outlives an upgrade and a removal; a purge names what it keeps.
    fs::write(debian.path("/etc/rdmascope/rdmascope.toml"), "interval = \"2s\"\n").unwrap();
    debian.run(&["dpkg", "--install", "--force-confold", "/tmp/package.deb"]);
    fs::create_dir_all(debian.path("/var/lib/rdmascope")).unwrap();
    fs::write(debian.path("/var/lib/rdmascope/incident.jsonl"), "").unwrap();
    fs::create_dir_all(debian.path("/var/lib/rdmascope-changes")).unwrap();
    fs::write(debian.path("/var/lib/rdmascope-changes/7-5.json"), "").unwrap();
    debian.run(&["dpkg", "--remove", "rdmascope"]);
    assert_eq!(fs::read_to_string(debian.path("/etc/rdmascope/rdmascope.toml")).unwrap(), "interval = \"2s\"\n");
    let said = debian.run(&["dpkg", "--purge", "rdmascope"]);
    assert!(said.contains("kept: /var/lib/rdmascope,"), "{said}");
    assert!(said.contains("kept: /var/lib/rdmascope-changes,"), "{said}");
    assert!(said.contains("kept: the system user and group rdmascope"), "{said}");
    let mut left: Vec<_> = files(&debian).into_iter().filter(|file| !before.contains(file)).collect();
    left.retain(|file| {
        !["/tmp/", "/var/log/", "/var/lib/dpkg/", "/var/cache/"].iter().any(|own| file.starts_with(own))
    });
    // The copies that the tools keep of the user tables they changed.
    left.retain(|file| !["/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-"].contains(&file.as_str()));
    left.retain(|file| file != "/etc/.pwd.lock");
    left.sort();
    let kept = ["", "-changes", "-changes/7-5.json", "/incident.jsonl"].map(|rest| format!("/var/lib/rdmascope{rest}"));
    assert_eq!(left, kept);
}

/// What `rdmascope --help` lists, but clap's own `help`.
fn subcommands(debian: &Debian) -> Vec<String> {
    let help = debian.run(&["rdmascope", "--help"]);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

/// Every path in it.
fn files(debian: &Debian) -> Vec<String> {
    let listed = debian.run(&["find", "/", "-xdev"]);
    listed.lines().map(str::to_owned).collect()
}

/// `systemd-analyze`, or the skip.
fn systemd_analyze() -> Option<Command> {
    let there = Command::new("systemd-analyze").arg("--version").output().is_ok();
    if !there {
        println!("skipped: no systemd-analyze (Debian package systemd)");
    }
    there.then(|| Command::new("systemd-analyze"))
}

#[test]
fn the_unit_and_its_examples_say_nothing_that_systemd_does_not_understand() {
    let Some(mut analyze) = systemd_analyze() else { return };
    // A root that holds nothing but the unit, its drop-ins, and a program where it looks for one.
    let root = tempfile::tempdir().unwrap();
    let units = root.path().join("etc/systemd/system");
    fs::create_dir_all(units.join("rdmascope.service.d")).unwrap();
    fs::create_dir_all(root.path().join("usr/bin")).unwrap();
    fs::create_dir_all(root.path().join("bin")).unwrap();
    for program in ["usr/bin/rdmascope", "bin/kill"] {
        fs::copy("/bin/true", root.path().join(program)).unwrap();
    }
    fs::copy(packaging("systemd/rdmascope.service"), units.join("rdmascope.service")).unwrap();
    for example in fs::read_dir(packaging("systemd/examples")).unwrap() {
        let example = example.unwrap().path();
        fs::copy(&example, units.join("rdmascope.service.d").join(example.file_name().unwrap())).unwrap();
    }
    analyze.args(["verify", "--man=no", "--generators=no", "--recursive-errors=no", "--root"]).arg(root.path());
    let run = Run::new(analyze.arg("rdmascope.service"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
}

#[test]
fn systemd_finds_no_higher_exposure_of_the_unit_than_3() {
    let Some(mut analyze) = systemd_analyze() else { return };
    analyze.args(["security", "--offline=true", "--no-pager", "--json=short"]);
    let threshold = format!("--threshold={}", EXPOSURE * 10.0);
    let run = Run::new(analyze.arg(threshold).arg(packaging("systemd/rdmascope.service")));
    let told: Vec<Value> = serde_json::from_str(&run.stdout).unwrap_or_default();
    let exposed: Vec<_> = told.iter().filter(|row| row["set"] == false).map(|row| &row["name"]).collect();
    assert_eq!(run.code, Some(0), "{exposed:?} {}", run.stderr);
    assert!(!told.is_empty(), "{run:?}");
}

#[test]
fn the_unit_names_each_capability_once_for_the_process_and_once_as_its_bound_and_says_why() {
    let unit = fs::read_to_string(packaging("systemd/rdmascope.service")).unwrap();
    let line = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    let ambient = line("AmbientCapabilities=");
    assert_eq!(ambient, line("CapabilityBoundingSet="));
    for capability in ambient.split(' ') {
        let why = unit.lines().any(|line| line.starts_with(&format!("#   {capability} ")));
        assert!(why, "no reason is given for {capability}");
    }
}

#[test]
fn no_example_sends_to_the_port_of_grpc_without_asking_for_grpc() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![root.join("README.md")];
    let mut folders = vec![packaging(""), root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in files {
        // A picture has no examples.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let lines: Vec<String> = text.lines().map(str::to_lowercase).collect();
        for at in (0..lines.len()).filter(|at| lines[*at].contains("4317")) {
            seen += 1;
            let near = &lines[at.saturating_sub(2)..lines.len().min(at + 3)];
            if !near.iter().any(|line| line.contains("grpc")) {
                wrong.push(format!("{}:{}", file.display(), at + 1));
            }
        }
    }
    // The Collector's own configuration has both.
    assert!(seen > 0);
    assert_eq!(wrong, Vec::<String>::new(), "the default protocol is http/protobuf: port 4318");
}
