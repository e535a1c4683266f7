//! PFC and trust by the DCB commands of rtnetlink. Asking needs no privilege; setting, which is another message type,
//! would.
//!
//! The IEEE form is asked first; where the driver has no PFC in it, the older CEE form. Numbers are from
//! include/uapi/linux/dcbnl.h.

use netlink_sys::protocols::NETLINK_ROUTE;

use crate::source::netlink::attribute::{Attributes, push};
use crate::source::netlink::conversation::{Conversation, Fault, Request};
use crate::source::netlink::transport::{KernelSocket, Transport};

/// `RTM_GETDCB`.
pub(super) const GET_DCB: u16 = 78;
/// `struct dcbmsg`: family, command, two bytes of padding.
const HEADER_BYTES: usize = 4;

const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// `DCB_CMD_*`: only those that read.
pub(super) mod command {
    pub(in super::super) const PFC_GSTATE: u8 = 14;
    pub(in super::super) const IEEE_GET: u8 = 21;
    pub(in super::super) const CEE_GET: u8 = 26;
}

/// `DCB_ATTR_*`.
pub(super) mod attr {
    pub(in super::super) const IFNAME: u16 = 1;
    pub(in super::super) const PFC_STATE: u16 = 3;
    pub(in super::super) const IEEE: u16 = 13;
    pub(in super::super) const CEE: u16 = 16;
    pub(in super::super) const IEEE_PFC: u16 = 2;
    pub(in super::super) const IEEE_APP_TABLE: u16 = 3;
    pub(in super::super) const IEEE_APP: u16 = 1;
    /// Since Linux 6.2.
    pub(in super::super) const APP_TRUST_TABLE: u16 = 11;
    pub(in super::super) const CEE_PFC: u16 = 6;
    /// Priority 0; the others follow.
    pub(in super::super) const PFC_UP_0: u16 = 1;
}

/// `IEEE_8021QAZ_APP_SEL_DSCP` and `DCB_APP_SEL_PCP`.
const SELECT_DSCP: u8 = 5;
const SELECT_PCP: u8 = 255;

/// What DCB says of a port.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// PFC by priority.
    pub(super) pfc: Option<[bool; 8]>,
    /// `pcp` or `dscp`.
    pub(super) trust: Option<&'static str>,
}

/// The way to the kernel.
pub(super) struct Dcb(Conversation);

impl Dcb {
    pub(super) fn open() -> std::io::Result<Self> {
        Ok(Self::over(Box::new(KernelSocket::open(NETLINK_ROUTE)?)))
    }

    pub(super) fn over(transport: Box<dyn Transport>) -> Self {
        Self(Conversation::new(transport))
    }

    /// What the first of the port's network devices that says anything says.
    pub(super) fn read(&mut self, netdevs: &[String], driver: Option<&str>) -> Result<Said, Fault> {
        for netdev in netdevs {
            let said = self.ask_about(netdev, driver)?;
            if said != Said::default() {
                return Ok(said);
            }
        }
        Ok(Said::default())
    }

    fn ask_about(&mut self, netdev: &str, driver: Option<&str>) -> Result<Said, Fault> {
        let mut said = Said::default();
        self.ask(command::IEEE_GET, netdev, |answer| {
            let ieee = answer.nest(attr::IEEE);
            // struct ieee_pfc: how many classes at most, then the bit mask.
            said.pfc = ieee.find(attr::IEEE_PFC).and_then(|pfc| pfc.get(1)).map(|mask| priorities(*mask));
            said.trust = trust(ieee, driver);
        })?;
        if said.pfc.is_none() {
            said.pfc = self.cee(netdev)?;
        }
        Ok(said)
    }

    /// The older form: the priorities, and whether PFC is on at all.
    fn cee(&mut self, netdev: &str) -> Result<Option<[bool; 8]>, Fault> {
        let mut pfc = None;
        self.ask(command::CEE_GET, netdev, |answer| {
            let table = answer.nest(attr::CEE).nest(attr::CEE_PFC);
            let priority = |n: u16| table.u8(attr::PFC_UP_0 + n).map(|value| value != 0);
            let all: Option<Vec<bool>> = (0..8).map(priority).collect();
            pfc = all.and_then(|all| <[bool; 8]>::try_from(all).ok());
        })?;
        if pfc.is_none_or(|pfc| pfc == [false; 8]) {
            return Ok(pfc);
        }
        let mut on = None;
        self.ask(command::PFC_GSTATE, netdev, |answer| on = answer.u8(attr::PFC_STATE))?;
        Ok(if on == Some(0) { Some([false; 8]) } else { pfc })
    }

    /// Asks; what the driver does not offer is no fault, and no answer either.
    fn ask(&mut self, command: u8, netdev: &str, mut each: impl FnMut(Attributes<'_>)) -> Result<(), Fault> {
        let payload = question(command, netdev);
        let answer = self.0.get(&Request { kind: GET_DCB, payload: &payload }, |payload| {
            each(Attributes(payload.get(HEADER_BYTES..).unwrap_or_default()));
        });
        match answer {
            // Some commands answer EINVAL where the driver has no function for them; a device that is gone has no state.
            Ok(_) | Err(Fault::Refused(EOPNOTSUPP | EINVAL | ENODEV)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

/// A question about a network device.
pub(super) fn question(command: u8, netdev: &str) -> Vec<u8> {
    let mut payload = vec![0, command, 0, 0];
    push(&mut payload, attr::IFNAME, &[netdev.as_bytes(), &[0]].concat());
    payload
}

/// The priorities of a bit mask.
fn priorities(mask: u8) -> [bool; 8] {
    std::array::from_fn(|priority| mask & (1 << priority) != 0)
}

/// What the port trusts: what the driver says, or what follows for drivers whose trust is the presence of entries for
/// DSCP: mlx5 (`mlx5e_dcbnl_ieee_setapp` and `mlx5e_trust_initialize` in `en_dcbnl.c`) and ice (`ice_dcbnl_setapp`).
fn trust(ieee: Attributes<'_>, driver: Option<&str>) -> Option<&'static str> {
    let named = |selector: u8| match selector {
        SELECT_DSCP => Some("dscp"),
        SELECT_PCP => Some("pcp"),
        _ => None,
    };
    let table = ieee.find(attr::APP_TRUST_TABLE).map(Attributes);
    let told = table.and_then(|table| table.iter().find_map(|(_, selector)| named(*selector.first()?)));
    if told.is_some() {
        return told;
    }
    // A driver that says nothing of PFC and has no table is not asked what it trusts.
    let entries = ieee.find(attr::IEEE_APP_TABLE).map(Attributes)?;
    if !matches!(driver, Some("mlx5" | "irdma")) {
        return None;
    }
    // struct dcb_app: selector, priority, protocol (here: the DSCP).
    let by_dscp = entries.iter().any(|(kind, app)| kind == attr::IEEE_APP && app.first() == Some(&SELECT_DSCP));
    Some(if by_dscp { "dscp" } else { "pcp" })
}
