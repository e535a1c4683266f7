//! What a process told of its provider when it made or changed a QP: the addresses of the functions it uses.

use std::ptr;

use collector_ebpf::event::{CONTEXT_OPERATIONS, CQ_EX_OPERATIONS, Learned, QP_EX_OPERATIONS, kind};

use crate::source::verbs::{Operation, Table};

/// A record's bytes as what a process told of its provider; `None` when they are another record.
pub(super) fn read(bytes: &[u8]) -> Option<Learned> {
    let at = std::mem::offset_of!(Learned, kind);
    let kind = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes)?;
    if kind != kind::LEARNED || bytes.len() < size_of::<Learned>() {
        return None;
    }
    #[allow(unsafe_code, reason = "the record was written by our own program as a `Learned`")]
    // SAFETY: there are enough bytes, and a `Learned` is integers only: any bytes are valid.
    Some(unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<Learned>()) })
}

/// The operations a process was seen to use, with their addresses in it.
pub(super) fn addresses(learned: &Learned) -> Vec<(Operation, u64)> {
    let table = |table: Table, first: usize, pointers: &[u64]| {
        let at = |operation: Operation| pointers.get(operation.offset().checked_sub(first)? / 8).copied();
        let all = Operation::ALL.iter().filter(|operation| operation.table() == table);
        all.filter_map(|operation| Some((*operation, at(*operation)?))).collect::<Vec<_>>()
    };
    let context =
        Operation::ALL.iter().filter(|operation| operation.table() == Table::Context).filter_map(|operation| {
            let at = CONTEXT_OPERATIONS.iter().position(|offset| *offset == operation.offset())?;
            Some((*operation, *learned.context.get(at)?))
        });
    let mut all: Vec<(Operation, u64)> = context.collect();
    all.append(&mut table(Table::QpEx, QP_EX_OPERATIONS, &learned.qp_ex));
    all.append(&mut table(Table::CqEx, CQ_EX_OPERATIONS, &learned.send_cq_ex));
    all.append(&mut table(Table::CqEx, CQ_EX_OPERATIONS, &learned.recv_cq_ex));
    all
}
