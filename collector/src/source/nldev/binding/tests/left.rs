//! What a process that was killed left, and who undoes it.

use super::*;
use crate::source::nldev::availability::Closed;

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
    scene.notes().put(&Note { ports: Vec::new(), ..note.clone() }).unwrap();
    note.process = Process::own("/proc".as_ref()).unwrap();
    drop(scene.notes().lock().unwrap());
    scene.notes().put(&note).unwrap();
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
    let elsewhere = Notes::at(&scene.state.path().join("none"));
    let undone = undo(&mut binding.kernel, &elsewhere, &mut note, false, |_| true);
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
    let options = Options { changes: Changes::Undo, wanted, directory, proc: "/proc".into() };
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
