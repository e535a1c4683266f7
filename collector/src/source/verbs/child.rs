//! The child process: loads libibverbs, reads each device's operation table, prints it, ends.

#![allow(
    unsafe_code,
    reason = "libibverbs is called through symbols found at run time; each block says why it is sound"
)]

use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::process::ExitCode;

use libloading::{Library, Symbol};

use super::{Answer, Operation, Operations, Place, ProviderOps, Table, maps};
use crate::source::proc;

type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
type FreeDeviceList = unsafe extern "C" fn(*mut *mut c_void);
type GetDeviceName = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type OpenDevice = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type CloseDevice = unsafe extern "C" fn(*mut c_void) -> c_int;

/// What the binary does when its first argument is [`super::CHILD_ARG`].
#[must_use]
pub fn child_main() -> ExitCode {
    // Whatever becomes of the collector, a hanging provider does not outlive it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let answer = match look() {
        Ok(found) => Answer::Found(found),
        Err(answer) => answer,
    };
    match serde_json::to_string(&answer) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn look() -> Result<Operations, Answer> {
    // SAFETY: loading a library runs its initialisers; libibverbs's have no precondition, and this process does nothing
    // else.
    let library = unsafe { Library::new("libibverbs.so.1") }.map_err(|error| {
        let text = said(&error);
        if text.starts_with("libibverbs.so.1:") && text.contains("No such file") {
            Answer::NotInstalled {}
        } else {
            Answer::Error(format!("libibverbs.so.1 cannot be loaded: {text}"))
        }
    })?;
    let verbs = Verbs::find(&library)
        .map_err(|error| Answer::Error(format!("libibverbs.so.1 lacks a function: {}", said(&error))))?;
    let mut count = 0;
    // SAFETY: as documented in ibv_get_device_list(3): `count` is valid for writing.
    let list = unsafe { (verbs.get_device_list)(&raw mut count) };
    if list.is_null() {
        let error = io::Error::last_os_error();
        // ENOSYS: the kernel has no ib_uverbs.
        return Err(Answer::Error(format!("ibv_get_device_list failed: {error} (is the module ib_uverbs loaded?)")));
    }
    let mut devices = Vec::new();
    for i in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` entries and is freed only below.
        devices.push(verbs.operations(unsafe { *list.add(i) }));
    }
    // SAFETY: the list comes from ibv_get_device_list and is not used again.
    unsafe { (verbs.free_device_list)(list) };
    Ok(Operations { devices, modify_qp: modify_qp(&library) })
}

/// Where `ibv_modify_qp` lies: the version that programs are linked with today, as the dynamic linker gives it.
fn modify_qp(library: &Library) -> Option<Place> {
    // SAFETY: the function is not called; only its address is taken.
    let function: Symbol<'_, unsafe extern "C" fn()> = unsafe { library.get(b"ibv_modify_qp\0") }.ok()?;
    maps::place(&proc::text("/proc/self/maps".as_ref()).ok()?, *function as usize as u64)
}

/// What the dynamic linker said: the error itself tells no more than the name of the call.
fn said(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

struct Verbs<'l> {
    get_device_list: Symbol<'l, GetDeviceList>,
    free_device_list: Symbol<'l, FreeDeviceList>,
    get_device_name: Symbol<'l, GetDeviceName>,
    open_device: Symbol<'l, OpenDevice>,
    close_device: Symbol<'l, CloseDevice>,
}

impl<'l> Verbs<'l> {
    fn find(library: &'l Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of verbs.h.
        unsafe {
            Ok(Self {
                get_device_list: library.get(b"ibv_get_device_list\0")?,
                free_device_list: library.get(b"ibv_free_device_list\0")?,
                get_device_name: library.get(b"ibv_get_device_name\0")?,
                open_device: library.get(b"ibv_open_device\0")?,
                close_device: library.get(b"ibv_close_device\0")?,
            })
        }
    }

    fn operations(&self, device: *mut c_void) -> ProviderOps {
        // SAFETY: `device` is an entry of the device list, which is still held.
        let name = unsafe { (self.get_device_name)(device) };
        let name = if name.is_null() {
            String::new()
        } else {
            // SAFETY: ibv_get_device_name gives a zero-terminated text that lives as long as the list.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        let mut found = ProviderOps { device: name, places: BTreeMap::new(), error: None };
        // SAFETY: as above.
        let context = unsafe { (self.open_device)(device) };
        if context.is_null() {
            found.error = Some(format!("ibv_open_device failed: {}", io::Error::last_os_error()));
            return found;
        }
        // Read while the provider is certainly mapped.
        match proc::text("/proc/self/maps".as_ref()) {
            Ok(text) => {
                for operation in Operation::ALL.iter().copied().filter(|operation| operation.table() == Table::Context)
                {
                    // SAFETY: `context` is an open `ibv_context`, which holds all of its table; the operations are
                    // pointers.
                    let address =
                        unsafe { context.cast::<u8>().add(operation.offset()).cast::<u64>().read_unaligned() };
                    if let Some(place) = maps::place(&text, address).filter(|place| !place.is_stub()) {
                        found.places.insert(operation, place);
                    }
                }
                if !found.places.contains_key(&Operation::PostSend) {
                    found.error = Some("the provider's post_send lies in no file".to_owned());
                }
            }
            Err(error) => found.error = Some(format!("/proc/self/maps cannot be read: {error}")),
        }
        // SAFETY: `context` comes from ibv_open_device and is not used again.
        unsafe { (self.close_device)(context) };
        found
    }
}
