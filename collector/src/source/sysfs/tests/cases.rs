//! The cases of tests/cases: each what a public report saw.

use super::*;

#[test]
fn case_01_text_instead_of_numbers_is_unavailable_and_hides_nothing_else() {
    let dir = case("01");
    let mut source = source_at(dir.path().join("01/sys"));
    let seen = poll(&mut source, 0);
    assert_eq!(of_type(&seen, "device").len(), 3);
    for (name, files) in [("i40iw0", 17), ("mlx4_0", 21)] {
        let set = counters(&seen, name, 1, "counters");
        assert_eq!((count(&set["values"]), count(&set["unavailable"])), (0, files), "{name}");
        assert!(set["unavailable"].as_object().unwrap().values().all(|reason| reason == "N/A (no PMA)"));
        assert_eq!(port(&seen, name, 1)["state"], "ACTIVE");
    }
    let set = counters(&seen, "mlx5_0", 1, "counters");
    assert_eq!((&set["values"]["port_rcv_data"], &set["values"]["port_xmit_data"]), (&json!(1000), &json!(2000)));
    // One note per device at most, and what is never readable is not said each second.
    let missing = source.availability().missing;
    assert_eq!(missing.iter().filter(|m| m.reason == "N/A (no PMA)").count(), 1);
    let again = poll(&mut source, SECOND);
    assert!(again.iter().all(|body| body["device"] == "mlx5_0" && body["type"] == "counters"), "{again:?}");
}

#[test]
fn case_02_the_64_bit_reading_is_taken_once_and_a_contradiction_is_noted() {
    let dir = case("02");
    let seen = poll(&mut source_at(dir.path().join("02/sys")), 0);
    for number in [1, 2] {
        let values = &counters(&seen, "mlx4_0", number, "counters")["values"];
        assert_eq!(values["port_rcv_data"], 4_631_917);
        assert_eq!(values["port_xmit_data"], 3_733_440);
        assert_eq!(values["unicast_rcv_packets"], 61148);
        assert!(values.as_object().unwrap().keys().all(|name| !name.ends_with("_64")));
    }
    let values = &counters(&seen, "mlx4_0", 1, "counters")["values"];
    assert_eq!(values["port_rcv_packets"], 6_825_908_347_u64);
    assert_eq!(values["port_xmit_wait"], u32::MAX);
    let notes = |number| serde_json::to_string(&port(&seen, "mlx4_0", number)["notes"]).unwrap();
    assert!(notes(2).contains("port_rcv_data: counters says 0, counters_ext says 4631917"));
    assert!(!notes(1).contains("port_rcv_data") && notes(1).contains("port_rcv_packets"));
}

#[test]
fn case_03_an_inconsistent_physical_state_is_its_number_and_absent_files_are_absent() {
    let dir = case("03");
    let seen = poll(&mut source_at(dir.path().join("03/sys")), 0);
    let odd = port(&seen, "mlx5_0", 1);
    assert_eq!((&odd["phys_state"], &odd["rate_gbps"], &odd["lanes"]), (&json!("4"), &json!(25.0), &json!(1)));
    let notes = odd["notes"].to_string();
    assert!(notes.contains("PortConfigurationTraining") && notes.contains("1 lane of 4"));
    assert_eq!(device(&seen, "mlx5_0")["node_guid"], "0000:0000:0000:0001");
    assert_eq!(device(&seen, "hfi1_0")["driver"], "hfi1");
    assert_eq!(counters(&seen, "hfi1_0", 1, "counters")["values"]["port_rcv_data"], 345_091_702_026_u64);
    assert_eq!(counters(&seen, "mlx4_0", 2, "counters")["values"]["port_xmit_data"], 26_540_356_890_u64);
    let hw = &counters(&seen, "mlx5_0", 1, "hw_counters")["values"];
    assert_eq!((&hw["req_cqe_error"], &hw["np_cnp_sent"]), (&json!(3481), &Value::Null));
}

#[test]
fn case_05_einval_on_one_port_leaves_the_others_and_is_one_line() {
    let dir = case("05");
    let mut source = SysfsSource::new(SysfsOptions::new(faulty(&dir.path().join("05"))));
    let seen = poll(&mut source, 0);
    for name in ["mlx5_12", "mlx5_13", "mlx5_14", "mlx5_15"] {
        let set = counters(&seen, name, 1, "counters");
        assert_eq!((count(&set["values"]), count(&set["unavailable"])), (0, 21), "{name}");
        assert_eq!(set["unavailable"]["VL15_dropped"], "EINVAL");
        assert_eq!(port(&seen, name, 1)["state"], "ACTIVE");
    }
    assert_eq!(counters(&seen, "mlx5_0", 1, "counters")["values"]["port_rcv_data"], 500);
    let availability = source.availability();
    let lines: Vec<_> = availability.missing.iter().map(|m| format!("{}: {}", m.what, m.reason)).collect();
    assert_eq!(lines, ["mlx5_12..15/1 counters: EINVAL"]);
    assert_eq!(availability.state, Seeing::Partial);
    assert!(availability.sees.starts_with("5 devices, 5 ports, "), "{}", availability.sees);
}

#[test]
fn case_07_a_driver_without_counters_directory_keeps_its_hw_counters() {
    let dir = case("07");
    let seen = poll(&mut source_at(dir.path().join("07/sys")), 0);
    assert_eq!(of_type(&seen, "device").len(), 5);
    assert_eq!(counters(&seen, "irdma0", 1, "counters")["unavailable"], json!({"*": "ENOENT"}));
    assert_eq!(counters(&seen, "irdma0", 1, "hw_counters")["values"]["cnpSent"], 340);
    assert_eq!(device(&seen, "irdma1")["pci"], "0000:1a:00.3");
    assert_eq!(counters(&seen, "mlx5_0", 1, "counters")["values"]["port_rcv_data"], 10);
    let down = port(&seen, "irdma0", 1);
    assert_eq!((&down["state"], &down["phys_state"]), (&json!("DOWN"), &json!("Disabled")));
    assert!(down["notes"].to_string().contains("not a negotiated speed"));
}

#[test]
fn case_10_driver_and_netdev_come_from_links_not_from_names() {
    let dir = case("10");
    let seen = poll(&mut source_at(dir.path().join("10/sys")), 0);
    assert_eq!(of_type(&seen, "device").len(), 10);
    assert_eq!(device(&seen, "mana_0")["driver"], "mana");
    assert_eq!(port(&seen, "roceP2p1s0f0", 1)["netdevs"], json!(["enP2p1s0f0np0"]));
    assert_eq!(port(&seen, "ibp152s0f0", 1)["netdevs"], json!(["ibs22f0"]));
    let down = port(&seen, "rocep1s0f1", 1);
    assert_eq!(
        (&down["state"], &down["phys_state"], &down["rate_gbps"]),
        (&json!("DOWN"), &json!("Disabled"), &json!(40.0))
    );
    assert_eq!(port(&seen, "ibP16p3s0", 1)["rate_gbps"], 800.0);
}

#[test]
fn case_12_dangling_class_links_are_named_with_reason_and_remedy() {
    let dir = case("12");
    let mut source = source_at(dir.path().join("12/sys"));
    let seen = poll(&mut source, 0);
    assert_eq!(seen.len(), 10, "ten devices and nothing else");
    assert!(seen.iter().all(|body| body["type"] == "device" && body["unreadable"] == device::DANGLING));
    assert_eq!(device(&seen, "mlx5_9")["pci"], "0000:19:00.0");
    let availability = source.availability();
    assert_eq!((availability.state, availability.sees.as_str()), (Seeing::Off, "10 devices, 0 ports, 0 counters"));
    assert_eq!(availability.missing.len(), 1);
    assert_eq!(availability.missing[0].what, "mlx5_0..9");
    assert_eq!(availability.missing[0].fix.as_deref(), Some(device::DANGLING_FIX));
    assert_eq!(source.no_device(), None);
}

#[test]
fn case_17_hw_counters_are_not_read_from_the_drivers_cache() {
    let dir = case("17");
    let trees = |n| Arc::new(RootedFiles::new(dir.path().join(format!("17/t{n}/sys"))).unwrap());
    let mut source = SysfsSource::new(SysfsOptions::new(trees(0)));
    let seen = poll(&mut source, 0);
    assert_eq!(port(&seen, "mlx5_0", 1)["lifespan_ms"], 10);
    assert_eq!(counters(&seen, "mlx5_0", 1, "hw_counters")["values"]["lifespan"], Value::Null);
    source.look_at(trees(1));
    let hw = |seen: &[Value]| of_type(seen, "counters").iter().any(|body| body["source"] == "hw_counters");
    assert!(!hw(&poll(&mut source, 5_000_000)), "5 ms later the cache is fresh");
    assert!(!hw(&poll(&mut source, 20_000_000 - 1)));
    assert!(hw(&poll(&mut source, 20_000_000)));
}

#[test]
fn case_18_an_unreadable_counter_costs_itself_and_write_only_files_are_not_opened() {
    let dir = case("18");
    let files = faulty(&dir.path().join("18"));
    let mut source = SysfsSource::new(SysfsOptions::new(files.clone()));
    let seen = poll(&mut source, 0);
    let set = counters(&seen, "mlx5_0", 1, "counters");
    assert_eq!(set["values"]["port_rcv_data"], 25);
    assert_eq!(set["unavailable"], json!({"port_xmit_wait": "EACCES"}));
    assert!(files.opened().iter().all(|path| !path.contains("_child")));
    assert_eq!(source.availability().missing[0].what, "mlx5_0/1 port_xmit_wait");
}

#[test]
fn case_19_the_three_reasons_for_no_device_are_told_apart() {
    let dir = case("19");
    for (tree, message) in [
        ("t0", "no RDMA subsystem (class/infiniband missing)"),
        ("t1", "RDMA subsystem loaded, 0 devices"),
        ("t2", "4 RDMA-capable PCI functions but no RDMA device: mlx5_ib not loaded?"),
    ] {
        let mut source = source_at(dir.path().join("19").join(tree).join("sys"));
        assert!(poll(&mut source, 0).is_empty());
        assert_eq!(source.no_device().unwrap().to_string(), message);
        let availability = source.availability();
        assert_eq!((availability.state, availability.missing.len()), (Seeing::Off, 1));
        assert_eq!(availability.missing[0].reason, message);
    }
}

#[test]
fn case_21_empty_gid_slots_are_skipped_without_a_note() {
    let dir = case("21");
    let mut source = SysfsSource::new(SysfsOptions::new(faulty(&dir.path().join("21"))));
    let seen = poll(&mut source, 0);
    let port = port(&seen, "mlx5_0", 1);
    let used: Vec<_> = port["gids"].as_array().unwrap().iter().map(|gid| gid["index"].as_u64().unwrap()).collect();
    assert_eq!(used, [4, 5, 6, 7]);
    let last =
        json!({"index": 7, "gid": "0000:0000:0000:0000:0000:ffff:c000:020c", "kind": "RoCE v2", "netdev": "net1"});
    assert_eq!(port["gids"][3], last);
    assert_eq!(port["notes"], Value::Null);
    assert!(source.availability().missing.iter().all(|m| !m.what.contains("gid")));
}

#[test]
fn case_51_a_management_sub_device_shows_its_function_and_that_it_has_no_counters() {
    let dir = case("51");
    let seen = poll(&mut source_at(dir.path().join("51/sys")), 0);
    assert_eq!(device(&seen, "smi1")["pci"], device(&seen, "ibp8s0f1")["pci"]);
    for number in 1..=4 {
        assert_eq!(port(&seen, "smi1", number)["state"], "INIT");
        for set in ["counters", "hw_counters"] {
            assert_eq!(counters(&seen, "smi1", number, set)["unavailable"], json!({"*": "ENOENT"}));
        }
    }
}

#[test]
fn case_52_a_device_of_another_link_layer_is_read_like_any_other() {
    let dir = case("52");
    let seen = poll(&mut source_at(dir.path().join("52/sys")), 0);
    assert_eq!(port(&seen, "efa_0", 1)["link_layer"], "Unspecified");
    let values = &counters(&seen, "efa_0", 1, "hw_counters")["values"];
    assert_eq!(
        (&values["tx_bytes"], &values["submitted_cmds"], &values["lifespan"]),
        (&json!(2), &json!(108), &Value::Null)
    );
}

#[test]
fn case_55_virtual_functions_name_their_physical_function() {
    let dir = case("55");
    let root = dir.path().join("55/sys");
    let seen = poll(&mut source_at(&root), 0);
    assert_eq!(device(&seen, "mlx5_4")["vf"], false);
    for name in ["mlx5_10", "mlx5_14"] {
        assert_eq!(
            (&device(&seen, name)["vf"], &device(&seen, name)["physfn"]),
            (&json!(true), &json!("0000:4b:00.0"))
        );
    }
    // A container that shows the VF alone.
    std::fs::remove_dir_all(root.join("devices/pci0000:4b/0000:4b:00.0")).unwrap();
    let seen = poll(&mut source_at(&root), 0);
    assert_eq!((&device(&seen, "mlx5_10")["vf"], &device(&seen, "mlx5_10")["physfn"]), (&json!(true), &Value::Null));
}
