//! Counts the fields of a line that this version does not know. Serde skips them silently; the recording's promise is
//! that nothing is skipped uncounted.

use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

/// Reads a struct from a JSON line and adds the number of its unknown fields to `unknown`. `t` and `type` belong to the
/// line, not to the body, and do not count.
pub(super) fn from_str<'a, T: Deserialize<'a>>(line: &'a str, unknown: &mut u32) -> serde_json::Result<T> {
    let mut json = serde_json::Deserializer::from_str(line);
    let value = T::deserialize(Counting { inner: &mut json, unknown })?;
    json.end()?;
    Ok(value)
}

struct Counting<'u, D> {
    inner: D,
    unknown: &'u mut u32,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counting<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, Struct { inner: visitor, fields, unknown: self.unknown })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Struct<'u, V> {
    inner: V,
    fields: &'static [&'static str],
    unknown: &'u mut u32,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Struct<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Fields { inner: map, known: self.fields, unknown: self.unknown })
    }
}

struct Fields<'u, A> {
    inner: A,
    known: &'static [&'static str],
    unknown: &'u mut u32,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.inner.next_key_seed(Key { inner: seed, fields: self.known, unknown: self.unknown })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}

struct Key<'u, K> {
    inner: K,
    fields: &'static [&'static str],
    unknown: &'u mut u32,
}

impl<K> Key<'_, K> {
    fn look(&mut self, name: &str) {
        if !self.fields.contains(&name) && name != "t" && name != "type" {
            *self.unknown += 1;
        }
    }
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Key<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for Key<'_, K> {
    type Value = K::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_borrowed_str<E: Error>(mut self, name: &'de str) -> Result<K::Value, E> {
        self.look(name);
        self.inner.deserialize(BorrowedStrDeserializer::new(name))
    }

    fn visit_str<E: Error>(mut self, name: &str) -> Result<K::Value, E> {
        self.look(name);
        self.inner.deserialize(StrDeserializer::new(name))
    }
}
