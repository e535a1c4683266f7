//! The congestion source: how a port is set up against congestion. One `congestion_config` per port, made from
//!
//! ```text
//! dcb         PFC by priority and what the port trusts (rtnetlink's DCB commands)
//! parameters  DCQCN's parameters: `ecn/roce_np` and `ecn/roce_rp` of the vendor's driver, `cc_params` in mlx5's debugfs
//! ```
//!
//! Reading one file of `cc_params` is a firmware command, so all of it is read once a minute. Writing one would change
//! the adapter: no file here is ever opened for writing, and no DCB command here sets anything. A key that cannot be read
//! is absent, which means unknown.

mod dcb;
mod parameters;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::dcb::Dcb;
use self::parameters::{Gap, Parameters};
use super::files::Files;
use super::ports::{PortMap, RdmaPort};
use super::{Availability, Emit, Missing, Source};
use crate::observation::{Body, CongestionConfig, Nanos, Observation, Seeing};
use crate::timeline::counter_table::family;

/// The source's name.
pub const NAME: &str = "congestion";

/// Between two readings, ns.
const PERIOD: Nanos = 60_000_000_000;

/// What was found of one port at the last reading.
#[derive(Debug, Default)]
struct Found {
    pfc: bool,
    parameters: bool,
    gap: Option<Gap>,
    /// What DCB said, where it is neither an answer nor "not offered".
    refused: Option<String>,
}

/// Reads congestion control parameters, PFC and trust.
pub struct Congestion {
    files: Arc<dyn Files>,
    ports: PortMap,
    known: Arc<[RdmaPort]>,
    /// `None` for a tree that is not this node's; or why there is none.
    dcb: Option<Result<Dcb, String>>,
    found: BTreeMap<(String, u32), Found>,
    /// Ports of which something was said that still stands.
    said: BTreeSet<(String, u32)>,
    due: Nanos,
}

impl Congestion {
    /// A source for this node's ports. It never fails: what cannot work is in its availability.
    #[must_use]
    pub fn start(files: Arc<dyn Files>, ports: PortMap) -> Self {
        Self::over(files, ports, Some(Dcb::open().map_err(|error| format!("rtnetlink cannot be used: {error}"))))
    }

    /// A source for a tree: the files alone.
    #[must_use]
    pub fn of_tree(files: Arc<dyn Files>, ports: PortMap) -> Self {
        Self::over(files, ports, None)
    }

    fn over(files: Arc<dyn Files>, ports: PortMap, dcb: Option<Result<Dcb, String>>) -> Self {
        Self { files, ports, known: Arc::default(), dcb, found: BTreeMap::new(), said: BTreeSet::new(), due: 0 }
    }

    /// Goes on in another tree of the same machine, taken later.
    pub fn look_at(&mut self, files: Arc<dyn Files>) {
        self.files = files;
        self.due = 0;
    }

    fn read(&mut self, port: &RdmaPort, now: Nanos, emit: &mut Emit<'_>) {
        let mut config =
            CongestionConfig { device: port.device.as_str().into(), port: port.port, ..CongestionConfig::default() };
        let mut found = Found::default();
        if let Some(Ok(dcb)) = &mut self.dcb {
            let driver = port.driver.as_deref().map(family);
            match dcb.read(&port.netdevs, driver) {
                Ok(said) => {
                    found.pfc = said.pfc.is_some();
                    (config.pfc_enabled, config.trust) = (said.pfc, said.trust.map(Into::into));
                }
                Err(fault) => found.refused = Some(fault.to_string()),
            }
        }
        let Parameters { np, rp, gap } = parameters::read(&*self.files, port);
        found.parameters = !(np.is_empty() && rp.is_empty());
        found.gap = gap;
        config.cnp_dscp =
            np.get("cnp_dscp").and_then(serde_json::Value::as_u64).and_then(|dscp| u8::try_from(dscp).ok());
        (config.np, config.rp) = (np, rp);
        let key = (port.device.clone(), port.port);
        // Where nothing can be read any more what was said is taken back, once.
        let news = if config.says_nothing() { self.said.remove(&key) } else { true };
        if news {
            if !config.says_nothing() {
                self.said.insert(key.clone());
            }
            emit(&Observation { t: now, body: Body::CongestionConfig(config) });
        }
        self.found.insert(key, found);
    }
}

impl Source for Congestion {
    fn name(&self) -> &'static str {
        NAME
    }

    fn availability(&self) -> Availability {
        let of = |holds: fn(&Found) -> bool| self.found.values().filter(|found| holds(found)).count();
        let (pfc, parameters) = (of(|found| found.pfc), of(|found| found.parameters));
        let mut missing = Vec::new();
        let mut lack = |what: String, reason: String, fix: Option<&str>| {
            missing.push(Missing { what, reason, fix: fix.map(str::to_owned) });
        };
        if let Some(Err(reason)) = &self.dcb {
            lack("PFC and trust".to_owned(), reason.clone(), None);
        }
        for ((device, port), found) in &self.found {
            if let Some(Gap { reason, fix }) = &found.gap {
                lack(format!("congestion parameters of {device} port {port}"), reason.clone(), *fix);
            }
            if let Some(reason) = &found.refused {
                lack(format!("PFC and trust of {device} port {port}"), reason.clone(), None);
            }
        }
        let nothing = pfc == 0 && parameters == 0;
        if nothing && missing.is_empty() {
            let reason = if self.found.is_empty() { "no RDMA device here" } else { "no port's driver offers them" };
            missing.push(Missing { what: "congestion parameters".to_owned(), reason: reason.to_owned(), fix: None });
        }
        let state = match (nothing, missing.is_empty()) {
            (true, _) => Seeing::Off,
            (false, true) => Seeing::Ok,
            (false, false) => Seeing::Partial,
        };
        let sees = format!("parameters of {parameters} ports, PFC of {pfc}");
        Availability { name: NAME, state, sees, missing }
    }

    fn due(&self) -> Nanos {
        self.due
    }

    fn poll(&mut self, now: Nanos, emit: &mut Emit<'_>) {
        let ports = self.ports.now();
        if now < self.due && Arc::ptr_eq(&ports, &self.known) {
            return;
        }
        self.found.clear();
        for port in &*ports {
            self.read(port, now, emit);
        }
        // Where the ports are not known yet they will be soon.
        let period = if ports.is_empty() { PERIOD / 60 } else { PERIOD };
        (self.known, self.due) = (ports, now.saturating_add(period));
    }
}
