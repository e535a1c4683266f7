//! What a thread was asked for, and since when its answer is awaited.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use crate::source::Missing;

/// An answer that a thread has still to give.
pub(super) struct Awaited<T> {
    answer: Receiver<T>,
    since: Instant,
}

impl<T> From<Receiver<T>> for Awaited<T> {
    fn from(answer: Receiver<T>) -> Self {
        Self { answer, since: Instant::now() }
    }
}

impl<T> Awaited<T> {
    /// The same, awaited for so many seconds already.
    #[cfg(test)]
    pub(super) fn for_seconds(self, seconds: u64) -> Self {
        let since = Instant::now().checked_sub(std::time::Duration::from_secs(seconds));
        Self { since: since.expect("the machine is up for longer"), ..self }
    }

    /// What is not seen while the answer does not come, after a minute; told in whole minutes, so that it changes seldom.
    pub(super) fn missing(&self, what: &str, who: &str) -> Option<Missing> {
        let minutes = self.since.elapsed().as_secs() / 60;
        (minutes > 0).then(|| Missing {
            what: what.to_owned(),
            reason: format!("{who} has gone on for {minutes} min: does a file system not answer?"),
            fix: None,
        })
    }
}

/// The answer, if it has come; a thread that ended without one gives none.
pub(super) fn take<T>(awaited: &mut Option<Awaited<T>>) -> Option<T> {
    let answer = match awaited.as_ref()?.answer.try_recv() {
        Ok(answer) => Some(answer),
        Err(TryRecvError::Empty) => return None,
        Err(TryRecvError::Disconnected) => None,
    };
    *awaited = None;
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn an_answer_that_does_not_come_is_told_after_a_minute() {
        let (sender, receiver) = channel::<u8>();
        let awaited = Awaited::from(receiver).for_seconds(59);
        assert_eq!(awaited.missing("what", "a look"), None);
        let mut awaited = Some(awaited.for_seconds(125));
        let missing = awaited.as_ref().and_then(|awaited| awaited.missing("what", "a look")).expect("it is told");
        assert_eq!(missing.reason, "a look has gone on for 2 min: does a file system not answer?");
        assert_eq!(take(&mut awaited), None);
        assert!(awaited.is_some(), "it may still come");
        sender.send(7).expect("it is awaited");
        assert_eq!((take(&mut awaited), awaited.is_some()), (Some(7), false));
        let (sender, receiver) = channel::<u8>();
        let mut awaited = Some(Awaited::from(receiver));
        drop(sender);
        assert_eq!((take(&mut awaited), awaited.is_some()), (None, false));
    }
}
