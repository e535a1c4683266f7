//! The cases of `tests/cases` through the built binary: every sentence of every `expected.json` is one value of its
//! output. Which value is said in one table, `cases/sentences.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use collector::engine::Engine;
use collector::observation::recording::Header;
use collector::observation::{Body, Observation, SourceState};
use collector::rule::Settings;
use collector::source::Source;
use collector::source::files::RootedFiles;
use collector::source::files::faults::FaultyFiles;
use collector::source::pcie::{PcieOptions, PcieSource};
use collector::source::sysfs::{SysfsOptions, SysfsSource, rate};
use end_to_end::binary::Run;
use end_to_end::fixture::Case;
use end_to_end::reading::{alike, read, select};
use serde::Deserialize;
use serde_json::{Value, json};

/// The table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: BTreeMap<String, Rows>,
}

/// The rows of one case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    sentences: Vec<Sentence>,
    #[serde(default)]
    facts: Vec<Fact>,
    /// A configuration for the commands that judge, where the case asks for thresholds of its own.
    #[serde(default)]
    config: String,
}

impl Rows {
    /// All expressions, one a line.
    fn expressions(&self) -> String {
        let sentences = self.sentences.iter().flat_map(|row| row.read.list().into_iter().chain(row.beside.as_deref()));
        let facts = self.facts.iter().flat_map(|fact| [fact.read.as_str()].into_iter().chain(fact.beside.as_deref()));
        sentences.chain(facts).collect::<Vec<_>>().join("\n")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sentence {
    #[serde(default, rename = "where")]
    place: String,
    what: String,
    #[serde(default = "whole")]
    trees: Vec<String>,
    read: OneOrMore,
    #[serde(default)]
    compare: Compare,
    times: Option<f64>,
    beside: Option<String>,
    /// Where the sentence is prose: what the program must show for it to be true.
    means: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fact {
    #[serde(default = "whole")]
    trees: Vec<String>,
    read: String,
    /// Absent: null.
    #[serde(default)]
    value: Value,
    #[serde(default)]
    compare: Compare,
    beside: Option<String>,
    why: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn list(&self) -> Vec<&str> {
        match self {
            Self::One(one) => vec![one],
            Self::More(more) => more.iter().map(String::as_str).collect(),
        }
    }
}

/// `@mlx5_0/1` as the path of the port, `@mlx5_0` as that of all ports of the device.
fn written_out(expression: &str) -> String {
    let mut parts = expression.split('@');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(['.', ' ', '}']).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let conditions = name
            .split_once('/')
            .map_or_else(|| format!("device={name}"), |(device, port)| format!("device={device},port={port}"));
        text.push_str(&format!("ports.ports[{conditions}]{rest}"));
    }
    text
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Compare {
    #[default]
    Equal,
    IgnoreCase,
    Holds,
    Names,
    AtMost,
    Says,
}

fn whole() -> Vec<String> {
    vec![String::new()]
}

fn table() -> Table {
    toml::from_str(include_str!("cases/sentences.toml")).expect("sentences.toml has this form")
}

/// One sentence or fact, ready to be judged.
struct Judged<'t> {
    trees: &'t [String],
    read: Vec<&'t str>,
    compare: Compare,
    times: Option<f64>,
    beside: Option<&'t str>,
    expected: &'t Value,
}

impl Judged<'_> {
    fn judge(&self, documents: &BTreeMap<String, Value>) -> Result<(), String> {
        let mut results = Vec::new();
        for tree in self.trees {
            let document = &documents[tree];
            for expression in &self.read {
                let mut value = read(document, &written_out(expression))?;
                if let Some(times) = self.times {
                    value = value.as_f64().map_or(Value::Null, |number| json!(number * times));
                }
                results.push(value);
            }
            if let Some(beside) = self.beside
                && select(document, &written_out(beside))?.iter().all(|value| value.is_null())
            {
                return Err(format!("nothing at {beside}"));
            }
        }
        if self.expected.is_null() {
            if self.beside.is_none() {
                return Err("null needs a beside".to_owned());
            }
            let known: Vec<_> = results.iter().filter(|value| !value.is_null()).collect();
            return if known.is_empty() { Ok(()) } else { Err(format!("{known:?} is known")) };
        }
        let found = if results.len() == 1 { results.remove(0) } else { Value::Array(results) };
        if self.compare.holds(&found, self.expected) {
            Ok(())
        } else {
            Err(format!("{found} instead of {}", self.expected))
        }
    }
}

impl Compare {
    fn holds(self, found: &Value, expected: &Value) -> bool {
        let lower = |value: &Value| value.to_string().to_lowercase();
        let texts = |value: &Value| -> Vec<String> {
            let list = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            list.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect()
        };
        match self {
            Self::Equal => alike(found, expected),
            Self::IgnoreCase => lower(found) == lower(expected),
            Self::Holds => {
                let (found, expected) = (texts(found), texts(expected));
                !expected.is_empty() && expected.iter().all(|text| found.iter().any(|found| found.contains(text)))
            }
            Self::Names => {
                let found = texts(found);
                let names = expected.as_str().unwrap_or_default().split(", ");
                names.into_iter().all(|name| found.iter().any(|found| found == name))
            }
            Self::Says => {
                let said = scalars(found).join("\n");
                let expected = scalars(expected);
                !expected.is_empty() && expected.iter().all(|text| said.contains(text))
            }
            Self::AtMost => {
                let most: Option<f64> = expected.as_str().and_then(|text| text.strip_prefix("<= ")?.parse().ok());
                let found = found.as_array().cloned().unwrap_or_else(|| vec![found.clone()]);
                most.is_some_and(|most| found.iter().all(|n| n.as_f64().is_some_and(|n| n <= most)))
            }
        }
    }
}

/// The texts and numbers in a value, as texts.
fn scalars(value: &Value) -> Vec<String> {
    match value {
        Value::Array(list) => list.iter().flat_map(scalars).collect(),
        Value::Object(fields) => fields.values().flat_map(scalars).collect(),
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    }
}

/// Everything the product says of one tree of a case.
fn document(number: &str, tree: &str, rows: &Rows) -> Value {
    let case = Case::unpack(number);
    if case.at("FAULTS.tsv").exists() {
        return with_faults(&case);
    }
    let root = match tree {
        "newer-names" => {
            add_newer_names(&case);
            case.path()
        }
        "" => case.path(),
        samples if case.at("TIMES").exists() => {
            case.keep_samples(&samples.split(',').collect::<Vec<_>>());
            case.path()
        }
        variant => case.at(variant),
    };
    let recording = case.at("recording.jsonl");
    let settings = case.at("settings.toml");
    let imported = Run::of([Path::new("import"), Path::new("--json"), &root, Path::new("-o"), &recording]);
    let report = imported.json();
    let refused = report["not_recognised"].as_array().map_or(0, Vec::len);
    assert_eq!(imported.code, Some(if refused == 0 { 0 } else { 2 }), "case {number}: {imported:?}");
    assert_eq!(imported.stderr.lines().count(), 1 + refused, "case {number}: {imported:?}");
    std::fs::write(&settings, &rows.config).expect("the settings can be written");
    // Only what a row asks for: a case of a day is judged for seconds each time.
    let asked = rows.expressions();
    let judged = |command: &str, words: &[&str]| {
        words.iter().any(|word| asked.contains(word)).then(|| {
            let args = [command, "--json", "--recording"].map(Path::new);
            let run = Run::of(args.into_iter().chain([&*recording, Path::new("--config"), &settings]));
            assert_eq!(run.stderr, "", "case {number}: {command}");
            run
        })
    };
    let (ports, findings, qps) =
        (judged("ports", &["@", "ports."]), judged("findings", &["findings["]), judged("qps", &["qps["]));
    for run in [&ports, &findings, &qps].into_iter().flatten() {
        assert_eq!(run.code, Some(0), "case {number}: {run:?}");
    }
    let check = judged("check", &["check", "exit"]);
    let lines =
        |text: &str| -> Vec<Value> { text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() };
    let events = asked.contains("events[").then(|| {
        let args = ["replay", "--json", "--config"].map(Path::new);
        lines(&Run::of(args.into_iter().chain([&*settings, &*recording])).stdout)
    });
    let json = |run: Option<&Run>| run.map(Run::json);
    let mut document = json!({
        "ports": json(ports.as_ref()),
        "check": [json(check.as_ref())],
        "exit": check.and_then(|run| run.code),
        "findings": json(findings.as_ref()).map(|report| report["findings"].clone()),
        "qps": json(qps.as_ref()).map(|report| report["qps"].clone()),
        "import": report,
        "recording": lines(&std::fs::read_to_string(&recording).expect("a recording")),
        "events": events,
    });
    if asked.contains("record.") {
        document["record"] = recorded(&root.join("sys"), &case.at("live.jsonl"));
    }
    document
}

/// What `record` says while it polls a tree without a device some times.
fn recorded(root: &Path, file: &Path) -> Value {
    let mut args = vec![Path::new("record"), file, Path::new("--sysfs-root"), root];
    args.extend(["--for", "400ms", "--interval", "100ms"].map(Path::new));
    let run = Run::of(args);
    assert_eq!(run.code, Some(0), "{run:?}");
    let text = std::fs::read_to_string(file).expect("a recording");
    let header: Value = serde_json::from_str(text.lines().next().unwrap_or_default()).expect("a header");
    let reason = header["note"].as_str().expect("the header says why there is no device");
    let lines = |text: &str| text.lines().filter(|line| line.contains(reason)).count();
    // The recording has it in its header and in one line of the source.
    assert!(lines(&text) <= 2, "{text}");
    json!({"lines_on_no_device": lines(&run.stderr)})
}

/// The same through a reader that answers with the case's errnos, which a plain file cannot.
fn with_faults(case: &Case) -> Value {
    let files = FaultyFiles::new(RootedFiles::new(case.at("sys")).expect("the case has a tree"));
    files.fail_as_in(&std::fs::read_to_string(case.at("FAULTS.tsv")).expect("the case has faults"));
    let files = Arc::new(files);
    let mut engine = Engine::new(Header::new(), Settings::default());
    let mut sysfs = SysfsSource::new(SysfsOptions::new(files.clone()));
    let mut pcie = PcieSource::new(PcieOptions::new(files.clone()));
    for source in [&mut sysfs as &mut dyn Source, &mut pcie] {
        source.poll(0, &mut |observation| engine.take(observation));
        let sees = source.availability();
        let (state, reason) = (sees.state, sees.reason().map(Into::into));
        engine.take(&Observation { t: 0, body: Body::Source(SourceState { source: sees.name.into(), state, reason }) });
    }
    engine.finish();
    let view = engine.view();
    let check = collector::command::check::report(&view);
    let opened: Vec<Value> = files.opened().into_iter().map(|path| json!({"path": path})).collect();
    json!({
        "ports": collector::command::ports::report(view.world),
        "exit": check.verdict.exit_code(),
        "check": [check],
        "findings": collector::command::findings::report(view.world).findings,
        "opened": opened,
    })
}

/// Puts the counters that a newer driver has into the tree.
fn add_newer_names(case: &Case) {
    let names = case.aside("newer-names.txt");
    let dir = case.at("sys/class/infiniband/efa_0/ports/1/hw_counters");
    for line in names.lines() {
        let (name, value) = line.split_once(' ').expect("a name and a number");
        std::fs::write(dir.join(name), value).expect("the counter can be written");
    }
}

/// Judges every row of one case.
fn judge(number: &str) {
    let table = table();
    let case = Case::unpack(number);
    let expected = case.expected();
    let key = |value: &Value| {
        let text = |name: &str| match &value[name] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let places = ["where", "file", "host", "line"].map(text);
        (places.into_iter().find(|place| !place.is_empty()).unwrap_or_default(), text("what"))
    };
    let all = &table.case[number];
    let Rows { sentences: rows, facts, .. } = all;
    let said: BTreeSet<_> = expected.iter().map(key).collect();
    assert_eq!(said.len(), expected.len(), "case {number}: two sentences have the same where and what");
    let mapped: BTreeSet<_> = rows.iter().map(|row| (row.place.clone(), row.what.clone())).collect();
    assert_eq!(mapped.len(), rows.len(), "case {number}: two rows of one sentence");
    assert_eq!(said, mapped, "case {number}: left are the sentences of expected.json, right those of the table");

    let mut documents = BTreeMap::new();
    for tree in rows.iter().flat_map(|row| &row.trees).chain(facts.iter().flat_map(|fact| &fact.trees)) {
        documents.entry(tree.clone()).or_insert_with(|| document(number, tree, all));
    }
    let mut wrong = Vec::new();
    for row in rows {
        let sentence = expected.iter().find(|said| key(said) == (row.place.clone(), row.what.clone()));
        let judged = Judged {
            trees: &row.trees,
            read: row.read.list(),
            compare: row.compare,
            times: row.times,
            beside: row.beside.as_deref(),
            expected: row.means.as_ref().unwrap_or(&sentence.expect("every row has its sentence")["value"]),
        };
        wrong.extend(judged.judge(&documents).err().map(|error| format!("{} {}: {error}", row.place, row.what)));
    }
    for fact in facts {
        let judged = Judged {
            trees: &fact.trees,
            read: vec![&fact.read],
            compare: fact.compare,
            times: None,
            beside: fact.beside.as_deref(),
            expected: &fact.value,
        };
        wrong.extend(judged.judge(&documents).err().map(|error| format!("{} ({}): {error}", fact.read, fact.why)));
    }
    assert!(wrong.is_empty(), "case {number}:\n{}", wrong.join("\n"));
}

macro_rules! cases {
    ($($name:ident = $number:literal,)*) => {
        $(#[test]
        fn $name() {
            judge($number);
        })*

        #[test]
        fn the_table_has_no_row_of_a_case_without_a_test() {
            let table = table();
            let cases: BTreeSet<&str> = table.case.keys().map(String::as_str).collect();
            assert_eq!(cases, BTreeSet::from([$($number),*]));
        }
    };
}

cases! {
    case_01_text_in_every_counter_file_is_unavailable_and_hides_no_device = "01",
    case_02_two_readings_of_one_count_are_taken_once = "02",
    case_03_an_odd_physical_state_and_missing_files_cost_only_themselves = "03",
    case_05_counters_that_answer_einval_leave_the_other_ports = "05",
    case_07_a_driver_without_counters_has_its_own_names = "07",
    case_10_no_name_decides_anything = "10",
    case_12_links_without_targets_are_devices_that_cannot_be_read = "12",
    case_14_words_are_four_bytes_once = "14",
    case_17_lifespan_is_no_counter_and_a_cached_reading_gives_no_rate = "17",
    case_18_a_write_only_file_is_never_opened = "18",
    case_19_no_device_has_three_reasons = "19",
    case_20_a_slot_that_limits_the_port_is_a_warning_and_an_unknown_link_is_none = "20",
    case_21_empty_gid_slots_are_no_fault = "21",
    case_23_counters_that_fall_together_are_one_reset_without_a_rate = "23",
    case_25_a_wait_above_32_bits_is_exact_and_no_alarm_and_a_silent_node_aborts_nothing = "25",
    case_26_perfquery_counts_words_and_packets_and_no_output_is_no_port = "26",
    case_29_every_qp_of_the_list_has_its_own_state_and_owner = "29",
    case_30_ranges_of_qps_and_counters_bound_to_processes = "30",
    case_31_an_optional_counter_that_is_not_switched_on_is_unavailable = "31",
    case_32_one_sample_gives_totals_and_no_finding = "32",
    case_33_counters_by_priority_before_and_after_give_differences_and_no_rate = "33",
    case_37_the_bits_of_ten_years_of_wordings = "37",
    case_39_a_firmware_failure_is_the_cause_and_the_rest_follows = "39",
    case_42_little_slot_power_is_told_once_and_blamed_for_nothing = "42",
    case_44_flaps_by_the_counter_and_by_the_state_and_one_event_of_eight_ranks = "44",
    case_45_the_first_error_that_is_no_flush_is_the_root = "45",
    case_46_an_access_error_is_not_blamed_on_the_link = "46",
    case_47_a_qp_that_cannot_be_set_up_proves_no_fault_of_a_nic = "47",
    case_50_ports_of_unequal_rates_by_design_are_no_finding = "50",
    case_51_a_management_sub_device_is_a_part_of_its_parent = "51",
    case_52_efa_counts_bytes_and_has_no_congestion_counters = "52",
    case_53_each_vendors_names_give_the_same_meanings = "53",
    case_55_virtual_functions_are_views_of_one_port = "55",
    case_56_a_date_without_a_year_is_before_the_moment_the_log_was_taken = "56",
}

#[test]
fn case_15_every_text_of_a_rate_gives_its_number_lanes_and_speed_and_nothing_invented() {
    let expected = Case::unpack("15").expected();
    assert!(expected.len() >= 21);
    for row in expected {
        let text = row["text"].as_str().expect("a row has its text");
        let rate = rate::parse(text);
        let found = json!({"text": text, "gbps": rate.gbps, "width": rate.lanes, "speed": rate.speed});
        for key in ["gbps", "width", "speed"] {
            assert!(alike(&found[key], &row[key]), "{text:?}: {found} instead of {row}");
        }
    }
}
