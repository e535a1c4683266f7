//! Device names by the number that stands for them in the maps ([`Name::id`]).

use std::collections::HashMap;

use collector_ebpf::slot::Name;

/// The devices seen so far. Names are kept for good: there are as many as devices were ever seen.
#[derive(Default)]
pub(super) struct Devices {
    by_id: HashMap<u64, u32>,
    names: Vec<String>,
}

impl Devices {
    /// The index of a name.
    pub(super) fn intern(&mut self, name: &Name) -> u32 {
        let names = &mut self.names;
        *self.by_id.entry(name.id()).or_insert_with(|| {
            names.push(String::from_utf8_lossy(name.bytes()).into_owned());
            u32::try_from(names.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// The index of a name that is known by its number.
    pub(super) fn known(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// The name of an index.
    pub(super) fn name(&self, index: u32) -> &str {
        self.names.get(index as usize).map_or("", String::as_str)
    }
}
