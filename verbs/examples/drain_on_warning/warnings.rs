//! What rdmascope's local socket tells of two devices.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use serde_json::Value;

/// Predicted failures, as they come.
pub(crate) struct Warnings {
    told: Receiver<Value>,
    subscribed: bool,
}

/// What there is to hear.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    /// A predicted failure.
    Warning(Value),
    /// The stream has ended: from here on nobody warns.
    End,
}

impl Warnings {
    /// Connects, and listens in a thread of its own. A failure that is predicted already is told too.
    pub(crate) fn subscribe(socket: &str, devices: [String; 2]) -> Result<Self, String> {
        let stream = UnixStream::connect(socket).map_err(|error| format!("{socket}: {error}"))?;
        let mut lines = BufReader::new(stream).lines();
        let hello = lines.next().and_then(Result::ok).unwrap_or_default();
        let hello: Value = serde_json::from_str(&hello).map_err(|error| format!("{socket}: {error}"))?;
        if hello["hello"] != "rdmascope" || hello["version"] != 1 {
            return Err(format!("{socket}: this is not what was expected: {hello}"));
        }
        let (tell, told) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Ok(finding) = serde_json::from_str::<Value>(&line) else { continue };
                let device = finding["subject"]["device"].as_str().unwrap_or_default();
                let ours = devices.iter().any(|ours| ours == device);
                if ours && finding["predicted_failure"] == true && tell.send(finding).is_err() {
                    return;
                }
            }
        });
        Ok(Self { told, subscribed: true })
    }

    /// A predicted failure, if there is a new one, and once the end; never waits.
    pub(crate) fn next(&mut self) -> Option<Heard> {
        match self.told.try_recv() {
            Ok(finding) => Some(Heard::Warning(finding)),
            Err(TryRecvError::Disconnected) => std::mem::take(&mut self.subscribed).then_some(Heard::End),
            Err(TryRecvError::Empty) => None,
        }
    }
}
