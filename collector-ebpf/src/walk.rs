//! The walk along a list of work requests in a process's memory.
//!
//! One [`Walk::step`] reads one work request with its first scatter/gather element, or one further element: a walk is
//! a flat loop, so that the kernel verifies one step and not their product. It is bounded in three ways, none of them
//! silent: work requests beyond [`FULL_STEPS`] and work requests with more than [`MAX_SGES`] elements are counted as
//! truncated, and a list that cannot be read to its end counts as unread.

use crate::batch::Built;

/// Size of the part of `ibv_send_wr` that a step reads, from `wr_id` (0) to the end of `send_flags` (36).
pub const REQUEST_LEN: usize = 36;

/// Steps in which work requests are counted; what follows is only counted as truncated. An RC send queue holds 32,768
/// work requests at most on the hardware of today, and lists are far shorter than queues.
pub const FULL_STEPS: u32 = 8192;

/// Steps in all. A list that is longer (or has no end) is left here, so a lower bound of it is counted as truncated.
pub const ALL_STEPS: u32 = 40_960;

/// Elements of one work request that are added up; devices allow 30 at most today (`max_sge`).
pub const MAX_SGES: u32 = 64;

/// Size of `ibv_sge`.
const SGE_LEN: u64 = 16;

/// The fields of an `ibv_send_wr` that are counted (LP64 layout of rdma-core's verbs.h, unchanged since its first release).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request {
    /// The number its completion will carry.
    pub wr_id: u64,
    /// Address of the next work request, or 0.
    pub next: u64,
    /// Address of the first scatter/gather element.
    pub sg_list: u64,
    /// Number of elements.
    pub num_sge: u32,
    /// `enum ibv_wr_opcode`.
    pub opcode: u32,
    /// `enum ibv_send_flags`.
    pub send_flags: u32,
    /// Fills the structure; not read.
    pub reserved: u32,
}

/// The memory of the process that posts.
pub trait Memory {
    /// The work request at an address.
    fn request(&self, at: u64) -> Option<Request>;
    /// The length in the scatter/gather element at an address.
    fn sge_length(&self, at: u64) -> Option<u32>;
    /// Takes one whole work request.
    fn take(&self, request: &Built);
}

/// What the walk found.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Work requests.
    pub wrs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Work requests that are in none of the other numbers.
    pub truncated: u64,
    /// 1 when the list could not be read to its end.
    pub unread: u64,
}

/// A walk on its way.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    /// The sum of the work requests seen to their end.
    pub found: Found,
    /// The next work request, or 0.
    wr: u64,
    wr_id: u64,
    /// The next element of the present work request.
    sge: u64,
    /// Bytes of the present work request so far.
    bytes: u64,
    /// Elements of the present work request that are still to be read.
    left: u32,
    opcode: u32,
    send_flags: u32,
    steps: u32,
}

impl Walk {
    /// Begins at the first work request of a list. `zero` is 0 and comes from where the kernel's verifier cannot know it.
    ///
    /// Before 6.7 the verifier looks at a `bpf_loop` callback only as it is called first, and takes out of the program what
    /// cannot be reached then: with a 0 that it knows, every step but the first of a work request.
    #[must_use]
    pub const fn new(wr: u64, zero: u32) -> Self {
        // Constants would be set byte by byte: by a call of `memset`.
        let wide = zero as u64;
        Self {
            found: Found { wrs: wide, bytes: wide, truncated: wide, unread: wide },
            wr,
            wr_id: wide,
            sge: wide,
            bytes: wide,
            left: zero,
            opcode: zero,
            send_flags: zero,
            steps: zero,
        }
    }

    /// Steps beyond the first: what the walk took beside what every post takes.
    #[must_use]
    pub const fn more_steps(&self) -> u64 {
        self.steps.saturating_sub(1) as u64
    }

    /// Goes one step on; `false` at the end of the list.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "one function for the verifier: a pointer into the stack stays known")]
    pub fn step<M: Memory>(&mut self, memory: &M) -> bool {
        self.steps += 1;
        if self.left == 0 {
            if self.wr == 0 {
                return false;
            }
            let Some(request) = memory.request(self.wr) else { return self.unread() };
            self.wr = request.next;
            if self.steps > FULL_STEPS || request.num_sge > MAX_SGES {
                self.found.truncated += 1;
                return self.wr != 0;
            }
            self.bytes = 0;
            self.wr_id = request.wr_id;
            self.sge = request.sg_list;
            self.left = request.num_sge;
            self.opcode = request.opcode;
            self.send_flags = request.send_flags;
        }
        if self.left != 0 {
            let Some(length) = memory.sge_length(self.sge) else { return self.unread() };
            self.bytes += u64::from(length);
            self.sge = self.sge.wrapping_add(SGE_LEN);
            self.left -= 1;
        }
        if self.left == 0 {
            self.found.wrs += 1;
            self.found.bytes += self.bytes;
            let (opcode, flags) = (self.opcode, self.send_flags);
            memory.take(&Built { wr_id: self.wr_id, bytes: self.bytes, opcode, flags });
        }
        self.left != 0 || self.wr != 0
    }

    fn unread(&mut self) -> bool {
        self.found.unread = 1;
        self.left = 0;
        self.wr = 0;
        false
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::vec::Vec;

    use super::*;

    #[derive(Default)]
    struct Process {
        requests: HashMap<u64, Request>,
        lengths: HashMap<u64, u32>,
        taken: RefCell<Vec<Built>>,
    }

    impl Memory for Process {
        fn request(&self, at: u64) -> Option<Request> {
            self.requests.get(&at).copied()
        }
        fn sge_length(&self, at: u64) -> Option<u32> {
            self.lengths.get(&at).copied()
        }
        fn take(&self, request: &Built) {
            self.taken.borrow_mut().push(*request);
        }
    }

    impl Process {
        /// A list at 0x1000, 0x1100, …, each work request with these element lengths.
        fn list(requests: &[(&[u32], u32, u32)]) -> Self {
            let mut process = Self::default();
            for (i, (lengths, opcode, send_flags)) in requests.iter().enumerate() {
                let at = 0x1000 + 0x100 * i as u64;
                let sg_list = 0x10_0000 + 0x1_0000 * i as u64;
                for (j, length) in lengths.iter().enumerate() {
                    process.lengths.insert(sg_list + 16 * j as u64, *length);
                }
                let next = if i + 1 == requests.len() { 0 } else { at + 0x100 };
                let num_sge = u32::try_from(lengths.len()).expect("a short list");
                let (opcode, send_flags) = (*opcode, *send_flags);
                let request = Request { wr_id: i as u64, next, sg_list, num_sge, opcode, send_flags, reserved: 0 };
                process.requests.insert(at, request);
            }
            process
        }

        fn walk(&self) -> Found {
            let mut walk = Walk::new(0x1000, 0);
            let mut steps = 0;
            while steps < ALL_STEPS && walk.step(self) {
                steps += 1;
            }
            walk.found
        }
    }

    #[test]
    fn a_list_is_added_up() {
        let process = Process::list(&[(&[4096], 0, 2), (&[], 2, 0), (&[1, 2, 3], 4, 2 | 8)]);
        assert_eq!(process.walk(), Found { wrs: 3, bytes: 4102, truncated: 0, unread: 0 });
        let built = |wr_id, bytes, opcode, flags| Built { wr_id, bytes, opcode, flags };
        assert_eq!(*process.taken.borrow(), [built(0, 4096, 0, 2), built(1, 0, 2, 0), built(2, 6, 4, 2 | 8)]);
    }

    #[test]
    fn an_empty_list_has_nothing() {
        let mut walk = Walk::new(0, 0);
        assert!(!walk.step(&Process::default()));
        assert_eq!(walk.found, Found::default());
    }

    #[test]
    fn a_request_with_too_many_elements_is_truncated_and_the_next_one_counted() {
        let many = [1; MAX_SGES as usize + 1];
        let process = Process::list(&[(&many, 0, 2), (&many[1..], 0, 0)]);
        assert_eq!(process.walk(), Found { wrs: 1, bytes: 64, truncated: 1, unread: 0 });
        assert_eq!(process.taken.borrow().len(), 1);
    }

    #[test]
    fn a_negative_element_count_is_truncated() {
        let mut process = Process::list(&[(&[1], 0, 0)]);
        process.requests.get_mut(&0x1000).expect("the request is there").num_sge = u32::MAX;
        assert_eq!(process.walk(), Found { truncated: 1, ..Found::default() });
    }

    #[test]
    fn what_cannot_be_read_is_counted_and_what_came_before_is_kept() {
        let mut process = Process::list(&[(&[10], 0, 0), (&[20, 30], 0, 0), (&[40], 0, 0)]);
        process.lengths.remove(&(0x10_0000 + 0x1_0000 + 16));
        assert_eq!(process.walk(), Found { wrs: 1, bytes: 10, unread: 1, ..Found::default() });
        process.requests.remove(&0x1000);
        assert_eq!(process.walk(), Found { unread: 1, ..Found::default() });
    }

    #[test]
    fn requests_beyond_the_bound_are_counted_as_truncated() {
        let n = FULL_STEPS as usize + 10;
        let process = Process::list(&std::vec![(&[7_u32][..], 0, 0); n]);
        let found = process.walk();
        assert_eq!((found.wrs, found.truncated, found.unread), (u64::from(FULL_STEPS), 10, 0));
        assert_eq!(found.bytes, 7 * u64::from(FULL_STEPS));
    }

    #[test]
    fn a_list_without_an_end_is_left_at_the_bound() {
        let mut process = Process::list(&[(&[7], 0, 0)]);
        process.requests.get_mut(&0x1000).expect("the request is there").next = 0x1000;
        let found = process.walk();
        assert_eq!(found.wrs + found.truncated, u64::from(ALL_STEPS));
        assert_eq!(found.wrs, u64::from(FULL_STEPS));
    }
}
