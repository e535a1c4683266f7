//! Who posts, or may post, where no probe sees it: by what processes map, and by bytes that ports send and nothing explains.
//!
//! A port's bytes are explained by the work requests that were seen, and by headers and acknowledgements. Those are taken
//! for more than they are ([`OVERHEAD`]), so that what is left over was sent by somebody. Two things are sent without a post
//! here: an answer to an RDMA READ, and what is sent again because it was lost. So bytes tell who posts unseen only where the
//! port counts the READs that ask it and what makes it send again, and there was none of either.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{PortKey, PortRecord, QpRecord, World};
use crate::observation::{Nanos, QpState, Way};
use crate::timeline::Ring;
use crate::timeline::counter_table::Meaning;

/// Windows that have to be known, the newest of those that are looked at: in some nobody may have watched.
const WINDOWS: usize = 10;
const LOOKED_AT: usize = 60;
/// Bytes of a packet that are no payload, at most: Ethernet with two tags (22), IPv6 (40), UDP (8), BTH (12), the longest
/// extended header (28, atomic), ICRC (4), rounded up.
pub(crate) const OVERHEAD: f64 = 128.0;
/// What is less than this share of what was sent, or less than this in bytes per second, may be jitter of a sweep against
/// a poll.
pub(crate) const LEAST_SHARE: f64 = 0.1;
const LEAST_RATE: f64 = 1e6;
/// A QP younger than this may be about to post.
const YOUNG_NS: Nanos = 10_000_000_000;

/// A process that posts, or may post, where no probe sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRecord {
    /// When that was told.
    pub t: Nanos,
    /// Its name.
    pub comm: Option<Arc<str>>,
    /// The ways it has.
    pub ways: Vec<UnseenWay>,
}

/// A way to post that no probe sees, with what tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnseenWay {
    /// Which.
    pub way: Way,
    /// The file the process maps.
    pub file: Option<Arc<str>>,
    /// What was found where there is no such file.
    pub reason: Option<Arc<str>>,
}

/// How sure it is that a process posts unseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likelihood {
    /// It could.
    Possible,
    /// It could, no post of its QPs is seen, and a port sends what nothing and nobody else explains.
    Likely,
}

impl Likelihood {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
        }
    }
}

/// Somebody of whom it is known that posts may not be seen.
#[derive(Debug, Clone, PartialEq)]
pub struct UnseenProcess {
    /// Process; `None` for the kernel.
    pub pid: Option<u32>,
    /// Its name; a module's, for the kernel.
    pub comm: Option<Arc<str>>,
    /// The ways it has, the most telling first; empty where bytes alone tell.
    pub ways: Vec<UnseenWay>,
    /// Its QPs in state RTS, for ten seconds or more.
    pub qps: usize,
    /// Those of them of which no post was ever seen; 0 where posts are not watched.
    pub silent: usize,
    /// Bytes per second that the ports of the silent ones (all ports, where it has no QP in the kernel's list) send and
    /// nothing explains; of a likely one those of the ports on which it alone could have sent them. `None`: not known, because
    /// a port does not count bytes and packets or posts are not watched.
    pub unexplained: Option<f64>,
    /// Those bytes may be answers to RDMA READs.
    pub reads: bool,
    /// They may have been sent again.
    pub again: bool,
    /// Others could have sent them as well.
    pub others: bool,
    /// How sure it is.
    pub likelihood: Likelihood,
}

/// What a port sends that nothing explains.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rest {
    /// Bytes per second; 0 where all can be explained.
    bytes: f64,
    /// READs were answered, or nobody counts them.
    reads: bool,
    /// Something was sent again that nobody counts in bytes, or it is not known whether.
    again: bool,
}

/// The QPs of one owner.
#[derive(Default)]
struct Owned<'w> {
    /// The name its first QP has.
    comm: Option<&'w Arc<str>>,
    qps: usize,
    silent: usize,
    /// Ports of the silent ones.
    ports: Vec<PortKey>,
    /// It has QPs in the list, in whatever state.
    listed: bool,
}

/// A process, told by its id alone: its threads may have names of their own. Or a module of the kernel.
type Owner<'w> = (Option<u32>, Option<&'w Arc<str>>);

/// Somebody who may be told.
struct Suspect<'w> {
    pid: Option<u32>,
    comm: Option<Arc<str>>,
    ways: Vec<UnseenWay>,
    owned: Owned<'w>,
}

/// How many owners could have sent what nothing explains.
#[derive(Default)]
struct Suspects {
    /// By port, those with silent QPs on it: with a way, and without one.
    of_port: BTreeMap<PortKey, (usize, usize)>,
    /// Processes with a way of which no QP is in the list: it could be anywhere.
    anywhere: usize,
}

impl World {
    /// Bytes per second that a port sends and nothing that was seen explains, over the last ten windows: neither the
    /// work requests that were posted nor headers. Answers to RDMA READs are among them. `None` where it is not known.
    #[must_use]
    pub fn unexplained(&self, port: &PortRecord) -> Option<f64> {
        rest(port).map(|rest| rest.bytes)
    }

    /// Who posts, or may post, where no probe sees it: the likely first. Walks all QPs.
    #[must_use]
    pub fn unseen(&self) -> Vec<UnseenProcess> {
        let rests: BTreeMap<PortKey, Option<Rest>> =
            self.present_ports().map(|(_, port)| (port.key, rest(port))).collect();
        let moved = rests.values().flatten().any(|rest| rest.bytes > 0.0);
        let mut owners: Vec<Suspect<'_>> = Vec::new();
        let mut listed = std::collections::BTreeSet::new();
        for ((pid, module), owned) in self.owners(moved) {
            listed.extend(pid);
            let record = pid.and_then(|pid| self.processes.get(&pid));
            let ways = match (record, pid) {
                (Some(record), _) => record.ways.clone(),
                (None, None) => vec![UnseenWay { way: Way::Kernel, file: None, reason: None }],
                (None, Some(_)) => Vec::new(),
            };
            let comm = record.and_then(|record| record.comm.as_ref()).or(owned.comm).or(module).cloned();
            owners.push(Suspect { pid, comm, ways, owned });
        }
        for (pid, record) in self.processes.iter().filter(|(pid, _)| !listed.contains(*pid)) {
            let owned = Owned { ports: rests.keys().copied().collect(), ..Owned::default() };
            owners.push(Suspect { pid: Some(*pid), comm: record.comm.clone(), ways: record.ways.clone(), owned });
        }
        let mut suspects = Suspects::default();
        for Suspect { ways, owned, .. } in &owners {
            suspects.anywhere += usize::from(could(ways, owned) && !owned.listed);
            for port in owned.ports.iter().filter(|_| owned.silent > 0) {
                let (with, without) = suspects.of_port.entry(*port).or_default();
                *(if ways.is_empty() { without } else { with }) += 1;
            }
        }
        let told = owners.into_iter().filter_map(|suspect| unseen(suspect, &rests, &suspects));
        let mut all: Vec<UnseenProcess> = told.collect();
        all.sort_by(|a, b| b.likelihood.cmp(&a.likelihood).then(a.pid.cmp(&b.pid)).then(a.comm.cmp(&b.comm)));
        all
    }

    /// The QPs by owner: of the kernel, of processes that have a way and, where `everybody`, of all others.
    fn owners(&self, everybody: bool) -> BTreeMap<Owner<'_>, Owned<'_>> {
        // Where posts are not watched, that none is seen says nothing.
        let watched = self.probes.as_ref().is_some_and(|probes| probes.data_path());
        let mut owners: BTreeMap<Owner<'_>, Owned<'_>> = BTreeMap::new();
        for qp in self.qps.iter() {
            let Some(owner) = owner(qp).filter(|_| !qp.manages()) else { continue };
            if !everybody && owner.0.is_some_and(|pid| !self.processes.contains_key(&pid)) {
                continue;
            }
            let has = owners.entry(owner).or_default();
            has.listed = true;
            has.comm = has.comm.or(qp.comm.as_ref());
            if qp.state != QpState::Rts || self.now.saturating_sub(qp.since) < YOUNG_NS {
                continue;
            }
            has.qps += 1;
            if watched && qp.stats_t.is_none() {
                has.silent += 1;
                let ports =
                    self.ports_of(qp.device).filter(|port| qp.port.is_none_or(|n| u32::from(n) == port.key.port));
                for port in ports {
                    if !has.ports.contains(&port.key) {
                        has.ports.push(port.key);
                    }
                }
            }
        }
        owners
    }
}

/// A module's QPs belong together; a process is told by its id. `None`: nobody said whose it is.
fn owner(qp: &QpRecord) -> Option<Owner<'_>> {
    match qp.pid {
        Some(pid) => Some((Some(pid), None)),
        None => qp.comm.as_ref().map(|module| (None, Some(module))),
    }
}

/// A QP that is listed has to be silent; one that is not could be anywhere.
fn could(ways: &[UnseenWay], owned: &Owned<'_>) -> bool {
    if owned.listed { owned.silent > 0 } else { ways.iter().any(|way| way.way != Way::UnknownProvider) }
}

fn unseen(
    Suspect { pid, comm, ways, owned }: Suspect<'_>,
    rests: &BTreeMap<PortKey, Option<Rest>>,
    suspects: &Suspects,
) -> Option<UnseenProcess> {
    let suspected = |port: &PortKey| suspects.of_port.get(port).copied().unwrap_or_default();
    let of_ports: Vec<(PortKey, Rest)> =
        owned.ports.iter().filter_map(|port| Some((*port, rests.get(port).copied().flatten()?))).collect();
    let all_known = !of_ports.is_empty() && of_ports.len() == owned.ports.len();
    let nameless = ways.is_empty();
    // What somebody with a way could have sent is not held against those who have none.
    let sent = of_ports.iter().filter(|(port, _)| !nameless || suspected(port).0 == 0);
    let mut sent: Vec<&(PortKey, Rest)> = sent.filter(|(_, rest)| rest.bytes > 0.0).collect();
    let alone = |port: &PortKey| {
        let (with, without) = suspected(port);
        suspects.anywhere == 0 && if nameless { without == 1 } else { with == 1 }
    };
    let could = could(&ways, &owned);
    // Somewhere nothing else explains what is sent. What something else may explain elsewhere is then not told of it.
    let is_likely = |(port, rest): &(PortKey, Rest)| owned.silent > 0 && !rest.reads && !rest.again && alone(port);
    let likely = sent.iter().any(|sent| is_likely(sent));
    sent.retain(|sent| !likely || is_likely(sent));
    let bytes = sent.iter().map(|(_, rest)| rest.bytes).sum::<f64>();
    let unexplained = (all_known || bytes > 0.0).then_some(bytes);
    let is_worth_telling = match (ways.first().map(|way| way.way), pid) {
        (Some(Way::Kernel), _) => owned.silent > 0,
        (Some(_), _) => true,
        (None, _) => owned.silent > 0 && bytes > 0.0,
    };
    is_worth_telling.then(|| UnseenProcess {
        pid,
        comm,
        ways,
        qps: owned.qps,
        silent: owned.silent,
        unexplained: unexplained.filter(|_| could),
        reads: sent.iter().any(|(_, rest)| rest.reads),
        again: sent.iter().any(|(_, rest)| rest.again),
        others: !sent.is_empty() && (!owned.listed || !sent.iter().any(|(port, _)| alone(port))),
        likelihood: if likely { Likelihood::Likely } else { Likelihood::Possible },
    })
}

/// What tells that a port sent something again, in whatever unit it is counted.
const SENT_AGAIN: [Meaning; 4] =
    [Meaning::Retransmissions, Meaning::AdaptiveRetransmissions, Meaning::SequenceNak, Meaning::AckTimeout];

fn rest(port: &PortRecord) -> Option<Rest> {
    let (sent, packets) = (port.rates.get(&Meaning::TxBytes)?, port.rates.get(&Meaning::TxPackets)?);
    // Where nobody counts them, they may be answered all the time.
    let mut reads = port.rates.get(&Meaning::RxReadRequests).into_iter().flat_map(Ring::newest_first);
    // Where its bytes are counted, what was sent again explains that much and no more.
    let mut resent = port.rates.get(&Meaning::RetransmittedBytes).into_iter().flat_map(Ring::newest_first);
    let (mut windows, mut looked_at, mut all, mut over, mut answered, mut uncounted) = (0, 0, 0.0, 0.0, false, false);
    let sides = sent.newest_first().zip(packets.newest_first()).zip(port.traced.newest_first());
    for ((sent, packets), traced) in sides.take(LOOKED_AT) {
        looked_at += 1;
        answered |= reads.next().flatten() != Some(0.0);
        let again = resent.next().flatten();
        let (Some(sent), Some(packets), Some(traced)) = (sent, packets, traced) else { continue };
        uncounted |= again.is_none();
        windows += 1;
        all += sent;
        over += sent - traced - packets * OVERHEAD - again.unwrap_or(0.0);
        if windows == WINDOWS {
            break;
        }
    }
    if windows < WINDOWS {
        return None;
    }
    let rings = SENT_AGAIN.iter().filter_map(|meaning| port.rates.get(meaning));
    let mut signs = rings.flat_map(|ring| ring.newest_first().take(looked_at).flatten()).peekable();
    // A counter that could not be read tells as little as one that is not there.
    let lost = signs.peek().is_none() || signs.any(|rate| rate > 0.0);
    let (all, over) = (all / windows as f64, over / windows as f64);
    let is_some = over > LEAST_RATE && over > LEAST_SHARE * all;
    Some(Rest { bytes: if is_some { over } else { 0.0 }, reads: answered, again: uncounted && lost })
}

impl UnseenProcess {
    /// Whom it is about: `python3 (4242)`, `the kernel (nvme_rdma)`.
    #[must_use]
    pub fn who(&self) -> String {
        let comm = self.comm.as_deref().unwrap_or("–");
        self.pid.map_or_else(|| format!("the kernel ({comm})"), |pid| format!("{comm} ({pid})"))
    }

    /// What is known, in a line. `rate` writes bytes per second.
    #[must_use]
    pub fn text(&self, rate: impl Fn(f64) -> String) -> String {
        let ways: Vec<String> = self.ways.iter().map(UnseenWay::text).collect();
        let posts = if self.likelihood == Likelihood::Likely { "posts" } else { "may post" };
        let how = match &ways[..] {
            [] => "where no probe sees it".to_owned(),
            ways => format!("through {}", ways.join(", ")),
        };
        let mut text = format!("{posts} {how}");
        if self.silent > 0 {
            let qps =
                if self.qps == 1 { "its QP".to_owned() } else { format!("{} of its {} QPs", self.silent, self.qps) };
            text.push_str(&format!("; no post of {qps} in RTS is seen"));
        }
        if let Some(bytes) = self.unexplained.filter(|bytes| *bytes > 0.0) {
            let unless = [
                (self.reads, "they answer READs"),
                (self.again, "they were sent again"),
                (self.others, "others sent them"),
            ];
            let unless: Vec<&str> = unless.iter().filter(|(may, _)| *may).map(|(_, what)| *what).collect();
            text.push_str(&format!("; {} of its ports nothing seen explains", rate(bytes)));
            if !unless.is_empty() {
                text.push_str(&format!(", unless {}", unless.join(" or ")));
            }
        }
        text
    }
}

impl UnseenWay {
    /// The way and what tells of it.
    #[must_use]
    pub fn text(&self) -> String {
        match (&self.file, &self.reason) {
            (Some(evidence), _) | (None, Some(evidence)) => format!("{} ({evidence})", self.way.words()),
            (None, None) => self.way.words().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
