//! Where the program `rdmascope-verbs` is.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::source::Missing;

/// The program's name.
pub const PROGRAM: &str = "rdmascope-verbs";

/// The one that was named; else the one beside this program; else the first on the search path.
pub(in crate::source) fn find(named: Option<&Path>) -> Result<PathBuf, Missing> {
    let own = std::env::current_exe().ok();
    look(named, own.as_deref(), std::env::var_os("PATH").as_deref())
}

fn look(named: Option<&Path>, own: Option<&Path>, search: Option<&OsStr>) -> Result<PathBuf, Missing> {
    let missing = |reason: String| Missing {
        what: "everything".to_owned(),
        reason,
        fix: Some(format!("install {PROGRAM} (it is in rdmascope's package), or name it with --verbs-program")),
    };
    if let Some(named) = named {
        // It is started in another directory.
        let path = std::path::absolute(named).unwrap_or_else(|_| named.to_owned());
        return if runs(&path) { Ok(path) } else { Err(missing(format!("{} is no program", named.display()))) };
    }
    let beside = own.and_then(Path::parent).map(|folder| folder.join(PROGRAM));
    let searched = search.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    // A relative one would be another folder for everybody who starts it.
    let searched = searched.into_iter().filter(|folder| folder.is_absolute()).map(|folder| folder.join(PROGRAM));
    let found = beside.into_iter().chain(searched).find(|path| runs(path));
    found.ok_or_else(|| missing(format!("{PROGRAM} is neither beside rdmascope nor on PATH")))
}

fn runs(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn program(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder");
        fs::write(path, "").expect("a file");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }

    #[test]
    fn the_named_one_goes_before_the_one_beside_and_that_before_the_search_path() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let at = |path: &str| root.path().join(path);
        let (own, named) = (at("bin/rdmascope"), at("other/verbs"));
        let search = std::env::join_paths([at("empty"), at("path")]).expect("a search path");
        let found = |named: Option<&Path>| look(named, Some(&own), Some(&search));
        assert!(found(None).is_err_and(|missing| missing.fix.is_some_and(|fix| fix.contains("--verbs-program"))));

        program(&at("path/rdmascope-verbs"), 0o755);
        assert_eq!(found(None), Ok(at("path/rdmascope-verbs")));
        program(&at("bin/rdmascope-verbs"), 0o755);
        assert_eq!(found(None), Ok(at("bin/rdmascope-verbs")));
        assert!(found(Some(&named)).is_err(), "what was named is used or nothing");
        program(&named, 0o644);
        assert!(found(Some(&named)).is_err(), "it cannot be run");
        program(&named, 0o755);
        assert_eq!(found(Some(&named)), Ok(named));
    }
}
