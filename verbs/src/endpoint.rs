//! One end of a reliable connection (RC): a QP with its protection domain, completion queue and memory.

#![allow(unsafe_code, reason = "libibverbs is a C library; every call to it is unsafe, and each says why it is sound")]

use std::ffi::{CStr, c_int};
use std::ptr::{self, NonNull};

use ffi::{ibv_qp_attr_mask as mask, ibv_qp_state as state};
use ibverbs_sys as ffi;

use crate::device::{checked, none};
use crate::{Context, Error, Port};
use collector::source::files::RootedFiles;
use collector::source::loopback::gid;
use collector::source::sysfs::gid::read;

/// Work requests a QP can receive; none is sent to it.
const RECEIVES: u32 = 1;
/// Completions taken at once.
const BATCH: usize = 16;

/// One end. What it is made of is destroyed with it.
pub struct Endpoint {
    qp: Option<NonNull<ffi::ibv_qp>>,
    mr: NonNull<ffi::ibv_mr>,
    cq: NonNull<ffi::ibv_cq>,
    pd: NonNull<ffi::ibv_pd>,
    memory: NonNull<[u8]>,
    port: u8,
    attributes: Port,
    /// The entry of the port's table that is used, on Ethernet or where the port has no LID.
    gid: Option<(u8, ffi::ibv_gid)>,
    /// Last: it is closed after everything in it is destroyed.
    context: Context,
}

/// Where an end is found.
#[derive(Clone, Copy)]
pub struct Address {
    qpn: u32,
    lid: u16,
    gid: Option<ffi::ibv_gid>,
}

/// Memory of an end that the other one may write to.
#[derive(Debug, Clone, Copy)]
pub struct Remote {
    address: u64,
    rkey: u32,
}

/// How long a connection waits, and how often it tries again.
#[derive(Debug, Clone, Copy)]
pub struct Timers {
    /// Exponent of the local ACK timeout: 4.096 µs · 2^timeout; 0 is for ever.
    pub timeout: u8,
    /// Times a request is sent again, 0–7. Software RDMA (rxe) takes 7 as for ever.
    pub retry: u8,
}

/// States an end can be moved to besides those on the way to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The send queue is drained.
    Sqd,
    /// The error state: everything posted is flushed.
    Err,
}

impl Endpoint {
    /// Makes everything but the QP on a port: `bytes` of memory, room for `depth` work requests at once. On Ethernet the
    /// `nth` best GID is used, from 0; after the last it is the first again.
    ///
    /// # Errors
    /// The call that failed. [`Error::NoGid`] on Ethernet without an address.
    pub fn open(context: &Context, port: u8, bytes: usize, depth: u32, nth: usize) -> Result<Self, Error> {
        let attributes = context.port(port)?;
        let gid = match gid_index(context, port, attributes, nth)? {
            Some(index) => Some((index, context.gid(port, index)?)),
            None => None,
        };
        // Everything that is posted may come back before anybody looks. A device refuses what it has no room for.
        let completions = c_int::try_from(depth.saturating_add(RECEIVES)).map_err(|_| Error::TooLarge("depth"))?;
        let access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        let access = c_int::try_from(access.0).map_err(|_| Error::TooLarge("access"))?;
        // SAFETY: the context is open as long as its clone is held; each pointer is checked before it is used. What was
        // made before a failure is destroyed here, for there is no `Endpoint` yet that would.
        unsafe {
            let pd = checked("ibv_alloc_pd", ffi::ibv_alloc_pd(context.raw()))?;
            let cq = ffi::ibv_create_cq(context.raw(), completions, none(), none(), 0);
            let cq = checked("ibv_create_cq", cq).inspect_err(|_| {
                ffi::ibv_dealloc_pd(pd.as_ptr());
            })?;
            let memory = Box::into_raw(vec![1u8; bytes].into_boxed_slice());
            // The device writes to it: from here on there is no reference to it, only its address.
            let mr = ffi::ibv_reg_mr(pd.as_ptr(), memory.cast(), bytes, access);
            let mr = checked("ibv_reg_mr", mr).inspect_err(|_| {
                ffi::ibv_destroy_cq(cq.as_ptr());
                ffi::ibv_dealloc_pd(pd.as_ptr());
                drop(Box::from_raw(memory));
            })?;
            let memory = NonNull::new_unchecked(memory);
            Ok(Self { qp: None, mr, cq, pd, memory, port, attributes, gid, context: context.clone() })
        }
    }

    /// Makes the QP, or another one in its place.
    ///
    /// # Errors
    /// The call that failed: a device without RC says `EOPNOTSUPP` or `EINVAL`.
    pub fn create(&mut self, depth: u32) -> Result<(), Error> {
        self.destroy_qp();
        let mut attributes = ffi::ibv_qp_init_attr {
            send_cq: self.cq.as_ptr(),
            recv_cq: self.cq.as_ptr(),
            qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
            cap: ffi::ibv_qp_cap {
                max_send_wr: depth,
                max_recv_wr: RECEIVES,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..Default::default()
        };
        // SAFETY: protection domain and completion queue are alive.
        let qp = unsafe { ffi::ibv_create_qp(self.pd.as_ptr(), &raw mut attributes) };
        self.qp = Some(checked("ibv_create_qp", qp)?);
        Ok(())
    }

    /// Number of the QP; 0 before there is one.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        // SAFETY: a QP that was made lives as long as it is in here.
        self.qp.map_or(0, |qp| unsafe { qp.as_ref() }.qp_num)
    }

    /// Where this end is found.
    #[must_use]
    pub fn address(&self) -> Address {
        Address { qpn: self.qpn(), lid: self.attributes.lid, gid: self.gid.map(|(_, gid)| gid) }
    }

    /// The table of GIDs still has at its place the one this end is known by.
    #[must_use]
    pub fn gid_is_current(&self) -> bool {
        let Some((index, gid)) = self.gid else { return true };
        // SAFETY: every member of the union is 16 bytes of plain data.
        self.context.gid(self.port, index).is_ok_and(|now| unsafe { now.raw == gid.raw })
    }

    /// The memory from `offset` on, for the other end.
    #[must_use]
    pub fn memory(&self, offset: usize) -> Remote {
        // SAFETY: the region is registered as long as this end is.
        let rkey = unsafe { self.mr.as_ref() }.rkey;
        Remote { address: self.memory.cast::<u8>().addr().get() as u64 + offset as u64, rkey }
    }

    /// Connects the QP to another end, or to itself.
    ///
    /// # Errors
    /// The step that failed.
    pub fn connect(&self, to: &Address, timers: Timers) -> Result<(), Error> {
        let mut init = ffi::ibv_qp_attr { qp_state: state::IBV_QPS_INIT, port_num: self.port, ..Default::default() };
        init.qp_access_flags = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let with = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        self.modify("to INIT", &mut init, with)?;
        let mut rtr = ffi::ibv_qp_attr {
            qp_state: state::IBV_QPS_RTR,
            path_mtu: self.attributes.mtu.clamp(ffi::IBV_MTU_256, ffi::IBV_MTU_1024),
            dest_qp_num: to.qpn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ..Default::default()
        };
        rtr.ah_attr.port_num = self.port;
        rtr.ah_attr.dlid = to.lid;
        if let (Some((index, _)), Some(gid)) = (self.gid, to.gid) {
            rtr.ah_attr.is_global = 1;
            rtr.ah_attr.grh.dgid = gid;
            rtr.ah_attr.grh.sgid_index = index;
            rtr.ah_attr.grh.hop_limit = 64;
        }
        let with = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify("to RTR", &mut rtr, with)?;
        let mut rts = ffi::ibv_qp_attr {
            qp_state: state::IBV_QPS_RTS,
            timeout: timers.timeout,
            retry_cnt: timers.retry,
            rnr_retry: 1,
            max_rd_atomic: 1,
            ..Default::default()
        };
        let with = mask::IBV_QP_STATE
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify("to RTS", &mut rts, with)
    }

    /// Moves the QP to another state.
    ///
    /// # Errors
    /// The errno; mlx5 has no way to SQD and says `EINVAL`.
    pub fn move_to(&self, state: State) -> Result<(), Error> {
        let (what, qp_state) = match state {
            State::Sqd => ("to SQD", state::IBV_QPS_SQD),
            State::Err => ("to ERR", state::IBV_QPS_ERR),
        };
        let mut attributes = ffi::ibv_qp_attr { qp_state, ..Default::default() };
        self.modify(what, &mut attributes, mask::IBV_QP_STATE)
    }

    fn modify(&self, what: &'static str, attributes: &mut ffi::ibv_qp_attr, with: mask) -> Result<(), Error> {
        let qp = self.qp.ok_or(Error::NoFunction("QP"))?;
        let with = c_int::try_from(with.0).map_err(|_| Error::TooLarge("mask"))?;
        // SAFETY: the QP is alive, and the attributes are until the call returns.
        Error::of(what, unsafe { ffi::ibv_modify_qp(qp.as_ptr(), attributes, with) })
    }

    /// Posts a signalled write of the first `length` bytes of this end's memory.
    ///
    /// # Errors
    /// The errno of the provider; `ENOMEM` when the queue is full.
    ///
    /// # Panics
    /// When this end has not so much memory.
    pub fn write(&self, length: u32, to: Remote) -> Result<(), Error> {
        assert!(length as usize <= self.memory.len(), "a write is no longer than the memory it is from");
        let qp = self.qp.ok_or(Error::NoFunction("QP"))?;
        // SAFETY: the region is registered as long as this end is.
        let lkey = unsafe { self.mr.as_ref() }.lkey;
        let mut piece = ffi::ibv_sge { addr: self.memory.cast::<u8>().addr().get() as u64, length, lkey };
        let mut request = ffi::ibv_send_wr {
            sg_list: &raw mut piece,
            num_sge: 1,
            opcode: ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            send_flags: ffi::ibv_send_flags::IBV_SEND_SIGNALED.0,
            ..Default::default()
        };
        request.wr.rdma.remote_addr = to.address;
        request.wr.rdma.rkey = to.rkey;
        let mut bad = ptr::null_mut();
        // SAFETY: the QP and its context are alive; the request and its list are until the call returns, which is as long
        // as the provider may look at them.
        let code = unsafe {
            let post_send = (*self.context.raw()).ops.post_send.ok_or(Error::NoFunction("post_send"))?;
            post_send(qp.as_ptr(), &raw mut request, &raw mut bad)
        };
        Error::of("post_send", code)
    }

    /// What has come back: for each work request nothing, or how it failed.
    pub fn poll(&mut self) -> Vec<Result<(), String>> {
        let mut done = std::mem::MaybeUninit::<[ffi::ibv_wc; BATCH]>::zeroed();
        // SAFETY: the queue is alive; the provider writes as many completions as it says, into zeroed memory, and a zeroed
        // completion is a valid one.
        let (n, done) = unsafe {
            let Some(poll_cq) = (*self.context.raw()).ops.poll_cq else { return Vec::new() };
            let n = poll_cq(self.cq.as_ptr(), c_int::try_from(BATCH).unwrap_or(0), done.as_mut_ptr().cast());
            (n, done.assume_init())
        };
        let n = usize::try_from(n).unwrap_or(0);
        let status = |done: &ffi::ibv_wc| match done.error() {
            None => Ok(()),
            // SAFETY: the library returns a string of its own for every number.
            Some((status, _)) => {
                Err(unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(status)) }.to_string_lossy().into_owned())
            }
        };
        done[..n.min(BATCH)].iter().map(status).collect()
    }

    fn destroy_qp(&mut self) {
        if let Some(qp) = self.qp.take() {
            // SAFETY: it was made by ibv_create_qp and is not used again.
            unsafe { ffi::ibv_destroy_qp(qp.as_ptr()) };
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.destroy_qp();
        // SAFETY: each was made by its counterpart and is not used again; nothing uses the memory once no region is on it.
        unsafe {
            let unused = ffi::ibv_dereg_mr(self.mr.as_ptr()) == 0;
            ffi::ibv_destroy_cq(self.cq.as_ptr());
            ffi::ibv_dealloc_pd(self.pd.as_ptr());
            if unused {
                drop(Box::from_raw(self.memory.as_ptr()));
            }
        }
    }
}

/// The index of the GID a connection on this port uses; `None` where the LID is enough.
fn gid_index(context: &Context, port: u8, attributes: Port, nth: usize) -> Result<Option<u8>, Error> {
    if !attributes.ethernet {
        // A subnet without LIDs addresses by the first GID.
        return Ok((attributes.lid == 0).then_some(0));
    }
    let files = RootedFiles::new("/sys").map_err(|error| Error::Call { what: "/sys cannot be opened", error })?;
    let (gids, _) = read(&files, &format!("class/infiniband/{}/ports/{port}", context.name()), &[])
        .map_err(|error| Error::Call { what: "the port's GIDs cannot be read", error })?;
    let ordered = gid::by_preference(&gids);
    let chosen = ordered.get(nth % ordered.len().max(1)).ok_or(Error::NoGid)?;
    Ok(Some(u8::try_from(chosen.index).map_err(|_| Error::TooLarge("index of the GID"))?))
}
