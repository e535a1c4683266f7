//! What packets on the wire confirm or deny.

use super::*;

/// Packets seen on the wire: marked ones with a mean delay, others with another, ns.
fn packets(ce_ns: u64, plain_ns: u64) -> Outcome {
    let mut node = Node::new(&["a"]);
    for s in 1..=10u64 {
        node.seconds(
            u32::try_from(s).unwrap(),
            u32::try_from(s).unwrap(),
            "a",
            Second { u: 0.1, ce: 4_000, cnp: [40, 0, 0], ..CALM },
        );
        let seen = json!({"rx_data": s * 16_000, "rx_ce": s * 4_000, "tx_data": s * 100, "tx_not_ect": 0,
            "delay_ce_sum_ns": s * 4_000 * ce_ns, "delay_ce_n": s * 4_000, "delay_plain_sum_ns": s * 12_000 * plain_ns,
            "delay_plain_n": s * 12_000, "delay_min_ns": 20_000});
        node.log.counters(s as f64 - 0.4, "a", "packets", seen);
    }
    node.run()
}

#[test]
fn marked_packets_as_early_as_the_others_confirm_premature_marks_and_late_ones_deny_them() {
    assert_eq!(told(&packets(31_000, 30_000)), ["ecn.premature confirmed"]);
    assert_eq!(told(&packets(900_000, 60_000)), NONE);
    assert_eq!(told(&packets(900_000, 900_000)), NONE, "a standing queue delays all");
}

#[test]
fn packets_sent_not_ect_or_in_the_dscp_of_the_cnps_are_confirmed() {
    let seen = |not_ect: u64, dscp: &str| {
        let mut node = Node::new(&["a"]);
        for s in 1..=10u64 {
            node.seconds(u32::try_from(s).unwrap(), u32::try_from(s).unwrap(), "a", CALM);
            let mut seen = json!({"rx_data": s * 100, "tx_data": s * 10_000, "tx_not_ect": s * not_ect});
            seen[dscp] = (s * 10_000).into();
            node.log.counters(s as f64 - 0.4, "a", "packets", seen);
        }
        told(&node.run())
    };
    assert_eq!(seen(0, "tx_dscp_26"), NONE);
    assert_eq!(seen(5_000, "tx_dscp_26"), ["ecn.not_ect confirmed"]);
    assert_eq!(seen(0, "tx_dscp_48"), ["ecn.wrong_class confirmed"]);
}
