//! The ways an answer can go wrong.

use std::io;

use super::*;
use crate::source::nldev::reply;
use crate::source::nldev::scene::{
    INTERRUPTED, MULTI, Set, counters, done, exchange, message, number, qp_part, raw, refusal, set_part,
};
use crate::source::nldev::stored::Stored;
use crate::source::nldev::uapi::{attr, command};

/// Dumps devices over datagrams that arrive whatever is asked; the first request has sequence 1.
fn dump(datagrams: Vec<io::Result<Vec<u8>>>) -> (Result<Answer, Fault>, Vec<u32>) {
    let mut conversation = Conversation::new(Box::new(Stored::arriving(datagrams)));
    let mut seen = Vec::new();
    let answer = conversation.dump(command::GET, &[], |message| seen.extend(message.u32(attr::DEV_INDEX)));
    (answer, seen)
}

fn device(index: u32) -> Vec<u8> {
    message(command::GET, MULTI, &number(attr::DEV_INDEX, index))
}

#[test]
fn a_request_is_a_netlink_message_with_its_attributes() {
    let bytes = request(command::STAT_GET, 0, 7, &[(attr::DEV_INDEX, 3), (attr::PORT_INDEX, 1)]);
    let parsed = NetlinkBuffer::new_checked(&bytes[..]).unwrap();
    assert_eq!(parsed.length() as usize, bytes.len());
    assert_eq!(parsed.message_type(), 0x1411);
    assert_eq!(parsed.flags(), NLM_F_REQUEST);
    assert_eq!(parsed.sequence_number(), 7);
    let attributes = Attributes(parsed.payload());
    assert_eq!((attributes.u32(attr::DEV_INDEX), attributes.u32(attr::PORT_INDEX)), (Some(3), Some(1)));
}

#[test]
fn several_messages_in_a_datagram_are_one_part() {
    let (answer, seen) = dump(vec![Ok([device(0), device(1)].concat()), Ok(device(2)), Ok(done(0))]);
    assert_eq!(answer.unwrap(), Answer { interrupted: false, parts: 2 });
    assert_eq!(seen, [0, 1, 2]);
}

#[test]
fn an_interrupted_dump_says_so() {
    let odd = message(command::GET, MULTI | INTERRUPTED, &number(attr::DEV_INDEX, 4));
    let (answer, seen) = dump(vec![Ok(odd), Ok(done(0))]);
    assert!(answer.unwrap().interrupted);
    assert_eq!(seen, [4]);
}

#[test]
fn a_refusal_carries_its_errno() {
    let (answer, _) = dump(vec![Ok(refusal(-22))]);
    assert!(matches!(answer, Err(Fault::Refused(22))), "{answer:?}");
}

#[test]
fn the_end_of_a_dump_can_be_an_error() {
    let (answer, seen) = dump(vec![Ok(device(0)), Ok(done(-90))]);
    assert!(matches!(answer, Err(Fault::Refused(90))), "{answer:?}");
    assert_eq!(seen, [0], "what came before the error counts");
}

#[test]
fn a_done_without_a_code_ends_a_dump() {
    let (answer, _) = dump(vec![Ok(device(0)), Ok(raw(NLMSG_DONE, MULTI, 1, &[]))]);
    assert!(answer.is_ok());
}

#[test]
fn the_rest_of_an_earlier_answer_is_passed_by() {
    let stale = raw(message_type(command::GET), MULTI, 0x1234, &number(attr::DEV_INDEX, 9));
    let (answer, seen) = dump(vec![Ok(stale), Ok(device(0)), Ok(done(0))]);
    assert!(answer.is_ok());
    assert_eq!(seen, [0]);
}

#[test]
fn nothing_but_foreign_messages_is_no_answer() {
    let stale = || Ok(raw(message_type(command::GET), MULTI, 0x1234, &[]));
    let (answer, _) = dump((0..2 * FOREIGN_DATAGRAMS).map(|_| stale()).collect());
    assert!(matches!(answer, Err(Fault::NoAnswer)), "{answer:?}");
}

#[test]
fn a_cut_message_is_malformed() {
    let mut cut = device(0);
    cut.truncate(18);
    let (answer, _) = dump(vec![Ok(cut)]);
    assert!(matches!(answer, Err(Fault::Malformed(_))), "{answer:?}");
}

#[test]
fn a_message_shorter_than_its_header_does_not_loop() {
    let mut short = device(0);
    short[..4].copy_from_slice(&0u32.to_ne_bytes());
    let (answer, _) = dump(vec![Ok(short)]);
    assert!(matches!(answer, Err(Fault::Malformed(_))), "{answer:?}");
}

#[test]
fn a_missing_end_is_no_answer() {
    let (answer, seen) = dump(vec![Ok(device(0))]);
    assert!(matches!(answer, Err(Fault::NoAnswer)), "{answer:?}");
    assert_eq!(seen, [0]);
}

#[test]
fn after_an_overrun_the_next_request_meets_no_old_answer() {
    let overrun = io::Error::from_raw_os_error(ENOBUFS);
    let datagrams = vec![Ok(device(0)), Err(overrun), Ok(device(1)), Ok(done(0))];
    let mut stored = Stored::arriving(datagrams);
    stored.know(exchange(command::SYS_GET, 0, &[], vec![message(command::SYS_GET, 0, &[])]));
    let mut conversation = Conversation::new(Box::new(stored));
    let answer = conversation.dump(command::GET, &[], |_| {});
    assert!(matches!(answer, Err(Fault::Overrun)), "{answer:?}");
    assert_eq!(conversation.get(command::SYS_GET, &[], |_| {}).unwrap(), Answer { interrupted: false, parts: 1 });
}

proptest::proptest! {
    #[test]
    fn no_answer_can_panic_or_hang(
        cut in 0usize..600,
        changes in proptest::collection::vec((0usize..600, proptest::num::u8::ANY), 0..12),
    ) {
        let set = Set { id: 4, mask: 3, qp_type: 2, pid: 41, qpns: vec![17, 18], values: vec![("a", 1)] };
        let mut bytes =
            [set_part(&[set]), qp_part(0, &[(17, 3, 41), (18, 2, 42)]), counters(&[("a", 1), ("b", 2)])].concat();
        for (at, byte) in changes {
            // The sequence number stays, or nothing would be read at all.
            if let Some(place) = bytes.get_mut(at).filter(|_| !(8..12).contains(&at)) {
                *place = byte;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let mut conversation = Conversation::new(Box::new(Stored::arriving(vec![Ok(bytes)])));
        let mut read = 0;
        let _ = conversation.dump(command::RES_QP_GET, &[], |message| {
            reply::qps(message, |_| read += 1);
            read += reply::counters(message).count();
            reply::sets(message, |set| read += set.qpns().count() + set.counters().count());
            read += usize::from(reply::qp_count(message).is_some() || reply::PortInfo::read(message).is_some());
        });
        proptest::prop_assert!(read <= 600);
    }
}
