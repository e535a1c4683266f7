//! The source over stored dialogues: recorded ones for what kernels really say, built ones for what goes wrong.

use std::fs;
use std::io;

use serde_json::Value;

use super::conversation::ENOBUFS;
use super::scene::{
    INTERRUPTED, bound, counter_mode, counters, devices, done, message, qp_count, qp_list, qp_part, refusal, statistics,
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
        let link = Link::Open { questions: Conversation::new(Box::new(stored)), lists };
        Self { source: Nldev::over(link, monitor, options), asked, _proc: proc }
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

/// A device `a` (index 0) whose QP lists are these, one a poll.
fn lists(replies: Vec<Vec<Vec<u8>>>) -> Vec<Exchange> {
    let mut exchanges = vec![devices(&[(0, "a")]), qp_count(0, 2)];
    exchanges.extend(replies.into_iter().map(|reply| qp_list(0, reply)));
    exchanges
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
fn the_owner_s_name_and_container_come_from_proc() {
    let id = "3f4c1f0e9a7b52d88c6e0d1b2a394857f6e5d4c3b2a190887766554433221100";
    let mut scene = Scene::of(lists(vec![vec![qp_part(0, &[(17, RTS, 41), (18, RTS, 42)]), done(0)]]));
    let process = scene.source.options.proc.join("41");
    fs::create_dir(&process).unwrap();
    fs::write(process.join("comm"), "train.py\n").unwrap();
    fs::write(process.join("cgroup"), format!("0::/kubepods.slice/cri-containerd-{id}.scope\n")).unwrap();
    let all = scene.poll(1);
    let qps = only(&all, "qp");
    assert_eq!((&qps[0]["comm"], &qps[0]["container"]), (&"train.py".into(), &id.into()));
    assert_eq!((&qps[1]["pid"], qps[1].get("comm"), qps[1].get("container")), (&42.into(), None, None));
}

#[test]
fn only_new_and_changed_qps_are_emitted() {
    let mut scene = Scene::of(lists(vec![
        vec![qp_part(0, &[(17, RTR, 41), (18, RTS, 41)]), done(0)],
        vec![qp_part(0, &[(17, RTS, 41), (18, RTS, 41)]), done(0)],
        vec![qp_part(0, &[(17, RTS, 41), (18, RTS, 99)]), done(0)],
        vec![qp_part(0, &[(17, RTS, 41), (18, RTS, 99), (19, RTS, 99)]), done(0)],
    ]));
    assert_eq!(qp_events(&scene.poll(1)), ["a/17 seen RTR", "a/18 seen RTS"]);
    assert_eq!(qp_events(&scene.poll(6)), ["a/17 seen RTS"]);
    assert_eq!(qp_events(&scene.poll(11)), ["a/18 seen RTS"], "another owner is another QP of the same number");
    assert_eq!(qp_events(&scene.poll(16)), ["a/19 seen RTS"]);
    assert_eq!(qp_events(&scene.poll(21)), [""; 0]);
}

#[test]
fn from_an_interrupted_list_nothing_is_taken_as_gone() {
    let mut scene = Scene::of(lists(vec![
        vec![qp_part(0, &[(17, RTS, 41), (18, RTS, 41)]), done(0)],
        vec![qp_part(INTERRUPTED, &[(18, RTS, 41)]), done(0)],
        vec![qp_part(0, &[(18, RTS, 41)]), done(0)],
    ]));
    scene.poll(1);
    assert_eq!(qp_events(&scene.poll(6)), [""; 0]);
    assert!(scene.gap("QPs of a").unwrap().contains("changed while it was read"));
    assert_eq!(qp_events(&scene.poll(11)), ["a/17 destroy "]);
    assert_eq!(scene.gap("QPs of a"), None);
}

#[test]
fn from_a_failed_list_nothing_is_taken_as_gone() {
    let mut scene = Scene::of(lists(vec![
        vec![qp_part(0, &[(17, RTS, 41), (18, RTS, 41)]), done(0)],
        vec![qp_part(0, &[(18, RTS, 41)]), done(-22)],
        vec![refusal(-22)],
    ]));
    scene.poll(1);
    assert_eq!(qp_events(&scene.poll(6)), [""; 0]);
    assert!(scene.gap("QPs of a").unwrap().contains("Invalid argument"));
    assert_eq!(qp_events(&scene.poll(11)), [""; 0]);
    assert_eq!(scene.source.availability().state, Seeing::Partial);
}

#[test]
fn a_list_of_several_parts_must_miss_a_qp_twice() {
    let parts = |first: &[(u32, u8, u32)]| vec![qp_part(0, first), qp_part(0, &[(19, RTS, 41)]), done(0)];
    let mut scene = Scene::of(lists(vec![
        parts(&[(17, RTS, 41), (18, RTS, 41)]),
        parts(&[(17, RTS, 41)]),
        parts(&[(17, RTS, 41), (18, RTS, 41)]),
        parts(&[(17, RTS, 41)]),
        parts(&[(17, RTS, 41)]),
    ]));
    scene.poll(1);
    assert_eq!(qp_events(&scene.poll(6)), [""; 0]);
    assert_eq!(qp_events(&scene.poll(11)), [""; 0], "it was only skipped");
    assert_eq!(qp_events(&scene.poll(16)), [""; 0]);
    assert_eq!(qp_events(&scene.poll(21)), ["a/18 destroy "]);
}

#[test]
fn a_port_that_refuses_its_counters_is_left_to_sysfs_and_asked_again_later() {
    let mut scene = Scene::of(vec![
        devices(&[(0, "a"), (1, "b")]),
        statistics(0, vec![counters(&[("rx_bytes", 7), ("RNR sent", 0)])]),
        statistics(1, vec![refusal(-22)]),
    ]);
    let all = scene.poll(1);
    let sets = only(&all, "counters");
    assert_eq!(sets.len(), 1, "no set is made up for a port that gives none");
    assert_eq!(sets[0]["values"], serde_json::json!({"rx_bytes": 7, "RNR sent": 0}));
    assert_eq!(scene.source.covered_devices(), ["a"]);
    let coverage = scene.source.coverage();
    assert!(coverage.contains("a") && !coverage.contains("b"));
    assert!(scene.gap("counters of b port 1").unwrap().contains("Invalid argument"));
    let before = scene.asked(command::STAT_GET);
    scene.poll(2);
    assert_eq!(scene.asked(command::STAT_GET) - before, 1, "only the port that answers is asked each second");
    scene.poll(6);
    assert!(scene.asked(command::STAT_GET) - before > 2);
}

#[test]
fn an_answer_without_counters_is_no_coverage() {
    let mut scene = Scene::of(vec![devices(&[(0, "a")]), statistics(0, vec![counters(&[])])]);
    assert_eq!(only(&scene.poll(1), "counters").len(), 0);
    assert_eq!(scene.source.covered_devices(), [""; 0]);
    assert!(scene.gap("counters of a port 1").unwrap().contains("no hardware counter"));
}

#[test]
fn counters_bound_to_qps_stretch_the_period_and_say_so() {
    let names: Vec<String> = (0..30).map(|i| format!("c{i}")).collect();
    let values: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut scene = Scene::of(vec![
        devices(&[(0, "a")]),
        statistics(0, vec![counters(&values)]),
        counter_mode(0, 2),
        bound(0, 100),
    ]);
    assert_eq!(only(&scene.poll(1), "counters").len(), 1);
    let reason = scene.gap("counters in between").unwrap();
    assert!(reason.contains("100 counters bound to QPs") && reason.contains("3000 firmware commands"), "{reason}");
    assert!(reason.contains("every 3 s"), "{reason}");
    assert_eq!(only(&scene.poll(2), "counters").len(), 0);
    assert_eq!(only(&scene.poll(3), "counters").len(), 0);
    assert_eq!(only(&scene.poll(4), "counters").len(), 1);
}

#[test]
fn bound_counters_are_not_listed_where_the_mode_says_none() {
    let mut scene = Scene::of(vec![
        devices(&[(0, "a")]),
        statistics(0, vec![counters(&[("rx_bytes", 7)])]),
        counter_mode(0, 0),
        bound(0, 100),
    ]);
    scene.poll(1);
    assert_eq!(scene.asked(command::STAT_GET), 2, "the mode and the counters");
    assert_eq!(scene.gap("counters in between"), None);
}

#[test]
fn many_qps_are_counted_each_period_but_listed_less_often() {
    let mut scene = Scene::of(vec![
        devices(&[(0, "a")]),
        qp_count(0, 20_000),
        qp_list(0, vec![qp_part(0, &[(17, RTS, 41)]), done(0)]),
    ]);
    assert_eq!(qp_events(&scene.poll(1)), ["a/17 seen RTS"], "the first list is made at once");
    assert!(scene.gap("QP changes in between").unwrap().contains("every 10 s"));
    scene.poll(6);
    assert_eq!((scene.asked(command::RES_GET), scene.asked(command::RES_QP_GET)), (2, 1));
    scene.poll(11);
    assert_eq!((scene.asked(command::RES_GET), scene.asked(command::RES_QP_GET)), (3, 2));
}

/// A list of 600 QPs in two parts.
fn long_list() -> Vec<Vec<u8>> {
    let qps: Vec<(u32, u8, u32)> = (17..617).map(|qpn| (qpn, RTS, 41)).collect();
    vec![qp_part(0, &qps[..550]), qp_part(0, &qps[550..]), done(0)]
}

#[test]
fn a_long_list_is_read_in_steps_at_the_rate_allowed() {
    let stored = Stored::new(vec![devices(&[(0, "a")]), qp_count(0, 600), qp_list(0, long_list())]);
    let mut scene = Scene::over(stored, Monitor::default(), |options| options.max_qp_queries_per_s = 300);
    assert_eq!(qp_events(&scene.poll(1)).len(), 550, "the step ends with the part that fills it");
    assert_eq!(scene.source.due(), 2 * SECOND, "counters go on being read");
    assert_eq!(qp_events(&scene.poll(2)).len(), 0, "550 queries at 300 a second are worth more than a second");
    assert_eq!(qp_events(&scene.poll(3)).len(), 50);
    assert_eq!(scene.asked(command::RES_QP_GET), 1);
    assert_eq!(qp_events(&scene.poll(6)).len(), 0);
    assert_eq!(scene.asked(command::RES_QP_GET), 2, "then the next list begins");
}

#[test]
fn a_device_that_goes_while_its_list_is_read_leaves_no_qp() {
    let event = message(command::MONITOR, 0, &[]);
    let quiet = || Err(io::ErrorKind::WouldBlock.into());
    let monitor = Monitor::over(Box::new(Stored::arriving(vec![quiet(), Ok(event)])));
    let stored = Stored::new(vec![devices(&[(0, "a")]), devices(&[]), qp_count(0, 600), qp_list(0, long_list())]);
    let mut scene = Scene::over(stored, monitor, |_| {});
    assert_eq!(qp_events(&scene.poll(1)).len(), 550);
    let gone = qp_events(&scene.poll(2));
    assert_eq!(gone.len(), 550);
    assert!(gone.iter().all(|event| event.ends_with("destroy ")));
    assert_eq!((qp_events(&scene.poll(6)).len(), scene.source.qps.len()), (0, 0));
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
fn periods_keep_their_step_and_skip_what_is_past() {
    assert_eq!(next(10, 5, 11), 15);
    assert_eq!(next(10, 5, 40), 45);
    assert_eq!(stretched(SECOND, 0, 0), SECOND);
    assert_eq!(stretched(SECOND, u64::MAX, 1), u64::MAX);
}
