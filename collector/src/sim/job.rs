//! What the training job on the node does: it trains in steps, saves checkpoints, ends, and begins again.

use super::random::Random;

/// Which job runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum JobKind {
    /// Steps without end, as a demonstration wants it.
    Steady,
    /// Steps without end, of a kind the seed decides.
    Training,
    /// Idle times, training, checkpoints, restarts.
    Mixed,
    /// Many small messages instead of bulk transfers.
    SmallMessages,
}

/// What the node's ports are offered during a tick.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Offer {
    /// Share of the tick in which the job communicates.
    pub(super) share: f64,
    /// Load while it does, as a share of the rate.
    pub(super) load: f64,
    /// Load on the storage port.
    pub(super) storage: f64,
    /// The job runs.
    pub(super) running: bool,
}

/// How a training job moves its data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pattern {
    /// Length of a step, s.
    pub(super) step_s: f64,
    /// Share of a step in which gradients are exchanged.
    pub(super) communicating: f64,
    /// Load meanwhile.
    pub(super) load: f64,
    /// Size of a burst, bytes.
    pub(super) burst_bytes: f64,
    /// Senders that meet in one queue.
    pub(super) senders: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Starting,
    Training,
    Checkpoint,
}

/// The job.
pub(super) struct Job {
    kind: JobKind,
    pub(super) pattern: Pattern,
    phase: Phase,
    /// When the phase ends, and when the step began, s since the start.
    until_s: f64,
    step_at_s: f64,
    /// Phases of training before the job ends.
    rounds: u64,
    random: Random,
}

impl Job {
    pub(super) fn new(kind: JobKind, mut random: Random) -> Self {
        let pattern = match kind {
            JobKind::Steady => Pattern::STEADY,
            JobKind::SmallMessages => Pattern { load: 0.05, burst_bytes: 16e3, communicating: 1.0, ..Pattern::STEADY },
            JobKind::Training | JobKind::Mixed => Pattern::draw(&mut random),
        };
        let mut job =
            Self { kind, pattern, phase: Phase::Training, until_s: f64::MAX, step_at_s: 0.0, rounds: 3, random };
        if kind == JobKind::Mixed {
            job.until_s = job.random.between(120.0, 1_800.0);
        }
        job
    }

    /// What is offered between `from_s` and `from_s + dt_s`.
    pub(super) fn offer(&mut self, from_s: f64, dt_s: f64) -> Offer {
        if from_s >= self.until_s {
            self.next_phase(from_s);
        }
        let (share, load, storage) = match self.phase {
            Phase::Idle => (1.0, 0.0, 0.001),
            Phase::Starting => (0.1, 0.02, 0.05),
            Phase::Checkpoint => (1.0, 0.015, 0.55),
            Phase::Training => (self.communicating(from_s, dt_s), self.pattern.load, 0.02),
        };
        Offer { share, load, storage, running: self.running() }
    }

    /// Small operations that are outstanding on a port all the time; 0 where small messages only go with the bulk.
    pub(super) fn outstanding(&self) -> f64 {
        if self.kind == JobKind::SmallMessages { 8.0 } else { 0.0 }
    }

    /// The job runs: it has QPs.
    pub(super) fn running(&self) -> bool {
        self.phase != Phase::Idle
    }

    fn next_phase(&mut self, now_s: f64) {
        let random = &mut self.random;
        let (phase, length) = match self.phase {
            Phase::Training if self.rounds > 0 => {
                self.rounds -= 1;
                (Phase::Checkpoint, random.between(10.0, 60.0))
            }
            Phase::Training => (Phase::Idle, random.log_between(30.0, 1_200.0)),
            Phase::Idle => (Phase::Starting, random.between(10.0, 40.0)),
            Phase::Starting | Phase::Checkpoint => (Phase::Training, random.between(300.0, 2_400.0)),
        };
        if phase == Phase::Starting {
            self.rounds = random.below(6);
            self.pattern = Pattern::draw(random);
        }
        self.phase = phase;
        self.until_s = now_s + length;
        self.step_at_s = now_s;
    }

    /// Share of a time in which the job communicates: each step computes first.
    fn communicating(&mut self, from_s: f64, dt_s: f64) -> f64 {
        let Pattern { step_s, communicating, .. } = self.pattern;
        if communicating >= 1.0 || self.kind == JobKind::SmallMessages {
            return 1.0;
        }
        let busy_before = |t: f64| {
            let t = (t - self.step_at_s).max(0.0);
            let (steps, rest) = ((t / step_s).floor(), t % step_s);
            steps * step_s * communicating + (rest - step_s * (1.0 - communicating)).max(0.0)
        };
        ((busy_before(from_s + dt_s) - busy_before(from_s)) / dt_s).clamp(0.0, 1.0)
    }
}

impl Pattern {
    /// A large model: it communicates nearly all the time.
    const STEADY: Self = Self { step_s: 9.0, communicating: 1.0, load: 0.77, burst_bytes: 128e3, senders: 8.0 };

    fn draw(random: &mut Random) -> Self {
        Self {
            step_s: random.log_between(0.4, 12.0),
            communicating: random.between(0.25, 0.95),
            load: random.between(0.3, 0.9),
            burst_bytes: random.log_between(32e3, 512e3),
            senders: random.log_between(4.0, 16.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ticks_and_long_ones_offer_the_same_in_the_end() {
        let job = |kind| Job::new(kind, Random::new(5));
        let total = |ticks: u32, dt: f64| {
            let mut job = job(JobKind::Training);
            (0..ticks).map(|i| job.offer(f64::from(i) * dt, dt).share * dt).sum::<f64>()
        };
        assert!((total(3_000, 0.01) - total(30, 1.0)).abs() < 1e-6);
    }

    #[test]
    fn a_day_of_mixed_traffic_has_every_phase_and_restarts() {
        let mut job = Job::new(JobKind::Mixed, Random::new(1));
        let offers: Vec<Offer> = (0..86_400).map(|s| job.offer(f64::from(s), 1.0)).collect();
        assert!(offers.windows(2).filter(|pair| !pair[0].running && pair[1].running).count() >= 3);
        assert!(offers.iter().any(|offer| !offer.running) && offers.iter().any(|offer| offer.storage > 0.5));
        assert!(offers.iter().filter(|offer| offer.load > 0.2).count() > 20_000);
    }
}
