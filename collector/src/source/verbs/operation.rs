//! The verbs operations that can be probed: where a process keeps the pointer to each, and what its program reads.

use std::fmt;

/// A structure of libibverbs that holds pointers to a provider's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// `struct ibv_context`: one for each open device.
    Context,
    /// `struct ibv_qp_ex`: the extended API of one QP, begun by its `ibv_qp`.
    QpEx,
    /// `struct ibv_cq_ex`: the extended API of one CQ, begun by its `ibv_cq`.
    CqEx,
}

/// What is switched on and off together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// What processes ask for.
    Posts,
    /// What they are told.
    Completions,
}

/// A function's argument that arrives in a register, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arg {
    /// The first.
    Arg0,
    /// The second.
    Arg1,
    /// The third.
    Arg2,
    /// The fourth.
    Arg3,
    /// The fifth.
    Arg4,
}

use Arg::{Arg0, Arg1, Arg2, Arg3};

/// One row for each operation, so that nothing about it is said in two places.
///
/// Offsets are those of the LP64 layout of rdma-core's `libibverbs/verbs.h`, whose structures are part of its stable ABI
/// and only ever grow at their end. `reads` are the registers that have to hold the call's arguments where the program
/// is attached.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident $text:literal in $table:ident at $offset:literal, $group:ident,
       reads [$($arg:ident)*], exit $exit:expr, probed $probed:literal;)*) => {
        /// A function that processes call through a table of pointers. The name in text is that of the C field, and of
        /// the program.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name of the field and of the program.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The structure the pointer is in.
            #[must_use]
            pub const fn table(self) -> Table {
                match self { $(Self::$name => Table::$table),* }
            }

            /// Where in the structure the pointer is, in bytes.
            #[must_use]
            pub const fn offset(self) -> usize {
                match self { $(Self::$name => $offset),* }
            }

            /// What it is switched on and off with.
            #[must_use]
            pub const fn group(self) -> Group {
                match self { $(Self::$name => Group::$group),* }
            }

            /// The arguments its program reads.
            #[must_use]
            pub const fn reads(self) -> &'static [Arg] {
                match self { $(Self::$name => &[$($arg),*]),* }
            }

            /// The program for its return, if it has one.
            #[must_use]
            pub const fn exit(self) -> Option<&'static str> {
                match self { $(Self::$name => $exit),* }
            }

            /// There is meant to be a program for it. Whether the object has it is another question.
            #[must_use]
            pub const fn is_probed(self) -> bool {
                match self { $(Self::$name => $probed),* }
            }
        }
    };
}

operations! {
    /// `int poll_cq(cq, num_entries, wc)`.
    PollCq "poll_cq" in Context at 96, Completions, reads [Arg0 Arg1 Arg2], exit Some("poll_cq_return"), probed true;
    /// `int post_srq_recv(srq, recv_wr, bad_recv_wr)`.
    PostSrqRecv "post_srq_recv" in Context at 168, Posts, reads [Arg0 Arg1], exit None, probed true;
    /// `int post_send(qp, wr, bad_wr)`.
    PostSend "post_send" in Context at 208, Posts, reads [Arg0 Arg1], exit None, probed true;
    /// `int post_recv(qp, wr, bad_wr)`.
    PostRecv "post_recv" in Context at 216, Posts, reads [Arg0 Arg1], exit None, probed true;

    /// `void wr_atomic_cmp_swp(qp, rkey, remote_addr, compare, swap)`.
    WrAtomicCmpSwp "wr_atomic_cmp_swp" in QpEx at 184, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_atomic_fetch_add(qp, rkey, remote_addr, add)`.
    WrAtomicFetchAdd "wr_atomic_fetch_add" in QpEx at 192, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_bind_mw(qp, mw, rkey, bind_info)`.
    WrBindMw "wr_bind_mw" in QpEx at 200, Posts, reads [Arg0], exit None, probed false;
    /// `void wr_local_inv(qp, invalidate_rkey)`.
    WrLocalInv "wr_local_inv" in QpEx at 208, Posts, reads [Arg0], exit None, probed false;
    /// `void wr_rdma_read(qp, rkey, remote_addr)`.
    WrRdmaRead "wr_rdma_read" in QpEx at 216, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_rdma_write(qp, rkey, remote_addr)`.
    WrRdmaWrite "wr_rdma_write" in QpEx at 224, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_rdma_write_imm(qp, rkey, remote_addr, imm_data)`.
    WrRdmaWriteImm "wr_rdma_write_imm" in QpEx at 232, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_send(qp)`.
    WrSend "wr_send" in QpEx at 240, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_send_imm(qp, imm_data)`.
    WrSendImm "wr_send_imm" in QpEx at 248, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_send_inv(qp, invalidate_rkey)`.
    WrSendInv "wr_send_inv" in QpEx at 256, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_send_tso(qp, hdr, hdr_sz, mss)`.
    WrSendTso "wr_send_tso" in QpEx at 264, Posts, reads [Arg0], exit None, probed false;
    /// `void wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey)`.
    WrSetUdAddr "wr_set_ud_addr" in QpEx at 272, Posts, reads [Arg0], exit None, probed false;
    /// `void wr_set_xrc_srqn(qp, remote_srqn)`.
    WrSetXrcSrqn "wr_set_xrc_srqn" in QpEx at 280, Posts, reads [Arg0], exit None, probed false;
    /// `void wr_set_inline_data(qp, addr, length)`.
    WrSetInlineData "wr_set_inline_data" in QpEx at 288, Posts, reads [Arg0 Arg1 Arg2], exit None, probed true;
    /// `void wr_set_inline_data_list(qp, num_buf, buf_list)`.
    WrSetInlineDataList "wr_set_inline_data_list" in QpEx at 296, Posts, reads [Arg0 Arg1 Arg2], exit None, probed true;
    /// `void wr_set_sge(qp, lkey, addr, length)`.
    WrSetSge "wr_set_sge" in QpEx at 304, Posts, reads [Arg0 Arg1 Arg2 Arg3], exit None, probed true;
    /// `void wr_set_sge_list(qp, num_sge, sg_list)`.
    WrSetSgeList "wr_set_sge_list" in QpEx at 312, Posts, reads [Arg0 Arg1 Arg2], exit None, probed true;
    /// `void wr_start(qp)`.
    WrStart "wr_start" in QpEx at 320, Posts, reads [Arg0], exit None, probed true;
    /// `int wr_complete(qp)`.
    WrComplete "wr_complete" in QpEx at 328, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_abort(qp)`.
    WrAbort "wr_abort" in QpEx at 336, Posts, reads [Arg0], exit None, probed true;
    /// `void wr_atomic_write(qp, rkey, remote_addr, atomic_wr)`.
    WrAtomicWrite "wr_atomic_write" in QpEx at 344, Posts, reads [Arg0], exit None, probed true;

    /// `int start_poll(cq, attr)`.
    StartPoll "start_poll" in CqEx at 144, Completions, reads [Arg0], exit Some("start_poll_return"), probed true;
    /// `int next_poll(cq)`.
    NextPoll "next_poll" in CqEx at 152, Completions, reads [Arg0], exit Some("next_poll_return"), probed true;
    /// `void end_poll(cq)`.
    EndPoll "end_poll" in CqEx at 160, Completions, reads [Arg0], exit None, probed true;
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_stored_under_the_name_of_its_program() {
        for operation in Operation::ALL {
            let stored = serde_json::to_string(operation).expect("a unit variant is a text");
            assert_eq!(stored, format!("\"{}\"", operation.name()));
        }
    }

    #[test]
    fn every_pointer_has_a_place_of_its_own_in_its_table() {
        let mut places: Vec<_> = Operation::ALL.iter().map(|op| (op.table() as u8, op.offset())).collect();
        places.sort_unstable();
        assert!(places.iter().all(|(_, offset)| offset % 8 == 0));
        places.dedup();
        assert_eq!(places.len(), Operation::ALL.len());
    }
}
