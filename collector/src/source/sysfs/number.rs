//! What a counter file holds: a number, or the reason why there is none.

use std::borrow::Cow;

use crate::observation::Text;

/// The most a counter file can hold: 20 digits of a `u64` and the newline; more bytes than this are no number.
pub(super) const COUNTER_BYTES: usize = 64;

/// The value of a counter file, or why it is none. Only decimal digits with white space around them are a number; an
/// empty file is not zero, nor is the `N/A (no PMA)` of old kernels.
pub(super) fn parse(bytes: &[u8]) -> Result<u64, Text<'static>> {
    let digits = bytes.trim_ascii();
    if digits.is_empty() {
        return Err(Cow::Borrowed("empty file"));
    }
    let mut value: u64 = 0;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return Err(odd(digits));
        }
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(byte - b'0')));
        match next {
            Some(next) => value = next,
            None => return Err(odd(digits)),
        }
    }
    Ok(value)
}

#[cold]
fn odd(text: &[u8]) -> Text<'static> {
    if text == b"N/A (no PMA)" {
        return Cow::Borrowed("N/A (no PMA)");
    }
    if text.iter().all(u8::is_ascii_digit) {
        return Cow::Borrowed("number of more than 64 bits");
    }
    if text.strip_prefix(b"-").is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit)) {
        return Cow::Borrowed("negative number");
    }
    let shown: String = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(32).collect();
    Cow::Owned(format!("not a number: {shown}"))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_number_is_read_whole_and_nothing_else_is_a_number() {
        assert_eq!(parse(b"6825908347\n"), Ok(6_825_908_347));
        assert_eq!(parse(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse(b"0\n"), Ok(0));
        for (text, reason) in [
            (&b""[..], "empty file"),
            (b"\n", "empty file"),
            (b"N/A (no PMA)\n", "N/A (no PMA)"),
            (b"-1\n", "negative number"),
            (b"18446744073709551616", "number of more than 64 bits"),
            (b"12 34", "not a number: 12 34"),
            (b"\x1b[2Jhello", "not a number: [2Jhello"),
            (b"-", "not a number: -"),
        ] {
            assert_eq!(parse(text).unwrap_err(), reason);
        }
    }
}
