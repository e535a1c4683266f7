//! The shapes of the JSON outputs: keys and types, not values. A change here changes what other programs read.

use std::collections::BTreeMap;
use std::path::Path;

use end_to_end::binary::Run;
use end_to_end::fixture::Case;
use serde_json::{Value, json};

/// The type of every path of a document, lists by the union of their elements.
fn shape(document: &Value) -> String {
    let mut paths: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    walk(document, "", &mut paths);
    let lines = paths.into_iter().map(|(path, mut types)| {
        types.sort_unstable();
        types.dedup();
        format!("{path}: {}\n", types.join(" | "))
    });
    lines.collect()
}

fn walk(value: &Value, path: &str, paths: &mut BTreeMap<String, Vec<&'static str>>) {
    let (kind, inner): (_, Vec<(String, &Value)>) = match value {
        Value::Null => ("null", vec![]),
        Value::Bool(_) => ("bool", vec![]),
        Value::Number(_) => ("number", vec![]),
        Value::String(_) => ("text", vec![]),
        Value::Array(list) => ("list", list.iter().map(|value| (format!("{path}[]"), value)).collect()),
        Value::Object(map) => ("object", map.iter().map(|(key, value)| (format!("{path}.{key}"), value)).collect()),
    };
    paths.entry(if path.is_empty() { "." } else { path }.to_owned()).or_default().push(kind);
    for (path, value) in inner {
        walk(value, &path, paths);
    }
}

/// A recording with something of everything the tables show.
const RICH: &str = r#"{"type":"header","format":"rdmascope-recording","version":1,"host":"node1","unix_ns":1790000000000000000,"mono_ns":0}
{"t":0,"type":"source","source":"nldev","state":"ok"}
{"t":0,"type":"source","source":"probes","state":"partial","reason":"poll_cq: not attached"}
{"t":0,"type":"device","device":"mlx5_0","driver":"mlx5_core","node_guid":"0000:0000:0000:0001","pci":"0000:3b:00.0"}
{"t":0,"type":"port","device":"mlx5_0","port":1,"link_layer":"InfiniBand","state":"ACTIVE","phys_state":"LinkUp","rate_gbps":100,"netdevs":["ib0"]}
{"t":0,"type":"pcie","pci":"0000:3b:00.0","path":["0000:3a:00.0","0000:3b:00.0"],"speed_gts":8.0,"width":8,"max_speed_gts":16.0,"max_width":16,"aer":{"correctable":{"BadTLP":0},"nonfatal":{},"fatal":{}}}
{"t":0,"type":"counters","device":"mlx5_0","port":1,"source":"counters","values":{"port_xmit_data":1,"symbol_error":0},"unavailable":{"port_rcv_data":"EINVAL"}}
{"t":0,"type":"qp","device":"mlx5_0","qpn":17,"port":1,"event":"create","qp_type":"RC","to":"INIT","pid":42,"comm":"train","container":"c1"}
{"t":500000000,"type":"qp","device":"mlx5_0","qpn":17,"port":1,"event":"modify","from":"INIT","to":"RTS","remote_qpn":18,"remote_gid":"fe80::1"}
{"t":1000000000,"type":"qp_stats","device":"mlx5_0","qpn":17,"posts":1,"wrs":1,"bytes":4096,"size_log2":[0,0,0,0,0,0,0,0,0,0,0,0,1],"completions":1,"errors":{}}
{"t":1000000000,"type":"counters","device":"mlx5_0","port":1,"source":"counters","values":{"port_xmit_data":2000,"symbol_error":0},"unavailable":{"port_rcv_data":"EINVAL"}}
{"t":2000000000,"type":"qp_stats","device":"mlx5_0","qpn":17,"posts":3,"wrs":3,"bytes":12288,"size_log2":[0,0,0,0,0,0,0,0,0,0,0,0,3],"completions":3,"errors":{}}
{"t":2000000000,"type":"counters","device":"mlx5_0","port":1,"source":"qp","qp_type":"RC","set":4,"qpns":[17],"values":{"out_of_sequence":3}}
{"t":3000000000,"type":"port","device":"mlx5_0","port":1,"link_layer":"InfiniBand","state":"DOWN","phys_state":"Polling","rate_gbps":100,"netdevs":["ib0"]}
{"t":5000000000,"type":"qp","device":"mlx5_0","qpn":19,"event":"seen","qp_type":"GSI","to":"RTS"}
"#;

#[test]
fn the_tables_keep_their_keys_and_types() {
    let case = Case::unpack("21");
    let recording = case.at("rich.jsonl");
    std::fs::write(&recording, RICH).expect("a recording can be written");
    for command in ["qps", "findings", "failovers", "check"] {
        let run = Run::of([Path::new(command), Path::new("--json"), Path::new("--recording"), &recording]);
        assert_eq!(run.stderr, "", "{command}");
        let mut report = run.json();
        if command == "check" {
            // As in `ports`, which has a snapshot of its own.
            assert!(report["ports"].as_array().is_some_and(|ports| ports.len() == 1), "{report}");
            report["ports"] = json!([]);
        }
        insta::assert_snapshot!(command, shape(&report));
    }
    // Ports of a recording and of trees, so that everything is there once.
    let imported = |case: &Case| {
        let recording = case.at("r.jsonl");
        assert_eq!(Run::of([Path::new("import"), &case.path(), Path::new("-o"), &recording]).code, Some(0));
        recording
    };
    let (with_vfs, with_reset) = (Case::unpack("55"), Case::unpack("23"));
    let with_gids = Case::unpack("21");
    let ports =
        |source: [&Path; 2]| Run::of([Path::new("ports"), Path::new("--json")].into_iter().chain(source)).json();
    let seen = json!([
        ports([Path::new("--recording"), &recording]),
        ports([Path::new("--recording"), &imported(&with_vfs)]),
        ports([Path::new("--recording"), &imported(&with_reset)]),
        ports([Path::new("--sysfs-root"), &with_gids.at("sys")]),
    ]);
    insta::assert_snapshot!("ports", shape(&seen));
}

/// A port with congestion control parameters.
const CONGESTION: &str = r#"{"type":"header","format":"rdmascope-recording","version":1}
{"t":0,"type":"device","device":"mlx5_0","driver":"mlx5_core"}
{"t":0,"type":"port","device":"mlx5_0","port":1,"link_layer":"Ethernet","state":"ACTIVE","rate_gbps":400}
{"t":1,"type":"congestion_config","device":"mlx5_0","port":1,"np":{"min_time_between_cnps":4},"rp":{"rpg_time_reset":300}}
"#;

#[test]
fn whatif_keeps_its_keys_and_types() {
    let case = Case::unpack("21");
    let recording = case.at("congestion.jsonl");
    std::fs::write(&recording, CONGESTION).expect("a recording can be written");
    let words = "whatif --json --for 4ms --seeds 2 --against kmax=1M,xoff=1M --from mlx5_0/1 --recording";
    let run = Run::of(words.split(' ').map(Path::new).chain([recording.as_path()]));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    insta::assert_snapshot!("whatif", shape(&run.json()));
    let again = Run::of(words.split(' ').map(Path::new).chain([recording.as_path()]));
    assert_eq!(run.stdout, again.stdout, "the same question has the same answer");
}

#[test]
fn doctor_keeps_its_keys_and_types() {
    let case = Case::unpack("01");
    let run = Run::of([Path::new("doctor"), Path::new("--json"), Path::new("--sysfs-root"), &case.at("sys")]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    let mut report = run.json();
    // What the machine of the test has is not part of the shape.
    report["kernel"]["lockdown"] = Value::Null;
    report["kernel"]["capabilities"] = json!(["CAP_BPF"]);
    insta::assert_snapshot!("doctor", shape(&report));
}

#[test]
fn a_finding_in_a_replay_has_the_keys_of_one_in_the_table() {
    let case = Case::unpack("20");
    let recording = case.at("r.jsonl");
    assert_eq!(Run::of([Path::new("import"), &case.path(), Path::new("-o"), &recording]).code, Some(0));
    let line = Run::of([Path::new("replay"), Path::new("--json"), &recording]).stdout;
    let replayed: Value = serde_json::from_str(line.lines().next().expect("a finding")).expect("JSON");
    let table = Run::of([Path::new("findings"), Path::new("--json"), Path::new("--recording"), &recording]).json();
    assert_eq!(shape(&replayed), shape(&table["findings"][0]));
}
