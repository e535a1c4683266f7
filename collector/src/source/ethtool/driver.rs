//! The driver's own statistics: their names, asked for once, and their values.
//!
//! Names and values are two questions, and between them a driver can get other counters (more queues, another mode). A
//! different number of values shows it, and the names are asked for again; where the numbers never agree, nothing is
//! said. A change that keeps the number is caught by asking for the names anew every few seconds.

use std::collections::HashSet;
use std::io;

use rustix::io::Errno;

use crate::observation::Nanos;

/// One name as the driver gives it: up to 32 bytes, ended by a NUL if it is shorter.
pub(super) type Name = [u8; 32];

/// Between two questions for the names, ns. They come from the driver's memory, not from the device.
const NAMES_PERIOD: Nanos = 10_000_000_000;

/// A set with more counters than this is kept without those of single queues: an adapter with 64 of them has thousands,
/// none of which says anything of RDMA, and every one would be in each recording and in memory.
const MOST_WITH_QUEUES: usize = 512;

/// Asks a driver for its statistics.
pub(super) trait Statistics: Send {
    /// How many there are. `EOPNOTSUPP` when the driver has none.
    fn count(&mut self, netdev: &str) -> io::Result<usize>;
    /// Their names: as many as there are now, which need not be `count`.
    fn names(&mut self, netdev: &str, count: usize, names: &mut Vec<Name>) -> io::Result<()>;
    /// Their values: as many as there are now, which need not be `count`.
    fn values(&mut self, netdev: &str, count: usize, values: &mut Vec<u64>) -> io::Result<()>;
}

/// What is known of one driver's statistics.
#[derive(Debug, Default)]
pub(super) struct Driver {
    /// The names by place; `None` for a place without one, or with one that another place has, or that is left out.
    names: Vec<Option<String>>,
    known: HashSet<String>,
    values: Vec<u64>,
    raw: Vec<Name>,
    names_due: Nanos,
    /// Places without a name.
    pub(super) nameless: usize,
    /// Places whose name an earlier place has.
    pub(super) doubled: usize,
    /// Counters of single queues that were left out.
    pub(super) of_queues: usize,
}

impl Driver {
    /// Reads the values.
    pub(super) fn read(&mut self, statistics: &mut dyn Statistics, netdev: &str, now: Nanos) -> io::Result<()> {
        if now >= self.names_due {
            self.ask_names(statistics, netdev)?;
            self.names_due = now.saturating_add(NAMES_PERIOD);
        }
        for again in [true, false] {
            if self.names.is_empty() {
                self.values.clear();
                return Ok(());
            }
            statistics.values(netdev, self.names.len(), &mut self.values)?;
            if self.values.len() == self.names.len() {
                return Ok(());
            }
            self.values.clear();
            if again {
                self.ask_names(statistics, netdev)?;
            }
        }
        // The next poll asks for the names again.
        self.names_due = 0;
        Err(Errno::AGAIN.into())
    }

    /// The counters of the last reading.
    pub(super) fn counters(&self) -> impl Iterator<Item = (&str, u64)> {
        self.names.iter().zip(&self.values).filter_map(|(name, value)| Some((name.as_deref()?, *value)))
    }

    /// The last reading is not to be said again.
    pub(super) fn forget_values(&mut self) {
        self.values.clear();
    }

    /// The names, read or not.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().flatten().map(String::as_str)
    }

    /// A counter of this name is among the driver's.
    pub(super) fn has(&self, name: &str) -> bool {
        self.known.contains(name)
    }

    fn ask_names(&mut self, statistics: &mut dyn Statistics, netdev: &str) -> io::Result<()> {
        let count = statistics.count(netdev)?;
        if count == 0 {
            self.raw.clear();
        } else {
            let before = std::mem::take(&mut self.raw);
            let asked = statistics.names(netdev, count, &mut self.raw);
            if asked.is_err() || (self.raw == before && !self.names.is_empty()) {
                return asked;
            }
        }
        (self.nameless, self.doubled, self.of_queues) = (0, 0, 0);
        self.names.clear();
        self.known.clear();
        let without_queues = self.raw.len() > MOST_WITH_QUEUES;
        for raw in &self.raw {
            let name = text(raw);
            let name = if name.is_empty() {
                self.nameless += 1;
                None
            } else if without_queues && is_of_a_queue(&name) {
                self.of_queues += 1;
                None
            } else if self.known.insert(name.clone()) {
                Some(name)
            } else {
                self.doubled += 1;
                None
            };
            self.names.push(name);
        }
        Ok(())
    }
}

/// The counter is one of a single queue, by how drivers name those: `rx3_packets` and `ch3_poll` (mlx5, `virtio_net`),
/// `rx_queue_3_drops` (igb, ice), `[3]: rx_ucast` (`bnxt_en`), `rx-3.packets` (i40e).
fn is_of_a_queue(name: &str) -> bool {
    let numbered = |prefix: &str, ends: &[&str]| {
        let rest = name.strip_prefix(prefix)?;
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        (after.len() < rest.len() && ends.iter().any(|end| after.starts_with(end))).then_some(())
    };
    let forms: [(&str, &[&str]); 8] = [
        ("rx", &["_"]),
        ("tx", &["_"]),
        ("ch", &["_"]),
        ("rx_queue_", &["_"]),
        ("tx_queue_", &["_"]),
        ("[", &["]"]),
        ("rx-", &["."]),
        ("tx-", &["."]),
    ];
    forms.iter().any(|(prefix, ends)| numbered(prefix, ends).is_some())
}

/// The name up to its NUL, exactly as the driver gives it; bytes that are no UTF-8 are replaced.
fn text(raw: &Name) -> String {
    let end = raw.iter().position(|byte| *byte == 0).unwrap_or(raw.len());
    String::from_utf8_lossy(&raw[..end]).into_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Names and values, or an errno.
    type Answer = Result<Vec<(Vec<u8>, u64)>, i32>;

    /// A driver of a test: what it has is what the closure says at each question.
    #[derive(Default)]
    pub(in super::super) struct Fake {
        /// Answers by network device.
        pub(in super::super) drivers: Vec<(&'static str, Answer)>,
        /// Counters appear by this many between names and values.
        pub(in super::super) grows: usize,
        pub(in super::super) asked: Arc<Mutex<Vec<String>>>,
        pub(in super::super) grown: usize,
    }

    impl Fake {
        fn of(&self, netdev: &str, question: &str) -> io::Result<Vec<(Vec<u8>, u64)>> {
            self.asked.lock().unwrap().push(format!("{question} {netdev}"));
            let driver = self.drivers.iter().find(|(name, _)| *name == netdev).map(|(_, driver)| driver.clone());
            let mut counters = driver.unwrap_or(Err(19)).map_err(io::Error::from_raw_os_error)?;
            counters.extend((0..self.grown).map(|n| (format!("queue_{n}").into_bytes(), 100 + n as u64)));
            Ok(counters)
        }
    }

    impl Statistics for Fake {
        fn count(&mut self, netdev: &str) -> io::Result<usize> {
            Ok(self.of(netdev, "count")?.len())
        }

        fn names(&mut self, netdev: &str, _: usize, names: &mut Vec<Name>) -> io::Result<()> {
            *names = self.of(netdev, "names")?.iter().map(|(name, _)| raw(name)).collect();
            Ok(())
        }

        fn values(&mut self, netdev: &str, _: usize, values: &mut Vec<u64>) -> io::Result<()> {
            let grows = self.grows.min(1);
            self.grows -= grows;
            self.grown += grows;
            *values = self.of(netdev, "values")?.iter().map(|(_, value)| *value).collect();
            Ok(())
        }
    }

    fn raw(name: &[u8]) -> Name {
        let mut raw = [0; 32];
        raw[..name.len()].copy_from_slice(name);
        raw
    }

    pub(in super::super) fn fake(counters: &[(&[u8], u64)]) -> Fake {
        let counters = counters.iter().map(|(name, value)| (name.to_vec(), *value)).collect();
        Fake { drivers: vec![("eth0", Ok(counters))], ..Fake::default() }
    }

    fn read(driver: &Driver) -> Vec<(&str, u64)> {
        driver.counters().collect()
    }

    #[test]
    fn a_name_is_kept_as_the_driver_gives_it() {
        let full = [b'x'; 32];
        let mut fake = fake(&[(b"[0]: rx_ucast", 7), (b"RNR sent", 8), (&full, 9), (b"\xffodd", 10)]);
        let mut driver = Driver::default();
        driver.read(&mut fake, "eth0", 0).unwrap();
        let full = "x".repeat(32);
        assert_eq!(read(&driver), [("[0]: rx_ucast", 7), ("RNR sent", 8), (&full, 9), ("\u{fffd}odd", 10)]);
    }

    #[test]
    fn of_a_doubled_name_the_first_stands_and_a_nameless_value_is_none() {
        let mut fake = fake(&[(b"a", 1), (b"", 2), (b"a", 3), (b"b", 4)]);
        let mut driver = Driver::default();
        driver.read(&mut fake, "eth0", 0).unwrap();
        assert_eq!(read(&driver), [("a", 1), ("b", 4)]);
        assert_eq!((driver.nameless, driver.doubled), (1, 1));
    }

    #[test]
    fn of_a_large_set_the_counters_of_single_queues_are_left_out_and_counted() {
        let of_queues = (0..600).map(|n| (format!("rx{n}_packets").into_bytes(), 1));
        let counters: Vec<(Vec<u8>, u64)> = of_queues.chain([(b"rx_packets_phy".to_vec(), 7)]).collect();
        let mut large = Fake { drivers: vec![("eth0", Ok(counters))], ..Fake::default() };
        let mut driver = Driver::default();
        driver.read(&mut large, "eth0", 0).unwrap();
        assert_eq!((read(&driver), driver.of_queues), (vec![("rx_packets_phy", 7)], 600));
        // In a small one they stay.
        let mut driver = Driver::default();
        driver.read(&mut fake(&[(b"rx0_packets", 1)]), "eth0", 0).unwrap();
        assert_eq!((read(&driver), driver.of_queues), (vec![("rx0_packets", 1)], 0));
    }

    #[test]
    fn a_priority_a_lane_and_a_size_are_no_queue() {
        for name in ["rx3_packets", "tx12_xmit_more", "ch0_poll", "rx_queue_1_drops", "[0]: rx_ucast", "tx-7.bytes"] {
            assert!(is_of_a_queue(name), "{name}");
        }
        for name in [
            "rx_prio3_pause",
            "rx_err_lane_0_phy",
            "rx_64_bytes_phy",
            "tx_priority_3_xoff.nic",
            "rx_bytes",
            "rx_",
            "tx",
            "pfc_pri3_rx_duration_us",
        ] {
            assert!(!is_of_a_queue(name), "{name}");
        }
    }

    #[test]
    fn names_are_asked_for_once_and_again_after_ten_seconds() {
        let mut fake = fake(&[(b"a", 1)]);
        let mut driver = Driver::default();
        for now in [0, 1_000_000_000, 9_000_000_000] {
            driver.read(&mut fake, "eth0", now).unwrap();
        }
        let names = |fake: &Fake| fake.asked.lock().unwrap().iter().filter(|asked| *asked == "names eth0").count();
        assert_eq!(names(&fake), 1);
        driver.read(&mut fake, "eth0", 10_000_000_000).unwrap();
        assert_eq!(names(&fake), 2);
    }

    #[test]
    fn counters_that_appear_between_names_and_values_get_their_names() {
        let mut fake = Fake { grows: 1, ..fake(&[(b"a", 1)]) };
        let mut driver = Driver::default();
        driver.read(&mut fake, "eth0", 0).unwrap();
        assert_eq!(read(&driver), [("a", 1), ("queue_0", 100)]);
    }

    #[test]
    fn nothing_is_said_while_the_counters_keep_changing() {
        let mut fake = Fake { grows: 2, ..fake(&[(b"a", 1)]) };
        let mut driver = Driver::default();
        assert_eq!(driver.read(&mut fake, "eth0", 0).unwrap_err().raw_os_error(), Some(11));
        assert!(read(&driver).is_empty());
        driver.read(&mut fake, "eth0", 1).unwrap();
        assert_eq!(read(&driver).len(), 3);
    }

    #[test]
    fn a_driver_without_statistics_has_no_counters() {
        let mut driver = Driver::default();
        driver.read(&mut fake(&[]), "eth0", 0).unwrap();
        assert!(read(&driver).is_empty());
        assert_eq!(driver.read(&mut fake(&[]), "eth9", 0).map_err(|error| error.raw_os_error()), Ok(()));
    }
}
