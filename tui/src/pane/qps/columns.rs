//! The columns of the table of QPs: what a filter calls them, what stands in them.

use collector::inventory::{QpRecord, World};
use collector::observation::QpState;
use ratatui::text::Line;

use super::super::Scene;
use crate::filter::{Field, Value};
use crate::number::{self, UNKNOWN};
use crate::table::{self, Column};

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Device,
    Port,
    Qpn,
    Type,
    State,
    Pid,
    Comm,
    Rate,
    Posts,
    Bytes,
    Errors,
    PeerQpn,
    PeerGid,
    Age,
    Container,
}

/// The columns in the order of the table; when the width is short they go from the lowest number of the second field.
pub(super) const COLUMNS: [(Of, Column); 15] = [
    (Of::Device, table::text("DEVICE", 10, 255)),
    (Of::Port, table::number("P", 2, 30)),
    (Of::Qpn, table::number("QPN", 8, 250)),
    (Of::Type, table::text("TYPE", 5, 50)),
    (Of::State, table::text("STATE", 5, 240)),
    (Of::Pid, table::number("PID", 8, 80)),
    (Of::Comm, table::text("COMM", 15, 200).growing()),
    (Of::Rate, table::number("b/s", 7, 220)),
    (Of::Posts, table::number("POSTS", 7, 40)),
    (Of::Bytes, table::number("BYTES", 8, 60)),
    (Of::Errors, table::number("ERR", 6, 210)),
    (Of::PeerQpn, table::number("PEER QPN", 9, 70)),
    (Of::PeerGid, table::text("PEER GID", 20, 20).growing()),
    (Of::Age, table::number("AGE", 8, 90)),
    (Of::Container, table::text("CONTAINER", 12, 10)),
];

/// What a filter can name.
pub(super) const FIELDS: [Field<Of>; 15] = [
    Field { names: &["device", "dev"], numeric: false, id: Of::Device },
    Field { names: &["port"], numeric: true, id: Of::Port },
    Field { names: &["qpn", "qp"], numeric: true, id: Of::Qpn },
    Field { names: &["type"], numeric: false, id: Of::Type },
    Field { names: &["state"], numeric: false, id: Of::State },
    Field { names: &["pid"], numeric: true, id: Of::Pid },
    Field { names: &["comm"], numeric: false, id: Of::Comm },
    Field { names: &["rate"], numeric: true, id: Of::Rate },
    Field { names: &["posts"], numeric: true, id: Of::Posts },
    Field { names: &["bytes"], numeric: true, id: Of::Bytes },
    Field { names: &["errors", "err"], numeric: true, id: Of::Errors },
    Field { names: &["peer_qpn"], numeric: true, id: Of::PeerQpn },
    Field { names: &["peer", "gid"], numeric: false, id: Of::PeerGid },
    Field { names: &["age"], numeric: true, id: Of::Age },
    Field { names: &["container"], numeric: false, id: Of::Container },
];

/// Fields a bare word is looked for in.
pub(super) const TEXTS: [Of; 6] = [Of::Device, Of::Type, Of::State, Of::Comm, Of::PeerGid, Of::Container];

/// A filter with ports and IPv4 addresses as the table has them: what is shown can be typed. Addresses only where a GID is
/// looked for, and not where the whole of it is named: that is the same however it is written.
pub(super) fn as_in_table(typed: &str) -> String {
    let word = |word: &str| {
        // A port as it stands on the screen.
        if let Some((device, port)) =
            word.strip_prefix("port=").and_then(|port| port.trim_start_matches('=').split_once('/'))
        {
            return format!("device=={device} port={port}");
        }
        let (before, value) = word.split_at(word.rfind('=').map_or(0, |at| at + 1));
        let of_gid = before.is_empty() || {
            let field = before.trim_end_matches(['=', '!']);
            let named = FIELDS.iter().find(|known| known.names.iter().any(|name| name.eq_ignore_ascii_case(field)));
            named.is_some_and(|named| named.id == Of::PeerGid) && !before.ends_with("==")
        };
        match value.parse::<std::net::Ipv4Addr>().ok().filter(|_| of_gid).map(|address| address.octets()) {
            Some([a, b, c, d]) => format!("{before}:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"),
            None => word.to_owned(),
        }
    };
    typed.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// What stands in a column, as a value.
pub(super) fn value<'w>(world: &'w World, qp: &'w QpRecord, of: Of) -> Value<'w> {
    let text = |text: Option<&'w str>| text.map_or(Value::Unknown, Value::Text);
    let number = |n: Option<f64>| n.map_or(Value::Unknown, Value::Number);
    match of {
        Of::Device => Value::Text(&world.device(qp.device).name),
        Of::Port => number(qp.port.map(f64::from)),
        Of::Qpn => Value::Number(f64::from(qp.qpn)),
        Of::Type => text(qp.qp_type.as_deref()),
        Of::State if qp.state == QpState::Unknown => Value::Unknown,
        Of::State => Value::Text(qp.state.name()),
        Of::Pid => number(qp.pid.map(f64::from)),
        Of::Comm => text(qp.comm.as_deref()),
        Of::Rate => number(world.qps.rate_now(qp, world.now).map(|bytes| bytes * 8.0)),
        Of::Posts => number(qp.stats_t.map(|_| qp.posts as f64)),
        Of::Bytes => number(qp.stats_t.map(|_| qp.bytes as f64)),
        Of::Errors => number(qp.errors.map(|n| n as f64)),
        Of::PeerQpn => number(qp.remote_qpn.map(f64::from)),
        Of::PeerGid => text(qp.remote_gid.as_deref()),
        Of::Age => Value::Number(world.now.saturating_sub(qp.since) as f64 / 1e9),
        Of::Container => text(qp.container.as_deref()),
    }
}

/// What stands in a column, on the screen.
pub(super) fn cell<'w>(scene: Scene<'w>, qp: &'w QpRecord, of: Of) -> Line<'w> {
    let (world, theme) = (&**scene.world, scene.theme);
    let known = |text: Option<&'w str>| match text {
        Some(text) => Line::styled(text, theme.text),
        None => Line::styled(UNKNOWN, theme.dim),
    };
    let plain = |text: String| {
        let style = if text == UNKNOWN { theme.dim } else { theme.text };
        Line::styled(text, style)
    };
    let number = |n: Option<u32>| plain(n.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string()));
    match of {
        Of::Device => Line::styled(&*world.device(qp.device).name, theme.strong),
        Of::Port => number(qp.port.map(u32::from)),
        Of::Qpn => number(Some(qp.qpn)),
        Of::Type => known(qp.qp_type.as_deref()),
        Of::State => Line::styled(
            qp.state.name(),
            match qp.state {
                QpState::Rts => theme.good,
                QpState::Err => theme.critical,
                QpState::Sqe | QpState::Sqd => theme.warning,
                _ => theme.dim,
            },
        ),
        Of::Pid => number(qp.pid),
        Of::Comm => known(qp.comm.as_deref()),
        Of::Rate => plain(number::bits(world.qps.rate_now(qp, world.now))),
        Of::Posts => plain(number::known_count(qp.stats_t.map(|_| qp.posts))),
        Of::Bytes => plain(number::known_bytes(qp.stats_t.map(|_| qp.bytes))),
        Of::Errors => match qp.errors {
            Some(n) if n > 0 => Line::styled(number::count(n), theme.critical),
            errors => plain(number::known_count(errors)),
        },
        Of::PeerQpn => number(qp.remote_qpn),
        Of::PeerGid => qp.remote_gid.as_deref().map_or_else(|| known(None), |gid| plain(number::gid(gid).into_owned())),
        Of::Age => {
            let age = number::age(world.now.saturating_sub(qp.since));
            Line::styled(if qp.created { age } else { format!(">{age}") }, theme.text)
        }
        Of::Container => known(qp.container.as_deref()),
    }
}
