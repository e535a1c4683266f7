use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;
use crate::finding::{Book, Conclusion, FindingState, Grade, Severity, Subject, SubjectKey, Verdict};
use crate::inventory::DeviceId;

const LONG: Duration = Duration::from_secs(20);

/// A job about port `port` of the device `d`.
pub(super) fn job(rule: &'static str, port: u32, state: FindingState, summary: &str) -> Job {
    let mut changes = Vec::new();
    let conclusion = Conclusion {
        key: SubjectKey::Port(DeviceId(0), port),
        subject: Subject { device: Some("d".into()), port: Some(port), ..Subject::default() },
        severity: Severity::Critical,
        grade: Grade::Confirmed,
        summary: summary.to_owned(),
        evidence: Vec::new(),
        advice: String::new(),
        would_raise: String::new(),
        part_of: None,
        since: 1,
        revision: 0,
    };
    Book::default().enter(rule, 7, vec![Verdict::Holds(Box::new(conclusion))], &mut changes);
    let mut finding = changes.remove(0);
    Arc::make_mut(&mut finding).state = state;
    Job { finding, t_event: 5, unix_ns: None, suppressed: 0 }
}

struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn script(&self, text: &str) -> HookSettings {
        let path = self.at("hook");
        let dir = self.dir.path().display();
        std::fs::write(&path, format!("#!/bin/sh\ncd '{dir}'\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        HookSettings { command: vec![path.display().to_string(), "an argument".into()], ..HookSettings::default() }
    }
}

struct Running {
    hooks: Hooks,
    log: Arc<Mutex<Vec<String>>>,
}

impl Running {
    fn start(settings: Vec<HookSettings>) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let into = log.clone();
        let header = Header { host: Some("node1".into()), ..Header::new() };
        let hooks = Hooks::start(settings, &header, Arc::new(move |line| lock(&into).push(line.to_owned())));
        Self { hooks: hooks.expect("the hooks are in order"), log }
    }

    fn tell(&self, jobs: impl IntoIterator<Item = Job>) {
        lock(&self.hooks.shared.queue).jobs.extend(jobs);
        self.hooks.shared.wake();
    }

    fn until(&self, holds: impl Fn(&HookStatus) -> bool) -> HookStatus {
        let status = self.hooks.status();
        let deadline = Instant::now() + LONG;
        loop {
            let now = status().remove(0);
            if holds(&now) {
                return now;
            }
            assert!(Instant::now() < deadline, "it never holds: {now:?} {:?}", lock(&self.log));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[test]
fn a_hook_is_given_the_finding_its_arguments_and_a_small_environment() {
    let desk = Desk::new();
    let running = Running::start(vec![desk.script("cat > input; env > env; printf '%s' \"$1\" > argument")]);
    running.tell([job("nic.composite", 1, FindingState::Raised, "it fails")]);
    let status = running.until(|status| status.succeeded == 1);
    assert_eq!((status.started, status.failed, status.running), (1, 0, 0));
    let input: Value = serde_json::from_slice(&std::fs::read(desk.at("input")).unwrap()).unwrap();
    assert_eq!(input["finding"]["rule"], "nic.composite");
    assert_eq!(input["finding"]["summary"], "it fails");
    assert_eq!(input["finding"]["predicted_failure"], true);
    assert_eq!((&input["host"], &input["t_event"]), (&"node1".into(), &5.into()));
    assert!(input["t_spawn"].as_u64() > Some(5));
    assert_eq!(std::fs::read_to_string(desk.at("argument")).unwrap(), "an argument");
    let env = std::fs::read_to_string(desk.at("env")).unwrap();
    for line in ["RDMASCOPE_RULE=nic.composite", "RDMASCOPE_SUBJECT=d/1", "RDMASCOPE_PREDICTED_FAILURE=1"] {
        assert!(env.lines().any(|found| found == line), "{line}: {env}");
    }
    // The shell adds PWD, OLDPWD, SHLVL and _.
    let foreign = |line: &&str| {
        !["RDMASCOPE_", "PATH=", "LANG=", "PWD=", "OLDPWD=", "SHLVL=", "_="].iter().any(|known| line.starts_with(known))
    };
    assert_eq!(env.lines().find(foreign), None);
}

#[test]
fn a_hook_that_hangs_is_killed_with_all_it_started_and_nobody_is_left() {
    let desk = Desk::new();
    let settings = desk.script("sleep 1000 & echo $! > child; echo $$ > self; echo 'a word' >&2; echo more >&2; wait");
    let running = Running::start(vec![HookSettings { timeout: Duration::from_secs(1), ..settings }]);
    running.tell([job("link.down", 1, FindingState::Raised, "")]);
    let status = running.until(|status| status.timed_out == 1);
    assert_eq!((status.failed, status.running), (1, 0));
    assert_eq!(status.last.as_deref(), Some("killed, its time was over: a word"));
    assert!(lock(&running.log)[0].contains("link.down:d/1"), "{:?}", lock(&running.log));
    let state = |file: &str| {
        let pid = std::fs::read_to_string(desk.at(file)).unwrap();
        std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()
    };
    assert_eq!(state("self"), None, "it is reaped");
    let deadline = Instant::now() + LONG;
    // An orphan is reaped by whoever adopts it; until then it is a zombie.
    while state("child").is_some_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < deadline, "its child lives");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_a_hook_left_running_is_killed_when_its_time_is_over() {
    let desk = Desk::new();
    let settings = desk.script("sleep 1000 > /dev/null 2>&1 & echo $! > child; exit 0");
    let running = Running::start(vec![HookSettings { timeout: Duration::from_secs(2), ..settings }]);
    running.tell([job("link.down", 1, FindingState::Raised, "")]);
    let status = running.until(|status| status.running == 0 && status.started == 1);
    assert_eq!((status.succeeded, status.failed, status.timed_out), (0, 1, 1));
    assert!(status.last.as_deref().is_some_and(|last| last.contains("left running")), "{status:?}");
    let pid = std::fs::read_to_string(desk.at("child")).unwrap();
    let deadline = Instant::now() + LONG;
    while std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < deadline, "its child lives");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_is_left_running_ends_with_the_collector_too() {
    let desk = Desk::new();
    let settings = desk.script("sleep 1000 > /dev/null 2>&1 & echo $! > child; exit 0");
    let mut running = Running::start(vec![HookSettings { timeout: Duration::from_secs(1000), ..settings }]);
    running.tell([job("link.down", 1, FindingState::Raised, "")]);
    running.until(|_| lines(&desk.at("child")) == 1);
    running.hooks.finish();
    let pid = std::fs::read_to_string(desk.at("child")).unwrap();
    let deadline = Instant::now() + LONG;
    while std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < deadline, "its child lives");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn what_waits_or_is_held_at_the_end_is_counted_as_dropped() {
    let desk = Desk::new();
    let settings = desk.script("echo x >> started");
    let mut running = Running::start(vec![HookSettings { debounce: Duration::from_secs(1000), ..settings }]);
    let one = || job("link.down", 1, FindingState::Raised, "");
    running.tell([one(), one(), one()]);
    running.until(|status| status.succeeded == 1 && status.suppressed == 1);
    running.hooks.finish();
    let status = running.until(|_| true);
    assert_eq!((status.started, status.suppressed, status.dropped), (1, 1, 1));
}

#[test]
fn the_first_finding_that_finds_no_place_is_told_and_all_are_counted() {
    let desk = Desk::new();
    let settings = desk.script("while [ ! -e go ]; do sleep 0.01; done");
    let mut running = Running::start(vec![HookSettings { max_concurrent: 1, ..settings }]);
    running.tell((0..300).map(|port| job("link.down", port, FindingState::Raised, "")));
    assert_eq!(running.until(|status| status.running == 1).dropped, 300 - 256);
    assert_eq!(lock(&running.log).iter().filter(|line| line.contains("dropped")).count(), 1);
    running.hooks.finish();
    assert_eq!(running.until(|_| true).dropped, 299, "what waited until the end is counted too");
}

#[test]
fn findings_that_are_lost_for_all_hooks_are_counted() {
    let desk = Desk::new();
    let mut running = Running::start(vec![desk.script("true")]);
    let finding = job("link.down", 1, FindingState::Cleared, "").finding;
    // One queue while this thread holds it, and one more.
    let findings = vec![finding; MAX_QUEUED + 1];
    running.hooks.findings(&findings, &World::new(Header::new()));
    assert_eq!(running.hooks.lost()(), 1);
}

#[test]
fn a_failing_hook_is_noted_with_its_first_word_and_does_not_stop_the_next() {
    let desk = Desk::new();
    let running = Running::start(vec![desk.script("echo 'no such host' >&2; echo more >&2; exit 3")]);
    running.tell([job("link.down", 1, FindingState::Raised, ""), job("link.down", 2, FindingState::Raised, "")]);
    let status = running.until(|status| status.failed == 2);
    assert_eq!(status.last.as_deref(), Some("exit code 3: no such host"));
    assert_eq!(lock(&running.log).len(), 2);
}

#[test]
fn a_program_that_has_gone_fails_and_the_rest_goes_on() {
    let desk = Desk::new();
    let running = Running::start(vec![desk.script("true")]);
    std::fs::remove_file(desk.at("hook")).unwrap();
    running.tell([job("link.down", 1, FindingState::Raised, "")]);
    let status = running.until(|status| status.failed == 1);
    assert!(status.last.is_some_and(|last| last.contains("cannot be started")), "{:?}", lock(&running.log));
}

#[test]
fn no_more_run_at_once_than_allowed_and_all_get_their_turn() {
    let desk = Desk::new();
    let settings = desk.script("echo x >> started; while [ ! -e go ]; do sleep 0.01; done");
    let running = Running::start(vec![HookSettings { max_concurrent: 2, ..settings }]);
    running.tell((1..=5).map(|port| job("link.down", port, FindingState::Raised, "")));
    running.until(|status| status.running == 2 && lines(&desk.at("started")) == 2);
    std::fs::write(desk.at("go"), "").unwrap();
    let status = running.until(|status| status.succeeded == 5);
    assert_eq!((status.started, status.dropped), (5, 0));
}

#[test]
fn only_what_a_hook_asks_for_starts_it() {
    let desk = Desk::new();
    let settings = desk.script("cat >> told; echo >> told");
    let running = Running::start(vec![HookSettings {
        rules: vec!["pcie.*".into(), "nic.composite".into()],
        severity: Severity::Critical,
        states: vec![FindingState::Raised, FindingState::Cleared],
        debounce: Duration::ZERO,
        ..settings
    }]);
    let part_of = |rule: &'static str| {
        let mut job = job(rule, 1, FindingState::Raised, "");
        Arc::make_mut(&mut job.finding).part_of = Some("link.down:d/1".into());
        job
    };
    running.tell([
        job("link.down", 1, FindingState::Raised, ""),
        job("pcie.aer_fatal", 1, FindingState::Updated, ""),
        part_of("pcie.aer_fatal"),
        part_of("nic.composite"),
        job("pcie.aer_fatal", 1, FindingState::Cleared, ""),
    ]);
    running.until(|status| status.succeeded == 2);
    let told = std::fs::read_to_string(desk.at("told")).unwrap();
    assert!(told.contains("nic.composite") && told.contains("cleared") && !told.contains("updated"), "{told}");
}

#[test]
fn a_finding_that_becomes_severe_enough_later_is_told_then_and_once() {
    let desk = Desk::new();
    let settings = desk.script("cat >> told; echo >> told");
    let running = Running::start(vec![HookSettings {
        severity: Severity::Critical,
        states: vec![FindingState::Raised],
        debounce: Duration::ZERO,
        ..settings
    }]);
    let flap = |severity, state| {
        let mut job = job("link.flap", 1, state, "");
        Arc::make_mut(&mut job.finding).severity = severity;
        job
    };
    running.tell([
        flap(Severity::Warning, FindingState::Raised),
        flap(Severity::Critical, FindingState::Updated),
        flap(Severity::Critical, FindingState::Updated),
        flap(Severity::Critical, FindingState::Cleared),
        flap(Severity::Critical, FindingState::Raised),
    ]);
    running.until(|status| status.succeeded == 2);
    let told = std::fs::read_to_string(desk.at("told")).unwrap();
    assert_eq!(told.lines().filter(|line| line.contains("link.flap")).count(), 2, "{told}");
    assert!(told.contains("updated") && !told.contains("cleared"), "{told}");
}

#[test]
fn the_end_waits_for_no_hook_longer_than_it_must() {
    let desk = Desk::new();
    let mut running = Running::start(vec![desk.script("echo $$ > self; sleep 1000")]);
    running.tell([job("link.down", 1, FindingState::Raised, "")]);
    running.until(|_| lines(&desk.at("self")) == 1);
    running.hooks.finish();
    let pid = std::fs::read_to_string(desk.at("self")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "it is killed and reaped");
}

#[test]
fn what_cannot_work_is_an_error_before_anything_runs() {
    let desk = Desk::new();
    let good = desk.script("true");
    let with = |command: &str| HookSettings { command: vec![command.into()], ..good.clone() };
    std::fs::write(desk.at("plain"), "x").unwrap();
    let start = |settings| Hooks::start(vec![settings], &Header::new(), Arc::new(|_: &str| {})).err();
    let says = |settings, word: &str| {
        let error = start(settings).expect(word).to_string();
        assert!(error.contains(word), "{error}");
    };
    says(with(""), "empty command");
    says(with("hook"), "absolute");
    says(with("/no/such/hook"), "No such file");
    says(with("/tmp"), "no file");
    says(HookSettings { rules: vec!["pci.*".into()], ..good.clone() }, "no rule");
    says(HookSettings { rules: vec!["[".into()], ..good.clone() }, "pattern");
    says(HookSettings { rules: vec![], ..good.clone() }, "rules is empty");
    says(HookSettings { states: vec![], ..good.clone() }, "states is empty");
    says(HookSettings { max_concurrent: 0, ..good.clone() }, "max-concurrent");
    says(HookSettings { timeout: Duration::ZERO, ..good.clone() }, "timeout");
    says(with(&desk.at("plain").display().to_string()), "not executable");
    assert!(start(good).is_none());
}

#[test]
fn other_hooks_take_their_place_and_what_runs_of_the_old_ones_may_end() {
    let (old, same, new) = (Desk::new(), Desk::new(), Desk::new());
    let slow = old.script("echo > began; until [ -e go ]; do sleep 0.01; done; echo > ended");
    let kept = HookSettings { debounce: Duration::ZERO, ..same.script("echo >> told") };
    let running = Running::start(vec![slow, kept.clone()]);
    let status = running.hooks.status();
    let until = |holds: &dyn Fn(&[HookStatus]) -> bool| {
        let deadline = Instant::now() + LONG;
        while !holds(&status()) {
            assert!(Instant::now() < deadline, "it never holds: {:?}", status());
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    running.tell([job("nic.composite", 1, FindingState::Raised, "it fails")]);
    until(&|all| old.at("began").exists() && all[1].succeeded == 1);

    let wrong = HookSettings { command: vec!["/nowhere".into()], ..HookSettings::default() };
    assert!(Hooks::check(vec![kept.clone(), wrong]).is_err(), "nothing is put in their place then");
    let checked = Hooks::check(vec![kept, new.script("echo >> told")]).expect("they are in order");
    running.hooks.exchange().put(checked);
    until(&|all| all.len() == 3 && all[2].running == 1);
    running.tell([job("nic.composite", 1, FindingState::Raised, "it fails again")]);
    until(&|all| all[0].succeeded == 2 && all[1].succeeded == 1);
    assert_eq!((lines(&same.at("told")), lines(&new.at("told"))), (2, 1));
    std::fs::write(old.at("go"), "").unwrap();
    until(&|all| all.len() == 3 && all[2].program == "(no longer configured)");
    let gone = status().remove(2);
    assert_eq!((gone.started, gone.succeeded, gone.running), (1, 1, 0), "its numbers stay");
    assert!(old.at("ended").exists());
}
