//! Whose turn is next: a tournament among flows, each with the time of its next event.

use super::Picos;

/// The flows' next events. Setting one costs the logarithm of their number and moves no memory.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Time of each leaf's event; `MAX` where there is no flow.
    due: Vec<Picos>,
    /// Node `n` holds the winner of `2n` and `2n + 1`; leaves are not stored. Node 1 is the root.
    winner: Vec<u32>,
}

impl Schedule {
    pub(super) fn new(due: &[Picos]) -> Self {
        let leaves = due.len().next_power_of_two().max(2);
        let mut schedule = Self { due: vec![Picos::MAX; leaves], winner: vec![0; leaves] };
        for (flow, due) in due.iter().enumerate() {
            schedule.set(flow, *due);
        }
        for flow in (0..leaves).step_by(2) {
            schedule.set(flow, schedule.due[flow]);
        }
        schedule
    }

    /// The flow whose event is the earliest, the lowest number among equals, and its time.
    pub(super) fn first(&self) -> (usize, Picos) {
        let flow = self.winner[1] as usize;
        (flow, self.due[flow])
    }

    /// Moves a flow's next event.
    pub(super) fn set(&mut self, flow: usize, due: Picos) {
        self.due[flow] = due;
        let leaves = self.due.len();
        // The leaves' pair first: it compares flows, the levels above compare winners.
        let mut node = leaves / 2 + flow / 2;
        let (left, right) = (flow & !1, flow | 1);
        let mut best = if self.due[right] < self.due[left] { right } else { left };
        self.winner[node] = number(best);
        while node > 1 {
            let other = self.winner[node ^ 1] as usize;
            let (left, right) = if node & 1 == 0 { (best, other) } else { (other, best) };
            best = if self.due[right] < self.due[left] { right } else { left };
            node /= 2;
            self.winner[node] = number(best);
        }
    }
}

fn number(flow: usize) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "flows are counted with u32")]
    let number = flow as u32;
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::random::Random;

    #[test]
    fn the_first_is_the_earliest_and_the_lowest_among_equals() {
        for flows in [1_u64, 2, 3, 16, 17, 40] {
            let mut random = Random::new(flows);
            let mut due: Vec<Picos> = (0..flows).map(|_| random.below(50)).collect();
            let mut schedule = Schedule::new(&due);
            for _ in 0..500 {
                let earliest = due.iter().copied().min().unwrap();
                let flow = due.iter().position(|time| *time == earliest).unwrap();
                assert_eq!(schedule.first(), (flow, earliest));
                let moved = usize::try_from(random.below(flows)).unwrap();
                due[moved] = random.below(50);
                schedule.set(moved, due[moved]);
            }
        }
    }
}
