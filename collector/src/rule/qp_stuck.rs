//! QPs that wait for completions that do not come.

use std::collections::BTreeMap;

use super::clock::{lasting, ns, plural, when};
use super::qp::{listed, qp_check};
use super::root;
use super::{Rule, View};
use crate::finding::{Conclusion, Evidence, Finding, Grade, Severity, Subject, SubjectKey, Verdict};
use crate::inventory::{DeviceId, PortKey, QpRecord};
use crate::observation::{Nanos, QpState};

/// The unit of a QP's ACK timeout: 4.096 µs · 2^timeout (InfiniBand specification, 11.6.2).
const TIMEOUT_UNIT_NS: f64 = 4096.0;
/// Statistics are swept once a second: nothing shorter than a few sweeps can be told, ns.
const SWEEPS_NS: Nanos = 3_000_000_000;

/// A QP that waits, and since when.
type Waiting<'w> = (&'w QpRecord, Nanos);

/// `qp.stuck`.
pub(super) struct Stuck;

impl Rule for Stuck {
    fn id(&self) -> &'static str {
        "qp.stuck"
    }

    fn meaning(&self) -> &'static str {
        "A QP is ready to send, has signalled work requests that wait, and no completion has come for ten times its own ACK \
         timeout: by then it should have had an answer, or given up. A process that does not poll its completion queue (in \
         a debugger, busy elsewhere) looks the same, and so does a receiver that never posts a buffer to a sender that \
         waits for ever (rnr_retry 7)."
    }

    fn hand_check(&self, _view: &View<'_>, finding: &Finding) -> Vec<String> {
        let mut lines = qp_check(finding);
        lines.push("cat /proc/PID/wchan /proc/PID/stack      # of the QP's owner: does it run?".to_owned());
        lines
    }

    fn judge(&self, view: &View<'_>) -> Vec<Verdict> {
        // Only what is still being watched: an old number is no sign of now.
        let watched = view.world.qps.sweeps[0].is_some_and(|sweep| view.now.saturating_sub(sweep) < SWEEPS_NS);
        if !watched || paused(view) || view.world.qps.details() == 0 {
            return Vec::new();
        }
        let mut by_port: BTreeMap<(DeviceId, Option<u32>), Vec<Waiting<'_>>> = BTreeMap::new();
        for qp in view.world.qps.iter().filter(|qp| !qp.is_own()) {
            if let Some(since) = stuck(view, qp) {
                let port = qp.port.map(u32::from).or_else(|| only_port(view, qp.device));
                by_port.entry((qp.device, port)).or_default().push((qp, since));
            }
        }
        let mut verdicts = Vec::new();
        for ((device, port), qps) in by_port {
            if qps.len() > view.settings.qp_stuck.fold_above {
                verdicts.push(tell(view, device, port, &qps));
            } else {
                verdicts.extend(qps.iter().map(|one| tell(view, device, port, std::slice::from_ref(one))));
            }
        }
        verdicts
    }

    fn not_judged(&self, view: &View<'_>) -> Option<String> {
        if view.world.qps.is_empty() {
            return Some("no QP is known".to_owned());
        }
        if paused(view) {
            return Some("posts or completions were paused for the probes' budget, so not all are seen".to_owned());
        }
        let mut details = view.world.qps.iter().filter_map(|qp| Some((qp, qp.detail.as_ref()?)));
        let traced = details.any(|(qp, detail)| {
            detail.completions.is_some() && detail.all_seen() && qp.timeout.is_some_and(|timeout| timeout > 0)
        });
        (!traced).then(|| "no QP is known of which all completions are seen and the ACK timeout is known".to_owned())
    }
}

/// Not all posts or completions were watched. A QP's own numbers may not say so: they are told when they change, and a QP that
/// posts nothing in a pause waits for completions that nobody looks at.
fn paused(view: &View<'_>) -> bool {
    let probes = view.world.probes.as_ref();
    probes.is_some_and(|probes| probes.posts_watched_ns.is_some() || probes.completions_watched_ns.is_some())
}

fn only_port(view: &View<'_>, device: DeviceId) -> Option<u32> {
    let mut ports = view.world.ports_of(device);
    let only = ports.next()?;
    ports.next().is_none().then_some(only.key.port)
}

/// How long a QP may wait, ns; `None` for one whose timeout is not known or infinite.
fn patience(view: &View<'_>, qp: &QpRecord) -> Option<Nanos> {
    let timeout = qp.timeout.filter(|timeout| (1..=31).contains(timeout))?;
    let timeout_ns = TIMEOUT_UNIT_NS * f64::from(timeout).exp2();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most ten times 2.4 hours")]
    let patience = (timeout_ns * view.settings.qp_stuck.timeouts.max(1.0)) as u64;
    Some(patience.max(SWEEPS_NS))
}

/// Since when a QP waits, where that is too long.
fn stuck(view: &View<'_>, qp: &QpRecord) -> Option<Nanos> {
    let since = qp.detail.as_ref()?.waiting_since?;
    let patience = patience(view, qp)?;
    (qp.state == QpState::Rts && view.now.saturating_sub(since) > patience).then_some(since)
}

fn tell(view: &View<'_>, device: DeviceId, port: Option<u32>, qps: &[Waiting<'_>]) -> Verdict {
    let since = qps.iter().map(|(_, since)| *since).min().unwrap_or(view.now);
    let waits = |qp: &QpRecord| {
        let detail = qp.detail.as_ref()?;
        Some(detail.signaled?.saturating_sub(detail.done()?))
    };
    let n = qps.iter().filter_map(|(qp, _)| waits(qp)).fold(0u64, u64::saturating_add);
    let patience = qps.iter().filter_map(|(qp, _)| patience(view, qp)).max().unwrap_or(0);
    let one = if let [(one, _)] = qps { Some(*one) } else { None };
    let key = match (one, port) {
        (Some(one), _) => SubjectKey::Qp(one.id),
        (None, Some(port)) => SubjectKey::Port(device, port),
        (None, None) => SubjectKey::Device(device),
    };
    let owner = |qp: &QpRecord| match (&qp.comm, qp.pid) {
        (Some(comm), Some(pid)) => format!(" of {comm} ({pid})"),
        (Some(comm), None) => format!(" of {comm}"),
        (None, Some(pid)) => format!(" of process {pid}"),
        (None, None) => String::new(),
    };
    let who = if let Some(qp) = one {
        format!("QP {}{} waits", qp.qpn, owner(qp))
    } else {
        let mut numbers: Vec<u32> = qps.iter().map(|(qp, _)| qp.qpn).collect();
        numbers.sort_unstable();
        format!("{} QPs ({}) wait", qps.len(), listed(&numbers))
    };
    let waited = view.now.saturating_sub(since);
    let record = port.and_then(|port| view.world.port(PortKey { device, port }));
    let roots = ["link.down", "nic.stuck", "pcie.aer_fatal", "nic.health"];
    let name = view.world.device(device).name.clone();
    Verdict::Holds(Box::new(Conclusion {
        key,
        subject: Subject { device: Some(name), port, qpn: one.map(|qp| qp.qpn), ..Subject::default() },
        severity: Severity::Warning,
        grade: Grade::Probable,
        summary: format!(
            "{who} for {} since {}: no completion within {}",
            plural(n, "signalled work request"),
            when(view, since),
            lasting(patience)
        ),
        evidence: vec![
            Evidence::new(
                "time without a completion",
                None,
                waited as f64 / 1e9,
                patience as f64 / 1e9,
                "s",
            ),
            Evidence::new("signalled work requests without a completion", None, n as f64, 0.0, "WRs"),
        ],
        advice: "Look whether the process runs and polls its completion queue; then at the port (paused?) and at the peer. A \
                 QP that neither completes nor fails beyond its own timers points at the adapter or its firmware."
            .to_owned(),
        would_raise: "a finding about the same adapter, or the process seen polling".to_owned(),
        part_of: record.and_then(|port| root::of_port(view, port, &roots, since, ns(10.0))),
        since,
        revision: qps.len() as u64,
    }))
}
