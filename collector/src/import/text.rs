//! From the bytes of a pasted file to lines: without colours, carriage returns and prompts.

use std::io::Read;
use std::path::Path;

/// A longer file is not read: no log of this size is pasted, and it would cost the memory of all others.
pub(super) const MAX_BYTES: u64 = 256 << 20;
/// The first four bytes of a zstd frame (RFC 8878, section 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The first two bytes of a gzip member (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Bytes that are looked at to tell text from anything else.
const PROBE: usize = 8192;

/// A text, and what was left out of it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) note: Option<String>,
}

/// The text of a file, decompressed where it is zstd or gzip; the error says why it is none.
pub(super) fn read(path: &Path) -> Result<Text, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    if size > MAX_BYTES {
        return Err(format!("{} MiB; files of more than {} MiB are not read", size >> 20, MAX_BYTES >> 20));
    }
    let bytes = all(file)?;
    let bytes = if bytes.starts_with(&ZSTD) {
        let decoder = zstd::Decoder::new(bytes.as_slice()).map_err(|error| format!("zstd: {error}"))?;
        all(decoder).map_err(|error| format!("zstd: {error}"))?
    } else if bytes.starts_with(&GZIP) {
        // Rotated logs are often several members, one after the other.
        all(flate2::read::MultiGzDecoder::new(bytes.as_slice())).map_err(|error| format!("gzip: {error}"))?
    } else {
        bytes
    };
    text(&bytes)
}

fn all(mut input: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = input.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if read as u64 > MAX_BYTES {
        return Err(format!("more than {} MiB of text", MAX_BYTES >> 20));
    }
    Ok(bytes)
}

/// The bytes as clean text.
pub(super) fn text(bytes: &[u8]) -> Result<Text, String> {
    if bytes.is_empty() {
        return Err("empty: whoever was asked gave no answer".to_owned());
    }
    if bytes.starts_with(b"\xfd7zXZ") || bytes.starts_with(b"BZh") || bytes.starts_with(b"PK\x03\x04") {
        return Err("a compressed archive: unpack it first".to_owned());
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return Err("a tar archive: unpack it first".to_owned());
    }
    match bytes {
        [0xff, 0xfe, rest @ ..] => return Ok(utf16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => return Ok(utf16(rest, u16::from_be_bytes)),
        _ => {}
    }
    let probe = &bytes[..bytes.len().min(PROBE)];
    if is_utf16(probe) {
        return Err("UTF-16? it has no byte order mark: write it as UTF-8, for example by iconv".to_owned());
    }
    if probe.contains(&0) && is_binary(probe) {
        return Err("binary".to_owned());
    }
    Ok(of_str(&String::from_utf8_lossy(bytes)))
}

fn of_str(text: &str) -> Text {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let nuls = text.matches('\0').count();
    if nuls == 0 {
        return Text { text: clean(text), note: None };
    }
    // Where a file system lost what had been written, a run of zeros stands in its place, and a line ends there.
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\0') {
        plain.push_str(&rest[..at]);
        let after = rest[at..].trim_start_matches('\0');
        if rest.len() - at - after.len() > 1 {
            plain.push('\n');
        }
        rest = after;
    }
    plain.push_str(rest);
    let note = if nuls == 1 { "1 NUL byte left out".to_owned() } else { format!("{nuls} NUL bytes left out") };
    Text { text: clean(&plain), note: Some(note) }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Text {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let decoded = char::decode_utf16(pairs.iter().map(|pair| unit(*pair)));
    let mut text: String = decoded.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    if !odd.is_empty() {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    of_str(&text)
}

/// Every other byte is zero, as in UTF-16 of what is mostly ASCII.
fn is_utf16(bytes: &[u8]) -> bool {
    let zeros = |from: usize| bytes.iter().skip(from).step_by(2).filter(|b| **b == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    even.max(odd) * 4 > bytes.len() && even.min(odd) * 20 < bytes.len()
}

/// What is there besides zeros is no text: more than one byte in twenty is a control character or no UTF-8.
fn is_binary(bytes: &[u8]) -> bool {
    let there: Vec<u8> = bytes.iter().copied().filter(|b| *b != 0).collect();
    let text = String::from_utf8_lossy(&there);
    let odd =
        |c: &char| *c == char::REPLACEMENT_CHARACTER || (c.is_control() && !"\t\n\r\u{7}\u{8}\u{c}\u{1b}".contains(*c));
    text.chars().filter(odd).count() * 20 > there.len() || there.is_empty()
}

/// Takes out terminal control sequences, and of lines that were overwritten what is left of them.
fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let line = line.rsplit('\r').next().unwrap_or(line);
        if line.contains('\u{1b}') {
            clean.push_str(&without_escapes(line));
        } else {
            clean.push_str(line);
        }
        clean.push('\n');
    }
    clean
}

/// A line without escape sequences: CSI (ECMA-48, 5.4), OSC up to BEL or ST, and two-character ones.
fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some('[') => {
                chars.find(|c| ('\u{40}'..='\u{7e}').contains(c));
            }
            Some(']') => {
                while let Some(c) = chars.next() {
                    if c == '\u{7}' || (c == '\u{1b}' && chars.next() == Some('\\')) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    plain
}

/// The programs whose output is read.
const TOOLS: [&str; 11] = [
    "ethtool -S",
    "ethtool --statistics",
    "rdma -",
    "rdma statistic",
    "rdma stat",
    "rdma res",
    "rdma link",
    "rdma dev",
    "perfquery",
    "ibqueryerrors",
    "dmesg",
];

/// The command a line shows being called: after a prompt (`#`, `$`, `>`, `%`), in a trace (`+ `), or between marks
/// (`=== ethtool -S eth0 ===`).
pub(super) fn command(line: &str) -> Option<&str> {
    let at = TOOLS.iter().filter_map(|tool| line.find(tool)).min()?;
    let before = line[..at].trim_end();
    let before = before.strip_suffix("sudo").map_or(before, str::trim_end);
    let before = before.trim_end_matches(|c: char| c == '/' || c == '_' || c.is_ascii_alphanumeric());
    let called = before.trim_end().ends_with(['#', '$', '>', '%', '+', '=', '*', '-', '`', '\'']);
    called.then(|| line[at..].trim_end_matches(['=', '*', '-', '<', '`', '\'', ' ', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_carriage_returns_and_marks_of_order_are_no_part_of_a_line() {
        let pasted = "\u{feff}\u{1b}[1;31mred\u{1b}[0m end\r\nprogress 10%\rprogress 100%\n\u{1b}]0;title\u{7}x\n";
        assert_eq!(
            text(pasted.as_bytes()).unwrap().text.lines().collect::<Vec<_>>(),
            ["red end", "progress 100%", "x"]
        );
    }

    #[test]
    fn what_is_no_text_says_so() {
        for (bytes, why) in [
            (&b""[..], "empty"),
            (b"\x7fELF\x02\x01\x01\0\0\0\0\0\x03\0\x3e\0", "binary"),
            (b"\0\0\0\0", "binary"),
            (b"PK\x03\x04", "archive"),
            (b"d\0m\0e\0s\0g\0", "UTF-16?"),
            (b"\0d\0m\0e\0s\0g", "UTF-16?"),
        ] {
            assert!(text(bytes).unwrap_err().contains(why), "{why}");
        }
        assert_eq!(text(b"caf\xe9\n").unwrap().text, "caf\u{fffd}\n");
    }

    #[test]
    fn zeros_that_a_power_loss_left_in_a_log_are_left_out_and_said() {
        let mut log = b"one\nhalf a li".to_vec();
        log.extend([0; 4096]);
        log.extend(b"two\nth\0ree\n");
        let read = text(&log).unwrap();
        assert_eq!(read.text.lines().collect::<Vec<_>>(), ["one", "half a li", "two", "three"]);
        assert_eq!(read.note.as_deref(), Some("4097 NUL bytes left out"));
        assert_eq!(text(b"\0text\n").unwrap().note.as_deref(), Some("1 NUL byte left out"));
    }

    #[test]
    fn utf_16_with_a_mark_of_order_is_text() {
        for (mark, unit) in [(0xfeff_u16, u16::to_le_bytes as fn(u16) -> [u8; 2]), (0xfeff, u16::to_be_bytes)] {
            let units = std::iter::once(mark).chain("dmesg µ\r\nx\n".encode_utf16());
            let bytes: Vec<u8> = units.flat_map(unit).collect();
            assert_eq!(text(&bytes).unwrap(), Text { text: "dmesg µ\nx\n".to_owned(), note: None });
        }
    }

    #[test]
    fn a_call_is_seen_behind_a_prompt_a_trace_and_marks_and_not_in_prose() {
        for line in [
            "root@node1:~# ethtool -S eth0",
            "[me@node1 ~]$ sudo ethtool -S eth0",
            "+ ethtool -S eth0",
            "$ /usr/sbin/ethtool -S eth0",
            "==== ethtool -S eth0 ====",
        ] {
            assert_eq!(command(line), Some("ethtool -S eth0"), "{line}");
        }
        assert_eq!(command("please run ethtool -S eth0"), None);
        assert_eq!(command("# Port extended counters: Lid 1 port 1"), None);
    }
}
