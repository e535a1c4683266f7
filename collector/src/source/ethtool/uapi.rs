//! The numbers of the ethtool netlink interface, from the kernel's `include/uapi/linux/ethtool_netlink.h` (an ABI: values
//! are only ever added) and `ethtool.h`. Only reading commands are listed.

/// `ETHTOOL_GENL_NAME` and its version.
pub(super) const FAMILY: (&str, u8) = ("ethtool", 1);

/// `ETHTOOL_FLAG_STATS`: add the statistics to the answer (Linux 5.10).
pub(super) const FLAG_STATS: u32 = 1 << 2;

/// The groups eth-phy, eth-mac, eth-ctrl and rmon (`ETHTOOL_STATS_*`) as a bit mask.
pub(super) const STANDARD_GROUPS: u32 = 0b1111;
/// How many groups that are.
pub(super) const STANDARD_GROUPS_SIZE: u32 = 4;

/// `ETHTOOL_MSG_*` of requests.
pub(super) mod message {
    pub(in super::super) const STRSET_GET: u8 = 1;
    /// Tells how often the link went down since Linux 6.2; before, asking for it is EINVAL (seen on 6.1).
    pub(in super::super) const LINKSTATE_GET: u8 = 6;
    pub(in super::super) const PAUSE_GET: u8 = 21;
    /// Since Linux 5.12, with statistics since 5.13.
    pub(in super::super) const FEC_GET: u8 = 29;
    /// Since Linux 5.13.
    pub(in super::super) const STATS_GET: u8 = 32;
}

/// `ETHTOOL_A_*`.
pub(super) mod attr {
    pub(in super::super) const HEADER_DEV_NAME: u16 = 2;
    pub(in super::super) const HEADER_FLAGS: u16 = 3;

    /// The header of a request; one above it for statistics, whose first number is padding.
    pub(in super::super) const HEADER: u16 = 1;
    pub(in super::super) const STATS_HEADER: u16 = 2;

    pub(in super::super) const STRSET_STRINGSETS: u16 = 2;
    pub(in super::super) const STRINGSETS_STRINGSET: u16 = 1;
    pub(in super::super) const STRINGSET_ID: u16 = 1;
    pub(in super::super) const STRINGSET_STRINGS: u16 = 3;
    pub(in super::super) const STRINGS_STRING: u16 = 1;
    pub(in super::super) const STRING_INDEX: u16 = 1;
    pub(in super::super) const STRING_VALUE: u16 = 2;

    pub(in super::super) const LINKSTATE_EXT_DOWN_CNT: u16 = 7;

    pub(in super::super) const PAUSE_STATS: u16 = 5;
    pub(in super::super) const PAUSE_STAT_TX_FRAMES: u16 = 2;
    pub(in super::super) const PAUSE_STAT_RX_FRAMES: u16 = 3;

    pub(in super::super) const FEC_STATS: u16 = 5;
    pub(in super::super) const FEC_STAT_CORRECTED: u16 = 2;
    pub(in super::super) const FEC_STAT_UNCORR: u16 = 3;
    pub(in super::super) const FEC_STAT_CORR_BITS: u16 = 4;

    pub(in super::super) const STATS_GROUPS: u16 = 3;
    pub(in super::super) const STATS_GRP: u16 = 4;
    pub(in super::super) const STATS_GRP_SS_ID: u16 = 3;
    pub(in super::super) const STATS_GRP_STAT: u16 = 4;
    pub(in super::super) const STATS_GRP_HIST_RX: u16 = 5;
    pub(in super::super) const STATS_GRP_HIST_TX: u16 = 6;
    pub(in super::super) const STATS_GRP_HIST_BKT_LOW: u16 = 7;
    pub(in super::super) const STATS_GRP_HIST_BKT_HI: u16 = 8;
    pub(in super::super) const STATS_GRP_HIST_VAL: u16 = 9;

    pub(in super::super) const BITSET_NOMASK: u16 = 1;
    pub(in super::super) const BITSET_SIZE: u16 = 2;
    pub(in super::super) const BITSET_VALUE: u16 = 4;
}

/// `NLA_F_NESTED`: ethtool's policy wants it on nests.
pub(super) const NESTED: u16 = 1 << 15;
