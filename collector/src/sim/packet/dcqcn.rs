//! DCQCN at the sender: what a CNP does to a flow's rate, and how the rate comes back.
//!
//! A cut halves the rate at most; how much it takes depends on alpha, an average of how often CNPs came. After it a timer
//! and a byte counter step the rate towards the target it had before, then the target itself upwards.

use super::params::{ParamsError, within};
use super::{PS_PER_NS, Picos};

/// Parameters of DCQCN, sender (reaction point) and receiver (notification point) together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Control {
    /// Name of the set.
    pub name: &'static str,
    /// Weight of the newest sample in alpha, 0–1.
    pub g: f64,
    /// Alpha before the first CNP, 0–1.
    pub initial_alpha: f64,
    /// At the end of each such period alpha rises if a CNP came in it, and decays otherwise, ns.
    pub alpha_period_ns: u64,
    /// Shortest time between two cuts, ns.
    pub min_cut_interval_ns: u64,
    /// Time between two steps up, ns.
    pub increase_period_ns: u64,
    /// Bytes sent between two steps up; `None` does not count bytes.
    pub byte_reset: Option<u64>,
    /// Steps that only halve the distance to the target, before the target rises.
    pub recovery_steps: u32,
    /// Additive increase of the target, Gb/s.
    pub ai_gbps: f64,
    /// Hyper increase of the target, Gb/s.
    pub hai_gbps: f64,
    /// Rate no cut goes below, Gb/s.
    pub min_rate_gbps: f64,
    /// The target follows the rate at every cut; otherwise only at a cut after a step up.
    pub clamp_target: bool,
    /// Shortest time between two CNPs of a flow, ns.
    pub cnp_interval_ns: u64,
}

impl Control {
    /// The paper's parameters (Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015), whose
    /// increases are for 40 Gb/s, scaled to another rate. At most one cut in 50 µs, as public simulators of it have it.
    #[must_use]
    pub fn paper(rate_gbps: f64) -> Self {
        Self {
            name: "paper",
            g: 1.0 / 256.0,
            initial_alpha: 1.0,
            alpha_period_ns: 55_000,
            min_cut_interval_ns: 50_000,
            increase_period_ns: 55_000,
            byte_reset: Some(10_000_000),
            recovery_steps: 5,
            ai_gbps: 0.04 * rate_gbps / 40.0,
            hai_gbps: 0.2 * rate_gbps / 40.0,
            min_rate_gbps: 0.001,
            clamp_target: true,
            cnp_interval_ns: 50_000,
        }
    }

    /// The defaults of NVIDIA's NICs: `dce_tcp_g` 1019/1024, alpha every 1 µs, cuts and CNPs at most every 4 µs, steps every
    /// 300 µs, one recovery step, `clamp_tgt_rate` 0; increases of 5 and 50 Mb/s for 25 Gb/s, scaled to another rate. The
    /// byte counter is the paper's: the unit of `rpg_byte_reset` is not documented.
    #[must_use]
    pub fn nic(rate_gbps: f64) -> Self {
        Self {
            name: "nic",
            g: 5.0 / 1024.0,
            initial_alpha: 1.0,
            alpha_period_ns: 1_000,
            min_cut_interval_ns: 4_000,
            increase_period_ns: 300_000,
            byte_reset: Some(10_000_000),
            recovery_steps: 1,
            ai_gbps: 0.005 * rate_gbps / 25.0,
            hai_gbps: 0.05 * rate_gbps / 25.0,
            min_rate_gbps: 0.001,
            clamp_target: false,
            cnp_interval_ns: 4_000,
        }
    }

    /// Whether every parameter is in its range.
    pub(super) fn check(&self) -> Result<(), ParamsError> {
        within("g", self.g, 0.0, 1.0)?;
        within("the first alpha", self.initial_alpha, 0.0, 1.0)?;
        within("the alpha period in ns", self.alpha_period_ns as f64, 1.0, 1e9)?;
        within("the least time between cuts in ns", self.min_cut_interval_ns as f64, 0.0, 1e12)?;
        within("the least time between CNPs in ns", self.cnp_interval_ns as f64, 0.0, 1e12)?;
        within("the increase period in ns", self.increase_period_ns as f64, 1_000.0, 1e12)?;
        within("the byte reset", self.byte_reset.unwrap_or(1) as f64, 1.0, 1e15)?;
        within("the additive increase in Gb/s", self.ai_gbps, 0.0, 3_200.0)?;
        within("the hyper increase in Gb/s", self.hai_gbps, 0.0, 3_200.0)?;
        within("the least rate in Gb/s", self.min_rate_gbps, 1e-6, 3_200.0)
    }
}

/// The rate of one flow.
#[derive(Debug, Clone)]
pub(super) struct Rate {
    /// Current rate, Gb/s.
    current: f64,
    target: f64,
    alpha: f64,
    /// Alpha is up to date until here.
    alpha_at: Picos,
    /// A CNP came in the current alpha period.
    cnp_in_period: bool,
    /// No cut before.
    may_cut_at: Picos,
    /// The next step by time; `MAX` at line rate.
    step_at: Picos,
    /// Steps by time and by bytes since the last cut.
    time_steps: u32,
    byte_steps: u32,
    bytes: u64,
    /// There was a step up since the last cut.
    raised: bool,
    /// There was a CNP.
    started: bool,
}

/// Closer to line rate than this is line rate.
const AT_LINE: f64 = 1.0 - 1e-6;

impl Rate {
    pub(super) fn new(control: &Control, line_gbps: f64) -> Self {
        Self {
            current: line_gbps,
            target: line_gbps,
            alpha: control.initial_alpha,
            alpha_at: 0,
            cnp_in_period: false,
            may_cut_at: 0,
            step_at: Picos::MAX,
            time_steps: 0,
            byte_steps: 0,
            bytes: 0,
            raised: true,
            started: false,
        }
    }

    /// Current rate, Gb/s.
    pub(super) fn gbps(&self) -> f64 {
        self.current
    }

    /// When the rate rises next by time alone; `MAX` at line rate.
    pub(super) fn step_at(&self) -> Picos {
        self.step_at
    }

    /// Takes every step by time up to `t`; whether the rate changed.
    pub(super) fn advance(&mut self, t: Picos, control: &Control, line: f64) -> bool {
        if self.step_at > t {
            return false;
        }
        while self.step_at <= t {
            self.step_at += control.increase_period_ns * PS_PER_NS;
            self.time_steps += 1;
            self.raise(control, line);
        }
        true
    }

    /// Counts sent bytes; whether the rate changed.
    pub(super) fn sent(&mut self, bytes: u64, control: &Control, line: f64) -> bool {
        let Some(reset) = control.byte_reset else { return false };
        if self.step_at == Picos::MAX {
            return false;
        }
        self.bytes += bytes;
        if self.bytes < reset {
            return false;
        }
        self.bytes -= reset;
        self.byte_steps += 1;
        self.raise(control, line);
        true
    }

    fn raise(&mut self, control: &Control, line: f64) {
        self.raised = true;
        let most = self.time_steps.max(self.byte_steps);
        // By two counters the paper's rule; by one that of NICs, whose first step after recovery is always additive.
        let hyper = match control.byte_reset {
            Some(_) => self.time_steps.min(self.byte_steps) > control.recovery_steps,
            None => most > control.recovery_steps.saturating_add(1),
        };
        let increase = match (most <= control.recovery_steps, hyper) {
            (true, _) => 0.0,
            (false, false) => control.ai_gbps,
            (false, true) => control.hai_gbps,
        };
        self.target = (self.target + increase).min(line);
        self.current = f64::midpoint(self.current, self.target);
        if self.current >= line * AT_LINE {
            (self.current, self.target) = (line, line);
            self.step_at = Picos::MAX;
        }
    }

    /// A CNP arrives; whether the rate changed.
    pub(super) fn cnp(&mut self, t: Picos, control: &Control) -> bool {
        if !self.started {
            self.started = true;
            self.alpha_at = t;
        }
        self.decay(t, control);
        self.cnp_in_period = true;
        let cut = t >= self.may_cut_at;
        if cut {
            self.cut(t, control);
        }
        cut
    }

    /// Brings alpha to `t`.
    fn decay(&mut self, t: Picos, control: &Control) {
        let period = control.alpha_period_ns * PS_PER_NS;
        let mut periods = (t - self.alpha_at) / period;
        self.alpha_at += periods * period;
        if periods > 0 && self.cnp_in_period {
            self.alpha = (1.0 - control.g) * self.alpha + control.g;
            self.cnp_in_period = false;
            periods -= 1;
        }
        if periods > 0 {
            let periods = i32::try_from(periods).unwrap_or(i32::MAX);
            self.alpha *= (1.0 - control.g).powi(periods);
        }
    }

    fn cut(&mut self, t: Picos, control: &Control) {
        if control.clamp_target || self.raised {
            self.target = self.current;
        }
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(control.min_rate_gbps);
        self.may_cut_at = t + control.min_cut_interval_ns * PS_PER_NS;
        self.step_at = t + control.increase_period_ns * PS_PER_NS;
        self.time_steps = 0;
        self.byte_steps = 0;
        self.bytes = 0;
        self.raised = false;
    }
}
