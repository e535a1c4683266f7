//! The source on whole trees: small ones made here, each with something odd; the cases of tests/cases in [`cases`].

mod cases;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use crate::source::files::RootedFiles;
use crate::source::files::faults::FaultyFiles;

const SECOND: Nanos = 1_000_000_000;

/// Unpacks one case of tests/cases.
pub(crate) fn case(number: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/fixtures.tar.gz");
    let tar = Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(dir.path()).arg(number).status().unwrap();
    assert!(tar.success());
    dir
}

/// Observations as JSON, with their type.
pub(crate) fn poll(source: &mut dyn Source, now: Nanos) -> Vec<Value> {
    let mut seen = Vec::new();
    source.poll(now, &mut |observation| {
        let mut body = match &observation.body {
            Body::Device(body) => serde_json::to_value(body).unwrap(),
            Body::Port(body) => serde_json::to_value(body).unwrap(),
            Body::Counters(body) => serde_json::to_value(body).unwrap(),
            Body::Bond(body) => serde_json::to_value(body).unwrap(),
            Body::Pcie(body) => serde_json::to_value(body).unwrap(),
            other => panic!("{} is none of this source's", other.type_name()),
        };
        assert_eq!(observation.t, now);
        body["type"] = observation.body.type_name().into();
        seen.push(body);
    });
    seen
}

fn source_at(root: impl Into<PathBuf>) -> SysfsSource {
    SysfsSource::new(SysfsOptions::new(Arc::new(RootedFiles::new(root).unwrap())))
}

/// The case with the faults of its FAULTS.tsv.
fn faulty(dir: &Path) -> Arc<FaultyFiles<RootedFiles>> {
    let files = FaultyFiles::new(RootedFiles::new(dir.join("sys")).unwrap());
    files.fail_as_in(&std::fs::read_to_string(dir.join("FAULTS.tsv")).unwrap());
    Arc::new(files)
}

fn of_type<'v>(seen: &'v [Value], kind: &str) -> Vec<&'v Value> {
    seen.iter().filter(|body| body["type"] == kind).collect()
}

fn device<'v>(seen: &'v [Value], name: &str) -> &'v Value {
    of_type(seen, "device").into_iter().find(|body| body["device"] == name).expect("the device is observed")
}

fn port<'v>(seen: &'v [Value], name: &str, number: u32) -> &'v Value {
    let found = of_type(seen, "port").into_iter().find(|body| body["device"] == name && body["port"] == number);
    found.expect("the port is observed")
}

fn counters<'v>(seen: &'v [Value], name: &str, number: u32, source: &str) -> &'v Value {
    let of = |body: &&Value| body["device"] == name && body["port"] == number && body["source"] == source;
    of_type(seen, "counters").into_iter().find(of).expect("the counters are observed")
}

fn count(object: &Value) -> usize {
    object.as_object().map_or(0, serde_json::Map::len)
}

#[test]
fn a_long_gid_table_is_not_read_to_its_end() {
    let (_dir, root) = node(1);
    let gids = port_dir(&root, "nic0").join("gids");
    std::fs::create_dir(&gids).unwrap();
    for index in 0..1024 {
        let used = matches!(index, 3 | 60);
        let gid =
            if used { "fe80:0000:0000:0000:0000:0000:0000:0001" } else { "0000:0000:0000:0000:0000:0000:0000:0000" };
        std::fs::write(gids.join(index.to_string()), gid).unwrap();
    }
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    let seen = poll(&mut SysfsSource::new(SysfsOptions::new(files.clone())), 0);
    let indices: Vec<_> = port(&seen, "nic0", 1)["gids"].as_array().unwrap().iter().map(|gid| &gid["index"]).collect();
    assert_eq!(indices, [3, 60]);
    assert_eq!(files.opened().iter().filter(|path| path.contains("/gids/")).count(), 61 + 64);
}

/// A node of `n` devices with one port each, four counters and two hw counters.
fn node(n: usize) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_owned();
    std::fs::create_dir_all(root.join("class/infiniband")).unwrap();
    for i in 0..n {
        add_device(&root, &format!("nic{i}"), i);
    }
    (dir, root)
}

fn port_dir(root: &Path, name: &str) -> PathBuf {
    root.join("class/infiniband").join(name).join("ports/1")
}

fn add_device(root: &Path, name: &str, i: usize) {
    let function = root.join(format!("devices/pci0000:00/0000:{i:02x}:00.0"));
    let device = function.join("infiniband").join(name);
    let port = device.join("ports/1");
    for set in ["counters", "hw_counters"] {
        std::fs::create_dir_all(port.join(set)).unwrap();
    }
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
    write(&device.join("node_guid"), &format!("0000:0000:0000:00{i:02x}\n"));
    std::os::unix::fs::symlink("../..", device.join("device")).unwrap();
    for (file, text) in [("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("rate", "100 Gb/sec (4X EDR)")] {
        write(&port.join(file), text);
    }
    write(&port.join("link_layer"), "Ethernet\n");
    for (file, value) in [("port_rcv_data", 10), ("port_xmit_data", 20), ("link_downed", 0), ("symbol_error", 0)] {
        write(&port.join("counters").join(file), &format!("{}\n", value + i));
    }
    for (file, value) in [("out_of_sequence", 5), ("np_cnp_sent", 6)] {
        write(&port.join("hw_counters").join(file), &format!("{}\n", value + i));
    }
    let target = format!("../../devices/pci0000:00/0000:{i:02x}:00.0/infiniband/{name}");
    std::os::unix::fs::symlink(target, root.join("class/infiniband").join(name)).unwrap();
}

#[test]
fn one_odd_file_never_costs_more_than_itself() {
    let (_clean, root) = node(5);
    let clean = poll(&mut source_at(&root), 0);
    let (_odd, root) = node(5);
    std::fs::write(port_dir(&root, "nic0").join("counters/link_downed"), "").unwrap();
    std::fs::write(port_dir(&root, "nic1").join("hw_counters/np_cnp_sent"), "?!\u{0}\n").unwrap();
    std::fs::remove_file(port_dir(&root, "nic2").join("counters/symbol_error")).unwrap();
    std::fs::create_dir(port_dir(&root, "nic2").join("counters/symbol_error")).unwrap();
    std::fs::remove_file(port_dir(&root, "nic3").join("rate")).unwrap();
    std::fs::remove_file(port_dir(&root, "nic4").join("link_layer")).unwrap();
    let mut expected = clean.clone();
    let mut lose = |name: &str, set: &str, counter: &str, reason: &str| {
        let of = |b: &&mut Value| b["type"] == "counters" && b["device"] == name && b["source"] == set;
        let body = expected.iter_mut().find(of).unwrap();
        body["values"].as_object_mut().unwrap().remove(counter).unwrap();
        body["unavailable"] = json!({ counter: reason });
    };
    lose("nic0", "counters", "link_downed", "empty file");
    lose("nic1", "hw_counters", "np_cnp_sent", "not a number: ?!");
    lose("nic2", "counters", "symbol_error", "EISDIR");
    for (name, field, unknown, note) in
        [("nic3", "rate_gbps", None, "rate: ENOENT"), ("nic4", "link_layer", Some("Unspecified"), "link_layer: ENOENT")]
    {
        let of = |b: &&mut Value| b["type"] == "port" && b["device"] == name;
        let body = expected.iter_mut().find(of).unwrap().as_object_mut().unwrap();
        body.remove(field);
        body.extend(unknown.map(|unknown| (field.to_owned(), json!(unknown))));
        if field == "rate_gbps" {
            body.remove("lanes");
        }
        body.insert("notes".to_owned(), json!([note]));
    }
    assert_eq!(poll(&mut source_at(&root), 0), expected);
}

#[test]
fn every_errno_costs_its_counter_alone_and_passes_with_its_cause() {
    for (errno, name) in [(22, "EINVAL"), (13, "EACCES"), (95, "EOPNOTSUPP"), (5, "EIO"), (19, "ENODEV"), (2, "ENOENT")]
    {
        for at_open in [false, true] {
            let (_dir, root) = node(1);
            let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
            files.fail("class/infiniband/nic0/ports/1/counters/link_downed", at_open, errno);
            let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
            let seen = poll(&mut source, 0);
            let set = counters(&seen, "nic0", 1, "counters");
            assert_eq!((count(&set["values"]), &set["unavailable"]), (3, &json!({"link_downed": name})), "{name}");
            files.heal();
            let seen = poll(&mut source, 10 * SECOND);
            // A handle that failed to read stays open: the kernel's next answer counts, the injected one never changes.
            if at_open {
                assert_eq!(count(&counters(&seen, "nic0", 1, "counters")["values"]), 4, "{name}");
            }
        }
    }
}

#[test]
fn only_what_changed_is_said_again_and_counters_each_time() {
    let (_dir, root) = node(2);
    let mut source = source_at(&root);
    poll(&mut source, 0);
    assert_eq!(source.due(), SECOND);
    let seen = poll(&mut source, SECOND);
    assert!(seen.iter().all(|body| body["type"] == "counters") && seen.len() == 4);
    std::fs::write(port_dir(&root, "nic1").join("state"), "1: DOWN\n").unwrap();
    std::fs::write(port_dir(&root, "nic1").join("counters/port_rcv_data"), "77\n").unwrap();
    let seen = poll(&mut source, 2 * SECOND);
    assert_eq!(of_type(&seen, "port").len(), 1);
    assert_eq!(port(&seen, "nic1", 1)["state"], "DOWN");
    assert_eq!(counters(&seen, "nic1", 1, "counters")["values"]["port_rcv_data"], 77);
    assert!(poll(&mut source, 20 * SECOND).iter().all(|body| body["type"] == "counters"), "nor at the slow look");
}

#[test]
fn a_rename_removes_the_old_name_then_says_the_new_one_and_a_device_that_vanishes_is_removed() {
    let (_dir, root) = node(2);
    let mut source = source_at(&root);
    poll(&mut source, 0);
    std::fs::remove_file(root.join("class/infiniband/nic0")).unwrap();
    std::fs::remove_dir_all(root.join("devices/pci0000:00/0000:00:00.0")).unwrap();
    add_device(&root, "renamed", 0);
    let seen = poll(&mut source, SECOND);
    let devices = of_type(&seen, "device");
    assert_eq!(devices.len(), 2);
    assert_eq!((&devices[1]["device"], &devices[1]["pci"]), (&json!("renamed"), &json!("0000:00:00.0")));
    assert_eq!(devices[1]["node_guid"], Value::Null, "a GUID of zeros counts as absent");
    let gone = json!({"type": "device", "device": "nic0", "pci": "0000:00:00.0", "removed": true});
    assert_eq!(devices[0], &gone);
    assert_eq!(of_type(&seen, "port").len(), 1);
    std::fs::remove_file(root.join("class/infiniband/nic1")).unwrap();
    std::fs::remove_file(root.join("class/infiniband/renamed")).unwrap();
    let seen = poll(&mut source, 2 * SECOND);
    assert!(seen.len() == 2 && seen.iter().all(|body| body["removed"] == true));
    assert_eq!(source.no_device(), Some(&NoDevice::NoDevice));
}

#[test]
fn devices_are_seen_to_go_and_to_come_also_when_their_directory_is_made_anew() {
    let (_dir, root) = node(1);
    let mut source = source_at(&root);
    (0..3).for_each(|s| _ = poll(&mut source, s * SECOND));
    // As when the kernel's module is unloaded and loaded again: the directory that is open is not the one at the path any more.
    let class = root.join("class/infiniband");
    std::fs::remove_dir_all(&class).unwrap();
    let seen = poll(&mut source, 3 * SECOND);
    assert_eq!((of_type(&seen, "device").len(), &device(&seen, "nic0")["removed"]), (1, &json!(true)));
    assert!(of_type(&poll(&mut source, 4 * SECOND), "device").is_empty());
    std::fs::remove_dir_all(root.join("devices/pci0000:00/0000:00:00.0")).unwrap();
    std::fs::create_dir(&class).unwrap();
    add_device(&root, "nic0", 0);
    assert_eq!(device(&poll(&mut source, 5 * SECOND), "nic0")["removed"], Value::Null);
    // A copied tree in which another directory was put there, while the old one is whole elsewhere.
    poll(&mut source, 6 * SECOND);
    std::fs::rename(&class, root.join("class/elsewhere")).unwrap();
    std::fs::create_dir(&class).unwrap();
    add_device(&root, "nic1", 1);
    let seen = poll(&mut source, 16 * SECOND);
    assert_eq!((&device(&seen, "nic0")["removed"], &device(&seen, "nic1")["removed"]), (&json!(true), &Value::Null));
}

#[test]
fn a_directory_that_cannot_be_listed_for_once_removes_no_device() {
    let (_dir, root) = node(1);
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    poll(&mut source, 0);
    files.fail("class/infiniband", true, 24);
    let seen = poll(&mut source, SECOND);
    assert_eq!((of_type(&seen, "device").len(), of_type(&seen, "counters").len()), (0, 2));
    assert_eq!(source.availability().missing[0].reason, "class/infiniband: EMFILE");
    files.heal();
    assert_eq!(poll(&mut source, 2 * SECOND).len(), 2);
    assert_eq!(source.availability().state, Seeing::Ok);
}

#[test]
fn where_no_descriptor_is_left_for_an_instant_a_port_stays_as_it_is() {
    let (_dir, root) = node(1);
    std::fs::write(port_dir(&root, "nic0").join("hw_counters/lifespan"), "10\n").unwrap();
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    poll(&mut source, 0);
    let counted =
        |seen: &[Value]| ["counters", "hw_counters"].map(|set| count(&counters(seen, "nic0", 1, set)["values"]));
    let port = "class/infiniband/nic0/ports/1";
    let no_descriptor = |paths: &[&str]| {
        for path in paths {
            files.fail(&format!("{port}{path}"), true, 24);
        }
    };
    no_descriptor(&["", "/state", "/counters", "/counters/link_downed", "/hw_counters", "/hw_counters/lifespan"]);
    files.fail("class/infiniband/nic0/ports", true, 24);
    files.fail("class/infiniband/nic0", true, 24);
    for second in [10, 70] {
        let seen = poll(&mut source, second * SECOND);
        assert_eq!((seen.len(), counted(&seen)), (2, [4, 2]), "at {second} s: nothing but the counters is said");
    }
    files.heal();
    let opened = files.opened().len();
    // A counter that comes while there is no descriptor left but the one of the list costs no other counter.
    std::fs::write(root.join(port).join("counters/new"), "1\n").unwrap();
    std::fs::write(root.join(port).join("hw_counters/new"), "1\n").unwrap();
    no_descriptor(&["/counters/link_downed", "/counters/new", "/hw_counters/new", "/hw_counters/lifespan"]);
    let seen = poll(&mut source, 80 * SECOND);
    assert_eq!(counted(&seen), [4, 2]);
    assert!(of_type(&seen, "port").is_empty(), "its cache has the age that it had: {seen:?}");
    assert_eq!(counters(&seen, "nic0", 1, "counters")["unavailable"], json!({"new": "EMFILE"}));
    files.heal();
    assert_eq!(counted(&poll(&mut source, 90 * SECOND)), [5, 3]);
    assert_eq!(files.opened().len(), opened + 2);
}

fn put_gids(root: &Path, n: usize) {
    let port = port_dir(root, "nic0");
    for dir in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
        std::fs::create_dir_all(port.join(dir)).unwrap();
    }
    for index in 0..n {
        std::fs::write(port.join(format!("gids/{index}")), format!("fe80::{}\n", index + 1)).unwrap();
        std::fs::write(port.join(format!("gid_attrs/types/{index}")), "RoCE v2\n").unwrap();
        std::fs::write(port.join(format!("gid_attrs/ndevs/{index}")), "eth0\n").unwrap();
    }
}

#[test]
fn a_gid_that_cannot_be_read_takes_none_away() {
    let (_dir, root) = node(1);
    put_gids(&root, 3);
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    let of = |file: &str| format!("class/infiniband/nic0/ports/1/{file}");
    let told = |seen: &[Value]| (port(seen, "nic0", 1)["gids"].clone(), port(seen, "nic0", 1)["notes"].clone());
    files.fail(&of("gids/0"), true, 24);
    let (none, notes) = told(&poll(&mut source, 0));
    assert_eq!((count(&none), notes), (0, json!(["gids: EMFILE"])), "that it is not known is said");
    files.heal();
    let (gids, notes) = told(&poll(&mut source, 10 * SECOND));
    assert_eq!((gids.as_array().unwrap().len(), &notes), (3, &Value::Null), "it is read as soon as it can be");
    for (second, file) in [(70, "gids/1"), (140, "gid_attrs/types/2"), (210, "gid_attrs/ndevs/0")] {
        files.fail(&of(file), true, 24);
        source.nudge(second * SECOND);
        assert_eq!(told(&poll(&mut source, second * SECOND)), (gids.clone(), json!(["gids: EMFILE"])), "{file}");
        files.heal();
        assert_eq!(told(&poll(&mut source, (second + 10) * SECOND)), (gids.clone(), Value::Null), "{file}");
    }
    // What cannot be read of a new one takes the others away as little.
    files.fail(&of("gid_attrs/types/2"), false, 5);
    std::fs::write(root.join(of("gids/2")), "fe80:0000:0000:0000:0000:0000:0000:0077\n").unwrap();
    source.nudge(240 * SECOND);
    let (new, notes) = told(&poll(&mut source, 240 * SECOND));
    assert_eq!((new.as_array().unwrap().len(), &new[2]["type"], notes), (3, &Value::Null, json!(["gids: EIO"])));
    files.heal();
    put_gids(&root, 3);
    source.nudge(260 * SECOND);
    poll(&mut source, 260 * SECOND);
    // A device that is opened anew meanwhile has those it had.
    files.fail(&of("gids/1"), true, 24);
    std::fs::create_dir_all(root.join("class/infiniband/nic0/ports/2")).unwrap();
    let seen = poll(&mut source, 280 * SECOND);
    assert_eq!(told(&seen), (gids.clone(), json!(["gids: EMFILE"])));
    files.heal();
    // EINVAL is how the kernel says that a slot is empty.
    files.fail(&of("gids/1"), false, 22);
    let (left, notes) = told(&poll(&mut source, 360 * SECOND));
    assert_eq!((left, notes), (json!([gids[0], gids[2]]), Value::Null));
}

#[test]
fn device_wide_counters_outlive_an_instant_without_a_descriptor() {
    let (_dir, root) = node(1);
    let own = root.join("class/infiniband/nic0/hw_counters");
    std::fs::create_dir(&own).unwrap();
    std::fs::write(own.join("rx_pkts"), "7\n").unwrap();
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    files.fail("class/infiniband/nic0/hw_counters", true, 24);
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    let of_device = |seen: &[Value]| {
        let all: Vec<_> = of_type(seen, "counters").into_iter().filter(|body| body["port"] == Value::Null).collect();
        all.first().map(|body| (body["values"].clone(), body["unavailable"].clone()))
    };
    let none = (json!({}), json!({"*": "EMFILE"}));
    let first = of_device(&poll(&mut source, 0)).expect("it is said");
    assert_eq!((count(&first.0), first.1), (0, none.1));
    files.heal();
    assert_eq!(of_device(&poll(&mut source, 10 * SECOND)), Some((json!({"rx_pkts": 7}), Value::Null)));
    assert_eq!(source.availability().state, Seeing::Ok);
    // Where there are none, that is found out as well.
    std::fs::remove_dir_all(&own).unwrap();
    std::fs::create_dir(&own).unwrap();
    files.fail("class/infiniband/nic0/hw_counters", true, 24);
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    poll(&mut source, 0);
    files.heal();
    std::fs::remove_dir(&own).unwrap();
    assert_eq!(of_device(&poll(&mut source, 10 * SECOND)), None);
    assert_eq!(source.availability().missing, []);
}

#[test]
fn two_devices_that_swap_their_names_are_removed_before_they_are_said() {
    let (_dir, root) = node(2);
    let mut source = source_at(&root);
    poll(&mut source, 0);
    // Moved aside: of what is removed the inodes would be given again, which sysfs never does.
    for name in ["nic0", "nic1"] {
        std::fs::rename(root.join("class/infiniband").join(name), root.join(format!("old-{name}"))).unwrap();
    }
    std::fs::rename(root.join("devices"), root.join("old")).unwrap();
    add_device(&root, "nic1", 0);
    add_device(&root, "nic0", 1);
    let seen = poll(&mut source, SECOND);
    let devices: Vec<_> = of_type(&seen, "device").iter().map(|d| (d["pci"].clone(), d["removed"] == true)).collect();
    let (first, second) = (json!("0000:00:00.0"), json!("0000:01:00.0"));
    assert_eq!(devices, [(first.clone(), true), (second.clone(), true), (second, false), (first, false)]);
}

#[test]
fn after_a_nudge_the_gid_tables_are_read_again_but_at_most_once_a_second() {
    let (_dir, root) = node(1);
    let gids = port_dir(&root, "nic0").join("gids");
    std::fs::create_dir(&gids).unwrap();
    let set =
        |last: &str| std::fs::write(gids.join("0"), format!("fe80:0000:0000:0000:0000:0000:0000:{last}\n")).unwrap();
    set("0001");
    let mut source = source_at(&root);
    let told = |seen: &[serde_json::Value]| port(seen, "nic0", 1)["gids"][0]["gid"].to_string();
    poll(&mut source, SECOND);
    set("0002");
    source.nudge(SECOND + SHORTEST_PERIOD_NS);
    let soon = poll(&mut source, SECOND + SHORTEST_PERIOD_NS);
    assert!(told(&soon).ends_with("0001\""), "{soon:?}");
    let later = poll(&mut source, 2 * SECOND);
    assert!(told(&later).ends_with("0002\""), "{later:?}");
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    poll(&mut source, SECOND);
    let before = files.opened().len();
    poll(&mut source, 3 * SECOND);
    assert_eq!(files.opened().len(), before, "without a nudge nothing is opened");
}

#[test]
fn a_nudge_brings_the_next_poll_forward_but_not_below_the_shortest_period() {
    let (_dir, root) = node(1);
    let mut source = source_at(&root);
    poll(&mut source, SECOND);
    source.nudge(SECOND + 1);
    assert_eq!(source.due(), SECOND + SHORTEST_PERIOD_NS);
    source.nudge(SECOND + 5 * SHORTEST_PERIOD_NS);
    assert_eq!(source.due(), SECOND + SHORTEST_PERIOD_NS);
}

#[test]
fn a_device_made_anew_under_its_name_is_opened_anew() {
    let (_dir, root) = node(1);
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    poll(&mut source, 0);
    let before = files.opened().len();
    poll(&mut source, SECOND);
    assert_eq!(files.opened().len(), before, "a tick opens nothing");
    // The old files stay open and would go on to answer; the link is another one.
    std::fs::remove_file(root.join("class/infiniband/nic0")).unwrap();
    std::fs::rename(root.join("devices/pci0000:00/0000:00:00.0"), root.join("devices/old")).unwrap();
    add_device(&root, "nic0", 0);
    std::fs::write(port_dir(&root, "nic0").join("counters/port_rcv_data"), "3\n").unwrap();
    let seen = poll(&mut source, 10 * SECOND);
    assert_eq!(counters(&seen, "nic0", 1, "counters")["values"]["port_rcv_data"], 3);
    assert!(of_type(&seen, "device").is_empty() && of_type(&seen, "port").is_empty(), "nothing else changed");
}

#[test]
fn a_look_at_what_seldom_changes_opens_nothing_where_nothing_changed_and_a_replaced_file_anew() {
    let (_dir, root) = node(2);
    std::fs::write(port_dir(&root, "nic0").join("hw_counters/lifespan"), "10\n").unwrap();
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    poll(&mut source, 0);
    let before = files.opened().len();
    let device = root.join("class/infiniband/nic0");
    std::fs::write(device.join("node_guid"), "0000:0000:0000:0077\n").unwrap();
    let seen = poll(&mut source, 10 * SECOND);
    assert_eq!(device_guid(&seen), json!("0000:0000:0000:0077"));
    assert!(poll(&mut source, 70 * SECOND).iter().all(|body| body["type"] == "counters"));
    assert_eq!(files.opened().len(), before);
    std::fs::write(device.join("new"), "1: DOWN\n").unwrap();
    std::fs::rename(device.join("new"), device.join("ports/1/state")).unwrap();
    assert!(of_type(&poll(&mut source, 71 * SECOND), "port").is_empty(), "the old file is open still");
    assert_eq!(port(&poll(&mut source, 80 * SECOND), "nic0", 1)["state"], "DOWN");
    assert_eq!(files.opened().len(), before + 1);
}

#[test]
fn the_list_of_counters_is_looked_at_seldom_once_it_was_seen_to_stay_as_it_is() {
    let (_dir, root) = node(1);
    let set = port_dir(&root, "nic0").join("counters");
    let mut source = source_at(&root);
    let mut known = |s: u64| count(&counters(&poll(&mut source, s * SECOND), "nic0", 1, "counters")["values"]);
    assert_eq!(known(0), 4);
    // The driver was not through with the port yet.
    std::fs::write(set.join("later"), "1\n").unwrap();
    assert_eq!([known(9), known(10)], [4, 5]);
    (20..=60).step_by(10).for_each(|s| assert_eq!(known(s), 5));
    std::fs::write(set.join("much_later"), "1\n").unwrap();
    assert_eq!([known(70), known(110), known(120)], [5, 5, 6]);
}

#[test]
fn a_lifespan_that_is_no_number_is_noted_until_it_is_one() {
    let (_dir, root) = node(1);
    let lifespan = port_dir(&root, "nic0").join("hw_counters/lifespan");
    std::fs::write(&lifespan, "soon\n").unwrap();
    let mut source = SysfsSource::new(SysfsOptions::new(Arc::new(RootedFiles::new(&root).unwrap())));
    let seen = poll(&mut source, 0);
    let said = port(&seen, "nic0", 1);
    assert!(said["notes"].to_string().contains("reads \\\"soon\\\""), "{said}");
    std::fs::write(&lifespan, "10\n").unwrap();
    let seen = poll(&mut source, 10 * SECOND);
    let said = port(&seen, "nic0", 1);
    assert_eq!((&said["lifespan_ms"], said["notes"].as_array().map_or(0, Vec::len)), (&json!(10), 0), "{said}");
}

fn device_guid(seen: &[Value]) -> Value {
    device(seen, "nic0")["node_guid"].clone()
}

#[test]
fn files_of_a_device_that_is_gone_are_opened_anew_at_once() {
    let (_dir, root) = node(1);
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    std::fs::write(port_dir(&root, "nic0").join("hw_counters/lifespan"), "10\n").unwrap();
    files.fail("class/infiniband/nic0/ports/1/counters/link_downed", false, 19);
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    let seen = poll(&mut source, 0);
    assert_eq!(count(&counters(&seen, "nic0", 1, "hw_counters")["values"]), 2, "nor does it cost the other set");
    files.heal();
    // The second opening within ten seconds is left out: a device that stays broken is not opened at each tick.
    assert_eq!(count(&counters(&poll(&mut source, SECOND), "nic0", 1, "counters")["values"]), 3);
    assert_eq!(count(&counters(&poll(&mut source, 10 * SECOND), "nic0", 1, "counters")["values"]), 4);
}

#[test]
fn of_an_excluded_device_nothing_is_opened_and_hw_counters_can_be_left_to_others() {
    let (_dir, root) = node(3);
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    let options = SysfsOptions {
        wanted: Arc::new(|name| name != "nic1"),
        skip_hw_counters: Arc::new(|name| name == "nic2"),
        ..SysfsOptions::new(files.clone())
    };
    let mut source = SysfsSource::new(options);
    let seen = poll(&mut source, 0);
    assert!(files.opened().iter().all(|path| !path.contains("nic1") && !path.contains("0000:01:00.0")));
    assert_eq!(of_type(&seen, "device").len(), 2);
    let hw: Vec<_> = of_type(&seen, "counters").into_iter().filter(|body| body["source"] == "hw_counters").collect();
    assert_eq!((hw.len(), &hw[0]["device"]), (1, &json!("nic0")));
    assert_eq!(source.availability().state, Seeing::Ok);
}

#[test]
fn netdevs_of_two_ports_are_told_apart_by_dev_port_and_their_bond_is_found() {
    let (_dir, root) = node(1);
    let device = root.join("devices/pci0000:00/0000:00:00.0");
    std::fs::create_dir_all(device.join("infiniband/nic0/ports/2")).unwrap();
    std::fs::create_dir_all(root.join("devices/virtual/net/bond0/bonding")).unwrap();
    std::fs::create_dir_all(root.join("class/net")).unwrap();
    let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, root.join(at)).unwrap();
    link("../../devices/virtual/net/bond0", "class/net/bond0");
    for (name, dev_port) in [("eth0", "0"), ("eth1", "1"), ("eth2", "0")] {
        std::fs::create_dir_all(device.join("net").join(name)).unwrap();
        std::fs::write(device.join("net").join(name).join("dev_port"), dev_port).unwrap();
        link(&format!("../../devices/pci0000:00/0000:00:00.0/net/{name}"), &format!("class/net/{name}"));
    }
    std::fs::write(device.join("net/eth2/phys_port_name"), "pf0vf3").unwrap();
    std::fs::write(device.join("net/eth1/carrier"), "1\n").unwrap();
    link("../../../../virtual/net/bond0", "devices/pci0000:00/0000:00:00.0/net/eth1/master");
    let bonding = root.join("devices/virtual/net/bond0/bonding");
    for (file, text) in [("mode", "active-backup 1\n"), ("active_slave", "eth1\n"), ("slaves", "eth0 eth1\n")] {
        std::fs::write(bonding.join(file), text).unwrap();
    }
    let mut source = source_at(&root);
    let seen = poll(&mut source, 0);
    assert_eq!((&port(&seen, "nic0", 1)["netdevs"], &port(&seen, "nic0", 1)["bond"]), (&json!(["eth0"]), &Value::Null));
    assert_eq!(
        (&port(&seen, "nic0", 2)["netdevs"], &port(&seen, "nic0", 2)["bond"]),
        (&json!(["eth1"]), &json!("bond0"))
    );
    let slaves = json!([{"netdev": "eth0", "up": false}, {"netdev": "eth1", "up": true}]);
    let bond = json!({"type": "bond", "bond": "bond0", "mode": "active-backup", "active": "eth1", "slaves": slaves});
    assert_eq!(of_type(&seen, "bond"), [&bond]);
    assert!(of_type(&poll(&mut source, SECOND), "bond").is_empty());
    std::fs::write(bonding.join("active_slave"), "eth0\n").unwrap();
    assert_eq!(of_type(&poll(&mut source, 2 * SECOND), "bond")[0]["active"], "eth0");
}

#[test]
fn the_bond_below_a_software_device_is_its_ports_bond() {
    let (_dir, root) = node(0);
    let device = root.join("class/infiniband/rxe0");
    std::fs::create_dir_all(device.join("ports/1")).unwrap();
    std::fs::write(device.join("parent"), "bond0\n").unwrap();
    let bond = root.join("class/net/bond0/bonding");
    std::fs::create_dir_all(&bond).unwrap();
    for (file, text) in [("mode", "active-backup 1\n"), ("active_slave", "eth1\n"), ("slaves", "eth1\n")] {
        std::fs::write(bond.join(file), text).unwrap();
    }
    let options = SysfsOptions::new(Arc::new(RootedFiles::new(&root).unwrap()));
    let ports = options.ports.clone();
    let seen = poll(&mut SysfsSource::new(options), 0);
    assert_eq!(
        (&port(&seen, "rxe0", 1)["netdevs"], &port(&seen, "rxe0", 1)["bond"]),
        (&json!(["bond0"]), &json!("bond0"))
    );
    assert_eq!(of_type(&seen, "bond")[0]["active"], "eth1");
    // The sources of what lies beside the ports are told the same.
    let told = &ports.now()[0];
    assert_eq!((&*told.device, told.port, &told.netdevs[..]), ("rxe0", 1, &["bond0".to_owned()][..]));
    assert_eq!(told.bond.as_deref(), Some("bond0"));
}

#[test]
fn a_carrier_that_cannot_be_read_takes_no_slave_down() {
    let (_dir, root) = node(0);
    let device = root.join("class/infiniband/rxe0");
    std::fs::create_dir_all(device.join("ports/1")).unwrap();
    std::fs::write(device.join("parent"), "bond0\n").unwrap();
    let bond = root.join("class/net/bond0/bonding");
    std::fs::create_dir_all(&bond).unwrap();
    std::fs::create_dir_all(root.join("class/net/eth1")).unwrap();
    for (file, text) in [("mode", "active-backup 1\n"), ("active_slave", "eth1\n"), ("slaves", "eth1\n")] {
        std::fs::write(bond.join(file), text).unwrap();
    }
    std::fs::write(root.join("class/net/eth1/carrier"), "1\n").unwrap();
    let files = Arc::new(FaultyFiles::new(RootedFiles::new(&root).unwrap()));
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    files.fail("class/net/eth1/carrier", true, 24);
    assert!(of_type(&poll(&mut source, 0), "bond").is_empty(), "what is not known is not said");
    files.heal();
    assert_eq!(of_type(&poll(&mut source, SECOND), "bond")[0]["slaves"], json!([{"netdev": "eth1", "up": true}]));
    for (second, file) in [(2, "eth1/carrier"), (4, "bond0/bonding/mode"), (6, "bond0/bonding/slaves")] {
        files.fail(&format!("class/net/{file}"), true, 24);
        assert!(of_type(&poll(&mut source, second * SECOND), "bond").is_empty(), "{file}");
        files.heal();
        assert!(of_type(&poll(&mut source, (second + 1) * SECOND), "bond").is_empty(), "{file}");
    }
    files.fail("class/net/eth1/carrier", false, 22);
    assert_eq!(of_type(&poll(&mut source, 8 * SECOND), "bond")[0]["slaves"][0]["up"], false, "it is set down");
}

#[test]
fn bonds_that_another_source_says_are_left_to_it_until_it_fails() {
    let (_dir, root) = node(0);
    let device = root.join("class/infiniband/rxe0");
    std::fs::create_dir_all(device.join("ports/1")).unwrap();
    std::fs::write(device.join("parent"), "bond0\n").unwrap();
    std::fs::create_dir_all(root.join("class/net/bond0/bonding")).unwrap();
    std::fs::write(root.join("class/net/bond0/bonding/mode"), "802.3ad 4\n").unwrap();
    let other = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let says = Arc::clone(&other);
    let skip_bonds = Arc::new(move || says.load(std::sync::atomic::Ordering::Relaxed));
    let files = Arc::new(RootedFiles::new(&root).unwrap());
    let mut source = SysfsSource::new(SysfsOptions { skip_bonds, ..SysfsOptions::new(files) });
    assert!(of_type(&poll(&mut source, 0), "bond").is_empty());
    other.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(of_type(&poll(&mut source, SECOND), "bond")[0]["mode"], "802.3ad");
}
