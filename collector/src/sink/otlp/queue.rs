//! What waits to be sent: bounded in bytes and in records, and what does not fit is counted. Metrics go first, oldest
//! first: the next export has the same totals. What was concluded stays longest.

use std::collections::VecDeque;

use super::settings::Signal;

/// What waits, in the order in which it is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// An export of metrics.
    Metrics,
    /// A span.
    Span,
    /// The log record of an event.
    Event,
    /// The log record of a finding.
    Finding,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Metrics, Self::Span, Self::Event, Self::Finding];

    /// The signal it is sent with.
    pub(super) fn signal(self) -> Signal {
        match self {
            Self::Metrics => Signal::Metrics,
            Self::Span => Signal::Traces,
            Self::Event | Self::Finding => Signal::Logs,
        }
    }
}

/// Something encoded: of [`Kind::Metrics`] a `ScopeMetrics`, otherwise a `Span` or a `LogRecord`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    /// Which.
    pub(super) kind: Kind,
    /// Data points of metrics; otherwise 1.
    pub(super) records: u64,
    /// Encoded.
    pub(super) bytes: Vec<u8>,
}

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Encoded bytes.
    pub(super) bytes: usize,
    /// Data points, log records and spans.
    pub(super) records: u64,
}

/// What waits.
#[derive(Debug)]
pub(super) struct Queue {
    lanes: [VecDeque<Item>; 4],
    limits: Limits,
    bytes: usize,
    records: u64,
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self { lanes: Default::default(), limits, bytes: 0, records: 0 }
    }

    /// Encoded bytes that wait.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records of a signal that wait.
    pub(super) fn records(&self, signal: Signal) -> u64 {
        kinds(signal).flat_map(|kind| &self.lanes[kind as usize]).map(|item| item.records).sum()
    }

    /// Adds what is new; gives back what has to go for it.
    #[must_use]
    pub(super) fn push(&mut self, item: Item) -> Vec<Item> {
        self.grow(&item);
        self.lanes[item.kind as usize].push_back(item);
        self.trim()
    }

    /// Puts back what could not be sent, before everything else of its kind; gives back what has to go for it.
    #[must_use]
    pub(super) fn give_back(&mut self, batch: Vec<Item>) -> Vec<Item> {
        for item in batch.into_iter().rev() {
            self.grow(&item);
            self.lanes[item.kind as usize].push_front(item);
        }
        self.trim()
    }

    /// Takes the next of a signal, findings before events: at least one, and no more than `bytes` and `items` besides.
    pub(super) fn take(&mut self, signal: Signal, bytes: usize, items: usize) -> Vec<Item> {
        let mut batch: Vec<Item> = Vec::new();
        let mut taken = 0;
        for kind in kinds(signal).rev() {
            let lane = &mut self.lanes[kind as usize];
            while let Some(next) = lane.front() {
                taken += next.bytes.len();
                if !batch.is_empty() && (taken > bytes || batch.len() == items) {
                    return batch;
                }
                if let Some(item) = lane.pop_front() {
                    self.bytes -= item.bytes.len();
                    self.records -= item.records;
                    batch.push(item);
                }
            }
        }
        batch
    }

    fn grow(&mut self, item: &Item) {
        self.bytes += item.bytes.len();
        self.records += item.records;
    }

    fn trim(&mut self) -> Vec<Item> {
        let mut gone = Vec::new();
        while self.bytes > self.limits.bytes || self.records > self.limits.records {
            let Some(item) = self.lanes.iter_mut().find_map(VecDeque::pop_front) else { break };
            self.bytes -= item.bytes.len();
            self.records -= item.records;
            gone.push(item);
        }
        gone
    }
}

fn kinds(signal: Signal) -> impl DoubleEndedIterator<Item = Kind> {
    Kind::ALL.into_iter().filter(move |kind| kind.signal() == signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: Kind, tag: u8) -> Item {
        Item { kind, records: 1, bytes: vec![tag; 10] }
    }

    fn tags(items: &[Item]) -> Vec<(Kind, u8)> {
        items.iter().map(|item| (item.kind, item.bytes[0])).collect()
    }

    #[test]
    fn metrics_are_given_up_first_oldest_first_and_findings_last() {
        let mut queue = Queue::new(Limits { bytes: 40, records: 100 });
        let mut gone = Vec::new();
        let kinds = [Kind::Finding, Kind::Metrics, Kind::Event, Kind::Metrics, Kind::Span];
        for (tag, kind) in (0..).zip(kinds) {
            gone.extend(queue.push(item(kind, tag)));
        }
        assert_eq!(tags(&gone), [(Kind::Metrics, 1)]);
        for tag in 5..9 {
            gone.extend(queue.push(item(Kind::Finding, tag)));
        }
        let order = [(Kind::Metrics, 1), (Kind::Metrics, 3), (Kind::Span, 4), (Kind::Event, 2), (Kind::Finding, 0)];
        assert_eq!(tags(&gone), order);
        assert_eq!((queue.bytes(), queue.records(Signal::Logs), queue.records(Signal::Metrics)), (40, 4, 0));
    }

    #[test]
    fn records_are_bounded_too() {
        let mut queue = Queue::new(Limits { bytes: 1000, records: 10 });
        assert!(queue.push(Item { records: 9, ..item(Kind::Metrics, 0) }).is_empty());
        assert_eq!(tags(&queue.push(Item { records: 2, ..item(Kind::Metrics, 1) })), [(Kind::Metrics, 0)]);
        let gone = queue.push(Item { records: 11, ..item(Kind::Metrics, 2) });
        assert_eq!(tags(&gone), [(Kind::Metrics, 1), (Kind::Metrics, 2)], "what never fits goes itself");
        assert_eq!(queue.bytes(), 0);
    }

    #[test]
    fn a_batch_has_its_signal_only_findings_first_and_comes_back_in_its_order() {
        let mut queue = Queue::new(Limits { bytes: 1000, records: 100 });
        for (tag, kind) in (0..).zip([Kind::Event, Kind::Finding, Kind::Metrics, Kind::Event, Kind::Finding]) {
            assert!(queue.push(item(kind, tag)).is_empty());
        }
        let batch = queue.take(Signal::Logs, 30, 100);
        assert_eq!(tags(&batch), [(Kind::Finding, 1), (Kind::Finding, 4), (Kind::Event, 0)]);
        assert!(queue.give_back(batch).is_empty());
        assert_eq!(tags(&queue.take(Signal::Logs, 1, 100)), [(Kind::Finding, 1)], "one at least");
        assert_eq!(queue.take(Signal::Logs, 1000, 2).len(), 2);
        assert_eq!(tags(&queue.take(Signal::Logs, 1000, 2)), [(Kind::Event, 3)]);
        assert_eq!(queue.bytes(), 10);
    }

    #[test]
    fn what_comes_back_to_a_full_queue_is_as_old_as_it_was() {
        let mut queue = Queue::new(Limits { bytes: 20, records: 100 });
        let _ = queue.push(item(Kind::Metrics, 0));
        let batch = queue.take(Signal::Metrics, 10, 1);
        let _ = queue.push(item(Kind::Metrics, 1));
        let _ = queue.push(item(Kind::Metrics, 2));
        assert_eq!(tags(&queue.give_back(batch)), [(Kind::Metrics, 0)]);
    }
}
