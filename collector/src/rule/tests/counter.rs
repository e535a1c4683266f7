//! `counter.saturated`.

use super::*;

#[test]
fn counters_at_their_limit_are_told_once_until_they_are_cleared() {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx4_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp");
    let full = json!({"symbol_error": 65535, "port_xmit_wait": 4_294_967_295u64, "port_xmit_data": 7,
        "port_rcv_switch_relay_errors": 65535});
    for s in 0..4 {
        log.counters(f64::from(s) + 0.2, "a", "counters", full.clone());
    }
    log.counters(
        4.2,
        "a",
        "counters",
        json!({"symbol_error": 0, "port_xmit_wait": 0, "port_xmit_data": 9,
        "port_rcv_switch_relay_errors": 0}),
    );
    log.until(5, 7);
    let outcome = log.run();
    assert_eq!(outcome.of("counter.saturated"), ["1 a/1 raised info confirmed", "5 a/1 cleared info confirmed"]);
    let told = &outcome.changes[0];
    assert_eq!(told.evidence.len(), 2, "a counter that means nothing on an adapter is not told: {told:?}");
    assert_eq!(told.evidence[1].value, Some(65535.0));
}

#[test]
fn one_reading_alone_is_judged_when_the_recording_ends() {
    let mut log = Log::new();
    log.device(0.0, "a", "mlx4_core", "0000:01:00.0").port(0.0, "a", "ACTIVE", "LinkUp");
    log.counters(0.0, "a", "counters", json!({"port_xmit_wait": 4_294_967_295u64}));
    assert_eq!(log.run().of("counter.saturated"), ["0 a/1 raised info confirmed"]);
}
