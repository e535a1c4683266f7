//! The cases of `tests/cases`, unpacked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// One unpacked case.
pub struct Case {
    dir: TempDir,
    number: String,
    aside: BTreeMap<&'static str, String>,
}

/// What lies in a case and is no part of its data: about it, not of it.
const ASIDE: [&str; 3] = ["expected.json", "newer-names.txt", "VARIANTS"];

impl Case {
    /// Unpacks a case.
    ///
    /// # Panics
    /// There is none of this number.
    #[must_use]
    pub fn unpack(number: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases/fixtures.tar.gz");
        let tar = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(dir.path()).arg(number).status();
        assert!(tar.is_ok_and(|status| status.success()), "case {number} is in the archive, and tar unpacks it");
        let mut aside = BTreeMap::new();
        for name in ASIDE {
            let path = dir.path().join(number).join(name);
            if let Ok(text) = std::fs::read_to_string(&path) {
                std::fs::remove_file(&path).expect("a file of the case can be taken out");
                aside.insert(name, text);
            }
        }
        Self { dir, number: number.to_owned(), aside }
    }

    /// The text of a file about the case, which is not among its data.
    ///
    /// # Panics
    /// It has none of this name.
    #[must_use]
    pub fn aside(&self, name: &str) -> &str {
        self.aside.get(name).unwrap_or_else(|| panic!("case {} has a file {name}", self.number))
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().join(&self.number)
    }

    /// A file of it, or a directory.
    #[must_use]
    pub fn at(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    /// What a reader must find: the sentences of `expected.json`.
    ///
    /// # Panics
    /// It is no list.
    #[must_use]
    pub fn expected(&self) -> Vec<Value> {
        serde_json::from_str(self.aside("expected.json")).expect("expected.json is a list")
    }

    /// Leaves in `TIMES` only these samples.
    ///
    /// # Panics
    /// The case has no `TIMES`.
    pub fn keep_samples(&self, names: &[&str]) {
        let times = std::fs::read_to_string(self.at("TIMES")).expect("a case with samples has TIMES");
        let kept: Vec<&str> =
            times.lines().filter(|line| line.split(' ').next().is_some_and(|name| names.contains(&name))).collect();
        assert_eq!(kept.len(), names.len(), "TIMES has {names:?}");
        std::fs::write(self.at("TIMES"), kept.join("\n")).expect("TIMES can be written");
    }
}
