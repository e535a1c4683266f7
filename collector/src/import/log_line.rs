//! One line of a system log: when, whose, and the message behind all prefixes.
//!
//! | made by | begins |
//! |---|---|
//! | `dmesg` | `[  448.455025] ` (also with `<4>`, `kern  :warn  : `, `[ T123]`) |
//! | `dmesg -T` | `[Mon Dec 31 22:10:01 2025] ` |
//! | `dmesg --time-format iso`, `journalctl -o short-iso`, rsyslog | `2025-12-31T22:10:01,123456+01:00 ` |
//! | `journalctl`, syslog | `Dec 31 22:10:01 host kernel: ` |
//! | `journalctl -o short-monotonic` | `[  448.455025] host kernel: ` |

use super::calendar::{self, NoYear};
use crate::observation::Nanos;

/// When a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Since boot.
    Uptime(Nanos),
    /// A date, ns since 1970.
    Wall(i64),
    /// A date without its year.
    NoYear(NoYear),
}

/// A line of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogLine<'t> {
    /// When it was written.
    pub(super) stamp: Stamp,
    /// Seconds since boot that stand beside a date.
    pub(super) uptime: Option<Nanos>,
    /// The machine.
    pub(super) host: Option<&'t str>,
    /// The program; `kernel` or nothing for the kernel's own lines.
    pub(super) program: Option<&'t str>,
    /// The message.
    pub(super) message: &'t str,
}

/// Takes a line apart; `None` for what is no line of a log.
pub(super) fn parse(line: &str) -> Option<LogLine<'_>> {
    let line = without_level(line);
    if let Some(inside) = line.strip_prefix('[') {
        let (stamp, rest) = inside.split_once(']')?;
        let stamp = match seconds(stamp.trim()) {
            Some(t) => Stamp::Uptime(t),
            None => Stamp::Wall(calendar::human(stamp)?),
        };
        let rest = without_caller(rest.strip_prefix(' ').unwrap_or(rest));
        let (host, program, message) = sure_sender(rest).unwrap_or((None, None, rest));
        return Some(LogLine { stamp, uptime: None, host, program, message });
    }
    let (stamp, rest, sender) = match calendar::iso(line) {
        // `dmesg` writes no machine behind the date; the journal does.
        Some((t, rest)) => (Stamp::Wall(t), rest.strip_prefix(' ')?, sure_sender(rest.trim_start())),
        None => calendar::syslog(line).map(|(date, rest)| (Stamp::NoYear(date), rest, sender(rest.trim_start())))?,
    };
    let (host, program, message) = sender.unwrap_or((None, None, rest.trim_start()));
    // The kernel's line kept its own time behind the date.
    let inner = message.strip_prefix('[').and_then(|inside| inside.split_once(']'));
    let inner = inner.and_then(|(stamp, rest)| Some((seconds(stamp.trim())?, rest)));
    let (uptime, message) = match inner {
        Some((t, rest)) => (Some(t), without_caller(rest.strip_prefix(' ').unwrap_or(rest))),
        None => (None, message),
    };
    Some(LogLine { stamp, uptime, host, program, message })
}

/// `448.455025` as nanoseconds.
fn seconds(text: &str) -> Option<Nanos> {
    let (whole, fraction) = text.split_once('.')?;
    let plain = !whole.is_empty() && whole.len() <= 10 && whole.bytes().all(|b| b.is_ascii_digit());
    let whole: u64 = plain.then(|| whole.parse().ok()).flatten()?;
    let fraction = u64::try_from(calendar::nanoseconds(fraction).filter(|_| !fraction.is_empty())?).ok()?;
    Some(whole * 1_000_000_000 + fraction)
}

/// Without `<4>` or `kern  :warn  : ` before the time.
fn without_level(line: &str) -> &str {
    if let Some((level, rest)) = line.strip_prefix('<').and_then(|inside| inside.split_once('>'))
        && level.bytes().all(|b| b.is_ascii_digit())
    {
        return rest;
    }
    let mut parts = line.splitn(3, ':');
    let (Some(facility), Some(level), Some(rest)) = (parts.next(), parts.next(), parts.next()) else { return line };
    let word = |text: &str| !text.trim().is_empty() && text.trim().bytes().all(|b| b.is_ascii_lowercase());
    let rest = rest.trim_start();
    if word(facility) && word(level) && rest.starts_with('[') { rest } else { line }
}

/// Without `[ T123]` or `[    C0]` behind the time.
fn without_caller(rest: &str) -> &str {
    let Some((caller, after)) = rest.strip_prefix('[').and_then(|inside| inside.split_once(']')) else { return rest };
    let digits = caller.trim_start().strip_prefix(['T', 'C']);
    let is = digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
    if is { after.strip_prefix(' ').unwrap_or(after) } else { rest }
}

/// The machine and the program, and what is behind them.
type Sender<'t> = (Option<&'t str>, Option<&'t str>, &'t str);

/// A sender that cannot be the kernel's own words (`infiniband mlx5_2: …`): the kernel itself, or a program with its pid.
fn sure_sender(rest: &str) -> Option<Sender<'_>> {
    let tag = rest.split_once(' ')?.1.split_once(": ")?.0;
    sender(rest).filter(|_| tag == "kernel" || tag.ends_with(']'))
}

/// `host kernel: message`, `host NetworkManager[801]: message`.
fn sender(rest: &str) -> Option<Sender<'_>> {
    let (host, rest) = rest.split_once(' ')?;
    if host.is_empty() || host.ends_with(':') || host.contains(['[', '=']) {
        return None;
    }
    let (tag, message) = rest.split_once(": ")?;
    let program = tag.split('[').next().unwrap_or(tag);
    let numbered = tag == program || tag.ends_with(']');
    let plain = !program.is_empty() && !program.contains([' ', ':']) && numbered;
    // A driver and its function look alike: `mlx5_core 0000:01:00.0: …`.
    let is_function = super::aer_log::function(tag).is_some();
    (plain && !is_function).then_some((Some(host), Some(program), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(line: &str) -> (Stamp, Option<&str>, &str) {
        let line = parse(line).unwrap_or_else(|| panic!("{line}"));
        (line.stamp, line.host, line.message)
    }

    #[test]
    fn every_way_of_printing_the_kernels_log_gives_the_same_message() {
        let up = Stamp::Uptime(448_455_025_000);
        let text = "mlx5_core 0000:01:00.0: poll_health:795:(pid 0): Fatal error 1 detected";
        for before in
            ["[  448.455025] ", "<2>[  448.455025] ", "kern  :crit  : [  448.455025] ", "[  448.455025][    T1] "]
        {
            assert_eq!(message(&format!("{before}{text}")), (up, None, text), "{before}");
        }
        assert_eq!(message(&format!("[  448.455025] node1 kernel: {text}")), (up, Some("node1"), text));
        let wall = |ns| Stamp::Wall(ns);
        assert_eq!(message(&format!("[Thu Jan  1 00:00:01 1970] {text}")), (wall(1_000_000_000), None, text));
        assert_eq!(message(&format!("1970-01-01T00:00:01,500000+00:00 {text}")), (wall(1_500_000_000), None, text));
        let iso = format!("1970-01-01T01:00:01+0100 node1 kernel: {text}");
        assert_eq!(message(&iso), (wall(1_000_000_000), Some("node1"), text));
    }

    #[test]
    fn a_date_beside_the_time_since_boot_gives_both() {
        let line = parse("Dec 31 22:10:01 node1 kernel: [  448.455025] mlx5_core 0000:01:00.0: x").unwrap();
        assert_eq!((line.uptime, line.message), (Some(448_455_025_000), "mlx5_core 0000:01:00.0: x"));
        let line = parse("Dec 31 22:10:01 node-a systemd-networkd[801]: ib0: Lost carrier").unwrap();
        assert_eq!((line.program, line.message), (Some("systemd-networkd"), "ib0: Lost carrier"));
    }

    #[test]
    fn prose_and_other_brackets_are_no_line_of_a_log() {
        for line in
            ["", "[ 6] Bad TLP", "[+0.000012] x", "[me@node ~]$ dmesg", "Decimal 5", "May be 12:00:00 x", "<x>y"]
        {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
