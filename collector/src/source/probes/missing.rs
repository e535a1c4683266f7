//! What the probes see and what they do not, why, and what to do about it.

use super::attach::{AER, DESTROY};
use super::discovery::OWN_BUILD;
use super::pids::own_pids;
use super::running::Running;
use super::{NAME, Probes, uprobes};
use crate::observation::Seeing;
use crate::source::{Availability, Missing, ProbeReport};

impl Probes {
    /// [`Source::availability`](crate::source::Source::availability) of the probes.
    pub(super) fn seen(&self) -> Availability {
        let wanted = self.attached.reports().filter(|report| report.wanted).count();
        let attached = self.attached.reports().filter(|report| report.attached).count();
        let mut missing = not_attached(self.attached.reports());
        let mut sees = format!("{attached} of {wanted} probes attached");
        if let Some(running) = &self.running {
            sees = format!(
                "{sees}, {} QPs known; {} of {} slots were ever taken (to measure a probe's cost may take one)",
                running.qps.len(),
                running.maps.given().min(u64::from(self.attached.sizes.slots)),
                self.attached.sizes.slots
            );
            missing.extend(uncounted(running, self.attached.sizes.slots));
            missing.extend(self.not_made.clone());
            missing.extend(self.discovery.missing());
            let asked = self.operations.as_ref();
            missing.extend(asked.and_then(|asked| asked.missing(NEW_PROVIDERS, "what is asked of the providers")));
            if !own_pids() {
                missing.extend(without_pids(self.data_path));
            }
        }
        let state = match attached {
            0 => Seeing::Off,
            _ if missing.is_empty() => Seeing::Ok,
            _ => Seeing::Partial,
        };
        Availability { name: NAME, state, sees, missing }
    }
}

/// What is not seen while the providers do not answer.
const NEW_PROVIDERS: &str = "what processes post by providers that came since";

/// What is not seen where the process ids of the programs cannot be looked up.
fn without_pids(data_path: bool) -> impl Iterator<Item = Missing> {
    let missing = |what: &str| Missing {
        what: what.to_owned(),
        reason: "this process has a pid namespace of its own".to_owned(),
        fix: Some("run it in the host's pid namespace (hostPID)".to_owned()),
    };
    // What processes tell of theirs leads nowhere.
    let own_build = data_path.then_some(OWN_BUILD);
    ["which processes are gone"].into_iter().chain(own_build).map(missing)
}

/// What is not seen for want of a probe; what has the same reason is told together.
fn not_attached<'r>(reports: impl Iterator<Item = &'r ProbeReport>) -> Vec<Missing> {
    let mut all: Vec<Missing> = Vec::new();
    for report in reports.filter(|report| !report.attached) {
        let (what, reason) = (what_is_lost(&report.name), report.reason.as_deref().unwrap_or("unknown"));
        match all.iter_mut().find(|missing| missing.reason == reason && missing.fix == report.fix) {
            Some(missing) if missing.what.split(", ").any(|other| other == what) => {}
            Some(missing) => missing.what = format!("{}, {what}", missing.what),
            None => all.push(Missing { what: what.to_owned(), reason: reason.to_owned(), fix: report.fix.clone() }),
        }
    }
    all
}

/// What is not seen without a probe.
fn what_is_lost(probe: &str) -> &'static str {
    match probe {
        uprobes::LEARN => "which functions QPs and CQs have of their own",
        name if name.contains("poll") => "completions",
        name if name.starts_with("post_") || name.starts_with("wr_") => "what processes post to their QPs",
        AER => "PCIe errors as they happen",
        "ib_create_qp_user" => "QPs that processes create",
        "ib_create_qp_kernel" => "QPs that the kernel creates",
        "ib_modify_qp_with_udata" => "state changes of processes' QPs",
        "ib_modify_qp" => "state changes of the kernel's QPs",
        DESTROY => "QPs that are destroyed",
        "ib_uverbs_qp_event_handler" => "asynchronous events of processes' QPs",
        _ => "asynchronous events of ports and devices",
    }
}

/// What the programs could not count, each with its number.
fn uncounted(running: &Running, slots: u32) -> Vec<Missing> {
    let totals = &running.totals;
    let numbers = [
        (totals.no_slot, format!("no free slot among {slots}"), Some("raise --max-qps")),
        (totals.no_qp, "the QP could not be read from the process's memory".to_owned(), None),
        (running.qps.unread, "a list of work requests could not be read to its end".to_owned(), None),
        (totals.no_process, "the process's last QP is not kept, so switches are not counted".to_owned(), None),
        (running.qps.unresolved() as u64, "slots whose device's name could not be read".to_owned(), None),
        (totals.leaked + running.qps.leaked, "slots could not be given back".to_owned(), None),
        (totals.no_batch, "what is built call by call could not be kept track of".to_owned(), None),
    ];
    let gaps = running.qps.gaps();
    let gap = (gaps != 0).then(|| Missing {
        what: format!("some of what {gaps} QPs posted, and their completions from then on"),
        reason: "the library they use was written over, or its mode or owner changed, while it was attached to; what \
                 came until it was attached to again was not counted"
            .to_owned(),
        fix: None,
    });
    let completions = [
        (totals.no_owner, "no QP could be told: several use one extended queue, or no slot was free".to_owned(), None),
        (totals.no_completion, "they could not be read from the process's memory".to_owned(), None),
    ];
    let told = |what: &'static str| {
        move |(n, reason, fix): (u64, String, Option<&str>)| {
            (n != 0).then(|| Missing { what: format!("{n} {what}"), reason, fix: fix.map(str::to_owned) })
        }
    };
    let posts = numbers.into_iter().filter_map(told("posts or slots"));
    posts.chain(completions.into_iter().filter_map(told("completions"))).chain(gap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_pid_namespace_of_its_own_builds_that_processes_bring_are_said_not_to_be_seen() {
        let what = |data_path| without_pids(data_path).map(|missing| missing.what).collect::<Vec<_>>();
        assert_eq!(what(true), ["which processes are gone", OWN_BUILD]);
        assert_eq!(what(false), ["which processes are gone"], "what nobody wants is not missing");
    }
}
