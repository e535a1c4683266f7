//! The statistics the kernel itself defines, by ethtool's netlink interface: PHY, MAC, control and RMON groups, FEC, pause
//! frames, and how often the link went down.
//!
//! A counter has the name `ethtool` prints it under (`ethtool --json -S --groups`, `--show-fec`, `-a`), the groups'
//! names as the kernel spells them; a lane's part of a FEC counter is `corrected_bits_lane_0`, a size class of the RMON
//! group `rx-rmon-etherStatsPkts64to64Octets`. A value the driver does not have is not in the answer: it is absent here
//! as well, never 0.

use std::collections::HashMap;
use std::io;

use crate::source::netlink::attribute::{Attributes, push};
use crate::source::netlink::conversation::{Answer, Fault};
use crate::source::netlink::generic::Generic;

use super::uapi::{FLAG_STATS, NESTED, STANDARD_GROUPS, STANDARD_GROUPS_SIZE, attr, message};

/// What is asked of each network device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    /// The groups.
    Groups,
    /// Forward error correction.
    Fec,
    /// Pause frames.
    Pause,
    /// The link's own history.
    Link,
}

/// All of them.
pub(super) const QUESTIONS: [Question; 4] = [Question::Groups, Question::Fec, Question::Pause, Question::Link];

impl Question {
    /// What it is about, for the operator.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Groups => "standard statistics",
            Self::Fec => "FEC statistics",
            Self::Pause => "pause statistics",
            Self::Link => "link-down count",
        }
    }
}

/// The interface and the names of the groups' counters.
pub(super) struct Standard {
    generic: Generic,
    /// Names by string set and place.
    names: HashMap<u32, HashMap<u16, String>>,
}

impl Standard {
    pub(super) fn over(generic: Generic) -> Self {
        Self { generic, names: HashMap::new() }
    }

    /// Asks one question about a network device and hands each counter to `each`.
    pub(super) fn read(
        &mut self,
        question: Question,
        netdev: &str,
        each: &mut dyn FnMut(&str, u64),
    ) -> Result<Answer, Fault> {
        match question {
            Question::Groups => self.groups(netdev, each),
            Question::Fec => self.ask(message::FEC_GET, netdev, |answer| fec(answer.nest(attr::FEC_STATS), each)),
            Question::Pause => self.ask(message::PAUSE_GET, netdev, |answer| {
                let stats = answer.nest(attr::PAUSE_STATS);
                let frames =
                    [("tx_pause_frames", attr::PAUSE_STAT_TX_FRAMES), ("rx_pause_frames", attr::PAUSE_STAT_RX_FRAMES)];
                for (name, kind) in frames {
                    if let Some(value) = stats.u64(kind) {
                        each(name, value);
                    }
                }
            }),
            Question::Link => self.ask(message::LINKSTATE_GET, netdev, |answer| {
                if let Some(count) = answer.u32(attr::LINKSTATE_EXT_DOWN_CNT) {
                    each("link_down_events", count.into());
                }
            }),
        }
    }

    fn ask(&mut self, command: u8, netdev: &str, each: impl FnMut(Attributes<'_>)) -> Result<Answer, Fault> {
        let mut request = Vec::new();
        push(&mut request, NESTED | attr::HEADER, &header(netdev, FLAG_STATS));
        self.generic.get(command, &request, each)
    }

    fn groups(&mut self, netdev: &str, each: &mut dyn FnMut(&str, u64)) -> Result<Answer, Fault> {
        let mut bitset = Vec::new();
        push(&mut bitset, attr::BITSET_NOMASK, &[]);
        push(&mut bitset, attr::BITSET_SIZE, &STANDARD_GROUPS_SIZE.to_ne_bytes());
        push(&mut bitset, attr::BITSET_VALUE, &STANDARD_GROUPS.to_ne_bytes());
        let mut request = Vec::new();
        push(&mut request, NESTED | attr::STATS_HEADER, &header(netdev, 0));
        push(&mut request, NESTED | attr::STATS_GROUPS, &bitset);
        let (mut counters, mut histogram) = (Vec::new(), Vec::new());
        let answer = self.generic.get(message::STATS_GET, &request, |answer| {
            for group in answer.entries(attr::STATS_GRP) {
                let Some(set) = group.u32(attr::STATS_GRP_SS_ID) else { continue };
                for counter in group.entries(attr::STATS_GRP_STAT) {
                    // Beside the value there may be padding, which has no content.
                    let value = counter.iter().find_map(|(place, bytes)| Some((place, number(bytes)?)));
                    counters.extend(value.map(|(place, value)| (set, place, value)));
                }
                for (kind, way) in [(attr::STATS_GRP_HIST_RX, "rx"), (attr::STATS_GRP_HIST_TX, "tx")] {
                    histogram.extend(group.entries(kind).filter_map(|class| size_class(class, way)));
                }
            }
        })?;
        for (set, place, value) in counters {
            if let Some(name) = self.name(set, place)? {
                each(name, value);
            }
        }
        for (name, value) in &histogram {
            each(name, *value);
        }
        Ok(answer)
    }

    /// The name of a counter of a group; `None` when the kernel has none for it.
    fn name(&mut self, set: u32, place: u16) -> Result<Option<&str>, Fault> {
        if !self.names.contains_key(&set) {
            let names = self.ask_names(set)?;
            self.names.insert(set, names);
        }
        Ok(self.names.get(&set).and_then(|names| names.get(&place)).map(String::as_str))
    }

    fn ask_names(&mut self, set: u32) -> Result<HashMap<u16, String>, Fault> {
        let (mut id, mut one, mut request) = (Vec::new(), Vec::new(), Vec::new());
        push(&mut id, attr::STRINGSET_ID, &set.to_ne_bytes());
        // No network device: the names are the kernel's. Without the empty header Linux 6.18 answers EINVAL.
        push(&mut request, NESTED | attr::HEADER, &[]);
        push(&mut one, NESTED | attr::STRINGSETS_STRINGSET, &id);
        push(&mut request, NESTED | attr::STRSET_STRINGSETS, &one);
        let mut names = HashMap::new();
        self.generic.get(message::STRSET_GET, &request, |answer| {
            let sets = answer.nest(attr::STRSET_STRINGSETS);
            for one in sets.entries(attr::STRINGSETS_STRINGSET).filter(|one| one.u32(attr::STRINGSET_ID) == Some(set)) {
                for string in one.nest(attr::STRINGSET_STRINGS).entries(attr::STRINGS_STRING) {
                    let place = string.u32(attr::STRING_INDEX).and_then(|place| u16::try_from(place).ok());
                    if let (Some(place), Some(name)) = (place, string.text(attr::STRING_VALUE)) {
                        names.insert(place, name.to_owned());
                    }
                }
            }
        })?;
        Ok(names)
    }
}

/// A request's header: the network device by name, and flags.
fn header(netdev: &str, flags: u32) -> Vec<u8> {
    let mut header = Vec::new();
    let name = [netdev.as_bytes(), &[0]].concat();
    push(&mut header, attr::HEADER_DEV_NAME, &name);
    if flags != 0 {
        push(&mut header, attr::HEADER_FLAGS, &flags.to_ne_bytes());
    }
    header
}

/// The FEC counters: each attribute holds the total and then each lane's part; it is empty when the driver has none.
fn fec(stats: Attributes<'_>, each: &mut dyn FnMut(&str, u64)) {
    let counters = [
        ("corrected_blocks", attr::FEC_STAT_CORRECTED),
        ("uncorrectable_blocks", attr::FEC_STAT_UNCORR),
        ("corrected_bits", attr::FEC_STAT_CORR_BITS),
    ];
    for (name, kind) in counters {
        let values = stats.find(kind).unwrap_or_default().as_chunks::<8>().0;
        let mut values = values.iter().map(|value| u64::from_ne_bytes(*value));
        if let Some(total) = values.next() {
            each(name, total);
        }
        for (lane, value) in values.enumerate() {
            each(&format!("{name}_lane_{lane}"), value);
        }
    }
}

/// A size class of the RMON group, under the name `ethtool -S --groups rmon` prints.
fn size_class(class: Attributes<'_>, way: &str) -> Option<(String, u64)> {
    let (low, high) = (class.u32(attr::STATS_GRP_HIST_BKT_LOW)?, class.u32(attr::STATS_GRP_HIST_BKT_HI)?);
    let value = class.u64(attr::STATS_GRP_HIST_VAL)?;
    let sizes = match (low, high) {
        (0, high) => high.to_string(),
        (low, 0) => format!("{low}toMax"),
        (low, high) => format!("{low}to{high}"),
    };
    Some((format!("{way}-rmon-etherStatsPkts{sizes}Octets"), value))
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_ne_bytes)
}

/// The errno of a refusal.
pub(super) fn errno(fault: &Fault) -> Option<io::Error> {
    match fault {
        Fault::Refused(code) => Some(io::Error::from_raw_os_error(*code)),
        _ => None,
    }
}
