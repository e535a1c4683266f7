//! All QPs, in chunks that snapshots share, with as many histories as there is room for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::{QPN_BITS, QpDetail, QpRecord, QpRef};
use crate::inventory::DeviceId;
use crate::observation::{Nanos, QpState};

/// Records in one shared chunk: the engine copies at most one chunk to change one QP while a snapshot is looked at.
const CHUNK: usize = 512;
/// A history with its histograms and the newest block of its rates, bytes: measured on the simulated node.
const DETAIL: usize = 2_600;
/// QPs with a history at the same time. Beyond that one that was quiet for [`QUIET_NS`] loses its history.
const MAX_DETAILS: usize = 8192;
/// A QP nothing happened to for a minute can spare its history.
const QUIET_NS: Nanos = 60_000_000_000;
/// A rate is taken for the present one for as long as this: sweeps are a second apart, but for pauses of the probes.
const RATE_HOLDS_NS: Nanos = 10_000_000_000;
/// Destroyed QPs that are remembered.
const MAX_GONE: usize = 1024;

/// All QPs.
#[derive(Debug, Clone, Default)]
pub struct QpTable {
    chunks: Vec<Arc<Vec<Option<QpRecord>>>>,
    /// Live QPs by device and [`number`](super::number).
    index: Arc<HashMap<(DeviceId, u32), u32, FixedState>>,
    free: Arc<Vec<u32>>,
    /// Destroyed QPs, oldest first.
    gone: Arc<VecDeque<QpRecord>>,
    generation: u32,
    slots: u32,
    live: usize,
    /// Live QPs that were traced once.
    traced: usize,
    details: usize,
    hand: u32,
    no_room_until: Nanos,
    /// Histories that were given up, or not begun, for want of room.
    pub details_dropped: u64,
    /// Destroyed QPs that are no longer remembered.
    pub gone_dropped: u64,
    /// Time of the newest sweep, and of the one before.
    pub sweeps: [Option<Nanos>; 2],
}

impl QpTable {
    /// Number of live QPs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Number of live QPs that have numbers: they were traced once.
    #[must_use]
    pub fn traced(&self) -> usize {
        self.traced
    }

    /// There is no live QP.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The live QPs, in no particular but stable order.
    pub fn iter(&self) -> impl Iterator<Item = &QpRecord> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).flatten()
    }

    /// Destroyed QPs that are remembered, newest first.
    pub fn gone(&self) -> impl Iterator<Item = &QpRecord> {
        self.gone.iter().rev()
    }

    /// A live or remembered QP.
    #[must_use]
    pub fn get(&self, id: QpRef) -> Option<&QpRecord> {
        let (chunk, at) = place(id.slot);
        let live = self.chunks.get(chunk).and_then(|chunk| chunk.get(at)).and_then(Option::as_ref);
        live.filter(|qp| qp.id == id).or_else(|| self.gone.iter().find(|qp| qp.id == id))
    }

    /// The live QP of a number.
    #[must_use]
    pub fn find(&self, device: DeviceId, number: u32) -> Option<&QpRecord> {
        let slot = *self.index.get(&(device, number))?;
        let (chunk, at) = place(slot);
        self.chunks.get(chunk)?.get(at)?.as_ref()
    }

    /// The rate of a QP at `now`, bytes per second: what the last sweep measured, 0 when the last sweep saw it and it did
    /// not move, `None` when it is not traced, or when that sweep is too long ago to say anything of now.
    #[must_use]
    pub fn rate_now(&self, qp: &QpRecord, now: Nanos) -> Option<f64> {
        let stats_t = qp.stats_t?;
        let newest = self.sweeps[0].filter(|newest| now.saturating_sub(*newest) <= RATE_HOLDS_NS)?;
        // What was told after the sweep before belongs to this one, though its line may be a moment older than the sweep's.
        let moved = stats_t >= newest || self.sweeps[1].is_none_or(|earlier| stats_t > earlier);
        if moved { qp.rate.map(f64::from) } else { Some(0.0) }
    }

    /// About the memory this table takes while a later one is kept too, bytes: what changed since is a copy, chunk by chunk,
    /// and so are at most as many histories.
    pub(crate) fn apart_from(&self, later: &Self) -> usize {
        let own = self.chunks.iter().enumerate();
        let changed = own.filter(|(at, chunk)| !later.chunks.get(*at).is_some_and(|n| Arc::ptr_eq(chunk, n)));
        let records: usize = changed.map(|(_, chunk)| chunk.len()).sum();
        let histories = records.min(self.details);
        records * size_of::<Option<QpRecord>>() + histories * DETAIL
    }

    /// QPs that have a history.
    #[must_use]
    pub fn details(&self) -> usize {
        self.details
    }

    /// The live QP of a number, made when there is none, for changing.
    pub(crate) fn entry(&mut self, t: Nanos, device: DeviceId, number: u32) -> &mut QpRecord {
        let slot = match self.index.get(&(device, number)) {
            Some(slot) => *slot,
            None => self.insert(t, device, number),
        };
        self.at_mut(slot)
    }

    /// Notes that the numbers of a live QP changed at `t`.
    pub(crate) fn counted(&mut self, t: Nanos, id: QpRef) {
        if let Some(qp) = self.get_mut(id)
            && qp.stats_t.replace(t).is_none()
        {
            self.traced += 1;
        }
    }

    /// A live QP for changing.
    pub(crate) fn get_mut(&mut self, id: QpRef) -> Option<&mut QpRecord> {
        let (chunk, at) = place(id.slot);
        self.chunks.get(chunk)?.get(at)?.as_ref().filter(|qp| qp.id == id)?;
        Some(self.at_mut(id.slot))
    }

    fn at_mut(&mut self, slot: u32) -> &mut QpRecord {
        let (chunk, at) = place(slot);
        Arc::make_mut(&mut self.chunks[chunk])[at].as_mut().expect("an indexed slot holds a QP")
    }

    fn insert(&mut self, t: Nanos, device: DeviceId, number: u32) -> u32 {
        let slot = Arc::make_mut(&mut self.free).pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.generation = self.generation.wrapping_add(1);
        let (chunk, at) = place(slot);
        if chunk == self.chunks.len() {
            self.chunks.push(Arc::new(Vec::with_capacity(CHUNK)));
        }
        let rows = Arc::make_mut(&mut self.chunks[chunk]);
        if at == rows.len() {
            rows.push(None);
        }
        rows[at] = Some(QpRecord {
            id: QpRef { slot, generation: self.generation },
            device,
            port: u8::try_from(number >> QPN_BITS).ok().filter(|port| *port > 0),
            qpn: number & ((1 << QPN_BITS) - 1),
            qp_type: None,
            state: QpState::Unknown,
            pid: None,
            comm: None,
            container: None,
            remote_qpn: None,
            remote_gid: None,
            since: t,
            created: false,
            destroyed: None,
            stats_t: None,
            posts: 0,
            wrs: 0,
            bytes: 0,
            rate: None,
            posted_in: 0,
            errors: None,
            timeout: None,
            retry_cnt: None,
            rnr_retry: None,
            path_mtu_bytes: None,
            detail: None,
        });
        Arc::make_mut(&mut self.index).insert((device, number), slot);
        self.live += 1;
        slot
    }

    /// Ends a QP: it is remembered for a while.
    pub(crate) fn end(&mut self, t: Nanos, device: DeviceId, number: u32) -> Option<QpRef> {
        let slot = Arc::make_mut(&mut self.index).remove(&(device, number))?;
        let (chunk, at) = place(slot);
        let mut qp = Arc::make_mut(&mut self.chunks[chunk])[at].take()?;
        Arc::make_mut(&mut self.free).push(slot);
        self.live -= 1;
        self.traced -= usize::from(qp.stats_t.is_some());
        if qp.detail.is_some() {
            self.details -= 1;
        }
        qp.destroyed = Some(t);
        let id = qp.id;
        let gone = Arc::make_mut(&mut self.gone);
        if gone.len() == MAX_GONE {
            gone.pop_front();
            self.gone_dropped += 1;
        }
        gone.push_back(qp);
        Some(id)
    }

    /// The history of a live QP for changing, made when there is none. `None` when all the room is taken by QPs that are busy
    /// too: then this one does without and is counted.
    pub(crate) fn detail(&mut self, t: Nanos, id: QpRef) -> Option<&mut QpDetail> {
        let (chunk, at) = place(id.slot);
        let qp = self.chunks.get(chunk)?.get(at)?.as_ref().filter(|qp| qp.id == id)?;
        if qp.detail.is_none() {
            if self.details >= MAX_DETAILS && !self.make_room(t) {
                self.details_dropped += 1;
                return None;
            }
            self.details += 1;
        }
        let detail = Arc::make_mut(self.at_mut(id.slot).detail.get_or_insert_default());
        detail.touched = t;
        Some(detail)
    }

    /// Takes the history of a QP that has been quiet for long. After a vain search there is none until `QUIET_NS / 60`
    /// later, so that a storm of busy QPs does not search again for each.
    fn make_room(&mut self, t: Nanos) -> bool {
        if t < self.no_room_until {
            return false;
        }
        for _ in 0..self.slots {
            self.hand = (self.hand + 1) % self.slots.max(1);
            let (chunk, at) = place(self.hand);
            let record = self.chunks.get(chunk).and_then(|chunk| chunk.get(at)).and_then(Option::as_ref);
            let detail = record.and_then(|qp| qp.detail.as_ref());
            if detail.is_some_and(|detail| t.saturating_sub(detail.touched) >= QUIET_NS) {
                self.at_mut(self.hand).detail = None;
                self.details -= 1;
                self.details_dropped += 1;
                return true;
            }
        }
        self.no_room_until = t.saturating_add(QUIET_NS / 60);
        false
    }

    /// Ends every QP of a device.
    pub(crate) fn end_device(&mut self, t: Nanos, device: DeviceId) {
        let mut all: Vec<u32> = self.iter().filter(|qp| qp.device == device).map(QpRecord::number).collect();
        all.sort_unstable();
        for number in all {
            self.end(t, device, number);
        }
    }

    /// Notes that a sweep (or a single line of statistics) was taken at `t`.
    pub(crate) fn swept(&mut self, t: Nanos) {
        if self.sweeps[0].is_none_or(|newest| t > newest) {
            self.sweeps = [Some(t), self.sweeps[0]];
        }
    }
}

fn place(slot: u32) -> (usize, usize) {
    (slot as usize / CHUNK, slot as usize % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::qp::number;

    const D: DeviceId = DeviceId(0);

    #[test]
    fn an_idle_qp_costs_at_most_256_bytes() {
        let record = size_of::<Option<QpRecord>>();
        let index = size_of::<((DeviceId, u32), u32)>() * 8 / 7 * 2 + 2;
        assert!(record + index <= 256, "{record} + {index}");
    }

    #[test]
    fn a_reused_number_is_another_qp() {
        let mut table = QpTable::default();
        let first = table.entry(1, D, 17).id;
        table.end(2, D, 17);
        let second = table.entry(3, D, 17).id;
        assert_ne!(first, second);
        assert_eq!(table.get(first).unwrap().destroyed, Some(2));
        assert_eq!(table.get(second).unwrap().destroyed, None);
    }

    #[test]
    fn a_qp_is_traced_once_until_it_ends() {
        let mut table = QpTable::default();
        let id = table.entry(1, D, 17).id;
        table.entry(1, D, 18);
        assert_eq!(table.traced(), 0);
        for t in [2, 3] {
            table.counted(t, id);
            assert_eq!((table.traced(), table.get(id).unwrap().stats_t), (1, Some(t)));
        }
        table.end(4, D, 18);
        assert_eq!(table.traced(), 1);
        table.end(4, D, 17);
        assert_eq!(table.traced(), 0);
    }

    #[test]
    fn the_same_number_on_two_devices_is_two_qps() {
        let mut table = QpTable::default();
        table.entry(1, D, 17).posts = 1;
        table.entry(1, DeviceId(1), 17).posts = 2;
        assert_eq!(table.len(), 2);
        assert_eq!(table.find(D, 17).unwrap().posts, 1);
    }

    #[test]
    fn every_port_has_its_own_management_qps() {
        let mut table = QpTable::default();
        table.entry(1, D, number(1, Some(1)));
        table.entry(1, D, number(1, Some(2)));
        let mut ports: Vec<_> = table.iter().map(|qp| (qp.qpn, qp.port)).collect();
        ports.sort_unstable();
        assert_eq!(ports, [(1, Some(1)), (1, Some(2))]);
        table.end_device(2, D);
        assert!(table.is_empty());
    }

    #[test]
    fn a_snapshot_does_not_change_when_the_table_does() {
        let mut table = QpTable::default();
        table.entry(1, D, 1).posts = 1;
        let snapshot = table.clone();
        table.entry(2, D, 1).posts = 5;
        table.end(3, D, 1);
        assert_eq!(snapshot.find(D, 1).unwrap().posts, 1);
    }

    #[test]
    fn histories_are_bounded_and_what_is_dropped_is_counted() {
        let mut table = QpTable::default();
        let n = u32::try_from(MAX_DETAILS).unwrap() + 10;
        let begun = |table: &mut QpTable, t: Nanos, qpn: u32| {
            let id = table.entry(t, D, qpn).id;
            table.detail(t, id).is_some()
        };
        let kept = (0..n).filter(|qpn| begun(&mut table, 1, *qpn)).count();
        assert_eq!((kept, table.details_dropped), (MAX_DETAILS, 10), "all are busy: the last ones do without");
        assert!(begun(&mut table, 1 + QUIET_NS, n), "the others are quiet now: one makes room");
        assert_eq!(table.details(), MAX_DETAILS);
        assert_eq!(table.details_dropped, 11);
        assert_eq!(table.iter().filter(|qp| qp.detail.is_some()).count(), MAX_DETAILS);
    }
}
