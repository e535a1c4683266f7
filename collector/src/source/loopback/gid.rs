//! Which entries of a RoCE port's GID table a connection of the port to itself tries.
//!
//! Every address of the port's network device is there twice, as RoCE v1 and as RoCE v2 (`gid_attrs/types`, the kernel's
//! Documentation/ABI/testing/sysfs-class-infiniband). The two ends of a connection must be of one type.

use crate::observation::Gid;

/// The entries, the one to try first before the others: RoCE v2 before v1; of those an IPv4 address before another one, and
/// a link-local one last, for it is there on every port and leads nowhere on some.
#[must_use]
pub fn by_preference<'g, 'a>(gids: &'g [Gid<'a>]) -> Vec<&'g Gid<'a>> {
    let mut ordered: Vec<_> = gids.iter().collect();
    ordered.sort_by_key(|gid| {
        let v2 = gid.kind.as_deref().is_some_and(|kind| kind.contains("v2"));
        let address = if gid.gid.starts_with("0000:0000:0000:0000:0000:ffff:") {
            0
        } else if gid.gid.starts_with("fe80:") {
            2
        } else {
            1
        };
        (!v2, address, gid.index)
    });
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "fe80:0000:0000:0000:5054:00ff:fe12:3456";
    const V4: &str = "0000:0000:0000:0000:0000:ffff:0a00:0101";
    const V6: &str = "2001:0db8:0000:0000:0000:0000:0000:0001";

    fn order(entries: &[(u32, &'static str, &'static str)]) -> Vec<u32> {
        let gids: Vec<Gid<'_>> = entries
            .iter()
            .map(|(index, gid, kind)| Gid {
                index: *index,
                gid: (*gid).into(),
                kind: (!kind.is_empty()).then(|| (*kind).into()),
                netdev: None,
            })
            .collect();
        by_preference(&gids).iter().map(|gid| gid.index).collect()
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
        assert_eq!(order(&table), [3, 4, 1, 2, 0]);
    }

    #[test]
    fn roce_v1_serves_where_there_is_no_v2_and_an_empty_table_has_none() {
        assert_eq!(order(&[(0, LOCAL, "IB/RoCE v1"), (2, V4, "IB/RoCE v1")]), [2, 0]);
        // A kernel that tells no types.
        assert_eq!(order(&[(5, LOCAL, "")]), [5]);
        assert_eq!(order(&[]), [0u32; 0]);
    }
}
