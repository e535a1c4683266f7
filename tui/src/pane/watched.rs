//! How sure numbers of posts and completions are: counted one by one, or from samples.

use collector::inventory::ProbeRecord;

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
