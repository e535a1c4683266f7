//! What others left: this user's runs that ended without undoing it are undone, where that may be. What another user's run
//! left is told, with how to undo it; while its process lives, it is that process's.

use std::path::Path;

use rustix::process::geteuid;

use super::directory::{Found, Whose, clear};
use super::note::{Changed, Note};
use super::options::{ROOT_S, SERVICE_S};
use super::port::missing;
use super::process::Life;
use super::undo::{Changer, Undone, undo};
use super::{Binding, Changes};
use crate::source::Missing;

const LEFT: &str = "what an earlier run changed";
const NOTE: &str = "a note of what was changed";

/// Ports that are named in one line, at most.
const MOST_NAMED: usize = 4;

impl Binding {
    /// Looks at the notes of others, and undoes what processes left that have ended. `false` when it must be done before
    /// anything else, and could not be now.
    pub(super) fn settle(&mut self) -> bool {
        let mut all = self.notes.all();
        (self.trouble, self.left) = (None, Vec::new());
        let may_undo = self.options.changes != Changes::None;
        let mut lock = None;
        if may_undo && all.iter().flatten().any(|found| self.is_left(found)) {
            let why = match self.notes.lock() {
                Ok(Some(taken)) => {
                    clear(&taken, &self.options.proc);
                    lock = Some(taken);
                    // Another one may have undone something until it was ours.
                    all = self.notes.all();
                    None
                }
                Ok(None) => Some("another rdmascope is changing counters just now".to_owned()),
                Err(error) => {
                    Some(format!("the notes in {} cannot be locked: {error}", self.notes.directory().display()))
                }
            };
            if let Some(why) = why {
                self.trouble = Some(missing("counters by QP type", why, None));
                return false;
            }
        }
        for found in all {
            match found {
                Ok(Found { note, whose: Whose::Own }) => self.settle_note(note, lock.is_some()),
                Ok(Found { note, whose: Whose::Other { uid, path } }) => self.tell_of(&note, uid, &path),
                Err(why) => self.left.push(missing(NOTE, why, None)),
            }
        }
        true
    }

    /// The note is of a process of this user that is gone, and was not tried in vain.
    fn is_left(&self, Found { note, whose }: &Found) -> bool {
        let gone = || matches!(note.process.life(&self.options.proc), Life::Ended | Life::EarlierBoot);
        *whose == Whose::Own && self.kept(note).is_none() && gone()
    }

    fn kept(&self, note: &Note) -> Option<&Missing> {
        self.kept.iter().find(|(process, _)| *process == note.process).map(|(_, why)| why)
    }

    /// What is told of a note of this user; with the `lock`, what it tells is undone.
    fn settle_note(&mut self, mut note: Note, lock: bool) {
        let pid = note.process.pid;
        if let Some(why) = self.kept(&note) {
            return self.left.push(why.clone());
        }
        match note.process.life(&self.options.proc) {
            Life::EarlierBoot if lock => {
                note.ports.clear();
                if let Err(error) = self.notes.put(&note) {
                    let reason = format!("that of an earlier boot cannot be removed: {error}");
                    self.keep(&note, missing(NOTE, reason, None));
                }
            }
            Life::Living | Life::EarlierBoot => {}
            Life::Unknown(why) => self.left.push(untold(&note, why)),
            Life::Ended if lock => {
                let here = note.process.shares_network(&self.options.proc);
                for undone in undo(&mut self.kernel, &self.notes, &mut note, Changer::Gone { here }, |_| true) {
                    match &undone {
                        // It may come into sight, and is looked for again.
                        Undone::Unseen(what) => {
                            let fix = "rdmascope doctor --allow-changes in that namespace (ip netns exec)".to_owned();
                            self.left.push(missing(LEFT, format!("left by process {pid}: {what}"), Some(fix)));
                            continue;
                        }
                        Undone::Done(what) => self.undone.push(what.clone()),
                        Undone::Kept { what, fix } => self.keep(&note, missing(LEFT, what.clone(), fix.clone())),
                    }
                    self.untold.push(format!("left by process {pid}, which has ended: {}", undone.what()));
                }
            }
            Life::Ended => {
                let undoes = "rdmascope doctor --allow-changes undoes it";
                let fix = if geteuid().is_root() {
                    undoes.to_owned()
                } else {
                    let path = self.notes.directory().join(note.file_name());
                    format!("as this user, with CAP_NET_ADMIN, {undoes}; {}", by_hand(&note, &path))
                };
                self.left.push(missing(LEFT, ended(&note), Some(fix)));
            }
        }
    }

    fn keep(&mut self, note: &Note, why: Missing) {
        self.left.push(why.clone());
        self.kept.push((note.process.clone(), why));
    }

    /// What is told of a note that another user wrote: nothing while its process lives, or where the kernel has forgotten it.
    fn tell_of(&mut self, note: &Note, uid: u32, path: &Path) {
        match note.process.life(&self.options.proc) {
            Life::Living | Life::EarlierBoot => {}
            Life::Unknown(why) => self.left.push(untold(note, why)),
            Life::Ended => {
                let directory = path.parent().unwrap_or(path);
                let kept = match self.notes.refusal() {
                    _ if directory != self.notes.directory() => Kept::Elsewhere,
                    Some(why) => Kept::Refused(why),
                    None => Kept::Here,
                };
                let (who, undoes) = who_undoes(directory, uid, &kept);
                let reason = format!("left by {who}: {}", ended(note));
                self.left.push(missing(LEFT, reason, Some(format!("{undoes}; {}", by_hand(note, path)))));
            }
        }
    }
}

/// Where a note is kept that this run does not undo.
enum Kept {
    /// Where this run has its own, but nothing is undone from there, and why not.
    Refused(String),
    /// There, and it is another user's.
    Here,
    /// Where another one has them.
    Elsewhere,
}

/// Who left a note of a user in a directory, and what undoes it: whoever has the notes there.
fn who_undoes(directory: &Path, uid: u32, kept: &Kept) -> (String, String) {
    let user = if uid == 0 { "root".to_owned() } else { format!("user {uid}") };
    let as_user = format!("rdmascope doctor --allow-changes as {user}");
    let undoes = match kept {
        Kept::Refused(why) => format!("rdmascope does not undo it from {}: {why}", directory.display()),
        // Root writes only where nobody else can.
        Kept::Here if uid == 0 => "rdmascope does not undo it for root from here".to_owned(),
        Kept::Here => {
            format!("rdmascope does not undo it for another user: {as_user}, with its notes in {}", directory.display())
        }
        Kept::Elsewhere if directory == Path::new(SERVICE_S) => {
            let restart = "systemctl restart rdmascope, with changes.conf in use".to_owned();
            return (format!("the service, {user}"), restart);
        }
        Kept::Elsewhere if directory == Path::new(ROOT_S) => "rdmascope doctor --allow-changes as root".to_owned(),
        Kept::Elsewhere => format!("{as_user}, with its notes in {}", directory.display()),
    };
    (user, undoes)
}

/// The ports in words.
fn named(note: &Note) -> String {
    let named: Vec<_> = note.ports.iter().take(MOST_NAMED).map(Changed::name).collect();
    match note.ports.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn ended(note: &Note) -> String {
    let pid = note.process.pid;
    format!("process {pid} ended without undoing it: QPs are bound to counters by type on {}", named(note))
}

fn untold(note: &Note, why: &str) -> Missing {
    let (pid, ports) = (note.process.pid, named(note));
    let reason = format!("process {pid} bound QPs to counters on {ports}; it cannot be told whether it lives: {why}");
    missing("what another rdmascope changed", reason, None)
}

/// How it is undone without this program. The QPs that are bound stay so until they end.
fn by_hand(note: &Note, path: &Path) -> String {
    let off = |port: &Changed| format!("rdma statistic qp set link {}/{} auto off", port.device, port.port);
    let mut commands: Vec<_> = note.ports.iter().take(MOST_NAMED).map(off).collect();
    if note.ports.len() > MOST_NAMED {
        commands.push("so for each".to_owned());
    }
    format!("by hand: {}, then rm {}", commands.join(", "), path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_undoes_a_note_is_told_by_where_it_is() {
        let of = |directory: &str, uid, kept| who_undoes(Path::new(directory), uid, &kept);
        for uid in [0, 997] {
            let (who, undoes) = of(SERVICE_S, uid, Kept::Elsewhere);
            assert!(who.starts_with("the service, "), "{who}");
            assert!(undoes.starts_with("systemctl restart rdmascope"), "{undoes}");
        }
        assert_eq!(of(SERVICE_S, 997, Kept::Elsewhere).0, "the service, user 997");
        let root_s = ("root".to_owned(), "rdmascope doctor --allow-changes as root".to_owned());
        assert_eq!(of(ROOT_S, 0, Kept::Elsewhere), root_s);
        // What cannot be undone from here is not said to be undone by doing the same again.
        for directory in [ROOT_S, SERVICE_S, "/srv/state/changes"] {
            let (who, undoes) = of(directory, 0, Kept::Refused("only where nobody else can write".to_owned()));
            assert_eq!(
                undoes,
                format!("rdmascope does not undo it from {directory}: only where nobody else can write")
            );
            assert_eq!(who, "root");
        }
        let another_s = of("/srv/state/changes", 997, Kept::Here).1;
        assert!(another_s.ends_with("as user 997, with its notes in /srv/state/changes"), "{another_s}");
        assert!(!of("/srv/state/changes", 0, Kept::Here).1.contains("--allow-changes"));
        assert!(
            of("/home/a/changes", 1000, Kept::Elsewhere).1.contains("as user 1000, with its notes in /home/a/changes")
        );
    }
}
