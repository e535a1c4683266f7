//! Small files of one directory that stay open from look to look.
//!
//! What seldom changes is looked at every ten seconds, and such a look was mostly the opening of files that were open
//! already. The directory's list says which of them are still the same: an inode is not given away while a file that has
//! it is open, so an entry with the inode of an open file is that file. What is not in the list need not be tried.

use super::{Files, OpenFile, errno_name, says_gone};
use crate::observation::Text;

/// The most that is read of a file as a text.
const TEXT_BYTES: usize = 4096;

/// Files of one directory, by name.
pub(crate) struct Folder {
    path: String,
    files: Vec<Held>,
}

struct Held {
    name: &'static str,
    handle: Result<Box<dyn OpenFile>, Text<'static>>,
    /// The inode of the open file; `None` where the next look is to open it anew.
    inode: Option<u64>,
    found: Found,
}

/// What the list of the directory has under a file's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    File(u64),
    /// A link, of which the inode tells nothing of the file.
    Link,
    /// The directory could not be listed: whatever is open is the file, as far as anybody knows.
    Untold,
}

/// What became of a look at the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// It was listed.
    Listed,
    /// It is not there any more.
    Gone,
    /// It could not be listed, for an instant (no descriptor or memory left) or for good (no permission).
    Untold,
}

impl Folder {
    /// The files of these names in a directory; none is open before the first look.
    pub(crate) fn new(path: String, names: &[&'static str]) -> Self {
        let held = |name: &&'static str| Held {
            name,
            handle: Err(Text::Borrowed("ENOENT")),
            inode: None,
            found: Found::Nothing,
        };
        Self { path, files: names.iter().map(held).collect() }
    }

    /// The directory.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Forgets every open file: another tree is looked at from here on.
    pub(crate) fn close(&mut self) {
        for file in &mut self.files {
            (file.handle, file.inode) = (Err(Text::Borrowed("ENOENT")), None);
        }
    }

    /// Opens what is there and not open, and anew what is another file by now. Where the directory could not be listed, only
    /// what is not open or could not be read is tried, and nothing is closed.
    pub(crate) fn look(&mut self, files: &dyn Files) -> Look {
        let Self { path, files: held } = self;
        for file in held.iter_mut() {
            file.found = Found::Nothing;
        }
        let listed = files.each(path, &mut |entry| {
            if let Some(file) = held.iter_mut().find(|file| file.name == entry.name) {
                file.found = if entry.object { Found::Link } else { Found::File(entry.inode) };
            }
        });
        let look = match listed {
            Ok(()) => Look::Listed,
            Err(error) if says_gone(&error) => Look::Gone,
            Err(_) => Look::Untold,
        };
        for file in held {
            match look {
                Look::Listed => {}
                Look::Gone => file.found = Found::Nothing,
                Look::Untold => file.found = Found::Untold,
            }
            file.follow(files, path);
        }
        look
    }

    /// Reads the file at this place among the names.
    ///
    /// # Errors
    /// Why it could not be opened, or the errno of reading it; the next look then opens it anew.
    pub(crate) fn read(&mut self, at: usize, buf: &mut [u8]) -> Result<usize, Text<'static>> {
        let file = &mut self.files[at];
        let handle = file.handle.as_ref().map_err(Clone::clone)?;
        handle.read(buf).map_err(|error| {
            file.inode = None;
            errno_name(&error)
        })
    }

    /// The text of a file without white space around it; `None` when it is not there or cannot be read.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.files.iter().position(|file| file.name == name)?;
        let mut buf = [0u8; TEXT_BYTES];
        let n = self.read(at, &mut buf).ok()?;
        Some(String::from_utf8_lossy(buf.get(..n)?).trim().to_owned())
    }

    /// One of the files at these places is open.
    pub(crate) fn has_any(&self, places: std::ops::Range<usize>) -> bool {
        self.files[places].iter().any(|file| file.handle.is_ok())
    }
}

impl Held {
    fn follow(&mut self, files: &dyn Files, path: &str) {
        let inode = match self.found {
            Found::Nothing => {
                (self.handle, self.inode) = (Err(Text::Borrowed("ENOENT")), None);
                return;
            }
            Found::File(inode) if self.inode == Some(inode) => return,
            Found::Untold if self.inode.is_some() => return,
            Found::File(inode) => Some(inode),
            Found::Link | Found::Untold => None,
        };
        match files.open(&format!("{path}/{}", self.name)) {
            // It may be the same file, which need not be lost for want of a second descriptor of it.
            Err(error) if inode.is_none() && self.handle.is_ok() && !says_gone(&error) => {}
            opened => {
                self.handle = opened.map_err(|error| errno_name(&error));
                self.inode = inode.filter(|_| self.handle.is_ok());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::RootedFiles;
    use super::super::faults::FaultyFiles;
    use super::*;

    fn folder(names: &[&'static str]) -> (tempfile::TempDir, Arc<FaultyFiles<RootedFiles>>, Folder) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("d/a"), " 1\n").unwrap();
        let files = Arc::new(FaultyFiles::new(RootedFiles::new(dir.path()).unwrap()));
        (dir, files, Folder::new("d".to_owned(), names))
    }

    #[test]
    fn what_is_open_is_opened_again_only_when_another_file_has_its_name() {
        let (dir, files, mut folder) = folder(&["a", "b"]);
        assert_eq!(folder.text("a"), None, "nothing is open before the first look");
        assert_eq!(folder.look(&*files), Look::Listed);
        assert_eq!((folder.text("a").as_deref(), folder.text("b")), (Some("1"), None));
        std::fs::write(dir.path().join("d/a"), "2\n").unwrap();
        std::fs::write(dir.path().join("d/b"), "3\n").unwrap();
        folder.look(&*files);
        assert_eq!((folder.text("a").as_deref(), folder.text("b").as_deref()), (Some("2"), Some("3")));
        assert_eq!(files.opened().len(), 2);
        std::fs::write(dir.path().join("d/new"), "4\n").unwrap();
        std::fs::rename(dir.path().join("d/new"), dir.path().join("d/a")).unwrap();
        std::fs::remove_file(dir.path().join("d/b")).unwrap();
        folder.look(&*files);
        assert_eq!((folder.text("a").as_deref(), folder.text("b")), (Some("4"), None));
        assert_eq!(files.opened().len(), 3);
    }

    #[test]
    fn where_the_list_does_not_tell_the_files_each_is_tried_at_every_look() {
        let (dir, files, mut folder) = folder(&["a", "link"]);
        std::os::unix::fs::symlink("a", dir.path().join("d/link")).unwrap();
        folder.look(&*files);
        folder.look(&*files);
        assert_eq!(
            files.opened().iter().filter(|path| path.ends_with("/link")).count(),
            2,
            "it may lead elsewhere by now"
        );
        files.fail("d", true, 13);
        assert_eq!(folder.look(&*files), Look::Untold);
        assert_eq!((folder.text("a").as_deref(), folder.text("link").as_deref()), (Some("1"), Some("1")));
    }

    #[test]
    fn where_no_descriptor_is_left_for_an_instant_what_is_open_stays_so() {
        let (dir, files, mut folder) = folder(&["a", "b", "link"]);
        std::os::unix::fs::symlink("a", dir.path().join("d/link")).unwrap();
        folder.look(&*files);
        std::fs::write(dir.path().join("d/b"), "2\n").unwrap();
        for path in ["d", "d/a", "d/b", "d/link"] {
            files.fail(path, true, 24);
        }
        let opened = files.opened().len();
        assert_eq!(folder.look(&*files), Look::Untold);
        assert_eq!((folder.text("a").as_deref(), folder.text("link").as_deref()), (Some("1"), Some("1")));
        assert_eq!(folder.read(1, &mut [0; 8]), Err("EMFILE".into()), "what was not open says why");
        files.heal();
        folder.look(&*files);
        assert_eq!(folder.text("b").as_deref(), Some("2"));
        assert_eq!(files.opened().len(), opened + 2, "the one that was not open, and the link");
        std::fs::remove_dir_all(dir.path().join("d")).unwrap();
        assert_eq!((folder.look(&*files), folder.text("a")), (Look::Gone, None));
    }

    #[test]
    fn a_file_that_could_not_be_read_is_opened_anew() {
        let (_dir, files, mut folder) = folder(&["a"]);
        files.fail("d/a", false, 19);
        folder.look(&*files);
        assert_eq!(folder.read(0, &mut [0; 8]), Err("ENODEV".into()));
        assert_eq!(folder.text("a"), None);
        files.heal();
        folder.look(&*files);
        assert_eq!(folder.text("a").as_deref(), Some("1"));
    }
}
