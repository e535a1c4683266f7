//! Which ports are judged at all, how far, and of which readings.

use super::*;

#[test]
fn a_configuration_that_says_nothing_leaves_everything_unknown() {
    let mut node = Node::new(&["a"]);
    node.config("a", json!({"cc_algorithm": "none", "cnp_dscp": 48}));
    let known = |node: &Node| node.run().engine.world().ports[0].congestion.is_some();
    assert!(known(&node));
    node.config("a", json!({}));
    assert!(!known(&node));
}

#[test]
fn on_a_bond_whose_counters_are_summed_nothing_is_more_than_suspected() {
    let mut node = Node::new(&["a"]);
    let port = json!({"device": "a", "port": 1, "link_layer": "Ethernet", "state": "ACTIVE", "rate_gbps": 400.0,
        "netdevs": ["e0"], "bond": "bond0"});
    let slaves = json!([{"netdev": "e0", "up": true}, {"netdev": "e1", "up": true}]);
    node.log.add(0.0, "port", port).add(0.0, "bond", json!({"bond": "bond0", "mode": "802.3ad", "slaves": slaves}));
    for s in 1..=12 {
        node.second(f64::from(s) - 0.5, "a", MARKED).operations(f64::from(s) - 0.4, "a", 9, 256, &[(13, 40_000)]);
    }
    let outcome = node.run();
    assert_eq!(told(&outcome), ["ecn.premature suspected"]);
    assert!(outcome.last("ecn.premature").advice.contains("summed over the links of bond0"));
}

#[test]
fn an_infiniband_port_is_not_judged() {
    let mut node = Node::new(&["a"]);
    let port = json!({"device": "a", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE", "rate_gbps": 400.0});
    node.log.add(0.0, "port", port);
    node.seconds(1, 12, "a", Second { pause: [90_000, 0], ..MARKED });
    assert_eq!(told(&node.run()), NONE);
}

#[test]
fn efa_iwarp_and_roce_without_ip_are_not_judged() {
    let silent = Second { u: 0.7, ce: 5_000, ..CALM };
    let on = |driver: &str, layer: &str, gids: Value| {
        let mut node = Node::new(&[]);
        node.log.device(0.0, "a", driver, "0000:01:00.0");
        let port =
            json!({"device": "a", "port": 1, "link_layer": layer, "state": "ACTIVE", "rate_gbps": 400.0, "gids": gids});
        node.log.add(0.0, "port", port);
        node.seconds(1, 12, "a", silent);
        told(&node.run())
    };
    let v1 = || json!({"index": 0, "gid": "0200::", "kind": "IB/RoCE v1"});
    let v2 = || json!({"index": 1, "gid": "fe80::1", "kind": "RoCE v2"});
    assert_eq!(on("mlx5_core", "Ethernet", json!([])), ["ecn.no_cnp suspected"], "kinds unknown");
    assert_eq!(on("mlx5_core", "Ethernet", json!([v1(), v2()])), ["ecn.no_cnp suspected"]);
    assert_eq!(on("mlx5_core", "Ethernet", json!([v1()])), NONE, "iWARP, or RoCE without IP");
    assert_eq!(on("mlx5_core", "Unspecified", json!([])), NONE, "EFA");
    assert_eq!(on("siw", "Ethernet", json!([])), NONE);
}

/// The same second in a hundred readings.
fn every_10_ms(second: Second, config: Option<Value>) -> Vec<String> {
    let mut node = Node::new(&["a"]);
    if let Some(config) = config {
        node.config("a", config);
    }
    let part = |n: u64| n / 100;
    let tenth = Second {
        u: second.u / 100.0,
        ce: part(second.ce),
        cnp: second.cnp.map(part),
        pause: second.pause.map(part),
        wait: part(second.wait),
        lost: part(second.lost),
        ..second
    };
    for tick in 1..=600u32 {
        node.second(f64::from(tick) / 100.0 - 0.005, "a", tenth);
    }
    told(&node.run())
}

#[test]
fn counters_that_move_at_every_reading_of_10_ms_are_judged_as_those_of_a_second() {
    assert_eq!(every_10_ms(MARKED, None), ["ecn.premature suspected"]);
    assert_eq!(every_10_ms(Second { wait: 5_000_000, ..MARKED }, None), NONE);
    assert_eq!(every_10_ms(Second { pause: [4_000, 0], ..MARKED }, None), NONE);
    let lossy = Second { u: 0.7, lost: 4_000, ..CALM };
    assert!(every_10_ms(lossy, None).contains(&"ecn.missed suspected".to_owned()));
    let pfc = json!({"pfc_enabled": [false, false, false, true, false, false, false, false]});
    assert_eq!(every_10_ms(Second { priority: 0, ..CALM }, Some(pfc)), ["ecn.wrong_class suspected"]);
}

#[test]
fn more_marks_than_packets_and_more_pause_than_time_are_no_evidence() {
    // 0.3 of 400 Gb/s are 3.7 million packets a second.
    assert_eq!(one(Second { ce: 200_000_000, ..CALM }), NONE);
    assert_eq!(one(Second { u: 0.7, pause: [2_000_000, 0], ..CALM }), NONE);
    assert_eq!(
        one(Second { u: 0.7, pause: [1_020_000, 0], ..CALM }),
        one(Second { u: 0.7, pause: [900_000, 0], ..CALM })
    );
    let mut node = Node::new(&["a"]);
    node.seconds(1, 12, "a", Second { u: 0.7, pause: [1_020_000, 0], ..CALM });
    let outcome = node.run();
    let said = &outcome.last("ecn.missed").summary;
    assert!(said.contains("told to stop for 100.0 % of the time"), "{said}");
}
