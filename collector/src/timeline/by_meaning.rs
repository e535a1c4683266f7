//! A map from meanings, for what is asked for by meaning many times in every window.

use std::ops::Index;

use super::counter_table::Meaning;

/// Meanings there are.
const MEANINGS: usize = Meaning::ALL.len();
const _: () = assert!(MEANINGS < u8::MAX as usize, "a place is one byte");

/// A map from meanings, in their order. A look-up reads one byte, and compares nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByMeaning<T> {
    /// One more than the place of each meaning; 0 where it has none.
    places: [u8; MEANINGS],
    entries: Vec<(Meaning, T)>,
}

impl<T> Default for ByMeaning<T> {
    fn default() -> Self {
        Self { places: [0; MEANINGS], entries: Vec::new() }
    }
}

impl<T> ByMeaning<T> {
    /// What a meaning has.
    #[must_use]
    pub fn get(&self, meaning: &Meaning) -> Option<&T> {
        self.place(*meaning).map(|at| &self.entries[at].1)
    }

    /// The same, for changing.
    pub fn get_mut(&mut self, meaning: &Meaning) -> Option<&mut T> {
        self.place(*meaning).map(|at| &mut self.entries[at].1)
    }

    /// What a meaning has, or else the default, which it has from then on.
    pub fn or_default(&mut self, meaning: Meaning) -> &mut T
    where
        T: Default,
    {
        let at = self.place(meaning).unwrap_or_else(|| self.make_place(meaning, T::default()));
        &mut self.entries[at].1
    }

    /// Gives a meaning another value.
    pub fn insert(&mut self, meaning: Meaning, value: T) {
        match self.place(meaning) {
            Some(at) => self.entries[at].1 = value,
            None => _ = self.make_place(meaning, value),
        }
    }

    /// Takes what a meaning has.
    pub fn remove(&mut self, meaning: &Meaning) -> Option<T> {
        let at = self.place(*meaning)?;
        let (_, value) = self.entries.remove(at);
        self.count_places();
        Some(value)
    }

    /// Takes everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// No meaning has anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The meanings that have something, in their order, and what they have.
    pub fn iter(&self) -> impl Iterator<Item = (Meaning, &T)> {
        self.entries.iter().map(|(meaning, value)| (*meaning, value))
    }

    fn place(&self, meaning: Meaning) -> Option<usize> {
        usize::from(self.places[meaning as usize]).checked_sub(1)
    }

    /// Seldom: those behind it move.
    fn make_place(&mut self, meaning: Meaning, value: T) -> usize {
        let at = self.entries.partition_point(|(before, _)| *before < meaning);
        self.entries.insert(at, (meaning, value));
        self.count_places();
        at
    }

    fn count_places(&mut self) {
        self.places = [0; MEANINGS];
        for (place, (meaning, _)) in (1u8..).zip(&self.entries) {
            self.places[*meaning as usize] = place;
        }
    }
}

impl<T> Index<&Meaning> for ByMeaning<T> {
    type Output = T;

    fn index(&self, meaning: &Meaning) -> &T {
        self.get(meaning).expect("who indexes knows that the meaning has something")
    }
}

impl<T> FromIterator<(Meaning, T)> for ByMeaning<T> {
    fn from_iter<I: IntoIterator<Item = (Meaning, T)>>(entries: I) -> Self {
        let mut map = Self::default();
        entries.into_iter().for_each(|(meaning, value)| map.insert(meaning, value));
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_meaning_has_its_own_and_they_are_told_in_order() {
        let mut map = ByMeaning::default();
        let few = [Meaning::TxWait, Meaning::TxBytes, Meaning::CrcErrors, Meaning::RxBytes];
        for meaning in few {
            *map.or_default(meaning) = meaning.name().to_owned();
        }
        map.insert(Meaning::TxWait, "other".to_owned());
        assert_eq!(map.remove(&Meaning::TxBytes).as_deref(), Some("tx_bytes"));
        assert_eq!(map.remove(&Meaning::TxBytes), None);
        for meaning in Meaning::ALL {
            let told = match meaning {
                Meaning::TxWait => Some("other"),
                Meaning::CrcErrors => Some("crc_errors"),
                Meaning::RxBytes => Some("rx_bytes"),
                _ => None,
            };
            assert_eq!(map.get(meaning).map(String::as_str), told, "{meaning:?}");
        }
        assert!(map.iter().map(|(meaning, _)| meaning).is_sorted());
        map.clear();
        assert!(map.is_empty() && map.get(&Meaning::RxBytes).is_none());
        let all: ByMeaning<usize> = Meaning::ALL.iter().copied().rev().zip(0..).collect();
        assert!(all.iter().map(|(meaning, _)| meaning).eq(Meaning::ALL.iter().copied()));
        assert_eq!(all[&Meaning::TxBytes], Meaning::ALL.len() - 1);
    }
}
