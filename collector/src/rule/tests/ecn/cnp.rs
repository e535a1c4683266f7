//! `ecn.no_cnp`, `ecn.cnp_without_ce`, `ecn.cnp_ignored`, `ecn.cnp_lost`: what becomes of a mark.

use super::*;

#[test]
fn marks_without_a_cnp_are_no_cnp_and_probable_where_the_notification_point_is_off() {
    let silent = Second { u: 0.7, ce: 50_000, ..CALM };
    assert_eq!(one(silent), ["ecn.no_cnp suspected"]);
    let off = json!({"np": {"enable": [false, false, false, false, false, false, false, false]}});
    assert_eq!(configured(silent, off), ["ecn.no_cnp probable"]);
}

#[test]
fn no_cnp_is_not_said_under_rtt_based_control_nor_of_few_marks_nor_with_a_single_cnp_and_is_only_information_without_control()
 {
    let silent = Second { u: 0.7, ce: 50_000, ..CALM };
    assert_eq!(configured(silent, json!({"cc_algorithm": "rtt"})), NONE);
    assert_eq!(one(Second { ce: 200, ..silent }), NONE);
    assert_eq!(one(Second { cnp: [20_000, 0, 0], ..silent }), NONE);
    let mut node = Node::new(&["a"]);
    node.config("a", json!({"cc_algorithm": "none"})).seconds(1, 12, "a", silent);
    assert!(node.run().of("ecn.no_cnp")[0].contains("info"));
    for (reacts, severity) in [(0, "info"), (1, "warning")] {
        let mut node = Node::new(&["a"]);
        let config =
            json!({"np": {"enable": [0, 0, 0, 0, 0, 0, 0, 0]}, "rp": {"enable": [0, 0, 0, reacts, 0, 0, 0, 0]}});
        node.config("a", config).seconds(1, 12, "a", silent);
        let told = node.run().of("ecn.no_cnp");
        assert!(told[0].contains(severity), "{told:?}");
    }
}

#[test]
fn a_dscp_of_round_trip_measurement_that_is_not_in_force_is_no_congestion_control() {
    let silent = Second { u: 0.7, ce: 5_000, ..CALM };
    let rp = |valid: Value| configured(silent, json!({"rp": {"rtt_resp_dscp": 26, "rtt_resp_dscp_valid": valid}}));
    assert_eq!(rp(json!(0)), ["ecn.no_cnp suspected"]);
    assert_eq!(rp(json!(1)), NONE);
    assert_eq!(configured(silent, json!({"rp": {"rtt_resp_dscp": 26}})), NONE);
}

#[test]
fn ignored_cnps_are_a_finding_and_probable_where_the_reaction_point_is_off() {
    let deaf = Second { u: 0.9, cnp: [0, 0, 9_000], ..CALM };
    assert_eq!(one(deaf), ["ecn.cnp_ignored suspected"]);
    let off = json!({"rp": {"enable": [0, 0, 0, 0, 0, 0, 0, 0]}});
    assert_eq!(configured(deaf, off), ["ecn.cnp_ignored probable"]);
    assert_eq!(one(Second { cnp: [0, 9_000, 60], ..deaf }), NONE, "some belong to QPs that are gone");
}

#[test]
fn more_cnps_than_marks_are_told_unless_slow_restart_explains_them() {
    let many = Second { u: 0.7, ce: 1_000, cnp: [2_000, 1_000, 0], ..CALM };
    assert_eq!(one(many), ["ecn.cnp_without_ce suspected"]);
    assert_eq!(one(Second { restart: 1_000, ..many }), NONE);
    assert_eq!(one(Second { cnp: [1_000, 1_000, 0], ..many }), NONE);
}

/// Two ports that talk to each other only: `b` sends CNPs, `a` gets `handled` of 9 000.
fn pair(handled: u64, stranger: bool) -> Outcome {
    let mut node = Node::new(&["a", "b"]);
    for (name, gid, peer) in [("a", "::a", "::b"), ("b", "::b", "::a")] {
        let port = json!({"device": name, "port": 1, "link_layer": "Ethernet", "state": "ACTIVE", "rate_gbps": 400.0,
            "gids": [{"index": 3, "gid": gid}]});
        node.log.add(0.0, "port", port);
        let qp = |qpn: u32, peer: &str| json!({"device": name, "port": 1, "qpn": qpn, "event": "seen", "to": "RTS", "remote_gid": peer});
        node.log.add(0.1, "qp", qp(7, peer));
        if stranger {
            node.log.add(0.1, "qp", qp(8, "::c"));
        }
    }
    for s in 1..=16 {
        let sent = Second { u: 0.7, ce: 50_000, cnp: [9_000, 0, 0], ..CALM };
        node.second(f64::from(s) - 0.5, "b", sent);
        node.second(f64::from(s) - 0.4, "a", Second { u: 0.7, ce: 0, cnp: [0, handled, 0], ..CALM });
    }
    node.run()
}

#[test]
fn cnps_that_do_not_arrive_are_told_where_both_ends_are_known_and_not_judged_elsewhere() {
    assert_eq!(told(&pair(8_000, false)), ["ecn.cnp_lost suspected"]);
    assert_eq!(told(&pair(8_990, false)), NONE);
    let outcome = pair(8_000, true);
    assert_eq!(told(&outcome), NONE);
    let rule = crate::rule::find("ecn.cnp_lost").unwrap();
    assert!(rule.not_judged(&outcome.engine.view()).unwrap().contains("those of the peers are not seen here"));
}
