//! What ended a QP: the first of its failed completions that is no flush. What else was queued is flushed after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::View;
use super::clock::least;
use super::qp_software::is_software;
use crate::finding::{Evidence, SubjectKey};
use crate::inventory::{GidChange, PortEvent, PortRecord, QpErrors, QpRecord, QpRef};
use crate::observation::Nanos;

/// The status of a work request that was not tried any more (`enum ibv_wc_status`, without the prefix).
const FLUSHED: &str = "WR_FLUSH_ERR";

/// What a QP ended by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Requests without an answer.
    Retries,
    /// A receiver without buffers.
    Rnr,
    /// A work request that was refused because of what it asked for.
    Refused,
    /// `LOC_QP_OP_ERR`: the adapter could not do it. A mistake in the work request; or, as the software driver has it
    /// (`rxe_requester` of `rxe_req.c`), no way to send: the port is down or the QP's address is gone.
    Local,
    /// Something else.
    Other,
    /// Work requests were flushed and none failed: it did not end by its own doing.
    Flushed,
    /// Its completions are not seen, or not all.
    Unknown,
}

impl Cause {
    fn of(status: &str) -> Self {
        match status {
            _ if status.contains("RNR_RETRY_EXC") => Self::Rnr,
            _ if status.contains("RETRY_EXC") => Self::Retries,
            _ if status.contains("LOC_QP_OP") => Self::Local,
            _ if is_software(status) => Self::Refused,
            _ => Self::Other,
        }
    }

    /// Whether a QP that ended so can follow from a raised finding of this rule about its port, device or function.
    pub(super) fn follows_from(self, rule: &str) -> bool {
        match rule {
            "qp.retry_exceeded" => matches!(self, Self::Retries | Self::Unknown),
            "qp.rnr" => matches!(self, Self::Rnr | Self::Unknown),
            "qp.software_error" => matches!(self, Self::Refused | Self::Local | Self::Unknown),
            _ => self.is_of_the_port(),
        }
    }

    /// A port that does not work can have this effect: to be refused or turned away takes an answer.
    pub(super) fn is_of_the_port(self) -> bool {
        !matches!(self, Self::Rnr | Self::Refused)
    }
}

/// How a QP ended.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) cause: Cause,
    /// The first status that is no flush.
    pub(super) status: Option<Arc<str>>,
    /// When it was seen; when the first flush was, where there is none.
    pub(super) t: Nanos,
    /// Completions with that status.
    pub(super) failed: u64,
    /// Completions that were flushed.
    pub(super) flushed: u64,
}

/// The failed completions of QPs.
pub(super) struct Ends<'w> {
    by_qp: BTreeMap<QpRef, Vec<(Nanos, &'w QpErrors)>>,
    /// Some may be remembered no more.
    pub(super) in_part: bool,
}

impl<'w> Ends<'w> {
    /// Those after `from`.
    pub(super) fn since(view: &View<'w>, from: Nanos) -> Self {
        let mut by_qp: BTreeMap<QpRef, Vec<(Nanos, &QpErrors)>> = BTreeMap::new();
        for (t, errors) in view.world.qp_errors.since(from) {
            by_qp.entry(errors.id).or_default().push((*t, errors));
        }
        // The newest came first.
        for errors in by_qp.values_mut() {
            errors.reverse();
        }
        Self { by_qp, in_part: view.world.qp_errors.in_part(from) }
    }

    /// How a QP ended that was in the error state at `t`, by what was told within `slack` of it; of a reliable one by all since
    /// `alive`, when it was last known to work: no error leaves it alive.
    pub(super) fn of(&self, view: &View<'_>, id: QpRef, t: Nanos, alive: Option<Nanos>, slack: Nanos) -> End {
        let reliable = |qp: &QpRecord| qp.qp_type.as_deref().is_some_and(|kind| kind.contains("RC"));
        let alive = alive.filter(|_| view.world.qps.get(id).is_some_and(reliable));
        let then = alive.unwrap_or_else(|| t.saturating_sub(slack))..=t.saturating_add(slack);
        let mut end = End { cause: Cause::Unknown, status: None, t, failed: 0, flushed: 0 };
        let all = self.by_qp.get(&id).into_iter().flatten();
        for (at, errors) in all.filter(|(at, _)| then.contains(at)) {
            if &*errors.status == FLUSHED {
                if end.flushed == 0 && end.status.is_none() {
                    end.t = *at;
                }
                end.flushed = end.flushed.saturating_add(errors.n);
                continue;
            }
            let first = end.status.get_or_insert_with(|| {
                end.t = *at;
                errors.status.clone()
            });
            if *first == errors.status {
                end.failed = end.failed.saturating_add(errors.n);
            }
        }
        // What is watched a part of the time may have failed unseen.
        let in_full = |qp: &QpRecord| qp.detail.as_ref().is_some_and(|detail| detail.completions_all_seen());
        end.cause = match &end.status {
            Some(status) => Cause::of(status),
            None if end.flushed > 0 && view.world.qps.get(id).is_some_and(in_full) => Cause::Flushed,
            None => Cause::Unknown,
        };
        end
    }

    /// Completions that were flushed on these QPs.
    pub(super) fn flushed(&self, ids: impl Iterator<Item = QpRef>) -> u64 {
        let mut ids: Vec<QpRef> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        let errors = ids.iter().filter_map(|id| self.by_qp.get(id)).flatten();
        let flushes = errors.filter(|(_, errors)| &*errors.status == FLUSHED);
        flushes.fold(0, |sum, (_, errors)| sum.saturating_add(errors.n))
    }
}

/// Evidence: flush errors are told with what they follow from, and never as a cause.
pub(super) fn flushed(n: u64, window_s: Option<f64>, in_part: bool) -> Option<Evidence> {
    let series = || least(&format!("{FLUSHED} completions that followed"), in_part);
    (n > 0).then(|| Evidence::new(series(), window_s, n as f64, None, "completions"))
}

/// What befell a port is known so long after a QP has failed by it, ns: the failure itself makes others look, at GID tables
/// no more than once a second, and with the next reading of the port.
pub(super) const KNOWN_NS: Nanos = 3_000_000_000;

/// The port's addresses changed at the time `t` of a failure, not more than `slack` before, in a way that can end a QP: by an
/// event, or as its GID table was read, which may have been after the failure. An address more ends none, and an event that
/// tells of such a one is no other.
pub(super) fn addresses_changed(port: &PortRecord, t: Nanos, slack: Nanos) -> bool {
    let then = t.saturating_sub(slack)..=t.saturating_add(KNOWN_NS);
    let event = |event: &PortEvent| matches!(event, PortEvent::Async(name) if &**name == "GID_CHANGE");
    let read = |wanted| port.gids_changed.iter().any(|(at, change)| then.contains(at) && *change == wanted);
    let told = || port.events.iter().any(|(at, what)| then.contains(at) && event(what));
    read(GidChange::Lost) || (told() && !read(GidChange::Added))
}

/// A bond over the port that changed its active member at that time: how.
pub(super) fn bond_switched<'w>(view: &View<'w>, port: &PortRecord, t: Nanos, slack: Nanos) -> Option<&'w str> {
    let then = t.saturating_sub(slack)..=t.saturating_add(KNOWN_NS);
    let device = &view.world.device(port.key.device).name;
    let mut failovers = view.world.failovers.iter().rev();
    let switch = |failover: &&Arc<crate::inventory::failover::Failover>| {
        failover.device == *device && failover.port == port.key.port && failover.bond_switch.is_some()
    };
    let switch = failovers.find(switch)?.bond_switch.as_ref()?;
    then.contains(&switch.at.t).then_some(&*switch.what)
}

/// The other end of a QP, where that is on this node too, and its port.
pub(super) fn peer<'w>(view: &View<'w>, id: QpRef) -> Option<(&'w QpRecord, &'w PortRecord)> {
    let qp = view.world.qps.get(id)?;
    let (number, gid) = (qp.remote_qpn?, qp.remote_gid.as_deref()?);
    let leads_to = |port: &PortRecord| port.gids.iter().any(|(_, own, _)| **own == *gid);
    let (_, port) = view.world.present_ports().find(|(_, port)| leads_to(port))?;
    let device = port.key.device;
    let gone = || view.world.qps.gone().find(|qp| qp.device == device && qp.qpn == number);
    Some((view.world.qps.find(device, number).or_else(gone)?, port))
}

/// The finding about a request of the other end that was refused here, which ends both.
pub(super) fn refused_peer(
    view: &View<'_>,
    ends: &Ends<'_>,
    id: QpRef,
    t: Nanos,
    slack: Nanos,
) -> Option<(&'static str, SubjectKey)> {
    let (peer, port) = peer(view, id)?;
    let key = SubjectKey::Port(port.key.device, port.key.port);
    let refused = ends.of(view, peer.id, t, None, slack).cause == Cause::Refused;
    (refused && view.raised("qp.software_error", &key).is_some()).then_some(("qp.software_error", key))
}
