//! What `whatif` says of questions whose answers are known, and of questions that have none.

use super::*;
use crate::engine::Engine;
use crate::observation::recording::{Header, Reader};
use crate::rule::Settings;

/// A short form of the common question.
fn question() -> Question {
    let mut question = Question::common();
    question.params.duration_ns = 60_000_000;
    question.params.warm_up_ns = 12_000_000;
    question.seeds = 2;
    question
}

#[test]
fn the_common_question_is_answered_with_kmax_and_its_price() {
    let report = question().answer().unwrap();
    let [given, against] = [&report.results[0], &report.results[1]];
    assert!(given.utilisation > 0.55 && against.utilisation / given.utilisation > 1.15, "{:?}", report.results);
    assert!(report.advice.contains("Kmax carries it: Kmax alone (1 MiB) gives 0.7"), "{}", report.advice);
    assert!(report.advice.contains("Kmin alone (200 KiB) gives 0.6"), "{}", report.advice);
    assert!(report.advice.contains("p99 queue") && report.advice.contains("without a mark"), "{}", report.advice);
    assert!(report.advice.contains("In the first setting Kmax is below two bandwidth-delay products (781 KiB)"));
    assert_eq!(report.knobs.iter().map(|knob| knob.changed).collect::<Vec<_>>(), ["kmin", "kmax"]);
    assert_eq!((given.l, given.k_star_bytes, given.pause_share), (2.0, 68_000, None));
    let text = report.text();
    for part in ["premature, L = 2", "K* = 66.4 KiB", "seeds 1, 2", "not a measurement", &report.advice] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_report_has_the_documented_shape() {
    let mut question = question();
    question.params.duration_ns = 2_000_000;
    question.params.warm_up_ns = 0;
    question.seeds = 1;
    let report = serde_json::to_value(question.answer().unwrap()).unwrap();
    let result = report["results"][1].as_object().unwrap();
    let keys = ["utilisation", "mark_rate", "premature_share", "L", "k_star_bytes", "missed_share", "queue_p99_bytes"];
    assert!(keys.iter().all(|key| result[*key].is_number()), "{result:?}");
    assert!(result["pause_share"].is_null() && result["utilisation_scatter"].is_null(), "{result:?}");
    assert_eq!(report["settings"][1]["kmax_bytes"], 1 << 20);
    assert_eq!(report["by_l"][2]["L"], 4.0);
    assert_eq!(report["knobs"][0]["changed"], "kmin");
    assert!(report["advice"].is_string() && report["model"]["seeds"] == serde_json::json!([1]), "{report}");
}

#[test]
fn evenly_paced_packets_without_pfc_leave_undefined_what_has_no_definition() {
    let mut question = question();
    question.params.workload = Workload::Paced { load: 0.5, message_bytes: 262_144 };
    question.params.red = Red { kmin_bytes: 300_000, kmax_bytes: 600_000, pmax: 0.01 };
    let report = question.answer().unwrap();
    let result = &report.results[0];
    assert!((result.utilisation - 0.5).abs() < 0.01, "{result:?}");
    assert_eq!((result.mark_rate, result.premature_share, result.missed_share), (Some(0.0), None, None));
    assert!(report.advice.starts_with("Both settings carry the same"), "{}", report.advice);
    let text = report.text();
    assert!(text.contains("evenly paced packets at 50 % load") && text.contains('–'), "{text}");
    assert!(!text.contains("NaN"), "{text}");
}

#[test]
fn pfc_is_a_difference_like_others_and_pause_is_then_a_number() {
    let mut question = question();
    question.params.workload = Workload::Incast { message_bytes: 262_144 };
    question.params.duration_ns = 20_000_000;
    question.params.warm_up_ns = 0;
    let pfc = Pfc { xoff_bytes: 500_000, xon_bytes: 450_000, delay_ns: 1_000 };
    question.against = Setting { red: question.params.red, control: question.params.control, pfc: Some(pfc) };
    let report = question.answer().unwrap();
    assert_eq!(report.results[0].pause_share, None);
    assert!(report.results[1].pause_share.unwrap() > 0.0, "{:?}", report.results[1]);
    assert!(report.knobs.is_empty());
    assert_eq!(report.settings[1].xoff_bytes, Some(500_000));
}

#[test]
fn the_share_of_premature_marks_is_that_of_the_declared_l() {
    let share = |l| {
        let mut question = question();
        question.l = l;
        question.seeds = 1;
        question.params.workload = Workload::Bursts { bytes: 65_536, load: 0.6 };
        question.answer().unwrap().results[0].premature_share.unwrap()
    };
    assert!(share(1.0) < 0.2 && share(8.0) > 0.9);
}

#[test]
fn what_cannot_be_answered_is_said_in_a_sentence() {
    let wrong = |change: fn(&mut Question)| {
        let mut question = question();
        change(&mut question);
        question.answer().unwrap_err().to_string()
    };
    assert!(wrong(|question| question.against = question.given()).starts_with("both settings are the same"));
    assert!(wrong(|question| question.against.red.kmin_bytes = 2 << 20).starts_with("--against: Kmin must not"));
    assert!(wrong(|question| question.params.duration_ns = 50_000_000_000).contains("million packets"));
    assert!(
        wrong(|question| (question.params.duration_ns, question.params.warm_up_ns) = (700_000, 0))
            .contains("100 round trips")
    );
    assert!(wrong(|question| question.l = f64::NAN).starts_with("L is"));
    assert!(wrong(|question| question.seeds = 0).contains("seeds"));
    assert!(wrong(|question| question.params.senders = 5_000).contains("senders"));
}

#[test]
fn a_ports_parameters_are_taken_from_a_recording_and_what_was_not_read_is_said() {
    let log = [
        r#"{"type":"header","format":"rdmascope-recording","version":1}"#,
        r#"{"t":1,"type":"device","device":"mlx5_0","driver":"mlx5_core"}"#,
        r#"{"t":1,"type":"port","device":"mlx5_0","port":1,"link_layer":"Ethernet","state":"ACTIVE","rate_gbps":200}"#,
        r#"{"t":1,"type":"port","device":"mlx5_0","port":2,"link_layer":"Ethernet","state":"ACTIVE","rate_gbps":200}"#,
        r#"{"t":2,"type":"congestion_config","device":"mlx5_0","port":1,"np":{"min_time_between_cnps":50},"rp":{"rpg_time_reset":55}}"#,
    ];
    let log = log.join("\n");
    let mut engine = Engine::new(Header::new(), Settings::default());
    let mut reader = Reader::new(log.as_bytes()).unwrap();
    while reader.next(|observation| engine.take(observation)).unwrap().is_some() {}
    let (control, port, rate) = port_parameters(engine.world(), "mlx5_0/1").unwrap();
    assert_eq!((control.increase_period_ns, control.cnp_interval_ns, rate), (55_000, 50_000, Some(200.0)));
    assert!(port.assumed.contains(&"dce_tcp_g") && !port.assumed.contains(&"rpg_time_reset"), "{port:?}");
    let wrong = |name: &str| port_parameters(engine.world(), name).unwrap_err().to_string();
    assert_eq!(wrong("mlx5_0/2"), "the port mlx5_0/2 has no congestion control parameters there");
    assert_eq!(wrong("mlx5_1/1"), "the port mlx5_1/1 is not there");
    assert!(wrong("mlx5_0").contains("DEVICE/PORT"));
    let mut question = question();
    question.params.duration_ns = 2_000_000;
    question.params.warm_up_ns = 0;
    question.seeds = 1;
    let report = WhatIfReport { port: Some(port), ..question.answer().unwrap() };
    let text = report.text();
    assert!(text.contains("parameters of mlx5_0/1:") && text.contains("taken to be the default: dce_tcp_g"), "{text}");
}
