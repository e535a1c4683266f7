//! How sure numbers of posts and completions are: counted one by one, or from samples.

use collector::inventory::{ProbeRecord, QpRecord, World};

/// Every post of a QP is seen: one of which none was has posted nothing.
pub(super) fn all_posts(world: &World, qp: &QpRecord) -> bool {
    let always = |probes: &ProbeRecord| probes.data_path() && probes.posts_watched_ns.is_none();
    // Of the kernel's own QPs no post is.
    world.probes.as_deref().is_some_and(always) && qp.pid.is_some_and(|pid| !world.processes.contains_key(&pid))
}

/// In words; nothing where no probe is there, which is told elsewhere.
pub(super) fn how(probes: Option<&ProbeRecord>) -> &'static str {
    let Some(probes) = probes else { return "" };
    said(probes.posts_watched_ns.is_some(), probes.completions_watched_ns.is_some())
}

/// In words, whether posts and completions are watched only at times.
pub(super) fn said(posts_at_times: bool, completions_at_times: bool) -> &'static str {
    match (posts_at_times, completions_at_times) {
        (false, false) => "posts and completions counted",
        (false, true) => "posts counted, completions sampled",
        (true, false) => "posts sampled, completions counted",
        (true, true) => "posts and completions sampled",
    }
}
