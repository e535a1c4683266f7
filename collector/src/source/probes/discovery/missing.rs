//! What is not seen of processes, and why.

use std::collections::BTreeMap;

use super::Discovery;
use super::process::Process;
use crate::source::Missing;

/// What is not seen where processes cannot be looked at.
pub(in super::super) const OWN_BUILD: &str = "what processes with a provider build of their own post";

impl Discovery {
    /// The processes of which is known that they use verbs and not where.
    pub(in super::super) fn missing(&self) -> Vec<Missing> {
        let mut reasons: BTreeMap<(&str, Option<&str>), Vec<String>> = BTreeMap::new();
        let mut processes: Vec<&Process> = self.known.values().collect();
        processes.sort_unstable_by_key(|process| process.pid);
        for process in processes {
            if let Some(why) = &process.missing {
                let who = format!("{} ({})", process.comm, process.pid);
                reasons.entry((&why.reason, why.fix.as_deref())).or_default().push(who);
            }
        }
        let mut missing: Vec<Missing> = reasons
            .into_iter()
            .map(|((reason, fix), who)| Missing {
                what: format!("what {} posts", some_of(&who)),
                reason: reason.to_owned(),
                fix: fix.map(str::to_owned),
            })
            .collect();
        let counted = [
            (
                self.refused.len() as u64,
                "processes may not be looked at, so a provider build of their own is not found",
                Some("give it CAP_SYS_PTRACE"),
            ),
            (
                self.later.len() as u64,
                "processes could not be looked at just now, and will be within 10 s",
                Some("see that it may open more files (LimitNOFILE)"),
            ),
            (self.forgotten, "processes use verbs beyond those that are remembered", None),
        ];
        for (n, reason, fix) in counted {
            if n > 0 {
                let what = "what other processes post".to_owned();
                missing.push(Missing { what, reason: format!("{n} {reason}"), fix: fix.map(str::to_owned) });
            }
        }
        let awaited = [(&self.look, "a look at processes"), (&self.hearing, "a look at what processes told")];
        missing.extend(awaited.into_iter().filter_map(|(look, who)| look.as_ref()?.missing(OWN_BUILD, who)));
        missing
    }
}

/// The first of many.
fn some_of(all: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = all.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN { format!("{shown} and {} more", all.len() - SHOWN) } else { shown }
}
