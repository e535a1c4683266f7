//! What observations say of QPs: their lives, their failures, their numbers.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Engine, LEAST_WATCHED_NS};
use crate::inventory::failover::stopwatch::Moved;
use crate::inventory::{self, By, DeviceId, Grown, Moment, PortKey, QpChange, QpErrors, QpFailure, QpRecord, QpRef};
use crate::observation::{self, Nanos, PortState, QpEvent, QpState};

/// A QP found in the kernel's list this soon after its destroy was seen is on its way out, not back, ns.
const DESTROY_SETTLES_NS: u64 = 1_000_000_000;
/// The kernel's list may show a QP's error state this long before the call that asked for it is told, ns.
const LATE_CALL_NS: u64 = 1_000_000_000;
/// A QP that nothing happened to for longer is not followed any further, ns.
const RECENT_NS: u64 = 600_000_000_000;

impl Engine {
    pub(super) fn port_of_qp(&self, device: DeviceId, port: Option<u8>) -> Option<u32> {
        if let Some(port) = port {
            return Some(u32::from(port));
        }
        let mut ports = self.world.ports_of(device);
        let only = ports.next()?;
        ports.next().is_none().then_some(only.key.port)
    }

    pub(super) fn qp(&mut self, t: Nanos, seen: &observation::Qp<'_>) {
        let Some(device) = self.device_id(t, &seen.device) else { return };
        let number = inventory::number(seen.qpn, seen.port);
        let known = self.world.qps.find(device, number);
        let (since, state) = known.map_or((None, QpState::Unknown), |qp| (Some(qp.since), qp.state));
        let id = known.map(|qp| qp.id);
        match seen.event {
            // A call that failed made no QP.
            QpEvent::Create if seen.errno.is_some() => return,
            QpEvent::Destroy => {
                // A late word about a QP whose number has been given out again.
                if since.is_none_or(|since| t < since) {
                    return;
                }
                let change = QpChange { from: seen.from.or(Some(state)), to: None, by: By::Destroy, errno: seen.errno };
                if let Some(detail) = id.and_then(|id| self.world.qps.detail(t, id)) {
                    detail.changes.push(t, change);
                }
                // A destroy that failed leaves the QP as it was.
                if seen.errno.is_none() {
                    self.world.qps.end(t, device, number);
                }
                return;
            }
            QpEvent::Create if since.is_some_and(|since| t > since) => {
                // The destroy of the number's last owner was not seen.
                self.world.qps.end(t, device, number);
            }
            QpEvent::Seen if since.is_none() && seen.errno.is_none() && self.just_destroyed(t, device, number) => {
                return;
            }
            _ => {}
        }
        let id = self.note_qp(t, device, number, seen);
        let failed_call = seen.errno.is_some();
        let change = |by| QpChange { from: seen.from, to: seen.to, by, errno: seen.errno };
        let recorded = match seen.event {
            QpEvent::Create => Some(change(By::Create)),
            QpEvent::Modify => Some(change(By::Modify)),
            QpEvent::Seen if seen.to.is_some_and(|to| to != state) && since.is_some() => {
                Some(QpChange { from: Some(state), to: seen.to, by: By::Found, errno: None })
            }
            QpEvent::Seen | QpEvent::Destroy => None,
        };
        if let (Some(change), Some(detail)) = (recorded, self.world.qps.detail(t, id)) {
            detail.changes.push(t, change);
        }
        if seen.to == Some(QpState::Err) && state != QpState::Err && !failed_call && since.is_some() {
            self.qp_failed_from(t, device, number, seen.event == QpEvent::Modify, state);
        } else if seen.to == Some(QpState::Err) && seen.event == QpEvent::Modify && !failed_call {
            self.asked_late(t, device, number);
        }
        self.qp_called(t, device, number, seen);
    }

    fn just_destroyed(&self, t: Nanos, device: DeviceId, number: u32) -> bool {
        self.world
            .qps
            .gone()
            .take_while(|qp| qp.destroyed.is_some_and(|at| at.saturating_add(DESTROY_SETTLES_NS) > t))
            .any(|qp| qp.device == device && qp.number() == number)
    }

    fn note_qp(&mut self, t: Nanos, device: DeviceId, number: u32, seen: &observation::Qp<'_>) -> QpRef {
        let comm = seen.comm.as_deref().map(|text| self.text(text));
        let container = seen.container.as_deref().map(|text| self.text(text));
        let gid = seen.remote_gid.as_deref().map(|text| self.text(text));
        let qp_type = seen.qp_type.as_deref().map(|text| self.text(text));
        let qp = self.world.qps.entry(t, device, number);
        qp.port = seen.port.and_then(|port| u8::try_from(port).ok()).filter(|port| *port > 0).or(qp.port);
        qp.pid = seen.pid.or(qp.pid);
        qp.comm = comm.or(qp.comm.take());
        qp.container = container.or(qp.container.take());
        qp.remote_gid = gid.or(qp.remote_gid.take());
        qp.qp_type = qp_type.or(qp.qp_type.take());
        qp.remote_qpn = seen.remote_qpn.or(qp.remote_qpn);
        qp.timeout = seen.timeout.or(qp.timeout);
        qp.retry_cnt = seen.retry_cnt.or(qp.retry_cnt);
        qp.rnr_retry = seen.rnr_retry.or(qp.rnr_retry);
        qp.path_mtu_bytes = seen.path_mtu.and_then(|bytes| u16::try_from(bytes).ok()).or(qp.path_mtu_bytes);
        if seen.event == QpEvent::Create {
            qp.created = true;
            qp.since = t;
        }
        if seen.errno.is_none()
            && let Some(to) = seen.to
        {
            qp.state = to;
        }
        qp.id
    }

    /// The state was found before the call that asked for it was told: nobody failed.
    fn asked_late(&mut self, t: Nanos, device: DeviceId, qpn: u32) {
        let Some(id) = self.world.qps.find(device, qpn).map(|qp| qp.id) else { return };
        let from = t.saturating_sub(LATE_CALL_NS);
        let late = |failure: &QpFailure| failure.id == id && !failure.asked && !failure.told;
        if self.world.qp_failures.since(from).any(|(_, failure)| late(failure))
            && let Some(failure) = Arc::make_mut(&mut self.world.qp_failures).newest_mut(from, late)
        {
            failure.asked = true;
        }
    }

    /// An asynchronous event says that the QP is in the error state.
    pub(super) fn qp_told_failed(&mut self, t: Nanos, device: DeviceId, qpn: u32) {
        let state = self.world.qps.find(device, qpn).map_or(QpState::Unknown, |qp| qp.state);
        if state != QpState::Err {
            self.world.qps.entry(t, device, qpn).state = QpState::Err;
            self.qp_failed_from(t, device, qpn, false, state);
        }
        let id = self.world.qps.find(device, qpn).map(|qp| qp.id);
        let from = t.saturating_sub(LATE_CALL_NS);
        if let Some(failure) = Arc::make_mut(&mut self.world.qp_failures).newest_mut(from, |f| Some(f.id) == id) {
            failure.told = true;
            failure.asked = false;
        }
        self.qp_died(device, qpn, Moment::at(t), true, "in the error state, an event told");
    }

    fn qp_failed_from(&mut self, t: Nanos, device: DeviceId, qpn: u32, asked: bool, from: QpState) {
        let Some(qp) = self.world.qps.find(device, qpn).filter(|qp| !qp.is_own()) else { return };
        let last_good = last_good(qp, from).filter(|at| *at <= t);
        let failure = QpFailure {
            id: qp.id,
            device,
            port: self.port_of_qp(device, qp.port),
            qpn,
            comm: qp.comm.clone(),
            pid: qp.pid,
            asked,
            told: false,
            from,
            last_good,
        };
        Arc::make_mut(&mut self.world.qp_failures).push(t, failure);
        self.qp_pending.get_or_insert(t);
        if !asked {
            let earliest = last_good.unwrap_or(self.world.started);
            self.qp_died(device, qpn, Moment::between(earliest, t), false, "found in the error state");
        }
    }

    pub(super) fn qp_stats(&mut self, t: Nanos, seen: &observation::QpStats<'_>) {
        let Some(device) = self.device_id(t, &seen.device) else { return };
        // A sweep ends with a `probes` line of the same time. Where nobody writes those, the lines themselves tell when.
        if self.world.probes.is_none() {
            self.world.qps.swept(t);
        }
        // The sweep before this one: the time over which the difference was counted.
        let [newest, earlier] = self.world.qps.sweeps;
        let before = if newest == Some(t) { earlier } else { newest };
        let qp = self.world.qps.entry(t, device, seen.qpn);
        let (id, port) = (qp.id, qp.port);
        if !seen.errors.is_empty() {
            self.qp_errors(t, id, seen);
        }
        let index = self.port_of_qp(device, port).map(|port| self.port_index(t, device, port, PortState::Unknown));
        let watched = self.watched(t, seen);
        let before = match (watched, &self.world.probes) {
            (Some(Watched::All), _) | (_, None) => before,
            (_, Some(probes)) => Some(probes.t),
        };
        let held = self.world.qps.get(id).and_then(|qp| self.world.qps.rate_now(qp, t));
        let Some(qp) = self.world.qps.get_mut(id) else { return };
        let counted = Grown::of(qp, seen);
        let grown = counted.as_ref().and_then(|grown| watched.map(|watched| watched.estimate(grown)));
        if let (Some(index), None) = (index, &counted) {
            Arc::make_mut(&mut self.world.ports[index]).traced_in_part = true;
        }
        if let (Some(index), Some(counted)) = (index, &counted) {
            let port = Arc::make_mut(&mut self.world.ports[index]);
            // The port's counters count all bytes, those of rdmascope's own QPs among them.
            port.traced_bytes = port.traced_bytes.saturating_add(grown.as_ref().map_or(0, Grown::sent_bytes));
            if !qp.is_own() {
                port.latencies.take(t, counted);
                port.posted.add(counted);
                let posted_in = grown.as_ref().and_then(|grown| port.posting.take(qp.posted_in, grown));
                qp.posted_in = posted_in.unwrap_or(qp.posted_in);
            }
        }
        let active_before = qp.stats_t;
        // The first numbers of one that was there before the first sweep may be of any age.
        let new = active_before.is_some() || qp.created || before.is_some();
        let posted = seen.posts > qp.posts && new;
        let sometime = seen.posts > qp.posts && !new;
        let succeeded = succeeded(qp, seen);
        #[allow(clippy::cast_possible_truncation, reason = "a rate for the screen")]
        {
            qp.rate = match (watched, before.filter(|before| *before < t)) {
                // What was counted in next to no time says less than what was known before.
                (None, _) => held.map(|rate| rate as f32),
                (Some(_), Some(before)) => grown.map(|grown| (grown.bytes as f64 * 1e9 / (t - before) as f64) as f32),
                (Some(_), None) => None,
            };
        }
        (qp.posts, qp.wrs, qp.bytes) = (seen.posts, seen.wrs, seen.bytes);
        if seen.completions.is_some() || !seen.errors.is_empty() {
            // That none was seen is no 0 where not all were looked at.
            let all_seen = seen.completions_sampled_ns.is_none() && !seen.completions_missed;
            qp.errors = Some(failed(seen)).filter(|n| *n > 0 || all_seen);
        } else if seen.completions_missed {
            qp.errors = qp.errors.filter(|n| *n > 0);
        }
        self.world.qps.counted(t, id);
        if let Some(detail) = self.world.qps.detail(t, id) {
            detail.size_log2.clone_from(&seen.size_log2);
            refill(&mut detail.opcodes, &seen.opcodes, &self.texts);
            refill(&mut detail.errors, &seen.errors, &self.texts);
            detail.completed(t, seen);
            detail.switches = seen.switches;
            detail.recv_wrs = seen.recv_wrs;
            if succeeded {
                detail.worked_t = before.or(detail.worked_t);
            }
            detail.vendor_err = seen.vendor_err.or(detail.vendor_err);
            detail.truncated = seen.truncated.unwrap_or(0);
            if seen.latency_log2_ns.is_some() {
                detail.latency_log2_ns.clone_from(&seen.latency_log2_ns);
            }
        }
        if sometime {
            self.qp_had_posted(device, seen.qpn);
        } else if posted || succeeded {
            let moved = Moved { t, before, active_before, last_post_t: seen.last_post_t, succeeded };
            self.qp_moved(device, seen.qpn, &moved);
        }
    }

    /// How posts were watched in the present sweep; `None` where it was for too short a time for an estimate, or nobody
    /// says for how long.
    fn watched(&self, t: Nanos, seen: &observation::QpStats<'_>) -> Option<Watched> {
        let (Some(sampled_ns), Some(probes)) = (seen.sampled_ns, self.world.probes.as_ref()) else {
            return Some(Watched::All);
        };
        let sweep_ns = t.saturating_sub(probes.t);
        let watched_ns = sampled_ns.checked_sub(probes.posts_watched_ns?)?;
        // The last numbers of a QP may come soon after a sweep: then half of that time is enough.
        let enough = watched_ns > 0 && watched_ns >= LEAST_WATCHED_NS.min(sweep_ns / 2);
        enough.then(|| Watched::Part((sweep_ns as f64 / watched_ns as f64).max(1.0)))
    }

    /// Counts the QPs that went into the error state long enough ago that the call that asked for it has been told.
    pub(super) fn count_failures(&mut self, at: Nanos) {
        let (from, to) = (self.failures_counted, at.saturating_sub(LATE_CALL_NS));
        let ripe = self.world.qp_failures.since(from).filter(|(t, _)| *t <= to);
        let ripe: Vec<(DeviceId, bool)> = ripe.map(|(_, failure)| (failure.device, failure.asked)).collect();
        for (device, asked) in ripe {
            let totals = &mut self.device_mut(device).qps;
            *(if asked { &mut totals.asked } else { &mut totals.unasked }) += 1;
        }
        self.failures_counted = to.max(from);
    }

    /// At the end of a window: how many QPs each port has, and how fast those with a history were. One look at each QP, for
    /// there may be a quarter of a million.
    pub(super) fn close_qps(&mut self, at: Nanos, tracing: bool) {
        let recent = |touched: Nanos| at.saturating_sub(touched) < RECENT_NS;
        let mut counts = vec![(0, 0); self.world.ports.len()];
        let mut rates: Vec<(QpRef, Nanos, Option<f64>)> = Vec::new();
        for qp in self.world.qps.iter() {
            let port = self.port_of_qp(qp.device, qp.port).map(|port| PortKey { device: qp.device, port });
            if let Some(place) = port.and_then(|key| self.world.place_of(key)) {
                counts[place].0 += 1;
                counts[place].1 += u32::from(qp.is_connected());
            }
            if let Some(detail) = qp.detail.as_ref().filter(|detail| recent(detail.touched)) {
                rates.push((qp.id, detail.touched, self.world.qps.rate_now(qp, at).filter(|_| tracing)));
            }
        }
        for (port, (qps, connected)) in self.world.ports.iter_mut().zip(counts) {
            let were = if port.state == PortState::Active { connected } else { connected.max(port.were_connected_qps) };
            if (port.qps, port.connected_qps, port.were_connected_qps) != (qps, connected, were) {
                let port = Arc::make_mut(port);
                (port.qps, port.connected_qps, port.were_connected_qps) = (qps, connected, were);
            }
        }
        for (id, touched, rate) in rates {
            if let Some(detail) = self.world.qps.detail(touched, id) {
                detail.rates.push(rate);
            }
        }
    }

    /// Tells the rules of error completions that are new in the statistics of a QP.
    fn qp_errors(&mut self, t: Nanos, id: QpRef, seen: &observation::QpStats<'_>) {
        for (status, _) in &seen.errors {
            self.text(status);
        }
        let Some(qp) = self.world.qps.get(id).filter(|qp| !qp.is_own()) else { return };
        // The first statistics of a QP whose creation was not seen may tell of errors of any age, and so may those of a
        // QP that lost its history.
        let new = if qp.stats_t.is_some() { qp.detail.is_some() } else { qp.created };
        if !new {
            return;
        }
        let (device, port, good) = (qp.device, qp.port, last_good(qp, qp.state).max(qp.stats_t));
        // They are new since the sweep before this one, and since the QP was last known to work.
        let sweep = self.world.qps.sweeps.into_iter().flatten().find(|sweep| *sweep < t);
        let earliest = sweep.max(good).unwrap_or(self.world.started);
        let before = qp.detail.as_ref().map(|detail| detail.errors.clone()).unwrap_or_default();
        let port = self.port_of_qp(device, port);
        // What is told first is taken for what ended the QP: flushes follow from it, so they come last.
        let is_flush = |status: &str| status == "WR_FLUSH_ERR";
        let causes = seen.errors.iter().filter(|(status, _)| !is_flush(status));
        for (status, n) in causes.chain(seen.errors.iter().filter(|(status, _)| is_flush(status))) {
            let before = before.iter().find(|(name, _)| **name == **status).map_or(0, |(_, n)| *n);
            if *n > before {
                let status = self.text(status);
                self.device_mut(device).qps.error(&status, n - before);
                let event = QpErrors { id, device, port, qpn: seen.qpn, status, n: n - before };
                let what = format!("had {} completions", event.status);
                Arc::make_mut(&mut self.world.qp_errors).push(t, event);
                self.qp_pending.get_or_insert(t);
                self.qp_died(device, seen.qpn, Moment::between(earliest, t), false, &what);
            }
        }
    }
}

/// When a QP was last known to be in order: as it was first seen, by its last change, or by its completions.
/// `state`: the one it was in.
fn last_good(qp: &QpRecord, state: QpState) -> Option<Nanos> {
    let since = (!matches!(state, QpState::Unknown | QpState::Err)).then_some(qp.since);
    let of_detail = qp.detail.as_ref().and_then(|detail| {
        let good = detail.changes.iter().rev().find(|(_, change)| change.to != Some(QpState::Err)).map(|(at, _)| *at);
        good.max(detail.worked_t)
    });
    since.max(of_detail)
}

/// How posts were watched in a sweep.
#[derive(Clone, Copy)]
enum Watched {
    /// All the time.
    All,
    /// For a part of it: the whole is so many times longer.
    Part(f64),
}

impl Watched {
    /// What was posted in the whole sweep, from what was counted in it.
    fn estimate(self, counted: &Grown) -> Grown {
        match self {
            Self::All => counted.clone(),
            Self::Part(times) => counted.scaled(times),
        }
    }
}

/// Error completions.
fn failed(seen: &observation::QpStats<'_>) -> u64 {
    seen.errors.iter().fold(0, |sum: u64, (_, n)| sum.saturating_add(*n))
}

/// The QP has had a completion without an error that it had not at its last numbers.
fn succeeded(qp: &QpRecord, seen: &observation::QpStats<'_>) -> bool {
    let now = seen.completions.map_or(0, |n| n.saturating_sub(failed(seen)));
    let before = match (&qp.detail, qp.stats_t) {
        (Some(detail), Some(_)) => {
            let failed = detail.errors.iter().fold(0, |sum: u64, (_, n)| sum.saturating_add(*n));
            Some(detail.completions.map_or(0, |n| n.saturating_sub(failed)))
        }
        // The first numbers of one that was there before may be of any age.
        _ => (qp.created && qp.stats_t.is_none()).then_some(0),
    };
    before.is_some_and(|before| now > before)
}

/// Puts counts by name into a list, in place where the names are the same as before.
fn refill(list: &mut Vec<(Arc<str>, u64)>, counts: &observation::Pairs<'_, u64>, texts: &HashSet<Arc<str>>) {
    let same = list.len() == counts.len() && list.iter().zip(counts).all(|((old, _), (new, _))| **old == **new);
    if same {
        for ((_, old), (_, new)) in list.iter_mut().zip(counts) {
            *old = *new;
        }
        return;
    }
    let shared = |name: &str| texts.get(name).cloned().unwrap_or_else(|| name.into());
    *list = counts.iter().map(|(name, n)| (shared(name), *n)).collect();
}
