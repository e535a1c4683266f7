//! Where the functions of an ELF file begin, by the table of frames that is there for exceptions and is kept in stripped
//! files.
//!
//! Not every frame is a function: a part that the compiler moved away (`.cold`) and the stubs for functions of other
//! libraries have frames, too. Theirs say at once that something lies on the stack above the return address, or that there
//! is none; a probe of the return would write over it. (Linux Standard Base, Core, "Exception Frames"; DWARF 5, 6.4.)

use super::elf::{Elf, u32_at};

/// Bytes of a description of frames that are read.
const MOST_OF_ONE: u64 = 96;

/// The bytes before the first pair of the table, and of each pair.
const HEADER: u64 = 12;
const PAIR: u64 = 8;

/// Whether a function begins at an address; `None` when there is no table that can be searched.
pub(super) fn begins(elf: &Elf<'_>, address: u64) -> Option<bool> {
    let (table, count) = table(elf)?;
    // The table is in the order of addresses.
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        let (begin, frame) = pair(elf, table, middle)?;
        match begin.cmp(&address) {
            std::cmp::Ordering::Equal => return Some(is_whole(elf, frame).unwrap_or(false)),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Some(false)
}

/// Where the table lies, and how many pairs it has.
fn table(elf: &Elf<'_>) -> Option<(u64, u64)> {
    /// Version 1; the count in 4 bytes (0x03); pairs of 4 bytes with a sign, relative to the table (0x3b).
    const FORM: [u8; 3] = [1, 0x03, 0x3b];
    let (table, size) = elf.frames()?;
    let header = elf.at(table, HEADER)?;
    let form = [*header.first()?, *header.get(2)?, *header.get(3)?];
    let count = u64::from(u32_at(&header, 8)?).min(size.saturating_sub(HEADER) / PAIR);
    (form == FORM).then_some((table, count))
}

/// Where a frame begins, and where it is described.
fn pair(elf: &Elf<'_>, table: u64, n: u64) -> Option<(u64, u64)> {
    let pair = elf.at(table.checked_add(HEADER + n * PAIR)?, PAIR)?;
    let at = |at| table.checked_add_signed(i64::from(u32_at(&pair, at)?.cast_signed()));
    Some((at(0)?, at(4)?))
}

/// The frame is the one of a function that was called just now: nothing is said of it before its first instruction ran.
fn is_whole(elf: &Elf<'_>, frame: u64) -> Option<bool> {
    let text = elf.at(frame, MOST_OF_ONE)?;
    let mut frame_text = Text(entry(&text)?);
    let back = frame_text.word()?;
    let common = elf.at(frame.checked_add(4)?.checked_sub(u64::from(back))?, MOST_OF_ONE)?;
    if !is_plain(Text(entry(&common)?))? {
        return Some(false);
    }
    // Where it begins and its length, in four bytes each, and what is for the language.
    let (_, _, extra) = (frame_text.word()?, frame_text.word()?, frame_text.number()?);
    frame_text.skip(extra)?;
    // DW_CFA_nop fills up; DW_CFA_advance_loc and its longer forms say that what follows holds later.
    Some(frame_text.0.first().is_none_or(|first| matches!(first, 0 | 0x40..=0x7f | 0x02..=0x04)))
}

/// What several frames have in common says that their places are given in four bytes, and that they are no signal's.
fn is_plain(mut common: Text<'_>) -> Option<bool> {
    /// Of how a place is given: its size.
    const SIZE: u8 = 0x0f;
    let (id, version) = (common.word()?, common.byte()?);
    let mut letters = Vec::new();
    loop {
        match common.byte()? {
            0 => break,
            letter => letters.push(letter),
        }
    }
    // Units of code and data, the register of the return address, how much follows.
    let (_, _, _, _) = (common.number()?, common.number()?, common.number()?, common.number()?);
    let mut four = false;
    for letter in letters.iter().skip(1) {
        match letter {
            b'R' => four = matches!(common.byte()? & SIZE, 0x03 | 0x0b),
            b'L' => common.skip(1)?,
            b'P' => {
                let size = match common.byte()? & SIZE {
                    0x02 | 0x0a => 2,
                    0x03 | 0x0b => 4,
                    _ => 8,
                };
                common.skip(size)?;
            }
            // What arm64 marks its keys with.
            b'B' | b'G' => {}
            _ => return Some(false),
        }
    }
    Some(id == 0 && version == 1 && letters.first() == Some(&b'z') && four)
}

/// What follows the length of an entry, as far as it was read.
fn entry(text: &[u8]) -> Option<&[u8]> {
    let len = usize::try_from(u32_at(text, 0)?).ok()?;
    let rest = text.get(4..)?;
    // An entry of no length ends all; 0xffffffff begins one of more than 4 GiB.
    (len != 0 && len != 0xffff_ffff).then(|| rest.get(..len).unwrap_or(rest))
}

/// Bytes that are read from the front.
struct Text<'t>(&'t [u8]);

impl Text<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u32> {
        let word = u32_at(self.0, 0)?;
        self.skip(4)?;
        Some(word)
    }

    /// A number of as many bytes as it needs (LEB128); what is above 28 bits is none that is met.
    fn number(&mut self) -> Option<usize> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, n: usize) -> Option<()> {
        self.0 = self.0.get(n..)?;
        Some(())
    }
}

/// Where each frame begins.
#[cfg(test)]
pub(super) fn all(elf: &Elf<'_>) -> Vec<u64> {
    let (table, count) = table(elf).expect("it has a table");
    (0..count).filter_map(|n| Some(pair(elf, table, n)?.0)).collect()
}
