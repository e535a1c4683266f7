//! What a process that was killed left, and who undoes it.

use super::*;
use crate::source::nldev::availability::Closed;
use crate::source::nldev::binding::undo::Undone;

#[test]
fn what_a_killed_process_left_is_undone_by_the_next_one() {
    let scene = Scene::new();
    // The one that is killed: nothing of it runs any more, not even what is dropped at an end.
    let dialogue = vec![
        devices(&[(0, "a")]),
        counter_mode(0, 0, 0),
        qp_count(0, 40),
        automatic(0, TYPE, taken()),
        counter_mode(0, 1, TYPE),
    ];
    let mut binding = scene.binding(Changes::Bind(BindBy::Type), dialogue);
    poll(&mut binding, 1);
    std::mem::forget(binding);
    let mut note = scene.note().expect("its note remains");
    let ports = std::mem::take(&mut note.ports);
    scene.notes().put(&note).unwrap();
    drop(scene.notes().lock().unwrap());
    note.process.start_ticks -= 1;
    note.ports = ports;
    scene.notes().put(&note).unwrap();

    let mut next = scene.binding(
        Changes::Undo,
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 1, TYPE),
            bound(0, &[by_type(4, &[17, 18])]),
            automatic(0, 0, taken()),
            release(0, 4, 17, taken()),
            release(0, 4, 18, taken()),
            counter_mode(0, 0, 0),
        ],
    );
    let told = poll(&mut next, 1);
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("which has ended: a port 1: as before; 2 QPs"), "{told:?}");
    assert!(next.availability().sees.contains("undone of what others left: a port 1: as before"));
    assert_eq!(scene.note(), None);
    assert_eq!((scene.sent(change::STAT_SET), scene.sent(change::STAT_DEL)), (2, 2));
    assert_eq!(poll(&mut next, 6), [""; 0], "it binds nothing itself");
}

#[test]
fn one_that_binds_undoes_first_what_was_left_and_then_begins_anew() {
    let scene = Scene::new();
    scene.killed("a", 0, false);
    let mut binding = scene.binding(
        Changes::Bind(BindBy::Type),
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 1, TYPE),
            bound(0, &[]),
            automatic(0, 0, taken()),
            counter_mode(0, 0, 0),
            counter_mode(0, 0, 0),
            automatic(0, TYPE, taken()),
            counter_mode(0, 1, TYPE),
        ],
    );
    poll(&mut binding, 1);
    let note = scene.note().expect("of its own now");
    assert_eq!(note.process.life("/proc".as_ref()), Life::Living);
    assert_eq!(scene.sent(change::STAT_SET), 2);
}

#[test]
fn the_note_of_a_living_process_is_left_alone() {
    let scene = Scene::new();
    let mut note = scene.killed("a", 0, false);
    scene.remove(&note);
    note.process = Process::own("/proc".as_ref()).unwrap();
    scene.keep(&note);
    let mut binding = scene.binding(Changes::Undo, vec![devices(&[(0, "a")]), counter_mode(0, 1, TYPE)]);
    assert_eq!(poll(&mut binding, 1), [""; 0]);
    assert_eq!((scene.changing(), scene.note()), (0, Some(note)));
}

#[test]
fn what_somebody_has_changed_since_is_left_and_said() {
    for (mode, mask) in [(COUNTER_MODE_AUTO, COUNTER_MASK_PID), (COUNTER_MODE_MANUAL, 0)] {
        let scene = Scene::new();
        scene.killed("a", 0, false);
        let mut binding = scene.binding(Changes::Undo, vec![devices(&[(0, "a")]), counter_mode(0, mode, mask)]);
        let told = poll(&mut binding, 1);
        assert!(told[0].contains("somebody has changed how QPs are bound to counters since"), "{told:?}");
        assert_eq!((scene.changing(), scene.note()), (0, None));
    }
}

#[test]
fn an_undoing_that_was_killed_halfway_is_finished() {
    let scene = Scene::new();
    scene.killed("a", 0, true);
    let by_hand = Set { id: 9, qpns: vec![40], ..Set::default() };
    let mut binding = scene.binding(
        Changes::Undo,
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, COUNTER_MODE_MANUAL, 0),
            bound(0, &[by_type(4, &[18]), by_hand]),
            release(0, 4, 18, taken()),
        ],
    );
    poll(&mut binding, 1);
    assert_eq!((scene.sent(change::STAT_SET), scene.sent(change::STAT_DEL)), (0, 1), "the set made by hand stays");
    assert_eq!(scene.note(), None);
}

#[test]
fn a_device_that_went_or_came_as_another_one_is_not_touched() {
    for list in [devices(&[]), devices(&[(1, "a")])] {
        let scene = Scene::new();
        scene.killed("a", 0, false);
        let mut binding = scene.binding(Changes::Undo, vec![list]);
        let told = poll(&mut binding, 1);
        assert!(told[0].contains("the device is not here"), "{told:?}");
        assert_eq!((scene.changing(), scene.note()), (0, None));
    }
    // Another device of the same index: ib_core was loaded anew.
    let scene = Scene::new();
    let mut note = scene.killed("a", 0, false);
    note.ports[0].node_guid = Some("00ff:0000:0000:0001".to_owned());
    scene.notes().put(&note).unwrap();
    let mut binding = scene.binding(Changes::Undo, vec![devices(&[(0, "b")]), counter_mode(0, 1, TYPE)]);
    assert!(poll(&mut binding, 1)[0].contains("the device is not here"));
    assert_eq!((scene.changing(), scene.note()), (0, None));
}

#[test]
fn a_note_is_kept_when_it_cannot_be_undone_now() {
    let scene = Scene::new();
    scene.killed("a", 0, false);
    let mut binding = scene.binding(
        Changes::Undo,
        vec![devices(&[(0, "a")]), counter_mode(0, 1, TYPE), bound(0, &[]), automatic(0, 0, vec![refusal(-EPERM)])],
    );
    let told = poll(&mut binding, 1);
    assert!(told[0].contains("could not be undone: it needs CAP_NET_ADMIN"), "{told:?}");
    assert!(!scene.note().expect("it is kept").ports[0].undoing);
    assert_eq!(binding.availability().state, Seeing::Partial);
}

#[test]
fn a_note_that_cannot_be_written_is_not_undone_again_and_again() {
    let scene = Scene::new();
    let mut note = scene.killed("a", 0, false);
    let before = note.clone();
    let dialogue = vec![devices(&[(0, "a")]), counter_mode(0, 1, TYPE), automatic(0, 0, taken())];
    let mut binding = scene.binding(Changes::Undo, dialogue);
    let elsewhere = Notes::at(&scene.state.path().join("none"), &[]);
    let undone = undo(&mut binding.kernel, &elsewhere, &mut note, Changer::Gone { here: true }, |_| true);
    let [Undone::Kept { what, fix: None }] = &undone[..] else { panic!("{undone:?}") };
    assert!(what.contains("could not be undone: its note in"), "{what}");
    assert_eq!((scene.changing(), note), (0, before));
}

#[test]
fn what_cannot_be_undone_is_tried_and_told_once() {
    let scene = Scene::new();
    scene.killed("a", 0, false);
    let dialogue = vec![devices(&[(0, "a")]), counter_mode(0, 1, TYPE), automatic(0, 0, vec![refusal(-EPERM)])];
    let mut binding = scene.binding(Changes::Undo, dialogue);
    assert_eq!(poll(&mut binding, 1).len(), 1);
    assert_eq!(poll(&mut binding, 6), [""; 0]);
    assert_eq!(scene.sent(change::STAT_SET), 1);
    let missing = binding.availability().missing;
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert_eq!(missing[0].fix.as_deref(), Some("root, or CAP_NET_ADMIN"));
}

#[test]
fn a_run_that_is_killed_while_another_one_runs_is_undone_by_that_and_succeeded() {
    let scene = Scene::new();
    let mut binding = scene.binding(
        Changes::Bind(BindBy::Type),
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 1, TYPE),
            counter_mode(0, 1, TYPE),
            automatic(0, 0, taken()),
            bound(0, &[]),
            counter_mode(0, 0, 0),
            counter_mode(0, 0, 0),
            automatic(0, TYPE, taken()),
        ],
    );
    assert_eq!(poll(&mut binding, 1), [""; 0]);
    assert!(gap(&binding, PORT).unwrap().contains("already bound by type"));
    scene.killed("a", 0, false);
    let told = poll(&mut binding, 6);
    assert!(told[0].contains("which has ended: a port 1: as before"), "{told:?}");
    assert_eq!((gap(&binding, PORT), scene.sent(change::STAT_SET)), (None, 2));
    assert_eq!(scene.note().expect("of its own").process.life("/proc".as_ref()), Life::Living);
}

#[test]
fn what_another_run_left_is_told_without_leave_until_somebody_has_undone_it() {
    let scene = Scene::new();
    let mut note = scene.killed("a", 0, false);
    let mut binding = scene.binding(Changes::None, Vec::new());
    poll(&mut binding, 1);
    assert!(gap(&binding, "what an earlier run changed").is_some());
    note.ports.clear();
    scene.notes().put(&note).unwrap();
    poll(&mut binding, 6);
    assert_eq!(gap(&binding, "what an earlier run changed"), None);
    assert_eq!(binding.availability().state, Seeing::Off);
}

#[test]
fn where_there_is_no_rdma_nothing_is_bound_and_the_note_is_done_with() {
    let scene = Scene::new();
    scene.killed("a", 0, false);
    let closed = || Closed { reason: "ib_core is not loaded".to_owned(), fix: None, no_rdma: true };
    let kernel = Kernel::new(Box::new(move || Err(closed())));
    let directory = scene.notes().directory().to_owned();
    let wanted: Arc<dyn Fn(&str) -> bool + Send + Sync> = Arc::new(|_| true);
    let options = Options { changes: Changes::Undo, wanted, directory, others: Vec::new(), proc: "/proc".into() };
    let mut binding = Binding::over(kernel, options);
    let told = poll(&mut binding, 1);
    assert!(told[0].contains("the device is not here"), "{told:?}");
    assert_eq!((scene.note(), binding.availability().missing), (None, vec![]));
}

#[test]
fn a_device_that_is_out_of_sight_for_a_while_is_still_undone_at_the_end() {
    let scene = Scene::new();
    let mut binding = scene.binding(
        Changes::Bind(BindBy::Type),
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 0, 0),
            qp_count(0, 40),
            automatic(0, TYPE, taken()),
            // Moved to another network namespace, and back.
            devices(&[]),
            devices(&[(0, "a")]),
            counter_mode(0, 1, TYPE),
            automatic(0, 0, taken()),
            bound(0, &[]),
            counter_mode(0, 0, 0),
        ],
    );
    poll(&mut binding, 1);
    poll(&mut binding, 6);
    assert_eq!(scene.note().map(|note| note.ports.len()), Some(1));
    assert_eq!(end(&mut binding), ["a port 1: as before; 0 QPs were let go by the counters"]);
    assert_eq!((scene.sent(change::STAT_SET), scene.note()), (2, None));
}

#[test]
fn the_note_of_an_earlier_boot_is_removed_for_the_kernel_has_forgotten_it_all() {
    let scene = Scene::new();
    let mut note = scene.killed("a", 0, false);
    note.process.boot_id = "another".to_owned();
    scene.notes().put(&note).unwrap();
    let mut binding = scene.binding(Changes::Undo, vec![devices(&[(0, "a")]), counter_mode(0, 1, TYPE)]);
    poll(&mut binding, 1);
    assert_eq!((scene.changing(), scene.note()), (0, None));
}

/// `a` is seen here, `b` in the namespace of the one that was killed.
#[test]
fn what_a_process_of_another_network_namespace_left_is_undone_where_it_is_seen_and_kept_where_not() {
    let scene = Scene::new();
    let mut note = scene.killed("a", 0, false);
    let of_b = Changed { device: "b".to_owned(), index: 7, node_guid: None, ..note.ports[0].clone() };
    scene.remove(&note);
    note.process.net_namespace = Some("net:[1]".to_owned());
    note.ports.push(of_b.clone());
    scene.keep(&note);
    let mut binding = scene.binding(
        Changes::Undo,
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 1, TYPE),
            bound(0, &[]),
            automatic(0, 0, taken()),
            counter_mode(0, 0, 0),
            devices(&[(0, "a")]),
            devices(&[(0, "a"), (7, "b")]),
            counter_mode(7, 1, TYPE),
            bound(7, &[]),
            automatic(7, 0, taken()),
            counter_mode(7, 0, 0),
        ],
    );
    let told = poll(&mut binding, 1);
    assert!(told.len() == 1 && told[0].contains("a port 1: as before"), "{told:?}");
    assert_eq!(scene.note().map(|note| note.ports), Some(vec![of_b]));
    let why = gap(&binding, "what an earlier run changed").unwrap();
    assert!(why.contains("b port 1") && why.contains("another network namespace"), "{why}");
    assert_eq!(poll(&mut binding, 6), [""; 0], "it is looked for again, and not told again");
    assert!(gap(&binding, "what an earlier run changed").is_some());
    let told = poll(&mut binding, 11);
    assert!(told[0].contains("b port 1: as before"), "{told:?}");
    assert_eq!((scene.note(), gap(&binding, "what an earlier run changed")), (None, None));
}

#[test]
fn a_living_process_of_another_network_namespace_is_no_fault() {
    let scene = Scene::new();
    let mut note = scene.killed("a", 0, false);
    scene.remove(&note);
    note.process = Process { net_namespace: Some("net:[1]".to_owned()), ..Process::own("/proc".as_ref()).unwrap() };
    scene.keep(&note);
    let mut binding = scene.binding(Changes::Undo, vec![devices(&[(0, "a")]), counter_mode(0, 1, TYPE)]);
    poll(&mut binding, 1);
    assert_eq!(binding.availability().missing, []);
    assert_eq!((binding.availability().state, scene.changing(), scene.note()), (Seeing::Off, 0, Some(note)));
}

#[test]
fn a_device_that_is_made_anew_again_and_again_is_noted_once() {
    let scene = Scene::new();
    let mut dialogue = Vec::new();
    for index in 0..4 {
        dialogue.extend([devices_of(&[(index, "a", 0x66)]), counter_mode(index, 0, 0), qp_count(index, 40)]);
        dialogue.push(automatic(index, TYPE, taken()));
    }
    let mut binding = scene.binding(Changes::Bind(BindBy::Type), dialogue);
    for second in [1, 6, 11, 16] {
        poll(&mut binding, second);
        assert_eq!(scene.note().map(|note| note.ports.len()), Some(1), "at {second} s");
    }
    assert_eq!((scene.note().unwrap().ports[0].index, scene.sent(change::STAT_SET)), (3, 4));
}

/// The functions of one adapter may have one GUID.
#[test]
fn a_device_out_of_sight_is_not_taken_for_another_one_of_its_guid() {
    for beside in [true, false] {
        let scene = Scene::new();
        let both = [(0, "a", 0x66), (1, "b", 0x66)];
        let bind = |index| {
            let asked = [counter_mode(index, 0, 0), qp_count(index, 40), automatic(index, TYPE, taken())];
            asked.into_iter().chain([counter_mode(index, 1, TYPE)])
        };
        let mut dialogue = vec![devices_of(if beside { &both } else { &both[..1] })];
        dialogue.extend(bind(0).chain(bind(1)));
        dialogue.extend([devices_of(&both[1..]), devices_of(&both)]);
        let mut binding = scene.binding(Changes::Bind(BindBy::Type), dialogue);
        poll(&mut binding, 1);
        poll(&mut binding, 6);
        let noted: Vec<_> = scene.note().unwrap().ports.iter().map(|port| port.index).collect();
        assert_eq!(noted, [0, 1], "beside the other before: {beside}");
    }
}

#[test]
fn nothing_is_bound_that_a_note_has_no_room_for() {
    let scene = Scene::new();
    let dialogue = vec![
        devices(&[(0, "a")]),
        counter_mode(0, 0, 0),
        automatic(0, TYPE, taken()),
        counter_mode(0, 1, TYPE),
        devices(&[(1, "b")]),
        counter_mode(1, 0, 0),
        automatic(1, TYPE, taken()),
    ];
    let mut binding = scene.binding(Changes::Bind(BindBy::Type), dialogue);
    poll(&mut binding, 1);
    let note = binding.note.as_mut().unwrap();
    while note.text().is_ok() {
        let index = 1_000 + u32::try_from(note.ports.len()).unwrap();
        let gone = Changed { index, node_guid: None, ..note.ports[0].clone() };
        note.ports.push(gone);
    }
    note.ports.pop();
    poll(&mut binding, 6);
    let why = gap(&binding, "counters by QP type of b port 1").unwrap();
    assert!(why.contains("nothing is changed without a note of it") && why.contains("ports take more than"), "{why}");
    assert_eq!(scene.sent(change::STAT_SET), 1);
    assert_eq!(scene.note().map(|note| note.ports.len()), Some(1), "what is noted can be read");
}
