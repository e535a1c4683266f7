//! Lifetimes as spans, for those who ask: a QP from its creation to its end, with its changes of state as span events; a
//! failover with its phases as children. A span is told when it is over, so what lives on has none.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message;

use super::attribute::Attributes;
use super::queue::{Item, Kind};
use super::random;
use super::wall::Wall;
use crate::inventory::{By, Failover, Moment, QpChange, QpRecord, QpRef, World};
use crate::observation::{Nanos, QpState};

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Spans {
    newest_gone: Option<QpRef>,
    failovers: BTreeSet<u32>,
}

impl Spans {
    /// QPs that ended since the last look.
    pub(super) fn ended(&mut self, world: &World, wall: Wall) -> Vec<Item> {
        let last = self.newest_gone;
        let mut gone = world.qps.gone().take_while(|qp| Some(qp.id) != last).peekable();
        self.newest_gone = gone.peek().map_or(last, |qp| Some(qp.id));
        let mut spans: Vec<Item> = gone.filter_map(|qp| Some(encoded(&lifetime(qp, world, wall)?))).collect();
        spans.reverse();
        spans
    }

    /// A failover that is over and was not told.
    pub(super) fn failover(&mut self, failover: &Failover, wall: Wall) -> Vec<Item> {
        let Some(closed) = failover.closed_t else { return Vec::new() };
        let marks = || failover.lanes().into_iter().filter_map(|(_, _, mark)| mark);
        let Some(start) = marks().map(|mark| mark.at.t).min() else { return Vec::new() };
        if !self.failovers.insert(failover.id) {
            return Vec::new();
        }
        let end = marks().map(|mark| mark.at.t).max().unwrap_or(closed);
        let mut root = span("rdma.failover", start, end, wall);
        let attributes = Attributes::default()
            .text("rdma.subject.device", &*failover.device)
            .int("rdma.subject.port", Some(u64::from(failover.port)))
            .text("rdma.failover.ending", failover.ending.name())
            .int("rdma.failover.outage.min_ns", failover.outage.map(|span| span.min_ns))
            .int("rdma.failover.outage.max_ns", failover.outage.map(|span| span.max_ns));
        root.attributes = attributes.done();
        let lanes = failover.lanes().into_iter();
        let events = lanes.filter_map(|(_, name, mark)| {
            let mark = mark?;
            let not_before = Some(wall.unix_ns(mark.at.not_before)).filter(|_| mark.at.not_before != mark.at.t);
            let attributes = Attributes::default()
                .text("rdma.failover.what", &mark.what)
                .int("rdma.failover.not_before_unix_nano", not_before);
            Some(event(name, mark.at.t, attributes, wall))
        });
        root.events = events.collect();
        let at = |mark: &Option<crate::inventory::Mark>| mark.as_ref().map(|mark| mark.at);
        let phases = [
            ("rdma.failover.warning", at(&failover.first_sign), failover.began()),
            ("rdma.failover.reaction", failover.began(), at(&failover.first_qp)),
            ("rdma.failover.recovery", at(&failover.first_qp), at(&failover.first_operation)),
        ];
        let child = |(name, from, to): (&str, Option<Moment>, Option<Moment>)| {
            let (from, to) = (from?.t, to?.t);
            let mut span = span(name, from, to.max(from), wall);
            span.trace_id.clone_from(&root.trace_id);
            span.parent_span_id.clone_from(&root.span_id);
            Some(encoded(&span))
        };
        let children: Vec<Item> = phases.into_iter().filter_map(child).collect();
        std::iter::once(encoded(&root)).chain(children).collect()
    }
}

fn lifetime(qp: &QpRecord, world: &World, wall: Wall) -> Option<Span> {
    let mut span = span("rdma.qp", qp.since, qp.destroyed?, wall);
    let attributes = Attributes::default()
        .text("rdma.subject.device", &*world.device(qp.device).name)
        .int("rdma.subject.port", qp.port.map(u64::from))
        .int("rdma.subject.qpn", Some(u64::from(qp.qpn)))
        .some_text("rdma.qp.type", qp.qp_type.as_deref())
        .int("process.pid", qp.pid.map(u64::from))
        .some_text("process.executable.name", qp.comm.as_deref())
        .some_text("container.id", qp.container.as_deref())
        .int("rdma.qp.remote_qpn", qp.remote_qpn.map(u64::from))
        .some_text("rdma.qp.remote_gid", qp.remote_gid.as_deref())
        // Nobody counted where the data path was not watched.
        .int("rdma.qp.posts", qp.stats_t.map(|_| qp.posts))
        .int("rdma.qp.bytes", qp.stats_t.map(|_| qp.bytes))
        .int("rdma.qp.errors", qp.errors)
        // Otherwise it is older than its span.
        .truth("rdma.qp.creation_seen", qp.created);
    span.attributes = attributes.done();
    let changes = || qp.detail.iter().flat_map(|detail| detail.changes.iter());
    span.events = changes().filter_map(|(t, change)| state(*t, *change, wall)).collect();
    let failed = changes().any(|(_, change)| change.to == Some(QpState::Err) && change.by == By::Found);
    if failed {
        let message = "it went into the error state and nobody was seen asking".to_owned();
        span.status = Some(Status { message, code: StatusCode::Error.into() });
    }
    Some(span)
}

fn state(t: Nanos, change: QpChange, wall: Wall) -> Option<Event> {
    let to = change.to?;
    let by = match change.by {
        By::Create => "create",
        By::Modify => "modify",
        By::Destroy => "destroy",
        By::Found => "found",
    };
    let attributes = Attributes::default()
        .some_text("rdma.qp.state.from", change.from.map(QpState::name))
        .text("rdma.qp.state.to", to.name())
        .text("rdma.qp.by", by)
        .int("rdma.qp.errno", change.errno.map(u64::from));
    Some(event(to.name(), t, attributes, wall))
}

fn event(name: &str, t: Nanos, attributes: Attributes, wall: Wall) -> Event {
    let time_unix_nano = wall.unix_ns(t);
    Event { time_unix_nano, name: name.to_owned(), attributes: attributes.done(), ..Event::default() }
}

/// A span of a trace of its own.
fn span(name: &str, from: Nanos, to: Nanos, wall: Wall) -> Span {
    let trace_id = [random::bits(), random::bits()].into_iter().flat_map(u64::to_be_bytes).collect();
    Span {
        trace_id,
        span_id: random::bits().to_be_bytes().to_vec(),
        name: name.to_owned(),
        kind: SpanKind::Internal.into(),
        start_time_unix_nano: wall.unix_ns(from),
        end_time_unix_nano: wall.unix_ns(to.max(from)),
        ..Span::default()
    }
}

fn encoded(span: &Span) -> Item {
    Item { kind: Kind::Span, records: 1, bytes: span.encode_to_vec() }
}
