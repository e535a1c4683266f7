//! The list of QPs, taken a part at a time.
//!
//! On mlx5 each QP of the list costs a firmware command, which the kernel gives while the answer is read. So the QPs
//! are counted first (that queries none), the period grows with their number, and a long list is read in steps: no poll
//! waits for more than a part of some hundred QPs, and no second for more than the options allow.

use std::collections::VecDeque;

use crate::observation::Nanos;
use crate::source::Emit;

use super::owner::Owners;
use super::uapi::{attr, command};
use super::{Link, Nldev, count_overrun, next, reply, stretched};

/// A step ends after the part that reaches this many QPs; the kernel puts about 400 into one.
const QPS_PER_STEP: u64 = 512;

/// A list that is being read.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Indices of the devices whose list has not begun.
    waiting: VecDeque<u32>,
    /// The device whose list is being read.
    current: Option<u32>,
    gaps: QpGaps,
    due: Nanos,
}

impl Listing {
    /// When the next step may be made.
    pub(super) fn due(&self) -> Nanos {
        self.due
    }
}

/// What the last list of QPs did not tell.
#[derive(Debug, Default)]
pub(super) struct QpGaps {
    /// Devices whose list failed or was inconsistent, and why.
    pub(super) incomplete: Vec<(String, String)>,
    /// Entries that could not be read.
    pub(super) odd: u64,
}

impl Nldev {
    /// Begins a list when it is time for one, and goes on with one that has begun.
    pub(super) fn list_qps(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        if self.listing.is_none() && now >= self.qps_due {
            self.begin_listing(now);
        }
        if let Some(mut listing) = self.listing.take_if(|listing| now >= listing.due) {
            if self.step(&mut listing, now, emit) {
                self.qp_gaps = listing.gaps;
            } else {
                self.listing = Some(listing);
            }
        }
    }

    /// Counts the QPs and begins a list, unless the last one is too recent for their number.
    fn begin_listing(&mut self, now: Nanos) {
        if matches!(self.link, Link::Closed { .. }) {
            return;
        }
        let count = self.count_known().max(self.qps.len() as u64);
        let usual = self.usual_qp_period(now);
        self.qp_period = stretched(usual, count, self.options.max_qp_queries_per_s);
        self.qps_due = next(self.qps_due, usual, now);
        if self.qps_listed.is_some_and(|listed| now < listed.saturating_add(self.qp_period)) {
            return;
        }
        self.qps_listed = Some(now);
        self.qps.begin();
        let waiting = self.devices.iter().map(|device| device.index).collect();
        self.listing = Some(Listing { waiting, due: now, ..Listing::default() });
    }

    /// The QPs of the known devices, by one question a device that costs no query of the driver.
    fn count_known(&mut self) -> u64 {
        let Link::Open { questions, .. } = &mut self.link else { return 0 };
        let mut count = 0u64;
        for device in &self.devices {
            let answer = questions.get(command::RES_GET, &[(attr::DEV_INDEX, device.index)], |message| {
                count = count.saturating_add(reply::qp_count(message).unwrap_or(0));
            });
            if let Err(fault) = answer {
                count_overrun(&mut self.overruns, &fault);
            }
        }
        count
    }

    /// The number of QPs on the node now, to size what cannot grow later; 0 where nobody tells.
    pub fn count_qps(&mut self) -> u64 {
        self.list_devices(0, &mut |_| {});
        let count = self.count_known();
        // What was found here has been told to nobody: the first poll begins anew.
        self.devices.clear();
        self.devices_due = 0;
        count
    }

    /// Reads on until the step is full; `true` when the list is at its end.
    fn step(&mut self, listing: &mut Listing, now: Nanos, emit: &mut Emit<'_>) -> bool {
        let Link::Open { lists, .. } = &mut self.link else { return true };
        let mut owners = Owners::below(&self.options.proc);
        let mut listed = 0;
        while listed < QPS_PER_STEP {
            let begun = listing.current.is_some();
            let Some(index) = listing.current.take().or_else(|| listing.waiting.pop_front()) else { return true };
            let Some(device) = self.devices.iter().find(|device| device.index == index) else {
                // The device went away since the last step, and its QPs with it.
                lists.abandon();
                continue;
            };
            let asked = if begun { Ok(()) } else { lists.begin_dump(command::RES_QP_GET, &[(attr::DEV_INDEX, index)]) };
            let part = asked.and_then(|()| {
                lists.part(|message| {
                    listing.gaps.odd += reply::qps(message, |qp| {
                        listed += 1;
                        self.qps.see(device, qp, &mut owners, now, emit);
                    });
                })
            });
            match part {
                Ok(None) => listing.current = Some(index),
                Ok(Some(answer)) => {
                    self.qps.end(device, answer, now, emit);
                    if answer.interrupted {
                        let why = "the list changed while it was read".to_owned();
                        listing.gaps.incomplete.push((device.name.clone(), why));
                    }
                }
                Err(fault) => {
                    count_overrun(&mut self.overruns, &fault);
                    listing.gaps.incomplete.push((device.name.clone(), fault.to_string()));
                }
            }
        }
        listing.due = now.saturating_add(stretched(0, listed, self.options.max_qp_queries_per_s));
        false
    }
}
