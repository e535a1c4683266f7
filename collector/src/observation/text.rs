//! The two JSON forms serde has no borrowed type for: a map of names in the order it was written, and a histogram.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::Text;

/// A JSON object as name–value pairs in their written order.
///
/// A value of another kind than `V` (a negative number, a fraction, a text) is kept out of the pairs and counted in
/// [`Pairs::odd`]: one odd value costs no more than itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Pairs<'a, V> {
    pairs: Vec<(Text<'a>, V)>,
    odd: u32,
}

impl<V> Default for Pairs<'_, V> {
    fn default() -> Self {
        Self { pairs: Vec::new(), odd: 0 }
    }
}

impl<'a, V> Pairs<'a, V> {
    /// No pairs, with room for `n`.
    #[must_use]
    pub fn with_capacity(n: usize) -> Self {
        Self { pairs: Vec::with_capacity(n), odd: 0 }
    }

    /// Adds a pair at the end.
    pub fn push(&mut self, name: impl Into<Text<'a>>, value: V) {
        self.pairs.push((name.into(), value));
    }

    /// There is no pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The number of pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Values that were not of the kind `V` and were left out.
    #[must_use]
    pub fn odd(&self) -> u32 {
        self.odd
    }

    /// The pairs in order.
    pub fn iter(&self) -> std::slice::Iter<'_, (Text<'a>, V)> {
        self.pairs.iter()
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&V> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

impl<'a, V> FromIterator<(Text<'a>, V)> for Pairs<'a, V> {
    fn from_iter<I: IntoIterator<Item = (Text<'a>, V)>>(pairs: I) -> Self {
        Self { pairs: pairs.into_iter().collect(), odd: 0 }
    }
}

impl<'s, 'a, V> IntoIterator for &'s Pairs<'a, V> {
    type Item = &'s (Text<'a>, V);
    type IntoIter = std::slice::Iter<'s, (Text<'a>, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.pairs.iter()
    }
}

impl<V: Serialize> Serialize for Pairs<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.pairs.len()))?;
        for (name, value) in &self.pairs {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a, u64> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor { pick: Piece::unsigned, marker: PhantomData })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a, Text<'a>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor { pick: Piece::text, marker: PhantomData })
    }
}

struct PairsVisitor<'a, V> {
    pick: fn(Piece<'a>) -> Option<V>,
    marker: PhantomData<V>,
}

impl<'de: 'a, 'a, V> Visitor<'de> for PairsVisitor<'a, V> {
    type Value = Pairs<'a, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of names and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Pairs::with_capacity(map.size_hint().unwrap_or(32));
        while let Some(name) = map.next_key_seed(TextSeed(PhantomData))? {
            match (self.pick)(map.next_value_seed(PieceSeed(PhantomData))?) {
                Some(value) => pairs.pairs.push((name, value)),
                None => pairs.odd += 1,
            }
        }
        Ok(pairs)
    }
}

/// What a value turned out to be.
enum Piece<'a> {
    Unsigned(u64),
    Text(Text<'a>),
    Other,
}

impl<'a> Piece<'a> {
    fn unsigned(self) -> Option<u64> {
        if let Self::Unsigned(value) = self { Some(value) } else { None }
    }

    fn text(self) -> Option<Text<'a>> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }
}

struct TextSeed<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> DeserializeSeed<'de> for TextSeed<'a> {
    type Value = Text<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match deserializer.deserialize_str(PieceVisitor(PhantomData))? {
            Piece::Text(text) => Ok(text),
            _ => Ok(Cow::Borrowed("")),
        }
    }
}

struct PieceSeed<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> DeserializeSeed<'de> for PieceSeed<'a> {
    type Value = Piece<'a>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(PieceVisitor(PhantomData))
    }
}

struct PieceVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for PieceVisitor<'a> {
    type Value = Piece<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Piece::Unsigned(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Piece::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Piece::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Piece::Other)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Piece::Other)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Piece::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Piece::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Piece::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Piece::Other)
    }
}

/// Counts by powers of two. Shorter lists of older or hand-written recordings are filled with zeros.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(pub Vec<u64>);

impl Clone for Histogram {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }

    // A QP's histograms are replaced at every sweep: their room is used again, which a derived `Clone` would not do.
    fn clone_from(&mut self, source: &Self) {
        self.0.clone_from(&source.0);
    }
}

impl Histogram {
    /// The upper bound (exclusive) of the bucket in which the quantile `q` (0–1) lies; `None` without any count.
    #[must_use]
    pub fn quantile_bound(&self, q: f64) -> Option<u64> {
        let total: u64 = self.0.iter().fold(0, |sum, n| sum.saturating_add(*n));
        if total == 0 {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank between 1 and total")]
        let rank = ((total as f64 * q).ceil() as u64).clamp(1, total);
        let mut seen = 0u64;
        for (bucket, n) in self.0.iter().enumerate() {
            seen = seen.saturating_add(*n);
            if seen >= rank {
                return Some(1u64.checked_shl(u32::try_from(bucket).ok()? + 1).unwrap_or(u64::MAX));
            }
        }
        None
    }
}
