//! Datagrams as the kernel builds them, for tests of what no recorded dialogue shows.

use super::conversation::request;
use super::stored::{Datagram, Exchange};
use super::uapi::{
    COUNTER_MASK_PID, COUNTER_MASK_QP_TYPE, COUNTER_MODE_AUTO, COUNTER_MODE_MANUAL, attr, command, message_type,
};

pub(super) const DUMP: u16 = netlink_packet_core::NLM_F_DUMP;
pub(super) const MULTI: u16 = netlink_packet_core::NLM_F_MULTIPART;
pub(super) const INTERRUPTED: u16 = netlink_packet_core::NLM_F_DUMP_INTR;

pub(super) use crate::source::netlink::scene::{attribute, done, number, raw, refusal, text};

pub(super) fn message(command: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    raw(message_type(command), flags, 1, payload)
}

pub(super) fn exchange(command: u16, flags: u16, attributes: &[(u16, u32)], replies: Vec<Vec<u8>>) -> Exchange {
    Exchange { request: request(command, flags, 0, attributes), replies: replies.into_iter().map(Datagram).collect() }
}

/// The list of devices.
pub(super) fn devices(list: &[(u32, &str)]) -> Exchange {
    let list: Vec<_> =
        list.iter().map(|(index, name)| (*index, *name, 0x0011_2233_4455_6600 + u64::from(*index))).collect();
    devices_of(&list)
}

/// The same, with the GUIDs of the nodes.
pub(super) fn devices_of(list: &[(u32, &str, u64)]) -> Exchange {
    let messages: Vec<Vec<u8>> = list
        .iter()
        .map(|(index, name, guid)| {
            let guid = attribute(attr::NODE_GUID, &guid.to_ne_bytes());
            let parts =
                [number(attr::DEV_INDEX, *index), text(attr::DEV_NAME, name), number(attr::PORT_INDEX, 1), guid];
            message(command::GET, MULTI, &parts.concat())
        })
        .collect();
    exchange(command::GET, DUMP, &[], vec![messages.concat(), done(0)])
}

pub(super) fn statistics(index: u32, replies: Vec<Vec<u8>>) -> Exchange {
    exchange(command::STAT_GET, 0, &[(attr::DEV_INDEX, index), (attr::PORT_INDEX, 1)], replies)
}

pub(super) fn counters(values: &[(&str, u64)]) -> Vec<u8> {
    message(command::STAT_GET, 0, &counter_table(values))
}

/// The hardware counters' table.
fn counter_table(values: &[(&str, u64)]) -> Vec<u8> {
    let entries: Vec<u8> = values
        .iter()
        .flat_map(|(name, value)| {
            let value = attribute(attr::STAT_HWCOUNTER_ENTRY_VALUE, &value.to_ne_bytes());
            let entry = [text(attr::STAT_HWCOUNTER_ENTRY_NAME, name), value].concat();
            attribute(0x8000 | attr::STAT_HWCOUNTER_ENTRY, &entry)
        })
        .collect();
    attribute(0x8000 | attr::STAT_HWCOUNTERS, &entries)
}

/// The question for the counter mode of port 1, answered with each of these.
pub(super) fn counter_mode_answer(index: u32, replies: Vec<Vec<u8>>) -> Exchange {
    let question = [
        (attr::DEV_INDEX, index),
        (attr::PORT_INDEX, 1),
        (attr::STAT_MODE, 0),
        (attr::STAT_RES, u32::from(attr::RES_QP)),
    ];
    exchange(command::STAT_GET, 0, &question, replies)
}

/// The counter mode of port 1, as `stat_get_doit_qp` writes it: the mask in the automatic mode only.
pub(super) fn counter_mode(index: u32, mode: u32, mask: u32) -> Exchange {
    let mut parts =
        [number(attr::DEV_INDEX, index), number(attr::PORT_INDEX, 1), number(attr::STAT_MODE, mode)].concat();
    if mode == COUNTER_MODE_AUTO {
        parts.extend(number(attr::STAT_AUTO_MODE_MASK, mask));
    }
    counter_mode_answer(index, vec![message(command::STAT_GET, 0, &parts)])
}

/// A set of counters bound to QPs.
#[derive(Debug, Clone, Default)]
pub(super) struct Set<'s> {
    pub(super) id: u32,
    /// The mask of the automatic mode it was made in; 0: made by hand.
    pub(super) mask: u32,
    pub(super) qp_type: u8,
    pub(super) pid: u32,
    pub(super) qpns: Vec<u32>,
    pub(super) values: Vec<(&'s str, u64)>,
}

impl Set<'_> {
    /// An entry as `fill_res_counter_entry` writes it.
    fn entry(&self) -> Vec<u8> {
        let mode = if self.mask == 0 { COUNTER_MODE_MANUAL } else { COUNTER_MODE_AUTO };
        let mut parts =
            [number(attr::PORT_INDEX, 1), number(attr::STAT_COUNTER_ID, self.id), number(attr::STAT_MODE, mode)]
                .concat();
        if self.mask & COUNTER_MASK_QP_TYPE != 0 {
            parts.extend(attribute(attr::RES_TYPE, &[self.qp_type]));
        }
        if self.mask & COUNTER_MASK_PID != 0 {
            parts.extend(number(attr::RES_PID, self.pid));
        }
        let qps = self.qpns.iter().flat_map(|qpn| attribute(attr::RES_QP_ENTRY, &number(attr::RES_LQPN, *qpn)));
        parts.extend(attribute(0x8000 | attr::RES_QP, &qps.collect::<Vec<u8>>()));
        parts.extend(counter_table(&self.values));
        attribute(attr::STAT_COUNTER_ENTRY, &parts)
    }
}

/// A part of the list of bound sets.
pub(super) fn set_part(sets: &[Set<'_>]) -> Vec<u8> {
    let entries: Vec<u8> = sets.iter().flat_map(Set::entry).collect();
    message(command::STAT_GET, MULTI, &attribute(attr::STAT_COUNTER, &entries))
}

/// The list of the sets bound on port 1.
pub(super) fn bound_answer(index: u32, replies: Vec<Vec<u8>>) -> Exchange {
    let question = [(attr::DEV_INDEX, index), (attr::PORT_INDEX, 1), (attr::STAT_RES, u32::from(attr::RES_QP))];
    exchange(command::STAT_GET, DUMP, &question, replies)
}

pub(super) fn bound(index: u32, sets: &[Set<'_>]) -> Exchange {
    bound_answer(index, vec![set_part(sets), done(0)])
}

pub(super) fn qp_count(index: u32, count: u64) -> Exchange {
    let curr = attribute(attr::RES_SUMMARY_ENTRY_CURR, &count.to_ne_bytes());
    let entry = attribute(attr::RES_SUMMARY_ENTRY, &[text(attr::RES_SUMMARY_ENTRY_NAME, "qp"), curr].concat());
    let summary = attribute(attr::RES_SUMMARY, &entry);
    exchange(command::RES_GET, 0, &[(attr::DEV_INDEX, index)], vec![message(command::RES_GET, 0, &summary)])
}

/// One part of a list of RC QPs: number, state, pid.
pub(super) fn qp_part(flags: u16, qps: &[(u32, u8, u32)]) -> Vec<u8> {
    let entries: Vec<u8> = qps
        .iter()
        .flat_map(|(qpn, state, pid)| {
            let entry = [
                number(attr::PORT_INDEX, 1),
                number(attr::RES_LQPN, *qpn),
                number(attr::RES_RQPN, qpn + 1000),
                attribute(attr::RES_TYPE, &[2]),
                attribute(attr::RES_STATE, &[*state]),
                number(attr::RES_PID, *pid),
            ];
            attribute(attr::RES_QP_ENTRY, &entry.concat())
        })
        .collect();
    message(command::RES_QP_GET, MULTI | flags, &attribute(attr::RES_QP, &entries))
}

pub(super) fn qp_list(index: u32, replies: Vec<Vec<u8>>) -> Exchange {
    exchange(command::RES_QP_GET, DUMP, &[(attr::DEV_INDEX, index)], replies)
}
