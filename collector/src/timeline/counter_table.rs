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
//! | `width` | bits a reading can have: 4, 8, 16, 32, 64; `32\|64` where the table the driver reads is not visible |
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
        !std::ptr::eq(self, &raw const UNKNOWN) && self.name != "*"
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
    TableSource::of(source).map_or(&UNKNOWN, |source| TABLE.find(driver, source, name))
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
        let meaning = optional(next("meaning")?, Meaning::from_name).ok_or("meaning")?;
        let combine = optional(next("combine")?, Combine::parse).ok_or("combine")?;
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

/// `-` is none; anything else must parse.
fn optional<T>(text: &'static str, parse: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if text == "-" { Some(None) } else { parse(text).map(Some) }
}
