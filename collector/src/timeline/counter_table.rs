//! The product's counter table: what each driver's counters are.
//!
//! The rows are in `counters.tsv` beside this file, one counter (or one pattern of counters) a line, with closed
//! columns. This file is their schema and the look-up.
//!
//! | column | values |
//! |---|---|
//! | `driver` | a driver family ([`family`]) or `*` for every driver |
//! | `name` | the driver's own name; `{n}` stands for one number (`rx_prio{n}_pause`); `*` alone for every name of that driver and source without a row of its own |
//! | `source` | [`TableSource`] |
//! | `unit` | [`Unit`] |
//! | `width` | bits a reading can have: 4, 8, 16, 32, 64; `32\|64` where it is 64 on some devices and 32 on others |
//! | `kind` | [`Kind`] |
//! | `overflow` | [`Overflow`] |
//! | `class` | [`Class`] |
//! | `meaning` | [`Meaning`], `-` for none |
//! | `combine` | [`Combine`]: `prefer:R`, `sum:R` or `max:R`; `-` exactly where there is no meaning |
//! | `flags` | [`Flags`], comma separated, `-` for none |
//! | `help` | one line for the screen |
//!
//! # From counters to a meaning
//!
//! A port often has several counters for one meaning. `combine` gives each a rank, 1 the best. For one port and one
//! meaning: take the lowest rank of which every present counter can be read, and only the counters of that rank;
//! combine their **deltas** (never their totals) as [`Combine::how`] says. Counters of different ranks are views of the
//! same traffic and are never added: RDMA bytes of an mlx5 port are `port_xmit_data`·4, and the same bytes in
//! `tx_vport_rdma_unicast_bytes` or inside `tx_bytes_phy` are not added to them.
//!
//! The order of ranks, where there is a choice: 64-bit before narrower (`counters_ext/` before `counters/`), RDMA alone
//! before RDMA with other traffic, always there before optional, InfiniBand's own sets before the network device's.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::observation::CounterSource;

pub use super::counter_columns::{Class, Combine, Flags, How, Kind, Meaning, Overflow, TableSource, Unit, Width};

/// The rows as text.
const TSV: &str = include_str!("counters.tsv");

static TABLE: LazyLock<CounterTable> =
    LazyLock::new(|| CounterTable::parse(TSV).expect("counters.tsv is parsed by a test of this file"));

/// The definition of a counter without a row.
///
/// Nothing is assumed of it: it has no unit (so it is never shown as bytes or per-second bytes), a rise is counted, a
/// fall is unknown (it may be a gauge), and all-ones is no value.
static UNKNOWN: CounterDef = CounterDef {
    driver: "*",
    name: "*",
    source: TableSource::Hw,
    unit: Unit::None,
    width: Width::Bits(64),
    kind: Kind::Counter,
    overflow: Overflow::Unknown,
    class: Class::Traffic,
    meaning: None,
    combine: None,
    flags: Flags { all_ones_na: true, vf_zero: false, lag_sum: false, optional: false, unreliable: false },
    help: "not in the counter table: unit and behaviour unknown",
};

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterDef {
    /// Driver family, or `*`.
    pub driver: &'static str,
    /// Name or pattern.
    pub name: &'static str,
    /// Where it is read.
    pub source: TableSource,
    /// What one count is.
    pub unit: Unit,
    /// How wide a reading can be.
    pub width: Width,
    /// Counter or gauge.
    pub kind: Kind,
    /// What it does at its limit.
    pub overflow: Overflow,
    /// What it is good for.
    pub class: Class,
    /// The driver-independent meaning.
    pub meaning: Option<Meaning>,
    /// Rank among the counters of the same meaning; there exactly when `meaning` is.
    pub combine: Option<Combine>,
    /// Peculiarities.
    pub flags: Flags,
    /// One line for the screen.
    pub help: &'static str,
}

impl CounterDef {
    /// The counter has a row: false only for the definition that stands for a counter nobody described.
    #[must_use]
    pub fn known(&self) -> bool {
        self.name != "*"
    }

    /// A setting that lies among the counters (`lifespan`): neither a total nor a rate.
    #[must_use]
    pub fn is_setting(&self) -> bool {
        self.unit == Unit::Parameter
    }

    /// The number that stands for `{n}` in `name`, for example the priority in `rx_prio3_pause`.
    #[must_use]
    pub fn index_in(&self, name: &str) -> Option<u8> {
        let (prefix, suffix) = self.name.split_once("{n}")?;
        number_between(name, prefix, suffix)
    }
}

/// The definition of a counter as `driver` (the kernel's name, see [`family`]) gives it in `source`.
///
/// Never fails: a counter without a row has a definition that assumes nothing. Without a driver the name alone
/// decides, if all drivers that have it agree on its kind and on whether it is bytes.
#[must_use]
pub fn lookup(driver: Option<&str>, source: CounterSource, name: &str) -> &'static CounterDef {
    let Some(source) = TableSource::of(source) else { return &UNKNOWN };
    let def = TABLE.find(driver, source, name);
    // The standard FEC statistics are read with the network device's own.
    if source == TableSource::Ethtool && !def.known() { TABLE.find(driver, TableSource::Fec, name) } else { def }
}

/// The same for what is not a counter set: AER totals, PCI attributes, carrier counts.
#[must_use]
pub fn lookup_in(driver: Option<&str>, source: TableSource, name: &str) -> &'static CounterDef {
    TABLE.find(driver, source, name)
}

/// All rows, in the table's order.
#[must_use]
pub fn all() -> &'static [CounterDef] {
    &TABLE.rows
}

/// A name as the table has it; `None` for one it does not know. Names that are kept for each port are so kept once.
#[must_use]
pub fn known_name(name: &str) -> Option<&'static str> {
    TABLE.by_name.get_key_value(name).map(|(name, _)| *name)
}

/// The table's name of a driver: the kernel names the driver of the PCI function, which is often another module than
/// the one that makes the RDMA device.
#[must_use]
pub fn family(driver: &str) -> &str {
    match driver {
        "mlx5_core" | "mlx5_ib" => "mlx5",
        "mlx4_core" | "mlx4_ib" | "mlx4_en" => "mlx4",
        "bnxt_en" => "bnxt_re",
        "ice" | "i40e" | "iavf" | "idpf" | "i40iw" => "irdma",
        "hns3" | "hns-roce" | "hns_roce_hw_v2" | "hns_roce_hw_v1" => "hns_roce",
        "rdma_rxe" => "rxe",
        "mana_ib" => "mana",
        "ionic_rdma" => "ionic",
        other => other,
    }
}

/// The table and its index.
struct CounterTable {
    rows: Vec<CounterDef>,
    /// Rows by name, patterns and defaults excluded.
    by_name: HashMap<&'static str, Vec<u16>>,
    /// Rows whose name holds `{n}`.
    patterns: Vec<u16>,
    /// Rows named `*`.
    defaults: Vec<u16>,
}

impl CounterTable {
    fn parse(tsv: &'static str) -> Result<Self, BadRow> {
        let mut table = Self { rows: Vec::new(), by_name: HashMap::new(), patterns: Vec::new(), defaults: Vec::new() };
        for (number, line) in (1u32..).zip(tsv.lines()) {
            if number == 1 || line.is_empty() {
                continue;
            }
            let def = CounterDef::parse(line).map_err(|column| BadRow { line: number, column })?;
            let at = u16::try_from(table.rows.len()).map_err(|_| BadRow { line: number, column: "row count" })?;
            table.rows.push(def);
            if def.name == "*" {
                table.defaults.push(at);
            } else if def.name.contains("{n}") {
                table.patterns.push(at);
            } else {
                table.by_name.entry(def.name).or_default().push(at);
            }
        }
        Ok(table)
    }

    fn row(&self, at: u16) -> &CounterDef {
        &self.rows[usize::from(at)]
    }

    fn find(&'static self, driver: Option<&str>, source: TableSource, name: &str) -> &'static CounterDef {
        let family = driver.map(family);
        let here = |def: &&CounterDef| def.source == source;
        let exact = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        pick(exact.iter().map(|&at| self.row(at)).filter(here), family)
            .or_else(|| {
                if !name.bytes().any(|b| b.is_ascii_digit()) {
                    return None;
                }
                let fits = |def: &&CounterDef| def.index_in(name).is_some();
                pick(self.patterns.iter().map(|&at| self.row(at)).filter(here).filter(fits), family)
            })
            .or_else(|| {
                let mut defaults = self.defaults.iter().map(|&at| self.row(at)).filter(here);
                defaults.find(|def| Some(def.driver) == family)
            })
            .unwrap_or(&UNKNOWN)
    }
}

/// The row of the family, else the row for all; without a family the first, if all are alike.
fn pick(
    mut rows: impl Iterator<Item = &'static CounterDef> + Clone,
    family: Option<&str>,
) -> Option<&'static CounterDef> {
    let Some(family) = family else {
        let first = rows.next()?;
        let alike = |def: &CounterDef| def.kind == first.kind && def.unit.bytes_factor() == first.unit.bytes_factor();
        return rows.all(alike).then_some(first);
    };
    rows.clone().find(|def| def.driver == family).or_else(|| rows.find(|def| def.driver == "*"))
}

/// The number (0–255, plain decimal) between `prefix` and `suffix` in `name`.
fn number_between(name: &str, prefix: &str, suffix: &str) -> Option<u8> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// A line of the table that is not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: bad {column}")]
struct BadRow {
    line: u32,
    column: &'static str,
}

impl CounterDef {
    /// One line; the error is the name of the column at fault.
    fn parse(line: &'static str) -> Result<Self, &'static str> {
        let mut columns = line.split('\t');
        let mut next = |column: &'static str| columns.next().filter(|text| !text.is_empty()).ok_or(column);
        let driver = next("driver")?;
        let name = next("name")?;
        let source = TableSource::from_name(next("source")?).ok_or("source")?;
        let unit = Unit::from_name(next("unit")?).ok_or("unit")?;
        let width = Width::parse(next("width")?).ok_or("width")?;
        let kind = Kind::from_name(next("kind")?).ok_or("kind")?;
        let overflow = Overflow::from_name(next("overflow")?).ok_or("overflow")?;
        let class = Class::from_name(next("class")?).ok_or("class")?;
        let meaning = optional(next("meaning")?, "meaning", Meaning::from_name)?;
        let combine = optional(next("combine")?, "combine", Combine::parse)?;
        let flags = Flags::parse(next("flags")?).ok_or("flags")?;
        let help = next("help")?;
        if columns.next().is_some() {
            return Err("number of columns");
        }
        if meaning.is_some() != combine.is_some() {
            return Err("combine (without meaning, or meaning without combine)");
        }
        Ok(Self { driver, name, source, unit, width, kind, overflow, class, meaning, combine, flags, help })
    }
}

/// `-` is none; anything else must parse. The error is the column's name.
fn optional<T>(
    text: &'static str,
    column: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, &'static str> {
    if text == "-" { Ok(None) } else { parse(text).map(Some).ok_or(column) }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;

    const PORT: CounterSource = CounterSource::Counters;
    const HW: CounterSource = CounterSource::HwCounters;

    fn bytes(driver: &str, source: CounterSource, name: &str) -> Option<u64> {
        lookup(Some(driver), source, name).unit.bytes_factor()
    }

    #[test]
    fn every_line_of_the_table_is_a_row() {
        let table = CounterTable::parse(TSV).unwrap_or_else(|bad| panic!("{bad}"));
        assert_eq!(table.rows.len(), TSV.lines().count() - 1);
        assert_eq!(
            table.rows.len(),
            table.by_name.values().map(Vec::len).sum::<usize>() + table.patterns.len() + table.defaults.len()
        );
    }

    #[test]
    fn a_line_with_a_word_outside_its_column_is_refused_by_its_number() {
        let bad = |line: &'static str| CounterTable::parse(line).map(|_| ()).expect_err("the line is no row");
        let good = "h\nx\ty\thw\tbytes\t64\tcounter\twraps\ttraffic\ttx_bytes\tprefer:1\t-\thelp";
        assert!(CounterTable::parse(good).is_ok());
        let cases = [
            ("h\nx\ty\tsysfs\tbytes\t64\tcounter\twraps\ttraffic\t-\t-\t-\thelp", "source"),
            ("h\nx\ty\thw\toctets\t64\tcounter\twraps\ttraffic\t-\t-\t-\thelp", "unit"),
            ("h\nx\ty\thw\tbytes\t12\tcounter\twraps\ttraffic\t-\t-\t-\thelp", "width"),
            ("h\nx\ty\thw\tbytes\t64\tmeter\twraps\ttraffic\t-\t-\t-\thelp", "kind"),
            ("h\nx\ty\thw\tbytes\t64\tcounter\trolls\ttraffic\t-\t-\t-\thelp", "overflow"),
            ("h\nx\ty\thw\tbytes\t64\tcounter\twraps\tfun\t-\t-\t-\thelp", "class"),
            ("h\nx\ty\thw\tbytes\t64\tcounter\twraps\ttraffic\ttx\tprefer:1\t-\thelp", "meaning"),
            ("h\nx\ty\thw\tbytes\t64\tcounter\twraps\ttraffic\ttx_bytes\tprefer:0\t-\thelp", "combine"),
            ("h\nx\ty\thw\tbytes\t64\tcounter\twraps\ttraffic\t-\t-\tsoft\thelp", "flags"),
            ("h\nx\ty\thw\tbytes\t64\tcounter\twraps\ttraffic\t-\t-\t-\t", "help"),
            ("h\nx\ty\thw\tbytes\t64\tcounter\twraps\ttraffic\t-\t-\t-\thelp\tmore", "number of columns"),
        ];
        for (line, column) in cases {
            assert_eq!(bad(line), BadRow { line: 2, column }, "{line}");
        }
    }

    #[test]
    fn no_counter_has_two_rows() {
        let mut seen = HashSet::new();
        for def in all() {
            assert!(seen.insert((def.driver, def.name, def.source)), "{} {} twice", def.driver, def.name);
        }
    }

    #[test]
    fn no_driver_of_the_kernel_is_left_out() {
        let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
        for def in all() {
            *rows.entry(def.driver).or_default() += 1;
        }
        // What the kernel sources list per driver, patterns counted once; new rows may come, none may go.
        let least = [
            ("*", 87),
            ("bnxt_re", 131),
            ("efa", 34),
            ("erdma", 22),
            ("hns_roce", 36),
            ("ionic", 47),
            ("irdma", 77),
            ("mana", 39),
            ("mlx4", 25),
            ("mlx5", 148),
            ("rxe", 20),
            ("siw", 1),
        ];
        for (driver, least) in least {
            let found = rows.remove(driver).unwrap_or(0);
            assert!(found >= least, "{driver}: {found} rows, expected {least}");
        }
        assert!(rows.is_empty(), "families without a name here: {rows:?}");
    }

    #[test]
    fn only_the_pma_sticks_and_only_its_data_counters_are_words() {
        for def in all() {
            assert!(def.overflow != Overflow::Sticks || def.source == TableSource::Counters, "{}", def.name);
            let words =
                ["port_xmit_data", "port_rcv_data", "port_xmit_data_64", "port_rcv_data_64"].contains(&def.name);
            assert_eq!(def.unit == Unit::Words4, words, "{}", def.name);
            assert!(!words || def.source == TableSource::Counters);
        }
    }

    #[test]
    fn a_byte_meaning_is_counted_in_bytes_and_a_duration_in_microseconds() {
        use Meaning::{LoopbackBytes, PriorityRxBytes, PriorityTxBytes, RetransmittedBytes, RxBytes, RxPauseDuration};
        use Meaning::{TxBytes, TxPauseDuration, WireRxBytes, WireTxBytes};
        for def in all() {
            match def.meaning {
                Some(
                    TxBytes | RxBytes | WireTxBytes | WireRxBytes | LoopbackBytes | PriorityTxBytes | PriorityRxBytes
                    | RetransmittedBytes,
                ) => assert!(def.unit.bytes_factor().is_some(), "{}", def.name),
                Some(RxPauseDuration | TxPauseDuration) => assert_eq!(def.unit, Unit::Microseconds, "{}", def.name),
                _ => {}
            }
        }
    }

    #[test]
    fn the_counters_of_one_rank_combine_in_one_way() {
        let mut how: BTreeMap<(&str, Meaning, u8), How> = BTreeMap::new();
        // Counters of logs are combined with each other only: sources of one rank are never mixed.
        for def in all().iter().filter(|def| def.source != TableSource::Log) {
            let (Some(meaning), Some(combine)) = (def.meaning, def.combine) else { continue };
            let first = *how.entry((def.driver, meaning, combine.rank)).or_insert(combine.how);
            assert_eq!(first, combine.how, "{} {}", def.driver, def.name);
        }
        // A row for every driver shares its rank with no row of a driver, or the two would be summed.
        for (driver, meaning, rank) in how.keys() {
            let shared = *driver != "*" && how.get(&("*", *meaning, *rank)).is_some_and(|h| *h != How::Prefer);
            assert!(!shared, "{driver}: {} rank {rank} mixes with the row for all drivers", meaning.name());
        }
    }

    #[test]
    fn the_pma_data_counters_are_words_that_stick_on_every_driver() {
        for driver in [None, Some("mlx5_core"), Some("mlx4_core"), Some("hfi1"), Some("bnxt_en"), Some("rdma_rxe")] {
            let def = lookup(driver, PORT, "port_xmit_data");
            assert_eq!((def.unit, def.overflow, def.width), (Unit::Words4, Overflow::Sticks, Width::Bits32Or64));
            assert_eq!(def.meaning, Some(Meaning::TxBytes));
        }
        assert_eq!(lookup(Some("mlx5_core"), PORT, "symbol_error").width.ceiling(), 65_535);
        assert_eq!(lookup(None, PORT, "link_downed").width.ceiling(), 255);
        assert_eq!(lookup(None, PORT, "local_link_integrity_errors").width.ceiling(), 15);
        assert_eq!(lookup(None, PORT, "port_xmit_wait").unit, Unit::Ticks);
    }

    #[test]
    fn vendor_byte_counters_are_bytes_already() {
        assert_eq!(bytes("bnxt_en", HW, "tx_bytes"), Some(1));
        assert_eq!(bytes("efa", HW, "tx_bytes"), Some(1));
        assert_eq!(bytes("ice", HW, "ip4InOctets"), Some(1));
        assert_eq!(bytes("erdma", HW, "hw_tx_bytes_cnt"), Some(1));
        assert_eq!(bytes("erdma", CounterSource::Nldev, "tx_bytes_cnt"), Some(1));
        assert_eq!(bytes("ionic", HW, "tx_rdma_ucast_bytes"), Some(1));
        assert_eq!(bytes("mana", HW, "rx_bytes"), Some(1));
        assert_eq!(bytes("mlx5_core", CounterSource::Nldev, "rdma_tx_bytes"), Some(1));
        assert_eq!(bytes("mlx5_core", CounterSource::Ethtool, "tx_bytes_phy"), Some(1));
    }

    #[test]
    fn hw_counters_netlink_and_bound_sets_are_one_set() {
        let name = "np_ecn_marked_roce_packets";
        let def = lookup(Some("mlx5_core"), HW, name);
        assert!(def.known() && def.flags.lag_sum);
        for source in [CounterSource::Nldev, CounterSource::Qp] {
            assert!(std::ptr::eq(def, lookup(Some("mlx5_ib"), source, name)));
        }
        assert!(!lookup(Some("mlx5_core"), CounterSource::Other, name).known());
    }

    #[test]
    fn a_pattern_matches_one_plain_number_and_gives_it() {
        let ethtool = |name| lookup(Some("mlx5_core"), CounterSource::Ethtool, name);
        let def = ethtool("rx_prio3_pause_duration");
        assert_eq!((def.name, def.meaning), ("rx_prio{n}_pause_duration", Some(Meaning::RxPauseDuration)));
        assert_eq!(def.index_in("rx_prio3_pause_duration"), Some(3));
        assert_eq!(ethtool("rx_prio0_pause").name, "rx_prio{n}_pause");
        for name in ["rx_prio_pause", "rx_prio+3_pause", "rx_priox_pause", "rx_prio300_pause", "rx_prio3_pauses"] {
            assert!(!ethtool(name).known(), "{name}");
        }
        assert_eq!(ethtool("rx_prio3_bytes").index_in("tx_prio3_bytes"), None);
        assert_eq!(ethtool("rx_crc_errors_phy").index_in("rx_crc_errors_phy"), None);
    }

    #[test]
    fn a_counter_nobody_described_is_never_bytes() {
        for driver in [None, Some("mlx5_core"), Some("nobody")] {
            let def = lookup(driver, HW, "tx_bytes_of_tomorrow");
            assert!(!def.known());
            assert_eq!((def.unit, def.meaning, def.overflow), (Unit::None, None, Overflow::Unknown));
        }
        // Another driver's name says nothing about this driver.
        assert!(!lookup(Some("nobody"), HW, "tx_bytes").known());
        assert!(!lookup(Some("mlx5_core"), HW, "tx_bytes").known());
    }

    #[test]
    fn without_a_driver_the_name_decides_when_all_drivers_agree() {
        assert_eq!(lookup(None, HW, "np_cnp_sent").meaning, Some(Meaning::CnpSent));
        assert_eq!(lookup(None, HW, "sent_pkts").meaning, Some(Meaning::TxPackets));
        // mlx5 has 32 bits and rxe 64: the cautious one.
        assert_eq!(lookup(None, HW, "duplicate_request").overflow, Overflow::Unknown);
    }

    #[test]
    fn firmware_names_of_ionic_have_a_default_that_knows_no_value() {
        let def = lookup(Some("ionic"), HW, "a_name_of_next_year");
        assert_eq!((def.driver, def.flags.all_ones_na, def.unit), ("ionic", true, Unit::None));
        assert!(!def.known());
    }

    #[test]
    fn lifespan_is_a_setting_and_the_stalls_are_gauges() {
        assert!(lookup(Some("mlx5_core"), HW, "lifespan").is_setting());
        assert_eq!(lookup(None, HW, "lifespan").kind, Kind::Gauge);
        let stall = lookup(Some("mlx5_core"), CounterSource::Ethtool, "outbound_pci_stalled_rd");
        assert_eq!((stall.kind, stall.unit), (Kind::Gauge, Unit::Percent));
        assert_eq!(lookup(Some("bnxt_en"), HW, "active_qps").kind, Kind::Gauge);
        assert_eq!(lookup(Some("efa"), HW, "completed_cmds").kind, Kind::Counter);
    }

    #[test]
    fn names_with_spaces_and_names_of_older_kernels_are_known() {
        assert_eq!(lookup(Some("irdma"), HW, "RNR sent").meaning, Some(Meaning::RnrNakSent));
        assert_eq!(lookup(Some("ice"), HW, "tcpRetransSegs").meaning, Some(Meaning::Retransmissions));
        assert_eq!(lookup(Some("ice"), HW, "iwInRdmaReads").meaning, Some(Meaning::RxReadRequests));
        assert_eq!(lookup(Some("rdma_rxe"), HW, "out_of_sequence").meaning, Some(Meaning::OutOfSequence));
        assert_eq!(lookup(Some("mlx4_core"), PORT, "port_rcv_data_64").meaning, Some(Meaning::RxBytes));
    }

    #[test]
    fn one_meaning_has_the_names_of_every_vendor() {
        let cases = [
            ("mlx5_core", "np_cnp_sent", Meaning::CnpSent),
            ("ice", "cnpSent", Meaning::CnpSent),
            ("ionic", "tx_rdma_cnp_pkts", Meaning::CnpSent),
            ("bnxt_en", "tx_cnp_pkts", Meaning::CnpSent),
            ("ice", "cnpHandled", Meaning::CnpHandled),
            ("ionic", "rx_rdma_cnp_pkts", Meaning::CnpHandled),
            ("ice", "cnpIgnored", Meaning::CnpIgnored),
            ("ionic", "rx_rdma_ecn_pkts", Meaning::EcnMarkedRx),
            ("ionic", "tx_rdma_retx_pkts", Meaning::Retransmissions),
            ("efa", "retrans_pkts", Meaning::Retransmissions),
            ("efa", "unresponsive_remote_events", Meaning::RemoteUnresponsive),
            ("erdma", "hw_rx_disable_drop_cnt", Meaning::RxDrops),
        ];
        for (driver, name, meaning) in cases {
            assert_eq!(lookup(Some(driver), HW, name).meaning, Some(meaning), "{driver} {name}");
        }
    }

    #[test]
    fn standard_fec_statistics_are_found_in_the_network_devices_set() {
        let def = lookup(Some("bnxt_en"), CounterSource::Ethtool, "uncorrectable_blocks");
        assert_eq!((def.source, def.meaning), (TableSource::Fec, Some(Meaning::PostFecErrors)));
        assert_eq!(lookup_in(None, TableSource::Aer, "Rollover").class, Class::Pcie);
    }

    /// The rank of a counter of the given driver among those of the meaning.
    fn rank(driver: &str, source: CounterSource, name: &str, meaning: Meaning) -> Combine {
        let def = lookup(Some(driver), source, name);
        assert_eq!(def.meaning, Some(meaning), "{driver} {name}");
        def.combine.expect("a meaning has a rank")
    }

    #[test]
    fn bytes_of_one_port_have_one_source_each_with_its_own_rank() {
        let pma = rank("mlx5_core", PORT, "port_xmit_data", Meaning::TxBytes);
        let optional = rank("mlx5_core", HW, "rdma_tx_bytes", Meaning::TxBytes);
        let vport = rank("mlx5_core", CounterSource::Ethtool, "tx_vport_rdma_unicast_bytes", Meaning::TxBytes);
        assert!(pma.rank < optional.rank && optional.rank < vport.rank);
        // The wire's bytes hold other traffic and headers: another meaning, never RDMA bytes.
        let wire = lookup(Some("mlx5_core"), CounterSource::Ethtool, "tx_bytes_phy").meaning;
        assert_eq!(wire, Some(Meaning::WireTxBytes));
        let roce = rank("bnxt_en", HW, "tx_roce_only_bytes", Meaning::TxBytes);
        assert!(roce.rank < rank("bnxt_en", HW, "tx_bytes", Meaning::TxBytes).rank);
    }

    #[test]
    fn counters_ext_goes_before_counters() {
        let rank = |name| rank("mlx4_core", PORT, name, Meaning::RxBytes).rank;
        assert!(rank("port_rcv_data_64") < rank("port_rcv_data"));
    }

    #[test]
    fn what_is_counted_in_parts_is_a_sum_of_one_rank() {
        let sum = Combine { rank: 1, how: How::Sum };
        for (driver, parts, meaning) in [
            ("ice", ["ip4InOctets", "ip6InOctets"], Meaning::RxBytes),
            ("ionic", ["tx_rdma_ucast_bytes", "tx_rdma_mcast_bytes"], Meaning::TxBytes),
            ("mlx5_core", ["req_remote_access_errors", "resp_remote_access_errors"], Meaning::AccessErrors),
        ] {
            for part in parts {
                assert_eq!(rank(driver, HW, part, meaning), sum, "{driver} {part}");
            }
        }
        // Multicast octets of irdma are among the octets already.
        assert_eq!(lookup(Some("ice"), HW, "ip4InMcastOctets").meaning, None);
        // Pauses of two priorities overlap in time: the longest counts.
        let pause = lookup(Some("mlx5_core"), CounterSource::Ethtool, "rx_prio3_pause_duration");
        assert_eq!(pause.combine, Some(Combine { rank: 1, how: How::Max }));
    }
}
