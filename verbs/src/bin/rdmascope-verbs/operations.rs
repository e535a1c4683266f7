//! `operations`: where the functions of extended QPs and CQs lie, in the form in which rdmascope's own child tells where
//! those of every QP do.

use std::collections::BTreeMap;
use std::fs;

use collector::node::filter;
use collector::source::verbs::{Place, own_place};
use serde::Serialize;
use verbs::{Context, Functions, QpKind, cq_functions, names, qp_functions};

use crate::Operations;

/// What is printed.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Found { devices: Vec<Found>, modify_qp: Option<Place> },
}

/// Of one object that was made.
#[derive(Serialize)]
struct Found {
    device: String,
    /// What was made: `qp rc`, `cq`, …
    made: String,
    /// Places by the names of the functions; what lies in no file, or is libibverbs's own stub, is left out.
    places: BTreeMap<&'static str, Place>,
    /// Why nothing was made.
    error: Option<String>,
}

/// Makes one of each kind on each device, and prints.
pub(crate) fn run(asked: &Operations) -> Result<(), String> {
    end_with_parent();
    debug_assert!(asked.allow_changes, "the command line does not parse without it");
    let wanted = filter(&asked.device, &asked.exclude).map_err(|error| error.to_string())?;
    let mut devices = Vec::new();
    for name in names().map_err(|error| error.to_string())?.into_iter().filter(|name| wanted(name)) {
        match Context::open(&name) {
            Ok(context) => devices.extend(of(&context)),
            Err(error) => devices.push(found(&name, "nothing".to_owned(), Err(error.to_string()))),
        }
    }
    let answer = Answer::Found { devices, modify_qp: None };
    println!("{}", serde_json::to_string(&answer).map_err(|error| error.to_string())?);
    Ok(())
}

/// Whatever becomes of rdmascope, a provider that hangs does not outlive it.
fn end_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

fn of(context: &Context) -> Vec<Found> {
    let qps = QpKind::ALL.map(|kind| {
        let functions = qp_functions(context, kind).map_err(|error| error.to_string());
        found(context.name(), format!("qp {}", kind.name()), functions)
    });
    let cqs = [("cq", false), ("cq single_threaded", true)].map(|(made, single_threaded)| {
        let functions = cq_functions(context, single_threaded).map_err(|error| error.to_string());
        found(context.name(), made.to_owned(), functions)
    });
    qps.into_iter().chain(cqs).collect()
}

fn found(device: &str, made: String, functions: Result<Functions, String>) -> Found {
    let answer = functions.and_then(|functions| {
        let maps = fs::read("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
        // The name of a file may be anything.
        let maps = String::from_utf8_lossy(&maps);
        Ok(functions
            .into_iter()
            .filter_map(|(name, address)| Some((name, own_place(&maps, address).filter(|place| !place.is_stub())?)))
            .collect())
    });
    let (places, error) = answer.map_or_else(|error| (BTreeMap::new(), Some(error)), |places| (places, None));
    Found { device: device.to_owned(), made, places, error }
}
