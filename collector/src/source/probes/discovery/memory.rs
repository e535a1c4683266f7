//! The structures of libibverbs in a process's memory, for a process whose calls were not watched from the start.
//!
//! A context is told by what no other structure has: three pointers into the code of one file at the places of
//! `poll_cq`, `post_send` and `post_recv`, a file descriptor at 264, and all ones at 320 (`abi_compat`, which says since
//! libibverbs 1.1.4 that the context is an extended one). A QP and a CQ begin with the address of their context, and have
//! functions of their own only when they were made for the extended API.
//!
//! Only memory that no file backs is read, pages that are in memory, and no more than [`MOST_BYTES`]: nothing is swapped
//! in for it. (LP64 layout of rdma-core's `libibverbs/verbs.h`.)

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::source::verbs::maps::Mapping;
use crate::source::verbs::{FileId, Operation, Table};

/// Bytes of one process that are read at most.
pub(super) const MOST_BYTES: u64 = 256 << 20;

/// Bytes that are read at once, and what a structure needs behind its start.
const CHUNK: u64 = 1 << 20;
const LONGEST: u64 = 352;

/// A process's memory.
pub(super) trait Memory {
    /// Fills `into` from an address.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// The parts of a mapping that are in memory, from and to which address, in order.
    fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)>;
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Functions, and where they lie in the process.
    pub(super) addresses: BTreeSet<(Operation, u64)>,
    /// Everything was read that may hold a context.
    pub(super) whole: bool,
}

/// Looks for contexts, and the QPs and CQs that belong to them.
pub(super) fn search(memory: &dyn Memory, mappings: &[Mapping<'_>]) -> Found {
    let code: Vec<&Mapping<'_>> = mappings.iter().filter(|mapping| mapping.is_code()).collect();
    let mut own: Vec<&Mapping<'_>> = mappings.iter().filter(|mapping| mapping.is_own_memory()).collect();
    // The heap is where contexts are allocated; buffers, which come in large pieces, are last.
    own.sort_by_key(|mapping| (mapping.name != "[heap]", mapping.end - mapping.start));
    let mut found = Found::default();
    let mut contexts = Vec::new();
    found.whole = each(memory, &own, &mut |at, words, starts| {
        for start in 0..starts {
            // The rarest first: nearly every word is passed over by it.
            if words.get(start + ABI_COMPAT) == Some(&u64::MAX)
                && let Some(addresses) = context(&words[start..], &code)
            {
                contexts.push(at + start as u64 * 8);
                found.addresses.extend(addresses);
            }
        }
    });
    if let (Some(&first), Some(&last)) = (contexts.iter().min(), contexts.iter().max()) {
        each(memory, &own, &mut |_, words, starts| {
            for (start, word) in words[..starts].iter().enumerate() {
                if (first..=last).contains(word) && contexts.contains(word) {
                    found.addresses.extend(own_functions(&words[start..], &code));
                }
            }
        });
    }
    found
}

/// The word of a context that is all ones.
const ABI_COMPAT: usize = 320 / 8;

/// Hands over the mappings in parts: where a part lies, its words, and at how many of them a structure may start, until
/// [`MOST_BYTES`] are read. Returns whether that was everything.
fn each(memory: &dyn Memory, mappings: &[&Mapping<'_>], take: &mut dyn FnMut(u64, &[u64], usize)) -> bool {
    let mut left = MOST_BYTES;
    let mut whole = true;
    let mut bytes = vec![0; usize::try_from(CHUNK + LONGEST).unwrap_or(0)];
    let mut words = Vec::with_capacity(bytes.len() / 8);
    for (start, end) in mappings.iter().flat_map(|mapping| memory.present(mapping.start, mapping.end)) {
        let mut at = start;
        while at < end {
            if left == 0 {
                return false;
            }
            let len = (end - at).min(CHUNK + LONGEST);
            let part = &mut bytes[..usize::try_from(len).unwrap_or(0)];
            if memory.read(at, part).is_err() {
                whole = false;
                break;
            }
            left = left.saturating_sub(CHUNK.min(len));
            words.clear();
            words.extend(part.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))));
            // What starts in the overlap is seen whole with the next part.
            let starts = if len > CHUNK { usize::try_from(CHUNK / 8).unwrap_or(0) } else { words.len() };
            take(at, &words, starts);
            at += CHUNK.min(len);
        }
    }
    whole
}

/// The file whose code an address lies in.
fn file(code: &[&Mapping<'_>], address: u64) -> Option<FileId> {
    // Maps are in the order of addresses.
    let index = code.partition_point(|mapping| mapping.end <= address);
    code.get(index).filter(|mapping| mapping.holds(address)).map(|mapping| mapping.file)
}

/// The functions of a table that starts here and lie in `file`.
fn functions<'w>(
    words: &'w [u64],
    table: Table,
    code: &'w [&Mapping<'_>],
    from: FileId,
) -> impl Iterator<Item = (Operation, u64)> + 'w {
    Operation::ALL
        .iter()
        .filter(move |operation| operation.table() == table)
        .filter_map(|operation| Some((*operation, *words.get(operation.offset() / 8)?)))
        .filter(move |(_, address)| file(code, *address) == Some(from))
}

/// All of these point into the code of one file, which is returned.
fn one_file(words: &[u64], code: &[&Mapping<'_>], operations: [Operation; 3]) -> Option<FileId> {
    let [first, second, third] =
        operations.map(|operation| words.get(operation.offset() / 8).and_then(|address| file(code, *address)));
    first.filter(|_| first == second && first == third)
}

/// The functions of the context that starts here, if one does.
fn context(words: &[u64], code: &[&Mapping<'_>]) -> Option<Vec<(Operation, u64)>> {
    const DEVICE: usize = 0;
    const CMD_FD: usize = 264 / 8;
    const MOST_FD: u64 = 1 << 20;
    if *words.get(ABI_COMPAT)? != u64::MAX || words[CMD_FD] & 0xffff_ffff > MOST_FD || words[DEVICE] == 0 {
        return None;
    }
    let file = one_file(words, code, [Operation::PollCq, Operation::PostSend, Operation::PostRecv])?;
    Some(functions(words, Table::Context, code, file).collect())
}

/// The functions of the QP or CQ that starts here, if one does that has functions of its own.
fn own_functions(words: &[u64], code: &[&Mapping<'_>]) -> Vec<(Operation, u64)> {
    if is_qp(words)
        && let Some(file) = one_file(words, code, [Operation::WrStart, Operation::WrComplete, Operation::WrAbort])
    {
        return functions(words, Table::QpEx, code, file).collect();
    }
    match one_file(words, code, [Operation::StartPoll, Operation::NextPoll, Operation::EndPoll]) {
        Some(file) => functions(words, Table::CqEx, code, file).collect(),
        None => Vec::new(),
    }
}

/// What starts here can be an `ibv_qp`: number at 52, state at 56, type at 60.
fn is_qp(words: &[u64]) -> bool {
    const MOST_QPN: u64 = (1 << 24) - 1;
    const ERR: u64 = 6;
    const TYPES: [u64; 7] = [2, 3, 4, 8, 9, 10, 0xff];
    let (Some(handle), Some(state)) = (words.get(6), words.get(7)) else { return false };
    handle >> 32 <= MOST_QPN && state & 0xffff_ffff <= ERR && TYPES.contains(&(state >> 32))
}

/// Another process's memory, through `/proc`.
pub(super) struct ProcessMemory {
    memory: File,
    pages: Option<File>,
}

impl ProcessMemory {
    /// Opens it, which takes the right to trace the process (`PTRACE_MODE_ATTACH`, ptrace(2)); it is never written.
    pub(super) fn open(process: &Path) -> io::Result<Self> {
        Ok(Self { memory: File::open(process.join("mem"))?, pages: File::open(process.join("pagemap")).ok() })
    }
}

impl Memory for ProcessMemory {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(into, at)
    }

    fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        // A word for each page, whose highest bit says that it is in memory (Documentation/admin-guide/mm/pagemap.rst).
        const AT_ONCE: u64 = 4096;
        let page = rustix::param::page_size() as u64;
        let Some(pages) = &self.pages else { return vec![(start, end)] };
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut bytes = vec![0; usize::try_from(AT_ONCE * 8).unwrap_or(0)];
        let mut at = start;
        while at < end {
            let n = ((end - at) / page).min(AT_ONCE);
            let Some(part) = bytes.get_mut(..usize::try_from(n * 8).unwrap_or(0)).filter(|part| !part.is_empty())
            else {
                break;
            };
            if pages.read_exact_at(part, at / page * 8).is_err() {
                break;
            }
            for word in part.chunks_exact(8) {
                if u64::from_ne_bytes(word.try_into().expect("eight bytes")) >> 63 == 1 {
                    match parts.last_mut() {
                        Some((_, end)) if *end == at => *end += page,
                        _ => parts.push((at, at + page)),
                    }
                }
                at += page;
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::verbs::maps::mappings;

    /// A heap at 0x10000 with two pages and a hole between them; a provider's code at 0x700000.
    const MAPS: &str = "\
10000-13000 rw-p 00000000 00:00 0                                        [heap]
700000-701000 r-xp 00001000 fe:00 7                                      /usr/lib/libibverbs/libmlx5-rdmav34.so
701000-702000 rw-p 00002000 fe:00 7                                      /usr/lib/libibverbs/libmlx5-rdmav34.so
710000-711000 r-xp 00000000 fe:00 8                                      /usr/lib/libibverbs.so.1
";

    struct Pages(Vec<(u64, Vec<u64>)>);

    impl Memory for Pages {
        fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
            let (start, words) = self
                .0
                .iter()
                .find(|(start, words)| (*start..start + words.len() as u64 * 8).contains(&at))
                .expect("present");
            let skip = usize::try_from((at - start) / 8).expect("it is small");
            for (bytes, word) in into.chunks_exact_mut(8).zip(&words[skip..]) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
            Ok(())
        }

        fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
            let parts = self.0.iter().map(|(at, words)| (*at, at + words.len() as u64 * 8));
            parts.filter(|(at, _)| (start..end).contains(at)).collect()
        }
    }

    fn a_context() -> Vec<u64> {
        let mut words = vec![0; 44];
        words[0] = 0x10f00;
        for operation in [Operation::PollCq, Operation::PostSend, Operation::PostRecv] {
            words[operation.offset() / 8] = 0x70_0000 + operation.offset() as u64;
        }
        words[Operation::PostSrqRecv.offset() / 8] = 0x71_0010;
        words[264 / 8] = 9 << 32 | 8;
        words[320 / 8] = u64::MAX;
        words
    }

    fn found(pages: Vec<(u64, Vec<u64>)>) -> Vec<Operation> {
        let mappings: Vec<_> = mappings(MAPS).collect();
        let found = search(&Pages(pages), &mappings);
        assert!(found.whole);
        found.addresses.into_iter().map(|(operation, _)| operation).collect()
    }

    fn put(at: usize, what: &[u64]) -> Vec<u64> {
        let mut page = vec![0; 512];
        page[at..at + what.len()].copy_from_slice(what);
        page
    }

    #[test]
    fn a_context_is_found_wherever_it_starts() {
        for at in [0, 1, 100, 512 - 44] {
            let operations = found(vec![(0x12000, put(at, &a_context()))]);
            assert_eq!(operations, [Operation::PollCq, Operation::PostSend, Operation::PostRecv], "at word {at}");
        }
    }

    #[test]
    fn a_table_of_functions_that_is_no_context_is_not_taken_for_one() {
        // libibverbs keeps such a table on the heap beside each context.
        let table = vec![0x70_0010; 80];
        assert!(found(vec![(0x10000, put(8, &table))]).is_empty());
        let mut old = a_context();
        old[320 / 8] = 0;
        assert!(found(vec![(0x10000, put(8, &old))]).is_empty());
        let mut elsewhere = a_context();
        elsewhere[Operation::PostSend.offset() / 8] = 0x71_0000;
        assert!(found(vec![(0x10000, put(8, &elsewhere))]).is_empty());
    }

    #[test]
    fn the_functions_of_a_qp_and_a_cq_are_found_when_they_belong_to_a_context() {
        let context = a_context();
        let mut qp = vec![0; 44];
        qp[6] = 17 << 32;
        qp[7] = 2 << 32 | 3;
        for operation in [Operation::WrStart, Operation::WrComplete, Operation::WrAbort, Operation::WrSend] {
            qp[operation.offset() / 8] = 0x70_0000 + operation.offset() as u64;
        }
        let mut cq = vec![0; 32];
        for operation in [Operation::StartPoll, Operation::NextPoll, Operation::EndPoll] {
            cq[operation.offset() / 8] = 0x70_0000 + operation.offset() as u64;
        }
        let orphans = [put(0, &qp), put(50, &cq)].concat();
        assert!(found(vec![(0x10000, orphans)]).is_empty());
        (qp[0], cq[0]) = (0x12000 + 100 * 8, 0x12000 + 100 * 8);
        let operations = found(vec![(0x10000, put(0, &qp)), (0x12000, [put(100, &context), put(50, &cq)].concat())]);
        for operation in [Operation::WrStart, Operation::WrSend, Operation::StartPoll, Operation::EndPoll] {
            assert!(operations.contains(&operation), "{operation}: {operations:?}");
        }
        assert!(!operations.contains(&Operation::WrRdmaRead));
    }

    #[test]
    fn no_more_is_read_than_the_bound() {
        struct Endless;
        impl Memory for Endless {
            fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
                Ok(())
            }
            fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
                vec![(start, end)]
            }
        }
        let maps = "10000-7fff00000000 rw-p 00000000 00:00 0 ";
        let mappings: Vec<_> = mappings(maps).collect();
        assert_eq!(search(&Endless, &mappings), Found::default());
    }
}
