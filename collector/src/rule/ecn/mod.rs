//! ECN: marks that say too much, too little, or that nobody obeys. Subject of every rule here is a port.
//!
//! - [`span`]: the last few windows of a port, side by side, and what they come to
//! - [`control`]: which congestion control the NIC says it runs
//! - [`words`]: K*, confounders, and the lines to check by hand
//! - [`weigh`]: what speaks for and against a queue behind the marks
//! - [`premature`]: marks without a queue
//! - [`missed`]: a queue without marks, and data that cannot be marked
//! - [`class`]: traffic in a class that is not protected
//! - [`notify`]: the receiver's part: marks to CNPs
//! - [`react`]: the sender's part: CNPs to a lower rate
//! - [`host`]: marks the NIC itself made
//! - [`rails`]: ports compared with each other, and with themselves over time
//! - [`packets`]: what a packet source adds
//!
//! The direction matters. CE is counted by the receiver, of what it receives, so marks are compared with received packets
//! and received bytes. CNPs handled and ignored are counted by the sender, of what it sends.

mod class;
mod control;
mod host;
mod missed;
mod notify;
mod packets;
mod premature;
mod rails;
mod react;
mod span;
mod weigh;
mod words;

use super::View;
use super::judged::Judged;
use crate::inventory::PortRecord;
use crate::observation::LinkLayer;
use crate::timeline::counter_table::Meaning;

pub(super) use class::WrongClass;
pub(super) use host::HostMarking;
pub(super) use missed::{Missed, NotEct};
pub(super) use notify::{CnpWithoutCe, NoCnp};
pub(super) use premature::Premature;
pub(super) use rails::{Inversion, RailAsymmetry};
pub(super) use react::{CnpIgnored, CnpLost};

/// Drivers of devices that speak iWARP and nothing else.
const IWARP: [&str; 4] = ["siw", "cxgb4", "iw_cxgb4", "qedr_iw"];

/// Ports that carry RoCE in IP. The ECN field does not exist on InfiniBand; EFA has a protocol of its own; what a TCP
/// connection of iWARP does about its marks is not told by CNPs.
fn ports<'w>(view: &View<'w>) -> impl Iterator<Item = &'w PortRecord> {
    let world = view.world;
    world.present_ports().map(|(_, port)| port).filter(|port| {
        let driver = world.device(port.key.device).driver.as_deref();
        port.link_layer == LinkLayer::Ethernet
            && !driver.is_some_and(|driver| IWARP.contains(&driver))
            && in_ip(port) != Some(false)
    })
}

/// By the kinds of the GIDs: the kernel writes `IB/RoCE v1` for those of iWARP as well (an adapter like irdma's speaks one
/// or the other), and RoCE version 1 has no IP header. `None` when no kind is known.
fn in_ip(port: &PortRecord) -> Option<bool> {
    let kinds = port.gids.iter().filter_map(|(_, _, kind)| kind.as_deref());
    kinds.map(|kind| kind.contains("v2")).reduce(|any, one| any || one)
}

/// How far a rule is judged that says nothing of ports without these meanings.
fn lacking(view: &View<'_>, need: &[(Meaning, &str)]) -> Judged {
    let mut reasons = Vec::new();
    let mut blind = Vec::new();
    let mut of = 0;
    for port in ports(view) {
        of += 1;
        let missing: Vec<&str> =
            need.iter().filter(|(meaning, _)| port.reading(*meaning).is_none()).map(|(_, what)| *what).collect();
        let (key, subject) = view.port_subject(port);
        if !missing.is_empty() {
            reasons.push(format!("{subject} does not count {}", missing.join(", ")));
        } else if port.rate_gbps.is_none_or(|rate| rate <= 0.0) {
            reasons.push(format!("the rate of {subject} is not known"));
        } else {
            continue;
        }
        blind.push(key);
    }
    let reason = match (of, reasons.len()) {
        (0, _) => return Judged::Not("there is no RoCE port".to_owned()),
        (_, 4) => format!("{} and 1 more port", reasons[..3].join("; ")),
        (_, n) if n > 4 => format!("{} and {} more ports", reasons[..3].join("; "), n - 3),
        _ => reasons.join("; "),
    };
    Judged::without(blind, of, reason)
}

/// Marks and CNPs of the port are summed over the ports of a bond: the driver counts both links together.
fn lag<'w>(view: &View<'w>, port: &'w PortRecord) -> Option<&'w str> {
    let bond = port.bond.as_ref()?;
    let links = view.world.bonds.get(bond).map_or(port.netdevs.len(), |record| record.slaves.len());
    let summed = port.series_of(Meaning::EcnMarkedRx).any(|series| series.def.flags.lag_sum);
    (links > 1 && summed).then_some(&**bond)
}
