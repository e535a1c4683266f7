//! `rdma resource show qp` and `… srq`: text and JSON.
//!
//! The columns are names and values in any order. `path-mig-state` is not the state; a kernel owner stands in brackets; a
//! QP without a port has `-`; a list of QPNs may hold ranges, in one string or in several.

use super::rdma_line::{Entry, entries, numbers};
use super::section::Section;
use super::sink::Sink;
use crate::observation::{Body, Qp, QpEvent, QpState, Seeing, SourceState};

/// QPs of one SRQ that are listed.
const MAX_QPS: usize = 1 << 18;
/// The largest QP number: 24 bits.
const MAX_QPN: u32 = (1 << 24) - 1;

/// Reads a section.
pub(super) fn read(section: &Section<'_>, sink: &mut Sink<'_>) -> Result<(), String> {
    let (mut qps, mut other) = (0u64, 0u64);
    for entry in entries(section) {
        if let Some(port) = entry.port {
            sink.machine.port_named(&entry.device, port);
        }
        let list = entry.get("lqpn").unwrap_or_default();
        let (listed, left) = numbers(list, MAX_QPS);
        if listed.is_empty() {
            other += 1;
        }
        for qpn in listed.into_iter().filter(|qpn| *qpn <= MAX_QPN) {
            qps += 1;
            sink.say(Body::Qp(qp(&entry, qpn)));
        }
        if left > 0 {
            sink.note(format!("{left} QPs of an SRQ of {} were left out", entry.device));
        }
    }
    if qps == 0 {
        return Err(format!("{other} resources, none of them a QP"));
    }
    let reason = "saved output of rdma resource: the QPs of one moment";
    let state = SourceState { source: "nldev".into(), state: Seeing::Partial, reason: Some(reason.into()) };
    sink.say(Body::Source(state));
    if other > 0 {
        sink.note(format!("{other} resources that are no QP were passed over"));
    }
    Ok(())
}

fn qp(entry: &Entry, qpn: u32) -> Qp<'static> {
    // An SRQ's type is not that of its QPs.
    let own = entry.get("srqn").is_none();
    let comm = comm(entry);
    let kernel = comm.as_ref().and_then(|comm| Some(comm.strip_prefix('[')?.strip_suffix(']')?.to_owned()));
    let owner = kernel.clone().or(comm);
    Qp {
        device: entry.device.clone().into(),
        qpn,
        port: entry.port,
        event: QpEvent::Seen,
        qp_type: entry.get("type").filter(|_| own).map(|kind| kind.to_owned().into()),
        to: entry.get("state").filter(|_| own).map(state),
        pid: entry.number("pid").filter(|_| kernel.is_none()),
        comm: owner.map(Into::into),
        remote_qpn: entry.number("rqpn"),
        ..Qp::default()
    }
}

fn state(name: &str) -> QpState {
    match name {
        "RESET" => QpState::Reset,
        "INIT" => QpState::Init,
        "RTR" => QpState::Rtr,
        "RTS" => QpState::Rts,
        "SQD" => QpState::Sqd,
        "SQE" => QpState::Sqe,
        "ERR" => QpState::Err,
        _ => QpState::Unknown,
    }
}

/// The columns of text; an owner's name ends where the next one begins.
const COLUMNS: [&str; 10] =
    ["lqpn", "rqpn", "type", "state", "rq-psn", "sq-psn", "path-mig-state", "pdn", "pid", "srqn"];

/// The owner's name. In text it may hold spaces: it ends where the next column begins.
fn comm(entry: &Entry) -> Option<String> {
    if entry.paired {
        return entry.get("comm").map(str::to_owned);
    }
    let at = entry.words.iter().position(|word| word == "comm")?;
    let words: Vec<&str> =
        entry.words[at + 1..].iter().map(String::as_str).take_while(|word| !COLUMNS.contains(word)).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;

    fn qps(text: &str) -> Vec<Qp<'static>> {
        let found = read_text("x.txt", text).found;
        found.into_iter().filter_map(|f| if let Body::Qp(qp) = f.body { Some(qp) } else { None }).collect()
    }

    #[test]
    fn the_state_is_not_the_migration_state_and_columns_have_no_order() {
        let text = "link mlx5_0/1 lqpn 813 rqpn 814 path-mig-state MIGRATED state RTR type RC pid 7 comm my job pdn 8\n\
                    link mlx5_0/- lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core]\n\
                    link mlx5_0/1 lqpn 50 rqpn 0 type RC state INIT rq-psn 16777215 sq-psn 0 comm x\n";
        let all = qps(text);
        let first = (all[0].to, all[0].remote_qpn, all[0].pid, all[0].comm.as_deref(), all[0].qp_type.as_deref());
        assert_eq!(first, (Some(QpState::Rtr), Some(814), Some(7), Some("my job"), Some("RC")));
        assert_eq!((all[1].port, all[1].pid, all[1].comm.as_deref()), (None, None, Some("ib_core")));
        assert_eq!((all.len(), all[2].to), (3, Some(QpState::Init)));
    }

    #[test]
    fn json_of_a_qp_and_both_dialects_of_an_srq() {
        let json = r#"[{"ifindex":0,"ifname":"mlx5_0","port":1,"lqpn":813,"rqpn":814,"type":"RC","state":"ERR",
                        "path-mig-state":"MIGRATED","pid":7,"comm":"my job"}]"#;
        let all = qps(json);
        assert_eq!((all[0].qpn, all[0].to, all[0].comm.as_deref()), (813, Some(QpState::Err), Some("my job")));
        for list in [r#"["126-128","130-140"]"#, r#"["126-128,130-140"]"#] {
            let json = format!(r#"[{{"ifname":"a","srqn":4,"type":"BASIC","lqpn":{list},"pid":3,"comm":"c"}}]"#);
            let all = qps(&json);
            assert_eq!((all.len(), all[0].qp_type.as_deref(), all[0].pid), (14, None, Some(3)), "{list}");
        }
    }

    #[test]
    fn a_list_without_a_qp_says_what_it_is() {
        assert!(read_text("x", "0: mlx5_0: pd 3 cq 5 qp 4 cm_id 0 mr 0 ctx 0\n").not[0].contains("none of them a QP"));
    }
}
