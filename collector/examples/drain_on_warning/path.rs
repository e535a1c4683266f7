//! A reliable connection between two devices, both ends in this process, through libibverbs.
#![allow(unsafe_code, reason = "libibverbs is a C library; every call to it is unsafe")]

use std::ffi::{CStr, c_int};
use std::fs;
use std::io;
use std::ptr;

use ibverbs_sys as ffi;

/// Everything is done on port 1.
const PORT: u8 = 1;
/// Work requests a QP can receive; none is sent to it.
const RECEIVES: u32 = 1;
/// Completions taken at once.
const BATCH: usize = 16;

/// One end: an opened device and what belongs to it. It lives as long as the process.
struct End {
    context: *mut ffi::ibv_context,
    pd: *mut ffi::ibv_pd,
    cq: *mut ffi::ibv_cq,
    mr: *mut ffi::ibv_mr,
    memory: &'static mut [u8],
    gid: ffi::ibv_gid,
    gid_index: u8,
    qp: *mut ffi::ibv_qp,
}

/// A pair of ends.
pub(crate) struct Path {
    a: End,
    b: End,
    size: u32,
    /// Work requests posted.
    pub(crate) posted: u64,
    /// Work requests that succeeded.
    pub(crate) completed: u64,
    /// Work requests that failed or were flushed.
    pub(crate) failed: u64,
}

/// What a look at the completion queue showed.
pub(crate) struct Completions {
    /// Status of the first failed one.
    pub(crate) failed: Option<String>,
}

fn last_error(what: &str) -> String {
    format!("{what}: {}", io::Error::last_os_error())
}

impl Path {
    /// Opens both devices and registers memory for `depth` operations at once; there is no QP yet.
    pub(crate) fn open(device: &str, peer: &str, size: u32, depth: u32) -> Result<Self, String> {
        Ok(Self {
            a: End::open(device, size, depth)?,
            b: End::open(peer, size, depth)?,
            size,
            posted: 0,
            completed: 0,
            failed: 0,
        })
    }

    /// Makes and connects the QPs.
    pub(crate) fn connect(&mut self, timeout: u8, retry: u8, depth: u32) -> Result<(), String> {
        for end in [&mut self.a, &mut self.b] {
            end.create(depth)?;
        }
        let (a, b) = (self.a.address(), self.b.address());
        self.a.connect(b, timeout, retry)?;
        self.b.connect(a, timeout, retry)
    }

    /// Number of this end's QP; 0 before there is one.
    pub(crate) fn qpn(&self) -> u32 {
        self.a.qpn()
    }

    /// Work requests that have not come back.
    pub(crate) fn outstanding(&self) -> u64 {
        self.posted - self.completed - self.failed
    }

    /// Posts a write of the whole memory, signalled.
    pub(crate) fn post(&mut self) -> Result<(), String> {
        // SAFETY: the memory regions are registered and live as long as the process.
        let (local, remote) = unsafe { (&*self.a.mr, &*self.b.mr) };
        let mut piece = ffi::ibv_sge { addr: self.a.memory.as_ptr() as u64, length: self.size, lkey: local.lkey };
        let mut request = ffi::ibv_send_wr {
            sg_list: &raw mut piece,
            num_sge: 1,
            opcode: ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            send_flags: ffi::ibv_send_flags::IBV_SEND_SIGNALED.0,
            ..Default::default()
        };
        request.wr.rdma.remote_addr = self.b.memory.as_ptr() as u64;
        request.wr.rdma.rkey = remote.rkey;
        let mut bad = ptr::null_mut();
        // SAFETY: the QP and its context are alive; the request and its list are until the call returns, which is as long
        // as the provider may look at them.
        let code = unsafe {
            let post_send = (*self.a.context).ops.post_send.ok_or("the provider has no post_send")?;
            post_send(self.a.qp, &raw mut request, &raw mut bad)
        };
        if code != 0 {
            return Err(format!("post_send: {}", io::Error::from_raw_os_error(code)));
        }
        self.posted += 1;
        Ok(())
    }

    /// Takes what has come back.
    pub(crate) fn poll(&mut self) -> Completions {
        let mut first = None;
        for status in self.a.poll() {
            if status == ffi::ibv_wc_status::IBV_WC_SUCCESS {
                self.completed += 1;
                continue;
            }
            self.failed += 1;
            first.get_or_insert_with(|| {
                // SAFETY: the library returns a string of its own for every number.
                unsafe { CStr::from_ptr(ffi::ibv_wc_status_str(status)) }.to_string_lossy().into_owned()
            });
        }
        // The peer's failures follow from this end's.
        self.b.poll();
        Completions { failed: first }
    }

    /// Stops the send queue after what is posted; the errno when the device cannot.
    pub(crate) fn move_to_sqd(&mut self) -> Result<(), i32> {
        self.a.move_to(ffi::ibv_qp_state::IBV_QPS_SQD)
    }

    /// Ends both QPs.
    pub(crate) fn move_to_err(&mut self) -> Result<(), i32> {
        self.a.move_to(ffi::ibv_qp_state::IBV_QPS_ERR).and(self.b.move_to(ffi::ibv_qp_state::IBV_QPS_ERR))
    }
}

impl End {
    fn open(device: &str, size: u32, depth: u32) -> Result<Self, String> {
        // Everything that is posted may come back before anybody looks. A device refuses what it has no room for.
        let completions = c_int::try_from(depth.saturating_add(RECEIVES)).map_err(|error| error.to_string())?;
        let gid_index = gid_index(device)?;
        let memory = vec![1u8; size as usize].leak();
        let access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let access = c_int::try_from(access).map_err(|error| error.to_string())?;
        let mut gid = ffi::ibv_gid::default();
        // SAFETY: every pointer comes from the call before it and is checked; the list is freed after the device is
        // opened, as the library asks for; the memory is never freed.
        unsafe {
            let context = open_device(device)?;
            let pd = ffi::ibv_alloc_pd(context);
            let cq = ffi::ibv_create_cq(context, completions, ptr::null_mut(), ptr::null_mut(), 0);
            if pd.is_null() || cq.is_null() {
                return Err(last_error(device));
            }
            let mr = ffi::ibv_reg_mr(pd, memory.as_mut_ptr().cast(), memory.len(), access);
            if mr.is_null() || ffi::ibv_query_gid(context, PORT, c_int::from(gid_index), &raw mut gid) != 0 {
                return Err(last_error(device));
            }
            Ok(Self { context, pd, cq, mr, memory, gid, gid_index, qp: ptr::null_mut() })
        }
    }

    fn create(&mut self, depth: u32) -> Result<(), String> {
        let mut attributes = ffi::ibv_qp_init_attr {
            send_cq: self.cq,
            recv_cq: self.cq,
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
        // SAFETY: protection domain and queue are alive.
        self.qp = unsafe { ffi::ibv_create_qp(self.pd, &raw mut attributes) };
        if self.qp.is_null() { Err(last_error("create_qp")) } else { Ok(()) }
    }

    fn qpn(&self) -> u32 {
        // SAFETY: a QP that was made lives as long as the process.
        if self.qp.is_null() { 0 } else { unsafe { (*self.qp).qp_num } }
    }

    fn address(&self) -> (u32, ffi::ibv_gid) {
        (self.qpn(), self.gid)
    }

    fn connect(&mut self, (qpn, gid): (u32, ffi::ibv_gid), timeout: u8, retry: u8) -> Result<(), String> {
        use ffi::{ibv_qp_attr_mask as mask, ibv_qp_state as state};
        let step = |what: &str, done: Result<(), i32>| {
            done.map_err(|errno| format!("{what}: {}", io::Error::from_raw_os_error(errno)))
        };
        let mut init = ffi::ibv_qp_attr { qp_state: state::IBV_QPS_INIT, port_num: PORT, ..Default::default() };
        init.qp_access_flags = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let with = mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS;
        step("INIT", self.modify(&mut init, with))?;
        let mut rtr = ffi::ibv_qp_attr {
            qp_state: state::IBV_QPS_RTR,
            path_mtu: ffi::IBV_MTU_1024,
            dest_qp_num: qpn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ..Default::default()
        };
        rtr.ah_attr.is_global = 1;
        rtr.ah_attr.port_num = PORT;
        rtr.ah_attr.grh.dgid = gid;
        rtr.ah_attr.grh.sgid_index = self.gid_index;
        rtr.ah_attr.grh.hop_limit = 64;
        let with = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        step("RTR", self.modify(&mut rtr, with))?;
        let mut rts = ffi::ibv_qp_attr {
            qp_state: state::IBV_QPS_RTS,
            timeout,
            retry_cnt: retry,
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
        step("RTS", self.modify(&mut rts, with))
    }

    fn move_to(&mut self, state: ffi::ibv_qp_state::Type) -> Result<(), i32> {
        let mut attributes = ffi::ibv_qp_attr { qp_state: state, ..Default::default() };
        self.modify(&mut attributes, ffi::ibv_qp_attr_mask::IBV_QP_STATE)
    }

    fn modify(&mut self, attributes: &mut ffi::ibv_qp_attr, with: ffi::ibv_qp_attr_mask) -> Result<(), i32> {
        let mask = c_int::try_from(with.0).unwrap_or(c_int::MAX);
        // SAFETY: the QP is alive and the attributes are until the call returns.
        match unsafe { ffi::ibv_modify_qp(self.qp, attributes, mask) } {
            0 => Ok(()),
            errno => Err(errno),
        }
    }

    /// The statuses of what has come back.
    fn poll(&mut self) -> Vec<ffi::ibv_wc_status::Type> {
        let mut done = std::mem::MaybeUninit::<[ffi::ibv_wc; BATCH]>::zeroed();
        // SAFETY: the queue is alive; the provider writes as many completions as it says, into zeroed memory, and a zeroed
        // completion is a valid one.
        let (n, done) = unsafe {
            let Some(poll_cq) = (*self.context).ops.poll_cq else { return Vec::new() };
            let n = poll_cq(self.cq, c_int::try_from(BATCH).unwrap_or(0), done.as_mut_ptr().cast());
            (n, done.assume_init())
        };
        let n = usize::try_from(n).unwrap_or(0);
        let status = |done: &ffi::ibv_wc| done.error().map_or(ffi::ibv_wc_status::IBV_WC_SUCCESS, |(status, _)| status);
        done[..n.min(BATCH)].iter().map(status).collect()
    }
}

/// Opens the device of a name.
///
/// # Safety
/// None beyond that of calling a C library.
unsafe fn open_device(name: &str) -> Result<*mut ffi::ibv_context, String> {
    let mut n = 0;
    // SAFETY: the list has `n` entries, all of them devices until it is freed.
    unsafe {
        let list = ffi::ibv_get_device_list(&raw mut n);
        if list.is_null() {
            return Err(last_error("no device list"));
        }
        let devices = std::slice::from_raw_parts(list, usize::try_from(n).unwrap_or(0));
        let named = |device: &&*mut ffi::ibv_device| {
            CStr::from_ptr(ffi::ibv_get_device_name(**device)).to_bytes() == name.as_bytes()
        };
        let context = devices.iter().find(named).map_or(ptr::null_mut(), |device| ffi::ibv_open_device(*device));
        ffi::ibv_free_device_list(list);
        if context.is_null() { Err(format!("there is no device {name}")) } else { Ok(context) }
    }
}

/// The index of the device's RoCE v2 GID with an IPv4 address, or of its first GID.
fn gid_index(device: &str) -> Result<u8, String> {
    let port = format!("/sys/class/infiniband/{device}/ports/{PORT}");
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let v4 = (0..=u8::MAX).find(|index| {
        read(format!("{port}/gid_attrs/types/{index}")).contains("v2")
            && read(format!("{port}/gids/{index}")).starts_with("0000:0000:0000:0000:0000:ffff:")
    });
    let any = || (0..=u8::MAX).find(|index| read(format!("{port}/gids/{index}")).contains(|c| !"0:\n".contains(c)));
    v4.or_else(any).ok_or_else(|| format!("{device} has no GID on port {PORT}"))
}
