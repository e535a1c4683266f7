//! Dates of logs as nanoseconds since 1970. A date without a zone is taken as UTC: all files of a bundle then agree with
//! each other, which is what differences need; what the zone was, nobody said.

/// Seconds of a day.
const DAY_S: i64 = 86_400;
/// Nanoseconds of a second.
const S: i64 = 1_000_000_000;

/// Days from 1970-01-01 to a date of the Gregorian calendar (years 1970–2200); `None` for what is no date.
pub(super) fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let index = usize::try_from(month - 1).ok().filter(|index| *index < 12)?;
    if !(1970..=2200).contains(&year) || day < 1 || day > lengths[index] {
        return None;
    }
    let years: i64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    Some(years + lengths[..index].iter().sum::<i64>() + day - 1)
}

/// The year of a moment.
pub(super) fn year_of(unix_ns: i64) -> i64 {
    let day = unix_ns.div_euclid(DAY_S * S);
    (1970..=2200).rev().find(|year| days(*year, 1, 1).is_some_and(|first| first <= day)).unwrap_or(1970)
}

/// The number of a month's English short name.
fn month(name: &str) -> Option<i64> {
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    (1..).zip(names).find(|(_, known)| *known == name).map(|(number, _)| number)
}

/// `22:10:01`, `22:10:01.123456` or `22:10:01,123456` as nanoseconds of the day; a leap second counts as the one before.
fn time_of_day(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, ""));
    let mut parts = whole.split(':').map(|part| digits(part, 2));
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    Some((hours * 3600 + minutes * 60 + seconds.min(59)) * S + nanoseconds(fraction)?)
}

/// The digits behind a decimal point as nanoseconds.
pub(super) fn nanoseconds(fraction: &str) -> Option<i64> {
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nine: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    nine.parse().ok()
}

/// A number of at most `most` digits and nothing else.
fn digits(text: &str, most: usize) -> Option<i64> {
    let plain = !text.is_empty() && text.len() <= most && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// `2025-12-31T22:10:01.5+01:00 rest` (RFC 3339, also with a space between date and time, without a zone, or with `+0100`) as
/// ns since 1970, and the rest behind it.
pub(super) fn iso(text: &str) -> Option<(i64, &str)> {
    let date = text.get(..10)?;
    let mut parts = date.split('-');
    let (year, month, day) = (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    if parts.next().is_some() || !matches!(text.as_bytes().get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let rest = text.get(11..)?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && !matches!(c, ':' | '.' | ',')).unwrap_or(rest.len());
    let clock = time_of_day(&rest[..end])?;
    let (zone_s, rest) = zone(&rest[end..])?;
    Some(((days(year, month, day)? * DAY_S - zone_s) * S + clock, rest))
}

/// `Z`, `+01:00`, `-0500` or nothing: seconds east of Greenwich, and what is behind.
fn zone(text: &str) -> Option<(i64, &str)> {
    if let Some(rest) = text.strip_prefix(['Z', 'z']) {
        return Some((0, rest));
    }
    let Some(sign) = text.chars().next().filter(|c| matches!(c, '+' | '-')) else { return Some((0, text)) };
    let rest = &text[1..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(rest.len());
    let number: String = rest[..end].chars().filter(char::is_ascii_digit).collect();
    if number.len() != 4 {
        return None;
    }
    let (hours, minutes) = (digits(&number[..2], 2)?, digits(&number[2..], 2)?);
    let seconds = hours * 3600 + minutes * 60;
    Some((if sign == '-' { -seconds } else { seconds }, &rest[end..]))
}

/// A date without its year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoYear {
    month: i64,
    day: i64,
    of_day_ns: i64,
}

impl NoYear {
    /// The last moment of this date that is not more than a day after `reference`: logs tell of the past, and the clock
    /// of the machine may be a little ahead.
    pub(super) fn before(self, reference: i64) -> Option<i64> {
        let year = year_of(reference);
        let at = |year| days(year, self.month, self.day).map(|days| days * DAY_S * S + self.of_day_ns);
        // The 29 of February is up to eight years back.
        (0..9).filter_map(|back| at(year + 1 - back)).find(|t| *t <= reference.saturating_add(DAY_S * S))
    }
}

/// `Dec 31 22:10:01 rest`, `Jan  1 00:00:12 rest`: what syslog and `journalctl` write.
pub(super) fn syslog(text: &str) -> Option<(NoYear, &str)> {
    let month = month(text.get(..3)?)?;
    let rest = text[3..].strip_prefix(' ')?.trim_start();
    let (day, rest) = rest.split_once(' ')?;
    let rest = rest.trim_start();
    let (clock, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let date = NoYear { month, day: digits(day, 2)?, of_day_ns: time_of_day(clock)? };
    days(2000, date.month, date.day)?;
    Some((date, rest))
}

/// `Mon Dec 31 22:10:01 2025` (`dmesg -T`) and `Mon Dec 31 22:10:01 UTC 2025` (`date`) as ns since 1970.
pub(super) fn human(text: &str) -> Option<i64> {
    let mut words = text.split_whitespace();
    let weekday = words.next()?;
    ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].contains(&weekday).then_some(())?;
    let month = month(words.next()?)?;
    let day = digits(words.next()?, 2)?;
    let clock = time_of_day(words.next()?)?;
    let mut word = words.next()?;
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        word = words.next()?;
    }
    if words.next().is_some() {
        return None;
    }
    Some(days(digits(word, 4)?, month, day)? * DAY_S * S + clock)
}

/// A line that is nothing but a date, as `date` prints it before the output it belongs to.
pub(super) fn date_line(line: &str) -> Option<i64> {
    let line = line.trim().trim_matches(|c: char| matches!(c, '#' | '=' | '-') || c.is_whitespace());
    human(line).or_else(|| iso(line).filter(|(_, rest)| rest.trim().is_empty()).map(|(t, _)| t))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_count_leap_years() {
        assert_eq!(days(1970, 1, 1), Some(0));
        assert_eq!(days(2000, 3, 1), Some(11_017));
        assert_eq!(days(2026, 1, 1), Some(20_454));
        assert_eq!((days(2025, 2, 29), days(2024, 2, 29).is_some(), days(2026, 13, 1)), (None, true, None));
        assert_eq!(year_of(20_454 * DAY_S * S), 2026);
        assert_eq!(year_of(20_454 * DAY_S * S - 1), 2025);
    }

    #[test]
    fn a_zone_is_taken_off_and_a_fraction_kept() {
        let (t, rest) = iso("2026-01-01T01:00:00.5+01:00 node kernel: x").unwrap();
        assert_eq!((t, rest), (20_454 * DAY_S * S + S / 2, " node kernel: x"));
        assert_eq!(iso("2026-01-01 00:00:00,500000").unwrap().0, t);
        assert_eq!(iso("2025-12-31T19:00:00.500-0500").unwrap().0, t);
        assert!(iso("2026-01-01T25:00:00").is_none() && iso("2026-01-01").is_none());
    }

    #[test]
    fn a_date_without_a_year_is_the_last_one_before_the_reference() {
        let reference = (20_454 * DAY_S + 7200) * S;
        let at = |text: &str| syslog(text).unwrap().0.before(reference).unwrap();
        assert_eq!(at("Dec 31 22:00:00 host x"), (20_454 * DAY_S - 7200) * S);
        assert_eq!(at("Jan  1 01:00:00 host x"), (20_454 * DAY_S + 3600) * S);
        assert_eq!(
            syslog("Feb 29 00:00:00 h x").unwrap().0.before(reference),
            Some(days(2024, 2, 29).unwrap() * DAY_S * S)
        );
        assert!(syslog("Foo 31 22:00:00 x").is_none() && syslog("Feb 30 22:00:00 x").is_none());
    }

    #[test]
    fn a_line_that_is_a_date_is_one_and_a_line_that_holds_one_is_not() {
        assert_eq!(date_line("Thu Jan  1 00:00:01 UTC 1970"), Some(S));
        assert_eq!(date_line("=== 1970-01-01T00:00:01Z ==="), Some(S));
        assert_eq!(human("Thu Jan  1 00:00:01 1970"), Some(S));
        assert_eq!(date_line("1970-01-01T00:00:01Z node kernel: x"), None);
    }
}
