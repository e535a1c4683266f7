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

/// The sets that were told, without the port's own counters.
fn bound_sets(all: &[Value]) -> Vec<Value> {
    only(all, "counters").into_iter().filter(|set| set["source"] == "qp").cloned().collect()
}

fn rc(id: u32, qpns: &[u32], value: u64) -> Set<'static> {
    Set { id, mask: 1, qp_type: 2, qpns: qpns.to_vec(), values: vec![("out_of_buffer", value)], ..Set::default() }
}

/// A device with one port whose counters answer.
fn device_a() -> Vec<Exchange> {
    vec![devices(&[(0, "a")]), statistics(0, vec![counters(&[("out_of_buffer", 7)])])]
}

#[test]
fn a_bound_set_is_told_with_the_qps_it_counts_together_and_of_none_of_them_alone() {
    let of_process = Set { mask: 3, pid: 41, ..rc(5, &[40], 2) };
    let by_hand = Set { id: 6, qpns: vec![50], values: vec![("out_of_buffer", 3)], ..Set::default() };
    let mut exchanges = device_a();
    exchanges.extend([
        counter_mode(0, 1, 1),
        bound(0, &[rc(4, &[18, 17], 1), of_process.clone(), by_hand.clone()]),
        bound(0, &[rc(4, &[18, 17], 9), of_process, by_hand]),
        bound(0, &[rc(4, &[17], 9)]),
    ]);
    let mut scene = Scene::of(exchanges);
    let sets = bound_sets(&scene.poll(1));
    assert_eq!(
        sets,
        [
            serde_json::json!({"type": "counters", "device": "a", "port": 1, "source": "qp", "qp_type": "RC", "set": 4,
                "qpns": [17, 18], "values": {"out_of_buffer": 1}}),
            serde_json::json!({"type": "counters", "device": "a", "port": 1, "source": "qp", "qp_type": "RC", "pid": 41,
                "set": 5, "qpns": [40], "values": {"out_of_buffer": 2}}),
            serde_json::json!({"type": "counters", "device": "a", "port": 1, "source": "qp", "qpn": 50, "set": 6,
                "qpns": [50], "values": {"out_of_buffer": 3}}),
        ],
        "only the one that was bound by hand to one QP names it"
    );
    assert_eq!(bound_sets(&scene.poll(2)).len(), 0, "they are read every five seconds");
    let again = bound_sets(&scene.poll(6));
    assert_eq!((again.len(), &again[0]["values"]["out_of_buffer"]), (3, &9.into()));
    assert!(again.iter().all(|set| set.get("qpns").is_none()), "QPs are told when they change: {again:?}");
    let fewer = bound_sets(&scene.poll(11));
    assert_eq!(fewer[0]["qpns"], serde_json::json!([17]));
    let gone: Vec<_> = fewer[1..].iter().map(|set| (&set["set"], &set["removed"])).collect();
    assert_eq!(gone, [(&5.into(), &true.into()), (&6.into(), &true.into())]);
    assert_eq!(scene.gap("counters bound to QPs of a port 1"), None);
}

#[test]
fn a_set_bound_by_hand_to_one_qp_after_another_is_of_none_of_them_alone() {
    let by_hand =
        |qpns: &[u32]| bound(0, &[Set { id: 6, qpns: qpns.to_vec(), values: vec![("a", 3)], ..Set::default() }]);
    let mut exchanges = device_a();
    exchanges.extend([counter_mode(0, 2, 0), by_hand(&[50]), by_hand(&[51]), by_hand(&[51])]);
    let mut scene = Scene::of(exchanges);
    let alone: Vec<_> = [1, 6, 11].map(|second| bound_sets(&scene.poll(second))[0].get("qpn").cloned()).into();
    assert_eq!(alone, [Some(50.into()), None, None]);
}

#[test]
fn sets_are_gone_when_the_mode_says_that_nothing_is_bound() {
    let mut exchanges = device_a();
    exchanges.extend([counter_mode(0, 1, 1), counter_mode(0, 0, 0), bound(0, &[rc(4, &[17], 1)])]);
    let mut scene = Scene::of(exchanges);
    assert_eq!(bound_sets(&scene.poll(1)).len(), 1);
    let gone = bound_sets(&scene.poll(6));
    assert_eq!((gone.len(), &gone[0]["set"], &gone[0]["removed"]), (1, &4.into(), &true.into()));
    assert_eq!(bound_sets(&scene.poll(11)).len(), 0);
}

#[test]
fn a_set_that_a_list_may_have_skipped_is_not_taken_for_gone() {
    let mut exchanges = device_a();
    let interrupted = message(command::STAT_GET, scene::MULTI | INTERRUPTED, &[]);
    exchanges.extend([
        counter_mode(0, 1, 1),
        bound(0, &[rc(4, &[17], 1)]),
        scene::bound_answer(0, vec![interrupted, done(0)]),
        scene::bound_answer(0, vec![refusal(-12)]),
    ]);
    let mut scene = Scene::of(exchanges);
    assert_eq!(bound_sets(&scene.poll(1)).len(), 1);
    assert_eq!(bound_sets(&scene.poll(6)).len(), 0);
    assert_eq!(bound_sets(&scene.poll(11)).len(), 0);
    assert!(scene.gap("counters bound to QPs of a port 1").unwrap().contains("the list failed"));
}

#[test]
fn a_set_that_fits_in_no_message_ends_its_list_and_not_the_source() {
    let mut exchanges = device_a();
    let without_end = (0..3000).map(|_| scene::set_part(&[])).collect();
    exchanges.extend([counter_mode(0, 1, 1), scene::bound_answer(0, without_end)]);
    let mut scene = Scene::of(exchanges);
    let all = scene.poll(1);
    assert_eq!(bound_sets(&all).len(), 0);
    assert_eq!(only(&all, "counters").len(), 1, "the port's own counters are read");
    let gap = scene.gap("counters bound to QPs of a port 1").unwrap();
    assert!(gap.contains("more QPs than the kernel can list"), "{gap}");
    let asked = scene.asked(command::STAT_GET);
    scene.poll(6);
    assert_eq!(scene.asked(command::STAT_GET) - asked, 2, "the mode and the port, and no list for a minute");
    scene.poll(61);
    assert_eq!(scene.asked(command::STAT_GET) - asked, 5);
}

#[test]
fn a_set_without_counters_is_unknown_and_not_zero() {
    let mut exchanges = device_a();
    exchanges.extend([counter_mode(0, 1, 1), bound(0, &[Set { values: Vec::new(), ..rc(4, &[17], 0) }])]);
    let sets = bound_sets(&Scene::of(exchanges).poll(1));
    assert_eq!(sets[0]["values"], serde_json::json!({}));
    assert!(sets[0]["unavailable"]["*"].as_str().unwrap().contains("no counter of the set"));
}

#[test]
fn the_source_sends_nothing_but_questions() {
    let mut exchanges = device_a();
    exchanges.extend([counter_mode(0, 1, 1), bound(0, &[rc(4, &[17], 1)]), qp_count(0, 2)]);
    exchanges.push(qp_list(0, vec![qp_part(0, &[(17, RTS, 41)]), done(0)]));
    let mut scene = Scene::of(exchanges);
    for second in [1, 2, 6, 11] {
        scene.poll(second);
    }
    scene.source.ports();
    let reading =
        [command::GET, command::PORT_GET, command::SYS_GET, command::RES_GET, command::RES_QP_GET, command::STAT_GET];
    let asked = scene.asked.lock().unwrap();
    assert!(asked.len() > 10);
    for request in asked.iter() {
        let kind = u16::from_ne_bytes([request[4], request[5]]);
        assert!(
            uapi::is_nldev(kind) && reading.contains(&uapi::command_of(kind)),
            "command {}",
            uapi::command_of(kind)
        );
    }
}
