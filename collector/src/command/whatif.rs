//! `whatif`: the queue model run with two settings side by side, and what of their difference makes it.
//!
//! Nothing here is measured on a node. The figures are those of [`sim::packet`](crate::sim::packet).

mod advice;
mod report;
mod text;

use thiserror::Error;

pub use report::{ByL, KnobRow, Model, PortParameters, ResultRow, SettingRow, WhatIfReport};

use crate::dcqcn;
use crate::inventory::World;
use crate::sim::packet::truth::{Counts, k_star_bytes};
use crate::sim::packet::{Control, Figures, Measure, Params, ParamsError, Pfc, Red, Workload};

/// The values of L shown beside the one that was asked for.
const L_SHOWN: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
/// Packets all runs together may have: seconds of one core.
const MOST_PACKETS: u64 = 200_000_000;
/// Round trips a run must have, for its figures to be more than a start.
const LEAST_ROUND_TRIPS: u64 = 100;

fn allowed() -> String {
    format!("{} million", MOST_PACKETS / 1_000_000)
}

/// What can differ between the two settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// The switch's marking.
    pub red: Red,
    /// The NICs' congestion control.
    pub control: Control,
    /// The switch's pause.
    pub pfc: Option<Pfc>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Link, senders and workload, simulated time and first seed; its red, control and pfc are those of the first setting.
    pub params: Params,
    /// The second setting.
    pub against: Setting,
    /// Round trips the queue must stay above K* to be congested.
    pub l: f64,
    /// Runs with different seeds, from the first one upwards.
    pub seeds: u32,
}

/// The parameters of a port of a world, as the model's and beside known ones; the port's rate, Gb/s, if it is known.
pub fn port_parameters(world: &World, name: &str) -> Result<(Control, PortParameters, Option<f64>), WhatIfError> {
    let no_port = |why| WhatIfError::Port { port: name.to_owned(), why };
    let (device, number) = name.rsplit_once('/').ok_or_else(|| no_port("is not of the form DEVICE/PORT"))?;
    let number: u32 = number.parse().map_err(|_| no_port("is not of the form DEVICE/PORT"))?;
    let port = world.present_ports().find(|(record, port)| &*record.name == device && port.key.port == number);
    let (_, port) = port.ok_or_else(|| no_port("is not there"))?;
    let read = port.congestion.as_ref().ok_or_else(|| no_port("has no congestion control parameters there"))?;
    let rate_gbps = port.rate_gbps;
    let (control, assumed) = dcqcn::control(&read.np, &read.rp, rate_gbps.unwrap_or(Params::example().rate_gbps));
    let parameters = dcqcn::parameters(&read.np, &read.rp, rate_gbps);
    Ok((control, PortParameters { port: name.to_owned(), parameters, assumed }, rate_gbps))
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum WhatIfError {
    /// The first setting or the workload is not possible.
    #[error(transparent)]
    Given(#[from] ParamsError),
    /// The second setting is not possible.
    #[error("--against: {0}")]
    Against(ParamsError),
    /// Both settings are the same.
    #[error("both settings are the same; --against kmax=1M, for example, makes them differ")]
    Same,
    /// It would take too long.
    #[error(
        "this is about {millions:.0} million packets, and {} are allowed: a shorter --for, or fewer --seeds",
        allowed()
    )]
    TooLong {
        /// Packets of all runs together, millions.
        millions: f64,
    },
    /// It turned out to take too long.
    #[error("these are more than {} packets: fewer --senders, a shorter --for, or fewer --seeds", allowed())]
    TooMany,
    /// There is no such port, or nothing of it.
    #[error("the port {port} {why}")]
    Port {
        /// As it was asked for.
        port: String,
        /// What is wrong.
        why: &'static str,
    },
    /// It would be over before it began.
    #[error("--for is shorter than {LEAST_ROUND_TRIPS} round trips")]
    TooShort,
    /// L or the number of seeds is not possible.
    #[error("{0}")]
    Range(&'static str),
}

const MODEL: &str = "one FIFO queue simulated packet by packet: senders at equal distance with a link of the bottleneck's \
                     rate each, RED on the instantaneous queue at its tail, DCQCN at the senders; not a measurement";

/// A difference between two settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knob {
    Kmin,
    Kmax,
    Pmax,
    Control,
    Pause,
}

impl Knob {
    const ALL: [Self; 5] = [Self::Kmin, Self::Kmax, Self::Pmax, Self::Control, Self::Pause];

    fn key(self) -> &'static str {
        match self {
            Self::Kmin => "kmin",
            Self::Kmax => "kmax",
            Self::Pmax => "pmax",
            Self::Control => "cc",
            Self::Pause => "pfc",
        }
    }

    fn differs(self, a: &Setting, b: &Setting) -> bool {
        match self {
            Self::Kmin => a.red.kmin_bytes != b.red.kmin_bytes,
            Self::Kmax => a.red.kmax_bytes != b.red.kmax_bytes,
            Self::Pmax => (a.red.pmax - b.red.pmax).abs() > f64::EPSILON,
            Self::Control => a.control != b.control,
            Self::Pause => a.pfc != b.pfc,
        }
    }

    /// The setting with this one thing of the other. Where Kmin and Kmax would cross, the one that moved stops at the
    /// other: that is as far as it can go alone.
    fn turned(self, setting: &Setting, other: &Setting) -> Setting {
        let mut turned = *setting;
        match self {
            Self::Kmin => turned.red.kmin_bytes = other.red.kmin_bytes.min(setting.red.kmax_bytes),
            Self::Kmax => turned.red.kmax_bytes = other.red.kmax_bytes.max(setting.red.kmin_bytes),
            Self::Pmax => turned.red.pmax = other.red.pmax,
            Self::Control => turned.control = other.control,
            Self::Pause => turned.pfc = other.pfc,
        }
        turned
    }

    fn value(self, setting: &Setting) -> String {
        match self {
            Self::Kmin => text::bytes(setting.red.kmin_bytes),
            Self::Kmax => text::bytes(setting.red.kmax_bytes),
            Self::Pmax => text::percent(Some(setting.red.pmax)),
            Self::Control => setting.control.name.to_owned(),
            Self::Pause => {
                setting.pfc.map_or_else(|| "off".to_owned(), |pfc| format!("XOFF {}", text::bytes(pfc.xoff_bytes)))
            }
        }
    }
}

impl Question {
    /// The common question: [`Params::example`], with NICs at their defaults, against a larger Kmin and Kmax.
    #[must_use]
    pub fn common() -> Self {
        let mut params = Params::example();
        params.control = Control::nic(params.rate_gbps);
        params.workload = Workload::Bursts { bytes: 256 << 10, load: 0.8 };
        params.red = Red { kmin_bytes: 5 << 10, kmax_bytes: 200 << 10, pmax: 0.01 };
        let red = Red { kmin_bytes: 256 << 10, kmax_bytes: 1 << 20, pmax: 0.01 };
        let against = Setting { red, control: params.control, pfc: None };
        Self { params, against, l: 2.0, seeds: 3 }
    }

    fn given(&self) -> Setting {
        Setting { red: self.params.red, control: self.params.control, pfc: self.params.pfc }
    }

    /// What is run: both settings, then the first with one difference at a time where there are several.
    fn runs(&self) -> (Vec<Setting>, Vec<Knob>) {
        let given = self.given();
        let knobs: Vec<Knob> = Knob::ALL.into_iter().filter(|knob| knob.differs(&given, &self.against)).collect();
        let mut settings = vec![given, self.against];
        if knobs.len() > 1 {
            settings.extend(knobs.iter().map(|knob| knob.turned(&given, &self.against)));
        }
        (settings, knobs)
    }

    fn with(&self, setting: &Setting, seed: u64) -> Params {
        Params { red: setting.red, control: setting.control, pfc: setting.pfc, seed, ..self.params.clone() }
    }

    fn seeds(&self) -> impl Iterator<Item = u64> {
        (0..u64::from(self.seeds)).map(|n| self.params.seed.wrapping_add(n))
    }

    /// Whether it has an answer, and one that does not take for ever.
    pub fn check(&self) -> Result<(), WhatIfError> {
        self.params.check()?;
        self.with(&self.against, 0).check().map_err(WhatIfError::Against)?;
        if !(0.1..=1_000.0).contains(&self.l) {
            return Err(WhatIfError::Range("L is a number of round trips from 0.1 to 1000"));
        }
        if !(1..=100).contains(&self.seeds) {
            return Err(WhatIfError::Range("from 1 to 100 seeds are possible"));
        }
        if self.params.duration_ns < LEAST_ROUND_TRIPS * self.params.rtt_ns {
            return Err(WhatIfError::TooShort);
        }
        let (settings, knobs) = self.runs();
        if knobs.is_empty() {
            return Err(WhatIfError::Same);
        }
        let runs = settings.len() as f64 * f64::from(self.seeds);
        let packets = runs * self.packets_of_a_run();
        if packets > MOST_PACKETS as f64 {
            return Err(WhatIfError::TooLong { millions: packets / 1e6 });
        }
        Ok(())
    }

    /// At line rate for the whole time, and the steps of the rates' timers, which cost as much as a packet.
    fn packets_of_a_run(&self) -> f64 {
        let params = &self.params;
        let load = match params.workload {
            Workload::Paced { load, .. } | Workload::Bursts { load, .. } => load.min(1.0),
            Workload::Incast { .. } => 1.0,
        };
        let packets = params.rate_gbps * params.duration_ns as f64 * load / (8.0 * f64::from(params.packet_bytes));
        let period = params.control.increase_period_ns.min(self.against.control.increase_period_ns).max(1);
        packets + f64::from(params.senders) * params.duration_ns as f64 / period as f64
    }

    /// Runs the model.
    pub fn answer(&self) -> Result<WhatIfReport, WhatIfError> {
        self.check()?;
        let (settings, knobs) = self.runs();
        let mut ls = vec![self.l];
        ls.extend(L_SHOWN);
        // Many senders at line rate send far more than the bottleneck carries, until they are told: only the runs know.
        let mut allowance = MOST_PACKETS;
        let mut run = |params: Params| {
            let figures = Measure::of_at_most(&params, &ls, allowance).ok_or(WhatIfError::TooMany)?;
            allowance = allowance.saturating_sub(figures.packets);
            Ok(figures)
        };
        let mut figures: Vec<Vec<Figures>> = Vec::new();
        for setting in &settings {
            figures.push(self.seeds().map(|seed| run(self.with(setting, seed))).collect::<Result<_, WhatIfError>>()?);
        }
        let mut results: Vec<ResultRow> = figures.iter().map(|figures| self.result(figures)).collect();
        let alone = results.split_off(2);
        let by_l = L_SHOWN
            .iter()
            .map(|&l| {
                let counts = [0, 1].map(|setting| counts(&figures[setting], l));
                let premature_share = counts.map(|counts| counts.premature_share());
                ByL { l, premature_share, missed_share: counts.map(|counts| counts.missed_share()) }
            })
            .collect();
        let row = |(knob, result): (&Knob, ResultRow)| {
            let to = knob.value(&knob.turned(&self.given(), &self.against));
            KnobRow { changed: knob.key(), to, result }
        };
        let knob_rows: Vec<KnobRow> =
            if alone.is_empty() { Vec::new() } else { knobs.iter().zip(alone).map(row).collect() };
        let advice = advice::advice(self, &knobs, &results, &knob_rows);
        Ok(WhatIfReport {
            settings: vec![self.row("given", &self.given()), self.row("against", &self.against)],
            results,
            by_l,
            knobs: knob_rows,
            advice,
            port: None,
            model: Model {
                text: MODEL,
                seeds: self.seeds().collect(),
                simulated_s: self.params.duration_ns as f64 / 1e9,
                warm_up_s: self.params.warm_up_ns as f64 / 1e9,
                packets: figures.iter().flatten().map(|figures| figures.packets).sum(),
            },
        })
    }

    /// The mean over the seeds; shares are those of all runs together.
    fn result(&self, figures: &[Figures]) -> ResultRow {
        let n = figures.len() as f64;
        let mean =
            |value: &dyn Fn(&Figures) -> Option<f64>| figures.iter().map(value).sum::<Option<f64>>().map(|sum| sum / n);
        let utilisation = mean(&|figures| Some(figures.utilisation)).unwrap_or(0.0);
        let deviation = figures.iter().map(|figures| (figures.utilisation - utilisation).powi(2)).sum::<f64>();
        let counts = counts(figures, self.l);
        let nearest = |value: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of u64")]
            let nearest = value.round() as u64;
            nearest
        };
        ResultRow {
            utilisation,
            utilisation_scatter: (figures.len() > 1).then(|| (deviation / (n - 1.0)).sqrt()),
            mark_rate: mean(&|figures| figures.mark_rate),
            premature_share: counts.premature_share(),
            l: self.l,
            k_star_bytes: k_star_bytes(self.params.rate_gbps, self.params.rtt_ns),
            missed_share: counts.missed_share(),
            queue_p99_bytes: mean(&|figures| figures.queue_p99_bytes.map(|bytes| bytes as f64)).map(nearest),
            pause_share: mean(&|figures| figures.pause_share),
            message_p99_ns: mean(&|figures| figures.message_ns.map(|(_, p99)| p99 as f64)).map(nearest),
        }
    }

    fn row(&self, name: &'static str, setting: &Setting) -> SettingRow {
        let params = &self.params;
        let (workload, burst_bytes, load) = match params.workload {
            Workload::Bursts { bytes, load } => ("bursts", Some(bytes), Some(load)),
            Workload::Paced { load, .. } => ("paced", None, Some(load)),
            Workload::Incast { .. } => ("incast", None, None),
        };
        SettingRow {
            name,
            rate_gbps: params.rate_gbps,
            rtt_ns: params.rtt_ns,
            packet_bytes: params.packet_bytes,
            senders: params.senders,
            workload,
            burst_bytes,
            load,
            kmin_bytes: setting.red.kmin_bytes,
            kmax_bytes: setting.red.kmax_bytes,
            pmax: setting.red.pmax,
            cc: setting.control.name,
            xoff_bytes: setting.pfc.map(|pfc| pfc.xoff_bytes),
            xon_bytes: setting.pfc.map(|pfc| pfc.xon_bytes),
        }
    }
}

/// What all runs together make of their marks.
fn counts(figures: &[Figures], l: f64) -> Counts {
    figures.iter().filter_map(|figures| figures.at(l)).fold(Counts::default(), |sum, counts| Counts {
        true_marks: sum.true_marks + counts.true_marks,
        premature_marks: sum.premature_marks + counts.premature_marks,
        congested: sum.congested + counts.congested,
        missed: sum.missed + counts.missed,
        congested_ps: sum.congested_ps + counts.congested_ps,
    })
}

#[cfg(test)]
mod tests;
