//! How sure numbers of posts and completions are: counted one by one, or from samples.

use collector::inventory::{PortKey, ProbeRecord, QpRecord, World};

/// Where every post is seen: a QP of which none was has posted nothing there.
pub(super) struct Seen<'w> {
    world: &'w World,
    /// Posts are watched, and all the time.
    always: bool,
    /// Ports that send more than what was seen explains: somebody posts there unseen.
    blind: Vec<PortKey>,
}

impl<'w> Seen<'w> {
    pub(super) fn new(world: &'w World) -> Self {
        let always = |probes: &ProbeRecord| probes.data_path() && probes.posts_watched_ns.is_none();
        let ports = world.present_ports().map(|(_, port)| port);
        let blind = ports.filter(|port| world.unexplained(port).is_some_and(|bytes| bytes > 0.0)).map(|port| port.key);
        Self { world, always: world.probes.as_deref().is_some_and(always), blind: blind.collect() }
    }

    /// Every post of this QP is.
    pub(super) fn all_posts(&self, qp: &QpRecord) -> bool {
        let on = |port: &PortKey| port.device == qp.device && qp.port.is_none_or(|of| u32::from(of) == port.port);
        // Of the kernel's own QPs no post is.
        let followed = qp.pid.is_some_and(|pid| !self.world.processes.contains_key(&pid));
        self.always && followed && !self.blind.iter().any(on)
    }
}

/// How a kind of call is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    /// All the time.
    Always,
    /// At times.
    AtTimes,
    /// Not at all.
    Never,
}

impl Watched {
    pub(super) const fn new(watched: bool, at_times: bool) -> Self {
        match (watched, at_times) {
            (false, _) => Self::Never,
            (true, true) => Self::AtTimes,
            (true, false) => Self::Always,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Always => "counted",
            Self::AtTimes => "sampled",
            Self::Never => "not watched",
        }
    }
}

/// In words; nothing where no probe is there, which is told elsewhere.
pub(super) fn how(probes: Option<&ProbeRecord>) -> String {
    let Some(probes) = probes else { return String::new() };
    // Where the groups are not told, what failed says it.
    let polls = || probes.data_path() && !probes.failed.iter().any(|(name, _)| name.starts_with("poll_cq"));
    let completions = if probes.groups.is_empty() { polls() } else { probes.completions_attached() };
    said(
        Watched::new(probes.data_path(), probes.posts_watched_ns.is_some()),
        Watched::new(completions, probes.completions_watched_ns.is_some()),
    )
}

/// In words, how posts and completions are watched.
pub(super) fn said(posts: Watched, completions: Watched) -> String {
    if posts == completions {
        return format!("posts and completions {}", posts.word());
    }
    format!("posts {}, completions {}", posts.word(), completions.word())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn what_is_not_watched_is_not_said_to_be_counted() {
        let world = sample::healthy();
        let mut probes = (**world.probes.as_ref().unwrap()).clone();
        assert_eq!(how(Some(&probes)), "posts and completions counted");
        probes.posts_watched_ns = Some(1);
        assert_eq!(how(Some(&probes)), "posts sampled, completions counted");
        probes.groups.retain(|group| &*group.group == "posts");
        assert_eq!(how(Some(&probes)), "posts sampled, completions not watched");
        probes.groups.clear();
        probes.failed.push(("post_send".into(), "needs CAP_SYS_ADMIN".into()));
        assert_eq!(how(Some(&probes)), "posts and completions not watched");
        assert_eq!(how(None), "");
    }
}
