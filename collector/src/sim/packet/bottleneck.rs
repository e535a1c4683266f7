//! The switch's output queue, and RED marking at its tail.

use super::params::{Faults, Red};
use super::simulation::Ecn;
use super::{Picos, serialization_ps};
use crate::sim::random::Random;

/// A queue served at a fixed rate. Its length is the time until it is empty: no departure has to be simulated.
#[derive(Debug)]
pub(super) struct Bottleneck {
    rate_bps: f64,
    /// When the last byte now in the queue will have left.
    empty_at: Picos,
    marking: Marking,
}

/// [`Red`] in the queue's own unit, with the faults that concern it.
#[derive(Debug)]
struct Marking {
    kmin_ps: Picos,
    kmax_ps: Picos,
    /// Growth of the probability with the queue, 1/ps.
    slope: f64,
    off: bool,
    random: f64,
    not_ect: f64,
}

impl Bottleneck {
    pub(super) fn new(rate_bps: f64, red: &Red, faults: &Faults) -> Self {
        Self { rate_bps, empty_at: 0, marking: Marking::new(rate_bps, red, faults) }
    }

    /// Changes the thresholds and faults; the queue stays.
    pub(super) fn set_marking(&mut self, red: &Red, faults: &Faults) {
        self.marking = Marking::new(self.rate_bps, red, faults);
    }

    /// When the queue will be empty if nothing more arrives.
    pub(super) fn empty_at(&self) -> Picos {
        self.empty_at
    }

    /// Time the queue takes to empty, seen by what arrives at `t`.
    pub(super) fn wait(&self, t: Picos) -> Picos {
        self.empty_at.saturating_sub(t)
    }

    /// Bytes that leave in so much time.
    pub(super) fn bytes(&self, wait: Picos) -> u64 {
        super::whole(wait as f64 * self.rate_bps / 8e12)
    }

    /// Decides about a packet that finds this wait in front of it.
    pub(super) fn mark(&self, wait: Picos, random: &mut Random) -> Ecn {
        let marking = &self.marking;
        if marking.not_ect > 0.0 && random.unit() < marking.not_ect {
            return Ecn::NotEct;
        }
        if marking.random > 0.0 && random.unit() < marking.random {
            return Ecn::Ce;
        }
        if marking.off || wait <= marking.kmin_ps {
            return Ecn::Ect;
        }
        let sure = wait > marking.kmax_ps;
        if sure || random.unit() < (wait - marking.kmin_ps) as f64 * marking.slope { Ecn::Ce } else { Ecn::Ect }
    }

    /// Takes a packet that needs `service` on the wire; when its last bit leaves.
    pub(super) fn enqueue(&mut self, t: Picos, service: Picos) -> Picos {
        self.empty_at = self.empty_at.max(t) + service;
        self.empty_at
    }
}

impl Marking {
    fn new(rate_bps: f64, red: &Red, faults: &Faults) -> Self {
        let kmin_ps = serialization_ps(red.kmin_bytes, rate_bps);
        let kmax_ps = serialization_ps(red.kmax_bytes, rate_bps);
        let slope = if kmax_ps > kmin_ps { red.pmax / (kmax_ps - kmin_ps) as f64 } else { 0.0 };
        let (off, random, not_ect) = (faults.marking_off, faults.random_marking, faults.not_ect_share);
        Self { kmin_ps, kmax_ps, slope, off, random, not_ect }
    }
}
