//! The source over stored dialogues, written by hand after drivers/infiniband/core/nldev.c and counters.c of Linux 6.1 and
//! 6.12: no software device has counters that can be bound.

mod left;
mod others;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::kernel::EPERM;
use super::port::{EBUSY, EINVAL, EOPNOTSUPP};
use super::process::Life;
use super::*;
use crate::source::nldev::conversation::Conversation;
use crate::source::nldev::scene::{
    Set, bound, bound_answer, counter_mode, devices, devices_of, done, exchange, message, qp_count, refusal, set_part,
};
use crate::source::nldev::stored::{Asked, Exchange, Stored};
use crate::source::nldev::transport::Transport;
use crate::source::nldev::uapi::{
    COUNTER_MASK_PID, COUNTER_MASK_QP_TYPE, COUNTER_MODE_MANUAL, COUNTER_MODE_NONE, attr, change, command, message_type,
};

const SECOND: Nanos = 1_000_000_000;
const TYPE: u32 = COUNTER_MASK_QP_TYPE;

/// The request that sets the automatic mode of port 1, and its answer.
fn automatic(index: u32, mask: u32, replies: Vec<Vec<u8>>) -> Exchange {
    let request = [
        (attr::DEV_INDEX, index),
        (attr::PORT_INDEX, 1),
        (attr::STAT_MODE, COUNTER_MODE_AUTO),
        (attr::STAT_RES, u32::from(attr::RES_QP)),
        (attr::STAT_AUTO_MODE_MASK, mask),
    ];
    exchange(change::STAT_SET, 0, &request, replies)
}

fn taken() -> Vec<Vec<u8>> {
    vec![message(change::STAT_SET, 0, &[])]
}

/// The request that takes a QP of port 1 out of a set.
fn release(index: u32, set: u32, qpn: u32, replies: Vec<Vec<u8>>) -> Exchange {
    let request = [
        (attr::DEV_INDEX, index),
        (attr::PORT_INDEX, 1),
        (attr::STAT_RES, u32::from(attr::RES_QP)),
        (attr::STAT_COUNTER_ID, set),
        (attr::RES_LQPN, qpn),
    ];
    exchange(change::STAT_DEL, 0, &request, replies)
}

/// A set of RC QPs that the kernel made by type.
fn by_type(id: u32, qpns: &[u32]) -> Set<'static> {
    Set { id, mask: TYPE, qp_type: 2, qpns: qpns.to_vec(), values: vec![("out_of_buffer", 3)], ..Set::default() }
}

/// A transport that looks at the notes whenever a request would change something.
struct Watched {
    stored: Stored,
    notes: Notes,
    noted: Arc<Mutex<Vec<Vec<Changed>>>>,
}

impl Transport for Watched {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        if is(request, change::STAT_SET) || is(request, change::STAT_DEL) {
            let all = self.notes.all().into_iter().filter_map(Result::ok).flat_map(|found| found.note.ports);
            self.noted.lock().unwrap().push(all.collect());
        }
        self.stored.send(request)
    }

    fn receive(&mut self, datagram: &mut Vec<u8>) -> io::Result<()> {
        self.stored.receive(datagram)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn is(request: &[u8], command: u16) -> bool {
    request[4..6] == message_type(command).to_ne_bytes()
}

/// A kernel in a dialogue, and a directory for the notes.
struct Scene {
    asked: Asked,
    /// The ports in the notes when each request that changes something was sent.
    noted: Arc<Mutex<Vec<Vec<Changed>>>>,
    state: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { asked: Asked::default(), noted: Arc::default(), state: tempfile::tempdir().unwrap() }
    }

    fn notes(&self) -> Notes {
        Notes::at(&self.state.path().join("changes"), &[self.others()])
    }

    /// Where another user has notes.
    fn others(&self) -> PathBuf {
        self.state.path().join("others")
    }

    fn binding(&self, changes: Changes, exchanges: Vec<Exchange>) -> Binding {
        self.binding_of(changes, Arc::new(|_| true), exchanges)
    }

    fn binding_of(
        &self,
        changes: Changes,
        wanted: Arc<dyn Fn(&str) -> bool + Send + Sync>,
        exchanges: Vec<Exchange>,
    ) -> Binding {
        let (asked, seen, notes) = (self.asked.clone(), self.noted.clone(), self.notes());
        let kernel = Kernel::new(Box::new(move || {
            let mut stored = Stored::new(exchanges.clone());
            stored.asked = asked.clone();
            Ok(Conversation::new(Box::new(Watched { stored, notes: notes.clone(), noted: seen.clone() })))
        }));
        let directory = self.notes().directory().to_owned();
        Binding::over(kernel, Options { changes, wanted, directory, others: vec![self.others()], proc: "/proc".into() })
    }

    /// How often a command was sent.
    fn sent(&self, command: u16) -> usize {
        self.asked.lock().unwrap().iter().filter(|request| is(request, command)).count()
    }

    /// Requests that change something.
    fn changing(&self) -> usize {
        self.sent(change::STAT_SET) + self.sent(change::STAT_DEL)
    }

    fn note(&self) -> Option<Note> {
        self.notes().all().pop().map(|found| found.expect("a note that can be read").note)
    }

    /// Leaves the note of a process that was killed after it had changed port 1 of a device.
    fn killed(&self, device: &str, index: u32, undoing: bool) -> Note {
        let own = Process::own("/proc".as_ref()).unwrap();
        let mut note = Note::new(Process { start_ticks: own.start_ticks - 1, ..own });
        let guid = format!("0011:2233:4455:{:04x}", 0x6600 + index);
        note.ports.push(Changed {
            device: device.to_owned(),
            index,
            node_guid: Some(guid),
            port: 1,
            before: CounterMode { mode: COUNTER_MODE_NONE, mask: 0 },
            mask: TYPE,
            undoing,
        });
        self.keep(&note);
        note
    }

    fn keep(&self, note: &Note) {
        drop(self.notes().lock().unwrap());
        self.notes().put(note).unwrap();
    }

    fn remove(&self, note: &Note) {
        self.notes().put(&Note { ports: Vec::new(), ..note.clone() }).unwrap();
    }
}

/// Polls at a second and returns what was told.
fn poll(binding: &mut Binding, second: u64) -> Vec<String> {
    told(|emit| binding.poll(second * SECOND, emit))
}

fn end(binding: &mut Binding) -> Vec<String> {
    told(|emit| binding.end(99 * SECOND, emit))
}

fn told(act: impl FnOnce(&mut Emit<'_>)) -> Vec<String> {
    let mut all = Vec::new();
    act(&mut |observation| match &observation.body {
        Body::Note(note) => all.push(note.text.to_string()),
        other => panic!("{other:?}"),
    });
    all
}

/// Why something is missing, by what it is.
fn gap(binding: &Binding, what: &str) -> Option<String> {
    binding.availability().missing.into_iter().find(|missing| missing.what == what).map(|missing| missing.reason)
}

const PORT: &str = "counters by QP type of a port 1";

#[test]
fn without_leave_no_request_is_sent_and_what_a_killed_run_left_is_told() {
    let scene = Scene::new();
    scene.killed("a", 0, false);
    let mut binding = scene.binding(Changes::None, vec![devices(&[(0, "a")]), counter_mode(0, 1, TYPE)]);
    assert_eq!(poll(&mut binding, 1), [""; 0]);
    assert_eq!(end(&mut binding), [""; 0]);
    let availability = binding.availability();
    assert_eq!(availability.state, Seeing::Partial);
    let left = gap(&binding, "what an earlier run changed").unwrap();
    assert!(left.contains("ended without undoing it") && left.contains("a port 1"), "{left}");
    assert_eq!(gap(&binding, "counters by QP type").as_deref(), Some("off unless asked for"));
    drop(binding);
    assert!(scene.asked.lock().unwrap().is_empty(), "not even a question");
    assert!(scene.note().is_some(), "the note is left to one who may");
}

#[test]
fn a_port_is_noted_before_it_is_changed_and_is_as_before_at_the_end() {
    let scene = Scene::new();
    let mut binding = scene.binding(
        Changes::Bind(BindBy::Type),
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 0, 0),
            qp_count(0, 40),
            automatic(0, TYPE, taken()),
            counter_mode(0, 1, TYPE),
            // At the end, and when all was let go.
            counter_mode(0, 1, TYPE),
            bound(0, &[by_type(4, &[17, 18]), by_type(5, &[20])]),
            automatic(0, 0, taken()),
            release(0, 4, 17, taken()),
            release(0, 4, 18, taken()),
            // It has ended meanwhile: ENOENT.
            release(0, 5, 20, vec![refusal(-2)]),
            counter_mode(0, 0, 0),
        ],
    );
    assert_eq!(poll(&mut binding, 1), [""; 0]);
    assert_eq!((scene.sent(change::STAT_SET), scene.sent(change::STAT_DEL)), (1, 0));
    assert_eq!(binding.availability().state, Seeing::Ok);
    assert_eq!(binding.availability().missing, []);
    let note = scene.note().expect("it is noted");
    assert_eq!(note.process.life("/proc".as_ref()), Life::Living);
    assert_eq!((note.ports[0].index, note.ports[0].before.mode, note.ports[0].mask), (0, COUNTER_MODE_NONE, TYPE));
    poll(&mut binding, 6);
    assert_eq!(scene.changing(), 1, "what is as it was left is not set again");
    assert_eq!(end(&mut binding), ["a port 1: as before; 2 QPs were let go by the counters"]);
    assert_eq!((scene.sent(change::STAT_SET), scene.sent(change::STAT_DEL)), (2, 3));
    assert_eq!(scene.note(), None);
    // What is bound until the mode is off is let go as well: the sets are listed when it is.
    let dump = |request: &&Vec<u8>| {
        is(request, command::STAT_GET) && u16::from_ne_bytes([request[6], request[7]]) & 0x300 != 0
    };
    let asked: Vec<Vec<u8>> = scene.asked.lock().unwrap().clone();
    let last = |wanted: &dyn Fn(&&Vec<u8>) -> bool| asked.iter().rposition(|request| wanted(&request));
    assert!(last(&dump) > last(&|request| is(request, change::STAT_SET)) && last(&dump).is_some());
    assert_eq!(asked.iter().filter(dump).count(), 1);
    let noted = scene.noted.lock().unwrap();
    let said: Vec<_> = noted.iter().map(|ports| (ports.len(), ports[0].undoing)).collect();
    assert_eq!(said, [(1, false), (1, true), (1, true), (1, true), (1, true)], "every change stands in a note first");
    drop(binding);
    assert_eq!(scene.changing(), 5, "undone once");
}

#[test]
fn nothing_is_bound_qp_by_qp() {
    let scene = Scene::new();
    let mut binding = scene.binding(
        Changes::Bind(BindBy::TypeAndProcess),
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 0, 0),
            qp_count(0, 40),
            automatic(0, TYPE | COUNTER_MASK_PID, taken()),
            counter_mode(0, 1, TYPE | COUNTER_MASK_PID),
        ],
    );
    poll(&mut binding, 1);
    let asked = scene.asked.lock().unwrap();
    let set: Vec<_> = asked.iter().filter(|request| is(request, change::STAT_SET)).collect();
    assert_eq!(set.len(), 1);
    let attributes = crate::source::netlink::attribute::Attributes(&set[0][16..]);
    assert_eq!(attributes.u32(attr::STAT_MODE), Some(COUNTER_MODE_AUTO));
    assert_eq!(attributes.u32(attr::STAT_AUTO_MODE_MASK), Some(3));
    assert_eq!(attributes.u32(attr::RES_LQPN), None);
}

#[test]
fn each_refusal_is_told_in_one_line_and_leaves_no_note() {
    for (errno, words) in [
        (EBUSY, "QPs are bound to counters already (EBUSY)"),
        (EOPNOTSUPP, "no hardware counters that can be bound (EOPNOTSUPP)"),
        (EPERM, "needs CAP_NET_ADMIN"),
        (EINVAL, "does not bind by this on the port (EINVAL)"),
    ] {
        let scene = Scene::new();
        let mut binding = scene.binding(
            Changes::Bind(BindBy::Type),
            vec![
                devices(&[(0, "a")]),
                counter_mode(0, 0, 0),
                qp_count(0, 40),
                automatic(0, TYPE, vec![refusal(-errno)]),
            ],
        );
        poll(&mut binding, 1);
        let reason = gap(&binding, PORT).unwrap();
        assert!(reason.contains(words) && !reason.contains('\n'), "{errno}: {reason}");
        assert_eq!(scene.note(), None, "{errno}");
        assert_eq!(binding.availability().state, Seeing::Off, "{errno}");
        poll(&mut binding, 6);
        assert_eq!(end(&mut binding), [""; 0], "{errno}");
        assert_eq!(scene.changing(), 1, "{errno}: it is not tried again");
    }
}

#[test]
fn a_mode_that_somebody_else_has_set_is_left_to_them() {
    for (mode, mask, words) in [
        (COUNTER_MODE_AUTO, TYPE, "already bound by type;"),
        (COUNTER_MODE_AUTO, COUNTER_MASK_PID, "already bound by process;"),
        (COUNTER_MODE_MANUAL, 0, "already bound one by one;"),
    ] {
        let scene = Scene::new();
        let mut binding =
            scene.binding(Changes::Bind(BindBy::Type), vec![devices(&[(0, "a")]), counter_mode(0, mode, mask)]);
        poll(&mut binding, 1);
        assert!(gap(&binding, PORT).unwrap().contains(words), "{:?}", gap(&binding, PORT));
        end(&mut binding);
        assert_eq!((scene.changing(), scene.note()), (0, None));
    }
}

#[test]
fn a_device_that_is_filtered_out_is_neither_asked_nor_changed() {
    let scene = Scene::new();
    let mut binding = scene.binding_of(
        Changes::Bind(BindBy::Type),
        Arc::new(|name| name == "b"),
        vec![
            devices(&[(0, "a"), (1, "b")]),
            counter_mode(1, 0, 0),
            automatic(1, TYPE, taken()),
            counter_mode(1, 1, TYPE),
        ],
    );
    poll(&mut binding, 1);
    assert_eq!(scene.note().unwrap().ports.iter().map(|port| &*port.device).collect::<Vec<_>>(), ["b"]);
    let index_of_a = [8, 0, 1, 0, 0, 0, 0, 0];
    assert!(!scene.asked.lock().unwrap().iter().any(|request| request[16..].starts_with(&index_of_a)));
}

#[test]
fn nothing_is_changed_where_no_note_of_it_can_be_written() {
    let scene = Scene::new();
    std::fs::write(scene.state.path().join("changes"), "a file where the directory should be").unwrap();
    let dialogue = vec![devices(&[(0, "a")]), counter_mode(0, 0, 0), automatic(0, TYPE, taken())];
    let mut binding = scene.binding(Changes::Bind(BindBy::Type), dialogue);
    // What is no directory is told before anything is looked at.
    poll(&mut binding, 1);
    poll(&mut binding, 6);
    end(&mut binding);
    assert_eq!(scene.changing(), 0);
    assert_ne!(binding.availability().missing, []);
}

#[test]
fn where_to_put_notes_is_told_as_this_user_can() {
    assert!(where_to_note(false).contains("XDG_STATE_HOME"));
    let fix = where_to_note(true);
    assert!(fix.contains("only root can write") && !fix.contains("XDG"), "{fix}");
    if !geteuid().is_root() {
        return println!("skipped: only root can give a directory away");
    }
    let scene = Scene::new();
    drop(scene.notes().lock().unwrap());
    std::os::unix::fs::chown(scene.notes().directory(), Some(997), Some(997)).unwrap();
    let dialogue = vec![devices(&[(0, "a")]), counter_mode(0, 0, 0), automatic(0, TYPE, taken())];
    let mut binding = scene.binding(Changes::Bind(BindBy::Type), dialogue);
    poll(&mut binding, 1);
    let missing = binding.availability().missing;
    assert_eq!(missing[0].fix.as_deref(), Some(&*fix), "{missing:?}");
    assert_eq!(scene.changing(), 0);
}

#[test]
fn a_device_with_more_qps_than_a_list_can_hold_is_not_bound() {
    let scene = Scene::new();
    let mut binding = scene.binding(
        Changes::Bind(BindBy::Type),
        vec![devices(&[(0, "a")]), counter_mode(0, 0, 0), qp_count(0, 2_001), automatic(0, TYPE, taken())],
    );
    poll(&mut binding, 1);
    assert!(gap(&binding, PORT).unwrap().contains("2001 QPs"), "{:?}", gap(&binding, PORT));
    assert_eq!((scene.changing(), scene.note()), (0, None));
}

#[test]
fn a_port_whose_qps_become_too_many_is_given_back_and_those_bound_are_said_to_stay() {
    let scene = Scene::new();
    let empty = || set_part(&[]);
    let mut binding = scene.binding(
        Changes::Bind(BindBy::Type),
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 0, 0),
            qp_count(0, 40),
            automatic(0, TYPE, taken()),
            qp_count(0, 3_000),
            counter_mode(0, 1, TYPE),
            counter_mode(0, 1, TYPE),
            // A set that fits in no message: the kernel begins it again and again.
            bound_answer(0, (0..64).map(|_| empty()).chain([done(0)]).collect()),
            automatic(0, 0, taken()),
        ],
    );
    poll(&mut binding, 1);
    let told = poll(&mut binding, 6);
    assert!(told[0].contains("stay so until they end: there are more in a set than the kernel can list"), "{told:?}");
    assert_eq!((scene.sent(change::STAT_SET), scene.sent(change::STAT_DEL)), (2, 0));
    assert_eq!(scene.note(), None);
    assert!(gap(&binding, PORT).unwrap().contains("3000 QPs"));
    poll(&mut binding, 11);
    assert_eq!(scene.sent(change::STAT_SET), 2, "it is not bound again");
}

#[test]
fn a_mode_that_somebody_changes_meanwhile_is_theirs_from_then_on() {
    let scene = Scene::new();
    let mut binding = scene.binding(
        Changes::Bind(BindBy::Type),
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 0, 0),
            qp_count(0, 40),
            automatic(0, TYPE, taken()),
            counter_mode(0, 1, COUNTER_MASK_PID),
        ],
    );
    poll(&mut binding, 1);
    let told = poll(&mut binding, 6);
    assert!(told[0].contains("somebody has changed"), "{told:?}");
    assert_eq!(scene.note(), None);
    assert_eq!(end(&mut binding), [""; 0]);
    assert_eq!(scene.changing(), 1);
}

#[test]
fn a_source_that_is_dropped_without_its_end_undoes_as_well() {
    let scene = Scene::new();
    let mut binding = scene.binding(
        Changes::Bind(BindBy::Type),
        vec![
            devices(&[(0, "a")]),
            counter_mode(0, 0, 0),
            qp_count(0, 40),
            automatic(0, TYPE, taken()),
            counter_mode(0, 1, TYPE),
            bound(0, &[]),
            automatic(0, 0, taken()),
        ],
    );
    poll(&mut binding, 1);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _binding = binding;
        std::panic::resume_unwind(Box::new("a fault elsewhere"));
    }));
    assert!(unwound.is_err());
    assert_eq!((scene.sent(change::STAT_SET), scene.note()), (2, None));
}

#[test]
fn the_questions_of_this_source_are_those_that_only_read() {
    let scene = Scene::new();
    let mut binding = scene.binding(Changes::Bind(BindBy::Type), vec![devices(&[(0, "a")]), counter_mode(0, 2, 0)]);
    poll(&mut binding, 1);
    end(&mut binding);
    let asked = scene.asked.lock().unwrap();
    let reading = [command::GET, command::RES_GET, command::STAT_GET];
    assert!(!asked.is_empty());
    assert!(asked.iter().all(|request| reading.iter().any(|command| is(request, *command))));
}
