//! Every pane of every scenario of `demo` in a real terminal (tmux): reached by keys and by clicks, at every size, and saying
//! what it has to say of that scenario (`scenarios.toml`).
//!
//! A scenario takes as long as it takes, so most are recorded at full speed and opened by `replay`; one is played live.

mod walk;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use collector::observation::recording::Writer;
use collector::sim::{Simulator, Size};
use end_to_end::tmux::Tmux;
use serde::Deserialize;

use walk::{PANES, USUAL, walk};

/// A scenario and what is to be seen of it.
#[derive(Debug, Deserialize)]
struct Scenario {
    name: String,
    seconds: u64,
    qps_per_port: Option<u32>,
    told: String,
    /// Facts by the number of a pane.
    #[serde(flatten)]
    panes: std::collections::BTreeMap<String, Vec<String>>,
}

impl Scenario {
    fn all() -> &'static [Self] {
        #[derive(Deserialize)]
        struct Table {
            scenario: Vec<Scenario>,
        }
        static ALL: OnceLock<Vec<Scenario>> = OnceLock::new();
        ALL.get_or_init(|| {
            toml::from_str::<Table>(include_str!("scenarios.toml")).expect("the table is right").scenario
        })
    }

    fn facts(&self, pane: usize) -> Vec<&str> {
        self.panes[&pane.to_string()].iter().map(String::as_str).collect()
    }

    /// A recording of its first seconds.
    fn record(&self, dir: &Path) -> PathBuf {
        let path = dir.join(format!("{}.jsonl", self.name));
        let simulator = match self.qps_per_port {
            None => Simulator::new(&self.name, 1),
            Some(qps_per_port) => Simulator::with_size(&self.name, 1, Size { qps_per_port }),
        };
        let mut simulator = simulator.expect("there is such a scenario");
        let file = std::io::BufWriter::new(std::fs::File::create(&path).expect("it can be made"));
        let mut writer = Writer::new(file, false, &simulator.header()).expect("it can be written");
        simulator.advance(self.seconds * 1_000_000_000, &mut |observation| {
            writer.write(observation).expect("it can be written");
        });
        writer.finish().expect("it can be written");
        path
    }
}

/// The scenario of this name, and its place among them.
fn shown(name: &str) {
    let (index, scenario) =
        Scenario::all().iter().enumerate().find(|(_, s)| s.name == name).expect("it is in the table");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let recording = scenario.record(dir.path());
    let arguments = format!("replay --speed max {}", recording.display());
    let Some(tmux) = Tmux::binary(name, USUAL, &arguments) else { return };
    tmux.shows(&["REPLAY at its end"]);
    walk(&tmux, index, scenario);
    let pid = tmux.pid();
    tmux.press(&["q"]);
    tmux.wait("the end of the process", || !end_to_end::binary::runs(pid));
}

#[test]
fn every_scenario_and_every_pane_is_in_the_table() {
    let mut names: Vec<&str> = Scenario::all().iter().map(|scenario| scenario.name.as_str()).collect();
    let mut known: Vec<&str> = collector::sim::scenarios().iter().map(|scenario| scenario.name).collect();
    names.sort_unstable();
    known.sort_unstable();
    assert_eq!(names, known);
    for scenario in Scenario::all() {
        assert!((1..=PANES.len()).all(|pane| !scenario.facts(pane).is_empty()), "{}", scenario.name);
    }
}

#[test]
fn healthy() {
    shown("healthy");
}

#[test]
fn ecn_kmin_low() {
    shown("ecn-kmin-low");
}

#[test]
fn pfc_storm() {
    shown("pfc-storm");
}

#[test]
fn dying_optic() {
    shown("dying-optic");
}

#[test]
fn aer_then_down() {
    shown("aer-then-down");
}

#[test]
fn qp_storm() {
    shown("qp-storm");
}

#[test]
fn shared_pcie() {
    shown("shared-pcie");
}

#[test]
fn small_messages() {
    shown("small-messages");
}

#[test]
fn rail_asymmetry() {
    shown("rail-asymmetry");
}

/// The second that the header shows, of its minute.
fn second(screen: &str) -> u32 {
    let clock =
        screen.lines().next().and_then(|line| line.split_whitespace().find(|word| word.matches(':').count() == 2));
    let clock = clock.unwrap_or_else(|| panic!("no clock in the header:\n{screen}"));
    let parts: Vec<u32> = clock.split(':').map(|part| part.parse().expect("a number")).collect();
    parts[1] * 60 + parts[2]
}

#[test]
fn a_live_screen_is_frozen_led_back_and_goes_on() {
    let Some(tmux) = Tmux::binary("live", USUAL, "demo --scenario ecn-kmin-low") else { return };
    let begun = second(&tmux.shows(&["DEMO", "mlx5_8"]));
    tmux.shows(&["mlx5_0/1 +7 ecn.premature"]);
    tmux.press(&["Space"]);
    let frozen = second(&tmux.shows(&["PAUSED"]));
    assert!(frozen >= begun + 4, "it is raised some seconds after the begin: {begun} {frozen}");
    let gone_back = |by: u32| tmux.until(|screen| second(screen) + by <= frozen).expect("it goes back");
    tmux.press(&["Left", "Left"]);
    assert!(gone_back(2).contains("behind (space goes on)"));
    // Before the finding was raised nothing says that it will be.
    tmux.press(&["Left", "Left", "Left", "Left"]);
    tmux.shows(&["── findings: none", "PAUSED"]);
    for (pane, title) in (1..).zip(PANES) {
        tmux.press(&[&pane.to_string()]);
        assert!(second(&tmux.shows(&["PAUSED", &format!("{pane} {title}")])) < frozen, "{title}");
    }
    tmux.press(&["1"]);
    tmux.press(&["Right"; 12]);
    tmux.shows(&["mlx5_0/1 +7 ecn.premature", "here the screen was frozen"]);
    assert_eq!(second(&tmux.screen()), frozen);
    tmux.press(&["Space"]);
    assert!(tmux.until(|screen| screen.contains("DEMO") && second(screen) > frozen).is_ok());
    tmux.resize((80, 24));
    tmux.shows(&["ecn.premature", "q quit"]);
}
