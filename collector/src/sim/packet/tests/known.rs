//! The figures of another model of the same queue, and how near this one comes.
//!
//! That model was run once for 100 ms for each row. One run of 100 ms is one draw: its mark rate scatters by a tenth to a
//! quarter between seeds where the queue is rarely above Kmin, and the premature share of W2 by a quarter.

use super::*;

/// A workload with a setting, and what the other model made of it, with the paper's and the NICs' parameters.
struct Row {
    name: &'static str,
    workload: Workload,
    kmin_kb: u64,
    kmax_kb: u64,
    utilisation: [f64; 2],
    /// Marks, percent of packets; `None` where only "some" is known.
    marks: [Option<f64>; 2],
    /// Premature marks at L = 1, percent of marks.
    premature: [Option<f64>; 2],
    queue_p99_kb: [u64; 2],
}

const fn bursts(kilobytes: u64, load: f64) -> Workload {
    Workload::Bursts { bytes: kilobytes * 1_000, load }
}

const PACED: Workload = Workload::Paced { load: 0.9, message_bytes: 256_000 };
const INCAST: Workload = Workload::Incast { message_bytes: 256_000 };

#[rustfmt::skip]
const ROWS: [Row; 14] = [
    row("W1", PACED, 5, 200, [0.900, 0.900], [Some(0.015), Some(0.015)], [Some(100.0), Some(100.0)], [20, 20]),
    row("W1", PACED, 256, 1024, [0.900, 0.900], [Some(0.0), Some(0.0)], [None, None], [20, 20]),
    row("W2", bursts(64, 0.4), 5, 200, [0.41, 0.41], [Some(0.32), Some(0.32)], [Some(41.0), Some(43.0)], [150, 150]),
    row("W2", bursts(64, 0.4), 256, 1024, [0.41, 0.40], [Some(0.0003), None], [Some(0.0), Some(0.0)], [150, 150]),
    row("W3", bursts(64, 0.6), 5, 200, [0.598, 0.595], [Some(2.6), Some(2.4)], [Some(12.0), Some(11.0)], [250, 250]),
    row("W3", bursts(64, 0.6), 256, 1024, [0.604, 0.604], [Some(0.0014), Some(0.0012)], [Some(0.0), Some(0.0)], [280, 280]),
    row("W4", bursts(256, 0.6), 5, 200, [0.559, 0.550], [Some(15.2), Some(12.7)], [Some(0.3), Some(0.3)], [720, 720]),
    row("W4", bursts(256, 0.6), 256, 1024, [0.584, 0.586], [Some(0.72), Some(1.0)], [Some(0.0), Some(0.0)], [970, 970]),
    row("W5", bursts(256, 0.8), 5, 200, [0.677, 0.618], [Some(15.7), Some(6.4)], [Some(0.2), Some(0.4)], [790, 530]),
    row("W5", bursts(256, 0.8), 5, 1024, [0.761, 0.737], [Some(6.4), Some(4.7)], [Some(0.1), Some(0.2)], [1790, 1500]),
    row("W5", bursts(256, 0.8), 150, 200, [0.678, 0.614], [Some(17.2), Some(7.7)], [Some(0.0), Some(0.0)], [770, 550]),
    row("W5", bursts(256, 0.8), 256, 1024, [0.754, 0.770], [Some(5.4), Some(7.4)], [Some(0.0), Some(0.0)], [1610, 1700]),
    row("W6", INCAST, 5, 200, [0.999, 0.994], [Some(1.1), Some(0.92)], [Some(5.6), Some(6.1)], [196, 196]),
    row("W6", INCAST, 256, 1024, [0.992, 0.934], [Some(5.8), Some(4.6)], [Some(0.0), Some(0.0)], [1130, 1100]),
];

#[allow(clippy::too_many_arguments, reason = "a line of a table")]
const fn row(
    name: &'static str,
    workload: Workload,
    kmin_kb: u64,
    kmax_kb: u64,
    utilisation: [f64; 2],
    marks: [Option<f64>; 2],
    premature: [Option<f64>; 2],
    queue_p99_kb: [u64; 2],
) -> Row {
    Row { name, workload, kmin_kb, kmax_kb, utilisation, marks, premature, queue_p99_kb }
}

fn control(which: usize) -> Control {
    if which == 0 { Control::paper(400.0) } else { Control::nic(400.0) }
}

/// The load of this model with which bursts are followed by silences as long as the other model's.
///
/// This model's are what is left of a cycle when its whole packets are sent, so that undisturbed bursts carry the load. There
/// a silence is as long, in the mean, as a sender's share of the load takes for the burst's nominal bytes, and the burst's own
/// time comes on top: undisturbed bursts of 64 KB at 40 and 60 % carry 0.407 and 0.603, those of 256 KB at 60 and 80 % 0.585
/// and 0.770, and so do its rows in which next to nothing is marked.
fn with_its_silences(workload: Workload) -> Workload {
    let Workload::Bursts { bytes, load } = workload else { return workload };
    let (packet, senders) = (u64::from(Params::example().packet_bytes), f64::from(Params::example().senders));
    let carried = (bytes.div_ceil(packet) * packet) as f64;
    Workload::Bursts { bytes, load: senders * carried / (carried + bytes as f64 * senders / load) }
}

impl Row {
    fn params(&self, which: usize, seed: u64) -> Params {
        let red = Red { kmin_bytes: self.kmin_kb * 1_000, kmax_bytes: self.kmax_kb * 1_000, pmax: 0.01 };
        Params { workload: with_its_silences(self.workload), red, control: control(which), seed, ..Params::example() }
    }
}

fn find(name: &str, kmin_kb: u64) -> &'static Row {
    ROWS.iter().find(|row| row.name == name && row.kmin_kb == kmin_kb).unwrap()
}

#[test]
fn one_run_of_each_kind_comes_near_the_known_figures() {
    // Row, congestion control, the mark rate's tolerance: twice its scatter between seeds.
    for (name, kmin_kb, which, marks) in
        [("W2", 5, 1, 0.5), ("W3", 5, 1, 0.35), ("W5", 5, 0, 0.25), ("W5", 150, 1, 0.35), ("W6", 5, 1, 0.35)]
    {
        let row = find(name, kmin_kb);
        let figures = Measure::of(&row.params(which, 1), &[1.0]);
        let mean = figures.utilisation - row.utilisation[which];
        assert!(mean.abs() <= 0.03, "{name} {kmin_kb}: utilisation {}", figures.utilisation);
        let rate = figures.mark_rate.unwrap() * 100.0 / row.marks[which].unwrap();
        assert!((1.0 - marks..=1.0 + marks).contains(&rate), "{name} {kmin_kb}: marks {rate} times the known rate");
    }
}

#[test]
fn a_larger_kmax_buys_the_goodput_and_a_larger_kmin_alone_nothing() {
    let run = |kmin_kb, kmax_kb| {
        let row = ROWS.iter().find(|row| row.name == "W5" && (row.kmin_kb, row.kmax_kb) == (kmin_kb, kmax_kb));
        Measure::of(&row.unwrap().params(1, 1), &[1.0])
    };
    let (small, kmin, kmax, both) = (run(5, 200), run(150, 200), run(5, 1024), run(256, 1024));
    let gain = |figures: &Figures| figures.utilisation / small.utilisation - 1.0;
    assert!(gain(&kmin) < 0.06, "Kmin alone: {}", gain(&kmin));
    assert!(gain(&kmax) > 0.15, "Kmax alone: {}", gain(&kmax));
    assert!((gain(&both) - gain(&kmax)).abs() < 0.06, "both: {}", gain(&both));
    let queue = |figures: &Figures| figures.queue_p99_bytes.unwrap() as f64;
    assert!(queue(&both) > 2.0 * queue(&small), "and it is paid with queue");
}

#[test]
fn the_premature_share_of_one_run_depends_on_l_and_missed_intervals_grow_with_kmin() {
    let l = [1.0, 2.0, 4.0, 8.0];
    let low = Measure::of(&find("W3", 5).params(1, 1), &l);
    let share: Vec<f64> = l.iter().map(|l| low.at(*l).unwrap().premature_share().unwrap()).collect();
    assert!(share.is_sorted() && share[0] < 0.2 && share[1] < 0.7 && share[2] > 0.75 && share[3] > 0.95, "{share:?}");
    let high = Measure::of(&find("W3", 256).params(1, 1), &l);
    let missed = |figures: &Figures| figures.at(1.0).unwrap().missed_share().unwrap();
    assert!(missed(&low) < 0.25 && missed(&high) > 0.95, "{} {}", missed(&low), missed(&high));
}

/// Seeds of the table.
const SEEDS: u64 = 32;

/// Mean of what the seeds gave, and its scatter between them.
fn spread(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt())
}

/// The part of a workload's name that is not its number.
fn described(row: &Row) -> String {
    match row.workload {
        Workload::Paced { load, .. } => format!("paced {:.0} %", load * 100.0),
        Workload::Bursts { bytes, load } => format!("bursts of {} KB, {:.0} %", bytes / 1_000, load * 100.0),
        Workload::Incast { .. } => "16:1 for ever".to_owned(),
    }
}

fn percent(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (0..5).find(|digits| value * 10.0_f64.powi(*digits) >= 10.0).unwrap_or(5);
    format!("{value:.*}", usize::try_from(digits).unwrap())
}

/// The table of docs/whatif.md.
fn table() -> String {
    let mut text = "| workload | Kmin/Kmax KB | DCQCN | utilisation | marks % | premature % | queue p99 KB |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in &ROWS {
        for (which, name) in ["paper", "nic"].into_iter().enumerate() {
            let runs: Vec<Figures> = (1..=SEEDS).map(|seed| Measure::of(&row.params(which, seed), &[1.0])).collect();
            let (utilisation, by) = spread(&runs.iter().map(|run| run.utilisation).collect::<Vec<_>>());
            let (marks, marks_by) = spread(&runs.iter().map(|run| run.mark_rate.unwrap() * 100.0).collect::<Vec<_>>());
            let shares: Vec<f64> =
                runs.iter().filter_map(|run| run.at(1.0)?.premature_share().map(|share| share * 100.0)).collect();
            let premature = if shares.is_empty() { "–".to_owned() } else { percent(spread(&shares).0) };
            let queue = runs.iter().map(|run| run.queue_p99_bytes.unwrap() as f64 / 1e3).sum::<f64>() / SEEDS as f64;
            let known = |value: Option<f64>| value.map_or("–".to_owned(), percent);
            text.push_str(&format!(
                "| {} {} | {}/{} | {name} | {:.3} · {utilisation:.3} ± {by:.3} | {} · {} ± {} | {} · {premature} | {} · {queue:.0} |\n",
                row.name,
                described(row),
                row.kmin_kb,
                row.kmax_kb,
                row.utilisation[which],
                known(row.marks[which]),
                percent(marks),
                percent(marks_by),
                known(row.premature[which]),
                row.queue_p99_kb[which],
            ));
            assert!((utilisation - row.utilisation[which]).abs() <= 0.03, "{} {} {name}", row.name, row.kmin_kb);
        }
    }
    text
}

/// How the shares depend on L with the NICs' parameters at 5/200 KB: workload, premature shares in percent that the
/// other model had for L = 1, 2, 4, 8.
const BY_L: [(&str, [f64; 4]); 2] = [("W3", [11.0, 45.0, 94.0, 100.0]), ("W5", [0.4, 0.6, 23.0, 72.0])];

/// The table of premature and missed shares by L of docs/whatif.md.
fn table_by_l() -> String {
    let l = [1.0, 2.0, 4.0, 8.0];
    let mut text = "| workload | share | L = 1 | L = 2 | L = 4 | L = 8 |\n|---|---|---|---|---|---|\n".to_owned();
    let mut row = |name: String, share: &str, cells: Vec<String>| {
        text.push_str(&format!("| {name} | {share} | {} |\n", cells.join(" | ")));
    };
    for (name, known) in BY_L {
        for kmin_kb in [5, 256] {
            let setting = find(name, kmin_kb);
            let runs: Vec<Figures> = (1..=SEEDS).map(|seed| Measure::of(&setting.params(1, seed), &l)).collect();
            let mean = |share: &dyn Fn(truth::Counts) -> Option<f64>, l: f64| {
                let shares: Vec<f64> =
                    runs.iter().filter_map(|run| share(run.at(l)?).map(|share| share * 100.0)).collect();
                if shares.is_empty() { "–".to_owned() } else { percent(spread(&shares).0) }
            };
            let title = format!("{name}, {}/{} KB", setting.kmin_kb, setting.kmax_kb);
            if kmin_kb == 5 {
                let cell =
                    |(l, known): (&f64, &f64)| format!("{} · {}", percent(*known), mean(&|c| c.premature_share(), *l));
                row(title.clone(), "premature %", l.iter().zip(&known).map(cell).collect());
            }
            row(title, "missed %", l.iter().map(|l| mean(&|c| c.missed_share(), *l)).collect());
        }
    }
    text
}

#[test]
#[ignore = "tool: some minutes; runs every row with 32 seeds, prints the table of docs/whatif.md and compares it"]
fn the_page_shows_the_tables_of_every_row() {
    let tables = [table(), table_by_l()];
    println!("{}", tables.join("\n"));
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/whatif.md")).unwrap();
    assert!(tables.iter().all(|table| page.contains(table)), "docs/whatif.md does not have these tables");
}
