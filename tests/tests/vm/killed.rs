//! What stays of `rdmascope record` when it is killed: nothing.

use end_to_end::vm::on_each_kernel;

#[test]
fn nothing_stays_of_a_recorder_that_is_killed_at_any_moment() {
    on_each_kernel("killed", |results| {
        let rounds = results.json_lines("killed.jsonl");
        assert_eq!(rounds.len(), 20, "on {}", results.kernel);
        let clean: serde_json::Value =
            serde_json::from_str(&format!("{{{}}}", results.text("clean").trim())).expect("numbers by name");
        let (mut attached, mut broken_into) = (0, 0);
        for round in &rounds {
            assert_eq!(round["after"], clean, "on {}: {round}", results.kernel);
            attached += i32::from(round["before"]["programs"].as_u64() > clean["programs"].as_u64());
            broken_into += i32::from(round["before"]["changed"] != 0);
        }
        // Otherwise there was nothing that could have stayed.
        assert!(attached >= 5 && broken_into >= 3, "on {}: {rounds:?}", results.kernel);
        println!("on {}: killed with programs loaded {attached} times, attached {broken_into} times", results.kernel);
        assert_eq!((&clean["changed"], &clean["kprobes"]), (&0.into(), &0.into()), "on {}", results.kernel);
    });
}

#[test]
fn the_traced_program_goes_on_unharmed() {
    on_each_kernel("killed", |results| {
        assert_eq!(results.text("traced.rc").trim(), "0", "on {}", results.kernel);
        let told = results.json_lines("traced.jsonl");
        let end = told.iter().find(|line| line["what"] == "end").expect("it came to its end");
        assert_eq!((&end["errors"], &end["completions"]), (&0.into(), &end["posts"]), "on {}: {end}", results.kernel);
    });
}
