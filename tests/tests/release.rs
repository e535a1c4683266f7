//! What is promised of the release build: its size, what it links, and that it tells nothing of who built it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release build; prints the skip when `cargo xtask test` did not name one.
fn release() -> Option<PathBuf> {
    let path = std::env::var_os("RDMASCOPE_RELEASE").map(PathBuf::from).filter(|path| path.is_file());
    if path.is_none() {
        println!("skipped: RDMASCOPE_RELEASE names no release build; cargo xtask test makes one");
    }
    path
}

#[test]
fn it_is_smaller_than_15_mb() {
    let Some(path) = release() else { return };
    let bytes = fs::metadata(&path).unwrap().len();
    assert!(bytes < 15_000_000, "{bytes} bytes");
}

#[test]
fn it_holds_no_path_of_the_build_machine() {
    let Some(path) = release() else { return };
    let binary = fs::read(&path).unwrap();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_string_lossy().into_owned();
    let home = std::env::var("HOME").unwrap_or_default();
    let cargo_home = std::env::var("CARGO_HOME").unwrap_or_default();
    for needle in [workspace, format!("{home}/."), cargo_home, "/.cargo/".to_owned(), "/home/".to_owned()] {
        if needle.len() < 4 {
            continue;
        }
        let found = binary.windows(needle.len()).position(|window| window == needle.as_bytes());
        let around = found.map(|at| String::from_utf8_lossy(&binary[at..(at + 120).min(binary.len())]).into_owned());
        assert_eq!(around, None, "{needle:?} is in the binary");
    }
}

#[test]
fn it_links_nothing_but_the_c_library() {
    let Some(path) = release() else { return };
    let output = Command::new("ldd").arg(&path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("libc.so"), "{text}");
    for line in text.lines() {
        let known = ["linux-vdso", "libc.so", "libm.so", "libgcc_s.so", "libdl.so", "libpthread.so", "ld-linux"];
        assert!(known.iter().any(|library| line.contains(library)), "unexpected library: {line}");
    }
}
