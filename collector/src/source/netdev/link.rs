//! Network devices as rtnetlink describes them: names, masters, bonds, carrier counts.
//!
//! Numbers are from `include/uapi/linux/if_link.h` and `rtnetlink.h`.

use std::collections::BTreeMap;

use crate::observation::{Bond, Slave};
use crate::source::netlink::attribute::Attributes;

/// `RTM_NEWLINK` and `RTM_DELLINK`.
pub(super) const NEW_LINK: u16 = 16;
pub(super) const DEL_LINK: u16 = 17;
/// `RTM_GETLINK`.
pub(super) const GET_LINK: u16 = 18;
/// `RTNLGRP_LINK`.
pub(super) const GROUP_LINK: u32 = 1;
/// `struct ifinfomsg`: family, padding, type, index, flags, change mask.
pub(super) const HEADER_BYTES: usize = 16;
/// `IFLA_EXT_MASK` and `RTEXT_FILTER_SKIP_STATS`: the answers stay short.
pub(super) const EXT_MASK: (u16, u32) = (29, 1 << 3);

const IFF_UP: u32 = 1;

/// `IFLA_*`.
mod attr {
    pub(super) const IFNAME: u16 = 3;
    pub(super) const MASTER: u16 = 10;
    pub(super) const LINKINFO: u16 = 18;
    pub(super) const CARRIER: u16 = 33;
    pub(super) const CARRIER_CHANGES: u16 = 35;
    pub(super) const CARRIER_UP_COUNT: u16 = 47;
    pub(super) const CARRIER_DOWN_COUNT: u16 = 48;
    pub(super) const INFO_KIND: u16 = 1;
    pub(super) const INFO_DATA: u16 = 2;
    pub(super) const BOND_MODE: u16 = 1;
    pub(super) const BOND_ACTIVE_SLAVE: u16 = 2;
}

/// The modes of a bond by number, as `bonding/mode` names them (`bond_mode_tbl` in `drivers/net/bonding/bond_options.c`).
const MODES: [&str; 7] =
    ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];

/// One network device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    master: Option<u32>,
    /// Of a bond: its mode and the index of its active slave.
    bond: Option<(String, Option<u32>)>,
    /// Set up and with carrier.
    up: bool,
    /// Carrier counts by the names of sysfs.
    pub(super) counts: Vec<(&'static str, u32)>,
}

/// What a message says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// This index is this network device.
    Is(u32, Link),
    /// This index is gone.
    Gone(u32),
}

/// Reads a message; `None` for one of another subject, or one without a name.
pub(super) fn read(kind: u16, payload: &[u8]) -> Option<Said> {
    let header = payload.get(..HEADER_BYTES)?;
    let word = |at: usize| header[at..].first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    // A bridge tells of its ports in the same group, with its own family.
    if header[0] != 0 {
        return None;
    }
    let (index, flags) = (word(4)?, word(8)?);
    match kind {
        DEL_LINK => return Some(Said::Gone(index)),
        NEW_LINK => {}
        _ => return None,
    }
    let attributes = Attributes(&payload[HEADER_BYTES..]);
    let info = attributes.nest(attr::LINKINFO);
    let bond = (info.text(attr::INFO_KIND) == Some("bond")).then(|| {
        let data = info.nest(attr::INFO_DATA);
        let mode = data.u8(attr::BOND_MODE);
        let name = mode.and_then(|mode| MODES.get(usize::from(mode)).map(|name| (*name).to_owned()));
        let mode = name.unwrap_or_else(|| mode.map_or_else(|| "unknown".to_owned(), |mode| mode.to_string()));
        (mode, data.u32(attr::BOND_ACTIVE_SLAVE).filter(|index| *index != 0))
    });
    let counts = [
        ("carrier_changes", attr::CARRIER_CHANGES),
        ("carrier_up_count", attr::CARRIER_UP_COUNT),
        ("carrier_down_count", attr::CARRIER_DOWN_COUNT),
    ];
    let link = Link {
        name: attributes.text(attr::IFNAME)?.to_owned(),
        master: attributes.u32(attr::MASTER).filter(|index| *index != 0),
        bond,
        up: flags & IFF_UP != 0 && attributes.u8(attr::CARRIER) == Some(1),
        counts: counts.into_iter().filter_map(|(name, kind)| Some((name, attributes.u32(kind)?))).collect(),
    };
    Some(Said::Is(index, link))
}

/// All network devices, by index.
#[derive(Debug, Default)]
pub(super) struct Links(BTreeMap<u32, Link>);

impl Links {
    /// Takes one message.
    pub(super) fn take(&mut self, said: Said) {
        match said {
            Said::Is(index, link) => self.0.insert(index, link),
            Said::Gone(index) => self.0.remove(&index),
        };
    }

    /// Every bond that is one of the network devices asked for, or has one as slave.
    pub(super) fn bonds(&self, concerns: &dyn Fn(&str) -> bool) -> Vec<Bond<'static>> {
        let mut bonds = Vec::new();
        for (index, link) in &self.0 {
            let Some((mode, active)) = &link.bond else { continue };
            let slaves: Vec<(&u32, &Link)> = self.0.iter().filter(|(_, slave)| slave.master == Some(*index)).collect();
            if !concerns(&link.name) && !slaves.iter().any(|(_, slave)| concerns(&slave.name)) {
                continue;
            }
            let active = active.and_then(|active| self.0.get(&active)).map(|slave| slave.name.clone().into());
            let slaves = slaves.iter().map(|(_, slave)| Slave { netdev: slave.name.clone().into(), up: slave.up });
            let (bond, mode) = (link.name.clone().into(), mode.clone().into());
            bonds.push(Bond { bond, mode, active, slaves: slaves.collect(), event: None });
        }
        bonds
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::source::netlink::scene::{attribute, number, text};

    /// A message about a network device: index, name, up, and more attributes.
    pub(in super::super) fn link(index: u32, name: &str, up: bool, more: &[Vec<u8>]) -> Vec<u8> {
        let mut payload = vec![0u8; HEADER_BYTES];
        payload[4..8].copy_from_slice(&index.to_ne_bytes());
        payload[8..12].copy_from_slice(&u32::from(up).to_ne_bytes());
        payload.extend(text(attr::IFNAME, name));
        payload.extend(attribute(attr::CARRIER, &[u8::from(up)]));
        payload.extend(more.concat());
        payload
    }

    pub(in super::super) fn counts(changes: u32, down: u32) -> Vec<u8> {
        [number(attr::CARRIER_CHANGES, changes), number(attr::CARRIER_DOWN_COUNT, down)].concat()
    }

    pub(in super::super) fn master(index: u32) -> Vec<u8> {
        number(attr::MASTER, index)
    }

    pub(in super::super) fn bond(mode: u8, active: Option<u32>) -> Vec<u8> {
        let mut data = attribute(attr::BOND_MODE, &[mode]);
        data.extend(active.map(|index| number(attr::BOND_ACTIVE_SLAVE, index)).unwrap_or_default());
        attribute(attr::LINKINFO, &[text(attr::INFO_KIND, "bond"), attribute(attr::INFO_DATA, &data)].concat())
    }

    fn of(messages: &[Vec<u8>]) -> Links {
        let mut links = Links::default();
        for message in messages {
            links.take(read(NEW_LINK, message).unwrap());
        }
        links
    }

    #[test]
    fn a_bond_has_its_mode_its_active_slave_and_its_slaves_with_their_carrier() {
        let links = of(&[
            link(2, "eth0", true, &[master(4)]),
            link(3, "eth1", false, &[master(4)]),
            link(4, "bond0", true, &[bond(1, Some(2))]),
            link(5, "eth2", true, &[]),
        ]);
        let slave = |netdev: &'static str, up| Slave { netdev: netdev.into(), up };
        let expected = Bond {
            bond: "bond0".into(),
            mode: "active-backup".into(),
            active: Some("eth0".into()),
            slaves: vec![slave("eth0", true), slave("eth1", false)],
            event: None,
        };
        for name in ["bond0", "eth1"] {
            assert_eq!(links.bonds(&|netdev| netdev == name), std::slice::from_ref(&expected), "asked by {name}");
        }
        assert!(links.bonds(&|netdev| netdev == "eth2").is_empty(), "a bond of no port");
    }

    #[test]
    fn a_bond_without_an_active_slave_or_with_a_new_mode_is_still_a_bond() {
        let links = of(&[link(4, "bond0", true, &[bond(4, None)]), link(5, "bond1", true, &[bond(9, Some(77))])]);
        let bonds = links.bonds(&|_| true);
        assert_eq!((&*bonds[0].mode, &bonds[0].active), ("802.3ad", &None));
        assert_eq!((&*bonds[1].mode, &bonds[1].active), ("9", &None));
    }

    #[test]
    fn carrier_of_a_device_that_is_set_down_does_not_make_it_up() {
        let mut message = link(2, "eth0", true, &[master(4)]);
        message[8] = 0;
        let links = of(&[message, link(4, "bond0", true, &[bond(1, Some(2))])]);
        assert!(!links.bonds(&|_| true)[0].slaves[0].up);
    }

    #[test]
    fn a_bridges_word_about_its_port_and_a_cut_message_say_nothing() {
        let mut of_bridge = link(2, "eth0", true, &[]);
        of_bridge[0] = 7;
        assert_eq!(read(NEW_LINK, &of_bridge), None);
        assert_eq!(read(NEW_LINK, &[0; 15]), None);
        assert_eq!(read(NEW_LINK, &[0; 16]), None, "no name");
        assert_eq!(read(DEL_LINK, &link(2, "eth0", true, &[])), Some(Said::Gone(2)));
    }
}
