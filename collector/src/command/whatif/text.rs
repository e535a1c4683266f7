//! The report as a table for people.

use super::{ResultRow, SettingRow, WhatIfReport};
use crate::command::Table;
use crate::command::table::{Align, line, or_dash};

impl WhatIfReport {
    /// As aligned text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let [given, against] = [0, 1].map(|at| (&self.settings[at], &self.results[at]));
        self.push_port(&mut text);
        line(&mut text, &workload(given.0));
        text.push('\n');
        let mut table = columns();
        let mut row = |name: String, cell: &dyn Fn(&SettingRow, &ResultRow) -> String| {
            table.row(vec![name, cell(given.0, given.1), cell(against.0, against.1)]);
        };
        row("Kmin".into(), &|setting, _| bytes(setting.kmin_bytes));
        row("Kmax".into(), &|setting, _| bytes(setting.kmax_bytes));
        row("Pmax".into(), &|setting, _| percent(Some(setting.pmax)));
        row("DCQCN".into(), &|setting, _| setting.cc.to_owned());
        row("PFC XOFF/XON".into(), &|setting, _| match setting.xoff_bytes.zip(setting.xon_bytes) {
            Some((xoff, xon)) => format!("{}/{}", bytes(xoff), bytes(xon)),
            None => "off".to_owned(),
        });
        row("utilisation".into(), &|_, result| utilisation(result));
        row("marked".into(), &|_, result| percent(result.mark_rate));
        let l = given.1.l;
        row(format!("premature, L = {l}"), &|_, result| percent(result.premature_share));
        row(format!("missed, L = {l}"), &|_, result| percent(result.missed_share));
        row("queue p99".into(), &|_, result| or_dash(result.queue_p99_bytes.map(bytes)));
        row("message p99".into(), &|_, result| or_dash(result.message_p99_ns.map(time)));
        row("paused".into(), &|_, result| percent(result.pause_share));
        text.push_str(&table.to_string());
        text.push('\n');
        self.push_by_l(&mut text);
        self.push_knobs(&mut text);
        line(&mut text, &self.advice);
        text.push('\n');
        self.push_model(&mut text);
        text
    }

    fn push_port(&self, text: &mut String) {
        let Some(port) = &self.port else { return };
        line(text, &format!("parameters of {}:", port.port));
        let mut table = Table::new(&[
            ("PARAMETER", Align::Left),
            ("VALUE", Align::Right),
            ("PAPER", Align::Right),
            ("NIC DEFAULT", Align::Right),
            ("UNIT", Align::Left),
            ("NOTE", Align::Left),
        ]);
        for row in &port.parameters {
            table.row(vec![
                row.parameter.clone(),
                or_dash(row.value),
                or_dash(row.paper),
                or_dash(row.nic_default),
                row.unit.to_owned(),
                row.note.clone().unwrap_or_default(),
            ]);
        }
        text.push_str(&table.to_string());
        if !port.assumed.is_empty() {
            line(text, &format!("not read, and taken to be the default: {}", port.assumed.join(", ")));
        }
        text.push('\n');
    }

    fn push_by_l(&self, text: &mut String) {
        let k_star = bytes(self.results[0].k_star_bytes);
        line(text, &format!("marks by L, the round trips above K* = {k_star} that make congestion:"));
        let mut table = Table::new(&[
            ("L", Align::Right),
            ("PREMATURE GIVEN", Align::Right),
            ("AGAINST", Align::Right),
            ("MISSED GIVEN", Align::Right),
            ("AGAINST", Align::Right),
        ]);
        for by in &self.by_l {
            let shares = by.premature_share.iter().chain(&by.missed_share).map(|share| percent(*share));
            table.row([by.l.to_string()].into_iter().chain(shares).collect());
        }
        text.push_str(&table.to_string());
        text.push('\n');
    }

    fn push_knobs(&self, text: &mut String) {
        if self.knobs.is_empty() {
            return;
        }
        line(text, "one difference at a time:");
        let mut table = Table::new(&[
            ("ONLY", Align::Left),
            ("TO", Align::Right),
            ("UTILISATION", Align::Right),
            ("MARKED", Align::Right),
            ("MISSED", Align::Right),
            ("QUEUE P99", Align::Right),
        ]);
        for knob in &self.knobs {
            table.row(vec![
                knob.changed.to_owned(),
                knob.to.clone(),
                utilisation(&knob.result),
                percent(knob.result.mark_rate),
                percent(knob.result.missed_share),
                or_dash(knob.result.queue_p99_bytes.map(bytes)),
            ]);
        }
        text.push_str(&table.to_string());
        text.push('\n');
    }

    fn push_model(&self, text: &mut String) {
        let model = &self.model;
        let seeds: Vec<String> = model.seeds.iter().map(u64::to_string).collect();
        line(text, &format!("model: {}", model.text));
        line(
            text,
            &format!(
                "       {} ms each, of which {} ms are not counted; seeds {}; {:.1} million packets",
                model.simulated_s * 1e3,
                model.warm_up_s * 1e3,
                seeds.join(", "),
                model.packets as f64 / 1e6
            ),
        );
    }
}

fn columns() -> Table {
    Table::new(&[("", Align::Left), ("GIVEN", Align::Right), ("AGAINST", Align::Right)])
}

fn workload(setting: &SettingRow) -> String {
    let traffic = match (setting.burst_bytes, setting.load) {
        (Some(burst), Some(load)) => format!("bursts of {} at {} load", bytes(burst), percent(Some(load))),
        (None, Some(load)) => format!("evenly paced packets at {} load", percent(Some(load))),
        _ => "all sending for ever".to_owned(),
    };
    format!(
        "{} senders into one {} Gb/s link, RTT {}, {traffic}",
        setting.senders,
        setting.rate_gbps,
        time(setting.rtt_ns)
    )
}

fn utilisation(result: &ResultRow) -> String {
    let scatter = result.utilisation_scatter.map(|scatter| format!(" ± {scatter:.3}")).unwrap_or_default();
    format!("{:.3}{scatter}", result.utilisation)
}

/// `5 KiB`, `1.5 MiB`; whole where it is whole.
pub(super) fn bytes(bytes: u64) -> String {
    let (unit, size) = match bytes {
        0..1_024 => return format!("{bytes} B"),
        1_024..1_048_576 => ("KiB", 1_024.0),
        1_048_576..1_073_741_824 => ("MiB", 1_048_576.0),
        _ => ("GiB", 1_073_741_824.0),
    };
    format!("{} {unit}", significant(bytes as f64 / size))
}

/// `8 µs`, `1.2 ms`.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", significant(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", significant(ns as f64 / 1e6)),
        _ => format!("{} s", significant(ns as f64 / 1e9)),
    }
}

/// `0.0012 %`, `5.9 %`, `71 %`; `–` when it is not defined.
pub(super) fn percent(share: Option<f64>) -> String {
    or_dash(share.map(|share| format!("{} %", significant(share * 100.0))))
}

/// Two or three digits that mean something, no zeros after them.
fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value >= 100.0 {
        return format!("{value:.0}");
    }
    let mut digits = if value >= 10.0 { 1 } else { 2 };
    let mut scale = 1.0;
    while value * scale < 1.0 && digits < 9 {
        digits += 1;
        scale *= 10.0;
    }
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_a_small_one_is_not_zero() {
        assert_eq!(
            [0, 1_023, 5_120, 204_800, 1 << 20, 3 << 19].map(bytes),
            ["0 B", "1023 B", "5 KiB", "200 KiB", "1 MiB", "1.5 MiB"]
        );
        assert_eq!(
            [0.8, 0.01, 0.000_012, 1.0, 0.0587].map(|share| percent(Some(share))),
            ["80 %", "1 %", "0.0012 %", "100 %", "5.87 %"]
        );
        assert_eq!(percent(None), "–");
        assert_eq!([8_000, 850, 1_234_567].map(time), ["8 µs", "850 ns", "1.23 ms"]);
    }
}
