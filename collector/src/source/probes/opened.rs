//! Places that were looked into, before anything is attached there.
//!
//! That is done in threads that have the time: a file may lie on a network file system whose server is away, and what a
//! process maps may be as large, and as many, as somebody likes. Each file is opened once in a look, and its symbols and its
//! code are read once, however many places of it are named, as long as the code has no more than 2 MiB; of longer code what lies
//! around each place is. What is attached to already, or was found to be no provider, is not read again. What is attached to is
//! the very file that was looked into, which is kept open.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::library::{Code, Ident, Library};
use super::prologue::{self, Because, Point};
use super::reason::Why;
use super::refused::{MOST_ATTACHED, MOST_OF_A_FILE};
use super::uprobes::MODIFY_QP;
use crate::source::verbs::{Arg, FileId, Operation, Place};

/// A place that was looked into.
pub(super) struct Opened {
    /// `None` for `ibv_modify_qp`.
    pub(super) operation: Option<Operation>,
    pub(super) place: Place,
    /// The file, and where in the function to attach; why it cannot be attached to.
    pub(super) found: Result<(Arc<Library>, Result<Point, Why>), Refusal>,
}

/// Why a place is not attached to.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) why: Why,
    /// The file is no provider as long as it is this one: no place of it will do.
    pub(super) file: Option<Ident>,
}

impl From<Why> for Refusal {
    fn from(why: Why) -> Self {
        Self { why, file: None }
    }
}

/// What is known of files before a look.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Where something is attached, or was tried to be.
    pub(super) sites: HashSet<(Option<Operation>, FileId, u64)>,
    /// The files something is attached to or was refused in: under the number a process maps it by the one it is attached by,
    /// which is another one where an overlay shows it.
    pub(super) files: HashMap<FileId, FileId>,
    /// Files that are no providers.
    pub(super) no_providers: HashMap<FileId, Ident>,
}

impl Known {
    /// A probe is, or was tried to be, on this operation in the file a process maps under this number.
    pub(super) fn has(&self, operation: Option<Operation>, file: FileId) -> bool {
        let Some(file) = self.files.get(&file) else { return false };
        self.sites.iter().any(|(of, at, _)| (of, at) == (&operation, file))
    }

    /// The same, at one offset.
    pub(super) fn has_at(&self, operation: Option<Operation>, place: &Place) -> bool {
        let file = place.file();
        self.sites.contains(&(operation, self.files.get(&file).copied().unwrap_or(file), place.offset))
    }
}

impl Opened {
    /// What is attached to, by the file's own number.
    pub(super) fn key(&self) -> (Option<Operation>, FileId, u64) {
        (self.operation, self.place.file(), self.place.offset)
    }

    /// A place that the verbs process or this one vouches for.
    pub(super) fn of(operation: Operation, place: &Place) -> Self {
        let found = match Library::open(place.reachable()) {
            Ok(library) => {
                let point = point(&mut library.code(), Some(operation), place.offset);
                Ok((Arc::new(library), point))
            }
            Err(why) => Err(why.into()),
        };
        Self { operation: Some(operation), place: place.clone(), found }
    }
}

/// Places to look into, by their files.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<FileId, OfFile>);

#[derive(Debug, Default)]
struct OfFile {
    /// Where the file is found: the process through which it is may have ended when it is looked for.
    paths: BTreeSet<PathBuf>,
    places: BTreeMap<(Option<Operation>, u64), Place>,
}

/// Paths of one file that are tried.
const MOST_PATHS: usize = 16;

impl Places {
    /// One more, unless it is known.
    pub(super) fn add(&mut self, operation: Option<Operation>, place: Place, known: &Known) {
        if known.has_at(operation, &place) || operation.is_some_and(|operation| !operation.is_probed()) {
            return;
        }
        let of_file = self.0.entry(place.file()).or_default();
        if of_file.paths.len() < MOST_PATHS {
            of_file.paths.insert(place.reachable().to_owned());
        }
        of_file.places.entry((operation, place.offset)).or_insert(place);
    }

    /// Looks into them.
    pub(super) fn open(self, known: &Known) -> Vec<Opened> {
        let mut files = 0;
        let mut all = Vec::new();
        for (file, of_file) in self.0 {
            let library = if files < MOST_ATTACHED { open(&of_file.paths) } else { Err(too_many()) };
            let mut found = of_file.look_into(library, known.no_providers.get(&file));
            files += usize::from(found.iter().any(|opened| opened.found.is_ok()));
            all.append(&mut found);
        }
        all
    }
}

impl OfFile {
    /// What was refused is in it once: of what a process makes up there may be no end.
    fn look_into(self, library: Result<Library, Why>, no_provider: Option<&Ident>) -> Vec<Opened> {
        let mut refused = false;
        let mut admitted = 0;
        let library = library.map(Arc::new);
        let proof =
            library.as_ref().map_err(|why| why.clone().into()).and_then(|library| self.prove(library, no_provider));
        let mut all = Vec::new();
        let mut code = None;
        for ((operation, _), mut place) in self.places {
            let found = match (&library, &proof) {
                (Err(why), _) => Err(why.clone().into()),
                (Ok(library), _) if place.via.is_none() => Ok(library),
                // Where its function lies, a library says itself. One that has none is another of that name.
                (Ok(library), _) if operation.is_none() => match library.exported(MODIFY_QP) {
                    Some(offset) => {
                        place.offset = offset;
                        Ok(library)
                    }
                    None => continue,
                },
                (Ok(_), Err(refusal)) => Err(refusal.clone()),
                (Ok(_), Ok(_)) if admitted == MOST_OF_A_FILE => Err(too_many().into()),
                (Ok(library), Ok(functions)) if functions.contains(&place.offset) => Ok(library),
                (Ok(_), Ok(_)) => Err(no_function().into()),
            };
            if found.is_err() && place.via.is_some() && std::mem::replace(&mut refused, true) {
                continue;
            }
            admitted += usize::from(found.is_ok());
            let found = found.map(|library| {
                let code = code.get_or_insert_with(|| library.code());
                (library.clone(), point(code, operation, place.offset))
            });
            all.push(Opened { operation, place, found });
        }
        all
    }

    /// The places of which a process told that are what they are said to be, when nobody vouches for them but a process.
    fn prove(&self, library: &Library, no_provider: Option<&Ident>) -> Result<BTreeSet<u64>, Refusal> {
        let told = self.places.iter().filter(|((operation, _), place)| operation.is_some() && place.via.is_some());
        let offsets: BTreeSet<u64> = told.map(|((_, offset), _)| *offset).collect();
        if offsets.is_empty() {
            return Ok(offsets);
        }
        let refused = |why| Refusal { why, file: Some(*library.ident()) };
        if no_provider == Some(library.ident()) {
            return Err(refused(no_such_provider()));
        }
        if !library.is_provider()? {
            return Err(refused(no_such_provider()));
        }
        Ok(library.functions_at(&offsets)?)
    }
}

fn open(paths: &BTreeSet<PathBuf>) -> Result<Library, Why> {
    let mut last = Err("the file has no name".into());
    for path in paths {
        last = Library::open(path);
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Where in a function to attach.
fn point(code: &mut Code<'_>, operation: Option<Operation>, entry: u64) -> Result<Point, Why> {
    let reads = operation.map_or(&[Arg::Arg0][..], Operation::reads);
    let returns = operation.and_then(Operation::exit).is_some();
    Ok(match code.around(entry)? {
        Ok((code, at)) if returns => Point::with_return(&prologue::choose(code, at, reads)),
        Ok((code, at)) => prologue::choose(code, at, reads),
        Err(_) if returns => Point::entry(Because::Return(None)),
        Err(error) => Point::entry(Because::Unread(error)),
    })
}

/// Why no more is attached to.
pub(super) fn too_many() -> Why {
    "more places than any provider has".into()
}

fn no_such_provider() -> Why {
    refused("the file neither needs libibverbs nor has it inside")
}

fn no_function() -> Why {
    refused("no function of the file begins there")
}

/// Why a place is not what a process says it is.
pub(super) fn refused(why: &str) -> Why {
    format!("the address is not the start of a function of a provider: {why}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::verbs::maps::mappings;

    /// This program, which has `ibv_open_device` inside in its tests, and where a function of it begins; as a process told it.
    fn told(shift: u64) -> Place {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        let address = refused as *const () as u64;
        let mapping = mappings(&maps).find(|mapping| mapping.holds(address)).expect("it is mapped");
        let place = mapping.place(address + shift).expect("it comes from a file");
        Place { via: Some(place.path.clone()), ..place }
    }

    fn open(places: &[(Operation, Place)], known: &Known) -> Vec<Opened> {
        let mut all = Places::default();
        for (operation, place) in places {
            all.add(Some(*operation), place.clone(), known);
        }
        all.open(known)
    }

    fn why(opened: &Opened) -> Option<&str> {
        opened.found.as_ref().err().map(|refusal| refusal.why.reason.as_str())
    }

    #[test]
    fn a_file_that_is_known_to_be_no_provider_is_refused_unread_until_it_is_another() {
        let (place, known) = (told(0), Known::default());
        let [opened] = &open(&[(Operation::PostSend, place.clone())], &known)[..] else { panic!("one place") };
        let (library, _) = opened.found.as_ref().map_err(|refusal| &refusal.why).expect("it is one");
        // It is one, so that it was read would show.
        let known = Known { no_providers: [(place.file(), *library.ident())].into(), ..Known::default() };
        let [opened] = &open(&[(Operation::PostSend, place.clone())], &known)[..] else { panic!("one place") };
        assert_eq!(why(opened), Some(no_such_provider().reason.as_str()));
        let other = *Library::open(std::path::Path::new("/proc/self/maps")).expect("it can be opened").ident();
        let known = Known { no_providers: [(place.file(), other)].into(), ..Known::default() };
        assert_eq!(why(&open(&[(Operation::PostSend, place)], &known)[0]), None);
    }

    #[test]
    fn what_is_made_up_of_a_file_is_refused_once_and_costs_its_functions_nothing() {
        let made_up = |by: u64| (Operation::PostSend, Place { offset: 1 << 40 | by, ..told(0) });
        let mut places: Vec<_> = (1..500).map(made_up).collect();
        places.push((Operation::PostSend, told(0)));
        let opened = open(&places, &Known::default());
        let refused: Vec<_> = opened.iter().filter_map(why).collect();
        assert_eq!(refused, [no_function().reason]);
        assert_eq!(opened.len(), 2);
        assert!(opened.iter().any(|opened| opened.found.is_ok() && opened.place.offset == told(0).offset));
    }

    #[test]
    fn what_is_attached_to_already_is_not_opened() {
        let place = Place { via: Some("/none".into()), ..told(0) };
        let file = place.file();
        let shown = Place { inode: place.inode + 1, ..place.clone() };
        let known = Known {
            sites: [(Some(Operation::PostSend), file, place.offset)].into(),
            files: [(file, file), (shown.file(), file)].into(),
            ..Known::default()
        };
        assert!(open(&[(Operation::PostSend, place.clone()), (Operation::PostSend, shown)], &known).is_empty());
        assert_eq!(open(&[(Operation::PostRecv, place)], &known).len(), 1);
    }

    #[test]
    fn a_file_is_found_through_another_process_when_the_first_has_ended() {
        let gone = Place { via: Some("/a/process/that/ended".into()), ..told(0) };
        let opened = open(&[(Operation::PostSend, gone), (Operation::PostRecv, told(0))], &Known::default());
        assert_eq!(opened.iter().filter(|opened| opened.found.is_ok()).count(), 2);
    }
}
