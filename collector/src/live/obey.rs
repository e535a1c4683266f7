//! What readers ask of the loop: another interval, a recording, other thresholds, its end.

use std::path::PathBuf;
use std::sync::PoisonError;

use super::Live;
use crate::clock;
use crate::feed::{Command, RecordingStatus};
use crate::inventory::{restate, restate_past};
use crate::observation::{Body, Note, Observation};
use crate::rule::Settings;
use crate::sink::Sink as _;
use crate::sink::recording::{Recording, RecordingOptions};

/// What a recording says where the thresholds changed.
pub(crate) const SETTINGS_CHANGED: &str = "the rules' settings were changed: what follows was judged by others";

impl Live {
    /// Obeys what readers asked; true when the loop is to end.
    pub(super) fn commands(&mut self) -> bool {
        while let Some(command) = self.feed.command() {
            match command {
                Command::Stop => return true,
                Command::Interval(ns) => {
                    self.status.interval_ns = ns;
                    for slot in &mut self.sources {
                        slot.source.set_interval(ns);
                    }
                }
                Command::Record(path) => self.record(path),
                Command::StopRecording => {
                    if let Some(mut recording) = self.recording.take() {
                        recording.finish();
                        let path = status(&recording).path;
                        self.status.done.push(format!("recorded {}", path.display()));
                    }
                }
                Command::Settings(settings) => self.change_settings(*settings),
                // A live node cannot be rewound.
                Command::Pause | Command::Resume | Command::Step | Command::Seek(_) | Command::Speed(_) => {}
            }
        }
        false
    }

    /// A recording is to show that what follows was judged otherwise.
    fn change_settings(&mut self, settings: Settings) {
        if !self.engine.set_settings(settings) {
            return;
        }
        let note = Note { source: "configuration".into(), text: SETTINGS_CHANGED.into() };
        self.tell_all(&Observation { t: clock::monotonic_ns(), body: Body::Note(note) });
        self.hand_on_findings();
    }

    fn record(&mut self, path: PathBuf) {
        if self.recording.as_ref().is_some_and(|recording| status(recording).stopped.is_none()) {
            return;
        }
        let options = RecordingOptions { path, force: false, max_bytes: None };
        match Recording::start(options, self.header.clone()) {
            Ok(mut recording) => {
                let world = self.engine.world();
                let mut write = |observation: &Observation<'_>| recording.observation(observation, world);
                restate_past(world, &mut write);
                restate(world, &mut write);
                self.recording = Some(recording);
            }
            Err(error) => self.status.notices.push(error.to_string()),
        }
    }
}

/// How far a recording is.
pub(super) fn status(recording: &Recording) -> RecordingStatus {
    recording.status().lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::feed::Mode;
    use crate::inventory::World;
    use crate::observation::recording::Header;
    use crate::remote::Remote;
    use crate::sink::Sink;

    #[test]
    fn changed_settings_are_in_force_and_in_the_recording_and_the_window_stays() {
        struct Told(Arc<Mutex<Vec<String>>>);
        impl Sink for Told {
            fn observation(&mut self, observation: &Observation<'_>, _: &World) {
                if let Body::Note(note) = &observation.body {
                    self.0.lock().unwrap().push(note.text.to_string());
                }
            }
        }
        let (remote, told) = (Remote::default(), Arc::default());
        let mut live = Live::new(Mode::Live, Header::new(), Settings::default(), Vec::new())
            .obeying(remote.clone())
            .sink(Box::new(Told(Arc::clone(&told))));
        let disabled = vec!["link.flap".to_owned()];
        remote.send(Command::Settings(Box::new(Settings {
            window_s: 9.0,
            disabled: disabled.clone(),
            ..Settings::default()
        })));
        remote.send(Command::Stop);
        live.run_on();
        assert_eq!(live.engine().settings(), &Settings { disabled, ..Settings::default() });
        assert_eq!(*told.lock().unwrap(), [SETTINGS_CHANGED]);
    }
}
