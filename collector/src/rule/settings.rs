//! The rules' thresholds, each with its default. Every one can be set in the configuration file under `[rule]`.
//!
//! A setting is written once, below: its doc comment, name, type, range and default make the struct, the default, the
//! commented sample that `rdmascope config` prints, and the check of what a file says.

use std::fmt::Write as _;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

/// A table of settings: the struct, its defaults, its part of the commented sample, and the check of its ranges.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident {
        $($(#[doc = $help:literal])+ $key:ident: $type:ty $([$range:expr])? = $default:expr,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[doc = $help])+
                $(#[doc = concat!("\n\nRange: `", stringify!($range), "`.")])?
                pub $key: $type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $name {
            pub(in crate::rule) fn sample(out: &mut String, table: &str) {
                let _ = writeln!(out, "[{table}]");
                let defaults = Self::default();
                $(
                    $(let _ = writeln!(out, "#{}", $help);)+
                    let value = toml::Value::try_from(&defaults.$key).expect("a default is a TOML value");
                    let _ = write!(out, "{} = {value}", stringify!($key));
                    $(let _ = write!(out, " # {}", $range);)?
                    out.push('\n');
                )*
                out.push('\n');
            }

            /// What is out of its range; the key is the table's own.
            #[allow(clippy::unnecessary_wraps, reason = "a table may have no range")]
            pub(in crate::rule) fn check(&self) -> Result<(), String> {
                $($(range::check(stringify!($key), &self.$key, $range)?;)?)*
                Ok(())
            }
        }
    };
}

mod ecn;
mod range;

use range::{above, at_least, between};

use ecn::{
    Ecn, EcnCnpIgnored, EcnCnpLost, EcnCnpWithoutCe, EcnHostMarking, EcnInversion, EcnMissed, EcnNoCnp, EcnNotEct,
    EcnPremature, EcnRailAsymmetry, EcnWrongClass,
};

/// The tables of all rules that have settings: the struct, its defaults, and the sample.
macro_rules! tables {
    ($($key:ident: $table:ty = $rule:literal,)*) => {
        /// Thresholds of all rules.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings {
            /// Length of a window in seconds, 0.1 to 3600. Rules are asked at the end of every window, and at once on
            /// events.
            pub window_s: f64,
            /// Ids of rules that are not asked, for example `["link.flap"]`.
            #[serde(deserialize_with = "known_rules")]
            pub disabled: Vec<String>,
            $(#[doc = concat!("`", $rule, "`.")] pub $key: $table,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { window_s: 1.0, disabled: Vec::new(), $($key: <$table>::default(),)* }
            }
        }

        impl Settings {
            fn sample_tables(out: &mut String) {
                $(<$table>::sample(out, concat!("rule.", stringify!($key)));)*
            }

            fn check_tables(&self) -> Result<(), String> {
                $(self.$key.check().map_err(|what| format!(concat!("rule.", stringify!($key), ".{}"), what))?;)*
                Ok(())
            }
        }
    };
}

tables! {
    link_down: LinkDown = "link.down",
    link_flap: LinkFlap = "link.flap",
    pcie_aer_storm: PcieAerStorm = "pcie.aer_storm",
    pcie_aer_fatal: PcieAerFatal = "pcie.aer_fatal",
    pcie_downgrade: PcieDowngrade = "pcie.downgrade",
    phy_post_fec: ErrorWindows = "phy.post_fec",
    phy_crc: ErrorWindows = "phy.crc",
    phy_pre_fec_trend: PhyPreFecTrend = "phy.pre_fec_trend",
    phy_symbol: PhySymbol = "phy.symbol",
    nic_composite: NicComposite = "nic.composite",
    nic_health: NicHealth = "nic.health",
    nic_stuck: NicStuck = "nic.stuck",
    loopback_high: LoopbackHigh = "loopback.high",
    qp_retry_exceeded: QpRetryExceeded = "qp.retry_exceeded",
    qp_error_state: QpErrorState = "qp.error_state",
    qp_rnr: QpRnr = "qp.rnr",
    qp_software_error: QpSoftwareError = "qp.software_error",
    qp_stuck: QpStuck = "qp.stuck",
    ecn: Ecn = "ecn.*",
    ecn_premature: EcnPremature = "ecn.premature",
    ecn_missed: EcnMissed = "ecn.missed",
    ecn_not_ect: EcnNotEct = "ecn.not_ect",
    ecn_wrong_class: EcnWrongClass = "ecn.wrong_class",
    ecn_no_cnp: EcnNoCnp = "ecn.no_cnp",
    ecn_cnp_ignored: EcnCnpIgnored = "ecn.cnp_ignored",
    ecn_cnp_without_ce: EcnCnpWithoutCe = "ecn.cnp_without_ce",
    ecn_cnp_lost: EcnCnpLost = "ecn.cnp_lost",
    ecn_host_marking: EcnHostMarking = "ecn.host_marking",
    ecn_rail_asymmetry: EcnRailAsymmetry = "ecn.rail_asymmetry",
    ecn_inversion: EcnInversion = "ecn.inversion",
    qp_cache_pressure: QpCachePressure = "qp.cache_pressure",
    qp_small_messages: QpSmallMessages = "qp.small_messages",
    pcie_bandwidth_bound: PcieBandwidthBound = "pcie.bandwidth_bound",
    pcie_shared_uplink: PcieSharedUplink = "pcie.shared_uplink",
    port_unstable_bandwidth: PortUnstableBandwidth = "port.unstable_bandwidth",
    failover: Failover = "failovers",
}

/// Ids that are ids of rules: a misspelt one would leave its rule on without a word.
fn known_rules<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let ids = Vec::<String>::deserialize(deserializer)?;
    match ids.iter().find(|id| super::find(id).is_none()) {
        Some(id) => Err(serde::de::Error::custom(format!("there is no rule {id:?}"))),
        None => Ok(ids),
    }
}

/// The range of [`Settings::window_s`].
const WINDOW_S: range::Range = between(0.1, 3600.0);

impl Settings {
    /// What a file says is within the range of each setting, and windows that are asked for fit into those looked at.
    ///
    /// # Errors
    /// One line with the key, its value and its range.
    pub fn check(&self) -> Result<(), String> {
        range::check("window_s", &self.window_s, WINDOW_S).map_err(|what| format!("rule.{what}"))?;
        self.check_tables()?;
        let rnr = &self.qp_rnr;
        for (table, windows, of) in [
            ("phy_post_fec", self.phy_post_fec.windows, self.phy_post_fec.of),
            ("phy_crc", self.phy_crc.windows, self.phy_crc.of),
            ("qp_rnr", rnr.windows, rnr.of),
        ] {
            if windows > of {
                return Err(format!("rule.{table}.windows: {windows} is more than of = {of}"));
            }
        }
        let trend = &self.phy_pre_fec_trend;
        if trend.baseline_windows as f64 * trend.window_s > trend.baseline_s {
            return Err(format!(
                "rule.phy_pre_fec_trend.baseline_windows: {} of window_s = {} s are longer than baseline_s = {} s",
                trend.baseline_windows, trend.window_s, trend.baseline_s
            ));
        }
        Ok(())
    }

    /// The commented `[rule…]` part of the sample configuration: every key with its meaning and its default.
    #[must_use]
    pub fn sample_toml() -> String {
        let mut out = String::new();
        let defaults = Self::default();
        let _ = writeln!(out, "[rule]");
        let _ = writeln!(
            out,
            "# Length of a window in seconds. Rules are asked at the end of every window, and at once on"
        );
        let _ = writeln!(out, "# events.");
        let _ = writeln!(out, "window_s = {:?} # {WINDOW_S}", defaults.window_s);
        let _ = writeln!(out, "# Ids of rules that are not asked, for example [\"link.flap\"].");
        let _ = writeln!(out, "disabled = []\n");
        Self::sample_tables(&mut out);
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }
}

table! {
    /// Settings of `link.down`.
    LinkDown {
        /// Ports that must be ACTIVE, as globs of DEVICE/PORT, for example ["mlx5_*/1"]. Such a port that is not ACTIVE
        /// is critical, also when it was so before watching began.
        expected: PortGlobs = PortGlobs::default(),
        /// Seconds a device may be gone before its ports count as vanished. A rename or a fast driver reload
        /// takes less.
        vanished_s: f64 [between(0.0, 3600.0)] = 1.0,
    }
}

table! {
    /// Settings of `link.flap`.
    LinkFlap {
        /// Seconds looked back over.
        window_s: f64 [between(1.0, 86400.0)] = 3600.0,
        /// Times the link went down and came back that make a warning.
        warning: u64 [at_least(1.0)] = 2,
        /// Times that make it critical.
        critical: u64 [at_least(1.0)] = 5,
    }
}

table! {
    /// Settings of `pcie.aer_storm`.
    PcieAerStorm {
        /// Corrected errors per minute that are too many when exceeded.
        per_minute: u64 [at_least(0.0)] = 10,
        /// Minutes in a row that must exceed it.
        minutes: u32 [between(1.0, 60.0)] = 5,
        /// Seconds without a replay rollover or timeout after which a finding raised by one is over.
        clear_s: f64 [between(0.0, 3600.0)] = 300.0,
    }
}

table! {
    /// Settings of `pcie.aer_fatal`.
    PcieAerFatal {
        /// Seconds without a further uncorrected error after which the finding is over.
        clear_s: f64 [between(0.0, 3600.0)] = 600.0,
    }
}

table! {
    /// Settings of `pcie.downgrade`.
    PcieDowngrade {
        /// Seconds a lower speed must last. Power management may lower the speed of an idle link for a
        /// moment; a lost lane or a narrow slot is told at the first reading.
        settle_s: f64 [between(0.0, 3600.0)] = 30.0,
    }
}

table! {
    /// Settings of `phy.post_fec`, and of `phy.crc`.
    ErrorWindows {
        /// Length of a window in seconds. Where the counter is read more rarely, the time between two
        /// readings is a window.
        window_s: f64 [between(0.1, 600.0)] = 10.0,
        /// Windows in which errors must show.
        windows: u64 [between(1.0, 60.0)] = 2,
        /// Out of so many; not fewer than `windows`.
        of: u64 [between(1.0, 60.0)] = 3,
    }
}

table! {
    /// Settings of `phy.pre_fec_trend`.
    PhyPreFecTrend {
        /// Length of a window in seconds.
        window_s: f64 [between(0.1, 600.0)] = 10.0,
        /// Share of bits corrected by FEC that is too much on any link.
        max_ber: f64 [between(0.0, 1.0)] = 1e-5,
        /// Times a link's own baseline that are too much.
        factor: f64 [above(1.0)] = 10.0,
        /// Share of corrected bits below which no rise is told: the link has room enough.
        min_ber: f64 [between(0.0, 1.0)] = 1e-8,
        /// Seconds a baseline looks back over.
        baseline_s: f64 [between(60.0, 4000.0)] = 3600.0,
        /// Windows a baseline must rest on; no more than there are in `baseline_s`.
        baseline_windows: usize [between(1.0, 4000.0)] = 30,
        /// Times the middle one of the other lanes that make a lane stand out.
        lane_factor: f64 [above(1.0)] = 10.0,
        /// Share of a lane's bits above which a lane that stands out is told.
        lane_ber: f64 [between(0.0, 1.0)] = 1e-6,
    }
}

table! {
    /// Settings of `phy.symbol`.
    PhySymbol {
        /// Seconds the rate of symbol errors is taken over.
        window_s: f64 [between(0.1, 600.0)] = 10.0,
        /// Symbol errors per second that are too many when exceeded (InfiniBand ports).
        per_s: f64 [at_least(0.0)] = 100.0,
        /// Link recoveries, or local link integrity errors, that are told.
        recoveries: u64 [at_least(1.0)] = 1,
        /// Seconds without a further one after which the finding is over.
        clear_s: f64 [between(0.0, 3600.0)] = 600.0,
    }
}

table! {
    /// Settings of `nic.composite`.
    NicComposite {
        /// `"default"`: post-FEC or CRC errors alone in 2 of 3 windows, or the port down, at once. `"cross_check"`: down,
        /// or symbol errors with CRC errors, or symbol errors with a slow loopback, in `failure_threshold` checks in a
        /// row.
        preset: Preset = Preset::Default,
        /// Failed checks in a row that make a fault (`cross_check`). One clean check clears the count.
        failure_threshold: u32 [at_least(1.0)] = 3,
        /// Symbol errors per second that are too many when exceeded (`cross_check`).
        symbol_per_s: f64 [at_least(0.0)] = 100.0,
        /// Loopback latency in microseconds that is too high when exceeded (`cross_check`).
        loopback_us: f64 [at_least(0.0)] = 100.0,
    }
}

table! {
    /// Settings of `nic.health`.
    NicHealth {
        /// Failed firmware commands within ten minutes that are told.
        command_errors: u64 [at_least(1.0)] = 3,
        /// Degrees Celsius a temperature must fall below its limit before the finding is over.
        temperature_margin_c: f64 [between(0.0, 50.0)] = 5.0,
    }
}

table! {
    /// Settings of `nic.stuck`.
    NicStuck {
        /// Counters of one set that must read all ones at once.
        all_ones: usize [at_least(2.0)] = 3,
        /// Seconds without an answer, or without a sign of life, that are too long. Never less than five times
        /// the usual distance.
        silent_s: f64 [between(1.0, 3600.0)] = 30.0,
    }
}

table! {
    /// Settings of `loopback.high`.
    LoopbackHigh {
        /// Times a port's own baseline that are too much when exceeded.
        factor: f64 [above(1.0)] = 20.0,
        /// Microseconds below which no latency is too high.
        least_us: f64 [at_least(0.0)] = 100.0,
    }
}

table! {
    /// Settings of `qp.retry_exceeded`.
    QpRetryExceeded {
        /// Seconds within which a counter's growth and a QP's failure belong together.
        window_s: f64 [between(0.1, 60.0)] = 10.0,
        /// Seconds without further growth after which the finding is over.
        clear_s: f64 [between(0.0, 3600.0)] = 60.0,
    }
}

table! {
    /// Settings of `qp.error_state`.
    QpErrorState {
        /// More failed QPs of one port than this are told as one finding about the port.
        fold_above: usize [between(0.0, 255.0)] = 8,
        /// Seconds a finding stays at least, also when the QP is destroyed earlier.
        keep_s: f64 [between(0.0, 3600.0)] = 10.0,
        /// Seconds a QP must stay in the error state where no probe sees who asked for it: an application's
        /// own teardown takes less.
        settle_s: f64 [between(0.0, 3600.0)] = 10.0,
    }
}

table! {
    /// Settings of `qp.rnr`.
    QpRnr {
        /// Length of a window in seconds.
        window_s: f64 [between(0.1, 600.0)] = 10.0,
        /// Windows in which requests must have been turned away.
        windows: u64 [between(1.0, 60.0)] = 2,
        /// Out of so many; not fewer than `windows`.
        of: u64 [between(1.0, 60.0)] = 3,
        /// Requests turned away per second that make a warning when exceeded; fewer are worth an info.
        per_s: f64 [at_least(0.0)] = 10.0,
        /// Seconds without a further failure after which used up RNR retries are over.
        clear_s: f64 [between(0.0, 3600.0)] = 60.0,
    }
}

table! {
    /// Settings of `qp.software_error`.
    QpSoftwareError {
        /// Seconds within which a counter's growth and a QP's failure belong together.
        window_s: f64 [between(0.1, 60.0)] = 10.0,
        /// Seconds without a further error after which the finding is over.
        clear_s: f64 [between(0.0, 3600.0)] = 60.0,
    }
}

table! {
    /// Settings of `qp.stuck`.
    QpStuck {
        /// A QP's own ACK timeouts without a completion that are too many when exceeded.
        timeouts: f64 [at_least(1.0)] = 10.0,
        /// More such QPs of one port than this are told as one finding about the port.
        fold_above: usize [between(0.0, 255.0)] = 8,
    }
}

table! {
    /// Settings of `qp.cache_pressure`.
    QpCachePressure {
        /// Seconds looked back over.
        window_s: f64 [between(0.1, 600.0)] = 10.0,
        /// QPs posted to in one window (`rule.window_s`) from which on it is looked at.
        qps: u32 [at_least(1.0)] = 1024,
        /// QPs from which on their number alone is worth an info.
        many: u32 [at_least(1.0)] = 2048,
        /// Share of posts that go to another QP than the one before.
        switch_share: f64 [between(0.0, 1.0)] = 0.3,
        /// Times the latency of small operations with fewer QPs that are too much when exceeded.
        slower: f64 [above(1.0)] = 1.5,
    }
}

table! {
    /// Settings of `qp.small_messages`.
    QpSmallMessages {
        /// Seconds looked back over.
        window_s: f64 [between(0.1, 600.0)] = 10.0,
        /// Share of work requests of at most 4 KB.
        share: f64 [between(0.0, 1.0)] = 0.8,
        /// Work requests per second below which a port is not busy with them.
        per_s: f64 [at_least(0.0)] = 10_000.0,
        /// Share of the line rate from which on the link is used well enough.
        efficiency: f64 [between(0.0, 1.0)] = 0.5,
        /// Microseconds a small operation takes that nothing holds up: what fills the link is outstanding for so long.
        unloaded_us: f64 [above(0.0)] = 2.0,
    }
}

table! {
    /// Settings of `pcie.bandwidth_bound`.
    PcieBandwidthBound {
        /// Share of what the link carries that every window must reach.
        share: f64 [between(0.0, 1.0)] = 0.88,
    }
}

table! {
    /// Settings of `pcie.shared_uplink`.
    PcieSharedUplink {
        /// Share of what the uplink carries that the ports together must reach in every window.
        share: f64 [between(0.0, 1.0)] = 0.88,
    }
}

table! {
    /// Settings of `port.unstable_bandwidth`.
    PortUnstableBandwidth {
        /// Seconds looked back over.
        window_s: f64 [between(1.0, 3600.0)] = 300.0,
        /// Busy windows it takes.
        least_windows: usize [at_least(20.0)] = 60,
        /// Share of the rate from which on a window is busy.
        busy: f64 [between(0.0, 1.0)] = 0.25,
        /// Share of the mean by which the lowest 5 % may be below it.
        spread: f64 [between(0.0, 1.0)] = 0.25,
    }
}

table! {
    /// Settings of the failover stopwatch, which is no rule.
    Failover {
        /// Budgets in milliseconds that the outage of a failover is held against.
        budgets_ms: Vec<f64> [above(0.0)] = vec![50.0, 200.0],
        /// Seconds looked back for the first sign of a fault.
        lookback_s: f64 [between(1.0, 3600.0)] = 60.0,
        /// Seconds without anything new after which a failover is over.
        settle_s: f64 [between(0.0, 3600.0)] = 30.0,
    }
}

/// The rule set of `nic.composite`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// The strongest single signs suffice.
    #[default]
    Default,
    /// Signs must confirm each other.
    CrossCheck,
}

/// Globs of `DEVICE/PORT`; every one is valid.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct PortGlobs {
    globs: Vec<String>,
    set: GlobSet,
}

impl PortGlobs {
    /// The port is meant by one of them.
    #[must_use]
    pub fn matches(&self, device: &str, port: u32) -> bool {
        !self.globs.is_empty() && self.set.is_match(format!("{device}/{port}"))
    }

    /// The ports that are meant by their very names.
    pub fn named(&self) -> impl Iterator<Item = (&str, u32)> {
        let named = self.globs.iter().filter(|glob| !glob.contains(['*', '?', '[', '{', '\\']));
        named.filter_map(|glob| glob.split_once('/')).filter_map(|(device, port)| Some((device, port.parse().ok()?)))
    }

    /// Forgets ports that are named of devices that are not watched: whether they are up is then not asked.
    pub fn keep(&mut self, watched: impl Fn(&str) -> bool) {
        let unwatched: Vec<String> = self
            .named()
            .filter(|(device, _)| !watched(device))
            .map(|(device, port)| format!("{device}/{port}"))
            .collect();
        self.globs.retain(|glob| !unwatched.contains(glob));
    }
}

impl PartialEq for PortGlobs {
    fn eq(&self, other: &Self) -> bool {
        self.globs == other.globs
    }
}

impl TryFrom<Vec<String>> for PortGlobs {
    type Error = globset::Error;

    fn try_from(globs: Vec<String>) -> Result<Self, Self::Error> {
        let mut set = GlobSetBuilder::new();
        for glob in &globs {
            set.add(Glob::new(glob)?);
        }
        Ok(Self { set: set.build()?, globs })
    }
}

impl From<PortGlobs> for Vec<String> {
    fn from(globs: PortGlobs) -> Self {
        globs.globs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        rule: Settings,
    }

    #[test]
    fn the_sample_gives_the_defaults_and_explains_every_key() {
        let sample = Settings::sample_toml();
        let file: File = toml::from_str(&sample).unwrap();
        assert_eq!(file.rule, Settings::default());
        let mut before = "";
        for line in sample.lines() {
            assert!(!line.contains(" = ") || line.starts_with('#') || before.starts_with('#'), "{line}");
            before = line;
        }
    }

    #[test]
    fn every_key_is_in_the_sample() {
        fn keys(value: &toml::Value, out: &mut Vec<String>) {
            for (key, value) in value.as_table().into_iter().flatten() {
                out.push(key.clone());
                keys(value, out);
            }
        }
        let mut all = Vec::new();
        keys(&toml::Value::try_from(Settings::default()).unwrap(), &mut all);
        let sample = Settings::sample_toml();
        for key in all {
            assert!(sample.contains(&format!("{key} = ")) || sample.contains(&format!("[rule.{key}]")), "{key}");
        }
    }

    #[test]
    fn every_number_has_a_range_and_what_is_out_of_it_is_told() {
        assert_eq!(Settings::default().check(), Ok(()));
        let sample = Settings::sample_toml();
        let table: toml::Table = toml::from_str(&sample).unwrap();
        let rules = table["rule"].as_table().unwrap();
        let number = |value: &toml::Value| value.is_integer() || value.is_float();
        let mut seen = 0;
        for (name, table) in rules.iter().filter_map(|(name, table)| Some((name, table.as_table()?))) {
            for (key, value) in table.iter().filter(|(_, value)| number(value)) {
                let head = sample.split(&format!("[rule.{name}]\n")).nth(1).unwrap();
                let line = head.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
                assert!(line.contains(" # "), "{name}: {line}");
                let wrong = if value.is_float() { &["nan", "inf", "-3.5"][..] } else { &["-1", "9007199254740993"] };
                for wrong in wrong {
                    let read: Result<Settings, _> = toml::from_str(&format!("[{name}]\n{key} = {wrong}"));
                    // A count has no end where a limit that is never reached says what is meant.
                    if let Ok(settings) = read.as_ref().map(Settings::check)
                        && (value.is_float() || !line.ends_with(" or more"))
                    {
                        let told = settings.unwrap_err();
                        assert!(told.starts_with(&format!("rule.{name}.{key}: ")), "{told}");
                    }
                }
                seen += 1;
            }
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn values_that_would_switch_a_rule_off_are_told_with_key_value_and_range() {
        let told = |text: &str| toml::from_str::<Settings>(text).unwrap().check().unwrap_err();
        assert_eq!(told("[phy_post_fec]\nof = 0"), "rule.phy_post_fec.of: 0 is not within 1 to 60");
        assert_eq!(told("[phy_post_fec]\nwindows = 5"), "rule.phy_post_fec.windows: 5 is more than of = 3");
        assert!(told("[phy_post_fec]\nwindows = 4000000000").contains("4000000000 is not within 1 to 60"));
        for wrong in ["100000.0", "0.0", "-3.0", "nan", "inf"] {
            assert!(
                told(&format!("[phy_post_fec]\nwindow_s = {wrong}")).contains("is not within 0.1 to 600"),
                "{wrong}"
            );
        }
        assert_eq!(told("window_s = 0.0"), "rule.window_s: 0 is not within 0.1 to 3600");
        assert!(told("[failover]\nbudgets_ms = [50.0, -1.0]").contains("budgets_ms: -1 is not above 0"));
        assert!(told("[phy_pre_fec_trend]\nbaseline_windows = 2000").contains("longer than baseline_s = 3600 s"));
        assert!(told("[qp_retry_exceeded]\nclear_s = inf").contains("clear_s"));
    }

    #[test]
    fn a_misspelt_key_an_unknown_rule_and_a_bad_glob_are_errors() {
        assert!(toml::from_str::<Settings>("disabled = [\"link.flop\"]").is_err());
        assert!(toml::from_str::<Settings>("[link_down]\nexpcted = []").is_err());
        assert!(toml::from_str::<Settings>("[link_down]\nexpected = [\"a[\"]").is_err());
        let some: Settings = toml::from_str("[link_down]\nexpected = [\"mlx5_*/1\"]").unwrap();
        assert!(some.link_down.expected.matches("mlx5_3", 1) && !some.link_down.expected.matches("mlx5_3", 2));
    }
}
