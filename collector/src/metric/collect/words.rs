//! Texts that many points share: each is made once for a round.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// Words of the program as shared texts.
#[derive(Default)]
pub(super) struct Words(HashMap<&'static str, Arc<str>, FixedState>);

impl Words {
    /// The shared text of a word.
    pub(super) fn of(&mut self, word: &'static str) -> Arc<str> {
        self.0.entry(word).or_insert_with(|| word.into()).clone()
    }
}
