//! What a process that was killed left, and who undoes it.

use super::*;

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
    assert!(next.availability().sees.contains("undone at the start: a port 1: as before"));
    assert_eq!(scene.note(), None);
    assert_eq!((scene.sent(change::STAT_SET), scene.sent(change::STAT_DEL)), (2, 2));
    assert_eq!(next.due(), Nanos::MAX, "it binds nothing itself");
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
        assert!(told[0].contains("the device is gone"), "{told:?}");
        assert_eq!((scene.changing(), scene.note()), (0, None));
    }
    // Another device of the same index: ib_core was loaded anew.
    let scene = Scene::new();
    let mut note = scene.killed("a", 0, false);
    note.ports[0].node_guid = Some("00ff:0000:0000:0001".to_owned());
    scene.notes().put(&note).unwrap();
    let mut binding = scene.binding(Changes::Undo, vec![devices(&[(0, "b")]), counter_mode(0, 1, TYPE)]);
    assert!(poll(&mut binding, 1)[0].contains("the device is gone"));
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
fn the_note_of_an_earlier_boot_is_removed_for_the_kernel_has_forgotten_it_all() {
    let scene = Scene::new();
    let mut note = scene.killed("a", 0, false);
    note.process.boot_id = "another".to_owned();
    scene.notes().put(&note).unwrap();
    let mut binding = scene.binding(Changes::Undo, vec![devices(&[(0, "a")]), counter_mode(0, 1, TYPE)]);
    poll(&mut binding, 1);
    assert_eq!((scene.changing(), scene.note()), (0, None));
}
