//! Assertions over what the payloads left on real kernels; see [`end_to_end::vm`].

mod bound;
mod doctor;
mod failover;
mod killed;
mod loopback;
mod marks;
mod places;
mod qpfaults;
mod recordings;
mod service;
mod sources;
mod verbs;

use end_to_end::vm::on_each_kernel;
use serde_json::json;

#[test]
fn the_bench_has_three_devices_traffic_through_the_router_and_a_reported_pcie_error() {
    on_each_kernel("bench", |results| {
        let seen = results.json("seen.json");
        assert_eq!(seen["devices"], json!(["rxea", "rxeb", "rxec"]), "on {}", results.kernel);
        assert!(seen["forwarded_bytes"].as_u64() >= Some(500 * 4096), "on {}: {seen}", results.kernel);
        assert_eq!(seen["aer"]["corrected"], 1, "on {}", results.kernel);
        let version = seen["kernel"].as_str().expect("uname prints a version");
        assert!(version.starts_with(&format!("{}.", results.kernel)), "{version} is not {}", results.kernel);
    });
}

#[test]
fn the_threads_program_had_a_completion_for_every_work_request() {
    on_each_kernel("traffic", |results| {
        let accounts = results.json_lines("threads.jsonl");
        assert_eq!(accounts.len(), 2, "on {}", results.kernel);
        for account in accounts {
            assert_eq!(account["posts"], 2000, "on {}: {account}", results.kernel);
            assert_eq!(account["wrs"], account["completions"], "on {}: {account}", results.kernel);
            assert_eq!(account["errors"], 0, "on {}: {account}", results.kernel);
        }
    });
}

#[test]
fn two_devices_had_queue_pairs_of_the_same_number_at_the_same_time() {
    on_each_kernel("traffic", |results| {
        let connection = &results.json_lines("same_qpn.jsonl")[0];
        assert_eq!(connection["qpn"], connection["peer_qpn"], "on {}", results.kernel);
        let kernels_list = results.json("same_qpn/qp.json");
        let devices = kernels_list.as_array().expect("rdma prints a list");
        let with_it: Vec<_> =
            devices.iter().filter(|qp| qp["lqpn"] == connection["qpn"]).map(|qp| &qp["ifname"]).collect();
        assert_eq!(with_it, ["rxea", "rxeb"], "on {}", results.kernel);
    });
}

#[test]
fn connections_broke_only_after_their_link_was_cut() {
    on_each_kernel("faults", |results| {
        let actions = results.json_lines("actions");
        for (connection, cut) in [("card", "card_down"), ("carrier", "carrier_down"), ("admin", "admin_down")] {
            let time = |lines: &[serde_json::Value], key: &str, name: &str| {
                lines.iter().find(|line| line[key] == name).and_then(|line| line["t"].as_u64())
            };
            // The payload says when the driver left a connection waiting instead of failing it.
            if results.path(&format!("{connection}.stuck")).exists() {
                continue;
            }
            let error = time(&results.json_lines(&format!("{connection}.jsonl")), "what", "error");
            let cut = time(&actions, "action", cut);
            assert!(cut.is_some() && error > cut, "{connection} on {}: {cut:?}, {error:?}", results.kernel);
        }
    });
}
