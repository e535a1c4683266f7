//! The cases of `tests/cases`, unpacked.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// One unpacked case.
pub struct Case {
    dir: TempDir,
    number: String,
}

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
        Self { dir, number: number.to_owned() }
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
        let text = std::fs::read_to_string(self.at("expected.json")).expect("a case has an expected.json");
        serde_json::from_str(&text).expect("expected.json is a list")
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
