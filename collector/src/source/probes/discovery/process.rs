//! What one process maps of the verbs libraries, and where its contexts point.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::super::opened::Known;
use super::super::reason::Why;
use super::bypass::{self, Calls};
use super::device::Devices;
use super::memory::{self, ProcessMemory};
use super::provider::{is_libibverbs, is_verbs};
use crate::observation::Way;
use crate::source::proc;
use crate::source::verbs::maps::{self, Mapping};
use crate::source::verbs::{FileId, Operation, Place};

/// A process that uses verbs, or may.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// When it was started, in clock ticks since the start of the system; a process id comes again.
    pub(super) start: u64,
    pub(super) comm: String,
    /// It has a device open. Others only have the libraries, for the time being.
    pub(super) has_device: bool,
    /// The verbs libraries and providers it maps.
    pub(super) files: Vec<FileId>,
    /// Where its operations lie, as far as they had to be looked for.
    pub(super) places: Vec<(Operation, Place)>,
    /// The file of its libibverbs, where it is not known where that has `ibv_modify_qp`.
    pub(super) modify_qp: Option<Place>,
    /// Why what it posts is not seen.
    pub(super) missing: Option<Why>,
    /// The ways it may post where no probe sees it, by the files it maps.
    pub(super) ways: Vec<(Way, String)>,
    /// Files it maps that were looked into for that.
    pub(super) looked_into: Vec<FileId>,
    /// In which round it was looked at; `None` when all that is known of it is what it told itself.
    pub(super) looked: Option<u64>,
    /// What it told last.
    pub(super) heard: Heard,
}

/// What a process told of where it posts.
#[derive(Debug, Default, Clone)]
pub(super) struct Heard {
    /// The files its functions lie in.
    pub(super) files: BTreeSet<FileId>,
    /// What it posts is seen there.
    pub(super) posts: bool,
    /// Which look was the last to have begun when it was heard.
    pub(super) look: u64,
}

/// Files that are remembered of what one process told.
const MOST_HEARD: usize = 64;

/// Which processes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    /// All, whether they use verbs or not. The functions of QPs and CQs are looked for, too, which a known file may have without
    /// our knowing them.
    All,
    /// Those that mapped a provider which was written over: the same, and whatever the names of their files are.
    Search,
    /// Those that use verbs. Their memory is searched only where no provider they map is known.
    Asked,
}

/// How thoroughly a process is looked at.
pub(super) struct Thoroughness<'k> {
    /// What is attached to, and where.
    pub(super) known: &'k Known,
    pub(super) whom: Whom,
    /// It was seen to use verbs.
    pub(super) uses_verbs: bool,
    /// The character devices of verbs.
    pub(super) devices: &'k Devices,
}

/// Looks at a process; `None` when it has nothing to do with verbs or is gone.
///
/// # Errors
/// When the process may not be looked at, or cannot be just now.
pub(super) fn look(proc: &Path, pid: u32, how: &Thoroughness<'_>, calls: &mut Calls) -> io::Result<Option<Process>> {
    let dir = proc.join(pid.to_string());
    let text = match fs::read(dir.join("maps")) {
        Ok(text) => text,
        Err(error) if proc::says_ended(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&text);
    let named = ["libibverbs", "-rdmav", "infiniband/uverbs"].iter().any(|name| text.contains(name));
    if !how.uses_verbs && !named {
        return Ok(None);
    }
    let (start, comm) = match start_and_name(&dir) {
        Ok(known) => known,
        Err(error) if proc::says_ended(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mappings: Vec<Mapping<'_>> = maps::mappings(&text).collect();
    let mut process = Process { pid, start, comm, ..Process::default() };
    let code = || mappings.iter().filter(|mapping| mapping.is_code());
    // What has another name is of verbs when a process told so, or has the provider inside.
    let is_ours = |mapping: &&Mapping<'_>| is_verbs(mapping.name) || how.known.files.contains_key(&mapping.file);
    process.files = code().filter(is_ours).map(|mapping| mapping.file).collect();
    process.files.dedup();
    if !named && process.files.is_empty() && how.whom != Whom::Search {
        return Ok(None);
    }
    process.modify_qp = code()
        .find(|mapping| is_libibverbs(mapping.name) && !how.known.has(None, mapping.file))
        .and_then(|mapping| mapping.place(mapping.start).map(|place| through(&dir, mapping, place)));
    let knows_one = code().any(|mapping| how.known.has(Some(Operation::PostSend), mapping.file));
    match how.devices.open_in(&dir) {
        Ok(open) => {
            process.has_device = open;
            if open {
                process.ways = bypass::ways(&dir, &mappings, calls, &mut process.looked_into);
            }
            if open && (how.whom != Whom::Asked || !knows_one) {
                process.search(&dir, &mappings, knows_one, how.whom);
            }
        }
        // Whoever may not read these may not read its memory.
        Err(error) => {
            process.has_device = true;
            process.may_not_be_read(knows_one, &error);
        }
    }
    Ok(Some(process))
}

impl Process {
    /// Takes up what it told of itself.
    pub(super) fn hear(&mut self, heard: &Heard) {
        if heard.look != self.heard.look {
            self.heard = Heard { look: heard.look, ..Heard::default() };
        }
        for file in &heard.files {
            if self.heard.files.len() < MOST_HEARD && self.heard.files.insert(*file) && !self.files.contains(file) {
                self.files.push(*file);
            }
        }
        self.heard.posts |= heard.posts;
        if heard.posts {
            self.missing = None;
        }
    }

    fn may_not_be_read(&mut self, knows_one: bool, error: &io::Error) {
        // What it posts by the plain API is seen all the same.
        if !knows_one {
            self.missing = Some(if error.kind() == io::ErrorKind::PermissionDenied {
                let reason = format!("{STARTED_BEFORE}, and its memory may not be read ({error})");
                Why::with_fix(reason, "give it CAP_SYS_PTRACE")
            } else {
                format!("{STARTED_BEFORE}, and its memory is not read ({error})").into()
            });
        }
    }

    fn search(&mut self, dir: &Path, mappings: &[Mapping<'_>], knows_one: bool, whom: Whom) {
        let memory = match ProcessMemory::open(dir) {
            Ok(memory) => memory,
            Err(error) => return self.may_not_be_read(knows_one, &error),
        };
        let found = memory::search(&memory, mappings);
        self.places = places(dir, mappings, found.addresses);
        for (_, place) in &self.places {
            if !self.files.contains(&place.file()) {
                self.files.push(place.file());
            }
        }
        if !knows_one && !self.places.iter().any(|(operation, _)| *operation == Operation::PostSend) {
            let limit = memory::MOST_BYTES >> 20;
            let why = if whom == Whom::Search { WRITTEN_OVER } else { STARTED_BEFORE };
            self.missing = Some(if found.whole {
                why.into()
            } else {
                format!("{why}, and no context in the {limit} MiB of its memory that were read").into()
            });
        }
    }
}

/// What is said of a process in which no context was found.
const STARTED_BEFORE: &str = "started before us, unknown provider build";
/// The same of one that was searched because of its library.
const WRITTEN_OVER: &str = "its library was written over, unknown provider build";

/// The places of addresses of a process.
pub(super) fn places(
    dir: &Path,
    mappings: &[Mapping<'_>],
    addresses: impl IntoIterator<Item = (Operation, u64)>,
) -> Vec<(Operation, Place)> {
    addresses
        .into_iter()
        .filter_map(|(operation, address)| {
            let mapping = mappings.iter().find(|mapping| mapping.is_code() && mapping.holds(address))?;
            let place = mapping.place(address).filter(|place| !place.is_stub())?;
            Some((operation, through(dir, mapping, place)))
        })
        .collect()
}

/// Where the file of a mapping is found from here. `map_files` leads to the very file that is mapped, also when it was
/// replaced, and takes `CAP_SYS_ADMIN` or `CAP_CHECKPOINT_RESTORE` (proc(5)); without it, its name in the process's own
/// mount namespace has to do.
pub(super) fn reachable(dir: &Path, mapping: &Mapping<'_>) -> PathBuf {
    let mapped = dir.join(format!("map_files/{:x}-{:x}", mapping.start, mapping.end));
    if fs::metadata(&mapped).is_ok() || mapping.deleted {
        return mapped;
    }
    dir.join("root").join(mapping.name.trim_start_matches('/'))
}

/// A place as a process told of it.
fn through(dir: &Path, mapping: &Mapping<'_>, place: Place) -> Place {
    Place { via: Some(reachable(dir, mapping)), ..place }
}

/// When a process was started, and its name, by its directory in `/proc`.
///
/// # Errors
/// Those of reading it; it is not in its form.
pub(super) fn start_and_name(dir: &Path) -> io::Result<(u64, String)> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "/proc/PID/stat is not in its form");
    stat(&proc::text(&dir.join("stat"))?).ok_or_else(odd)
}

/// The same from the text of `/proc/PID/stat` (proc(5)). The name may hold anything.
fn stat(text: &str) -> Option<(u64, String)> {
    let (head, tail) = (text.find('(')?, text.rfind(')')?);
    let start = text.get(tail + 1..)?.split_whitespace().nth(19)?.parse().ok()?;
    Some((start, text.get(head + 1..tail)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_by_its_start_and_its_name_may_hold_anything() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let text = format!("77 (a) b (c)) S {}", fields.join(" "));
        assert_eq!(stat(&text), Some((22, "a) b (c)".to_owned())));
        assert_eq!(stat("77 (half"), None);
    }

    #[test]
    fn a_process_without_verbs_is_none_and_costs_one_read() {
        let how =
            Thoroughness { known: &Known::default(), whom: Whom::All, uses_verbs: false, devices: &Devices::default() };
        let look = look(Path::new("/proc"), std::process::id(), &how, &mut Calls::new()).expect("one's own process");
        assert!(look.is_none(), "{look:?}");
    }

    #[test]
    fn a_process_that_ended_is_none() {
        let how = Thoroughness {
            known: &Known::default(),
            whom: Whom::Asked,
            uses_verbs: true,
            devices: &Devices::default(),
        };
        assert!(look(Path::new("/proc"), u32::MAX, &how, &mut Calls::new()).expect("no error").is_none());
    }
}
