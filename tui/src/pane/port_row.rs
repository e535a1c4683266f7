//! A port in one row of the overview: the columns, in which order they give way, and what stands in them.

use collector::finding::Severity;
use collector::inventory::{DeviceId, DeviceRecord, PortRecord, Role, World};
use collector::observation::{LinkLayer, Nanos, PortState, Seeing};
use collector::timeline::counter_table::{Meaning, family};
use collector::timeline::{Growth, Ring};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::Scene;
use crate::health::Health;
use crate::lane;
use crate::number::{self, UNKNOWN};
use crate::table::{self, Column};

/// RETR, ERR and AER are counted over this time, ns.
const RECENT_NS: u64 = 60_000_000_000;
/// Windows of the sparkline.
const SPARK_WINDOWS: usize = 60;
/// Pauses below a hundredth of the time, µs a second, and less than one retransmission a second are everyday life.
const LEAST_PAUSE_US: f64 = 10_000.0;
const LEAST_RESENT: u64 = 60;
/// Cells of the bars beside RX NOW and TX NOW.
const BAR: u16 = 5;
/// Cells of the sparkline.
const SPARK: u16 = 10;
/// Counters that stand for something broken on the link or given up by the transport. Flushes (consequences) and the
/// application's own errors are not among them.
pub(super) const ERRORS: [Meaning; 14] = [
    Meaning::SymbolError,
    Meaning::LinkErrorRecovery,
    Meaning::LocalLinkIntegrity,
    Meaning::BufferOverrun,
    Meaning::RcvErrors,
    Meaning::RemotePhysicalErrors,
    Meaning::CrcErrors,
    Meaning::IcrcErrors,
    Meaning::PostFecErrors,
    Meaning::ModuleFaults,
    Meaning::PcieErrors,
    Meaning::RetryExceeded,
    Meaning::RnrRetryExceeded,
    Meaning::OperationErrors,
];

/// Signs that something had to be sent again, for drivers without a counter of retransmissions.
const RESENT: [Meaning; 4] =
    [Meaning::SequenceNak, Meaning::ImpliedNak, Meaning::AckTimeout, Meaning::AdaptiveRetransmissions];

/// What a column that counts signs of trouble adds to its place among those that go when it says something: it stays as
/// long as one of them that is nothing but zeros does.
const TELLING: u8 = 81;

/// The columns; the order in which they go is sparkline, P, RETR, PAUSE, NETDEV, bars, LINK, QP, CNP, RATE,
/// AER, CE, ERR. Of the last six that count, those that counted something in the last minute go after the others.
pub(crate) fn columns(world: &World) -> Vec<Column> {
    let widest = |texts: &mut dyn Iterator<Item = usize>, least: usize, most: usize| {
        u16::try_from(texts.fold(least, usize::max).min(most)).unwrap_or(16)
    };
    let device = widest(&mut world.present().map(|(_, d)| d.name.chars().count() + 2), 8, 16);
    let netdev = widest(&mut world.ports.iter().map(|p| netdev(p).chars().count()), 6, 12);
    let telling = telling(world);
    // Where a device has one port its number says nothing.
    let several = world.ports.iter().any(|port| port.key.port > 1);
    vec![
        table::text("DEVICE", device, 255),
        table::number("P", 1, if several { 235 } else { 15 }),
        table::text("NETDEV", netdev, 30),
        table::text("LINK", 6, 40),
        table::text("STATE", 6, 240),
        table::number("RATE", 4, 60),
        table::number("RX NOW", 6, 91),
        table::text("", BAR, 36),
        table::number("TX NOW", 6, 90),
        table::text("", BAR, 35),
        table::text("60 s", SPARK, 10),
        table::number("CE/s", 5, if telling[0] { TELLING + 4 } else { 70 }),
        table::number("CNP/s", 5, if telling[1] { 79 } else { 55 }),
        table::number("PAUSE", 5, if telling[2] { TELLING + 3 } else { 25 }),
        table::number("RETR", 5, if telling[3] { TELLING } else { 20 }),
        table::number("ERR", 5, if telling[4] { TELLING + 5 } else { 80 }),
        table::number("AER", 5, if telling[5] { TELLING + 2 } else { 65 }),
        table::number("QP", 5, 50),
        table::text("HEALTH", 14, 255).growing(),
    ]
}

/// Whether CE, CNP, PAUSE, RETR, ERR and AER said something on any port in the last minute. Not only now: columns that come
/// and go with every burst cannot be read.
fn telling(world: &World) -> [bool; 6] {
    let from = world.now.saturating_sub(RECENT_NS);
    let mut telling = [false; 6];
    for (_, port) in world.present_ports() {
        let above = |meaning: &Meaning, least: f64| {
            let values = port.rates.get(meaning).into_iter().flat_map(Ring::newest_first).take(SPARK_WINDOWS);
            values.flatten().any(|value| value > least)
        };
        let grew = |growth: Option<Growth>| growth.is_some_and(|growth| growth.sum > 0);
        telling[0] |= above(&Meaning::EcnMarkedRx, 0.0);
        telling[1] |= above(&Meaning::CnpSent, 0.0) || above(&Meaning::CnpHandled, 0.0);
        telling[2] |= above(&Meaning::RxPauseDuration, LEAST_PAUSE_US);
        telling[3] |= resent(port, from).is_some_and(|growth| growth.sum >= LEAST_RESENT);
        telling[4] |= grew(together(port, &ERRORS, from));
        telling[5] |= aer(world, port, from).is_some_and(|n| n > 0);
    }
    telling
}

fn netdev(port: &PortRecord) -> String {
    let mut text: String = port.netdevs.iter().map(|n| &**n).collect::<Vec<_>>().join(",");
    if let Some(bond) = &port.bond {
        text = if text.is_empty() { bond.to_string() } else { format!("{text}@{bond}") };
    }
    if text.is_empty() { UNKNOWN.to_owned() } else { text }
}

/// The cells of parts of a device folded into one row.
pub(crate) fn fold_cells<'a>(scene: Scene<'a>, parent: Option<DeviceId>, ports: &[usize]) -> Vec<Line<'a>> {
    let theme = scene.theme;
    let active = ports.iter().filter(|port| scene.world.ports[**port].state == PortState::Active).count();
    let mut cells = vec![Line::raw(""); 19];
    let lead = if parent.is_some() { "└" } else { "" };
    cells[0] = Line::styled(format!("{lead}{} VF", ports.len()), theme.dim);
    let state = if active == ports.len() { "ACTIVE".to_owned() } else { format!("{active} up") };
    cells[4] = Line::styled(state, theme.dim);
    let qps: u64 = ports.iter().map(|port| u64::from(scene.world.ports[*port].qps)).sum();
    cells[17] = Line::styled(number::known_count(qps_known(scene.world).then_some(qps)), theme.dim);
    cells[18] = Line::styled("folded (Enter)", theme.dim);
    cells
}

/// The cells of a port, in the order of [`columns`].
pub(crate) fn port_cells<'a>(
    scene: Scene<'a>,
    device: &DeviceRecord,
    port: &PortRecord,
    health: &Health,
    inner: bool,
) -> Vec<Line<'a>> {
    let (world, theme) = (&**scene.world, scene.theme);
    // A broken port is a red line, not a red word at its end.
    let base = match health.severity {
        Some(Severity::Critical) => theme.critical,
        _ if inner => theme.dim,
        _ => theme.text,
    };
    let up = port.state == PortState::Active;
    let from = world.now.saturating_sub(RECENT_NS);
    let now = port.throughput();
    let bytes = |gbps: Option<f64>| gbps.map(|g| g * 1e9 / 8.0);
    let share = |gbps: Option<f64>| gbps.zip(port.rate_gbps.filter(|rate| up && *rate > 0.0)).map(|(g, rate)| g / rate);
    let bar = |gbps: Option<f64>| share(gbps).map_or(String::new(), |share| lane::bar(share, usize::from(BAR)));
    let rate = |meaning| port.reading(meaning).and_then(|reading| reading.rate);
    let cnp = added(rate(Meaning::CnpSent), rate(Meaning::CnpHandled));
    let pause = rate(Meaning::RxPauseDuration).map(|us_per_s| us_per_s / 1e6);
    let loud = |text: String, style: Style| {
        let quiet = text == "0" || text == UNKNOWN || text == "0.0%";
        Line::styled(text, if quiet { theme.dim } else { style })
    };
    let state_style = match port.state {
        PortState::Active => theme.good,
        PortState::Down => health.severity.map_or(theme.warning, |severity| theme.severity(severity)),
        _ => theme.warning,
    };
    let name = if inner { format!("└{}", device.name) } else { device.name.to_string() };
    let name_style = health.severity.map_or(base, |severity| theme.severity(severity));
    let link_rate = if up { number::link_rate(port.rate_gbps) } else { UNKNOWN.to_owned() };
    let qps = number::known_count(qps_known(world).then_some(u64::from(port.qps)));
    vec![
        Line::styled(name, name_style),
        Line::styled(port.key.port.to_string(), base),
        Line::styled(netdev(port), base),
        Line::styled(link(world, device, port), base),
        Line::styled(port.state.name(), state_style),
        Line::styled(link_rate, base),
        Line::styled(number::bits(bytes(now.rx_gbps)), base),
        Line::styled(bar(now.rx_gbps), theme.receive),
        Line::styled(number::bits(bytes(now.tx_gbps)), base),
        Line::styled(bar(now.tx_gbps), theme.send),
        Line::styled(spark(port), theme.dim),
        loud(number::per_second(rate(Meaning::EcnMarkedRx)), theme.strong),
        loud(number::per_second(cnp), theme.strong),
        loud(number::percent(pause), theme.strong),
        loud(number::growth(resent(port, from)), theme.strong),
        loud(errors_text(port, from), theme.critical),
        loud(number::known_count(aer(world, port, from)), theme.warning),
        Line::styled(qps, base),
        health_cell(scene, device, health),
    ]
}

fn health_cell<'a>(scene: Scene<'a>, device: &DeviceRecord, health: &Health) -> Line<'a> {
    let theme = scene.theme;
    let style = match health.severity {
        Some(severity) => theme.severity_word(severity),
        None if health.well => theme.good,
        None => theme.dim,
    };
    let mark = if device.vf { " vf" } else { "" };
    Line::from(vec![Span::styled(health.word.clone(), style), Span::styled(mark, theme.dim)])
}

fn added(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (one, other) => one.or(other),
    }
}

/// What carries RDMA here, in a word.
pub(crate) fn link(world: &World, device: &DeviceRecord, port: &PortRecord) -> String {
    if matches!(world.role(port.key.device), Some(Role::Management)) {
        return "mgmt".to_owned();
    }
    let driver = device.driver.as_deref().map_or("", family);
    match port.link_layer {
        LinkLayer::InfiniBand => {
            let lane = port.rate_gbps.zip(port.lanes).map(|(rate, lanes)| rate / f64::from(lanes.max(1)));
            // Rounded signalling rates per lane, as the InfiniBand Trade Association names them.
            let name = lane.and_then(|gbps| {
                [(150.0, "XDR"), (75.0, "NDR"), (40.0, "HDR"), (20.0, "EDR"), (13.0, "FDR"), (9.0, "QDR")]
                    .into_iter()
                    .find(|(least, _)| gbps >= *least)
            });
            name.map_or_else(|| "IB".to_owned(), |(_, name)| format!("IB {name}"))
        }
        LinkLayer::Ethernet => {
            let kinds = || port.gids.iter().filter_map(|(_, _, kind)| kind.as_deref());
            if matches!(driver, "siw" | "cxgb4" | "iw_cxgb4" | "qedr_iw") {
                "iWARP".to_owned()
            } else if kinds().any(|kind| kind.contains("v2")) {
                "RoCEv2".to_owned()
            } else if kinds().any(|kind| kind.contains("v1")) {
                "RoCEv1".to_owned()
            } else {
                "Eth".to_owned()
            }
        }
        LinkLayer::Unspecified if driver == "efa" => "EFA".to_owned(),
        LinkLayer::Unspecified => UNKNOWN.to_owned(),
    }
}

/// The busier direction over the last minute, the link's rate being full height.
fn spark(port: &PortRecord) -> String {
    let cells = usize::from(SPARK);
    let values = |meaning| port.rates.get(&meaning).map(|ring: &Ring| ring.resampled(SPARK_WINDOWS, cells));
    let merged = match (values(Meaning::RxBytes), values(Meaning::TxBytes)) {
        (Some(rx), Some(tx)) => {
            rx.into_iter().zip(tx).map(|(rx, tx)| rx.zip(tx).map(|(rx, tx)| rx.max(tx)).or(rx).or(tx)).collect()
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return UNKNOWN.to_owned(),
    };
    let top = port.rate_gbps.filter(|_| port.state == PortState::Active).map(|gbps| gbps * 1e9 / 8.0);
    let seen = merged.iter().flatten().copied().fold(0.0, f64::max);
    lane::sparkline(&merged, top.unwrap_or(seen).max(seen))
}

/// Those of the meanings of which it is known what the port's counters count.
pub(super) fn understood(port: &PortRecord, meanings: &[Meaning]) -> impl Iterator<Item = Meaning> {
    meanings.iter().copied().filter(|meaning| port.is_understood(*meaning))
}

/// Growth of several meanings together; `None` when none of them can be told.
fn together(port: &PortRecord, meanings: &[Meaning], from: Nanos) -> Option<Growth> {
    understood(port, meanings)
        .filter_map(|meaning| port.growth(meaning, from))
        .reduce(|a, b| Growth { sum: a.sum.saturating_add(b.sum), broken: a.broken || b.broken })
}

fn resent(port: &PortRecord, from: Nanos) -> Option<Growth> {
    port.growth(Meaning::Retransmissions, from).or_else(|| together(port, &RESENT, from))
}

fn errors_text(port: &PortRecord, from: Nanos) -> String {
    let saturated = |meaning| port.reading(meaning).is_some_and(|reading| reading.saturated);
    let saturated = understood(port, &ERRORS).any(saturated);
    let growth = together(port, &ERRORS, from);
    number::growth(growth.map(|growth| Growth { broken: growth.broken || saturated, ..growth }))
}

/// AER errors after `from` on the port's function and the path above it; `None` when nobody counts them: the totals were read
/// once, or stay 0 because the firmware takes the errors.
fn aer(world: &World, port: &PortRecord, from: Nanos) -> Option<u64> {
    let function = world.function_of(port)?;
    let own = world.pcie.get(function)?;
    let above = own.path.iter().filter(|pci| *pci != function).filter_map(|pci| world.pcie.get(pci));
    let mut known = false;
    let mut sum = 0u64;
    for record in std::iter::once(own).chain(above) {
        let single = |name: &str| !name.starts_with("TOTAL_") && !name.contains("total_err");
        let counted = record.growth.since(from).filter(|(_, g)| single(&g.1)).map(|(_, g)| g.2);
        let counted = counted.fold(0, u64::saturating_add);
        let reported = record.events.since(from).count() as u64;
        known |=
            reported > 0 || record.counts().is_some_and(|totals| totals.iter().any(|total| total.start < record.t));
        // The same errors by two ways: never added.
        sum = sum.saturating_add(counted.max(reported));
    }
    known.then_some(sum)
}

/// Somebody looks for QPs here, so that none seen means none there. They are counted when a window ends.
fn qps_known(world: &World) -> bool {
    if world.windows == 0 {
        return false;
    }
    let looks = |name: &str| ["netlink", "nldev", "probe", "ebpf"].iter().any(|part| name.contains(part));
    !world.qps.is_empty()
        || world.qps.gone().next().is_some()
        || world.sources.iter().any(|(name, source)| looks(name) && source.state == Seeing::Ok)
}

#[cfg(test)]
mod tests {
    use collector::engine::Engine;
    use collector::observation::recording::Header;
    use collector::observation::{
        AerTotals, Body, CounterSource, Counters, Device, Observation, Pcie, Port, SourceState,
    };
    use collector::rule::Settings;

    use super::*;

    /// A port on a PCI function whose totals were read so many times.
    fn counted(aer_owned: Option<bool>, readings: u64) -> Engine {
        let mut engine = Engine::new(Header::new(), Settings::default());
        let pci = "0000:3b:00.0";
        let device = Device { device: "mlx5_0".into(), pci: Some(pci.into()), ..Device::default() };
        engine.take(&Observation { t: 1, body: Body::Device(device) });
        let port = Port { device: "mlx5_0".into(), port: 1, state: PortState::Active, ..Port::default() };
        engine.take(&Observation { t: 1, body: Body::Port(port) });
        for second in 1..=readings {
            let correctable = [("Rollover".into(), 0)].into_iter().collect();
            let aer = AerTotals { correctable, ..AerTotals::default() };
            let function = Pcie { pci: pci.into(), aer_owned, aer: Some(aer), ..Pcie::default() };
            engine.take(&Observation { t: second * 1_000_000_000, body: Body::Pcie(function) });
        }
        engine
    }

    #[test]
    fn no_aer_errors_are_zero_only_where_totals_were_read_twice_and_are_the_systems_own() {
        for (owned, times, n) in
            [(Some(true), 2, Some(0)), (None, 2, Some(0)), (Some(true), 1, None), (Some(false), 2, None)]
        {
            let engine = counted(owned, times);
            assert_eq!(aer(engine.world(), &engine.world().ports[0], 0), n, "{owned:?}, read {times} times");
        }
    }

    #[test]
    fn qps_are_unknown_until_they_were_counted() {
        let mut engine = counted(None, 0);
        let seeing = || SourceState { source: "nldev".into(), state: Seeing::Ok, ..SourceState::default() };
        engine.take(&Observation { t: 2, body: Body::Source(seeing()) });
        assert!(engine.world().windows == 0 && !qps_known(engine.world()));
        engine.take(&Observation { t: 9_000_000_000, body: Body::Source(seeing()) });
        assert!(qps_known(engine.world()), "no QP is there");
    }

    #[test]
    fn errors_of_an_infiniband_link_are_errors_where_there_is_one_and_unknown_on_roce() {
        for (link_layer, errors) in [(LinkLayer::InfiniBand, "100"), (LinkLayer::Ethernet, UNKNOWN)] {
            let mut engine = Engine::new(Header::new(), Settings::default());
            let device = "mlx5_0".into();
            engine.take(&Observation { t: 1, body: Body::Device(Device { device, ..Device::default() }) });
            for (second, symbols) in [(1, 5), (2, 105)] {
                let t = second * 1_000_000_000;
                let port =
                    Port { device: "mlx5_0".into(), port: 1, state: PortState::Active, link_layer, ..Port::default() };
                engine.take(&Observation { t, body: Body::Port(port) });
                let counters = Counters {
                    device: "mlx5_0".into(),
                    port: Some(1),
                    source: CounterSource::Counters,
                    values: [("symbol_error".into(), symbols), ("link_error_recovery".into(), 0)].into_iter().collect(),
                    ..Counters::default()
                };
                engine.take(&Observation { t, body: Body::Counters(counters) });
            }
            assert_eq!(errors_text(&engine.world().ports[0], 0), errors, "{link_layer:?}");
        }
    }
}
