//! `ecn.missed`, and `ecn.not_ect` as its part: a queue without marks.

use super::*;

#[test]
fn pause_without_marks_is_missed_congestion_and_without_a_single_mark_ever_perhaps_not_ect() {
    let paused = Second { u: 0.7, pause: [90_000, 0], wait: 9_000_000, ..CALM };
    let mut node = Node::new(&["a"]);
    node.seconds(1, 12, "a", paused);
    let outcome = node.run();
    assert_eq!(told(&outcome), ["ecn.missed suspected", "ecn.not_ect suspected"]);
    assert_eq!(outcome.last("ecn.not_ect").part_of.as_deref(), Some("ecn.missed:a/1"));
    let mut node = Node::new(&["a"]);
    node.seconds(1, 1, "a", MARKED).seconds(2, 14, "a", paused);
    assert_eq!(told(&node.run()), ["ecn.missed suspected"], "it has been marked before");
}

#[test]
fn pause_is_not_missed_congestion_when_there_are_marks_or_cnps_or_this_host_is_the_slow_one() {
    let paused = Second { u: 0.7, pause: [90_000, 0], ..CALM };
    assert_eq!(one(Second { ce: 50_000, cnp: [9_000, 0, 0], ..paused }), NONE);
    assert_eq!(one(Second { cnp: [0, 9_000, 0], ..paused }), NONE, "its peers count the marks");
    assert_eq!(one(Second { pause: [90_000, 60_000], ..paused }), NONE);
    assert_eq!(one(Second { pause: [0, 90_000], ..paused }), NONE);
    assert_eq!(one(Second { pause: [2_000, 0], ..paused }), NONE, "0.2 % is short");
    assert_ne!(one(Second { pause: [20_000, 0], ..paused }), NONE, "2 % without a mark is not");
}

#[test]
fn loss_in_order_without_marks_is_missed_congestion_and_a_few_packets_are_not() {
    let lossy = Second { u: 0.7, lost: 4_000, ..CALM };
    assert!(one(lossy).contains(&"ecn.missed suspected".to_owned()));
    assert_eq!(one(Second { lost: 20, ..lossy }), NONE);
}

#[test]
fn that_marks_were_seen_before_the_pause_is_said_with_the_time_they_ended() {
    let paused = Second { u: 0.7, pause: [90_000, 0], wait: 9_000_000, ..CALM };
    let mut node = Node::new(&["a"]);
    node.seconds(1, 20, "a", MARKED).seconds(21, 40, "a", paused);
    let outcome = node.run();
    let finding = outcome.last("ecn.missed");
    assert!(finding.summary.contains("; marks were seen until 14:13:4"), "{}", finding.summary);
    assert!(finding.advice.starts_with("The last mark came at 14:13:4"), "{}", finding.advice);
    let mut node = Node::new(&["a"]);
    node.seconds(1, 20, "a", CALM).seconds(21, 40, "a", paused);
    let outcome = node.run();
    assert!(outcome.last("ecn.missed").advice.starts_with("See whether ECN marking is on"));
}

#[test]
fn small_operations_as_late_as_the_pause_is_long_make_missed_congestion_probable() {
    let paused = Second { u: 0.7, pause: [90_000, 0], wait: 9_000_000, ..CALM };
    let grade = |late| told(&with_small(paused, &[(13, 10_000 - late), (15, late)]))[0].clone();
    assert_eq!(grade(2_000), "ecn.missed probable");
    assert_eq!(grade(200), "ecn.missed suspected", "9 % of the time stopped, 2 % late: another class's pause");
}

#[test]
fn a_latency_far_above_its_quiet_level_makes_missed_congestion_probable() {
    let mut node = Node::new(&["a"]);
    for s in 1..=24 {
        let (second, bucket) = if s <= 12 { (CALM, 13) } else { (Second { u: 0.9, pause: [90_000, 0], ..CALM }, 15) };
        node.second(f64::from(s) - 0.5, "a", second).operations(f64::from(s) - 0.4, "a", 9, 256, &[(bucket, 5_000)]);
    }
    assert!(told(&node.run()).contains(&"ecn.missed probable".to_owned()));
}

#[test]
fn a_window_in_which_pause_was_not_read_is_not_called_quiet() {
    for (paused, expected) in [(450_000, None), (0, Some(11..=13))] {
        let mut node = Node::new(&["a"]);
        for s in 1..=24 {
            if s % 2 == 0 {
                node.second(f64::from(s) - 0.5, "a", Second { u: 0.2, pause: [paused, 0], ..CALM });
            }
            node.operations(f64::from(s) - 0.4, "a", 9, 256, &[(13, 5_000)]);
        }
        let engine = node.run().engine;
        let base = engine.world().ports[0].latencies.baseline(crate::inventory::SizeClass::Small);
        let as_expected = match (&base, expected) {
            (Some(base), Some(windows)) => windows.contains(&base.windows),
            (None, None) => true,
            _ => false,
        };
        assert!(as_expected, "{paused} µs a second: {base:?}");
    }
}

#[test]
fn operations_that_are_not_late_speak_against_a_queue_only_where_an_empty_one_was_seen() {
    let paused = Second { u: 0.4, pause: [400_000, 0], wait: 9_000_000, ..CALM };
    let summary = |calm_s: u32| {
        let mut node = Node::new(&["a"]);
        for s in 1..=calm_s + 12 {
            let (second, bucket) = if s <= calm_s { (Second { u: 0.2, ..CALM }, 16) } else { (paused, 16) };
            let at = f64::from(s);
            node.second(at - 0.5, "a", second).operations(at - 0.4, "a", 9, 256, &[(bucket, 5_000)]);
        }
        node.run().last("ecn.missed").summary.clone()
    };
    let standing = summary(0);
    assert!(!standing.contains("speaks against") && !standing.contains("more than twice"), "{standing}");
    let of_another_class = summary(20);
    assert!(of_another_class.contains("speaks against a queue on their way"), "{of_another_class}");
}
