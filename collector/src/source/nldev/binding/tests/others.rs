//! What another user's run changed is theirs: it is told only where nobody else undoes it.

use super::*;

impl Scene {
    /// The note of a process of another user that was killed.
    fn of_another(&self) -> Note {
        let note = self.killed("a", 0, false);
        self.remove(&note);
        self.put_among_others(&note);
        note
    }

    fn put_among_others(&self, note: &Note) {
        let notes = Notes::at(&self.others(), &[]);
        drop(notes.lock().unwrap());
        notes.put(note).unwrap();
    }
}

/// A kernel in which it could be undone.
fn undoable() -> Vec<Exchange> {
    vec![devices(&[(0, "a")]), counter_mode(0, 1, TYPE), bound(0, &[]), automatic(0, 0, taken())]
}

#[test]
fn what_another_user_s_run_left_is_told_with_how_to_undo_it_and_not_undone() {
    let scene = Scene::new();
    let note = scene.of_another();
    for changes in [Changes::None, Changes::Undo, Changes::Bind(BindBy::Type)] {
        let mut binding = scene.binding(changes, undoable());
        poll(&mut binding, 1);
        assert_eq!((scene.changing(), binding.undone.len()), (0, 0));
        let missing = binding.availability().missing;
        let told = missing.iter().find(|missing| missing.what == "what an earlier run changed").expect("it is told");
        assert!(told.reason.starts_with("left by ") && told.reason.contains("a port 1"), "{}", told.reason);
        let by_hand = told.fix.as_deref().unwrap();
        let file = scene.others().join(note.file_name());
        let commands = format!("by hand: rdma statistic qp set link a/1 auto off, then rm {}", file.display());
        assert!(by_hand.ends_with(&commands), "{by_hand}");
        assert!(file.exists(), "it is theirs to remove");
    }
}

#[test]
fn it_is_said_whose_it_is() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can make a file of another user");
    }
    let scene = Scene::new();
    let note = scene.of_another();
    std::os::unix::fs::chown(scene.others().join(note.file_name()), Some(997), None).unwrap();
    let mut binding = scene.binding(Changes::None, Vec::new());
    poll(&mut binding, 1);
    let why = gap(&binding, "what an earlier run changed").unwrap();
    assert!(why.starts_with("left by user 997: process "), "{why}");
}

/// Root's own notes, where the service's user could have put them.
#[test]
fn why_root_s_own_notes_are_not_undone_is_said() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can give a directory away");
    }
    let scene = Scene::new();
    scene.killed("a", 0, false);
    std::os::unix::fs::chown(scene.notes().directory(), Some(997), Some(997)).unwrap();
    let mut binding = scene.binding(Changes::Undo, undoable());
    poll(&mut binding, 1);
    assert_eq!(scene.changing(), 0);
    let missing = binding.availability().missing;
    let told = missing.iter().find(|missing| missing.what == "what an earlier run changed").expect("it is told");
    let fix = told.fix.as_deref().unwrap();
    assert!(fix.contains("only where nobody else can write, in it or above it; by hand: "), "{fix}");
    assert!(!fix.contains("doctor") && !fix.contains("systemctl"), "{fix}");
}

#[test]
fn while_another_user_s_run_lives_or_after_a_reboot_nothing_is_said_of_its_note() {
    let own = Process::own("/proc".as_ref()).unwrap();
    let of_earlier = Process { boot_id: "another".to_owned(), ..own.clone() };
    for process in [own, of_earlier] {
        let scene = Scene::new();
        let note = Note { process, ..scene.of_another() };
        std::fs::remove_dir_all(scene.others()).unwrap();
        scene.put_among_others(&note);
        let mut binding = scene.binding(Changes::Undo, undoable());
        poll(&mut binding, 1);
        assert_eq!((binding.availability().missing, binding.availability().state), (vec![], Seeing::Off));
        assert!(scene.others().join(note.file_name()).exists());
    }
}
