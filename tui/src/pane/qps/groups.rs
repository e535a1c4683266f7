//! QPs put together by process, peer or port: a row for each, with the sums of its QPs.

use std::collections::HashMap;

use collector::inventory::{QpRecord, QpRef, World};
use collector::observation::QpState;
use ratatui::text::Line;

use super::super::watched::Seen;
use crate::number::{self, UNKNOWN};
use crate::table::{self, Column};
use crate::theme::Theme;

/// What QPs are put together by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum By {
    /// Not at all.
    #[default]
    Nothing,
    /// Their process.
    Process,
    /// The GID of the other end.
    Peer,
    /// Their port.
    Port,
}

impl By {
    /// The next one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Nothing => Self::Process,
            Self::Process => Self::Peer,
            Self::Peer => Self::Port,
            Self::Port => Self::Nothing,
        }
    }

    /// The word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Process => "process",
            Self::Peer => "peer",
            Self::Port => "port",
        }
    }
}

/// What makes QPs belong together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key<'w> {
    Process(u32),
    /// QPs of the kernel, by its module.
    Module(Option<&'w str>),
    Peer(Option<&'w str>),
    Port(&'w str, Option<u8>),
}

/// A row: QPs that belong together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// What they have in common, for people.
    pub(super) name: String,
    /// The filter that leaves just them; empty where there is none: not all of what they have in common is known.
    pub(super) filter: String,
    qps: u64,
    in_error: u64,
    /// Sums over those that have a number; `None` when none has.
    rate: Option<f64>,
    /// Some QPs that could send have no rate: nobody watches what they post.
    in_part: bool,
    posts: Option<u64>,
    bytes: Option<u64>,
    errors: Option<u64>,
}

/// The columns; the numbers after the third can be sorted by.
pub(super) const COLUMNS: [Column; 7] = [
    table::text("GROUP", 24, 255).growing(),
    table::number("QPs", 7, 250),
    table::number("ERR+SQE", 7, 245),
    table::number("b/s", 7, 240),
    table::number("POSTS", 8, 40),
    table::number("BYTES", 9, 50),
    table::number("ERR", 7, 230),
];

/// The column groups are sorted by at first.
pub(super) const RATE: usize = 3;

/// Adds what is known. What a recording says may be more than a number holds: a sum stops at the largest.
fn add<T>(sum: &mut Option<T>, one: Option<T>, plus: fn(T, T) -> T) {
    *sum = match (sum.take(), one) {
        (Some(sum), Some(one)) => Some(plus(sum, one)),
        (one, other) => one.or(other),
    };
}

/// It can send, and what it sends is not known now.
fn may_send_unseen(seen: &Seen<'_>, qp: &QpRecord) -> bool {
    let idle = qp.stats_t.is_none() && seen.all_posts(qp);
    qp.state == QpState::Rts && !qp.manages() && !idle
}

impl Group {
    /// `comm` is the name of its first QP's process: threads may have names of their own.
    fn new(key: &Key<'_>, comm: Option<&str>) -> Self {
        let (name, filter) = match key {
            Key::Process(pid) => (format!("{} {pid}", comm.unwrap_or(UNKNOWN)), format!("pid={pid}")),
            Key::Module(comm) => (format!("{} {UNKNOWN}", comm.unwrap_or(UNKNOWN)), String::new()),
            Key::Peer(gid) => (
                number::gid(gid.unwrap_or(UNKNOWN)).into_owned(),
                gid.map_or(String::new(), |gid| format!("peer=={gid}")),
            ),
            Key::Port(device, Some(port)) => (format!("{device}/{port}"), format!("device=={device} port={port}")),
            Key::Port(device, None) => (format!("{device}/{UNKNOWN}"), String::new()),
        };
        // The filter's words end at spaces.
        let filter = if matches!(key, Key::Peer(_)) && filter.contains(' ') { String::new() } else { filter };
        Self { name, filter, qps: 0, in_error: 0, rate: None, in_part: false, posts: None, bytes: None, errors: None }
    }

    fn take(&mut self, world: &World, seen: &Seen<'_>, qp: &QpRecord) {
        self.qps += 1;
        self.in_error += u64::from(matches!(qp.state, QpState::Err | QpState::Sqe));
        let rate = world.qps.rate_now(qp, world.now);
        self.in_part |= rate.is_none() && may_send_unseen(seen, qp);
        add(&mut self.rate, rate, |a, b| a + b);
        add(&mut self.posts, qp.stats_t.map(|_| qp.posts), u64::saturating_add);
        add(&mut self.bytes, qp.stats_t.map(|_| qp.bytes), u64::saturating_add);
        add(&mut self.errors, qp.errors, u64::saturating_add);
    }

    /// What a column is sorted by; unknown last.
    fn weight(&self, column: usize) -> f64 {
        let whole = |n: Option<u64>| n.map(|n| n as f64);
        let value = match column {
            1 => whole(Some(self.qps)),
            2 => whole(Some(self.in_error)),
            4 => whole(self.posts),
            5 => whole(self.bytes),
            6 => whole(self.errors),
            _ => self.rate,
        };
        value.unwrap_or(-1.0)
    }

    /// The cells, in the order of [`COLUMNS`].
    pub(super) fn cells(&self, theme: &Theme) -> Vec<Line<'static>> {
        let plain = |text: String| {
            let style = if text == UNKNOWN || text == "0" { theme.dim } else { theme.text };
            Line::styled(text, style)
        };
        let loud = |n: Option<u64>| match n {
            Some(n) if n > 0 => Line::styled(number::count(n), theme.critical),
            n => plain(number::known_count(n)),
        };
        vec![
            Line::styled(self.name.clone(), theme.strong),
            plain(number::count(self.qps)),
            loud(Some(self.in_error)),
            plain(number::at_least(number::bits(self.rate), self.in_part && self.rate.is_some())),
            plain(number::known_count(self.posts)),
            plain(number::known_bytes(self.bytes)),
            loud(self.errors),
        ]
    }
}

/// The groups of these QPs, sorted by a column; equal ones by name.
pub(super) fn groups(
    world: &World,
    qps: impl Iterator<Item = QpRef>,
    by: By,
    column: usize,
    ascending: bool,
) -> Vec<Group> {
    let mut groups: HashMap<Key<'_>, Group> = HashMap::new();
    let seen = Seen::new(world);
    for qp in qps.filter_map(|id| world.qps.get(id)) {
        let key = match by {
            By::Nothing => continue,
            By::Process => qp.pid.map_or(Key::Module(qp.comm.as_deref()), Key::Process),
            By::Peer => Key::Peer(qp.remote_gid.as_deref()),
            By::Port => Key::Port(&world.device(qp.device).name, qp.port),
        };
        groups.entry(key).or_insert_with_key(|key| Group::new(key, qp.comm.as_deref())).take(world, &seen, qp);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| {
        let order = if column == 0 { b.name.cmp(&a.name) } else { a.weight(column).total_cmp(&b.weight(column)) };
        let order = if ascending { order } else { order.reverse() };
        order.then_with(|| a.name.cmp(&b.name))
    });
    groups
}

#[cfg(test)]
mod tests {
    use super::super::columns::{FIELDS, TEXTS, value};
    use super::*;
    use crate::filter::Filter;
    use crate::sample;
    use collector::observation::recording::Header;

    fn all(world: &World) -> impl Iterator<Item = QpRef> {
        world.qps.iter().map(|qp| qp.id)
    }

    #[test]
    fn every_qp_is_in_one_group_and_none_is_made_up() {
        let world = sample::faulty();
        for by in [By::Process, By::Peer, By::Port] {
            let groups = groups(&world, all(&world), by, RATE, false);
            assert!(groups.len() > 1, "{by:?}");
            assert_eq!(groups.iter().map(|group| group.qps).sum::<u64>(), world.qps.len() as u64, "{by:?}");
            assert!(groups.windows(2).all(|pair| pair[0].weight(RATE) >= pair[1].weight(RATE)), "{by:?}");
        }
    }

    #[test]
    fn the_port_with_the_dead_qps_says_so() {
        let world = sample::faulty();
        let groups = groups(&world, all(&world), By::Port, 2, false);
        assert_eq!(
            (&*groups[0].name, groups[0].in_error, &*groups[0].filter),
            ("mlx5_4/1", 64, "device==mlx5_4 port=1")
        );
        assert_eq!(groups[1].in_error, 0);
    }

    #[test]
    fn the_filter_of_a_group_leaves_its_qps_and_no_others() {
        use collector::observation::{Body, Observation, Qp};
        let mut engine = collector::engine::Engine::new(Header::new(), collector::rule::Settings::default());
        // A process whose threads have names of their own; names, numbers and addresses that begin as others do.
        for n in 0..60u32 {
            let device = ["mlx5_1", "mlx5_10", "mlx5_11"][n as usize % 3];
            let qp = Qp {
                device: device.into(),
                qpn: 100 + n,
                port: (n % 5 > 0).then_some(1),
                pid: [Some(7), Some(77), None][n as usize / 3 % 3],
                comm: Some(if n % 4 < 2 { "a" } else { "a b" }.into()),
                remote_gid: Some(if n % 2 == 0 { "fe80::1" } else { "fe80::12" }.into()),
                ..Qp::default()
            };
            engine.take(&Observation { t: 1, body: Body::Qp(qp) });
        }
        let world = engine.snapshot();
        assert_eq!(all(&world).count(), 60);
        for by in [By::Process, By::Peer, By::Port] {
            for group in groups(&world, all(&world), by, RATE, false).iter().filter(|group| !group.filter.is_empty()) {
                let filter = Filter::parse(&group.filter, &FIELDS).unwrap();
                let mut sieve = filter.sieve(&TEXTS);
                let left = world.qps.iter().filter(|qp| sieve.passes(|of| value(&world, qp, of))).count() as u64;
                assert_eq!((left, &group.name), (group.qps, &group.name), "{}", group.filter);
            }
        }
    }

    #[test]
    fn a_sum_is_a_lower_bound_only_where_somebody_may_send_unseen() {
        use collector::observation::{Body, Observation, Qp, QpState};
        let world = |qpn: u32, pid: Option<u32>, watched: bool, at_times: bool| {
            let mut engine = collector::engine::Engine::new(Header::new(), collector::rule::Settings::default());
            let to = Some(QpState::Rts);
            let qp = Qp { device: "d".into(), qpn, port: Some(1), pid, to, ..Qp::default() };
            engine.take(&Observation { t: 1, body: Body::Qp(qp) });
            let mut world = (*engine.snapshot()).clone();
            let mut probes = (**sample::healthy().probes.as_ref().unwrap()).clone();
            probes.posts_watched_ns = at_times.then_some(500_000_000);
            world.probes = watched.then(|| std::sync::Arc::new(probes));
            groups(&world, all(&world), By::Port, RATE, false)[0].in_part
        };
        assert!(!world(1, None, true, false), "the GSI carries no data");
        assert!(!world(17, Some(7), true, false), "it has posted nothing yet");
        assert!(world(17, Some(7), false, false), "nobody watches");
        assert!(world(17, Some(7), true, true), "it may post while posts are not watched");
        assert!(world(17, None, true, false), "the kernel's own posts are not watched");
    }

    #[test]
    fn more_than_a_number_holds_is_the_largest_number() {
        let mut sum = Some(u64::MAX);
        add(&mut sum, Some(1), u64::saturating_add);
        assert_eq!(sum, Some(u64::MAX));
    }
}
