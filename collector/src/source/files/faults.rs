//! A reader that answers with the errno a test wants, and notes what was opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{Entry, Files, OpenFile, io};

/// A tree in which some files answer with an errno.
pub struct FaultyFiles<F> {
    inner: F,
    faults: Mutex<HashMap<String, (bool, i32)>>,
    opened: Arc<Mutex<Vec<String>>>,
}

impl<F: Files> FaultyFiles<F> {
    /// The tree without a fault.
    #[must_use]
    pub fn new(inner: F) -> Self {
        Self { inner, faults: Mutex::default(), opened: Arc::default() }
    }

    /// The path with all links but a last one followed; the file itself need not exist.
    fn key(&self, path: &str) -> io::Result<String> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok(format!("{}/{name}", self.inner.resolve(parent)?))
    }

    /// From here on opening (`at_open`) or reading the file fails.
    ///
    /// # Panics
    /// The file's directory does not exist.
    pub fn fail(&self, path: &str, at_open: bool, errno: i32) {
        let path = self.key(path).expect("a fault is put into a directory that exists");
        self.faults.lock().expect("no test panics in the lock").insert(path, (at_open, errno));
    }

    /// Takes every fault away.
    ///
    /// # Panics
    /// Never: nothing panics while it holds the lock.
    pub fn heal(&self) {
        self.faults.lock().expect("no test panics in the lock").clear();
    }

    /// The faults of a case's `FAULTS.tsv`.
    ///
    /// # Panics
    /// An errno there has no number here, or a file's directory does not exist.
    pub fn fail_as_in(&self, tsv: &str) {
        for line in tsv.lines().filter(|line| !line.starts_with('#')) {
            let mut fields = line.split('\t');
            let (Some(path), Some(op), Some(errno)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let errno = match errno {
                "EINVAL" => 22,
                "EACCES" => 13,
                other => panic!("errno {other} is not known here"),
            };
            self.fail(path, op == "open", errno);
        }
    }

    /// Resolved paths of all files opened so far.
    ///
    /// # Panics
    /// Never: nothing panics while it holds the lock.
    #[must_use]
    pub fn opened(&self) -> Vec<String> {
        self.opened.lock().expect("no test panics in the lock").clone()
    }
}

struct Failing(i32);

impl OpenFile for Failing {
    fn read(&self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(self.0))
    }
}

impl<F: Files> Files for FaultyFiles<F> {
    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let fault = self.faults.lock().expect("no test panics in the lock").get(&self.key(path)?).copied();
        match fault {
            Some((_, errno)) => Err(io::Error::from_raw_os_error(errno)),
            None => self.inner.list(path),
        }
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn OpenFile>> {
        let key = self.key(path)?;
        let fault = self.faults.lock().expect("no test panics in the lock").get(&key).copied();
        match fault {
            Some((true, errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some((false, errno)) => Ok(Box::new(Failing(errno))),
            None => {
                let file = self.inner.open(path)?;
                self.opened.lock().expect("no test panics in the lock").push(key);
                Ok(file)
            }
        }
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        self.inner.resolve(path)
    }

    fn link(&self, path: &str) -> io::Result<String> {
        self.inner.link(path)
    }
}
