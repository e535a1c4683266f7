//! What an adapter tells of itself as it happens: asynchronous events, and messages of its health reporters.

use serde::{Deserialize, Serialize};

use super::Text;

/// One asynchronous event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Async<'a> {
    /// Device name.
    #[serde(borrow)]
    pub device: Text<'a>,
    /// The port concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// The QP concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qpn: Option<u32>,
    /// `IBV_EVENT_*` without the prefix, for example `PORT_ERR`.
    pub event: Text<'a>,
}

/// A message of a device's own health reporter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Health<'a> {
    /// Device name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Text<'a>>,
    /// PCI function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<Text<'a>>,
    /// Reporter, for example `fw_fatal`.
    #[serde(borrow)]
    pub reporter: Text<'a>,
    /// Its message.
    pub message: Text<'a>,
}
