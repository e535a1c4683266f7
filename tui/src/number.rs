//! How numbers look. `–` is unknown, `0` is zero, `>n` is a lower bound; widths do not change with the value, so that
//! nothing jumps sideways.

use std::borrow::Cow;

use collector::observation::Nanos;
use collector::timeline::Growth;
use collector::timeline::counter_table::Unit;

/// What is not known.
pub(crate) const UNKNOWN: &str = "–";

const SECOND: u64 = 1_000_000_000;

/// Three significant digits without an exponent: at most four characters for 0.01 ≤ v < 999.5.
fn three_digits(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// A value scaled by a power of `step` until it has at most three digits before the point, and the step's index.
fn scaled(value: f64, step: f64, last: usize) -> (f64, usize) {
    let (mut value, mut at) = (value, 0);
    while value >= 999.5 && at < last {
        value /= step;
        at += 1;
    }
    (value, at)
}

/// Bits per second from bytes per second: `312 G`, `41.2 M`; always the same width of prefix. At most six characters.
pub(crate) fn bits(bytes_per_s: Option<f64>) -> String {
    bytes_per_s.map_or_else(|| UNKNOWN.to_owned(), |bytes| bits_of_gbps(bytes * 8.0 / 1e9))
}

/// A number that is a lower bound.
pub(crate) fn at_least(number: String, only: bool) -> String {
    if only { format!(">{}", number.trim_end()) } else { number }
}

/// Bits per second from Gb/s.
pub(crate) fn bits_of_gbps(gbps: f64) -> String {
    const PREFIX: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let (value, at) = scaled(gbps * 1e9, 1000.0, PREFIX.len() - 1);
    if value < 0.5 {
        return "0  ".to_owned();
    }
    let digits = if at == 0 { format!("{value:.0}") } else { three_digits(value) };
    format!("{digits} {:1}", PREFIX[at])
}

/// A link's rate in Gb/s as people say it: `400G`, `2.5G`.
pub(crate) fn link_rate(gbps: Option<f64>) -> String {
    gbps.map_or_else(|| UNKNOWN.to_owned(), |gbps| format!("{gbps}G"))
}

/// Events per second or any other plain number: `0`, `0.25`, `41.2k`. At most six characters.
pub(crate) fn per_second(value: Option<f64>) -> String {
    const PREFIX: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let Some(value) = value else { return UNKNOWN.to_owned() };
    if value > 0.0 && value < 0.01 {
        return "<0.01".to_owned();
    }
    let (scaled, at) = scaled(value, 1000.0, PREFIX.len() - 1);
    let whole = at == 0 && (value - value.round()).abs() < 1e-9;
    let digits = if whole { format!("{value:.0}") } else { three_digits(scaled) };
    format!("{digits}{}", PREFIX[at])
}

/// A count: exact up to five digits, then with an SI prefix.
pub(crate) fn count(n: u64) -> String {
    if n < 100_000 { n.to_string() } else { per_second(Some(n as f64)) }
}

/// A count that may be unknown.
pub(crate) fn known_count(n: Option<u64>) -> String {
    n.map_or_else(|| UNKNOWN.to_owned(), count)
}

/// Growth over a stretch of time; a lower bound when a part of it was not seen.
pub(crate) fn growth(growth: Option<Growth>) -> String {
    growth.map_or_else(|| UNKNOWN.to_owned(), |g| if g.broken { format!(">{}", count(g.sum)) } else { count(g.sum) })
}

/// All digits in groups of three, for totals people compare with other tools.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A size: `61 MiB`, `1.50 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNIT: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let (mut value, mut at) = (n as f64, 0);
    while value >= 999.5 && at < UNIT.len() - 1 {
        value /= 1024.0;
        at += 1;
    }
    format!("{} {}", three_digits(value), UNIT[at])
}

/// A size that may be unknown.
pub(crate) fn known_bytes(n: Option<u64>) -> String {
    n.map_or_else(|| UNKNOWN.to_owned(), bytes)
}

/// A short time: `850 ns`, `12.3 µs`, `4.10 ms`, `1.20 s`.
pub(crate) fn short_time(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", three_digits(value / 1e3)),
        1_000_000..SECOND => format!("{} ms", three_digits(value / 1e6)),
        _ => format!("{} s", three_digits(value / 1e9)),
    }
}

/// How long ago or for how long: `00:38`, `2:05:11`, `3d 04h`.
pub(crate) fn age(ns: u64) -> String {
    let s = ns / SECOND;
    match s {
        0..3_600 => format!("{:02}:{:02}", s / 60, s % 60),
        3_600..86_400 => format!("{}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60),
        _ => format!("{}d {:02}h", s / 86_400, s / 3_600 % 24),
    }
}

/// A span of charts and intervals: `100 ms`, `1 s`, `5 min`, `2 h`.
pub(crate) fn span(ns: u64) -> String {
    match ns {
        0..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ if ns < 120 * SECOND => format!("{} s", three_significant(ns)),
        _ if ns < 7_200 * SECOND => parts((ns / SECOND / 60, "min"), (ns / SECOND % 60, "s")),
        _ => parts((ns / SECOND / 3_600, "h"), (ns / SECOND % 3_600 / 60, "min")),
    }
}

/// `3 min`, `2 min 56 s`.
fn parts((whole, unit): (u64, &str), (rest, smaller): (u64, &str)) -> String {
    if rest == 0 { format!("{whole} {unit}") } else { format!("{whole} {unit} {rest} {smaller}") }
}

fn three_significant(ns: u64) -> String {
    if ns.is_multiple_of(SECOND) { (ns / SECOND).to_string() } else { three_digits(ns as f64 / 1e9) }
}

/// A share of one: `0.4%`, `97%`; what is more than nothing is not written as nothing.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(
        || UNKNOWN.to_owned(),
        |share| {
            let percent = share * 100.0;
            if percent > 0.0 && percent < 0.05 {
                "<0.1%".to_owned()
            } else if percent < 9.95 {
                format!("{percent:.1}%")
            } else {
                format!("{percent:.0}%")
            }
        },
    )
}

/// Wall-clock time of day (UTC): `14:03:27`; with `millis`, `14:03:27.118`.
pub(crate) fn time_of_day(unix_ns: u64, millis: bool) -> String {
    let s = unix_ns / SECOND % 86_400;
    let base = format!("{:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60);
    if millis { format!("{base}.{:03}", unix_ns % SECOND / 1_000_000) } else { base }
}

/// Date and time (UTC) for a file's name: `20260129T140327Z`.
pub(crate) fn file_time(unix_ns: u64) -> String {
    let days = i64::try_from(unix_ns / SECOND / 86_400).unwrap_or(0);
    let (year, month, day) = civil(days);
    format!("{year:04}{month:02}{day:02}T{}Z", time_of_day(unix_ns, false).replace(':', ""))
}

/// The date of a day since 1970-01-01 in the proleptic Gregorian calendar, by counting years from 1 March 0000: leap
/// days then are at the end of a year and months have the lengths of a repeating pattern.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// A GID as people know it: the IPv4 address where it holds one (RoCE v2 over IPv4: `::ffff:a.b.c.d`), else as it is.
pub(crate) fn gid(gid: &str) -> Cow<'_, str> {
    match gid.parse::<std::net::Ipv6Addr>().ok().and_then(|address| address.to_ipv4_mapped()) {
        Some(address) => Cow::Owned(address.to_string()),
        None => Cow::Borrowed(gid),
    }
}

/// A time of the world: wall clock where the header ties it, else seconds since the first observation.
pub(crate) fn moment(world: &collector::inventory::World, t: Nanos, millis: bool) -> String {
    match world.unix_ns(t) {
        Some(unix) => time_of_day(unix, millis),
        None if millis => format!("+{:.3} s", t.saturating_sub(world.started) as f64 / 1e9),
        None => format!("+{} s", t.saturating_sub(world.started) / SECOND),
    }
}

/// A rate in a counter's own unit.
pub(crate) fn unit_rate(unit: Unit, per_s: Option<f64>) -> String {
    match (unit.bytes_factor(), per_s) {
        (_, None) => UNKNOWN.to_owned(),
        (Some(factor), Some(rate)) => format!("{}b/s", bits(Some(rate * factor as f64))),
        (None, rate) => format!("{}/s", per_second(rate)),
    }
}

/// A total in a counter's own unit: bytes as sizes, the rest as counts with all digits.
pub(crate) fn unit_total(unit: Unit, value: Option<u64>, saturated: bool) -> String {
    let text = match (unit.bytes_factor(), value) {
        (_, None) => return UNKNOWN.to_owned(),
        (Some(factor), Some(value)) => bytes(value.saturating_mul(factor)),
        // What is longer than its column would be cut, and read as another number.
        (None, Some(value)) if value >= 10_u64.pow(12) => count(value),
        (None, Some(value)) => grouped(value),
    };
    if saturated { format!(">{text}") } else { text }
}

/// An evidence value: whole numbers whole, the rest with three digits.
pub(crate) fn plain(value: Option<f64>) -> Cow<'static, str> {
    match value {
        None => Cow::Borrowed(UNKNOWN),
        Some(value) if value.fract() == 0.0 && value.abs() < 1e6 => Cow::Owned(format!("{value:.0}")),
        Some(value) if value != 0.0 && value.abs() < 0.01 => Cow::Owned(format!("{value:.1e}")),
        Some(value) if value < 0.0 => Cow::Owned(format!("{value:.2}")),
        Some(value) => Cow::Owned(per_second(Some(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_their_width_over_the_whole_range() {
        let mut value = 0.001;
        while value < 1e15 {
            assert!(bits(Some(value)).chars().count() <= 6, "{value}: {}", bits(Some(value)));
            assert!(per_second(Some(value)).chars().count() <= 6, "{value}: {}", per_second(Some(value)));
            value *= 1.37;
        }
    }

    #[test]
    fn zero_unknown_and_lower_bound_look_different() {
        assert_eq!(bits(Some(0.0)), "0  ");
        assert_eq!(bits(None), "–");
        assert_eq!(per_second(Some(0.0)), "0");
        assert_eq!(growth(None), "–");
        assert_eq!(growth(Some(Growth { sum: 7, broken: true })), ">7");
        assert_eq!(growth(Some(Growth { sum: 0, broken: false })), "0");
    }

    #[test]
    fn bits_round_into_the_next_prefix() {
        assert_eq!(bits(Some(39e9)), "312 G");
        assert_eq!(bits_of_gbps(0.999_6), "1.00 G");
        assert_eq!(bits_of_gbps(0.041_2), "41.2 M");
    }

    #[test]
    fn sizes_are_iec_and_times_have_their_unit() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(short_time(850), "850 ns");
        assert_eq!(short_time(12_300), "12.3 µs");
        assert_eq!(short_time(67_108_864), "67.1 ms");
        assert_eq!(age(38 * SECOND), "00:38");
        assert_eq!(age(90_061 * SECOND), "1d 01h");
    }

    #[test]
    fn a_gid_that_holds_an_ipv4_address_is_written_as_one() {
        assert_eq!(gid("0000:0000:0000:0000:0000:ffff:0a64:0320"), "10.100.3.32");
        assert_eq!(gid("fe80:0000:0000:0000:0a64:03ff:fe20:0001"), "fe80:0000:0000:0000:0a64:03ff:fe20:0001");
        assert_eq!(gid("no gid"), "no gid");
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(file_time(0), "19700101T000000Z");
        assert_eq!(file_time(951_782_399 * SECOND), "20000228T235959Z");
        assert_eq!(file_time(951_782_400 * SECOND), "20000229T000000Z");
        assert_eq!(file_time(1_790_000_000 * SECOND), "20260921T141320Z");
    }
}
