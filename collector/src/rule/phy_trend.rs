//! The trend of what FEC corrects: the earliest sign of a link that will fail.

use super::clock::ns;
use super::judged::{Judged, Part};
use super::phy::{counted_by, phy_check, silent};
use super::root;
use super::settings::PhyPreFecTrend;
use super::span::{covers, mean, mean_rate, windows_of};
use super::{Rule, View, lanes};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Verdict};
use crate::inventory::PortRecord;
use crate::observation::PortState;
use crate::timeline::counter_table::Meaning;

/// What RS(544,514), the FEC of PAM4 links (KP4), still corrects (IEEE 802.3 clause 91 and 119).
const KP4_LIMIT: f64 = 2.4e-4;
/// The series name of the baseline among the evidence; a raised finding is held against the baseline it was raised with.
const BASELINE: &str = "pre-FEC bit error ratio, baseline";
/// Windows over which half of the readings must be too high: one bad moment is no trend.
const WINDOWS: usize = 3;

/// `phy.pre_fec_trend`.
pub(super) struct PreFecTrend;

impl Rule for PreFecTrend {
    fn id(&self) -> &'static str {
        "phy.pre_fec_trend"
    }

    fn meaning(&self) -> &'static str {
        "Forward error correction has more to correct than it should: more than a good link has, or far more than this \
         link had before. Nothing is lost yet. Corrected bits are normal on PAM4 links (400,000 a second on a good 400 Gb/s \
         link at a ratio of 1e-6): their number alone is no finding, and neither is a steady ratio."
    }

    fn hand_check(&self, view: &View<'_>, finding: &Finding) -> Vec<String> {
        phy_check(view, finding, "rx_corrected_bits|rx_bits_phy|err_lane")
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        view.world.present_ports().filter_map(|(_, port)| trend(view, port)).collect()
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        extent(view).nowhere()
    }

    fn judged_in_part(&self, view: &View<'_>) -> Option<Part> {
        extent(view).in_part()
    }
}

fn extent(view: &View<'_>) -> Judged {
    counted_by(view, &[Meaning::PreFecCorrectedBits], "bits corrected by FEC").or(|| {
        let settings = &view.settings.phy_pre_fec_trend;
        let ports: Vec<usize> = view
            .world
            .present_ports()
            .map(|(_, port)| Ratios::of(view, port).map_or(0, |ratios| ratios.history.len()))
            .collect();
        let fewest = ports.iter().copied().min().unwrap_or(0);
        if fewest >= settings.baseline_windows {
            return Judged::All;
        }
        let reason = format!(
            "{fewest} of the {} windows a baseline rests on: until then only against {:e}",
            settings.baseline_windows, settings.max_ber
        );
        Judged::with(ports.len(), reason)
    })
}

/// Bit error ratios of a port.
struct Ratios {
    /// Of the newest window; `None` is unknown, also before there is a whole one.
    newest: Option<f64>,
    /// Of each reading in the last [`WINDOWS`] windows, as far as known.
    readings: Vec<f64>,
    /// Of the windows before, of the time a baseline looks back over, as far as known.
    history: Vec<f64>,
    /// The bits that could have been received are counted; else they are taken from the rate.
    counted: bool,
    /// Length of a window, s.
    window_s: f64,
}

impl Ratios {
    fn of(view: &View<'_>, port: &PortRecord) -> Option<Self> {
        let settings = &view.settings.phy_pre_fec_trend;
        let corrected = port.rates.get(&Meaning::PreFecCorrectedBits)?;
        let bits = port.rates.get(&Meaning::RxBits).filter(|_| port.reading(Meaning::RxBits).is_some());
        let line_rate = port.rate_gbps.map(|gbps| gbps * 1e9).filter(|rate| *rate > 0.0);
        let engine_s = ns(view.settings.window_s).max(1) as f64 / 1e9;
        let n = windows_of(view, port, Meaning::PreFecCorrectedBits, settings.window_s);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an hour of windows")]
        let all = (settings.baseline_s.clamp(60.0, 86_400.0) / engine_s) as usize;
        let corrected: Vec<Option<f64>> = corrected.newest_first().take(all).collect();
        let bits: Option<Vec<Option<f64>>> = bits.map(|ring| ring.newest_first().take(all).collect());
        let ratio = |from: usize, window: &[Option<f64>]| {
            let corrected = mean(window.iter().copied())?;
            let bits = match &bits {
                Some(bits) => mean(bits.iter().skip(from).take(window.len()).copied()).filter(|bits| *bits > 0.0)?,
                None => line_rate?,
            };
            Some(corrected / bits)
        };
        let covered = covers(view, port, Meaning::PreFecCorrectedBits, settings.window_s);
        let newest = covered.then(|| ratio(0, &corrected[..n.min(corrected.len())])).flatten();
        let recent = (WINDOWS * n).min(corrected.len());
        let readings = (0..recent).filter_map(|at| ratio(at, &corrected[at..=at])).collect();
        let history = corrected[recent..]
            .chunks(n)
            .enumerate()
            .filter_map(|(at, window)| ratio(recent + at * n, window))
            .collect();
        Some(Self { newest, readings, history, counted: bits.is_some(), window_s: n as f64 * engine_s })
    }

    /// At least half of the last readings are above a limit, and there are two of them at least.
    fn mostly_above(&self, limit: f64) -> bool {
        let above = self.readings.iter().filter(|ratio| **ratio > limit).count();
        self.readings.len() >= 2 && 2 * above >= self.readings.len()
    }

    /// What the link's own windows before were like: the lowest quarter of them, so that a rise that has begun does not
    /// lift what it is held against. `None` before there are enough.
    fn baseline(&mut self, settings: &PhyPreFecTrend) -> Option<f64> {
        if self.history.len() < settings.baseline_windows.max(1) {
            return None;
        }
        let at = self.history.len() / 4;
        let (_, quarter, _) = self.history.select_nth_unstable_by(at, f64::total_cmp);
        Some(*quarter)
    }
}

/// The ratio of the newest window alone.
fn newest(view: &View<'_>, port: &PortRecord) -> Option<f64> {
    let window_s = view.settings.phy_pre_fec_trend.window_s;
    let corrected = mean_rate(view, port, Meaning::PreFecCorrectedBits, window_s)?;
    let bits = mean_rate(view, port, Meaning::RxBits, window_s).filter(|bits| *bits > 0.0);
    Some(corrected / bits.or(port.rate_gbps.map(|gbps| gbps * 1e9))?)
}

fn trend(view: &View<'_>, port: &PortRecord) -> Option<Verdict> {
    let settings = &view.settings.phy_pre_fec_trend;
    let (key, subject) = view.port_subject(port);
    let raised = view.raised("phy.pre_fec_trend", &key);
    let keep = |raised: Option<&Finding>| raised.map(|_| Verdict::Keep(key.clone()));
    if !matches!(port.state, PortState::Active | PortState::Unknown) {
        return silent(view, port, "phy.pre_fec_trend", &["link.down", "phy.post_fec"]);
    }
    // What is below the least that is told needs no history: that is most ports, most of the time.
    let least = if raised.is_some() { settings.min_ber / 2.0 } else { settings.min_ber.min(settings.lane_ber) };
    if newest(view, port).is_some_and(|ber| ber <= least) {
        return None;
    }
    let mut ratios = Ratios::of(view, port)?;
    let Some(ber) = ratios.newest else { return keep(raised) };
    let windows = ratios.history.len();
    let before = raised.and_then(|finding| finding.evidence.iter().find(|row| row.series == BASELINE)?.value);
    let baseline = [ratios.baseline(settings), before].into_iter().flatten().reduce(f64::min);
    let relative = baseline.map(|baseline| (baseline * settings.factor).max(settings.min_ber));
    let limit = relative.map_or(settings.max_ber, |relative| relative.min(settings.max_ber));
    let high = ber > limit && ratios.mostly_above(limit);
    let lane = bad_lane(view, port, settings, ratios.window_s);
    if !high && lane.is_none() {
        return if ber > limit / 2.0 || ratios.mostly_above(limit) { keep(raised) } else { None };
    }
    let mut evidence = vec![Evidence::new("pre-FEC bit error ratio", Some(ratios.window_s), ber, limit, "errors/bit")];
    if let Some(baseline) = baseline {
        evidence.push(Evidence::new(BASELINE, Some(windows as f64 * ratios.window_s), baseline, None, "errors/bit"));
    }
    let mut summary = format!("FEC corrects {ber:.1e} of all bits");
    match baseline {
        Some(baseline) if baseline > 0.0 => {
            let times = ber / baseline;
            summary.push_str(&format!(", {times:.0} times this link's own {baseline:.1e} ({windows} windows)"));
        }
        Some(_) => summary.push_str(&format!(", none before ({windows} windows)")),
        None if ber > settings.max_ber => {
            summary.push_str(&format!(", more than {:.0e}; no baseline yet", settings.max_ber));
        }
        None => summary.push_str("; no baseline yet"),
    }
    if let Some((lane, lane_ber)) = &lane {
        summary.push_str(&format!("; {lane}"));
        evidence.push(Evidence::new(
            format!("{}, bit error ratio of the lane", lane.counter),
            Some(ratios.window_s),
            *lane_ber,
            settings.lane_ber,
            "errors/bit",
        ));
    }
    let belongs = root::of_link(view, port, &["link.down", "phy.post_fec"]);
    if port.lanes.is_some_and(|lanes| lanes > 0 && port.rate_gbps.is_some_and(|rate| rate / f64::from(lanes) >= 50.0)) {
        summary.push_str(&format!("; its FEC (KP4) corrects up to {KP4_LIMIT:e}"));
        evidence.push(Evidence::new("pre-FEC bit error ratio, limit of KP4", None, ber, KP4_LIMIT, "errors/bit"));
    }
    if !ratios.counted {
        summary.push_str("; of the bits of the port's rate, for those received are not counted");
    }
    let sure = lane.is_some() && high;
    let since = raised.map_or_else(|| view.since(ratios.window_s), |finding| finding.first_t);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a logarithm of a ratio below 1")]
    let doubled = ((ber / 1e-15).log2().max(0.0)) as u64;
    Some(Verdict::Holds(Box::new(Conclusion {
        key,
        subject,
        severity: Severity::Warning,
        grade: if sure { Grade::Probable } else { Grade::Suspected },
        summary,
        evidence,
        advice: "Plan to look at this link before it fails: clean and reseat module and cable, look at the module's \
                 temperature and received power (ethtool -m), and compare with the other end. Replace what does not get \
                 better."
            .to_owned(),
        would_raise: if belongs.is_some() {
            // What it belongs to is surer.
            String::new()
        } else if sure {
            "errors that FEC could not correct".to_owned()
        } else {
            "one lane far above the others, or errors that FEC could not correct".to_owned()
        },
        part_of: belongs,
        since,
        revision: doubled << 8 | lane.map_or(0, |(lane, _)| u64::from(lane.number) + 1),
    })))
}

/// A lane far above the others whose own ratio is high enough to matter. Lanes of a good link differ by a lot where there
/// is little to count.
fn bad_lane(
    view: &View<'_>,
    port: &PortRecord,
    settings: &PhyPreFecTrend,
    window_s: f64,
) -> Option<(lanes::Lane, f64)> {
    let from = view.ago(window_s);
    let lane = lanes::standing_out(port, from, settings.lane_factor)?;
    let per_lane = port.rate_gbps? * 1e9 / f64::from(port.lanes.filter(|lanes| *lanes > 0)?);
    let ber = lane.n as f64 / (per_lane * window_s);
    (ber > settings.lane_ber).then_some((lane, ber))
}
