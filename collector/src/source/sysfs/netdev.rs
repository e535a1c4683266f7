//! Network devices of a port, and the bond they belong to.

use std::io;

use rustix::io::Errno;

use crate::observation::{Bond, Gid, Slave};
use crate::source::files::{Files, base_name, says_gone};

/// The network devices of one port of the device at `device_dir` (`class/infiniband/X`), which has `ports` ports
/// and, where it is a software device, this `parent`.
///
/// The devices below the same function belong to the port by `dev_port`, or by `dev_id` in older drivers, both counted
/// from 0. Where neither tells the ports apart, the GID table does. A software device has no function: its `parent`
/// attribute or its GID table names the network device.
pub(super) fn of_port(
    files: &dyn Files,
    device_dir: &str,
    (port, ports): (u32, usize),
    parent: Option<&str>,
    gids: &[Gid<'_>],
) -> Vec<String> {
    let net = format!("{device_dir}/device/net");
    let all: Vec<String> = files.list(&net).unwrap_or_default().into_iter().map(|entry| entry.name).collect();
    let own: Vec<String> = all.into_iter().filter(|name| !is_representor(files, &format!("{net}/{name}"))).collect();
    let by_gid = || {
        let mut names: Vec<String> = Vec::new();
        for netdev in gids.iter().filter_map(|gid| gid.netdev.as_deref()) {
            if !names.iter().any(|name| name == netdev) {
                names.push(netdev.to_owned());
            }
        }
        names
    };
    if own.is_empty() {
        return match parent {
            Some(parent) if !parent.is_empty() && files.exists(&format!("class/net/{parent}")) => {
                vec![parent.to_owned()]
            }
            _ => by_gid(),
        };
    }
    if ports <= 1 {
        return own;
    }
    let number = |name: &str, file: &str| {
        let text = files.text(&format!("{net}/{name}/{file}")).ok()?;
        match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => text.parse::<u32>().ok(),
        }
    };
    for file in ["dev_port", "dev_id"] {
        let numbers: Vec<Option<u32>> = own.iter().map(|name| number(name, file)).collect();
        if numbers.iter().any(|n| n.is_some_and(|n| n > 0)) {
            let here = |n: &Option<u32>| n.is_some_and(|n| n.checked_add(1) == Some(port));
            return own.into_iter().zip(numbers).filter(|(_, n)| here(n)).map(|(name, _)| name).collect();
        }
    }
    by_gid().into_iter().filter(|name| own.contains(name)).collect()
}

/// A representor stands for the port of a virtual function or subfunction (`pf0vf3`, `c1pf0sf88`), not for this one.
fn is_representor(files: &dyn Files, netdev: &str) -> bool {
    let Ok(name) = files.text(&format!("{netdev}/phys_port_name")) else { return false };
    name.contains("pf") && (name.contains("vf") || name.contains("sf"))
}

/// The bond that one of the network devices is (a software device on top of it), or that enslaves it.
pub(super) fn bond_of(files: &dyn Files, netdevs: &[String]) -> Option<String> {
    netdevs.iter().find_map(|netdev| {
        if files.exists(&format!("class/net/{netdev}/bonding")) {
            return Some(netdev.clone());
        }
        let master = files.resolve(&format!("class/net/{netdev}/master")).ok()?;
        files.exists(&format!("{master}/bonding")).then(|| base_name(&master).to_owned())
    })
}

/// The bond's state now; `None` when it is gone.
///
/// # Errors
/// A part of it cannot be read, for example for want of a descriptor: that is not known then, which is not to say that a slave
/// is down.
pub(super) fn read_bond(files: &dyn Files, bond: &str) -> io::Result<Option<Bond<'static>>> {
    let text = |path: String| match files.text(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if says_gone(&error) => Ok(None),
        Err(error) => Err(error),
    };
    let of_bond = |file: &str| text(format!("class/net/{bond}/bonding/{file}"));
    let Some(mode) = of_bond("mode")? else { return Ok(None) };
    // The kernel writes the mode's name and number: `active-backup 1`.
    let mode = mode.split_whitespace().next().unwrap_or_default().to_owned();
    let is_up = |netdev: &str| match text(format!("class/net/{netdev}/carrier")) {
        Ok(carrier) => Ok(carrier.as_deref() == Some("1")),
        // `carrier` of an interface that is set down answers EINVAL: it is not up.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(false),
        Err(error) => Err(error),
    };
    let slaves = of_bond("slaves")?.unwrap_or_default();
    let slave = |netdev: &str| Ok::<_, io::Error>(Slave { netdev: netdev.to_owned().into(), up: is_up(netdev)? });
    let slaves = slaves.split_whitespace().map(slave).collect::<Result<_, _>>()?;
    let active = of_bond("active_slave")?.filter(|active| !active.is_empty()).map(Into::into);
    Ok(Some(Bond { bond: bond.to_owned().into(), mode: mode.into(), active, slaves, event: None }))
}
