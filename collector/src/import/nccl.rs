//! The log of NCCL (and of what logs like it): completions with an error, asynchronous events, QPs that could not be set up.
//!
//! | version | line |
//! |---|---|
//! | old | `NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129` |
//! | 2.1x | `NET/IB : Got completion from peer 192.0.2.13<36315> with status=12 opcode=32698 len=32696 vendor err 129 (Send) … hca mlx5_2` |
//! | newest | `NET/IB: Got completion from peer … with status=IBV_WC_RETRY_EXC_ERR(12) opcode=…(…) vendor_err=129 … hca mlx5_2` |
//!
//! Opcode and length of a failed completion are not defined (`ibv_poll_cq(3)`) and are not read. A flush follows another
//! error and is counted as such. A log of several machines names devices `HOST:DEVICE`, but for the machine whose other
//! logs lie beside it. Where a line names no device, the device is `HOST (HCA not named)`.

use std::collections::{BTreeMap, BTreeSet};

use super::log_counts::LogCounts;
use super::moment::Clock;
use super::section::{Claim, Format, Section};
use super::sink::Sink;
use super::{calendar, log_line};
use crate::observation::{Async, Body};

/// What an error completion says (`ibv_poll_cq(3)`): its number, its name as counters have it, and whose doing it is.
const STATUS: [(u32, &str, &str); 14] = [
    (1, "LOC_LEN_ERR", "a message longer than its buffer: the application's doing"),
    (2, "LOC_QP_OP_ERR", "an operation the QP cannot do: the application's doing"),
    (4, "LOC_PROT_ERR", "access outside a memory region of its own: the application's doing"),
    (5, "WR_FLUSH_ERR", "flushed after another error: a consequence, never a cause"),
    (6, "MW_BIND_ERR", "a memory window could not be bound: the application's doing"),
    (7, "BAD_RESP_ERR", "the peer answered with an unexpected operation"),
    (8, "LOC_ACCESS_ERR", "a peer wrote where it may not: the application's doing"),
    (9, "REM_INV_REQ_ERR", "the peer found the request invalid: the application's doing, not the link's"),
    (10, "REM_ACCESS_ERR", "the peer does not allow the access: the application's doing, not the link's"),
    (11, "REM_OP_ERR", "the peer could not complete the operation: its application or adapter"),
    (12, "RETRY_EXC_ERR", "no answer after all retries: the peer, or the way to it, is gone"),
    (13, "RNR_RETRY_EXC_ERR", "the peer posted no receive in time: its application is late"),
    (20, "FATAL_ERR", "the adapter failed"),
    (21, "RESP_TIMEOUT_ERR", "the peer did not answer in time"),
];

/// Asynchronous events as `ibv_event_type_str` prints them, and their names without `IBV_EVENT_`.
const EVENTS: [(&str, &str); 15] = [
    ("local catastrophic error", "DEVICE_FATAL"),
    ("local work queue catastrophic error", "QP_FATAL"),
    ("invalid request local work queue error", "QP_REQ_ERR"),
    ("local access violation work queue error", "QP_ACCESS_ERR"),
    ("port error", "PORT_ERR"),
    ("port active", "PORT_ACTIVE"),
    ("CQ error", "CQ_ERR"),
    ("path migration failed", "PATH_MIG_ERR"),
    ("LID change", "LID_CHANGE"),
    ("P_Key change", "PKEY_CHANGE"),
    ("SM change", "SM_CHANGE"),
    ("SRQ catastrophic error", "SRQ_ERR"),
    ("client reregistration", "CLIENT_REREGISTER"),
    ("GID table change", "GID_CHANGE"),
    ("last WQE reached", "QP_LAST_WQE_REACHED"),
];

/// Errors of a call that sets up a QP: the number, its name, its text, what it means on the way to RTR.
const ERRNOS: [(u32, &str, &str, &str); 6] = [
    (
        110,
        "ETIMEDOUT",
        "Connection timed out",
        "the peer's address was not resolved: no route between the two subnets, or the peer is silent; this is no retry of a QP",
    ),
    (101, "ENETUNREACH", "Network is unreachable", "there is no route to the peer"),
    (113, "EHOSTUNREACH", "No route to host", "there is no route to the peer"),
    (19, "ENODEV", "No such device", "the device is gone, or the GID has no network device"),
    (22, "EINVAL", "Invalid argument", "a wrong GID or MTU, or the port is down: look at the port's state"),
    (12, "ENOMEM", "Cannot allocate memory", "the adapter or the process is out of a resource"),
];

/// Whether a line is of such a log.
pub(super) fn claim(line: &str) -> Claim {
    let is = line.contains("NCCL WARN") || line.contains("NCCL INFO") || (modify_failed(line) && errno(line).is_some());
    if is { Claim::Begins(Format::Nccl) } else { Claim::No }
}

/// Reads a log.
pub(super) fn read(section: &Section<'_>, sink: &mut Sink<'_>) {
    let several = section.lines.iter().filter_map(|line| host(line)).collect::<BTreeSet<_>>().len() > 1;
    let mut log = Log { several, ports: ports(&section.lines), counts: LogCounts::default(), events: BTreeMap::new() };
    for line in &section.lines {
        log.line(line, sink);
    }
    log.counts.finish(sink);
}

/// `node-a:101:201 [0] …`: the machine before the process.
fn host(line: &str) -> Option<&str> {
    let before = line.split(" NCCL ").next()?;
    before.split_whitespace().find_map(|word| {
        let mut parts = word.rsplitn(3, ':');
        let number = |part: Option<&str>| part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
        let is = number(parts.next()) && number(parts.next());
        let host = parts.next().filter(|_| is)?;
        // What a launcher puts before it: `[1,0]<stdout>:node-a`, `0:node-a`.
        host.rsplit([':', '>']).next().filter(|host| !host.is_empty())
    })
}

/// Ports as `Using [0]mlx5_2:1/IB` tells them.
fn ports(lines: &[&str]) -> BTreeMap<String, u32> {
    let mut ports = BTreeMap::new();
    for line in lines.iter().filter(|line| line.contains("NET/IB : Using")) {
        for part in line.split('[').skip(1) {
            let Some((_, rest)) = part.split_once(']') else { continue };
            if let Some((device, rest)) = rest.split_once(':')
                && let Ok(port) = rest.split('/').next().unwrap_or(rest).parse()
            {
                ports.insert(device.to_owned(), port);
            }
        }
    }
    ports
}

struct Log {
    several: bool,
    ports: BTreeMap<String, u32>,
    counts: LogCounts,
    /// Events told already: a port's event comes to every process that has the device open.
    events: BTreeMap<(String, Option<u32>, &'static str), Clock>,
}

impl Log {
    fn line(&mut self, line: &str, sink: &mut Sink<'_>) {
        let clock = clock(line, sink);
        if let Some((status, rest)) = completion(line) {
            self.completion(clock, line, status, rest, sink);
        } else if let Some((_, rest)) = line.split_once("ot async event") {
            self.event(clock, line, rest.trim_start_matches([' ', ':']), sink);
        } else if modify_failed(line)
            && let Some(errno) = errno(line)
        {
            set_up(clock, line, errno, sink);
        }
    }

    fn completion(&mut self, clock: Clock, line: &str, status: u32, rest: &str, sink: &mut Sink<'_>) {
        let known = STATUS.iter().find(|(number, ..)| *number == status);
        let (name, means) =
            known.map_or(("", "a status this version does not know"), |(_, name, means)| (*name, *means));
        let vendor = rest.split_once("vendor").and_then(|(_, rest)| {
            let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
            digits.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
        });
        let vendor = vendor.map(|vendor| format!(", vendor error {vendor:#04x}")).unwrap_or_default();
        let hca = rest.split_once(" hca ").and_then(|(_, hca)| hca.split_whitespace().next());
        let (device, port) = self.place(line, hca, None, sink);
        let port = port.unwrap_or(1);
        if !name.is_empty() {
            self.counts.add(clock, &device, port, name, 1);
        }
        let named = if name.is_empty() { "status" } else { name };
        sink.note_at(clock, format!("{device}: completion with {named} ({status}){vendor}: {means}"));
    }

    fn event(&mut self, clock: Clock, line: &str, said: &str, sink: &mut Sink<'_>) {
        let Some((words, event)) = EVENTS.iter().find(|(words, _)| said.contains(words)) else {
            sink.note_at(clock, format!("asynchronous event {said}"));
            return;
        };
        // `NET/IB : mlx5_0:1 Got async event`.
        let before = line.split(" Got async").next().and_then(|before| before.rsplit(' ').next());
        let named = before.and_then(|word| {
            let (device, port) = word.split_once(':').filter(|(device, _)| !device.is_empty())?;
            Some((device, port.parse::<u32>().ok()?))
        });
        let (device, port) = self.place(line, named.map(|(device, _)| device), named.map(|(_, port)| port), sink);
        let key = (device.clone(), port, *event);
        let again = |before: &Clock| match (*before, clock) {
            (Clock::Wall(a), Clock::Wall(b)) => a.abs_diff(b) < 1_000_000_000,
            _ => true,
        };
        let whom = match port {
            Some(port) => format!("{device}/{port}"),
            None => device.clone(),
        };
        let blame = match *event {
            "QP_ACCESS_ERR" | "QP_REQ_ERR" => ": the application's doing, not the link's",
            "PORT_ERR" if named.is_none() => {
                ": of a device that is not named; its link_downed counter would confirm it"
            }
            _ => "",
        };
        sink.note_at(clock, format!("{whom}: {words}{blame}"));
        if self.events.get(&key).is_some_and(again) {
            return;
        }
        self.events.insert(key, clock);
        let qp_or_port = event.starts_with("QP_") || event.starts_with("PORT_");
        let port = port.filter(|_| qp_or_port);
        sink.say_at(clock, Body::Async(Async { device: device.into(), port, qpn: None, event: (*event).into() }));
    }

    /// The device a line speaks of, and its port where that is known.
    fn place(&self, line: &str, hca: Option<&str>, port: Option<u32>, sink: &Sink<'_>) -> (String, Option<u32>) {
        let host = host(line);
        let Some(hca) = hca else {
            return (format!("{} (HCA not named)", host.unwrap_or("a host")), port);
        };
        let port = port.or_else(|| self.ports.get(hca).copied()).or_else(|| sink.machine.only_port(hca));
        let here = !self.several || (host.is_some() && host == sink.machine.host());
        (if here { hca.to_owned() } else { format!("{}:{hca}", host.unwrap_or("?")) }, port)
    }
}

/// The status of an error completion, and what follows it.
fn completion(line: &str) -> Option<(u32, &str)> {
    let (_, rest) = line.split_once("Got completion")?;
    let after = rest.split_once("status=").or_else(|| rest.split_once("with error "))?.1;
    // `IBV_WC_RETRY_EXC_ERR(12)` or `12`.
    let number = if after.starts_with(|c: char| c.is_ascii_digit()) { after } else { after.split_once('(')?.1 };
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    Some((number[..end].parse().ok()?, &number[end..]))
}

fn modify_failed(line: &str) -> bool {
    line.contains("ibv_modify_qp") && line.contains("failed")
}

/// The error of a failed call: its number, or else its text.
fn errno(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("failed")?;
    let number = |text: &str| {
        let digits = text.trim_start();
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    };
    let by_number = rest.split_once("errno=").or_else(|| rest.split_once("errno ")).and_then(|(_, n)| number(n));
    let first = rest.split_once("with ").and_then(|(_, n)| number(n));
    by_number.or(first).or_else(|| ERRNOS.iter().find(|(_, _, text, _)| rest.contains(text)).map(|(n, ..)| *n))
}

/// A QP could not be set up: no fault of a NIC, and no observation has room for it without the QP's number.
fn set_up(clock: Clock, line: &str, errno: u32, sink: &mut Sink<'_>) {
    let known = ERRNOS.iter().find(|(number, ..)| *number == errno);
    let (name, means) = known.map_or(("", "an error of the set-up"), |(_, name, _, means)| (*name, *means));
    let dev = line.split_once(" on dev ").and_then(|(_, dev)| dev.split([',', ' ']).next());
    let dev = dev.or_else(|| line.split_once(": ibv_modify_qp").map(|(dev, _)| dev.rsplit(' ').next().unwrap_or(dev)));
    let state = |name: &str| line.split_once(name).and_then(|(_, s)| s.split([',', ' ']).next());
    let way = match (state("curr state "), state("next state ")) {
        (Some(from), Some(to)) => format!(" {from}->{to}"),
        _ => line
            .split_once("ibv_modify_qp to ")
            .and_then(|(_, to)| to.split(' ').next())
            .map(|to| format!(" ->{to}"))
            .unwrap_or_default(),
    };
    let on = dev.map(|dev| format!(" on {dev}")).unwrap_or_default();
    let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
    sink.note_at(clock, format!("a QP could not be set up{on}{way}: errno {errno}{name}: {means}; set-up or addressing, no sign of a fault of the NIC or link"));
}

/// The time before a line, where it has one.
fn clock(line: &str, sink: &Sink<'_>) -> Clock {
    let line = line.trim_start();
    if let Some(parsed) = log_line::parse(line) {
        return match parsed.stamp {
            log_line::Stamp::Uptime(t) => Clock::Uptime(t),
            log_line::Stamp::Wall(t) => Clock::Wall(t),
            log_line::Stamp::NoYear(date) => {
                sink.taken.and_then(|taken| date.before(taken)).map_or(sink.moment.clock, Clock::Wall)
            }
        };
    }
    let inside = line.strip_prefix('[').unwrap_or(line);
    calendar::iso(inside).map_or(sink.moment.clock, |(t, _)| Clock::Wall(t))
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;

    #[test]
    fn a_status_is_read_in_three_formats_and_what_is_undefined_is_not() {
        for (line, status) in [
            ("NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", 12),
            (
                "NCCL WARN NET/IB : Got completion from peer 192.0.2.1<1> with status=5 opcode=32698 len=0 vendor err 249",
                5,
            ),
            (
                "NCCL WARN NET/IB: Got completion from peer x with status=IBV_WC_RNR_RETRY_EXC_ERR(13) opcode=IBV_WC_SEND(0) vendor_err=135 hca mlx5_1",
                13,
            ),
        ] {
            assert_eq!(completion(line).map(|(status, _)| status), Some(status), "{line}");
        }
        assert_eq!(completion("Got completion"), None);
    }

    #[test]
    fn errors_are_counters_of_their_device_and_flushes_are_consequences() {
        let text = "node-a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_2:1/RoCE [1]mlx5_3:2/IB\n\
                    node-a:1:2 [0] NCCL WARN NET/IB : Got completion from peer x with status=12 opcode=9 len=9 vendor err 129 (Send) hca mlx5_3\n\
                    node-a:1:2 [0] NCCL WARN NET/IB : Got completion from peer x with status=5 opcode=0 len=0 vendor err 249 (Send) hca mlx5_3\n";
        let read = read_text("nccl.log", text);
        let last =
            read.found.iter().rev().find_map(|f| if let Body::Counters(c) = &f.body { Some(c) } else { None }).unwrap();
        assert_eq!((&*last.device, last.port), ("mlx5_3", Some(2)));
        assert_eq!((last.values.get("RETRY_EXC_ERR"), last.values.get("WR_FLUSH_ERR")), (Some(&1), Some(&1)));
        assert!(read.notes[0].contains("RETRY_EXC_ERR (12), vendor error 0x81"), "{:?}", read.notes);
        assert!(read.notes[1].contains("vendor error 0xf9") && read.notes[1].contains("a consequence"));
    }

    #[test]
    fn one_event_told_by_every_rank_is_one_event() {
        let line = |i: u8| format!("node-a:41{i}:42{i} [{i}] NCCL WARN NET/IB : Got async event : port error\n");
        let text = (0..8).map(line).collect::<Vec<_>>().concat();
        let read = read_text("nccl.log", &text);
        let events = read.found.iter().filter(|f| matches!(f.body, Body::Async(_))).count();
        assert_eq!((events, read.notes.len()), (1, 1));
        assert!(read.notes[0].contains("(×8)") && read.notes[0].contains("not named"), "{:?}", read.notes);
    }

    #[test]
    fn the_lines_of_several_machines_are_kept_apart() {
        let text = "a:1:2 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n\
                    b:1:2 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : local catastrophic error\n";
        let read = read_text("nccl.log", text);
        let events: Vec<_> = read
            .found
            .iter()
            .filter_map(|f| {
                if let Body::Async(a) = &f.body {
                    Some((a.device.to_string(), a.port, a.event.to_string()))
                } else {
                    None
                }
            })
            .collect();
        assert_eq!(
            events,
            [
                ("a:mlx5_0".to_owned(), Some(1), "PORT_ERR".to_owned()),
                ("b:mlx5_0".to_owned(), None, "DEVICE_FATAL".to_owned())
            ]
        );
    }

    #[test]
    fn a_failed_set_up_is_a_note_with_its_error_by_number_or_text() {
        for (line, errno) in [
            (
                "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_3:1, curr state INIT, next state RTR, x",
                110,
            ),
            ("NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable errno 101", 101),
            ("NCCL WARN Call to ibv_modify_qp failed with error No such device", 19),
            ("ionic_0: ibv_modify_qp to RTR failed errno=110 (port state ACTIVE)", 110),
        ] {
            assert_eq!(super::errno(line), Some(errno), "{line}");
            let read = read_text("logs.txt", line);
            assert_eq!((read.notes.len(), read.found.len()), (1, 1), "{line}");
        }
    }

    #[test]
    fn a_host_is_found_behind_what_a_launcher_puts_before_it() {
        for line in
            ["node-a:1:2 [0] NCCL WARN x", "[1,0]<stdout>:node-a:1:2 [0] NCCL INFO x", "0: node-a:1:2 [0] NCCL WARN x"]
        {
            assert_eq!(host(line), Some("node-a"), "{line}");
        }
        assert_eq!(host("misc/ibvwrap.c:262 NCCL WARN x"), None);
    }
}
