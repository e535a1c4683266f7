//! `ecn.wrong_class`, `ecn.host_marking`: marks and classes of this host's own making.

use super::*;

#[test]
fn marks_of_the_nic_itself_are_told_when_the_way_to_the_host_stalls() {
    let host = Second { u: 0.7, host: 9_000, stalled: 45, ..CALM };
    assert_eq!(one(host), ["ecn.host_marking suspected"]);
    assert_eq!(one(Second { stalled: 5, ..host }), NONE);
}

#[test]
fn data_outside_of_the_protected_priority_or_in_that_of_the_cnps_is_in_the_wrong_class() {
    let pfc = || json!({"pfc_enabled": [false, false, false, true, false, false, false, false], "trust": "dscp"});
    assert_eq!(configured(Second { priority: 0, ..CALM }, pfc()), ["ecn.wrong_class suspected"]);
    assert_eq!(configured(CALM, pfc()), NONE);
    assert_eq!(one(Second { priority: 0, ..CALM }), NONE, "priorities unknown");
    let cnp = json!({"np": {"cnp_802p_prio": 6}});
    assert_eq!(configured(Second { priority: 6, ..CALM }, cnp), ["ecn.wrong_class suspected"]);
}

#[test]
fn bytes_by_priority_that_are_read_more_rarely_are_held_against_what_they_can_hold() {
    let config = || {
        let only_3 = [false, false, false, true, false, false, false, false];
        json!({"pfc_enabled": only_3, "np": {"cnp_802p_prio": 6}, "trust": "dscp"})
    };
    for every in [2, 3, 4, 5, 10, 30] {
        let told = |second| {
            let mut node = Node::new(&["a"]);
            node.ethtool_every = every;
            node.config("a", config()).seconds(1, 61, "a", second);
            super::told(&node.run())
        };
        assert_eq!(told(CALM), NONE, "in its class, priorities every {every} s");
        assert_eq!(told(Second { priority: 0, ..CALM }), ["ecn.wrong_class suspected"], "every {every} s");
        assert_eq!(told(Second { priority: 6, ..CALM }), ["ecn.wrong_class suspected"], "every {every} s");
    }
}
