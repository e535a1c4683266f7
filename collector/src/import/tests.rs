//! Tests of whole imports; those of single formats are beside their readers.

use std::io::Write;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::observation::Observation;

/// What an import says, each observation as a line of the recording.
fn lines(import: &Import) -> Vec<String> {
    let mut lines = Vec::new();
    let emitted = import.emit(&mut |observation: &Observation<'_>| {
        let mut line = Vec::new();
        crate::observation::recording::write_observation(observation, &mut line).unwrap();
        lines.push(String::from_utf8(line).unwrap());
    });
    emitted.unwrap();
    lines
}

#[test]
fn a_later_tree_says_what_changed_and_what_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    for (tree, devices) in [("t0", &["a", "b"][..]), ("t1", &["b"])] {
        for device in devices {
            let port = dir.path().join(tree).join("class/infiniband").join(device).join("ports/1");
            std::fs::create_dir_all(port.join("counters")).unwrap();
            std::fs::write(port.join("state"), "4: ACTIVE").unwrap();
            std::fs::write(port.join("counters/port_rcv_data"), tree.trim_start_matches('t')).unwrap();
        }
    }
    std::fs::write(dir.path().join("TIMES"), "t0 0\nt1 10\n").unwrap();
    let import = Import::open(&[dir.path().to_owned()]);
    let mut said = Vec::new();
    import
        .emit(&mut |observation| {
            if observation.t == 0 {
                return;
            }
            assert_eq!(observation.t, 10_000_000_000);
            said.push(match &observation.body {
                Body::Device(device) => format!("device {} removed {:?}", device.device, device.removed),
                Body::Counters(set) => {
                    format!("{} {} {:?}", set.device, set.source.name(), set.values.get("port_rcv_data"))
                }
                Body::Source(source) => format!("source {}", source.source),
                other => other.type_name().to_owned(),
            });
        })
        .unwrap();
    // The missing hw_counters of b are said once, with the first tree.
    assert_eq!(said, ["device a removed Some(true)", "b counters Some(1)", "source sysfs", "source pcie"]);
}

#[test]
fn what_lies_beside_a_port_is_taken_from_a_tree_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let function = "devices/pci0000:3a/0000:3b:00.0";
    for (path, text) in [
        ("infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
        ("net/eth0/carrier_changes", "3\n"),
        ("net/eth0/ecn/roce_np/cnp_dscp", "48\n"),
        ("hwmon/hwmon2/temp1_input", "61000\n"),
    ] {
        let path = dir.path().join(function).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    for (class, name) in [("infiniband", "mlx5_0"), ("net", "eth0"), ("hwmon", "hwmon2")] {
        let at = dir.path().join("class").join(class);
        std::fs::create_dir_all(&at).unwrap();
        std::os::unix::fs::symlink(format!("../../{function}/{class}/{name}"), at.join(name)).unwrap();
    }
    let device = dir.path().join(function).join("infiniband/mlx5_0/device");
    std::os::unix::fs::symlink("../..", device).unwrap();
    let mut said = Vec::new();
    Import::open(&[dir.path().to_owned()])
        .emit(&mut |observation| {
            said.extend(match &observation.body {
                Body::Counters(set) => {
                    set.values.iter().map(|(name, value)| format!("{} {name}={value}", set.source.name())).collect()
                }
                Body::CongestionConfig(config) => vec![format!("{} {:?}", config.device, config.cnp_dscp)],
                _ => Vec::new(),
            });
        })
        .unwrap();
    assert_eq!(said, ["netdev carrier_changes=3", "mlx5_0 Some(48)", "hwmon temp1_input=61000"]);
}

#[test]
fn case_53_two_trees_ten_seconds_apart_give_each_vendors_bytes_by_its_own_names() {
    use crate::source::sysfs::tests::case;

    let dir = case("53");
    let import = Import::open(&[dir.path().join("53")]);
    let mut read = std::collections::BTreeMap::<String, Vec<(Nanos, u64)>>::new();
    import
        .emit(&mut |observation| {
            let Body::Counters(set) = &observation.body else { return };
            for (name, value) in &set.values {
                read.entry(format!("{} {name}", set.device)).or_default().push((observation.t, *value));
            }
        })
        .unwrap();
    for (counter, per_second) in [
        ("mlx5_0 port_xmit_data", 1000 / 4),
        ("mlx5_0 port_rcv_data", 2000 / 4),
        ("erdma_0 hw_tx_bytes_cnt", 1000),
        ("erdma_0 hw_rx_bytes_cnt", 2000),
    ] {
        let [(0, first), (10_000_000_000, last)] = read[counter][..] else { panic!("{counter}: {:?}", read[counter]) };
        assert_eq!(last - first, 10 * per_second, "{counter}");
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).expect("memory takes everything")
}

#[test]
fn a_directory_of_everything_gives_all_it_recognises_and_lists_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
    write("dmesg.txt", b"[    1.0] mlx5_core 0000:01:00.0: Fatal error 1 detected\n");
    write("perfquery.out", b"\x1b[1m# Port counters: Lid 5 port 1 (x)\x1b[0m\r\nPortXmitData:....7\r\n");
    write("qps.zst", &zstd::encode_all(&b"link a/1 lqpn 5 type RC state RTS pid 1 comm x\n"[..], 1).unwrap());
    write("messages-20261128.gz", &gzip(b"[    1.0] mlx5_core 0000:01:00.0: Fatal error 1 detected\n"));
    write("core", b"\x7fELF\0\0");
    write("README", b"call me\n");
    write("nothing.txt", b"");
    write("old.log.gz", b"\x1f\x8b\x08");
    let import = Import::open(&[dir.path().to_owned(), PathBuf::from("/nowhere/at/all")]);
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut formats: Vec<_> = import.report().files.iter().map(|f| (name(&f.path), f.format.as_str())).collect();
    formats.sort();
    let expected = [
        ("dmesg.txt", "kernel log"),
        ("messages-20261128.gz", "kernel log"),
        ("perfquery.out", "perfquery"),
        ("qps.zst", "rdma resource"),
    ];
    assert!(formats.iter().map(|(path, format)| (path.as_str(), *format)).eq(expected), "{formats:?}");
    let mut not: Vec<_> =
        import.report().not_recognised.iter().map(|n| format!("{}: {}", name(&n.path), n.why)).collect();
    not.sort();
    for (line, word) in not.iter().zip(["no line of a format", "no such file", "binary", "empty", "gzip"]) {
        assert!(line.contains(word), "{line}");
    }
    assert_eq!(not.len(), 5, "{not:?}");
    assert!(lines(&import).iter().any(|line| line.contains("\"type\":\"health\"")));
}

#[test]
fn two_outputs_of_known_times_are_two_readings_and_a_wall_clock() {
    let dir = tempfile::tempdir().unwrap();
    for (name, n) in [("a.txt", 100), ("b.txt", 1100)] {
        std::fs::write(dir.path().join(name), format!("# Port counters: Lid 5 port 1 (x)\nPortXmitData:....{n}\n"))
            .unwrap();
    }
    let times = "a.txt 2026-01-01T00:00:00Z\nb.txt 2026-01-01T00:00:10Z\n";
    std::fs::write(dir.path().join("TIMES"), times).unwrap();
    let import = Import::open(&[dir.path().to_owned()]);
    let header = import.header();
    assert_eq!((header.unix_ns, header.mono_ns), (Some(1_767_225_600_000_000_000), Some(0)));
    let mut engine = crate::engine::Engine::new(header, crate::rule::Settings::default());
    import.emit(&mut |observation| engine.take(observation)).unwrap();
    engine.finish();
    // 1000 words of four octets in ten seconds.
    let tx = engine.world().ports[0].throughput().tx_gbps.unwrap();
    assert!((tx - 3.2e-6).abs() < 1e-12, "{tx}");
    let counters: Vec<_> = lines(&import).into_iter().filter(|line| line.contains("\"type\":\"counters\"")).collect();
    assert!(counters[0].starts_with("{\"t\":0,") && counters[1].starts_with("{\"t\":10000000000,"), "{counters:?}");
}

#[test]
fn the_modification_is_the_last_resort_and_files_of_one_second_have_no_rate() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, words: u32, seconds: u64| {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("# Port counters: Lid 5 port 1 (x)\nPortXmitData:....{words}\n")).unwrap();
        let at = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    };
    let judged = || {
        let import = Import::open(&[dir.path().to_owned()]);
        let mut engine = crate::engine::Engine::new(import.header(), crate::rule::Settings::default());
        import.emit(&mut |observation| engine.take(observation)).unwrap();
        engine.finish();
        let port = &engine.world().ports[0];
        let series = port.counter("port_xmit_data").unwrap();
        (import.header().note.unwrap_or_default(), series.rate, series.value())
    };
    write("a.txt", 100, 1_700_000_000);
    write("b.txt", 1100, 1_700_000_010);
    let (note, rate, _) = judged();
    assert!(note.contains("the file's modification"), "{note}");
    assert_eq!(rate, Some(100.0));
    write("b.txt", 1100, 1_700_000_000);
    assert_eq!((judged().1, judged().2), (None, Some(1100)));
}

#[test]
fn a_date_without_a_year_says_where_its_year_is_from() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("syslog"), "Dec 31 22:10:01 node1 kernel: x\n").unwrap();
    std::fs::write(dir.path().join("TIMES"), "syslog 2026-01-01T02:00:00Z\n").unwrap();
    let header = Import::open(&[dir.path().to_owned()]).header();
    assert_eq!(header.host.as_deref(), Some("node1"));
    assert!(header.note.unwrap().contains("TIMES, for the years"));
}

#[test]
fn a_network_device_is_that_of_the_port_the_tree_shows() {
    let dir = tempfile::tempdir().unwrap();
    let device = dir.path().join("sys/class/infiniband/mlx5_0");
    std::fs::create_dir_all(device.join("ports/1/gid_attrs/ndevs")).unwrap();
    std::fs::write(device.join("ports/1/state"), "4: ACTIVE").unwrap();
    std::fs::write(device.join("ports/1/gid_attrs/ndevs/0"), "eth1\n").unwrap();
    std::fs::create_dir_all(device.join("ports/1/gids")).unwrap();
    std::fs::write(device.join("ports/1/gids/0"), "fe80:0000:0000:0000:0000:0000:0000:0001\n").unwrap();
    for netdev in ["eth0", "eth1"] {
        std::fs::write(dir.path().join(format!("ethtool-S.{netdev}.txt")), "NIC statistics:\n  a: 1\n").unwrap();
    }
    let import = Import::open(&[dir.path().to_owned()]);
    let sets: Vec<_> = lines(&import).into_iter().filter(|line| line.contains("\"ethtool\"")).collect();
    assert!(matches!(&sets[..], [one] if one.contains("\"mlx5_0\"") && one.contains("\"eth1\"")), "{sets:?}");
    assert!(import.report().not_recognised[0].why.contains("no RDMA port has the network device eth0"));
}

/// Pieces of the formats, for texts that come near them.
const PIECES: [&str; 34] = [
    "\n",
    " ",
    "[",
    "]",
    "{",
    "}",
    ":",
    "0000:01:00.0",
    "[   10.5] ",
    "Dec 31 22:10:01 h kernel: ",
    "mlx5_core ",
    "PCIe Bus Error: severity=Corrected, type=x, (Receiver ID)",
    "  device [a:b] error status/mask=00004020/0",
    "TLP Header: 1 2 3 4",
    "link a/1 ",
    "lqpn 1-99999999 ",
    "state ERR ",
    "# Port counters: Lid 1 port 1",
    "PortXmitData:....18446744073709551616",
    "NIC statistics:",
    " a: 5",
    "GUID 0x1 port ALL: [a == 1",
    "NCCL WARN ",
    "Got completion from peer x with status=",
    "Got async event : port error",
    "ibv_modify_qp failed with ",
    "\u{1b}[",
    "{\"ifname\":\"a\",\"lqpn\":[\"1-2\"]",
    "time,device,port,x",
    "1970-01-01T00:00:00",
    "é",
    "\r",
    "umad (",
    "$ ethtool -S ",
];

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(
        pieces in prop::collection::vec((prop::sample::select(&PIECES[..]), ".{0,6}"), 0..60),
        file in "[a-z.-]{0,8}|ethtool-S.eth0.txt",
    ) {
        let text: String = pieces.iter().flat_map(|(piece, rest)| [*piece, rest.as_str()]).collect();
        let mut import = Import::default();
        let tie = import.text(Path::new(&file), None, &text::Text { text, note: None });
        import.lay(tie);
        // What was read can be written and judged.
        let mut engine = crate::engine::Engine::new(import.header(), crate::rule::Settings::default());
        let emitted = import.emit(&mut |observation| {
            let mut line = Vec::new();
            crate::observation::recording::write_observation(observation, &mut line).unwrap();
            engine.take(observation);
        });
        emitted.unwrap();
        engine.finish();
    }

    #[test]
    fn no_bytes_make_the_reader_of_text_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(text) = text::text(&bytes) {
            let _ = read_text("x", &text.text);
        }
    }
}
