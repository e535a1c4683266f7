//! An opened device and its ports.

#![allow(unsafe_code, reason = "libibverbs is a C library; every call to it is unsafe, and each says why it is sound")]

use std::ffi::CStr;
use std::fs;
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use ibverbs_sys as ffi;

use crate::Error;

/// A device as this process has opened it. It is closed with the last clone.
#[derive(Clone)]
pub struct Context(Rc<Opened>);

struct Opened {
    raw: NonNull<ffi::ibv_context>,
    /// Name of the device when it was opened.
    name: String,
    /// Where the kernel has the file that was opened, below `/sys/class/infiniband_verbs`.
    class: PathBuf,
    transport: ffi::ibv_transport_type,
}

/// What there is to know of a port before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// It is ACTIVE.
    pub active: bool,
    /// Its link layer is Ethernet: RoCE or iWARP.
    pub ethernet: bool,
    /// Its local identifier; 0 on Ethernet.
    pub lid: u16,
    pub(crate) mtu: ffi::ibv_mtu,
}

/// The names of the devices processes can open, now. None of them is opened.
///
/// # Errors
/// `ENOSYS` where the kernel has no `ib_uverbs`.
pub fn names() -> Result<Vec<String>, Error> {
    with_devices(|devices| devices.iter().map(|device| name(*device)).collect())
}

/// Calls `look` with the list of devices, whose entries are valid until it returns.
fn with_devices<T>(look: impl FnOnce(&[*mut ffi::ibv_device]) -> T) -> Result<T, Error> {
    let mut n = 0;
    // SAFETY: as documented in ibv_get_device_list(3): `n` is valid for writing.
    let list = unsafe { ffi::ibv_get_device_list(&raw mut n) };
    if list.is_null() {
        return Err(Error::last("ibv_get_device_list"));
    }
    // SAFETY: the list has `n` entries until it is freed below.
    let devices = unsafe { std::slice::from_raw_parts(list, usize::try_from(n).unwrap_or(0)) };
    let seen = look(devices);
    // SAFETY: it comes from ibv_get_device_list and is not used again; opened devices do not need it.
    unsafe { ffi::ibv_free_device_list(list) };
    Ok(seen)
}

fn name(device: *mut ffi::ibv_device) -> String {
    // SAFETY: `device` is an entry of a list that is not freed yet; its name is zero-terminated.
    unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) }.to_string_lossy().into_owned()
}

impl Context {
    /// Opens the device of this name.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn open(wanted: &str) -> Result<Self, Error> {
        let opened = with_devices(|devices| {
            let device = devices.iter().find(|device| name(**device) == wanted)?;
            // SAFETY: an entry of the list, which is freed only after this.
            let raw = unsafe { ffi::ibv_open_device(*device) };
            let Some(raw) = NonNull::new(raw) else { return Some(Err(Error::last("ibv_open_device"))) };
            // SAFETY: as above; `dev_name` is zero-terminated.
            let (file, transport) =
                unsafe { (CStr::from_ptr((**device).dev_name.as_ptr()), (**device).transport_type) };
            let class = PathBuf::from("/sys/class/infiniband_verbs").join(&*file.to_string_lossy());
            Some(Ok(Self(Rc::new(Opened { raw, name: wanted.to_owned(), class, transport }))))
        })?;
        opened.unwrap_or_else(|| Err(Error::NoDevice(wanted.to_owned())))
    }

    /// The device's name when it was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether it is still the device of this name. One that was removed stays open until whoever has opened it closes it,
    /// and some drivers wait for that.
    #[must_use]
    pub fn is_there(&self) -> bool {
        fs::read_to_string(self.0.class.join("ibdev")).is_ok_and(|name| name.trim_end() == self.0.name)
    }

    /// It is iWARP: connections need a connection manager.
    #[must_use]
    pub fn is_iwarp(&self) -> bool {
        self.0.transport == ffi::IBV_TRANSPORT_IWARP
    }

    /// How many ports it has; they are numbered from 1.
    ///
    /// # Errors
    /// The errno of the question.
    pub fn ports(&self) -> Result<u8, Error> {
        let mut attributes = std::mem::MaybeUninit::<ffi::ibv_device_attr>::zeroed();
        // SAFETY: the context is open; the library fills the structure in; zeroed is a valid one.
        let attributes = unsafe {
            Error::of("ibv_query_device", ffi::ibv_query_device(self.raw(), attributes.as_mut_ptr()))?;
            attributes.assume_init()
        };
        Ok(attributes.phys_port_cnt)
    }

    /// What there is to know of a port, now.
    ///
    /// # Errors
    /// The errno of the question; `EINVAL` for a port that it does not have.
    pub fn port(&self, number: u8) -> Result<Port, Error> {
        let mut attributes = std::mem::MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: the context is open. The exported function knows a structure that ends with `link_layer` and fills in
        // that much of this one; zeroed is a valid one.
        let attributes = unsafe {
            let filled = ffi::ibv_query_port(self.raw(), number, attributes.as_mut_ptr().cast());
            Error::of("ibv_query_port", filled)?;
            attributes.assume_init()
        };
        Ok(Port {
            active: attributes.state == ffi::ibv_port_state::IBV_PORT_ACTIVE,
            ethernet: u32::from(attributes.link_layer) == ffi::IBV_LINK_LAYER_ETHERNET,
            lid: attributes.lid,
            mtu: attributes.active_mtu,
        })
    }

    /// The GID at an index of a port's table.
    ///
    /// # Errors
    /// The errno of the question.
    pub(crate) fn gid(&self, port: u8, index: u8) -> Result<ffi::ibv_gid, Error> {
        let mut gid = ffi::ibv_gid::default();
        // SAFETY: the context is open, and `gid` is valid for writing.
        let code = unsafe { ffi::ibv_query_gid(self.raw(), port, i32::from(index), &raw mut gid) };
        Error::of("ibv_query_gid", code)?;
        Ok(gid)
    }

    pub(crate) fn raw(&self) -> *mut ffi::ibv_context {
        self.0.raw.as_ptr()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: what was made in the context holds a clone of it, so there is nothing left.
        unsafe { ffi::ibv_close_device(self.raw.as_ptr()) };
    }
}

/// Its address, for what is made in a context.
pub(crate) fn checked<T>(what: &'static str, made: *mut T) -> Result<NonNull<T>, Error> {
    NonNull::new(made).ok_or_else(|| Error::last(what))
}

/// No pointer, where the library takes none.
pub(crate) const fn none<T>() -> *mut T {
    ptr::null_mut()
}
