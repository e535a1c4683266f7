//! Texts of `/proc`. Names of processes and of files are in them, which are bytes of anybody's choice: the kernel cuts a
//! process's name at 15 of them, also in the middle of a character.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// The text of a file of `/proc`; bytes that are no UTF-8 are replaced.
///
/// # Errors
/// Those of opening and reading it.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
}

/// The error says that the process has ended: ENOENT before the file was opened, ESRCH afterwards. Any other one says nothing
/// of it.
pub(crate) fn says_ended(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_character_costs_no_more_than_itself() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), b"7 (\xd0\xbe\xd0) S 1").expect("it is writable");
        assert_eq!(text(file.path()).expect("it is read"), "7 (о\u{fffd}) S 1");
        assert!(text(Path::new("/none")).is_err());
    }
}
