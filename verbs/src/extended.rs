//! Where the functions of the extended interface lie: `ibv_qp_ex` and `ibv_cq_ex` are structures of pointers that the
//! provider fills in for each QP and CQ, so one of them must be made to read them. What is made is destroyed at once.

#![allow(unsafe_code, reason = "libibverbs is a C library; every call to it is unsafe, and each says why it is sound")]

use std::marker::PhantomData;
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;

use ffi::{ibv_cq_ex, ibv_qp_ex};
use ibverbs_sys as ffi;

use crate::device::{checked, none};
use crate::{Context, Error};

/// Names of functions and their addresses in this process.
pub type Functions = Vec<(&'static str, u64)>;

/// Kinds of QPs: a provider may have other functions for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Sending side of an extended reliable connection.
    XrcSend,
}

impl QpKind {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Rc, Self::Uc, Self::Ud, Self::XrcSend];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::XrcSend => "xrc_send",
        }
    }

    fn raw(self) -> ffi::ibv_qp_type::Type {
        match self {
            Self::Rc => ffi::ibv_qp_type::IBV_QPT_RC,
            Self::Uc => ffi::ibv_qp_type::IBV_QPT_UC,
            Self::Ud => ffi::ibv_qp_type::IBV_QPT_UD,
            Self::XrcSend => ffi::ibv_qp_type::IBV_QPT_XRC_SEND,
        }
    }

    /// Sets of operations to ask for, largest first: a provider refuses a set with one it does not have.
    fn sets(self) -> &'static [u64] {
        const SEND: u64 = (ffi::IBV_QP_EX_WITH_SEND | ffi::IBV_QP_EX_WITH_SEND_WITH_IMM) as u64;
        const WRITE: u64 = SEND | (ffi::IBV_QP_EX_WITH_RDMA_WRITE | ffi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) as u64;
        const READ: u64 = WRITE
            | (ffi::IBV_QP_EX_WITH_RDMA_READ
                | ffi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                | ffi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) as u64;
        const WINDOWS: u64 = READ
            | (ffi::IBV_QP_EX_WITH_LOCAL_INV | ffi::IBV_QP_EX_WITH_BIND_MW | ffi::IBV_QP_EX_WITH_SEND_WITH_INV) as u64;
        const NEWEST: u64 = WINDOWS | (ffi::IBV_QP_EX_WITH_FLUSH | ffi::IBV_QP_EX_WITH_ATOMIC_WRITE) as u64;
        const OFFLOAD: u64 = SEND | (ffi::IBV_QP_EX_WITH_TSO as u64);
        match self {
            Self::Rc | Self::XrcSend => &[NEWEST, WINDOWS, READ, WRITE],
            Self::Uc => &[WRITE, SEND],
            Self::Ud => &[OFFLOAD, SEND],
        }
    }
}

// Where the stable interface of rdma-core has them on a 64-bit machine.
const _: () = assert!(
    offset_of!(ibv_qp_ex, wr_atomic_cmp_swp) == 184
        && offset_of!(ibv_qp_ex, wr_send) == 240
        && offset_of!(ibv_qp_ex, wr_abort) == 336
        && offset_of!(ibv_qp_ex, wr_flush) == 352
        && offset_of!(ibv_cq_ex, start_poll) == 144
        && offset_of!(ibv_cq_ex, end_poll) == 160
);

macro_rules! functions {
    ($type:ty: $($name:ident)*) => { &[$((stringify!($name), offset_of!($type, $name))),*] };
}

/// The functions of a QP, and where their pointers are.
const OF_QP: &[(&str, usize)] = functions!(ibv_qp_ex:
    wr_atomic_cmp_swp wr_atomic_fetch_add wr_bind_mw wr_local_inv wr_rdma_read wr_rdma_write wr_rdma_write_imm
    wr_send wr_send_imm wr_send_inv wr_send_tso wr_set_ud_addr wr_set_xrc_srqn wr_set_inline_data
    wr_set_inline_data_list wr_set_sge wr_set_sge_list wr_start wr_complete wr_abort);
/// The newer ones (rdma-core 44): behind the end of the structure of an older library, so only read where the QP was made
/// with them.
const OF_NEWEST_QP: &[(&str, usize)] = functions!(ibv_qp_ex: wr_atomic_write wr_flush);
/// The functions of a CQ.
const OF_CQ: &[(&str, usize)] = functions!(ibv_cq_ex: start_poll next_poll end_poll);

/// The part of `verbs_context` (rdma-core, verbs.h) that lies before the `ibv_context` everybody has. It grows at its
/// start, so places are counted from its end, and `sz` says how much there is.
#[repr(C)]
struct Before {
    create_cq_ex: Option<CreateCq>,
    between: [usize; 7],
    create_qp_ex: Option<CreateQp>,
    not_used: [usize; 5],
    sz: usize,
}
type CreateCq = unsafe extern "C" fn(*mut ffi::ibv_context, *mut ffi::ibv_cq_init_attr_ex) -> *mut ffi::ibv_cq_ex;
type CreateQp = unsafe extern "C" fn(*mut ffi::ibv_context, *mut ffi::ibv_qp_init_attr_ex) -> *mut ffi::ibv_qp;

/// What `abi_compat` is of a context that has that part.
const IS_EXTENDED: usize = usize::MAX;

const _: () = assert!(size_of::<Before>() == 120 && offset_of!(Before, create_qp_ex) == 120 - 56);

impl Context {
    fn before(&self) -> Result<&Before, Error> {
        let raw = self.raw();
        // SAFETY: the context is open; where `abi_compat` says so it is the end of a larger structure, of which at least
        // `sz` is there.
        unsafe {
            if (*raw).abi_compat.addr() != IS_EXTENDED {
                return Err(Error::NoFunction("extended interface"));
            }
            let sz = *raw.cast::<usize>().sub(1);
            if sz < size_of::<Before>() + size_of::<ffi::ibv_context>() {
                return Err(Error::NoFunction("create_cq_ex"));
            }
            Ok(&*raw.cast::<Before>().sub(1))
        }
    }
}

/// What is made on the way and destroyed on the way back, while the context is open.
struct Made<'c> {
    context: PhantomData<&'c Context>,
    pd: Option<NonNull<ffi::ibv_pd>>,
    cq: Option<NonNull<ffi::ibv_cq>>,
    qp: Option<NonNull<ffi::ibv_qp>>,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // SAFETY: each was made by its counterpart, in the reverse order, and is not used again.
        unsafe {
            self.qp.map(|qp| ffi::ibv_destroy_qp(qp.as_ptr()));
            self.cq.map(|cq| ffi::ibv_destroy_cq(cq.as_ptr()));
            self.pd.map(|pd| ffi::ibv_dealloc_pd(pd.as_ptr()));
        }
    }
}

impl<'c> Made<'c> {
    fn nothing(_: &'c Context) -> Self {
        Self { context: PhantomData, pd: None, cq: None, qp: None }
    }
}

/// Makes a QP of the extended interface and reads its functions.
///
/// # Errors
/// The call that failed: `EOPNOTSUPP` where device or provider have no such QP.
pub fn qp_functions(context: &Context, kind: QpKind) -> Result<Functions, Error> {
    let create = context.before()?.create_qp_ex.ok_or(Error::NoFunction("create_qp_ex"))?;
    let mut made = Made::nothing(context);
    // SAFETY: the context is open; what is made is destroyed before it is closed.
    let (pd, cq) = unsafe {
        let pd = checked("ibv_alloc_pd", ffi::ibv_alloc_pd(context.raw()))?;
        made.pd = Some(pd);
        (pd, checked("ibv_create_cq", ffi::ibv_create_cq(context.raw(), 2, none(), none(), 0))?)
    };
    made.cq = Some(cq);
    let mut refused = Error::NoFunction("create_qp_ex");
    for set in kind.sets() {
        let mut attributes = ffi::ibv_qp_init_attr_ex {
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            qp_type: kind.raw(),
            cap: ffi::ibv_qp_cap {
                max_send_wr: 1,
                // The sending side of an XRC connection receives nothing.
                max_recv_wr: u32::from(kind != QpKind::XrcSend),
                max_send_sge: 1,
                max_recv_sge: u32::from(kind != QpKind::XrcSend),
                max_inline_data: 0,
            },
            comp_mask: ffi::IBV_QP_INIT_ATTR_PD | ffi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            pd: pd.as_ptr(),
            send_ops_flags: *set,
            ..Default::default()
        };
        if set & u64::from(ffi::IBV_QP_EX_WITH_TSO) != 0 {
            attributes.comp_mask |= ffi::IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
            attributes.max_tso_header = 64;
        }
        // SAFETY: context, protection domain and completion queue are alive.
        let qp = unsafe { create(context.raw(), &raw mut attributes) };
        match checked("create_qp_ex", qp) {
            Ok(qp) => {
                made.qp = Some(qp);
                // SAFETY: the QP is alive; the library gives null for one that has no extended part.
                let extended = unsafe { ffi::ibv_qp_to_qp_ex(qp.as_ptr()) };
                let extended = NonNull::new(extended).ok_or(Error::NoFunction("ibv_qp_ex"))?;
                let mut functions = read(extended.cast(), OF_QP);
                if set & u64::from(ffi::IBV_QP_EX_WITH_FLUSH) != 0 {
                    functions.extend(read(extended.cast(), OF_NEWEST_QP));
                }
                return Ok(functions);
            }
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// Makes a CQ of the extended interface and reads its functions. Providers have others for one that only one thread polls.
///
/// # Errors
/// The call that failed: `EOPNOTSUPP` where the provider has no such CQ.
pub fn cq_functions(context: &Context, single_threaded: bool) -> Result<Functions, Error> {
    let create = context.before()?.create_cq_ex.ok_or(Error::NoFunction("create_cq_ex"))?;
    let mut attributes = ffi::ibv_cq_init_attr_ex { cqe: 2, ..Default::default() };
    if single_threaded {
        attributes.comp_mask = ffi::IBV_CQ_INIT_ATTR_MASK_FLAGS;
        attributes.flags = ffi::IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    }
    // SAFETY: the context is open.
    let cq = checked("create_cq_ex", unsafe { create(context.raw(), &raw mut attributes) })?;
    let mut made = Made::nothing(context);
    // An extended CQ begins like the other kind, and is destroyed like it.
    made.cq = Some(cq.cast());
    Ok(read(cq.cast(), OF_CQ))
}

/// The functions of a structure that is alive; those that are not there are left out.
fn read(structure: NonNull<u8>, functions: &[(&'static str, usize)]) -> Functions {
    let address = |offset: usize| {
        // SAFETY: callers pass the structure the offsets belong to, alive; they are offsets of pointers.
        unsafe { structure.add(offset).cast::<u64>().read_unaligned() }
    };
    functions.iter().map(|(name, offset)| (*name, address(*offset))).filter(|(_, address)| *address != 0).collect()
}
