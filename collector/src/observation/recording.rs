//! The recording: observations as JSON Lines, plain or compressed (docs/recording.md is the promise to users).
//!
//! Reading is forgiving by contract: unknown types and fields are skipped and counted, a bad line costs only itself, a
//! truncated end loses only its last line. What was skipped is in [`Notices`], never silent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Body, Nanos, Observation};
use crate::observation;

mod lines;

use self::lines::{Filled, Lines, MAX_LINE_BYTES};

/// Sources are never that far apart within a recording, ns.
const MOST_AHEAD_NS: Nanos = 60_000_000_000;

/// The value of the header's `format`.
pub const FORMAT: &str = "rdmascope-recording";
/// The version this program writes, and the newest it reads.
pub const VERSION: u32 = 1;
/// More bad lines in a row than this end the read.
pub const MAX_BAD_IN_A_ROW: u32 = 100;
/// No machine has been up for a century; times beyond it would overflow what is computed with them.
const MAX_TIME: Nanos = 100 * 366 * 86_400 * 1_000_000_000;
/// The largest QP number: 24 bits (`InfiniBand` base transport header).
const MAX_QPN: u32 = (1 << 24) - 1;
/// The level of compression.
const LEVEL: i32 = 3;
/// Bad lines that are kept with their number and message; the rest is only counted.
const MAX_BAD_KEPT: usize = 20;

/// The first line of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Name of the observed node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its kernel release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The program that wrote the recording, with its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Wall clock (ns since 1970) at the moment `mono_ns` was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_ns: Option<u64>,
    /// `CLOCK_MONOTONIC` (ns) at the moment `unix_ns` was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mono_ns: Option<Nanos>,
    /// Why the recording holds no device, where it holds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the file is a part of: [`RING`], [`INCIDENT`]. Absent: a recording of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// The header's `part` of a segment of the ring `collect` keeps (docs/ring.md).
pub const RING: &str = "ring";
/// The header's `part` of an incident saved from that ring.
pub const INCIDENT: &str = "incident";

impl Header {
    /// A header of this version.
    #[must_use]
    pub fn new() -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            tool: Some(concat!("rdmascope ", env!("CARGO_PKG_VERSION")).to_owned()),
            ..Self::default()
        }
    }

    /// Wall clock (ns since 1970) of a monotonic time; `None` when the header does not tie the two.
    #[must_use]
    pub fn unix_ns_at(&self, t: Nanos) -> Option<u64> {
        let offset = i128::from(self.unix_ns?) - i128::from(self.mono_ns?);
        u64::try_from(i128::from(t) + offset).ok()
    }
}

/// Why a recording could not be opened or read on.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file could not be opened or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file holds nothing.
    #[error("the file is empty")]
    Empty,
    /// The first line is not a recording's header.
    #[error("not an rdmascope recording: the first line is no header ({0})")]
    NoHeader(String),
    /// The compressed stream ends before the first line does.
    #[error("the recording is cut off before the end of its first line")]
    HeaderCutOff,
    /// The recording was written by a newer version.
    #[error("the recording has format version {0}; this program reads up to {VERSION}")]
    NewerVersion(u32),
    /// Too many bad lines in a row.
    #[error("more than {MAX_BAD_IN_A_ROW} bad lines in a row up to line {line}: {message}")]
    TooManyBadLines {
        /// Number of the last of them.
        line: u64,
        /// What was wrong with it.
        message: String,
    },
}

/// What was skipped while reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notices {
    /// Observations read.
    pub observations: u64,
    /// Lines of a type this version does not know, by type.
    pub unknown_types: BTreeMap<String, u64>,
    /// Fields this version does not know (of an observation itself, not of its nested parts).
    pub unknown_fields: u64,
    /// Counter values that are no unsigned integer and were left out.
    pub odd_values: u64,
    /// Lines that could not be read.
    pub bad_lines: u64,
    /// The first of them: line number and what was wrong.
    pub bad: Vec<(u64, String)>,
    /// The file ends in the middle of a line or of a compressed frame, or such a frame is damaged; what is lost.
    pub truncated: Option<String>,
}

impl Notices {
    /// One line for each kind of thing that was skipped; empty when nothing was.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(truncated) = &self.truncated {
            lines.push(truncated.clone());
        }
        for (line, message) in &self.bad {
            lines.push(format!("line {line} skipped: {message}"));
        }
        let more = self.bad_lines.saturating_sub(self.bad.len() as u64);
        if more > 0 {
            lines.push(format!("{more} more bad lines skipped"));
        }
        if !self.unknown_types.is_empty() {
            let list: Vec<String> = self.unknown_types.iter().map(|(name, n)| format!("{name} ×{n}")).collect();
            lines.push(format!("observations of unknown type skipped: {}", list.join(", ")));
        }
        if self.unknown_fields > 0 {
            lines.push(format!("{} unknown fields skipped", self.unknown_fields));
        }
        if self.odd_values > 0 {
            lines.push(format!("{} counter values that are no unsigned integer skipped", self.odd_values));
        }
        lines
    }
}

/// Reads a recording line by line.
pub struct Reader<R: Read> {
    lines: Lines<R>,
    header: Header,
    line: u64,
    bad_in_a_row: u32,
    notices: Notices,
    buffer: Vec<u8>,
    /// A line that was read ahead into the buffer.
    ahead: Option<Filled>,
    /// The line after the one in the buffer, where somebody had to know it.
    second: Option<Filled>,
    second_buffer: Vec<u8>,
    /// The time of the last observation, ns.
    last: Option<Nanos>,
    /// The line in the buffer goes on in the input.
    cut: bool,
    ended: bool,
}

impl Reader<File> {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        Self::new(File::open(path)?)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header. Compression is detected by content.
    pub fn new(input: R) -> Result<Self, RecordingError> {
        let mut reader = Self {
            lines: Lines::new(input)?,
            header: Header::default(),
            line: 0,
            bad_in_a_row: 0,
            notices: Notices::default(),
            buffer: Vec::with_capacity(4096),
            ahead: None,
            second: None,
            second_buffer: Vec::new(),
            last: None,
            cut: false,
            ended: false,
        };
        match reader.fill() {
            Ok(Filled::Line | Filled::TooLong) => {}
            Ok(Filled::Partial) if !reader.buffer.is_empty() => {}
            Ok(_) => return Err(RecordingError::Empty),
            Err(error) if reader.lines.is_compressed() && error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(RecordingError::HeaderCutOff);
            }
            Err(error) if error.kind() == io::ErrorKind::Other || error.kind() == io::ErrorKind::InvalidData => {
                return Err(RecordingError::NoHeader(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
        reader.header = parse_header(&reader.buffer)?;
        Ok(reader)
    }

    /// The recording's header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What has been skipped so far.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Hands the next observation to `take`; `None` at the end.
    pub fn next<T>(&mut self, take: impl FnOnce(&Observation<'_>) -> T) -> Result<Option<T>, RecordingError> {
        while !self.ended {
            let filled = match self.fill() {
                Ok(filled) => filled,
                Err(error) if self.lines.is_compressed() => {
                    self.ended = true;
                    self.notices.truncated = Some(self.broken_off(&error));
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            if filled == Filled::End {
                self.ended = true;
                return Ok(None);
            }
            self.ended = filled == Filled::Partial;
            if self.buffer.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let parsed = if filled == Filled::TooLong {
                Err(format!("longer than {} MiB", MAX_LINE_BYTES >> 20))
            } else if let Some(ahead_ns) = self.runs_ahead() {
                Err(format!("its time is {} s ahead of the lines around it", ahead_ns / 1_000_000_000))
            } else {
                parse_line(&self.buffer)
            };
            match parsed {
                Ok(Line::Observation { observation, unknown_fields, odd_values }) => {
                    self.notices.observations += 1;
                    self.notices.unknown_fields += u64::from(unknown_fields);
                    self.notices.odd_values += u64::from(odd_values);
                    self.bad_in_a_row = 0;
                    self.last = Some(observation.t);
                    return Ok(Some(take(&observation)));
                }
                Ok(Line::UnknownType(name)) => {
                    *self.notices.unknown_types.entry(name).or_default() += 1;
                    self.bad_in_a_row = 0;
                }
                Err(_) if filled == Filled::Partial => {
                    self.notices.truncated = Some(format!("the recording ends in the middle of line {}", self.line));
                }
                Err(message) => {
                    self.notices.bad_lines += 1;
                    self.bad_in_a_row += 1;
                    if self.bad_in_a_row > MAX_BAD_IN_A_ROW {
                        self.ended = true;
                        return Err(RecordingError::TooManyBadLines { line: self.line, message });
                    }
                    if self.notices.bad.len() < MAX_BAD_KEPT {
                        self.notices.bad.push((self.line, message));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The time of the next line, when it has one, or of the one behind it where that line runs ahead and is passed over; reads
    /// ahead. What is wrong with the line is told by [`Reader::next`].
    pub fn next_time(&mut self) -> Option<Nanos> {
        if self.ended {
            return None;
        }
        if self.ahead.is_none() {
            self.ahead = Some(self.fill().ok()?);
        }
        if self.runs_ahead().is_some() {
            return time_of(&self.second_buffer);
        }
        time_of(&self.buffer)
    }

    /// How far the time of the line in the buffer is ahead of those before and after it, ns, where that is more than a pause
    /// could be: taken for true, everything would be over that was not. What stands still and then goes on later is a pause.
    fn runs_ahead(&mut self) -> Option<Nanos> {
        let (last, t) = (self.last?, time_of(&self.buffer)?);
        let ahead = t.checked_sub(last).filter(|ahead| *ahead > MOST_AHEAD_NS)?;
        if self.second.is_none() && !self.ended {
            // An error comes again when it is this line's turn.
            self.second = self.lines.read(&mut self.second_buffer).ok();
        }
        let next = self.second.filter(|filled| *filled == Filled::Line).and_then(|_| time_of(&self.second_buffer))?;
        (next < last.saturating_add(MOST_AHEAD_NS)).then_some(ahead)
    }

    /// A damaged or cut frame: nothing after it can be decompressed. What is before a cut is good; of a damaged frame the
    /// checksum speaks for the whole, and it is read last.
    fn broken_off(&self, error: &io::Error) -> String {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return format!("the compressed stream is cut off after line {}: {error}", self.line);
        }
        let first = self.lines.frame_begins_in_line().min(self.line.max(1));
        format!(
            "the compressed stream is damaged: lines {first} to {} may be wrong, and nothing after them is read: {error}",
            self.line
        )
    }

    fn fill(&mut self) -> io::Result<Filled> {
        if let Some(filled) = self.ahead.take() {
            return Ok(filled);
        }
        if let Some(filled) = self.second.take() {
            std::mem::swap(&mut self.buffer, &mut self.second_buffer);
            self.cut = filled == Filled::TooLong;
            self.line += u64::from(filled != Filled::End);
            return Ok(filled);
        }
        // The rest of a line that is too long is passed over when somebody wants the next: the first may have no end.
        if std::mem::take(&mut self.cut) {
            self.lines.skip_rest()?;
        }
        let filled = self.lines.read(&mut self.buffer)?;
        self.cut = filled == Filled::TooLong;
        if filled != Filled::End {
            self.line += 1;
        }
        Ok(filled)
    }
}

/// The time a line says, ns.
fn time_of(line: &[u8]) -> Option<Nanos> {
    let text = std::str::from_utf8(line).ok()?;
    peek_fast(text).or_else(|| peek(text).ok()).map(|(t, _)| t)
}

fn parse_header(line: &[u8]) -> Result<Header, RecordingError> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: String,
    }
    let no_header = |what: String| RecordingError::NoHeader(what);
    // A mark of order that editors put before the first line.
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let text = std::str::from_utf8(line).map_err(|_| no_header("it is not UTF-8 text".to_owned()))?;
    let kind: Kind =
        serde_json::from_str(text).map_err(|_| no_header("it is no JSON object with a type".to_owned()))?;
    if kind.kind != "header" {
        return Err(no_header(format!("its type is {:?}", kind.kind)));
    }
    let header: Header = serde_json::from_str(text).map_err(|error| no_header(error.to_string()))?;
    if header.format != FORMAT {
        return Err(no_header(format!("its format is {:?}", header.format)));
    }
    if header.version > VERSION {
        return Err(RecordingError::NewerVersion(header.version));
    }
    Ok(header)
}

#[allow(clippy::large_enum_variant, reason = "one at a time, taken apart where it is made")]
enum Line<'a> {
    Observation { observation: Observation<'a>, unknown_fields: u32, odd_values: u32 },
    UnknownType(String),
}

fn parse_line(line: &[u8]) -> Result<Line<'_>, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let (t, kind) = match peek_fast(text) {
        Some(head) => head,
        None => peek(text)?,
    };
    if t > MAX_TIME {
        return Err(format!("the time {t} ns is beyond a century"));
    }
    let mut unknown_fields = 0;
    let body = Body::from_json(kind, text, &mut unknown_fields).map_err(|error| error.to_string())?;
    let Some(body) = body else { return Ok(Line::UnknownType(kind.to_owned())) };
    if let Body::Qp(observation::Qp { qpn, .. }) | Body::QpStats(observation::QpStats { qpn, .. }) = &body
        && *qpn > MAX_QPN
    {
        return Err(format!("the QPN {qpn} has more than 24 bits"));
    }
    let odd_values = match &body {
        Body::Counters(counters) => counters.values.odd(),
        _ => 0,
    };
    Ok(Line::Observation { observation: Observation { t, body }, unknown_fields, odd_values })
}

/// Time and type of a line that begins the way this program writes it: `{"t":N,"type":"NAME"`.
fn peek_fast(text: &str) -> Option<(Nanos, &str)> {
    let rest = text.strip_prefix("{\"t\":")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let t = rest[..digits].parse().ok()?;
    let rest = rest[digits..].strip_prefix(",\"type\":\"")?;
    let end = rest.bytes().take_while(|b| b.is_ascii_lowercase() || *b == b'_').count();
    rest[end..].starts_with('"').then_some((t, &rest[..end]))
}

/// Time and type of any line.
fn peek(text: &str) -> Result<(Nanos, &str), String> {
    #[derive(Deserialize)]
    struct Head<'a> {
        t: Option<Nanos>,
        #[serde(rename = "type", borrow)]
        kind: Option<&'a str>,
    }
    let head: Head<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let kind = head.kind.ok_or("it has no type")?;
    if kind == "header" {
        return Err("a header in the middle of the recording".to_owned());
    }
    Ok((head.t.ok_or("it has no time t")?, kind))
}

/// Writes a recording. Every line is complete; [`Writer::flush`] makes what was written readable after a crash.
pub struct Writer<W: Write> {
    output: Output<W>,
    line: Vec<u8>,
    bytes: u64,
}

enum Output<W: Write> {
    Plain(io::BufWriter<W>),
    /// The open frame, none after one could not be ended, and the bytes in it, before compression.
    Zstd(Option<zstd::Encoder<'static, W>>, u64),
}

/// A frame ends with the first line after so many bytes, before compression: its checksum says of no more than that whether
/// it is what was written.
const FRAME_BYTES: u64 = 4 << 20;

/// Begins a frame that ends with a checksum.
pub(crate) fn frame<W: Write>(output: W, level: i32) -> io::Result<zstd::Encoder<'static, W>> {
    let mut encoder = zstd::Encoder::new(output, level)?;
    encoder.include_checksum(true)?;
    Ok(encoder)
}

/// No frame is open: what failed before was told then.
fn no_frame() -> io::Error {
    io::Error::other("the compressed stream could not be gone on with")
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub fn new(output: W, compress: bool, header: &Header) -> io::Result<Self> {
        let output = if compress {
            Output::Zstd(Some(frame(output, LEVEL)?), 0)
        } else {
            Output::Plain(io::BufWriter::with_capacity(1 << 16, output))
        };
        let mut writer = Self { output, line: Vec::with_capacity(4096), bytes: 0 };
        write_header(header, &mut writer.line)?;
        writer.write_line()?;
        Ok(writer)
    }

    /// Appends one observation.
    pub fn write(&mut self, observation: &Observation<'_>) -> io::Result<()> {
        self.line.clear();
        write_observation(observation, &mut self.line)?;
        self.write_line()
    }

    /// Bytes written so far, before compression.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands everything written so far to the file, as a complete compressed block where it is compressed.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Plain(output) => output.flush(),
            Output::Zstd(output, _) => output.as_mut().ok_or_else(no_frame)?.flush(),
        }
    }

    /// Ends the file properly and gives it back.
    pub fn finish(self) -> io::Result<W> {
        match self.output {
            Output::Plain(output) => output.into_inner().map_err(io::IntoInnerError::into_error),
            Output::Zstd(output, _) => output.ok_or_else(no_frame)?.finish(),
        }
    }

    fn write_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        self.bytes += self.line.len() as u64;
        match &mut self.output {
            Output::Plain(output) => output.write_all(&self.line),
            Output::Zstd(output, bytes) => {
                if *bytes >= FRAME_BYTES {
                    let file = output.take().ok_or_else(no_frame)?.finish()?;
                    *output = Some(frame(file, LEVEL)?);
                    *bytes = 0;
                }
                *bytes += self.line.len() as u64;
                output.as_mut().ok_or_else(no_frame)?.write_all(&self.line)
            }
        }
    }
}

/// Writes the first line of a recording, without the newline.
pub fn write_header(header: &Header, line: &mut Vec<u8>) -> io::Result<()> {
    line.extend_from_slice(b"{\"type\":\"header\",");
    splice_object(line, |line| serde_json::to_writer(line, header))
}

/// Writes one observation as a line of the recording, without the newline.
pub fn write_observation(observation: &Observation<'_>, line: &mut Vec<u8>) -> io::Result<()> {
    write!(line, "{{\"t\":{},\"type\":\"{}\",", observation.t, observation.body.type_name())?;
    splice_object(line, |line| observation.body.write_json(line))
}

/// Appends a JSON object's fields to an object that is already begun in `line`.
fn splice_object(line: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) -> io::Result<()> {
    let start = line.len();
    write(line)?;
    debug_assert_eq!(line.get(start), Some(&b'{'), "a body serialises to a JSON object");
    line.remove(start);
    Ok(())
}

#[cfg(test)]
mod tests;
