//! The lines of a recording, plain or compressed with zstd or gzip: which one is told by content.

use std::io::{self, BufRead, BufReader, Read};

/// A longer line is a bad line: no observation comes near it, and a foreign file may be one endless line.
pub(super) const MAX_LINE_BYTES: u64 = 16 << 20;
/// The first four bytes of a zstd frame (RFC 8878, section 3.1.1), little-endian 0xFD2FB528.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The first two bytes of a gzip member (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// A whole line.
    Line,
    /// The beginning of a line longer than [`MAX_LINE_BYTES`].
    TooLong,
    /// The file's end without a newline.
    Partial,
    /// Nothing more.
    End,
}

/// The input with the bytes put back that told whether it is compressed.
type Whole<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

/// Lines of a plain or compressed input.
pub(super) enum Lines<R: Read> {
    Plain(BufReader<Whole<R>>),
    Zstd(BufReader<Once<Frames<BufReader<Whole<R>>>>>),
    Gzip(BufReader<Once<flate2::bufread::MultiGzDecoder<BufReader<Whole<R>>>>>),
}

/// An input that fails once and then for good, in the same words: what a decoder says after an error is not said.
pub(super) struct Once<R> {
    input: R,
    failed: Option<(io::ErrorKind, String)>,
}

impl<R> Once<R> {
    fn new(input: R) -> Self {
        Self { input, failed: None }
    }
}

impl<R: Read> Read for Once<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some((kind, words)) = &self.failed {
            return Err(io::Error::new(*kind, words.clone()));
        }
        let read = self.input.read(buf);
        if let Err(error) = &read
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.failed = Some((error.kind(), error.to_string()));
        }
        read
    }
}

/// The text of zstd frames, one after the other, and where the one that is read began.
pub(super) struct Frames<R: BufRead> {
    /// None after the last.
    decoder: Option<zstd::Decoder<'static, R>>,
    /// Newlines before this frame, and up to here.
    newlines: (u64, u64),
}

impl<R: BufRead> Frames<R> {
    fn new(input: R) -> io::Result<Self> {
        Ok(Self { decoder: Some(zstd::Decoder::with_buffer(input)?.single_frame()), newlines: (0, 0) })
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let n = decoder.read(buf)?;
            if n > 0 || buf.is_empty() {
                self.newlines.1 += buf[..n].iter().map(|byte| u64::from(*byte == b'\n')).sum::<u64>();
                return Ok(n);
            }
            let Some(mut input) = self.decoder.take().map(zstd::Decoder::finish) else { break };
            if !input.fill_buf()?.is_empty() {
                self.decoder = Some(zstd::Decoder::with_buffer(input)?.single_frame());
                self.newlines.0 = self.newlines.1;
            }
        }
        Ok(0)
    }
}

impl<R: Read> Lines<R> {
    pub(super) fn new(mut input: R) -> io::Result<Self> {
        let mut start = Vec::with_capacity(4);
        input.by_ref().take(4).read_to_end(&mut start)?;
        let (zstd, gzip) = (start == ZSTD_MAGIC, start.starts_with(&GZIP_MAGIC));
        let whole = io::Cursor::new(start).chain(input);
        Ok(if zstd {
            let frames = Frames::new(BufReader::with_capacity(1 << 17, whole))?;
            Self::Zstd(BufReader::with_capacity(1 << 16, Once::new(frames)))
        } else if gzip {
            let decoder = flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole));
            Self::Gzip(BufReader::with_capacity(1 << 16, Once::new(decoder)))
        } else {
            Self::Plain(BufReader::with_capacity(1 << 16, whole))
        })
    }

    pub(super) fn is_compressed(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// The line in which the frame begins that is being read; the first where frames are not told apart.
    pub(super) fn frame_begins_in_line(&self) -> u64 {
        match self {
            Self::Zstd(input) => input.get_ref().input.newlines.0 + 1,
            Self::Plain(_) | Self::Gzip(_) => 1,
        }
    }

    pub(super) fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<Filled> {
        match self {
            Self::Plain(input) => read_line(input, buffer),
            Self::Zstd(input) => read_line(input, buffer),
            Self::Gzip(input) => read_line(input, buffer),
        }
    }

    /// Passes over what is left of a line.
    pub(super) fn skip_rest(&mut self) -> io::Result<usize> {
        match self {
            Self::Plain(input) => input.skip_until(b'\n'),
            Self::Zstd(input) => input.skip_until(b'\n'),
            Self::Gzip(input) => input.skip_until(b'\n'),
        }
    }
}

fn read_line(input: &mut impl BufRead, buffer: &mut Vec<u8>) -> io::Result<Filled> {
    buffer.clear();
    let n = input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', buffer)?;
    if n == 0 {
        return Ok(Filled::End);
    }
    if buffer.last() == Some(&b'\n') {
        return Ok(Filled::Line);
    }
    if (n as u64) < MAX_LINE_BYTES {
        return Ok(Filled::Partial);
    }
    Ok(Filled::TooLong)
}
