//! The history of a port's state: two sources tell of it, and not always in the order in which it changed.

use std::sync::Arc;

use super::PortRecord;
use crate::observation::{Nanos, PortState};

/// One change of a port's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    /// Before.
    pub from: PortState,
    /// After.
    pub to: PortState,
    /// Physical state after.
    pub phys_state: Option<Arc<str>>,
}

impl PortRecord {
    /// It is told of for the first time, and that it left ACTIVE for this state at `left`.
    pub(crate) fn fell_before(&mut self, left: Nanos, state: PortState) {
        if !matches!(state, PortState::Active | PortState::Unknown) {
            (self.state, self.first_seen) = (PortState::Active, (left, PortState::Active));
            self.change_state(left, state);
        }
    }

    /// The device is gone, and the state is not known any more, whatever another source said last.
    pub(crate) fn lose_device(&mut self, t: Nanos) {
        self.change_state(t.max(self.state_t), PortState::Unknown);
        self.bound.clear();
    }

    /// Notes a state; says whether it is a change between two known states.
    pub(crate) fn change_state(&mut self, t: Nanos, state: PortState) -> bool {
        if t < self.state_t {
            return false;
        }
        self.state_t = t;
        let from = std::mem::replace(&mut self.state, state);
        if from == state {
            return false;
        }
        // The order in which changes were told is the chain of states; a late one is not put before what it follows.
        let t = self.states.last().map_or(t, |(newest, _)| t.max(*newest));
        self.states.push(t, StateChange { from, to: state, phys_state: self.phys_state.clone() });
        true
    }

    /// When the port left ACTIVE for a state that is known, if it has not been ACTIVE since.
    #[must_use]
    pub fn left_active(&self) -> Option<Nanos> {
        let mut t = None;
        for (at, change) in self.states.iter().rev() {
            if change.to == PortState::Active {
                return None;
            }
            if change.to != PortState::Unknown {
                t = Some(*at);
            }
            if change.from == PortState::Active {
                return t;
            }
        }
        None
    }
}
