//! `ecn.premature`: marks without a queue.

use super::*;

#[test]
fn traffic_without_marks_is_no_finding() {
    assert_eq!(one(CALM), NONE);
    assert_eq!(one(Second { u: 0.97, ..CALM }), NONE);
}

#[test]
fn isolated_marks_at_a_low_load_are_suspected_to_be_premature_by_counters_alone() {
    let mut node = Node::new(&["a"]);
    node.seconds(1, 10, "a", MARKED).seconds(11, 16, "a", CALM);
    let outcome = node.run();
    let told = outcome.of("ecn.premature");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].ends_with("a/1 raised warning suspected") && told[1].contains("cleared"), "{told:?}");
    let said = &outcome.last("ecn.premature").summary;
    assert!(said.contains("L = 2") && said.contains("K* = 68 KB") && said.contains("consistent with"), "{said}");
}

#[test]
fn marks_at_a_high_load_are_not_premature() {
    assert_eq!(one(Second { u: 0.6, ..MARKED }), NONE);
}

#[test]
fn runs_of_marks_are_not_called_premature_by_counters_alone() {
    assert_eq!(one(Second { cnp: [900, 900, 0], ..MARKED }), NONE);
}

#[test]
fn marks_with_pause_in_either_direction_or_with_waiting_are_not_premature() {
    assert_eq!(one(Second { pause: [40, 0], ..MARKED }), NONE);
    assert_eq!(one(Second { pause: [0, 40], ..MARKED }), NONE);
    assert_eq!(one(Second { wait: 5_000_000, ..MARKED }), NONE);
}

#[test]
fn marks_are_not_premature_under_rtt_based_control_nor_where_the_nic_marks_itself() {
    assert_eq!(configured(MARKED, json!({"cc_algorithm": "rtt"})), NONE);
    assert_eq!(configured(MARKED, json!({"rp": {"rtt_resp_dscp": 26}})), NONE);
    assert_eq!(configured(MARKED, json!({"cc_algorithm": "dcqcn"})), ["ecn.premature suspected"]);
    assert_eq!(one(Second { host: 500, stalled: 10, ..MARKED }), NONE);
}

#[test]
fn one_marked_window_is_not_enough() {
    let mut node = Node::new(&["a"]);
    node.seconds(1, 5, "a", CALM).seconds(6, 6, "a", MARKED).seconds(7, 12, "a", CALM);
    assert_eq!(told(&node.run()), NONE);
}

#[test]
fn a_port_that_is_busy_for_a_third_of_the_time_is_judged_by_the_load_where_the_marks_fell() {
    let mut node = Node::new(&["a"]);
    for tick in 1..=120u32 {
        let busy = tick % 3 == 0;
        let second = if busy {
            Second { u: 0.09, ce: 2_400, cnp: [2_300, 2_300, 0], ..CALM }
        } else {
            Second { u: 0.0, ..CALM }
        };
        node.second(f64::from(tick) / 10.0 - 0.01, "a", second);
    }
    assert_eq!(told(&node.run()), NONE, "at 100 ms the marks fell at 0.9 of the rate");
}

#[test]
fn many_marks_with_a_cnp_for_each_are_no_isolated_ones_to_counters() {
    let packets = MARKED.ce;
    assert_eq!(one(Second { ce: packets * 100, cnp: [packets * 100, 0, 0], ..MARKED }), NONE);
}

#[test]
fn flat_latency_of_small_operations_makes_it_probable() {
    // A thousandth of the packets at a third of the load: 10 of 40 000 had to be late. None was.
    let outcome = after_calm(10, MARKED, &[(13, 40_000)]);
    assert_eq!(told(&outcome), ["ecn.premature probable"]);
    let said = &outcome.last("ecn.premature").summary;
    assert!(said.contains("in the quiet of"), "{said}");
}

#[test]
fn latencies_of_windows_that_all_had_marks_are_not_called_quiet() {
    let outcome = with_small(MARKED, &[(13, 40_000)]);
    assert_eq!(told(&outcome), ["ecn.premature probable"]);
    let finding = outcome.last("ecn.premature");
    assert!(finding.summary.contains("few of them or none quiet and without marks"), "{}", finding.summary);
    assert!(finding.would_raise.starts_with("windows with little load and no mark"), "{}", finding.would_raise);
}

#[test]
fn small_operations_as_late_as_true_marks_make_them_speak_against_it() {
    assert_eq!(told(&with_small(MARKED, &[(13, 39_000), (14, 700), (15, 300)])), NONE);
}

#[test]
fn marks_of_queues_of_which_hardly_one_is_long_are_probable_and_where_some_are_they_are_not() {
    // Half of the small operations find a queue; of these 4 and 400 a long one.
    let late = |long| after_calm(10, MARKED, &[(13, 20_000), (14, 20_000 - long), (15, long)]);
    assert_eq!(told(&late(4)), ["ecn.premature probable"]);
    assert_eq!(told(&late(400)), NONE);
}
