//! `dmesg`, `journalctl` (short, short-iso, short-monotonic, json) and syslog: AER, what adapters say of their health, links
//! that go and come, and lines that were suppressed.
//!
//! What no rule should judge becomes a note: a warning about slot power that healthy machines have too, commands that
//! failed after a fault, leaks that follow it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::aer_log::{AerLog, function};
use super::log_counts::LogCounts;
use super::log_line::{LogLine, Stamp, parse};
use super::machine::Netdev;
use super::moment::{Clock, Moment};
use super::section::{Claim, Format, Section};
use super::sink::Sink;
use crate::observation::{Async, Body, Health, LinkLayer, Lost, Port};

/// Whether a line is of a log.
pub(super) fn claim(line: &str) -> Claim {
    if parse(line).is_some() { Claim::Begins(Format::KernelLog) } else { Claim::No }
}

/// Reads a log.
pub(super) fn read(section: &Section<'_>, sink: &mut Sink<'_>) {
    let mut reader = Reader { aer: AerLog::default(), counts: LogCounts::default(), fatal: BTreeMap::new() };
    let (mut undated, mut last) = (0u64, None);
    if let Some(Value::Array(list)) = &section.json {
        for entry in list {
            journal(entry, &mut reader, sink);
        }
    }
    for line in section.lines.iter().filter_map(|line| parse(line)) {
        let Some(clock) = clock(&line, sink) else {
            undated += 1;
            continue;
        };
        last = Some(clock);
        if let Some(host) = line.host {
            sink.machine.hosts.insert(host.to_owned());
        }
        reader.message(clock, line.program.unwrap_or("kernel"), line.message, sink);
    }
    let Reader { aer, counts, .. } = reader;
    // What is said of the log as a whole is said at its end.
    if let Some(last) = last {
        sink.moment = Moment::at(last);
    }
    aer.finish(sink);
    counts.finish(sink);
    if undated > 0 {
        sink.note(format!("{undated} lines have a date without a year, and nothing says when the file was written"));
    }
}

/// The time of a line; ties the clocks where it has two.
fn clock(line: &LogLine<'_>, sink: &mut Sink<'_>) -> Option<Clock> {
    let wall = match line.stamp {
        Stamp::Uptime(t) => {
            if let Some(set) = line.message.split_once("setting system clock to ").and_then(|(_, s)| set_clock(s)) {
                sink.tie.get_or_insert(set.saturating_sub_unsigned(t));
            }
            return Some(Clock::Uptime(t));
        }
        Stamp::Wall(t) => t,
        Stamp::NoYear(date) => {
            sink.year_taken = true;
            date.before(sink.taken?)?
        }
    };
    if let Some(up) = line.uptime {
        sink.tie = Some(wall.saturating_sub_unsigned(up));
        return Some(Clock::Uptime(up));
    }
    Some(Clock::Wall(wall))
}

/// `2026-01-01T02:00:00 UTC (1767232800)`: the seconds since 1970 in parentheses.
fn set_clock(said: &str) -> Option<i64> {
    let (_, inside) = said.split_once('(')?;
    let seconds: i64 = inside.split(')').next()?.parse().ok()?;
    seconds.checked_mul(1_000_000_000).filter(|t| *t > 0)
}

/// One entry of `journalctl -o json`: a date, and for the kernel the time since boot too.
fn journal(entry: &Value, reader: &mut Reader, sink: &mut Sink<'_>) {
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    let micros = |name: &str| text(name).and_then(|t| t.parse::<i64>().ok()).and_then(|t| t.checked_mul(1000));
    let (Some(wall), Some(message)) = (micros("__REALTIME_TIMESTAMP"), text("MESSAGE")) else { return };
    if let Some(up) = micros("__MONOTONIC_TIMESTAMP").filter(|up| *up >= 0) {
        // The last boot's tie: entries of earlier boots keep their dates.
        sink.tie = Some(wall.saturating_sub(up));
    }
    if let Some(host) = text("_HOSTNAME") {
        sink.machine.hosts.insert(host.to_owned());
    }
    let program = text("SYSLOG_IDENTIFIER").or_else(|| text("_COMM")).unwrap_or("kernel");
    reader.message(Clock::Wall(wall), program, message, sink);
}

struct Reader {
    aer: AerLog,
    counts: LogCounts,
    /// Adapters whose firmware failed, and when: what follows is a consequence.
    fatal: BTreeMap<String, Clock>,
}

impl Reader {
    fn message(&mut self, clock: Clock, program: &str, message: &str, sink: &mut Sink<'_>) {
        if suppressed(clock, message, sink) || self.aer.take(clock, message, sink) {
            return;
        }
        if program != "kernel" {
            if let Some((netdev, up)) = carrier(program, message) {
                self.link(clock, netdev, None, up, sink);
            }
            return;
        }
        if let Some((driver, pci, said)) = function(message) {
            self.adapter(clock, driver, pci, said, sink);
        } else if message.contains("RESTRACK detected leak") {
            let of = message.strip_prefix("infiniband ").and_then(|rest| rest.split(':').next()).unwrap_or("a device");
            sink.note_at(
                clock,
                format!("{of}: resources leaked when the device went: a consequence, no fault of its own"),
            );
        } else if let Some((netdev, up)) = link_line(message) {
            self.link(clock, netdev, None, up, sink);
        }
    }

    /// What an adapter's driver says.
    fn adapter(&mut self, clock: Clock, driver: &str, pci: &str, said: &str, sink: &mut Sink<'_>) {
        let said = without_place(said);
        let slot = pci.rsplit_once('.').map_or(pci, |(slot, _)| slot);
        if said.contains("Detected insufficient power on the PCIe slot") {
            let watts = said.split_once('(').and_then(|(_, w)| w.split(')').next()).unwrap_or("unknown");
            sink.note_at(
                clock,
                format!(
                    "{slot}: the adapter says its slot promises little power ({watts}); healthy machines say so too"
                ),
            );
            return;
        }
        if let Some(reporter) = health(said) {
            self.fatal.entry(slot.to_owned()).or_insert(clock);
            sink.machine.introduce(pci, driver);
            let message = said.trim_end_matches(':').to_owned();
            let body = Health {
                pci: Some(pci.to_owned().into()),
                reporter: reporter.into(),
                message: message.into(),
                device: None,
            };
            sink.say_at(clock, Body::Health(body));
        } else if let Some(name) = module_fault(said) {
            sink.machine.introduce(pci, driver);
            let device = sink.machine.device_of(pci).unwrap_or(pci).to_owned();
            let port = sink.machine.only_port(&device).unwrap_or(1);
            self.counts.add(clock, &device, port, name, 1);
            sink.note_at(clock, format!("{pci}: {said}"));
        } else if said.contains("failed, status") || said.contains("timeout. Will cause a leak of a command resource") {
            let what = said.split([' ', '(']).next().unwrap_or("a command");
            let why = if self.fatal.contains_key(slot) { ": a consequence of the adapter's failure" } else { "" };
            sink.note_at(clock, format!("{pci}: {what} failed{why}"));
        } else if said.starts_with("Port module event") && !said.contains("plugged") {
            sink.note_at(clock, format!("{pci}: {said}"));
        } else if let Some((netdev, up)) = link_line(said) {
            let shown = sink.machine.device_of(pci).map(str::to_owned);
            // An mlx5 function has one port, and RDMA; of other drivers' functions nobody knows.
            let own = || (driver == "mlx5_core" && !sink.machine.lists_ports()).then(|| (pci.to_owned(), 1));
            let of_device = match shown {
                Some(device) => sink.machine.only_port(&device).map(|port| (device, port)),
                None => own(),
            };
            if of_device.as_ref().is_some_and(|(device, _)| device == pci) {
                sink.machine.introduce(pci, driver);
            }
            self.link(clock, netdev, of_device, up, sink);
        }
    }

    /// A link went or came.
    fn link(&mut self, clock: Clock, netdev: &str, of: Option<(String, u32)>, up: bool, sink: &mut Sink<'_>) {
        let (device, port) = match (of, sink.machine.netdev(netdev)) {
            (Some((device, port)), _) | (None, Netdev::Port(device, port)) => (device, port),
            (None, Netdev::NoRdma) => return,
            // IP over InfiniBand by its name, which the kernel and udev give to nothing else. An Ethernet device may be
            // RDMA or not.
            (None, Netdev::Unknown) if netdev.starts_with("ib") => {
                let of = Port { device: netdev.to_owned().into(), port: 1, ..Port::default() };
                if !self.counts.knows(netdev, 1) {
                    let netdevs = vec![netdev.to_owned().into()];
                    sink.say_at(clock, Body::Port(Port { link_layer: LinkLayer::InfiniBand, netdevs, ..of }));
                }
                (netdev.to_owned(), 1)
            }
            (None, Netdev::Unknown) => {
                let word = if up { "came up" } else { "went down" };
                sink.note_at(clock, format!("{netdev}: link {word}; nothing says whether it is an RDMA port"));
                return;
            }
        };
        self.counts.add(clock, &device, port, "lost_carrier", u64::from(!up));
        let event = if up { "PORT_ACTIVE" } else { "PORT_ERR" };
        let body = Async { device: device.into(), port: Some(port), qpn: None, event: event.into() };
        sink.say_at(clock, Body::Async(body));
    }
}

/// Lines the kernel or the journal did not write.
fn suppressed(clock: Clock, message: &str, sink: &mut Sink<'_>) -> bool {
    let n = [" callbacks suppressed", " messages suppressed", " kernel messages"].iter().find_map(|end| {
        let (before, _) = message.split_once(end)?;
        before.rsplit([' ', ':']).next()?.parse::<u64>().ok()
    });
    let Some(n) = n.filter(|_| !message.contains(" kernel messages") || message.contains("issed ")) else {
        return false;
    };
    sink.say_at(clock, Body::Lost(Lost { source: "kernel log".into(), n }));
    true
}

/// `poll_health:795:(pid 0): Fatal error` without the place in the driver's source.
fn without_place(said: &str) -> &str {
    let mut parts = said.splitn(3, ':');
    let (Some(_), Some(line), Some(rest)) = (parts.next(), parts.next(), parts.next()) else { return said };
    let place = !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()) && rest.starts_with("(pid ");
    if place { rest.split_once("): ").map_or(said, |(_, rest)| rest) } else { said }
}

/// The health reporter whose word this is (mlx5's `health.c`); lines that only add numbers to it are none.
fn health(said: &str) -> Option<&'static str> {
    let starts = |start: &str| said.starts_with(start);
    if starts("Fatal error ") || said.contains("PCI slot is unavailable") {
        Some("fw_fatal")
    } else if starts("device's health compromised") {
        Some("fw")
    } else if starts("Health issue observed") {
        // Severity 5 and above are notices.
        let severity = said.split_once("severity(").and_then(|(_, rest)| rest.split(')').next()?.parse::<u32>().ok());
        severity.is_none_or(|severity| severity < 5).then_some("fw")
    } else {
        None
    }
}

/// The counter of a module's fault that mlx5 counts under the same event.
fn module_fault(said: &str) -> Option<&'static str> {
    let rest = said.strip_prefix("Port module event")?;
    let rest = rest.to_ascii_lowercase();
    if rest.contains("bus stuck") {
        Some("module_bus_stuck")
    } else if rest.contains("high temperature") {
        Some("module_high_temp")
    } else if rest.contains("shorted") || rest.contains("bad cable") {
        Some("module_bad_shorted")
    } else if rest.contains("unplugged") {
        Some("module_unplug")
    } else {
        None
    }
}

/// `eth0: Link up`, `eth0: NIC Link is Down`: the network device, and whether it is up.
fn link_line(said: &str) -> Option<(&str, bool)> {
    let (netdev, rest) = said.split_once(": ")?;
    let rest = rest.to_ascii_lowercase();
    let rest = rest.strip_prefix("nic ").unwrap_or(&rest);
    let rest = rest.strip_prefix("link ")?;
    let word = rest.strip_prefix("is ").unwrap_or(rest);
    let up = match word.split([',', ' ', '.']).next()? {
        "up" => true,
        "down" => false,
        _ => return None,
    };
    (!netdev.is_empty() && !netdev.contains([' ', '(']) && netdev.len() < 16).then_some((netdev, up))
}

/// What the daemons that set up networks say of a carrier.
fn carrier<'t>(program: &str, message: &'t str) -> Option<(&'t str, bool)> {
    if program.starts_with("systemd-networkd") {
        let (netdev, said) = message.split_once(": ")?;
        return match said.trim() {
            "Lost carrier" => Some((netdev, false)),
            "Gained carrier" => Some((netdev, true)),
            _ => None,
        };
    }
    if program != "NetworkManager" {
        return None;
    }
    let (_, rest) = message.split_once("device (")?;
    let (netdev, said) = rest.split_once("): carrier: link ")?;
    match said.split_whitespace().next()? {
        "connected" => Some((netdev, true)),
        "disconnected" => Some((netdev, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;

    fn read(text: &str) -> super::super::TextRead {
        read_text("dmesg.txt", text)
    }

    #[test]
    fn a_firmware_failure_is_health_and_what_follows_it_is_a_note() {
        let text = "[  448.455025] mlx5_core 0000:01:00.0: poll_health:795:(pid 0): Fatal error 1 detected\n\
                    [  449.001001] mlx5_core 0000:01:00.2: mlx5_cmd_check:810:(pid 412): DESTROY_QP(0x501) op_mod(0x0) failed, status bad resource state(0x9), syndrome (0x25b161)\n\
                    [  449.101001] infiniband mlx5_2: BUG: RESTRACK detected leak of resources\n";
        let read = read(text);
        let Body::Health(health) = &read.found[0].body else { panic!("{read:?}") };
        assert_eq!((health.pci.as_deref(), &*health.reporter), (Some("0000:01:00.0"), "fw_fatal"));
        assert_eq!(&*health.message, "Fatal error 1 detected");
        assert!(read.notes[0].contains("0000:01:00.2: DESTROY_QP failed: a consequence"), "{:?}", read.notes);
        assert!(read.notes[1].starts_with("mlx5_2: resources leaked"));
        assert!(!read.found.iter().any(|found| matches!(found.body, Body::Qp(_))));
    }

    #[test]
    fn little_slot_power_is_one_note_an_adapter_and_no_fault() {
        let line = |f: u8| {
            format!(
                "[    3.1] mlx5_core 0000:01:00.{f}: mlx5_pcie_event:326:(pid 311): Detected insufficient power on the PCIe slot (27W).\n"
            )
        };
        let read = read(&(line(0) + &line(1)));
        assert_eq!(read.notes.len(), 1);
        assert!(
            read.notes[0].contains("0000:01:00: ") && read.notes[0].contains("27W") && read.notes[0].ends_with("(×2)")
        );
        assert_eq!(read.found.len(), 1);
    }

    #[test]
    fn a_link_that_goes_is_an_event_of_its_port_and_counted() {
        let text = "[1.0] x\n[2.0] mlx5_core 0000:01:00.0 eth0: Link down\n[3.0] mlx5_core 0000:01:00.0 eth0: Link up\n\
                    [4.0] ice 0000:02:00.0 eth5: NIC Link is Down\n";
        let read = read(text);
        let events: Vec<_> = read
            .found
            .iter()
            .filter_map(
                |f| if let Body::Async(a) = &f.body { Some((f.moment.clock, &*a.device, &*a.event)) } else { None },
            )
            .collect();
        assert_eq!(
            events,
            [
                (Clock::Uptime(2_000_000_000), "0000:01:00.0", "PORT_ERR"),
                (Clock::Uptime(3_000_000_000), "0000:01:00.0", "PORT_ACTIVE")
            ]
        );
        assert!(read.notes.iter().any(|note| note.contains("eth5: link went down; nothing says")), "{:?}", read.notes);
        let counted = read
            .found
            .iter()
            .filter_map(|f| if let Body::Counters(c) = &f.body { c.values.get("lost_carrier") } else { None });
        assert_eq!(counted.copied().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn suppressed_lines_are_lost_observations() {
        let text = "[1.0] aer_print_error: 12 callbacks suppressed\n[2.0] x\n";
        let Body::Lost(lost) = &read(text).found[0].body.clone() else { panic!("lost") };
        assert_eq!(lost.n, 12);
        let missed = read("Jan  1 00:00:00 h systemd-journald[1]: Missed 7 kernel messages\n");
        assert!(missed.notes[0].contains("without a year"), "no reference: {missed:?}");
    }

    #[test]
    fn health_of_little_weight_is_none_and_a_module_fault_is_counted() {
        assert_eq!(health("Health issue observed, firmware internal error, severity(3) ERROR:"), Some("fw"));
        assert_eq!(health("Health issue observed, x, severity(6) INFO:"), None);
        assert_eq!(health("device's health compromised - reached miss count"), Some("fw"));
        assert_eq!(
            module_fault("Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)"),
            Some("module_bus_stuck")
        );
        assert_eq!(module_fault("Port module event: module 0, Cable plugged"), None);
        assert_eq!(module_fault("Port module event: module 1, Cable unplugged"), Some("module_unplug"));
    }

    #[test]
    fn a_journal_in_json_ties_the_clocks() {
        let text = "{\"__REALTIME_TIMESTAMP\":\"1000000\",\"__MONOTONIC_TIMESTAMP\":\"400000\",\"_HOSTNAME\":\"n\",\
                    \"SYSLOG_IDENTIFIER\":\"kernel\",\"MESSAGE\":\"mlx5_core 0000:01:00.0: Fatal error 1 detected\"}\n";
        let read = read(text);
        assert_eq!(read.tie, Some(600_000_000));
        assert_eq!(read.found[0].moment.clock, Clock::Wall(1_000_000_000));
    }
}
