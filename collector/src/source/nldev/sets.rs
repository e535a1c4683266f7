//! Counter sets bound to QPs, whoever bound them (`rdma statistic qp set`, `… bind`): how many there are, and what they
//! count.
//!
//! The mode of a port costs no firmware command, so it is asked first; only where it says that there may be sets are they
//! listed, which makes the driver ask each of them once. The kernel writes a set with all its QPs into one datagram: one
//! that does not fit is begun again and again (`res_get_common_dumpit`, drivers/infiniband/core/nldev.c), and the dump never
//! ends. So the list has a socket of its own, and one that makes no progress is closed.

use std::collections::{HashMap, HashSet};

use crate::observation::{Body, CounterSource, Counters, Nanos, Observation, Pairs, Text};
use crate::source::Emit;

use super::availability::Opener;
use super::conversation::{Answer, Conversation, Fault};
use super::reply::{self, CounterMode, SetInfo};
use super::statistics::PortStatistics;
use super::uapi::{COUNTER_MODE_NONE, attr, command, qp_type_name};

/// Parts of an answer without a set after which there is no progress: the first is short whatever it should hold, and sets
/// of other ports leave another empty.
const EMPTY_PARTS: u32 = 4;
/// Between two tries to list sets that did not fit, ns.
const RETRY_NS: Nanos = 60_000_000_000;

/// How a list of sets ended.
#[derive(Debug)]
pub(super) enum Listed {
    /// It is whole, and consistent unless the kernel said otherwise; so many entries could not be read.
    Whole { interrupted: bool, odd: u64 },
    /// A set with too many QPs for a datagram. The socket must be closed: the answer has no end.
    Stalled,
}

/// Lists the sets of one port.
pub(super) fn list(
    conversation: &mut Conversation,
    device_index: u32,
    port: u32,
    mut each: impl FnMut(SetInfo<'_>),
) -> Result<Listed, Fault> {
    let request =
        [(attr::DEV_INDEX, device_index), (attr::PORT_INDEX, port), (attr::STAT_RES, u32::from(attr::RES_QP))];
    conversation.begin_dump(command::STAT_GET, &request)?;
    let (mut empty, mut odd) = (0, 0);
    loop {
        let mut sets = 0;
        let answer = conversation.part(|message| {
            odd += reply::sets(message, |set| {
                sets += 1;
                if set.port.is_none_or(|of| of == port) {
                    each(set);
                }
            });
        })?;
        if let Some(Answer { interrupted, .. }) = answer {
            return Ok(Listed::Whole { interrupted, odd });
        }
        empty = if sets == 0 { empty + 1 } else { 0 };
        if empty >= EMPTY_PARTS {
            return Ok(Listed::Stalled);
        }
    }
}

/// Asks for the counter mode of a port.
pub(super) fn mode(
    conversation: &mut Conversation,
    device_index: u32,
    port: u32,
) -> Result<Option<CounterMode>, Fault> {
    let mut mode = None;
    // The kernel takes a mode in the request as the question for the mode; its value is not looked at.
    let request = [
        (attr::DEV_INDEX, device_index),
        (attr::PORT_INDEX, port),
        (attr::STAT_MODE, COUNTER_MODE_NONE),
        (attr::STAT_RES, u32::from(attr::RES_QP)),
    ];
    conversation.get(command::STAT_GET, &request, |message| mode = CounterMode::read(message))?;
    Ok(mode)
}

/// What is known of one port's sets.
#[derive(Debug, Default)]
struct OfPort {
    /// The sets told of, each with the QPs that were told.
    told: HashMap<u32, Vec<u32>>,
    /// Those of them that were seen with several QPs, at once or one after the other: what they count is of all of them.
    shared: HashSet<u32>,
    /// Why they are not all told, and when to look again.
    gap: Option<(String, Nanos)>,
}

/// The bound sets of all ports.
pub(super) struct BoundSets {
    open: Opener,
    /// Open while a list of sets is wanted every few seconds.
    conversation: Option<Conversation>,
    ports: HashMap<(u32, u32), OfPort>,
}

impl BoundSets {
    pub(super) fn new(open: Opener) -> Self {
        Self { open, conversation: None, ports: HashMap::new() }
    }

    /// Ports whose sets are not all told: device, port, why.
    pub(super) fn gaps<'s>(
        &'s self,
        ports: &'s [PortStatistics],
    ) -> impl Iterator<Item = (&'s PortStatistics, &'s str)> {
        ports.iter().filter_map(|port| {
            let of_port = self.ports.get(&(port.device_index, port.port))?;
            Some((port, of_port.gap.as_ref()?.0.as_str()))
        })
    }

    /// Counts the sets of every port and emits what they count. Returns the faults that are no refusal.
    pub(super) fn read(
        &mut self,
        questions: &mut Conversation,
        ports: &mut [PortStatistics],
        now: Nanos,
        emit: &mut Emit<'_>,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.ports.retain(|place, _| ports.iter().any(|port| (port.device_index, port.port) == *place));
        for port in ports {
            let mode = match mode(questions, port.device_index, port.port) {
                Ok(mode) => mode.map_or(COUNTER_MODE_NONE, |mode| mode.mode),
                Err(Fault::Refused(_)) => COUNTER_MODE_NONE,
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            let of_port = self.ports.entry((port.device_index, port.port)).or_default();
            if mode == COUNTER_MODE_NONE {
                port.bound = 0;
                of_port.gap = None;
                of_port.keep(&[], port, now, emit);
            } else if of_port.gap.as_ref().is_none_or(|(_, retry_at)| now >= *retry_at) {
                faults.extend(self.list_port(port, now, emit));
            }
        }
        if self.ports.values().all(|of_port| of_port.told.is_empty()) {
            self.conversation = None;
        }
        faults
    }

    fn list_port(&mut self, port: &mut PortStatistics, now: Nanos, emit: &mut Emit<'_>) -> Option<Fault> {
        let of_port = self.ports.entry((port.device_index, port.port)).or_default();
        let mut conversation = match self.conversation.take().map_or_else(|| (self.open)(), Ok) {
            Ok(conversation) => conversation,
            Err(closed) => {
                of_port.gap = Some((closed.reason, now.saturating_add(RETRY_NS)));
                return None;
            }
        };
        let mut seen = Vec::new();
        let listed = list(&mut conversation, port.device_index, port.port, |set| {
            seen.push(set.id);
            of_port.tell(&set, port, now, emit);
        });
        port.bound = seen.len() as u64;
        let gap = match &listed {
            Ok(Listed::Whole { interrupted, odd }) => {
                if !interrupted && *odd == 0 {
                    of_port.keep(&seen, port, now, emit);
                }
                (*odd > 0).then(|| format!("{odd} sets could not be read"))
            }
            Ok(Listed::Stalled) => {
                Some("a set counts more QPs than the kernel can list in one message: it is not read".to_owned())
            }
            Err(fault) => Some(format!("the list failed: {fault}")),
        };
        // What was odd once is looked at again at the next round; an answer without an end is not begun so soon again.
        let rest = if matches!(listed, Ok(Listed::Stalled)) { RETRY_NS } else { 0 };
        of_port.gap = gap.map(|gap| (gap, now.saturating_add(rest)));
        if matches!(listed, Ok(Listed::Whole { .. })) {
            self.conversation = Some(conversation);
        }
        listed.err().filter(|fault| !matches!(fault, Fault::Refused(_)))
    }
}

impl OfPort {
    /// Emits what a set counts; its QPs when they are others than last time.
    fn tell(&mut self, set: &SetInfo<'_>, port: &PortStatistics, now: Nanos, emit: &mut Emit<'_>) {
        let mut qpns: Vec<u32> = set.qpns().collect();
        qpns.sort_unstable();
        let before = self.told.get(&set.id);
        let changed = before != Some(&qpns);
        if qpns.len() > 1 || before.is_some_and(|before| !before.is_empty() && changed) {
            self.shared.insert(set.id);
        }
        // Of a set that was bound by hand to one QP only; one that was made by type may have counted others.
        let alone = match qpns[..] {
            [qpn] if !set.automatic && !self.shared.contains(&set.id) => Some(qpn),
            _ => None,
        };
        let values: Pairs<'_, u64> = set.counters().map(|(name, value)| (name.into(), value)).collect();
        let blank = values.is_empty().then(|| ("*".into(), Text::from("the driver gives no counter of the set")));
        let qp_type =
            set.qp_type.map(|code| qp_type_name(code).map_or_else(|| Text::from(code.to_string()), Text::from));
        let body = Body::Counters(Counters {
            device: port.device.as_str().into(),
            port: Some(port.port),
            source: CounterSource::Qp,
            qpn: alone,
            qp_type,
            pid: set.pid,
            set: Some(set.id),
            qpns: changed.then(|| qpns.clone()),
            values,
            unavailable: blank.into_iter().collect(),
            ..Counters::default()
        });
        emit(&Observation { t: now, body });
        if changed {
            self.told.insert(set.id, qpns);
        }
    }

    /// Says of the sets that are not among `seen` that they are gone.
    fn keep(&mut self, seen: &[u32], port: &PortStatistics, now: Nanos, emit: &mut Emit<'_>) {
        let mut gone: Vec<u32> = self.told.keys().copied().filter(|id| !seen.contains(id)).collect();
        gone.sort_unstable();
        for id in gone {
            self.told.remove(&id);
            self.shared.remove(&id);
            let body = Body::Counters(Counters {
                device: port.device.as_str().into(),
                port: Some(port.port),
                source: CounterSource::Qp,
                set: Some(id),
                removed: Some(true),
                ..Counters::default()
            });
            emit(&Observation { t: now, body });
        }
    }
}
