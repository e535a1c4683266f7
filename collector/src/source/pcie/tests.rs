//! The source on whole trees.

use serde_json::{Value, json};

use super::*;
use crate::source::files::RootedFiles;
use crate::source::files::faults::FaultyFiles;
use crate::source::sysfs::tests::{case, poll};

const SECOND: Nanos = 1_000_000_000;

fn source_at(root: impl Into<std::path::PathBuf>) -> PcieSource {
    PcieSource::new(PcieOptions::new(Arc::new(RootedFiles::new(root).unwrap())))
}

fn function<'v>(seen: &'v [Value], pci: &str) -> &'v Value {
    seen.iter().find(|body| body["pci"] == pci).expect("the function is observed")
}

#[test]
fn the_path_of_each_function_starts_at_the_root_port() {
    let steps = steps("devices/pci0000:17/0000:17:00.0/0000:18:00.0/0000:1a:00.3");
    assert_eq!(steps.len(), 3);
    assert_eq!(steps[0], ("devices/pci0000:17/0000:17:00.0".to_owned(), vec!["0000:17:00.0".to_owned()]));
    assert_eq!(steps[2].1, ["0000:17:00.0", "0000:18:00.0", "0000:1a:00.3"]);
}

#[test]
fn case_20_missing_attributes_are_unknown_and_a_narrow_link_shows_both_widths() {
    let dir = case("20");
    let mut source = source_at(dir.path().join("20/sys"));
    let seen = poll(&mut source, 0);
    assert_eq!(seen.len(), 2);
    let bare = function(&seen, "0000:07:00.0").as_object().unwrap();
    assert!(
        ["speed_gts", "width", "max_speed_gts", "max_width", "aer", "mps", "aer_owned"]
            .iter()
            .all(|f| !bare.contains_key(*f))
    );
    let narrow = function(&seen, "0000:98:00.0");
    assert_eq!((&narrow["speed_gts"], &narrow["width"], &narrow["max_width"]), (&json!(16.0), &json!(8), &json!(16)));
    assert_eq!(narrow["aer"]["correctable"]["RxErr"], 0);
    let availability = source.availability();
    assert_eq!((availability.state, availability.sees.as_str()), (Seeing::Partial, "2 functions"));
    assert!(availability.missing.iter().all(|m| m.what.ends_with("of 0000:07:00.0")));
}

#[test]
fn case_07_bridges_shared_by_four_functions_are_observed_once() {
    let dir = case("07");
    let seen = poll(&mut source_at(dir.path().join("07/sys")), 0);
    let path = json!(["0000:17:00.0", "0000:18:00.0", "0000:19:03.0", "0000:1a:00.3"]);
    assert_eq!(function(&seen, "0000:1a:00.3")["path"], path);
    assert_eq!(function(&seen, "0000:19:03.0")["path"], json!(["0000:17:00.0", "0000:18:00.0", "0000:19:03.0"]));
    let mut all: Vec<_> = seen.iter().map(|body| body["pci"].to_string()).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), seen.len());
}

/// A root port, and below it a network card whose interface carries a software device.
fn software_device() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    let card = "devices/pci0000:00/0000:00:02.0/0000:01:00.0";
    std::fs::create_dir_all(at(card).join("net/eth0")).unwrap();
    std::fs::create_dir_all(at("devices/virtual/infiniband/soft0/ports/1")).unwrap();
    std::fs::create_dir_all(at("class/infiniband")).unwrap();
    std::fs::create_dir_all(at("class/net")).unwrap();
    std::fs::write(at("devices/virtual/infiniband/soft0/parent"), "eth0\n").unwrap();
    let link = |target: &str, path: &str| std::os::unix::fs::symlink(target, at(path)).unwrap();
    link("../../devices/virtual/infiniband/soft0", "class/infiniband/soft0");
    link(&format!("../../{card}/net/eth0"), "class/net/eth0");
    link("../..", &format!("{card}/net/eth0/device"));
    let write = |path: &str, text: &str| std::fs::write(at(path), text).unwrap();
    write("devices/pci0000:00/0000:00:02.0/aer_rootport_total_err_cor", "3\n");
    write("devices/pci0000:00/0000:00:02.0/current_link_width", "63\n");
    write("devices/pci0000:00/0000:00:02.0/current_link_speed", "Unknown\n");
    write(&format!("{card}/aer_dev_correctable"), "RxErr 0\nBadTLP 2\ngarbled\nTOTAL_ERR_COR 2\n");
    dir
}

#[test]
fn a_software_device_has_the_path_of_its_netdev_and_root_port_totals_keep_their_names() {
    let dir = software_device();
    let seen = poll(&mut source_at(dir.path()), 0);
    assert_eq!(seen.len(), 2);
    let root_port = function(&seen, "0000:00:02.0");
    assert_eq!(root_port["aer"]["correctable"], json!({"aer_rootport_total_err_cor": 3}));
    assert_eq!((&root_port["width"], &root_port["speed_gts"]), (&Value::Null, &Value::Null));
    let card = function(&seen, "0000:01:00.0");
    assert_eq!(card["path"], json!(["0000:00:02.0", "0000:01:00.0"]));
    assert_eq!(card["aer"]["correctable"], json!({"RxErr": 0, "BadTLP": 2, "TOTAL_ERR_COR": 2}));
    let files = Arc::new(RootedFiles::new(dir.path()).unwrap());
    let mut sysfs = crate::source::sysfs::SysfsSource::new(crate::source::sysfs::SysfsOptions::new(files));
    let port = poll(&mut sysfs, 0).into_iter().find(|body| body["type"] == "port").unwrap();
    assert_eq!((&port["netdevs"], &port["netdev_pci"]), (&json!(["eth0"]), &json!("0000:01:00.0")));
}

#[test]
fn only_a_function_that_changed_is_said_again_totals_each_second_and_links_more_seldom() {
    let dir = software_device();
    let card = dir.path().join("devices/pci0000:00/0000:00:02.0/0000:01:00.0");
    let mut source = source_at(dir.path());
    poll(&mut source, 0);
    assert_eq!(source.due(), SECOND);
    assert!(poll(&mut source, SECOND).is_empty());
    std::fs::write(card.join("aer_dev_correctable"), "RxErr 0\nBadTLP 9\nTOTAL_ERR_COR 9\n").unwrap();
    std::fs::write(card.join("current_link_width"), "8\n").unwrap();
    let seen = poll(&mut source, 2 * SECOND);
    assert_eq!(seen.len(), 1);
    assert_eq!((&seen[0]["aer"]["correctable"]["BadTLP"], &seen[0]["width"]), (&json!(9), &Value::Null));
    assert_eq!(poll(&mut source, 10 * SECOND)[0]["width"], 8);
    assert!(poll(&mut source, 20 * SECOND).is_empty());
}

#[test]
fn of_an_excluded_device_no_function_is_observed() {
    let dir = case("20");
    let files = Arc::new(RootedFiles::new(dir.path().join("20/sys")).unwrap());
    let options = PcieOptions { wanted: Arc::new(|name| name != "mlx5_0"), ..PcieOptions::new(files) };
    let seen = poll(&mut PcieSource::new(options), 0);
    assert_eq!((seen.len(), &seen[0]["pci"]), (1, &json!("0000:07:00.0")));
}

#[test]
fn as_long_as_the_ports_are_the_same_links_are_read_from_files_that_stay_open() {
    let dir = case("20");
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(dir.path().join("20/sys")).unwrap()));
    let ports = PortMap::default();
    ports.set(vec![RdmaPort { device: "mlx5_0".to_owned(), port: 1, ..RdmaPort::default() }]);
    let mut source = PcieSource::new(PcieOptions { ports: Some(ports), ..PcieOptions::new(files.clone()) });
    assert_eq!(poll(&mut source, 0).len(), 2);
    let before = files.opened().len();
    let width =
        files.opened().into_iter().find(|path| path.contains("98:00.0") && path.ends_with("/current_link_width"));
    let width = dir.path().join("20/sys").join(width.expect("it was opened"));
    std::fs::write(width, "4\n").unwrap();
    let seen = poll(&mut source, 10 * SECOND);
    assert_eq!((seen.len(), &function(&seen, "0000:98:00.0")["width"]), (1, &json!(4)));
    assert_eq!(files.opened().len(), before);
}
