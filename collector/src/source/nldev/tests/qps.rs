//! The list of QPs: what is told, what is taken as gone, and how fast it is read.

use super::*;

/// A device `a` (index 0) whose QP lists are these, one a poll.
fn lists(replies: Vec<Vec<Vec<u8>>>) -> Vec<Exchange> {
    let mut exchanges = vec![devices(&[(0, "a")]), qp_count(0, 2)];
    exchanges.extend(replies.into_iter().map(|reply| qp_list(0, reply)));
    exchanges
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
