//! One odd file never costs more than itself: each file of a device is made odd in each way, and the whole output is
//! compared, field by field, with that of the whole tree.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::Path;

use end_to_end::binary::Run;
use end_to_end::fixture::Case;
use serde_json::Value;

/// A way to be odd.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Odd {
    Empty,
    Garbage,
    NotText,
    Negative,
    Endless,
    Missing,
    Directory,
    DanglingLink,
    LinkToItself,
}

const WAYS: [Odd; 9] = [
    Odd::Empty,
    Odd::Garbage,
    Odd::NotText,
    Odd::Negative,
    Odd::Endless,
    Odd::Missing,
    Odd::Directory,
    Odd::DanglingLink,
    Odd::LinkToItself,
];

impl Odd {
    /// Puts the odd thing where a file was.
    fn put(self, path: &Path) {
        std::fs::remove_file(path).expect("the file was there");
        match self {
            Self::Empty => std::fs::write(path, ""),
            Self::Garbage => std::fs::write(path, "]]} not a number\n\n"),
            Self::NotText => std::fs::write(path, [0xff, 0x00, 0xfe, 0x0a]),
            Self::Negative => std::fs::write(path, "-17\n"),
            Self::Endless => std::fs::write(path, "9".repeat(1 << 20)),
            Self::Missing => Ok(()),
            Self::Directory => std::fs::create_dir(path),
            Self::DanglingLink => symlink("nowhere", path),
            Self::LinkToItself => symlink(path.file_name().expect("a file has a name"), path),
        }
        .expect("the odd thing can be made");
    }

    /// Takes it away again.
    fn take_away(self, path: &Path) {
        match self {
            Self::Missing => Ok(()),
            Self::Directory => std::fs::remove_dir(path),
            _ => std::fs::remove_file(path),
        }
        .expect("the odd thing can be taken away");
    }
}

/// A file below `class/infiniband/DEVICE`, the fields of its own port that speak of it, and those of the node that do.
struct Target {
    device: &'static str,
    port: u32,
    file: &'static str,
    own: &'static [&'static str],
    node: &'static [&'static str],
}

/// Of a counter: its value and why there is none. A number may be odd enough to change what is known of it.
const COUNTER: &[&str] =
    &["value", "unavailable", "unit", "meaning", "saturated", "source", "name", "delta", "rate", "of", "of_qps"];

#[rustfmt::skip]
const TARGETS: &[Target] = &[
    Target { device: "hfi1_0", port: 1, file: "counters/symbol_error", own: COUNTER, node: &[] },
    Target { device: "mlx4_0", port: 1, file: "counters/symbol_error", own: COUNTER, node: &[] },
    Target { device: "mlx4_0", port: 2, file: "counters/link_downed", own: COUNTER, node: &[] },
    Target { device: "mlx5_0", port: 1, file: "hw_counters/duplicate_request", own: COUNTER, node: &[] },
    Target { device: "mlx5_0", port: 1, file: "hw_counters/lifespan", own: &["lifespan_s", "notes"], node: &[] },
    Target { device: "mlx4_0", port: 2, file: "rate", own: &["rate_gbps", "lanes"], node: &["capacity_gbps"] },
    Target { device: "mlx5_0", port: 1, file: "rate", own: &["rate_gbps", "lanes"], node: &["capacity_gbps"] },
    Target { device: "hfi1_0", port: 1, file: "link_layer", own: &["link_layer"], node: &[] },
    Target { device: "mlx5_0", port: 1, file: "link_layer", own: &["link_layer"], node: &[] },
    Target { device: "mlx4_0", port: 1, file: "phys_state", own: &["phys_state"], node: &[] },
    Target { device: "mlx4_0", port: 1, file: "state", own: &["state"], node: &["capacity_gbps"] },
    Target { device: "mlx5_0", port: 1, file: "../../board_id", own: &["model"], node: &[] },
    Target { device: "mlx5_0", port: 1, file: "../../node_guid", own: &["node_guid"], node: &[] },
    Target { device: "mlx4_0", port: 1, file: "../../fw_ver", own: &[], node: &[] },
];

/// Every value of the output under a name that does not change with its place: `hfi1_0/1 counters symbol_error value`.
fn fields(report: &Value) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::new();
    let mut put = |name: String, value: &Value| {
        assert!(fields.insert(name.clone(), value.clone()).is_none(), "{name} twice");
    };
    for (key, value) in report["node"].as_object().expect("a node") {
        put(format!("node {key}"), value);
    }
    for port in report["ports"].as_array().expect("ports") {
        let name = format!("{}/{}", port["device"].as_str().expect("a device"), port["port"]);
        for (key, value) in port.as_object().expect("a port") {
            if key != "counters" {
                put(format!("{name} {key}"), value);
            }
        }
        for counter in port["counters"].as_array().expect("counters") {
            let text = |key: &str| counter[key].as_str().unwrap_or_default().to_owned();
            for (key, value) in counter.as_object().expect("a counter") {
                put(format!("{name} {}/{} {key}", text("source"), text("name")), value);
            }
        }
    }
    fields
}

fn ports(root: &Path) -> Value {
    let args = ["ports", "--json", "--sysfs-root"].map(Path::new);
    let run = Run::of(args.into_iter().chain([root]));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    run.json()
}

#[test]
fn an_odd_file_changes_nothing_but_what_it_says_itself() {
    let case = Case::unpack("03");
    let root = case.at("sys");
    let report = ports(&root);
    let (whole, whole_notes) = (fields(&report), report["notes"].to_string());
    assert!(whole.len() > 300, "four ports with their counters");
    let mut changes_seen = BTreeSet::new();
    for target in TARGETS {
        let name = format!("{}/{}", target.device, target.port);
        let port = root.join(format!("class/infiniband/{}/ports/{}", target.device, target.port));
        let path = port.join(target.file);
        let before = std::fs::read(&path).unwrap_or_else(|error| panic!("{name} {}: {error}", target.file));
        for odd in WAYS {
            odd.put(&path);
            let report = ports(&root);
            odd.take_away(&path);
            std::fs::write(&path, &before).expect("the file can be put back");
            let now = fields(&report);
            let mut allowed: BTreeSet<String> = target.node.iter().map(|key| format!("node {key}")).collect();
            let prefix =
                if std::ptr::eq(target.own, COUNTER) { format!("{name} {} ", target.file) } else { format!("{name} ") };
            allowed.extend(target.own.iter().map(|key| format!("{prefix}{key}")));
            allowed.insert(format!("{name} notes"));
            for key in whole.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
                if whole.get(key) != now.get(key) {
                    // The state of a port and the notes on it are the only things two devices could share by mistake.
                    assert!(
                        allowed.contains(key) || is_of_sibling_port(target, key),
                        "{odd:?} {name} {}: {key} was {:?} and is {:?}",
                        target.file,
                        whole.get(key),
                        now.get(key)
                    );
                    changes_seen.insert(format!("{name} {}", target.file));
                }
            }
            let notes = report["notes"].to_string();
            for other in ["hfi1_0", "mlx4_0", "mlx5_0"].iter().filter(|other| **other != target.device) {
                let mentions = |report: &str| report.matches(other).count();
                assert_eq!(mentions(&notes), mentions(&whole_notes), "{odd:?} {name} {}: {notes}", target.file);
            }
        }
    }
    // The comparison sees a change where the output speaks of the file.
    for target in TARGETS.iter().filter(|target| !target.own.is_empty()) {
        let file = format!("{}/{} {}", target.device, target.port, target.file);
        assert!(changes_seen.contains(&file), "{file} never made a difference");
    }
    assert_eq!(fields(&ports(&root)), whole, "everything was put back");
}

/// What a device's own file says stands on each of its ports.
fn is_of_sibling_port(target: &Target, key: &str) -> bool {
    target.file.starts_with("../")
        && target.own.iter().any(|own| key.starts_with(&format!("{}/", target.device)) && key.ends_with(own))
}

#[test]
fn a_directory_that_is_a_file_costs_the_directory_alone() {
    let case = Case::unpack("03");
    let root = case.at("sys");
    let whole = fields(&ports(&root));
    for (device, directory) in [("mlx5_0", "ports/1/hw_counters"), ("mlx4_0", "ports/2/counters")] {
        let path = root.join("class/infiniband").join(device).join(directory);
        let aside = root.join("aside");
        std::fs::rename(&path, &aside).expect("the directory can be set aside");
        std::fs::write(&path, "7").expect("a file can stand in its place");
        let now = fields(&ports(&root));
        std::fs::remove_file(&path).expect("the file is there");
        std::fs::rename(&aside, &path).expect("the directory can be put back");
        let (port, set) = directory.trim_start_matches("ports/").split_once('/').expect("a port and a set");
        let of_set = |key: &str| key.starts_with(&format!("{device}/{port} {set}/"));
        let totals = ["tx_bytes", "rx_bytes", "notes", "lifespan_s"].map(|key| format!("{device}/{port} {key}"));
        for key in whole.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
            let same = whole.get(key) == now.get(key);
            assert!(same || of_set(key) || totals.contains(key), "{device} {directory}: {key}");
        }
        let reason = &now[&format!("{device}/{port} {set}/* unavailable")];
        assert_eq!(reason, "ENOTDIR", "{device} {directory}");
    }
}

#[test]
fn what_is_no_device_and_no_port_is_passed_over() {
    let case = Case::unpack("03");
    let root = case.at("sys");
    let whole = ports(&root);
    std::fs::write(root.join("class/infiniband/bonding_masters"), "x").expect("a file can be put beside the devices");
    std::fs::write(root.join("class/infiniband/mlx5_0/ports/3"), "x").expect("a file can be put beside the ports");
    std::fs::create_dir(root.join("class/infiniband/mlx5_0/ports/lost+found")).expect("so can a directory");
    let now = ports(&root);
    assert_eq!(now["node"], whole["node"]);
    let names = |report: &Value| fields(report).into_keys().collect::<BTreeSet<_>>();
    let more: Vec<String> = names(&now).difference(&names(&whole)).cloned().collect();
    assert_eq!(more, [""; 0]);
    assert!(fields(&now) == fields(&whole), "a value differs");
}
