//! What is asked of the providers in child processes, at the start and when a device appears: where their functions lie.

use std::sync::mpsc;
use std::thread;

use super::Probes;
use super::opened::{Known, Opened, Places};
use super::reason::Why;
use crate::source::Missing;
use crate::source::verbs::{self, Making, Operations};

/// What was asked of the providers.
pub(super) struct Asked {
    operations: Result<Operations, verbs::Error>,
    /// Why nothing was made for it; `None` where nothing is to be made.
    not_made: Option<Missing>,
    /// The places of both.
    places: Vec<Opened>,
}

impl Asked {
    /// Asks, and blocks until both have answered, [`verbs::TIMEOUT`] at most each, and their files were read.
    pub(super) fn now(making: Option<&Making>) -> Self {
        let known = Known::default();
        let mut places = Places::default();
        let operations = verbs::operations(verbs::TIMEOUT);
        if let Ok(operations) = &operations {
            for (operation, place) in operations.devices.iter().flat_map(|device| &device.places) {
                places.add(Some(*operation), place.clone(), &known);
            }
            if let Some(place) = &operations.modify_qp {
                places.add(None, place.clone(), &known);
            }
        }
        // Who cannot open a device cannot make anything on it.
        let made = making.filter(|_| operations.is_ok()).map(|making| making.places(verbs::TIMEOUT));
        let not_made = made.and_then(|made| match made {
            Ok(made) => {
                for (operation, place) in made {
                    places.add(Some(operation), place, &known);
                }
                None
            }
            Err(missing) => Some(missing),
        });
        Self { operations, not_made, places: places.open(&known) }
    }
}

impl Probes {
    /// Asks for the providers' operations again, in the background: call it when a device appears. What is new is
    /// attached at one of the next polls.
    pub fn refresh(&mut self) {
        if self.data_path && self.running.is_some() && self.operations.is_none() {
            let (sender, receiver) = mpsc::channel();
            let making = self.options.making.clone();
            thread::spawn(move || {
                // Nobody waits for the answer any more when the source is gone.
                let _ = sender.send(Asked::now(making.as_ref()));
            });
            self.operations = Some(receiver.into());
        }
    }

    /// Attaches to what was told, and looks at all processes once.
    pub(super) fn attach(&mut self, asked: Asked) {
        let Asked { operations, not_made, places } = asked;
        self.attached.retry_post_send();
        // The look itself begins when what the host has is attached: it needs none. Without libibverbs here, containers
        // may have theirs.
        if !self.looked_at_all {
            self.looked_at_all = true;
            self.discovery.look_at_all();
        }
        let devices = match operations {
            Ok(operations) => operations.devices,
            Err(error) => {
                let why = Why { reason: error.to_string(), fix: error.fix().map(str::to_owned) };
                return self.attached.no_post_send(true, why);
            }
        };
        self.not_made = not_made;
        for opened in places {
            self.discovery.keep(opened.place.file());
            self.attached.attach(opened);
        }
        let why = devices
            .iter()
            .find_map(|device| device.error.as_ref().map(|error| format!("{}: {error}", device.device).into()))
            .unwrap_or_else(|| {
                Why::with_fix("libibverbs has no provider for the devices here", verbs::INSTALL_PROVIDERS)
            });
        self.attached.no_post_send(true, why);
    }
}
