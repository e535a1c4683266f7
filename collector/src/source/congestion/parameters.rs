//! DCQCN's parameters from files, under the names of the vendor driver's `ecn/` directories.
//!
//! `class/net/NETDEV/ecn/roce_{np,rp}/` exist with the vendor's driver alone; `kernel/debug/mlx5/PCI/cc_params/` is the
//! mainline driver's, for root (`drivers/infiniband/hw/mlx5/cong.c`). Where both have a parameter the first stands: it is
//! the same register.

use serde_json::{Map, Value};

use crate::source::files::{Files, errno_name};
use crate::source::ports::RdmaPort;
use crate::timeline::counter_table::family;

/// Which of the two sides a parameter is of.
#[derive(Clone, Copy)]
enum Side {
    Np,
    Rp,
}

/// The files of `cc_params` and the vendor's name of each.
const CC_PARAMS: [(&str, Side, &str); 22] = [
    ("np_cnp_dscp", Side::Np, "cnp_dscp"),
    ("np_cnp_prio", Side::Np, "cnp_802p_prio"),
    ("np_cnp_prio_mode", Side::Np, "cnp_prio_mode"),
    ("np_min_time_between_cnps", Side::Np, "min_time_between_cnps"),
    ("rp_ai_rate", Side::Rp, "rpg_ai_rate"),
    ("rp_byte_reset", Side::Rp, "rpg_byte_reset"),
    ("rp_clamp_tgt_rate", Side::Rp, "clamp_tgt_rate"),
    ("rp_clamp_tgt_rate_ati", Side::Rp, "clamp_tgt_rate_after_time_inc"),
    ("rp_dce_tcp_g", Side::Rp, "dce_tcp_g"),
    ("rp_dce_tcp_rtt", Side::Rp, "dce_tcp_rtt"),
    ("rp_gd", Side::Rp, "rpg_gd"),
    ("rp_hai_rate", Side::Rp, "rpg_hai_rate"),
    ("rp_initial_alpha_value", Side::Rp, "initial_alpha_value"),
    ("rp_max_rate", Side::Rp, "rpg_max_rate"),
    ("rp_min_dec_fac", Side::Rp, "rpg_min_dec_fac"),
    ("rp_min_rate", Side::Rp, "rpg_min_rate"),
    ("rp_rate_reduce_monitor_period", Side::Rp, "rate_reduce_monitor_period"),
    ("rp_rate_to_set_on_first_cnp", Side::Rp, "rate_to_set_on_first_cnp"),
    ("rp_threshold", Side::Rp, "rpg_threshold"),
    ("rp_time_reset", Side::Rp, "rpg_time_reset"),
    ("rtt_resp_dscp", Side::Rp, "rtt_resp_dscp"),
    ("rtt_resp_dscp_valid", Side::Rp, "rtt_resp_dscp_valid"),
];

/// The parameters of one port.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    pub(super) np: Map<String, Value>,
    pub(super) rp: Map<String, Value>,
    /// What a device that has parameters does not show.
    pub(super) gap: Option<Gap>,
}

/// Why parameters are missing, and what to do.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) reason: String,
    pub(super) fix: Option<&'static str>,
}

/// Reads what there is for a port.
pub(super) fn read(files: &dyn Files, port: &RdmaPort) -> Parameters {
    let mut parameters = Parameters::default();
    for netdev in &port.netdevs {
        let ecn = format!("class/net/{netdev}/ecn");
        read_ecn(files, &format!("{ecn}/roce_np"), &mut parameters.np);
        read_ecn(files, &format!("{ecn}/roce_rp"), &mut parameters.rp);
    }
    if port.driver.as_deref().map(family) == Some("mlx5")
        && let Some(pci) = &port.pci
    {
        read_cc_params(files, pci, &mut parameters);
    }
    parameters
}

/// One directory of the vendor's driver: a file for each parameter, and `enable` with one for each priority.
fn read_ecn(files: &dyn Files, dir: &str, into: &mut Map<String, Value>) {
    for entry in files.list(dir).unwrap_or_default() {
        if entry.name == "enable" {
            let enabled: Option<Vec<Value>> = (0..8)
                .map(|priority| Some(Value::Bool(number(files, &format!("{dir}/enable/{priority}")).ok()?? != 0)))
                .collect();
            if let Some(enabled) = enabled {
                into.entry("enable").or_insert(Value::Array(enabled));
            }
        } else if !entry.object
            && let Ok(Some(value)) = number(files, &format!("{dir}/{}", entry.name))
        {
            into.entry(entry.name).or_insert_with(|| value.into());
        }
    }
}

fn read_cc_params(files: &dyn Files, pci: &str, parameters: &mut Parameters) {
    let dir = format!("kernel/debug/mlx5/{pci}/cc_params");
    if let Err(error) = files.list(&dir) {
        // Where the vendor's files are these are not needed.
        if !(parameters.np.is_empty() && parameters.rp.is_empty()) {
            return;
        }
        let (reason, fix) = match error.kind() {
            std::io::ErrorKind::NotFound => (
                "no ecn/ of the vendor's driver, and no cc_params in debugfs: not mounted here, or the firmware does not \
                 allow it"
                    .to_owned(),
                "mount -t debugfs none /sys/kernel/debug",
            ),
            _ => (format!("cc_params in debugfs: {}", errno_name(&error)), "run as root"),
        };
        parameters.gap = Some(Gap { reason, fix: Some(fix) });
        return;
    }
    let mut refused: Vec<(&str, String)> = Vec::new();
    for (file, side, name) in CC_PARAMS {
        let into = match side {
            Side::Np => &mut parameters.np,
            Side::Rp => &mut parameters.rp,
        };
        if into.contains_key(name) {
            continue;
        }
        match number(files, &format!("{dir}/{file}")) {
            Ok(Some(value)) => {
                into.insert(name.to_owned(), value.into());
            }
            // Each kernel has its own choice of them.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => refused.push((file, errno_name(&error).into())),
            Ok(None) => {}
        }
    }
    if let Some((file, errno)) = refused.first() {
        let more = if refused.len() == 1 { String::new() } else { format!(" and {} more", refused.len() - 1) };
        parameters.gap = Some(Gap { reason: format!("cc_params in debugfs: {errno} of {file}{more}"), fix: None });
    }
}

/// A file's number; `None` when it holds none.
fn number(files: &dyn Files, path: &str) -> std::io::Result<Option<u64>> {
    let text = files.text(path)?;
    let text = text.trim_end_matches('\0').trim();
    Ok(match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    })
}
