//! What an import made of each file: `import`'s own output.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// `import --json`; stable.
#[derive(Debug, Default, Serialize)]
pub struct ImportReport {
    /// Files that were recognised, in part or whole, and trees.
    pub files: Vec<Recognised>,
    /// Files, or parts of them, that were not, and why.
    pub not_recognised: Vec<NotRecognised>,
}

/// A file that was recognised.
#[derive(Debug, Default, Serialize)]
pub struct Recognised {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub format: String,
    /// Observations it gave, notes not counted; those of a tree are counted when it is read.
    pub observations: usize,
    /// Where its times are from.
    pub time: String,
    /// Lines no format claims.
    pub unclaimed: usize,
    /// What it says that is no observation.
    pub notes: Vec<String>,
}

/// Something that was not recognised.
#[derive(Debug, Serialize)]
pub struct NotRecognised {
    /// Where it is.
    pub path: PathBuf,
    /// Why not.
    pub why: String,
}

impl ImportReport {
    pub(super) fn not(&mut self, path: &Path, why: String) {
        self.not_recognised.push(NotRecognised { path: path.to_owned(), why });
    }

    pub(super) fn recognised(&mut self, file: Recognised) {
        self.files.push(file);
    }

    /// One line per file, its notes below it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            let n = match (file.observations, file.format.as_str()) {
                (_, "sysfs tree") => String::new(),
                (1, _) => ", 1 observation".to_owned(),
                (n, _) => format!(", {n} observations"),
            };
            let rest = match file.unclaimed {
                0 => String::new(),
                1 => ", 1 line of something else".to_owned(),
                n => format!(", {n} lines of something else"),
            };
            crate::command::table::line(&mut text, &format!("{}: {}{n}{rest}", file.path.display(), file.format));
            for note in &file.notes {
                crate::command::table::line(&mut text, &format!("  {note}"));
            }
        }
        text
    }
}
