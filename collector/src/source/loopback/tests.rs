//! The probe with shell scripts in the place of `rdmascope-verbs`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;

const HELLO: &str = concat!(
    r#"{"type":"hello","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#"","operations":32,"bytes":64,"period_ns":1000000000}"#
);
const ALIVE: &str = r#"{"type":"alive","t":1000000000,"cpu_ns":5000000}"#;
const MEASURED: &str = r#"{"t":5,"type":"loopback","device":"a","port":1,"p50_ns":10,"p99_ns":20,"max_ns":30,"n":32}"#;

/// A folder with a `/sys/class` in which there is a device that can be opened, and a program.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(script: &str) -> Self {
        let bench = Self { folder: tempfile::tempdir().expect("a temporary directory") };
        for class in ["infiniband/a", "infiniband_verbs/uverbs0"] {
            fs::create_dir_all(bench.path("class").join(class)).expect("a folder");
        }
        bench.script(script);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, script: &str) {
        // Beside its place: one that is being started cannot be written.
        fs::write(self.path("next"), format!("#!/bin/sh\ncd {}\n{script}\n", self.folder.path().display()))
            .expect("a file");
        fs::set_permissions(self.path("next"), fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::rename(self.path("next"), self.path("verbs")).expect("a file");
    }

    fn probe(&self) -> Loopback {
        let options = LoopbackOptions {
            program: Some(self.path("verbs")),
            device: vec!["a*".to_owned(), "b".to_owned()],
            exclude: vec!["ab".to_owned()],
        };
        let mut probe = Loopback::new(options, self.path("class"));
        probe.shortest_rest_ns = 1_000_000;
        probe
    }
}

/// Polls until what is wanted is so; returns what was emitted, as lines.
fn until(probe: &mut Loopback, wanted: impl Fn(&Availability, &[String]) -> bool) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut told = Vec::new();
    loop {
        probe.poll(clock::monotonic_ns(), &mut |observation| {
            let mut line = Vec::new();
            crate::observation::recording::write_observation(observation, &mut line).expect("a line");
            told.push(String::from_utf8(line).expect("text").trim().to_owned());
        });
        let seen = probe.availability();
        if wanted(&seen, &told) {
            return told;
        }
        assert!(Instant::now() < deadline, "{seen:?} {told:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn says(seen: &Availability, text: &str) -> bool {
    seen.reason().is_some_and(|reason| reason.contains(text))
}

#[test]
fn measurements_go_on_as_they_were_told_and_what_the_provider_prints_does_not() {
    let bench = Bench::new(&format!("echo 'libmlx5: hello'\necho '{HELLO}'\necho '{MEASURED}'\nread wait"));
    let mut probe = bench.probe();
    let told = until(&mut probe, |_, told| !told.is_empty());
    assert_eq!(told, [MEASURED]);
}

#[test]
fn the_program_is_given_the_filter() {
    let bench = Bench::new("echo \"$@\" > arguments; read wait");
    let mut probe = bench.probe();
    until(&mut probe, |_, _| bench.path("arguments").metadata().is_ok_and(|file| file.len() > 0));
    let arguments = fs::read_to_string(bench.path("arguments")).expect("the script wrote it");
    assert_eq!(arguments.trim(), "loopback --device=a* --device=b --exclude=ab");
}

#[test]
fn each_port_that_is_not_measured_is_named_with_its_reason_and_what_is_seen_counts_the_others() {
    let port = |name: &str, port: &str, state: &str| {
        format!(r#"echo '{{"type":"port","device":"{name}","port":{port},"state":{state}}}'"#)
    };
    let lines = [
        format!("echo '{HELLO}'"),
        port("a", "1", r#""yes""#),
        port("b", "1", r#""inactive""#),
        port("c", "1", r#"{"failed":"no GID"}"#),
        port("d", "null", r#"{"failed":"cannot be opened"}"#),
        port("e", "1", r#""yes""#),
        port("e", "1", r#""gone""#),
        format!("echo '{ALIVE}'"),
        format!("echo '{}'", ALIVE.replace("1000000000", "2000000000").replace("5000000", "7000000")),
        "read wait".to_owned(),
    ];
    let bench = Bench::new(&lines.join("\n"));
    let mut probe = bench.probe();
    until(&mut probe, |seen, _| seen.sees.contains('%'));
    let seen = probe.availability();
    assert_eq!(
        seen.sees,
        "1 port, 32 writes of 64 bytes every 1 s each, 1 not active; rdmascope-verbs uses 0.2 % of a core"
    );
    assert_eq!((seen.state, seen.reason().as_deref()), (Seeing::Partial, Some("c/1: no GID; d: cannot be opened")));
}

#[test]
fn a_program_that_fails_is_told_with_its_last_words_and_started_again() {
    let bench = Bench::new(&format!(
        "echo run >> runs\n[ $(wc -l < runs) -lt 3 ] && {{ echo 'provider: bad state' >&2; kill -SEGV $$; }}\n\
         echo '{HELLO}'\necho '{MEASURED}'\nread wait"
    ));
    let mut probe = bench.probe();
    until(&mut probe, |seen, _| says(seen, "killed by signal 11: provider: bad state"));
    assert_eq!(probe.availability().state, Seeing::Off);
    until(&mut probe, |_, told| !told.is_empty());
    assert_eq!(fs::read_to_string(bench.path("runs")).expect("the script wrote it").lines().count(), 3);
}

#[test]
fn the_rest_doubles_with_each_failure_up_to_a_minute() {
    let bench = Bench::new("exit 3");
    let mut probe = bench.probe();
    probe.shortest_rest_ns = SHORTEST_REST_NS;
    let mut now = 0;
    let mut rests = Vec::new();
    for _ in 0..9 {
        probe.rest(now, missing("failed".to_owned(), None));
        rests.push((probe.due() - now) / SECOND);
        now = probe.due();
    }
    assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn a_program_that_says_nothing_is_killed_and_named() {
    let bench = Bench::new(&format!("echo $$ > pid\necho '{HELLO}'\nexec sleep 1000"));
    let mut probe = bench.probe();
    probe.shortest_rest_ns = LONGEST_REST_NS;
    until(&mut probe, |_, _| running(&bench.path("pid")).is_some());
    probe.silence_ns = 1;
    until(&mut probe, |seen, _| says(seen, "hangs") && running(&bench.path("pid")).is_none());
}

/// The process of this number, if there is one.
fn running(file: &Path) -> Option<PathBuf> {
    let pid = fs::read_to_string(file).ok()?;
    let process = PathBuf::from(format!("/proc/{}", pid.trim()));
    // A zombie has no executable.
    process.join("exe").read_link().ok().map(|_| process)
}

#[test]
fn a_program_of_another_version_is_not_used() {
    let hello = HELLO.replace(env!("CARGO_PKG_VERSION"), "0.0.0");
    let bench = Bench::new(&format!("echo '{hello}'\necho '{MEASURED}'\nread wait"));
    let mut probe = bench.probe();
    probe.shortest_rest_ns = LONGEST_REST_NS;
    let told = until(&mut probe, |seen, _| says(seen, "version 0.0.0"));
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn a_missing_library_is_told_with_what_to_install() {
    let bench = Bench::new(
        "echo \"$0: error while loading shared libraries: libibverbs.so.1: cannot open shared object file\" >&2; exit 127",
    );
    let mut probe = bench.probe();
    probe.shortest_rest_ns = LONGEST_REST_NS;
    until(&mut probe, |seen, _| says(seen, "libibverbs.so.1 is not installed"));
    assert!(probe.availability().missing[0].fix.as_deref().is_some_and(|fix| fix.contains("libibverbs1")));
}

#[test]
fn without_a_device_or_a_program_nothing_is_started_and_the_reason_is_told() {
    let bench = Bench::new("touch started");
    fs::remove_dir_all(bench.path("class/infiniband")).expect("it is there");
    let mut probe = bench.probe();
    probe.poll(1, &mut |_| {});
    assert_eq!(probe.availability().reason().as_deref(), Some("everything: no RDMA device here"));
    assert!(probe.due() > 1, "it looks again, later");

    fs::create_dir_all(bench.path("class/infiniband/a")).expect("a folder");
    fs::remove_file(bench.path("verbs")).expect("it is there");
    probe.poll(probe.due(), &mut |_| {});
    assert!(says(&probe.availability(), "is no program"), "{:?}", probe.availability());
    assert!(!bench.path("started").exists());
}

#[test]
fn the_program_s_input_ends_with_the_probe_and_so_does_the_program() {
    let bench = Bench::new(&format!("echo $$ > pid\necho '{HELLO}'\nread wait\ntouch ended"));
    let mut probe = bench.probe();
    until(&mut probe, |seen, _| seen.state == Seeing::Ok);
    drop(probe);
    assert!(bench.path("ended").exists(), "it had the time to end by itself");
    assert_eq!(running(&bench.path("pid")), None);
}
