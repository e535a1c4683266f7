//! The dashboards and rules of `packaging/`: they name what is exported, say what they mean, make nothing of the unknown,
//! and Prometheus itself finds that they work.

mod dashboard;
mod promtool;
mod queries;
mod rule_file;
mod rules;
mod world;

use std::path::PathBuf;

/// A path below `packaging/`.
fn packaging(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path)
}

/// The files of a directory below `packaging/` with this ending, sorted.
fn files(directory: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(packaging(directory)).expect("the directory is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(ending));
    files.sort();
    assert!(!files.is_empty(), "{directory} has no {ending}");
    files
}

fn text(path: impl AsRef<std::path::Path>) -> String {
    std::fs::read_to_string(path.as_ref()).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}
