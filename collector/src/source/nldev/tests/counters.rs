//! Port counters: coverage, refusals, and counters bound to QPs.

use super::*;

#[test]
fn a_port_that_refuses_its_counters_is_left_to_sysfs_and_asked_again_later() {
    let mut scene = Scene::of(vec![
        devices(&[(0, "a"), (1, "b")]),
        statistics(0, vec![counters(&[("rx_bytes", 7), ("RNR sent", 0)])]),
        statistics(1, vec![refusal(-22)]),
    ]);
    let all = scene.poll(1);
    let sets = only(&all, "counters");
    assert_eq!(sets.len(), 1, "no set is made up for a port that gives none");
    assert_eq!(sets[0]["values"], serde_json::json!({"rx_bytes": 7, "RNR sent": 0}));
    assert_eq!(scene.source.covered_devices(), ["a"]);
    let coverage = scene.source.coverage();
    assert!(coverage.contains("a") && !coverage.contains("b"));
    assert!(scene.gap("counters of b port 1").unwrap().contains("Invalid argument"));
    let before = scene.asked(command::STAT_GET);
    scene.poll(2);
    assert_eq!(scene.asked(command::STAT_GET) - before, 1, "only the port that answers is asked each second");
    scene.poll(6);
    assert!(scene.asked(command::STAT_GET) - before > 2);
}

#[test]
fn an_answer_without_counters_is_no_coverage() {
    let mut scene = Scene::of(vec![devices(&[(0, "a")]), statistics(0, vec![counters(&[])])]);
    assert_eq!(only(&scene.poll(1), "counters").len(), 0);
    assert_eq!(scene.source.covered_devices(), [""; 0]);
    assert!(scene.gap("counters of a port 1").unwrap().contains("no hardware counter"));
}

#[test]
fn counters_bound_to_qps_stretch_the_period_and_say_so() {
    let names: Vec<String> = (0..30).map(|i| format!("c{i}")).collect();
    let values: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut scene = Scene::of(vec![
        devices(&[(0, "a")]),
        statistics(0, vec![counters(&values)]),
        counter_mode(0, 2, 0),
        bound(0, &(1..=100).map(|id| Set { id, qpns: vec![id + 20], ..Set::default() }).collect::<Vec<_>>()),
    ]);
    let port = |all: &[Value]| only(all, "counters").iter().filter(|set| set["source"] == "nldev").count();
    assert_eq!(port(&scene.poll(1)), 1);
    let reason = scene.gap("counters in between").unwrap();
    assert!(reason.contains("100 counters bound to QPs") && reason.contains("3000 firmware commands"), "{reason}");
    assert!(reason.contains("every 3 s"), "{reason}");
    assert_eq!(port(&scene.poll(2)), 0);
    assert_eq!(port(&scene.poll(3)), 0);
    assert_eq!(port(&scene.poll(4)), 1);
}

#[test]
fn bound_counters_are_not_listed_where_the_mode_says_none() {
    let mut scene = Scene::of(vec![
        devices(&[(0, "a")]),
        statistics(0, vec![counters(&[("rx_bytes", 7)])]),
        counter_mode(0, 0, 0),
        bound(0, &[Set::default()]),
    ]);
    scene.poll(1);
    assert_eq!(scene.asked(command::STAT_GET), 2, "the mode and the counters");
    assert_eq!(scene.gap("counters in between"), None);
}

#[test]
fn a_covered_port_that_refuses_has_the_devices_listed_again() {
    let mut scene = Scene::of(vec![
        devices(&[(0, "a")]),
        devices(&[]),
        statistics(0, vec![counters(&[("rx_bytes", 7)])]),
        statistics(0, vec![refusal(-22)]),
    ]);
    scene.poll(1);
    assert_eq!(scene.source.covered_devices(), ["a"]);
    scene.poll(2);
    assert_eq!(scene.source.covered_devices(), [""; 0], "sysfs takes over at once");
    assert_eq!(scene.source.due(), 2 * SECOND);
    scene.poll(2);
    assert!(scene.source.devices.is_empty());
}
