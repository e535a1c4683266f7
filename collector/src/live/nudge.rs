//! What one source observes may make a fresh look of the others worth it: they are nudged then.

use crate::engine::Engine;
use crate::inventory::PortKey;
use crate::observation::{AerSeverity, Body, Observation, Port, QpState, QpStats};

/// Something happened that the other sources should look at now, not at their next period. `engine` has not taken it yet.
pub(super) fn calls_for_a_look(engine: &Engine, observation: &Observation<'_>) -> bool {
    match &observation.body {
        Body::Port(port) => is_another_state(engine, port),
        // An error ends most QPs, and nobody tells of their states.
        Body::QpStats(stats) => new_errors(engine, stats),
        // A bond that moved the traffic elsewhere, a device in trouble: both are said only when they change.
        Body::Async(_) | Body::Bond(_) | Body::Health(_) => true,
        Body::Aer(aer) => aer.severity != AerSeverity::Corrected,
        Body::Qp(qp) => qp.to == Some(QpState::Err),
        _ => false,
    }
}

/// A known port is said to be in another state. One that is said again as it was is no news.
fn is_another_state(engine: &Engine, port: &Port<'_>) -> bool {
    let known = || {
        let (device, _) = engine.world().device_named(&port.device)?;
        engine.world().port(PortKey { device, port: port.port }).map(|known| known.state)
    };
    known().is_some_and(|known| known != port.state)
}

/// The statistics of a QP tell of more failed completions than before.
fn new_errors(engine: &Engine, stats: &QpStats<'_>) -> bool {
    let failed = stats.errors.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
    let known = || {
        let (device, _) = engine.world().device_named(&stats.device)?;
        engine.world().qps.find(device, stats.qpn)?.errors
    };
    failed > 0 && known().is_none_or(|known| failed > known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::recording::Header;
    use crate::rule::Settings;

    #[test]
    fn failed_completions_call_for_a_look_at_the_states_of_qps_once() {
        let stats = |n: u64| QpStats {
            device: "mlx5_0".into(),
            qpn: 17,
            errors: [("RETRY_EXC_ERR".into(), n)].into_iter().filter(|_| n > 0).collect(),
            ..QpStats::default()
        };
        let mut engine = Engine::new(Header::new(), Settings::default());
        let mut calls = |n| {
            let calls = new_errors(&engine, &stats(n));
            engine.take(&Observation { t: 1, body: Body::QpStats(stats(n)) });
            calls
        };
        assert_eq!([0, 1, 1, 2, 2].map(&mut calls), [false, true, false, true, false]);
    }
}
