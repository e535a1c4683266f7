//! What [`RootedFiles`] promises, on small trees.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn tree() -> (tempfile::TempDir, RootedFiles) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("sys/devices/d")).unwrap();
    std::fs::create_dir_all(dir.path().join("sys/class/x")).unwrap();
    std::fs::write(dir.path().join("secret"), "outside").unwrap();
    std::fs::write(dir.path().join("sys/devices/d/value"), " 7\n").unwrap();
    let files = RootedFiles::new(dir.path().join("sys")).unwrap();
    (dir, files)
}

#[test]
fn a_relative_and_an_absolute_link_lead_to_the_same_file_inside_the_root() {
    let (dir, files) = tree();
    symlink("../../devices/d", dir.path().join("sys/class/x/relative")).unwrap();
    symlink("/sys/devices/d", dir.path().join("sys/class/x/absolute")).unwrap();
    for name in ["relative", "absolute"] {
        assert_eq!(files.text(&format!("class/x/{name}/value")).unwrap(), "7");
        assert_eq!(files.resolve(&format!("class/x/{name}")).unwrap(), "devices/d");
    }
}

#[test]
fn no_link_leads_out_of_the_root() {
    let (dir, files) = tree();
    let outside = dir.path().join("secret");
    symlink(&outside, dir.path().join("sys/class/x/absolute")).unwrap();
    symlink("../../../secret", dir.path().join("sys/class/x/relative")).unwrap();
    symlink("loop", dir.path().join("sys/class/x/loop")).unwrap();
    for name in ["absolute", "relative"] {
        let error = files.text(&format!("class/x/{name}")).unwrap_err();
        assert_eq!(errno_name(&error), "ENOENT");
    }
    assert_eq!(errno_name(&files.text("class/x/loop").unwrap_err()), "ELOOP");
}

#[test]
fn a_file_without_a_read_bit_and_a_directory_are_not_opened() {
    let (dir, files) = tree();
    let path = dir.path().join("sys/devices/d/create_child");
    std::fs::write(&path, "x").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o200)).unwrap();
    assert_eq!(errno_name(&files.text("devices/d/create_child").unwrap_err()), "EACCES");
    assert_eq!(errno_name(&files.text("devices/d").unwrap_err()), "EISDIR");
}

#[test]
fn what_is_absent_is_told_from_what_lies_behind_an_absolute_link() {
    let (dir, files) = tree();
    symlink("/sys/devices/d", dir.path().join("sys/class/x/absolute")).unwrap();
    symlink("/sys/devices/gone", dir.path().join("sys/class/x/dangling")).unwrap();
    for absent in ["class/x/none", "class/none/value", "none/none/none", "class/x/absolute/none", "class/x/dangling"] {
        assert!(!files.exists(absent), "{absent}");
        assert_eq!(errno_name(&files.text(absent).unwrap_err()), "ENOENT", "{absent}");
    }
    for there in ["", "class", "class/x/absolute", "class/x/absolute/value", "class/x/../x/absolute/value"] {
        assert!(files.exists(there), "{there}");
    }
    assert_eq!(files.link("class/x/dangling").unwrap(), "/sys/devices/gone");
    assert_eq!(errno_name(&files.link("class/x/absolute/value").unwrap_err()), "EINVAL");
}

#[test]
fn the_kernel_follows_relative_links_for_every_way_of_opening() {
    let (dir, files) = tree();
    symlink("../../devices/d", dir.path().join("sys/class/x/relative")).unwrap();
    if files.open_at_once("class", OFlags::PATH | OFlags::CLOEXEC).is_err() {
        eprintln!("skipped: no openat2 here (Linux 5.6)");
        return;
    }
    // What the kernel refuses would be walked, and nobody would notice.
    for (path, flags) in [
        ("class/x/relative/value", OFlags::RDONLY),
        ("class/x/relative/value", OFlags::PATH),
        ("class/x/relative", OFlags::PATH | OFlags::DIRECTORY),
        ("class/x/relative", OFlags::RDONLY | OFlags::DIRECTORY),
    ] {
        assert!(files.open_at_once(path, with_own(flags)).is_ok(), "{path} {flags:?}");
    }
}

#[test]
fn entries_are_listed_by_their_numbers_and_hidden_ones_left_out() {
    let (dir, files) = tree();
    for name in ["mlx5_10", "mlx5_2", ".keep"] {
        std::fs::create_dir(dir.path().join("sys/class/x").join(name)).unwrap();
    }
    let names: Vec<_> = files.list("class/x").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["mlx5_2", "mlx5_10"]);
}

#[test]
fn a_tree_does_not_show_that_it_was_read() {
    let (dir, files) = tree();
    let path = dir.path().join("sys/devices/d/value");
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_times(std::fs::FileTimes::new().set_accessed(old)).unwrap();
    assert_eq!(files.text("devices/d/value").unwrap(), "7");
    assert_eq!(std::fs::metadata(&path).unwrap().accessed().unwrap(), old);
}

#[test]
fn entries_are_told_in_an_order_that_stays_and_compare_with_those_kept() {
    let (_dir, files) = tree();
    let told = || {
        let mut told = Vec::new();
        files.each("", &mut |entry| told.push(entry.entry())).unwrap();
        told
    };
    let first = told();
    assert_eq!(first, told());
    let mut sorted = first.clone();
    put_in_order(&mut sorted);
    assert_eq!(sorted, files.list("").unwrap());
    let mut at = 0;
    files
        .each("", &mut |entry| {
            assert!(entry == first[at]);
            assert!(entry != Entry { inode: first[at].inode + 1, ..first[at].clone() });
            at += 1;
        })
        .unwrap();
    assert_eq!(at, 2, "class and devices");
}

#[test]
fn what_there_is_no_room_to_keep_open_is_read_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..5 {
        std::fs::write(dir.path().join(n.to_string()), n.to_string()).unwrap();
    }
    let mut files = RootedFiles::new(dir.path()).unwrap();
    files.room = Arc::new(Room { taken: AtomicUsize::new(0), most: 2 });
    let open = |n: u32| files.open(&n.to_string()).unwrap();
    let read = |file: &dyn OpenFile| {
        let mut buf = [0; 8];
        let n = file.read(&mut buf)?;
        Ok::<_, io::Error>(String::from_utf8_lossy(&buf[..n]).into_owned())
    };
    let mut all: Vec<_> = (0..5).map(open).collect();
    assert_eq!(all.iter().map(|file| read(&**file).unwrap()).collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);
    assert_eq!(files.room.taken.load(Ordering::Relaxed), 2);
    // It is the file that was opened, as one that stays open is.
    std::fs::write(dir.path().join("4"), "seven").unwrap();
    assert_eq!(read(&*all[4]).unwrap(), "seven");
    std::fs::write(dir.path().join("new"), "eight").unwrap();
    std::fs::rename(dir.path().join("new"), dir.path().join("4")).unwrap();
    assert_eq!(read(&*all[4]).unwrap_err().raw_os_error(), Some(Errno::NODEV.raw_os_error()));
    all.remove(0);
    let kept = open(3);
    assert_eq!((files.room.taken.load(Ordering::Relaxed), read(&*kept).unwrap()), (2, "3".to_owned()));
}
