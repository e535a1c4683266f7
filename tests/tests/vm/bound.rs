//! Binding QPs to counters by type, where changes are allowed: what the kernel was left with.

use collector::observation::Body;
use collector::observation::recording::Reader;
use end_to_end::vm::{Results, on_each_kernel};

/// The modes at a moment, `rxea qp auto off`.
fn modes(results: &Results, moment: &str) -> Vec<String> {
    results.text(&format!("{moment}.modes")).lines().map(str::to_owned).collect()
}

/// What was told in notes, and why the source `binding` saw less than all.
fn told(results: &Results, recording: &str) -> (Vec<String>, Vec<String>) {
    let (mut notes, mut reasons) = (Vec::new(), Vec::new());
    let mut reader = Reader::open(&results.path(recording)).expect("the payload left a recording");
    while reader
        .next(|observation| match &observation.body {
            Body::Note(note) if note.source == "binding" => notes.push(note.text.to_string()),
            Body::Source(source) if source.source == "binding" => {
                reasons.push(source.reason.as_deref().unwrap_or_default().to_owned());
            }
            _ => {}
        })
        .expect("the recording can be read")
        .is_some()
    {}
    (notes, reasons)
}

/// What `doctor` says of the source.
fn doctor(results: &Results, file: &str) -> String {
    let report = results.json(file);
    let sources = report["sources"].as_array().expect("there are sources");
    sources.iter().find(|source| source["name"] == "binding").expect("it is one of them").to_string()
}

#[test]
fn nothing_is_changed_without_leave() {
    on_each_kernel("bound", |results| {
        let before = modes(results, "before");
        assert!(before.len() == 3 && before.iter().all(|mode| mode.ends_with("auto off")), "{before:?}");
        assert_eq!(modes(results, "plain"), before, "on {}", results.kernel);
        let (notes, reasons) = told(results, "plain.recording");
        assert_eq!(notes, [""; 0], "on {}", results.kernel);
        assert_eq!(reasons, ["counters by QP type: off unless asked for"], "on {}", results.kernel);
    });
}

#[test]
fn nothing_is_changed_where_no_note_of_it_can_be_written() {
    on_each_kernel("bound", |results| {
        assert_eq!(modes(results, "unnoted"), modes(results, "before"), "on {}", results.kernel);
        let (_, reasons) = told(results, "unnoted.recording");
        assert!(reasons.iter().any(|reason| reason.contains("Read-only file system")), "{reasons:?}");
    });
}

#[test]
fn ports_of_wanted_devices_are_bound_by_type_and_are_as_before_at_the_end() {
    on_each_kernel("bound", |results| {
        let allowed = modes(results, "allowed");
        assert!(allowed[0].contains("auto type on") && allowed[1].contains("auto type on"), "{allowed:?}");
        assert!(allowed[2].ends_with("auto off"), "an excluded device is left: {allowed:?}");
        assert_eq!(modes(results, "living"), allowed, "the note of a living process is left alone");
        assert_eq!((results.text("pair.rc").trim(), results.text("allowed.rc").trim()), ("0", "0"));
        assert_eq!(modes(results, "undone"), modes(results, "before"), "on {}", results.kernel);
        assert!(results.text("undone.notes").contains("No such file"), "{}", results.text("undone.notes"));
        let (notes, _) = told(results, "allowed.recording");
        assert_eq!(notes.len(), 2, "on {}: {notes:?}", results.kernel);
        assert!(notes.iter().all(|note| note.contains("as before")), "on {}: {notes:?}", results.kernel);
    });
}

#[test]
fn what_a_killed_recorder_left_is_told_without_leave_and_undone_with_it() {
    on_each_kernel("bound", |results| {
        let killed = modes(results, "killed");
        assert!(killed[0].contains("auto type on"), "on {}: {killed:?}", results.kernel);
        assert_eq!(modes(results, "told"), killed, "without leave it stays, on {}", results.kernel);
        let said = doctor(results, "told.json");
        assert!(said.contains("ended without undoing it") && said.contains("rxea port 1, rxeb port 1"), "{said}");
        assert!(said.contains("rdmascope doctor --allow-changes"), "{said}");
        assert_eq!(modes(results, "next"), modes(results, "before"), "on {}", results.kernel);
        assert!(results.text("next.notes").contains("No such file"), "{}", results.text("next.notes"));
        assert!(doctor(results, "next.json").contains("undone of what others left"), "on {}", results.kernel);
    });
}

#[test]
fn what_somebody_else_has_set_and_what_a_user_may_not_set_are_left_with_the_reason() {
    on_each_kernel("bound", |results| {
        let others = modes(results, "others");
        assert_eq!(others, modes(results, "others_before"), "on {}", results.kernel);
        assert!(others[0].contains("auto pid on"), "on {}: {others:?}", results.kernel);
        let (_, reasons) = told(results, "others.recording");
        assert!(reasons.iter().any(|reason| reason.contains("already bound by process")), "{reasons:?}");
        assert_eq!(modes(results, "user"), modes(results, "before"), "on {}", results.kernel);
        let (_, reasons) = told(results, "user.recording");
        assert!(reasons.iter().any(|reason| reason.contains("needs CAP_NET_ADMIN")), "{reasons:?}");
    });
}
