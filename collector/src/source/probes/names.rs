//! The names of numbers: QP types, opcodes, asynchronous events, AER status bits.

use collector_ebpf::outcome::STATUSES;
use collector_ebpf::slot::OPCODES;

use crate::observation::AerSeverity;

/// `enum ib_qp_type` (`include/rdma/ib_verbs.h`).
pub(super) fn qp_type(code: u32) -> Option<&'static str> {
    Some(match code {
        0 => "SMI",
        1 => "GSI",
        2 => "RC",
        3 => "UC",
        4 => "UD",
        5 => "RAW_IPV6",
        6 => "RAW_ETHERTYPE",
        8 => "RAW_PACKET",
        9 => "XRC_INI",
        10 => "XRC_TGT",
        0xff => "DRIVER",
        _ => return None,
    })
}

/// `enum ibv_wr_opcode` (libibverbs/verbs.h), without `IBV_WR_`; the last counter also holds opcodes above it.
pub(super) const OPCODE: [&str; OPCODES] = [
    "RDMA_WRITE",
    "RDMA_WRITE_WITH_IMM",
    "SEND",
    "SEND_WITH_IMM",
    "RDMA_READ",
    "ATOMIC_CMP_AND_SWP",
    "ATOMIC_FETCH_AND_ADD",
    "LOCAL_INV",
    "BIND_MW",
    "SEND_WITH_INV",
    "TSO",
    "DRIVER1",
    "12",
    "13",
    "FLUSH",
    "ATOMIC_WRITE",
];

/// `enum ibv_wc_status` (libibverbs/verbs.h), without `IBV_WC_`.
pub(super) const STATUS: [&str; STATUSES] = [
    "SUCCESS",
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "MW_BIND_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "LOC_RDD_VIOL_ERR",
    "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",
    "INV_EECN_ERR",
    "INV_EEC_STATE_ERR",
    "FATAL_ERR",
    "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
    "TM_ERR",
    "TM_RNDV_INCOMPLETE",
];

/// Errors whose status is not kept.
pub(super) const OTHER_STATUS: &str = "other";

/// `enum ib_event_type`, which is `enum ibv_event_type`.
const EVENTS: [&str; 20] = [
    "CQ_ERR",
    "QP_FATAL",
    "QP_REQ_ERR",
    "QP_ACCESS_ERR",
    "COMM_EST",
    "SQ_DRAINED",
    "PATH_MIG",
    "PATH_MIG_ERR",
    "DEVICE_FATAL",
    "PORT_ACTIVE",
    "PORT_ERR",
    "LID_CHANGE",
    "PKEY_CHANGE",
    "SM_CHANGE",
    "SRQ_ERR",
    "SRQ_LIMIT_REACHED",
    "QP_LAST_WQE_REACHED",
    "CLIENT_REREGISTER",
    "GID_CHANGE",
    "WQ_FATAL",
];

/// The name of an asynchronous event.
pub(super) fn event(code: u32) -> String {
    usize::try_from(code)
        .ok()
        .and_then(|code| EVENTS.get(code))
        .map_or_else(|| format!("EVENT_{code}"), |name| (*name).to_owned())
}

/// `enum ib_mtu` in bytes.
pub(super) fn mtu_bytes(code: u32) -> Option<u32> {
    (1..=5).contains(&code).then(|| 128 << code)
}

/// Severity as the AER driver passes it to the tracepoint: 0 non-fatal, 1 fatal, 2 corrected.
pub(super) fn severity(code: u32) -> AerSeverity {
    match code {
        2 => AerSeverity::Corrected,
        1 => AerSeverity::Fatal,
        _ => AerSeverity::Nonfatal,
    }
}

/// Correctable error status bits (PCIe 6.0, 7.8.4.5), spelled as in `aer_dev_correctable`.
const CORRECTABLE: [(u32, &str); 8] = [
    (0, "RxErr"),
    (6, "BadTLP"),
    (7, "BadDLLP"),
    (8, "Rollover"),
    (12, "Timeout"),
    (13, "NonFatalErr"),
    (14, "CorrIntErr"),
    (15, "HeaderOF"),
];

/// Uncorrectable error status bits (PCIe 6.0, 7.8.4.2), spelled as in `aer_dev_nonfatal` and `aer_dev_fatal`.
const UNCORRECTABLE: [(u32, &str); 18] = [
    (0, "Undefined"),
    (4, "DLP"),
    (5, "SDES"),
    (12, "TLP"),
    (13, "FCP"),
    (14, "CmpltTO"),
    (15, "CmpltAbrt"),
    (16, "UnxCmplt"),
    (17, "RxOF"),
    (18, "MalfTLP"),
    (19, "ECRC"),
    (20, "UnsupReq"),
    (21, "ACSViol"),
    (22, "UncorrIntErr"),
    (23, "BlockedTLP"),
    (24, "AtomicOpBlocked"),
    (25, "TLPBlockedErr"),
    (26, "PoisonTLPBlocked"),
];

/// The names of the bits of an AER status; a bit without a name is written as `bitN`.
pub(crate) fn aer(severity: AerSeverity, status: u32) -> Vec<String> {
    let table: &[(u32, &str)] = if severity == AerSeverity::Corrected { &CORRECTABLE } else { &UNCORRECTABLE };
    (0..32)
        .filter(|bit| status & 1 << bit != 0)
        .map(|bit| {
            let name = table.iter().find(|(known, _)| *known == bit);
            name.map_or_else(|| format!("bit{bit}"), |(_, name)| (*name).to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bit_has_another_name_by_severity() {
        assert_eq!(aer(AerSeverity::Corrected, 0x40), ["BadTLP"]);
        assert_eq!(aer(AerSeverity::Corrected, 0x1000), ["Timeout"]);
        assert_eq!(aer(AerSeverity::Nonfatal, 0x1000), ["TLP"]);
        assert_eq!(aer(AerSeverity::Fatal, 1 << 18 | 1 << 30), ["MalfTLP", "bit30"]);
        assert!(aer(AerSeverity::Fatal, 0).is_empty());
    }

    #[test]
    fn events_have_the_verbs_names() {
        assert_eq!([event(9), event(10), event(18)], ["PORT_ACTIVE", "PORT_ERR", "GID_CHANGE"]);
        assert_eq!(event(99), "EVENT_99");
    }

    #[test]
    fn an_mtu_code_is_a_power_of_two() {
        assert_eq!([mtu_bytes(1), mtu_bytes(3), mtu_bytes(5)], [Some(256), Some(1024), Some(4096)]);
        assert_eq!([mtu_bytes(0), mtu_bytes(6)], [None, None]);
    }
}
