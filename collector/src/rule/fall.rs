//! How a port that does not carry data came to be so: what `link.down` tells and other rules take into account.

use super::View;
use super::clock::ns;
use crate::inventory::{DeviceRecord, PortEvent, PortRecord, Role};
use crate::observation::{LinkLayer, Nanos, PortState};

/// Why a port is not ACTIVE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It was ACTIVE and left that state.
    Left,
    /// Its device vanished while it was ACTIVE.
    Vanished,
    /// It was so when it was first seen, and should not be.
    FoundDown,
}

/// A port that does not carry data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fall {
    /// Why.
    pub(super) cause: Cause,
    /// Since when, as far as it was observed.
    pub(super) t: Nanos,
}

/// What the port is now if it is not in order: `None` for a port that is ACTIVE, whose state is not known, that nobody
/// expects to be up, or that is only another view of a port that is down.
pub(super) fn fall(view: &View<'_>, port: &PortRecord) -> Option<Fall> {
    if port.state == PortState::Active {
        return None;
    }
    let device = view.world.device(port.key.device);
    let expected = view.settings.link_down.expected.matches(&device.name, port.key.port);
    let role = view.world.role(port.key.device);
    if role == Some(Role::Management) || (role == Some(Role::Vf) && physical_port_is_down(view, port)) {
        return None;
    }
    if device.removed {
        return vanished(view, port);
    }
    if let Some(t) = port.left_active() {
        return Some(Fall { cause: Cause::Left, t });
    }
    // A virtual function nobody uses yet is down, as is a port without a cable; INIT is waiting for a subnet manager.
    let down = port.state == PortState::Down;
    let searching = down && port.phys_state.as_deref().is_some_and(|phys| phys.contains("Polling"));
    let known = port.state != PortState::Unknown;
    // Somebody used it: the carrier that a `Disabled` port has not was there once. It was so also when those QPs are gone,
    // unless it was switched off since.
    let used = down && (port.connected_qps > 0 || (!switched_off(port) && port.were_connected_qps > 0));
    let counts = known && expected || searching && role != Some(Role::Vf) || used;
    counts.then_some(Fall { cause: Cause::FoundDown, t: port.first_seen.0 })
}

fn vanished(view: &View<'_>, port: &PortRecord) -> Option<Fall> {
    let (t, _) = port.events.iter().rev().find(|(_, event)| *event == PortEvent::Removed)?;
    // A rename or a fast reload is no loss: the device is back in a moment.
    if view.now < t.saturating_add(ns(view.settings.link_down.vanished_s)) {
        return None;
    }
    let was_active = port
        .states
        .iter()
        .rev()
        .find(|(_, change)| change.to == PortState::Unknown)
        .is_some_and(|(at, change)| at >= t && change.from == PortState::Active);
    was_active.then_some(Fall { cause: Cause::Vanished, t: *t })
}

fn physical_port_is_down(view: &View<'_>, port: &PortRecord) -> bool {
    view.world
        .parent(port.key.device)
        .is_some_and(|parent| view.world.ports_of(parent).any(|p| p.key.port == port.key.port && !is_up(p)))
}

fn is_up(port: &PortRecord) -> bool {
    matches!(port.state, PortState::Active | PortState::Unknown)
}

/// Somebody switched the port off. On InfiniBand the physical state says so; RoCE drivers report `Disabled` for every
/// port without carrier (mlx5 and irdma set it whenever the netdev has no carrier), so there it says nothing.
pub(super) fn switched_off(port: &PortRecord) -> bool {
    port.link_layer == LinkLayer::InfiniBand && port.phys_state.as_deref().is_some_and(|phys| phys.contains("Disabled"))
}

/// Another port of the same group is ACTIVE: same link layer and driver, and the same model or, where the model is not
/// known, the same adapter.
pub(super) fn active_sibling<'w>(view: &View<'w>, port: &PortRecord) -> Option<&'w PortRecord> {
    let device = view.world.device(port.key.device);
    let adapter = |device: &DeviceRecord| Some(device.pci.as_deref()?.rsplit_once('.')?.0.to_owned());
    let alike = |other: &DeviceRecord| {
        let same_adapter = adapter(other).is_some() && adapter(other) == adapter(device);
        other.vf == device.vf
            && other.driver == device.driver
            && (same_adapter || (other.model.is_some() && other.model == device.model))
    };
    view.world
        .present_ports()
        .find(|(other, p)| {
            p.key != port.key
                && p.state == PortState::Active
                && p.link_layer == port.link_layer
                && (p.key.device == port.key.device || alike(other))
        })
        .map(|(_, p)| p)
}

/// The port was down, or its device gone, at some time after `from` and not after `to`.
pub(super) fn was_down_within(port: &PortRecord, from: Nanos, to: Nanos) -> bool {
    state_at(port, from.max(port.first_seen.0)) == Some(PortState::Down)
        || port.states.since(from).any(|(t, change)| *t <= to && change.to != PortState::Active)
}

/// The state the port had at `t`; `None` before it was first seen.
pub(super) fn state_at(port: &PortRecord, t: Nanos) -> Option<PortState> {
    if t < port.first_seen.0 {
        return None;
    }
    port.states.iter().find(|(at, _)| *at > t).map(|(_, change)| change.from).or(Some(port.state))
}
