//! Which files of the given paths are what: trees, texts, and the times that `TIMES` gives them.
//!
//! `TIMES` lies in a directory and gives an entry of it a time: `t0 0`, `t1 10` (seconds), `dmesg.txt
//! 2026-01-01T02:00:00Z` (a date), or words (`t0 before the test`), which give an order only. What lies in a directory with
//! a time, or beside a tree, has that time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::calendar;
use super::moment::{Clock, Moment};
use super::tree::tree_at;

/// Directories below a given path that are looked into.
const MAX_DEPTH: usize = 12;
/// Files of one import.
const MAX_FILES: usize = 20_000;

/// A text file, and its time where `TIMES` or a tree gives one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TextFile {
    /// Where it is.
    pub(super) path: PathBuf,
    /// When it was taken.
    pub(super) moment: Option<Moment>,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Trees with their times.
    pub(super) trees: Vec<(PathBuf, Moment)>,
    /// Files that may be text.
    pub(super) texts: Vec<TextFile>,
    /// What could not be used, and why.
    pub(super) not: Vec<(PathBuf, String)>,
    /// Trees without a time.
    untimed: Vec<PathBuf>,
}

impl Walk {
    /// Looks at one path.
    pub(super) fn add(&mut self, path: &Path) {
        if path.is_file() {
            self.texts.push(TextFile { path: path.to_owned(), moment: None });
        } else if !path.exists() {
            self.not.push((path.to_owned(), "no such file or directory".to_owned()));
        } else if path.is_dir() {
            let before = self.trees.len();
            self.directory(path, None, 0);
            // A single tree needs no time; of several nobody knows which was first, or whether they are of one machine.
            match (&self.untimed[..], self.trees.get(before)) {
                (untimed, Some((timed, _))) => {
                    let why = format!("TIMES gives it no time, and {} has one", timed.display());
                    self.not.extend(untimed.iter().map(|tree| (tree.clone(), why.clone())));
                }
                ([only], None) => self.trees.push((only.clone(), Moment::at(Clock::Relative(0)))),
                ([], None) => {}
                (several, None) => {
                    let why = format!("{} trees without a TIMES file", several.len());
                    self.not.push((path.to_owned(), why));
                }
            }
            self.untimed.clear();
        } else {
            self.not.push((path.to_owned(), "neither a file nor a directory".to_owned()));
        }
    }

    fn directory(&mut self, path: &Path, moment: Option<Moment>, depth: usize) {
        let tree = tree_at(path);
        let times = self.times(path);
        let here = moment.or_else(|| tree.as_ref().map(|_| Moment::at(Clock::Relative(0))));
        let mut names: Vec<_> = match std::fs::read_dir(path) {
            Ok(entries) => entries.filter_map(Result::ok).map(|entry| entry.file_name()).collect(),
            Err(error) => {
                self.not.push((path.to_owned(), error.to_string()));
                return;
            }
        };
        names.sort();
        if let Some(tree) = &tree {
            match moment {
                Some(moment) => self.trees.push((tree.clone(), moment)),
                None => self.untimed.push(tree.clone()),
            }
        }
        for name in names.into_iter().filter(|name| name != "TIMES") {
            let entry = path.join(&name);
            let given = times.get(&*name.to_string_lossy()).copied();
            let Ok(kind) = std::fs::metadata(&entry) else {
                self.not.push((entry, "a link to nothing".to_owned()));
                continue;
            };
            if kind.is_dir() {
                // Only real directories below: a link may lead anywhere, or back.
                let real = std::fs::symlink_metadata(&entry).is_ok_and(|own| own.is_dir());
                let of_tree = tree.as_ref().is_some_and(|tree| *tree == path || *tree == entry);
                if real && !of_tree && depth < MAX_DEPTH {
                    self.directory(&entry, given.or(moment), depth + 1);
                }
            } else if !kind.is_file() {
                self.not.push((entry, "neither a file nor a directory".to_owned()));
            } else if self.texts.len() < MAX_FILES {
                self.texts.push(TextFile { path: entry, moment: given.or(here) });
            } else if self.texts.len() == MAX_FILES {
                self.not.push((entry, format!("this and further ones: more than {MAX_FILES} files")));
            }
        }
    }

    /// The times a directory's `TIMES` gives.
    fn times(&mut self, path: &Path) -> BTreeMap<String, Moment> {
        let file = path.join("TIMES");
        let mut times = BTreeMap::new();
        let Ok(text) = std::fs::read_to_string(&file) else { return times };
        for (order, line) in (0u32..).zip(text.lines().filter(|line| !line.trim().is_empty())) {
            let (name, time) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
            let inside = !name.contains('/') && name != ".." && path.join(name).exists();
            let moment = moment(time.trim(), order);
            match moment.filter(|_| inside) {
                Some(moment) => {
                    times.insert(name.to_owned(), moment);
                }
                None if inside => self.not.push((file.clone(), format!("{time} is no time for {name}"))),
                None => self.not.push((file.clone(), format!("names {name}, which is not here"))),
            }
        }
        times
    }
}

/// Seconds, a date, or words that give an order only; `None` for a number that is no time.
fn moment(text: &str, order: u32) -> Option<Moment> {
    if let Some((t, _)) = calendar::iso(text).filter(|(_, rest)| rest.is_empty()) {
        return Some(Moment::at(Clock::Wall(t)));
    }
    if text.parse::<f64>().is_ok() {
        return Some(Moment::at(Clock::Relative(super::seconds(text)?)));
    }
    Some(Moment { clock: Clock::Relative(0), order })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(dir: &Path) -> Walk {
        let mut walk = Walk::default();
        walk.add(dir);
        walk
    }

    #[test]
    fn a_tree_is_recognised_by_what_it_holds_and_its_time_is_in_times() {
        let dir = tempfile::tempdir().unwrap();
        let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).unwrap();
        for path in [
            "plain/class",
            "below/sys/devices",
            "series/t0/sys/class",
            "series/t1/sys/class",
            "variants/t0/sys/class",
            "variants/t1/sys/class",
            "words/t0/class",
            "words/t1/class",
            "empty",
        ] {
            make(path);
        }
        std::fs::write(dir.path().join("series/TIMES"), "t1 0.005\nt0 0\n").unwrap();
        std::fs::write(dir.path().join("words/TIMES"), "t0 before\nt1 after 5 minutes\n").unwrap();
        let at = |path: &str| walk(&dir.path().join(path));
        let relative = |t| Moment::at(Clock::Relative(t));
        let trees = |list: &[(&str, Moment)]| list.iter().map(|(p, m)| (dir.path().join(p), *m)).collect::<Vec<_>>();
        assert_eq!(at("plain").trees, trees(&[("plain", relative(0))]));
        assert_eq!(at("below").trees, trees(&[("below/sys", relative(0))]));
        assert_eq!(
            at("series").trees,
            trees(&[("series/t0/sys", relative(0)), ("series/t1/sys", relative(5_000_000))])
        );
        let second = Moment { clock: Clock::Relative(0), order: 1 };
        assert_eq!(at("words").trees, trees(&[("words/t0", relative(0)), ("words/t1", second)]));
        assert!(at("variants").not[0].1.contains("2 trees without a TIMES file") && at("variants").trees.is_empty());
        assert!(at("empty").trees.is_empty());
        assert!(at("nothing").not[0].1.contains("no such"));
    }

    #[test]
    fn a_time_that_is_none_and_a_name_that_is_not_here_are_said() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("t0/class")).unwrap();
        std::fs::write(dir.path().join("TIMES"), "t0 -5\nt9 1\n../x 2\n").unwrap();
        let whys: Vec<String> = walk(dir.path()).not.into_iter().map(|(_, why)| why).collect();
        assert!(whys[0].contains("-5 is no time") && whys[1].contains("names t9") && whys[2].contains("names ../x"));
    }

    #[test]
    fn a_tree_that_times_does_not_name_is_not_laid_among_those_it_names() {
        let dir = tempfile::tempdir().unwrap();
        for tree in ["t0", "t1"] {
            std::fs::create_dir_all(dir.path().join(tree).join("class")).unwrap();
        }
        std::fs::write(dir.path().join("TIMES"), "t1 after the test\n").unwrap();
        let walk = walk(dir.path());
        assert_eq!(walk.trees.iter().map(|(tree, _)| tree.clone()).collect::<Vec<_>>(), [dir.path().join("t1")]);
        assert_eq!(walk.not[0].0, dir.path().join("t0"));
        assert!(walk.not[0].1.contains("TIMES gives it no time"), "{:?}", walk.not);
    }

    #[test]
    fn a_file_has_the_time_of_times_of_its_directory_or_of_the_tree_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("t0/sys/class")).unwrap();
        for file in ["t0/a.txt", "b.txt", "c.txt", "t0/sys/not-looked-at"] {
            std::fs::write(dir.path().join(file), "x").unwrap();
        }
        std::fs::write(dir.path().join("TIMES"), "t0 7\nb.txt 1970-01-01T00:00:01Z\n").unwrap();
        let found = walk(dir.path()).texts;
        let of = |name: &str| found.iter().find(|f| f.path.ends_with(name)).map(|f| f.moment.map(|m| m.clock));
        assert_eq!(of("a.txt"), Some(Some(Clock::Relative(7_000_000_000))));
        assert_eq!(of("b.txt"), Some(Some(Clock::Wall(1_000_000_000))));
        assert_eq!((of("c.txt"), of("not-looked-at")), (Some(None), None));
    }
}
