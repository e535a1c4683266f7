//! What is known of DCQCN's parameters: the paper's, the defaults of NVIDIA's NICs, what switches mark by; and how a NIC's
//! own parameters read beside them.
//!
//! Sources. *Paper*: Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, in the NIC's units.
//! *NIC*: NVIDIA, "DCQCN CC Parameters" (DOCA documentation), and the comments of `net_class_ecn.go` in prometheus/procfs.
//! *Vendor set*: the `dcqcn` set of HPCC's public simulator, whose increases grow with the rate: 5 and 50 Mb/s for
//! each 25 Gb/s. Names are those of `/sys/class/net/*/ecn/roce_{rp,np}` (vendor's driver) and of debugfs `cc_params`
//! (`drivers/infiniband/hw/mlx5/cong.c`), which has the same parameters under names that begin with `rp_` and `np_`.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::sim::packet::{Control, Red};

/// One parameter beside its known values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParameterRow {
    /// The driver's name; the one of `ecn/roce_*` where it was not read.
    pub parameter: String,
    /// `rp` (sender) or `np` (receiver).
    pub side: &'static str,
    /// As read; null: not read.
    pub value: Option<f64>,
    /// Of all values of the row.
    pub unit: &'static str,
    /// The DCQCN paper's, in the same unit; null: it has none. Increases are for 40 Gb/s.
    pub paper: Option<f64>,
    /// The NIC's default; null: it has none, or it is not known.
    pub nic_default: Option<f64>,
    /// What to know about it.
    pub note: Option<String>,
}

/// A parameter that is known.
struct Known {
    side: &'static str,
    /// Under `ecn/roce_rp` or `ecn/roce_np`, and in debugfs.
    names: [&'static str; 2],
    unit: &'static str,
    paper: Option<f64>,
    nic: Option<f64>,
}

#[rustfmt::skip]
const KNOWN: &[Known] = &[
    rp(["dce_tcp_g", "rp_dce_tcp_g"], "of 1024 kept", Some(1020.0), Some(1019.0)),
    rp(["dce_tcp_rtt", "rp_dce_tcp_rtt"], "µs", Some(55.0), Some(1.0)),
    rp(["initial_alpha_value", "rp_initial_alpha_value"], "of 1023", Some(1023.0), Some(1023.0)),
    rp(["rate_reduce_monitor_period", "rp_rate_reduce_monitor_period"], "µs", Some(50.0), Some(4.0)),
    rp(["rpg_time_reset", "rp_time_reset"], "µs", Some(55.0), Some(300.0)),
    rp(["rpg_byte_reset", "rp_byte_reset"], "bytes", Some(10e6), Some(32_767.0)),
    rp(["rpg_threshold", "rp_threshold"], "steps", Some(5.0), Some(1.0)),
    rp(["rpg_ai_rate", "rp_ai_rate"], "Mb/s", Some(40.0), Some(5.0)),
    rp(["rpg_hai_rate", "rp_hai_rate"], "Mb/s", Some(200.0), Some(50.0)),
    rp(["rpg_min_rate", "rp_min_rate"], "Mb/s", None, Some(1.0)),
    rp(["rpg_max_rate", "rp_max_rate"], "Mb/s", None, None),
    rp(["rpg_min_dec_fac", "rp_min_dec_fac"], "%", None, Some(50.0)),
    rp(["rpg_gd", "rp_gd"], "", None, Some(11.0)),
    rp(["rate_to_set_on_first_cnp", "rp_rate_to_set_on_first_cnp"], "Mb/s", None, Some(0.0)),
    rp(["clamp_tgt_rate", "rp_clamp_tgt_rate"], "0 or 1", Some(1.0), Some(0.0)),
    rp(["clamp_tgt_rate_after_time_inc", "rp_clamp_tgt_rate_ati"], "0 or 1", None, Some(1.0)),
    np(["min_time_between_cnps", "np_min_time_between_cnps"], "µs", Some(50.0), Some(4.0)),
    np(["cnp_dscp", "np_cnp_dscp"], "DSCP", None, Some(48.0)),
    np(["cnp_802p_prio", "np_cnp_prio"], "priority", None, Some(6.0)),
];

const fn rp(names: [&'static str; 2], unit: &'static str, paper: Option<f64>, nic: Option<f64>) -> Known {
    Known { side: "rp", names, unit, paper, nic }
}

const fn np(names: [&'static str; 2], unit: &'static str, paper: Option<f64>, nic: Option<f64>) -> Known {
    Known { side: "np", names, unit, paper, nic }
}

/// A parameter's value under one of its names, and the name.
fn read<'a>(known: &Known, np: &'a Map<String, Value>, rp: &'a Map<String, Value>) -> Option<(&'a str, f64)> {
    let map = if known.side == "rp" { rp } else { np };
    known.names.iter().find_map(|name| {
        let (name, value) = map.get_key_value(*name)?;
        // Files are text; whoever recorded them may have kept it.
        let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
        Some((name.as_str(), number))
    })
}

/// The value of the parameter that `ecn/roce_*` calls so.
fn value(name: &str, np: &Map<String, Value>, rp: &Map<String, Value>) -> Option<f64> {
    let known = KNOWN.iter().find(|known| known.names[0] == name)?;
    read(known, np, rp).map(|(_, value)| value)
}

/// Every known parameter of a port beside the paper's and the NIC's default, whether it was read or not. `rate_gbps` is the
/// port's rate, if it is known.
#[must_use]
pub fn parameters(np: &Map<String, Value>, rp: &Map<String, Value>, rate_gbps: Option<f64>) -> Vec<ParameterRow> {
    KNOWN
        .iter()
        .map(|known| {
            let read = read(known, np, rp);
            let value = read.map(|(_, value)| value);
            ParameterRow {
                parameter: read.map_or(known.names[0], |(name, _)| name).to_owned(),
                side: known.side,
                value,
                unit: known.unit,
                paper: known.paper,
                nic_default: known.nic,
                note: note(known, value, rate_gbps),
            }
        })
        .collect()
}

fn note(known: &Known, value: Option<f64>, rate_gbps: Option<f64>) -> Option<String> {
    let changed = value.zip(known.nic).is_some_and(|(value, nic)| (value - nic).abs() > f64::EPSILON);
    let what = match (known.names[0], value) {
        ("dce_tcp_g", Some(value)) => {
            Some(format!("g = {:.4}, the weight of the newest sample in alpha", (1024.0 - value) / 1024.0))
        }
        ("rpg_ai_rate" | "rpg_hai_rate", Some(value)) => rate_gbps.map(|rate| {
            let scaled = known.nic.unwrap_or(0.0) * rate / 25.0;
            if value < scaled {
                format!("recovery is slow at {rate} Gb/s; the vendor's set scales it to {scaled:.0} Mb/s")
            } else {
                format!("the vendor's set has {scaled:.0} Mb/s at {rate} Gb/s")
            }
        }),
        ("rpg_byte_reset", Some(_)) => {
            Some("as bytes, 32767 are less than a microsecond at 400 Gb/s: the unit is in doubt".to_owned())
        }
        ("rpg_max_rate", Some(value)) if value > 0.0 => Some(format!("no flow goes above {value} Mb/s")),
        ("min_time_between_cnps", Some(0.0)) => Some("a CNP for every mark".to_owned()),
        ("min_time_between_cnps", Some(value)) => {
            Some(format!("fewer CNPs than marks are normal: at most one in {value} µs"))
        }
        ("clamp_tgt_rate", Some(1.0)) => Some("the target falls at every CNP: recovery starts from there".to_owned()),
        _ => None,
    };
    match (changed, what) {
        (true, Some(what)) => Some(format!("not the default; {what}")),
        (true, None) => Some("not the default".to_owned()),
        (false, what) => what,
    }
}

/// The model's parameters as this port has them. What was not read is the NIC's default (increases scaled to the
/// rate), and named.
#[must_use]
pub fn control(np: &Map<String, Value>, rp: &Map<String, Value>, rate_gbps: f64) -> (Control, Vec<&'static str>) {
    let mut control = Control { name: "device", ..Control::nic(rate_gbps) };
    let mut missing = Vec::new();
    let mut take = |name: &'static str, set: &mut dyn FnMut(f64)| match value(name, np, rp) {
        Some(value) if value.is_finite() && value >= 0.0 => set(value),
        _ => missing.push(name),
    };
    take("dce_tcp_g", &mut |value| control.g = ((1024.0 - value) / 1024.0).clamp(0.0, 1.0));
    take("dce_tcp_rtt", &mut |value| control.alpha_period_ns = microseconds(value).max(1_000));
    take("initial_alpha_value", &mut |value| control.initial_alpha = (value / 1_023.0).min(1.0));
    take("rate_reduce_monitor_period", &mut |value| control.min_cut_interval_ns = microseconds(value));
    take("rpg_time_reset", &mut |value| control.increase_period_ns = microseconds(value).max(1_000));
    take("rpg_threshold", &mut |value| control.recovery_steps = u32::try_from(whole(value)).unwrap_or(u32::MAX));
    take("rpg_ai_rate", &mut |value| control.ai_gbps = value / 1e3);
    take("rpg_hai_rate", &mut |value| control.hai_gbps = value / 1e3);
    take("rpg_min_rate", &mut |value| control.min_rate_gbps = (value / 1e3).clamp(0.001, rate_gbps));
    take("clamp_tgt_rate", &mut |value| control.clamp_target = value > 0.0);
    take("min_time_between_cnps", &mut |value| control.cnp_interval_ns = microseconds(value));
    (control, missing)
}

fn microseconds(value: f64) -> u64 {
    whole(value).saturating_mul(1_000)
}

fn whole(value: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what does not fit becomes the nearest that does"
    )]
    let whole = value as u64;
    whole
}

/// A switch's marking that is in use somewhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Marking {
    /// Short name.
    pub name: &'static str,
    /// The thresholds.
    pub red: Red,
    /// Where it is from.
    pub source: &'static str,
}

/// What switches mark by, at this rate and round trip.
#[must_use]
pub fn markings(rate_gbps: f64, rtt_ns: u64) -> [Marking; 4] {
    let kilobytes = |kb: f64| whole(kb * 1_000.0);
    let bdp = rate_gbps / 8.0 * rtt_ns as f64;
    let marking = |name, kmin_bytes, kmax_bytes: u64, pmax, source| Marking {
        name,
        red: Red { kmin_bytes: kmax_bytes.min(kmin_bytes), kmax_bytes, pmax },
        source,
    };
    [
        marking("paper", 5_000, 200_000, 0.01, "the DCQCN paper, for 40 Gb/s"),
        marking("sonic", 1 << 20, 2 << 20, 0.05, "SONiC's default WRED profile, every rate"),
        marking(
            "hpcc",
            kilobytes(100.0 * rate_gbps / 25.0),
            kilobytes(400.0 * rate_gbps / 25.0),
            0.2,
            "HPCC's public simulator: 100 and 400 KB for each 25 Gb/s",
        ),
        marking(
            "huawei",
            7_000,
            whole(2.5 * bdp),
            0.2,
            "Huawei's rule: Kmax two to three bandwidth-delay products; 7 KB and 10–30 % as on its 100GE ports",
        ),
    ]
}

/// What in the settings of a node and its switch gets in its own way; `kmax_bytes` and `data_dscp` where they are known.
#[must_use]
pub fn collisions(
    np: &Map<String, Value>,
    kmax_bytes: Option<u64>,
    bandwidth_delay_bytes: Option<u64>,
    data_dscp: &[u8],
) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(cnp) = value("cnp_dscp", np, np)
        && let Some(dscp) = data_dscp.iter().find(|dscp| (f64::from(**dscp) - cnp).abs() < f64::EPSILON)
    {
        found.push(format!(
            "data is sent with DSCP {dscp}, which is that of CNPs: notifications wait behind the data they are about"
        ));
    }
    if let Some((kmax, product)) = kmax_bytes.zip(bandwidth_delay_bytes)
        && kmax < 2 * product
    {
        found.push(format!(
            "Kmax ({kmax} bytes) is below two bandwidth-delay products ({} bytes): every packet is marked before the \
             senders can have heard of the first mark",
            2 * product
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_port_at_its_defaults_reads_like_the_known_set_by_either_drivers_names() {
        let sysfs = map(json!({"dce_tcp_g": 1019, "rpg_time_reset": "300\n", "rpg_ai_rate": 5}));
        let debugfs = map(json!({"rp_dce_tcp_g": 1019, "rp_time_reset": 300, "rp_ai_rate": 5}));
        let np = map(json!({"min_time_between_cnps": 4, "cnp_dscp": 48}));
        for rp in [sysfs, debugfs] {
            let rows = parameters(&np, &rp, Some(400.0));
            assert_eq!(rows.len(), KNOWN.len());
            let row = |name: &str| rows.iter().find(|row| row.parameter.ends_with(name)).unwrap();
            assert_eq!((row("time_reset").value, row("time_reset").note.clone()), (Some(300.0), None));
            assert_eq!(row("dce_tcp_g").note.as_deref(), Some("g = 0.0049, the weight of the newest sample in alpha"));
            assert!(row("ai_rate").note.as_deref().unwrap().contains("scales it to 80 Mb/s"));
            assert_eq!((row("threshold").value, row("threshold").paper), (None, Some(5.0)), "not read is not zero");
            assert!(row("min_time_between_cnps").note.as_deref().unwrap().starts_with("fewer CNPs than marks"));
        }
    }

    #[test]
    fn a_changed_parameter_says_so() {
        let rp = map(json!({"rpg_threshold": 5, "rpg_max_rate": 50000}));
        let rows = parameters(&Map::new(), &rp, None);
        let note = |name: &str| rows.iter().find(|row| row.parameter == name).unwrap().note.clone();
        assert_eq!(note("rpg_threshold").as_deref(), Some("not the default"));
        assert_eq!(note("rpg_max_rate").as_deref(), Some("no flow goes above 50000 Mb/s"));
    }

    #[test]
    fn the_models_parameters_are_the_ports_and_what_is_missing_is_named() {
        let rp = map(json!({"rp_dce_tcp_g": 1020, "rp_time_reset": 55, "rp_ai_rate": 40, "rp_threshold": 5}));
        let (control, missing) = control(&Map::new(), &rp, 400.0);
        assert!((control.g - 1.0 / 256.0).abs() < 1e-12 && (control.ai_gbps - 0.04).abs() < 1e-12, "{control:?}");
        assert_eq!((control.increase_period_ns, control.recovery_steps, control.name), (55_000, 5, "device"));
        assert_eq!(control.cnp_interval_ns, Control::nic(400.0).cnp_interval_ns);
        assert!(missing.contains(&"min_time_between_cnps") && !missing.contains(&"rpg_time_reset"), "{missing:?}");
    }

    #[test]
    fn known_markings_grow_with_the_rate_where_their_rule_does() {
        let kmax = |rate: f64| markings(rate, 20_000).map(|marking| marking.red.kmax_bytes);
        assert_eq!(kmax(400.0), [200_000, 2 << 20, 6_400_000, 2_500_000]);
        assert_eq!(kmax(25.0)[2], 400_000);
        assert!(markings(1.0, 1_000).iter().all(|marking| marking.red.kmin_bytes <= marking.red.kmax_bytes));
    }

    #[test]
    fn data_in_the_class_of_cnps_and_a_kmax_below_two_products_collide() {
        let np = map(json!({"cnp_dscp": 48}));
        assert_eq!(collisions(&np, Some(1_000_000), Some(400_000), &[26]), Vec::<String>::new());
        let found = collisions(&np, Some(200_000), Some(400_000), &[26, 48]);
        assert!(found[0].contains("DSCP 48") && found[1].contains("800000 bytes"), "{found:?}");
        assert_eq!(collisions(&Map::new(), None, None, &[48]), Vec::<String>::new(), "unknown is no finding");
    }
}
