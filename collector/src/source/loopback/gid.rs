//! Which entry of a RoCE port's GID table a connection of the port to itself uses.
//!
//! Every address of the port's network device is there twice, as RoCE v1 and as RoCE v2 (`gid_attrs/types`, the kernel's
//! Documentation/ABI/testing/sysfs-class-infiniband). The two ends of a connection must be of one type.

use crate::observation::Gid;

/// The index of the entry: RoCE v2 before v1; of those an IPv4 address before another one, and a link-local one last, for
/// it is there on every port and leads nowhere on some. `None` when the table is empty.
#[must_use]
pub fn choose<'g, 'a>(gids: &'g [Gid<'a>]) -> Option<&'g Gid<'a>> {
    gids.iter().min_by_key(|gid| {
        let v2 = gid.kind.as_deref().is_some_and(|kind| kind.contains("v2"));
        let address = if gid.gid.starts_with("0000:0000:0000:0000:0000:ffff:") {
            0
        } else if gid.gid.starts_with("fe80:") {
            2
        } else {
            1
        };
        (!v2, address, gid.index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "fe80:0000:0000:0000:5054:00ff:fe12:3456";
    const V4: &str = "0000:0000:0000:0000:0000:ffff:0a00:0101";
    const V6: &str = "2001:0db8:0000:0000:0000:0000:0000:0001";

    fn chosen(entries: &[(u32, &'static str, &'static str)]) -> Option<u32> {
        let gids: Vec<Gid<'_>> = entries
            .iter()
            .map(|(index, gid, kind)| Gid {
                index: *index,
                gid: (*gid).into(),
                kind: (!kind.is_empty()).then(|| (*kind).into()),
                netdev: None,
            })
            .collect();
        choose(&gids).map(|gid| gid.index)
    }

    #[test]
    fn roce_v2_with_an_ipv4_address_goes_before_everything_else() {
        let table = [
            (0, LOCAL, "IB/RoCE v1"),
            (1, LOCAL, "RoCE v2"),
            (2, V4, "IB/RoCE v1"),
            (3, V4, "RoCE v2"),
            (4, V6, "RoCE v2"),
        ];
        assert_eq!(chosen(&table), Some(3));
        assert_eq!(chosen(&table[..3]), Some(1));
        assert_eq!(chosen(&[table[1], table[4]]), Some(4));
    }

    #[test]
    fn roce_v1_serves_where_there_is_no_v2_and_an_empty_table_has_none() {
        assert_eq!(chosen(&[(0, LOCAL, "IB/RoCE v1"), (2, V4, "IB/RoCE v1")]), Some(2));
        // A kernel that tells no types.
        assert_eq!(chosen(&[(5, LOCAL, "")]), Some(5));
        assert_eq!(chosen(&[]), None);
    }
}
