//! The source over stored dialogues: recorded ones for what kernels really say, built ones for what goes wrong.

mod counters;
mod qps;

use std::fs;
use std::io;

use serde_json::Value;

use super::conversation::ENOBUFS;
use super::scene::{
    INTERRUPTED, Set, bound, counter_mode, counters, devices, done, message, qp_count, qp_list, qp_part, refusal,
    statistics,
};
use super::stored::{Asked, Exchange, Stored};
use super::*;
use crate::observation::Seeing;

const RTS: u8 = 3;
const RTR: u8 = 2;

/// The dialogues recorded on rxe: four polls, 5 s apart. Eight QPs carry traffic, then they end, then `rxeb` becomes
/// `mlx5_9`, then `rxea` is deleted.
const RECORDED: [(&str, &str); 2] =
    [("6.1", include_str!("dialogues/rxe-6.1.json")), ("6.12", include_str!("dialogues/rxe-6.12.json"))];

/// The monitor of a kernel on which nothing happens; without it the dialogue of 6.12 would open a real socket.
fn quiet() -> Monitor {
    Monitor::over(Box::new(Stored::arriving(Vec::new())))
}

struct Scene {
    source: Nldev,
    asked: Asked,
    _proc: tempfile::TempDir,
}

impl Scene {
    fn of(exchanges: Vec<Exchange>) -> Self {
        Self::over(Stored::new(exchanges), Monitor::default(), |_| {})
    }

    fn over(stored: Stored, monitor: Monitor, change: impl FnOnce(&mut Options)) -> Self {
        let proc = tempfile::tempdir().unwrap();
        let mut options = Options { proc: proc.path().to_owned(), ..Options::default() };
        change(&mut options);
        let asked = Asked::clone(&stored.asked);
        let lists = Conversation::new(Box::new(stored.beside()));
        let beside = stored.beside();
        let sets = BoundSets::new(Box::new(move || Ok(Conversation::new(Box::new(beside.beside())))));
        let link = Link::Open { questions: Conversation::new(Box::new(stored)), lists };
        Self { source: Nldev::over(link, sets, monitor, options), asked, _proc: proc }
    }

    /// Polls at a second and returns what was emitted, each with its type.
    fn poll(&mut self, second: u64) -> Vec<Value> {
        let mut all = Vec::new();
        self.source.poll(second * SECOND, &mut |observation| {
            assert_eq!(observation.t, second * SECOND);
            let mut json = Vec::new();
            observation.body.write_json(&mut json).unwrap();
            let mut value: Value = serde_json::from_slice(&json).unwrap();
            value["type"] = observation.body.type_name().into();
            all.push(value);
        });
        all
    }

    fn gap(&self, what: &str) -> Option<String> {
        self.source.availability().missing.into_iter().find(|m| m.what == what).map(|m| m.reason)
    }

    fn asked(&self, command: u16) -> usize {
        self.asked.lock().unwrap().iter().filter(|r| r[4..6] == uapi::message_type(command).to_ne_bytes()).count()
    }
}

fn only<'v>(all: &'v [Value], kind: &str) -> Vec<&'v Value> {
    all.iter().filter(|value| value["type"] == kind).collect()
}

/// QP events as `device/number event state`, in the order of their numbers.
fn qp_events(all: &[Value]) -> Vec<String> {
    let mut events: Vec<String> = only(all, "qp")
        .iter()
        .map(|qp| {
            let state = qp["to"].as_str().unwrap_or("");
            format!("{}/{} {} {state}", qp["device"].as_str().unwrap(), qp["qpn"], qp["event"].as_str().unwrap())
        })
        .collect();
    events.sort();
    events
}

#[test]
fn recorded_kernels_tell_devices_counters_and_qps() {
    for (kernel, dialogue) in RECORDED {
        let mut scene = Scene::over(Stored::read(dialogue), quiet(), |_| {});
        let all = scene.poll(1);
        let found = only(&all, "device");
        assert_eq!(found.len(), 2, "{kernel}");
        assert_eq!((&found[0]["device"], &found[0]["index"]), (&"rxea".into(), &0.into()), "{kernel}");
        assert_eq!(found[0]["node_guid"].as_str().unwrap().len(), "0011:2233:4455:6677".len(), "{kernel}");
        let sets = only(&all, "counters");
        assert_eq!(sets.len(), 2, "{kernel}");
        for set in sets {
            assert_eq!((&set["port"], &set["source"]), (&1.into(), &"nldev".into()), "{kernel}");
            assert!(set["values"].as_object().unwrap().len() >= 15, "{kernel}: {set}");
            assert!(set["values"]["sent_pkts"].as_u64().unwrap() > 0, "{kernel}: {set}");
        }
        let qps = only(&all, "qp");
        assert_eq!(qps.len(), 10, "{kernel}: four RC QPs and GSI on each side");
        let rts = qps.iter().find(|qp| qp["device"] == "rxea" && qp["qp_type"] == "RC").unwrap();
        assert_eq!((&rts["to"], &rts["event"], &rts["port"]), (&"RTS".into(), &"seen".into(), &1.into()), "{kernel}");
        assert!(rts["pid"].as_u64().is_some() && rts["remote_qpn"].as_u64().is_some(), "{kernel}: {rts}");
        let gsi = qps.iter().find(|qp| qp["qp_type"] == "GSI").unwrap();
        assert_eq!((&gsi["qpn"], &gsi["comm"]), (&1.into(), &"ib_core".into()), "{kernel}: {gsi}");
        assert_eq!(gsi.get("pid"), None, "{kernel}: the kernel's own QP has no process");
        assert_eq!(scene.source.covered_devices(), ["rxea", "rxeb"], "{kernel}");
        let ports = scene.source.ports();
        assert_eq!((ports.len(), ports[0].state, ports[0].phys_state), (2, Some(4), Some(5)), "{kernel}");
        assert_eq!(ports[0].netdev.as_deref(), Some("va"), "{kernel}");
    }
}

#[test]
fn recorded_changes_are_told_once() {
    for (kernel, dialogue) in RECORDED {
        let mut scene = Scene::over(Stored::read(dialogue), quiet(), |_| {});
        scene.poll(1);
        let ended = scene.poll(6);
        assert_eq!(only(&ended, "device").len(), 0, "{kernel}");
        assert_eq!(only(&ended, "qp").len(), 8, "{kernel}");
        assert!(only(&ended, "qp").iter().all(|qp| qp["event"] == "destroy" && qp["qp_type"] == "RC"), "{kernel}");
        let renamed = scene.poll(11);
        let found = only(&renamed, "device");
        assert_eq!(
            (found.len(), &found[0]["device"], &found[0]["index"]),
            (1, &"mlx5_9".into(), &1.into()),
            "{kernel}"
        );
        assert_eq!(only(&renamed, "qp").len(), 0, "{kernel}: a rename neither ends nor creates a QP");
        let deleted = scene.poll(16);
        assert_eq!(qp_events(&deleted), ["rxea/1 destroy "], "{kernel}");
        assert_eq!(scene.source.covered_devices(), ["mlx5_9"], "{kernel}");
    }
}

#[test]
fn nothing_is_asked_about_a_device_that_is_filtered_out() {
    let stored = Stored::read(RECORDED[0].1);
    let mut scene = Scene::over(stored, Monitor::default(), |options| options.wanted = Arc::new(|name| name == "rxeb"));
    let all = scene.poll(1);
    scene.source.ports();
    assert!(!all.is_empty() && all.iter().all(|value| value["device"] == "rxeb"));
    let index_of_rxea = [8, 0, 1, 0, 0, 0, 0, 0];
    let asked = scene.asked.lock().unwrap();
    assert!(asked.len() >= 6);
    assert!(!asked.iter().any(|request| request[16..].starts_with(&index_of_rxea)));
}

#[test]
fn a_full_socket_buffer_is_a_loss() {
    let overrun = Err(io::Error::from_raw_os_error(ENOBUFS));
    let mut stored = Stored::arriving(vec![overrun]);
    for exchange in [devices(&[(0, "a")]), statistics(0, vec![counters(&[("rx_bytes", 7)])])] {
        stored.know(exchange);
    }
    // The question for the system meets the overrun.
    let mut scene = Scene::over(stored, Monitor::default(), |_| {});
    let all = scene.poll(1);
    let lost = only(&all, "lost");
    assert_eq!((lost.len(), &lost[0]["source"], &lost[0]["n"]), (1, &"nldev".into(), &1.into()));
    assert_eq!(only(&all, "counters").len(), 1, "what comes after is read as ever");
    assert_eq!(only(&scene.poll(2), "lost").len(), 0, "a loss is told once");
}

#[test]
fn a_device_event_has_the_devices_listed_at_once() {
    let event = message(command::MONITOR, 0, &[]);
    let monitor = Monitor::over(Box::new(Stored::arriving(vec![
        Ok(event),
        Err(io::ErrorKind::WouldBlock.into()),
        Err(io::ErrorKind::WouldBlock.into()),
        Err(io::Error::from_raw_os_error(ENOBUFS)),
    ])));
    let stored = Stored::new(vec![devices(&[(0, "a")]), devices(&[(0, "b")]), devices(&[(0, "c")])]);
    let mut scene = Scene::over(stored, monitor, |_| {});
    assert_eq!(only(&scene.poll(1), "device")[0]["device"], "a");
    assert_eq!(scene.source.device_events(), 1);
    assert_eq!(only(&scene.poll(2), "device").len(), 0, "nothing was heard and the period is not over");
    let all = scene.poll(3);
    assert_eq!(only(&all, "device")[0]["device"], "b", "an event that was lost counts as one that came");
    assert_eq!(only(&all, "lost").len(), 1);
}

#[test]
fn a_device_that_was_not_listed_by_a_failing_dump_stays() {
    let mut failing = devices(&[(0, "a")]);
    failing.replies.pop();
    failing.replies.push(super::stored::Datagram(done(-105)));
    let mut scene = Scene::of(vec![devices(&[(0, "a"), (1, "b")]), failing]);
    assert_eq!(only(&scene.poll(1), "device").len(), 2);
    assert_eq!(only(&scene.poll(6), "device").len(), 0);
    assert_eq!(scene.source.devices.len(), 2);
    assert!(scene.gap("devices").unwrap().contains("No buffer space"));
}

#[test]
fn without_a_way_to_the_kernel_the_source_is_off_and_looks_again() {
    let proc = tempfile::tempdir().unwrap();
    fs::create_dir(proc.path().join("net")).unwrap();
    fs::write(proc.path().join("net/netlink"), "sk Eth Pid\n0000000000000000 0 0\n").unwrap();
    let mut source = Nldev::start(Options { proc: proc.path().to_owned(), ..Options::default() });
    let availability = source.availability();
    assert_eq!(availability.state, Seeing::Off);
    assert_eq!(availability.missing[0].reason, "the kernel has no RDMA netlink: ib_core is not loaded");
    source.poll(SECOND, &mut |observation| panic!("{observation:?}"));
    assert_eq!(source.due(), 11 * SECOND);
    assert!(source.wake_fds().is_empty());
}

#[test]
fn an_old_kernel_without_a_monitor_is_whole_without_it() {
    let mut scene = Scene::over(Stored::read(RECORDED[0].1), Monitor::default(), |_| {});
    scene.poll(1);
    let availability = scene.source.availability();
    assert_eq!(availability.state, Seeing::Ok);
    assert_eq!(availability.sees, "2 devices, 2 ports, 30 counters, 10 QPs");
    assert!(scene.gap("device events").unwrap().contains("6.12"));
}

#[test]
fn a_newer_kernel_has_a_monitor() {
    let mut scene = Scene::over(Stored::read(RECORDED[1].1), quiet(), |_| {});
    scene.poll(1);
    assert_eq!(scene.source.availability().missing, []);
}

#[test]
fn in_a_pid_namespace_of_its_own_the_source_says_whose_owners_it_misses() {
    for (namespace, told) in [("pid:[4026531836]", false), ("pid:[4026532210]", true)] {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir_all(proc.path().join("self/ns")).unwrap();
        std::os::unix::fs::symlink(namespace, proc.path().join("self/ns/pid")).unwrap();
        let scene = Scene::over(Stored::new(Vec::new()), quiet(), |options| options.proc = proc.path().to_owned());
        assert_eq!(scene.gap("owners of QPs of other PID namespaces").is_some(), told, "{namespace}");
    }
}

#[test]
fn periods_keep_their_step_and_skip_what_is_past() {
    assert_eq!(next(10, 5, 11), 15);
    assert_eq!(next(10, 5, 40), 45);
    assert_eq!(stretched(SECOND, 0, 0), SECOND);
    assert_eq!(stretched(SECOND, u64::MAX, 1), u64::MAX);
}
