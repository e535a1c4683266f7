//! What the engine's thread and the exporter's share: the queue, and the counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::queue::{Item, Limits, Queue};
use super::settings::Signal;

/// Data points, log records and spans that may wait.
const MAX_WAITING_RECORDS: u64 = 100_000;

/// What became of one signal, in data points, log records or spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalStatus {
    /// Which.
    pub signal: Signal,
    /// Waiting, or on their way.
    pub queued: u64,
    /// Taken by the endpoint.
    pub sent: u64,
    /// Lost: no room in the queue, refused by the endpoint, or left at the end.
    pub dropped: u64,
    /// Requests that failed; what they carried may have been sent later.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) in_flight: AtomicU64,
}

/// One signal's side of it.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) counts: Counts,
    /// Something waits, or the end has come. Of one waiter, so that no call of it is lost.
    pub(super) wake: Notify,
    /// The end has come: nobody is to wait any more.
    pub(super) end: Notify,
}

#[derive(Debug)]
pub(super) struct Shared {
    queue: Mutex<Queue>,
    lanes: [Lane; 3],
    pub(super) ended: AtomicBool,
    /// The end has come, for the thread itself.
    pub(super) stop: Notify,
}

impl Shared {
    /// `bytes`: what may wait, besides one batch of each signal that is on its way.
    pub(super) fn new(bytes: usize) -> Self {
        let limits = Limits { bytes, records: MAX_WAITING_RECORDS };
        Self {
            queue: Mutex::new(Queue::new(limits)),
            lanes: Default::default(),
            ended: AtomicBool::new(false),
            stop: Notify::new(),
        }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        // The queue is good after every call, so also after a panic elsewhere.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lane(&self, signal: Signal) -> &Lane {
        &self.lanes[signal as usize]
    }

    /// Adds to the queue; never waits for anything but that.
    pub(super) fn push(&self, items: impl IntoIterator<Item = Item>) {
        for item in items {
            let signal = item.kind.signal();
            let gone = self.queue().push(item);
            self.drop_all(&gone);
            self.lane(signal).wake.notify_one();
        }
    }

    /// Puts back what could not be sent.
    pub(super) fn give_back(&self, batch: Vec<Item>) {
        let gone = self.queue().give_back(batch);
        self.drop_all(&gone);
    }

    fn drop_all(&self, items: &[Item]) {
        for item in items {
            self.lane(item.kind.signal()).counts.dropped.fetch_add(item.records, Ordering::Relaxed);
        }
    }

    /// Gives up what waits and what is on its way; how many records that is. Nothing is sent any more.
    pub(super) fn abandon(&self, signal: Signal) -> u64 {
        let waiting = self.queue().take(signal, usize::MAX, usize::MAX);
        let counts = &self.lane(signal).counts;
        let on_its_way = counts.in_flight.swap(0, Ordering::Relaxed);
        let records = on_its_way + waiting.iter().map(|item| item.records).sum::<u64>();
        counts.dropped.fetch_add(records, Ordering::Relaxed);
        records
    }

    /// Says that the end has come.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        for lane in &self.lanes {
            lane.wake.notify_one();
            lane.end.notify_one();
        }
        self.stop.notify_one();
    }

    pub(super) fn status(&self) -> [SignalStatus; 3] {
        Signal::ALL.map(|signal| {
            let waiting = self.queue().records(signal);
            let counts = &self.lane(signal).counts;
            let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
            SignalStatus {
                signal,
                queued: waiting + count(&counts.in_flight),
                sent: count(&counts.sent),
                dropped: count(&counts.dropped),
                failed: count(&counts.failed),
            }
        })
    }
}
