//! Typed access to a message's attributes, over the crate's iterator.
//!
//! A cut or over-long attribute ends the walk of its own nest; what was read before it stays, and
//! [`Attributes::damaged`] says so.

use netlink_packet_core::{NLA_HEADER_SIZE, NlaBuffer, NlasIterator};

/// One level of attributes.
#[derive(Debug, Clone, Copy)]
pub(in crate::source) struct Attributes<'a>(pub(in crate::source) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Every whole attribute as kind and value.
    pub(in crate::source) fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        NlasIterator::new(self.0).map_while(Result::ok).map(|nla: NlaBuffer<&'a [u8]>| (nla.kind(), value(nla)))
    }

    /// The walk ends before the end of the bytes.
    pub(in crate::source) fn damaged(self) -> bool {
        NlasIterator::new(self.0).any(|nla| nla.is_err())
    }

    /// The value of the first attribute of a kind.
    pub(in crate::source) fn find(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find(|(k, _)| *k == kind).map(|(_, value)| value)
    }

    /// A nested table; empty when it is absent.
    pub(in crate::source) fn nest(self, kind: u16) -> Attributes<'a> {
        Attributes(self.find(kind).unwrap_or_default())
    }

    /// All nested entries of one kind.
    pub(in crate::source) fn entries(self, kind: u16) -> impl Iterator<Item = Attributes<'a>> {
        self.iter().filter(move |(k, _)| *k == kind).map(|(_, value)| Attributes(value))
    }

    /// An 8-bit value.
    pub(in crate::source) fn u8(self, kind: u16) -> Option<u8> {
        self.find(kind)?.first_chunk::<1>().map(|bytes| bytes[0])
    }

    /// A 16-bit value.
    pub(in crate::source) fn u16(self, kind: u16) -> Option<u16> {
        self.find(kind)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
    }

    /// A 32-bit value.
    pub(in crate::source) fn u32(self, kind: u16) -> Option<u32> {
        self.find(kind)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// A 64-bit value.
    pub(in crate::source) fn u64(self, kind: u16) -> Option<u64> {
        self.find(kind)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// A text up to its first NUL; `None` when it is empty or not UTF-8.
    pub(in crate::source) fn text(self, kind: u16) -> Option<&'a str> {
        let bytes = self.find(kind)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).ok().filter(|text| !text.is_empty())
    }
}

/// Appends an attribute to a request. Requests are small: a value of 64 KiB and more is not sent at all.
pub(in crate::source) fn push(payload: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len() + NLA_HEADER_SIZE) else { return };
    payload.extend_from_slice(&length.to_ne_bytes());
    payload.extend_from_slice(&kind.to_ne_bytes());
    payload.extend_from_slice(value);
    payload.resize(payload.len().next_multiple_of(4), 0);
}

/// The value of an attribute the iterator has checked, without the padding behind it.
fn value(nla: NlaBuffer<&[u8]>) -> &[u8] {
    let length = usize::from(nla.length());
    nla.into_inner().get(NLA_HEADER_SIZE..length).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLA_F_NESTED;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(value.len() + 4).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn values_are_read_by_width_and_nests_by_kind() {
        let inner = [attribute(82, b"rx_bytes\0"), attribute(83, &7u64.to_ne_bytes())].concat();
        let bytes =
            [attribute(3, &2u32.to_ne_bytes()), attribute(NLA_F_NESTED | 0x51, &inner), attribute(12, &[4])].concat();
        let attributes = Attributes(&bytes);
        assert_eq!(attributes.u32(3), Some(2));
        assert_eq!(attributes.u8(12), Some(4));
        assert_eq!(attributes.nest(81).text(82), Some("rx_bytes"));
        assert_eq!(attributes.nest(81).u64(83), Some(7));
        assert!(!attributes.damaged());
    }

    #[test]
    fn a_value_shorter_than_its_type_is_absent() {
        let bytes =
            [attribute(3, &[1, 0]), attribute(12, &[]), attribute(2, b"\0"), attribute(5, &[0xff, 0xfe])].concat();
        let attributes = Attributes(&bytes);
        assert_eq!(attributes.u32(3), None);
        assert_eq!(attributes.u8(12), None);
        assert_eq!(attributes.text(2), None);
        assert_eq!(attributes.text(5), None);
    }

    #[test]
    fn a_cut_attribute_costs_only_itself() {
        let mut bytes = [attribute(1, &9u32.to_ne_bytes()), attribute(2, b"mlx5_0\0")].concat();
        bytes.truncate(bytes.len() - 4);
        assert_eq!(Attributes(&bytes).u32(1), Some(9));
        assert_eq!(Attributes(&bytes).text(2), None);
        assert!(Attributes(&bytes).damaged());
    }
}
