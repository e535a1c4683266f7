//! What must not be seen: a type that prints nothing of what it holds, and the removal of it from texts others wrote.

use std::fmt;

/// A header's value or a key. Neither its debug form nor anything else prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, to be sent and for nothing else.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The longest text of another's that is said.
const MAX_TEXT: usize = 200;
/// A secret as short as this is found in any text; taking it out would tell it.
const MIN_SECRET: usize = 4;

/// What another one answered, as it may be said: one line, not endless, and without the secrets that were sent to it.
#[must_use]
pub(super) fn presentable<'s>(text: &str, secrets: impl Iterator<Item = &'s Secret>) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // `Bearer TOKEN` is also a secret without its first word.
    let parts = secrets.flat_map(|secret| std::iter::once(secret.reveal()).chain(secret.reveal().split_whitespace()));
    let mut parts: Vec<&str> = parts.filter(|part| part.len() >= MIN_SECRET).collect();
    // The longest first: of one that contains another the rest would be left.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    for part in parts {
        text = text.replace(part, "…");
    }
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_nothing_of_itself() {
        assert_eq!(format!("{:?}", Secret::new("swordfish")), "Secret(…)");
    }

    #[test]
    fn an_answer_that_repeats_a_secret_is_said_without_it() {
        let secrets = [Secret::new("Bearer swordfish")];
        let said = presentable("no such token:\n swordfish (Bearer swordfish)", secrets.iter());
        assert_eq!(said, "no such token: … (…)");
        let nested = [Secret::new("sword"), Secret::new("swordfish")];
        assert_eq!(presentable("swordfish", nested.iter()), "…");
        assert!(presentable(&"ä".repeat(500), std::iter::empty()).len() < 210);
    }
}
