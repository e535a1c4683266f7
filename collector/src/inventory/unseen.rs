//! Who posts, or may post, where no probe sees it: by what processes map, and by bytes that ports send and nothing explains.
//!
//! A port's bytes are explained by the work requests that were seen, and by headers and acknowledgements. Those are taken
//! for more than they are ([`OVERHEAD`]), so that what is left over was sent by somebody. One thing sends without a post
//! here: an answer to an RDMA READ. So bytes tell who posts unseen only where the port counts the READs that ask it, and
//! there were none.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{PortKey, PortRecord, QpRecord, World};
use crate::observation::{Nanos, QpState, Way};
use crate::timeline::Ring;
use crate::timeline::counter_table::Meaning;

/// Windows that are looked at, and how many of them have to be known.
const WINDOWS: usize = 10;
const LEAST_WINDOWS: f64 = 3.0;
/// Bytes of a packet that are no payload, at most: Ethernet with two tags (22), IPv6 (40), UDP (8), BTH (12), the longest
/// extended header (28, atomic), ICRC (4), rounded up.
const OVERHEAD: f64 = 128.0;
/// What is less than this share of what was sent, or less than this in bytes per second, may be jitter of a sweep against
/// a poll.
const LEAST_SHARE: f64 = 0.1;
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
    /// It could, no post of it is seen, and a port sends what nothing else explains.
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
    /// nothing explains. `None`: not known, because a port does not count bytes and packets or posts are not watched.
    pub unexplained: Option<f64>,
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
}

/// The QPs of one owner.
#[derive(Default)]
struct Owned {
    qps: usize,
    silent: usize,
    /// Ports of the silent ones.
    ports: Vec<PortKey>,
    /// It has QPs in the list, in whatever state.
    listed: bool,
}

/// A process, or a module of the kernel.
type Owner<'w> = (Option<u32>, Option<&'w Arc<str>>);

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
        let owners = self.owners(moved);
        let mut all: Vec<UnseenProcess> = Vec::new();
        for ((pid, comm), owned) in &owners {
            let record = pid.and_then(|pid| self.processes.get(&pid));
            let ways = match (record, pid) {
                (Some(record), _) => record.ways.clone(),
                (None, None) => vec![UnseenWay { way: Way::Kernel, file: None, reason: None }],
                (None, Some(_)) => Vec::new(),
            };
            all.extend(unseen(*pid, *comm, ways, owned, &rests));
        }
        let missing = |pid: &u32| !owners.keys().any(|(owner, _)| *owner == Some(*pid));
        for (pid, record) in self.processes.iter().filter(|(pid, _)| missing(pid)) {
            let owned = Owned { ports: rests.keys().copied().collect(), ..Owned::default() };
            all.extend(unseen(Some(*pid), record.comm.as_ref(), record.ways.clone(), &owned, &rests));
        }
        // What several could have sent, those that have a way did; of several without one nobody can say who.
        let known = all.iter().any(|process| !process.ways.is_empty() && process.likelihood == Likelihood::Likely);
        let guesses = all.iter().filter(|process| process.ways.is_empty()).count();
        all.retain(|process| !process.ways.is_empty() || !known);
        for process in all.iter_mut().filter(|process| process.ways.is_empty() && guesses > 1) {
            process.likelihood = Likelihood::Possible;
        }
        all.sort_by(|a, b| b.likelihood.cmp(&a.likelihood).then(a.pid.cmp(&b.pid)).then(a.comm.cmp(&b.comm)));
        all
    }

    /// The QPs by owner: of the kernel, of processes that have a way and, where `everybody`, of all others.
    fn owners(&self, everybody: bool) -> BTreeMap<Owner<'_>, Owned> {
        // Where posts are not watched, that none is seen says nothing.
        let watched = self.probes.as_ref().is_some_and(|probes| probes.data_path());
        let mut owners: BTreeMap<Owner<'_>, Owned> = BTreeMap::new();
        for qp in self.qps.iter() {
            // QPs of management carry no data.
            let manages = qp.qpn < 2 || qp.qp_type.as_deref().is_some_and(|name| name == "GSI" || name == "SMI");
            let Some(owner) = owner(qp).filter(|_| !manages) else { continue };
            if !everybody && owner.0.is_some_and(|pid| !self.processes.contains_key(&pid)) {
                continue;
            }
            let has = owners.entry(owner).or_default();
            has.listed = true;
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
        Some(pid) => Some((Some(pid), qp.comm.as_ref())),
        None => qp.comm.as_ref().map(|module| (None, Some(module))),
    }
}

fn unseen(
    pid: Option<u32>,
    comm: Option<&Arc<str>>,
    ways: Vec<UnseenWay>,
    owned: &Owned,
    rests: &BTreeMap<PortKey, Option<Rest>>,
) -> Option<UnseenProcess> {
    let of_ports: Vec<Rest> = owned.ports.iter().filter_map(|port| rests.get(port).copied().flatten()).collect();
    let all_known = !of_ports.is_empty() && of_ports.len() == owned.ports.len();
    let sent = of_ports.iter().map(|rest| rest.bytes).sum::<f64>();
    let unexplained = (all_known || sent > 0.0).then_some(sent);
    // A QP that is listed has to be silent; one that is not could be anywhere.
    let could = if owned.listed { owned.silent > 0 } else { ways.iter().any(|way| way.way != Way::UnknownProvider) };
    let reads = of_ports.iter().any(|rest| rest.bytes > 0.0 && rest.reads);
    let likely = could && sent > 0.0 && !reads;
    let is_worth_telling = match (ways.first().map(|way| way.way), pid) {
        (Some(Way::Kernel), _) => owned.silent > 0,
        (Some(_), _) => true,
        (None, _) => owned.silent > 0 && sent > 0.0,
    };
    is_worth_telling.then(|| UnseenProcess {
        pid,
        comm: comm.cloned(),
        ways,
        qps: owned.qps,
        silent: owned.silent,
        unexplained: unexplained.filter(|_| could),
        likelihood: if likely { Likelihood::Likely } else { Likelihood::Possible },
    })
}

fn rest(port: &PortRecord) -> Option<Rest> {
    let (sent, packets) = (port.rates.get(&Meaning::TxBytes)?, port.rates.get(&Meaning::TxPackets)?);
    // Where nobody counts them, they may be answered all the time.
    let mut reads = port.rates.get(&Meaning::RxReadRequests).into_iter().flat_map(Ring::newest_first);
    let (mut windows, mut all, mut over, mut answered) = (0.0, 0.0, 0.0, false);
    let sides = sent.newest_first().zip(packets.newest_first()).zip(port.traced.newest_first());
    for ((sent, packets), traced) in sides.take(WINDOWS) {
        answered |= reads.next().flatten() != Some(0.0);
        let (Some(sent), Some(packets), Some(traced)) = (sent, packets, traced) else { continue };
        windows += 1.0;
        all += sent;
        over += sent - traced - packets * OVERHEAD;
    }
    if windows < LEAST_WINDOWS {
        return None;
    }
    let (all, over) = (all / windows, over / windows);
    let is_some = over > LEAST_RATE && over > LEAST_SHARE * all;
    Some(Rest { bytes: if is_some { over } else { 0.0 }, reads: answered })
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
            let reads = if self.likelihood == Likelihood::Likely { "" } else { ", unless they answer READs" };
            text.push_str(&format!("; {} of its ports nothing seen explains{reads}", rate(bytes)));
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
