//! Whether it is known when a finding began, or only that it was so when the watching began.

use collector::finding::{Finding, SubjectKey};
use collector::inventory::{PortKey, PortRecord, QpFailure, World};
use collector::observation::{AerSeverity, PortState};

/// It was so already when the watching began, or at the first look after that: when it began is not known. What was seen
/// to happen, such as a port that left ACTIVE, began then, however soon that was.
pub(super) fn from_the_start(world: &World, finding: &Finding) -> bool {
    // What a recording states of before is not watched: only single events of it are known.
    let first_look = world.watched_since().saturating_add(world.window_ns.saturating_mul(2));
    finding.first_t <= first_look && !seen_to_happen(world, finding)
}

/// Its beginning is an event that was observed. An error that the way to the host corrected is none: where there are many,
/// the first that was seen need not be the first.
fn seen_to_happen(world: &World, finding: &Finding) -> bool {
    let t = finding.first_t;
    match &finding.key {
        SubjectKey::Node => false,
        SubjectKey::Device(id) => {
            let reported = world.device(*id).reports.since(t.saturating_sub(1)).any(|(at, _)| *at == t);
            reported || world.ports_of(*id).any(|port| befell(port, t)) || failed(world, t, |qp| qp.device == *id)
        }
        SubjectKey::Port(device, number) => {
            let key = PortKey { device: *device, port: *number };
            let on_it = |qp: &QpFailure| qp.device == *device && qp.port.is_none_or(|port| port == *number);
            world.port(key).is_some_and(|port| befell(port, t)) || failed(world, t, on_it)
        }
        SubjectKey::Qp(id) => failed(world, t, |qp| qp.id == *id),
        SubjectKey::Pci(pci) => world.pcie.get(pci).is_some_and(|record| {
            let mut events = record.events.since(t.saturating_sub(1)).filter(|(at, _)| *at == t);
            events.any(|(_, event)| event.severity != AerSeverity::Corrected)
        }),
    }
}

/// The port left a known state at that time, or something was told of it.
fn befell(port: &PortRecord, t: u64) -> bool {
    let left = port.states.iter().any(|(at, change)| *at == t && change.from != PortState::Unknown);
    left || port.events.iter().any(|(at, _)| *at == t)
}

/// A QP failed at that time that was seen to be well before, or of which an event told it.
fn failed(world: &World, t: u64, concerned: impl Fn(&QpFailure) -> bool) -> bool {
    let mut at = world.qp_failures.since(t.saturating_sub(1)).filter(|(at, _)| *at == t);
    at.any(|(_, failure)| concerned(failure) && (failure.told || failure.last_good.is_some()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use collector::engine::Engine;
    use collector::observation::recording::Header;
    use collector::observation::{Async, Body, Observation, Port};
    use collector::rule::Settings;

    #[test]
    fn what_was_seen_to_happen_soon_after_the_start_is_not_as_old_as_the_watch_or_older() {
        let world = |states: &[(u64, PortState)], fails: Option<u64>| {
            let mut engine = Engine::new(Header::new(), Settings::default());
            for (ms, state) in states {
                // A sibling that is ACTIVE says that it should be.
                for (device, state) in [("d", *state), ("e", PortState::Active)] {
                    let phys_state = Some(if state == PortState::Down { "Polling" } else { "LinkUp" }.into());
                    let body =
                        Body::Port(Port { device: device.into(), port: 1, state, phys_state, ..Port::default() });
                    engine.take(&Observation { t: ms * 1_000_000, body });
                }
            }
            if let Some(ms) = fails {
                let body = Async { device: "d".into(), port: Some(1), event: "PORT_ERR".into(), ..Async::default() };
                engine.take(&Observation { t: ms * 1_000_000, body: Body::Async(body) });
            }
            let body = Body::Note(collector::observation::Note { source: "test".into(), text: "time goes on".into() });
            engine.take(&Observation { t: 30_000_000_000, body });
            engine.snapshot()
        };
        let down = |world: &World| {
            let found = world.findings.iter().find(|finding| finding.rule == "link.down").cloned();
            found.map(|finding| ((finding.first_t - world.started) / 1_000_000, from_the_start(world, &finding)))
        };
        // It was ACTIVE, and an event or a reading shows that it left that state.
        assert_eq!(down(&world(&[(1, PortState::Active)], Some(1_501))), Some((1_500, false)));
        assert_eq!(down(&world(&[(1, PortState::Active), (1_001, PortState::Down)], None)), Some((1_000, false)));
        // It was down when it was first seen.
        assert_eq!(down(&world(&[(1, PortState::Down)], None)), Some((0, true)));
        // A recording that states an hour before it: what was so when it begins may be older.
        let mut stated = (*world(&[(1, PortState::Down)], None)).clone();
        stated.counted_since = Some(stated.started + 3_600_000_000_000);
        let finding = Arc::make_mut(&mut stated.findings[0]);
        finding.first_t = stated.started + 3_600_000_000_000;
        assert_eq!(down(&stated), Some((3_600_000, true)));
    }
}
