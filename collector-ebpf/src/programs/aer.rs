//! PCIe error reports: the tracepoint `ras:aer_event`, at the offsets its `format` file gives.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_probe_read_kernel, bpf_probe_read_kernel_str_bytes};
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use collector_ebpf::config::Field;
use collector_ebpf::event::{Event, has, kind};

use super::maps::{count, place, report};

#[tracepoint]
fn aer_event(ctx: TracePointContext) -> u32 {
    let record = ctx.as_ptr() as u64;
    // SAFETY: the helper has no precondition.
    let mut event = Event::new(kind::AER, unsafe { bpf_ktime_get_ns() });
    if read(record, &mut event).is_some() {
        report(&event);
    } else {
        count(|totals| &mut totals.unreadable);
    }
    0
}

#[inline(always)]
fn read(record: u64, event: &mut Event) -> Option<()> {
    // The low half of a `__data_loc` is the text's offset from the record.
    let text = word(record, place(|c| &c.aer_dev_name))? & 0xffff;
    // SAFETY: the helper checks the address.
    unsafe {
        bpf_probe_read_kernel_str_bytes(record.wrapping_add(u64::from(text)) as *const u8, &mut event.device.0).ok()?;
    }
    event.status = word(record, place(|c| &c.aer_status))?;
    event.code = word(record, place(|c| &c.aer_severity))?;
    if word(record, place(|c| &c.aer_tlp_valid)).is_some_and(|valid| valid != 0) && place(|c| &c.aer_tlp).is_known() {
        let tlp = record.wrapping_add(u64::from(place(|c| &c.aer_tlp).offset)) as *const [u32; 4];
        // SAFETY: the helper checks the address.
        event.tlp = unsafe { bpf_probe_read_kernel(tlp) }.ok()?;
        event.has |= has::TLP;
    }
    Some(())
}

#[inline(always)]
fn word(record: u64, field: Field) -> Option<u32> {
    if !field.is_known() {
        return None;
    }
    // SAFETY: the helper checks the address.
    let word = unsafe { bpf_probe_read_kernel(record.wrapping_add(u64::from(field.offset)) as *const u32) };
    word.ok().map(|word| field.narrow(word))
}
