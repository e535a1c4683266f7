//! What the recording format promises.

use super::*;
use crate::observation::{CounterSource, Counters, Pairs, Port, PortState};

const HEADER: &str =
    r#"{"type":"header","format":"rdmascope-recording","version":1,"host":"n","unix_ns":1000,"mono_ns":10}"#;

fn read(text: &str) -> (Vec<String>, Notices, Option<RecordingError>) {
    let mut reader = Reader::new(text.as_bytes()).expect("the header is good");
    let mut kinds = Vec::new();
    let error = loop {
        match reader.next(|o| format!("{} {}", o.t, o.body.type_name())) {
            Ok(Some(kind)) => kinds.push(kind),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    (kinds, reader.notices().clone(), error)
}

fn sample() -> Vec<Observation<'static>> {
    let mut values = Pairs::default();
    values.push("port_rcv_data", 18_446_744_073_709_551_615);
    values.push("RNR sent", 3);
    let mut unavailable = Pairs::default();
    unavailable.push("port_xmit_wait", "EINVAL".into());
    vec![
        Observation {
            t: 5,
            body: Body::Port(Port {
                device: "mlx5_0".into(),
                port: 1,
                state: PortState::Active,
                rate_gbps: Some(2.5),
                ..Port::default()
            }),
        },
        Observation {
            t: 6,
            body: Body::Counters(Counters {
                device: "mlx5_0".into(),
                port: Some(1),
                source: CounterSource::Counters,
                values,
                unavailable,
                ..Counters::default()
            }),
        },
    ]
}

#[test]
fn what_never_ends_is_refused_at_its_first_line() {
    let error = Reader::new(std::io::repeat(b'x')).map(|_| ()).unwrap_err();
    assert!(matches!(error, RecordingError::NoHeader(_)), "{error}");
}

#[test]
fn what_is_written_is_read_back_plain_and_compressed() {
    for compress in [false, true] {
        let mut writer = Writer::new(Vec::new(), compress, &Header::new()).unwrap();
        for observation in sample() {
            writer.write(&observation).unwrap();
        }
        let bytes = writer.finish().unwrap();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        for expected in sample() {
            assert!(reader.next(|o| assert_eq!(*o, expected)).unwrap().is_some());
        }
        assert!(reader.next(|_| ()).unwrap().is_none());
        assert_eq!(reader.notices().lines(), Vec::<String>::new());
    }
}

#[test]
fn unknown_types_and_fields_are_skipped_and_counted() {
    let (kinds, notices, error) = read(&format!(
        "{HEADER}\n{{\"t\":1,\"type\":\"sunspots\",\"n\":3}}\n\
         {{\"colour\":[1],\"type\":\"lost\",\"n\":2,\"source\":\"sysfs\",\"t\":7}}\n"
    ));
    assert!(error.is_none());
    assert_eq!(kinds, ["7 lost"]);
    assert_eq!(notices.unknown_types["sunspots"], 1);
    assert_eq!(notices.unknown_fields, 1);
}

#[test]
fn a_truncated_last_line_costs_only_itself() {
    let (kinds, notices, error) =
        read(&format!("{HEADER}\n{{\"t\":1,\"type\":\"lost\",\"source\":\"x\",\"n\":1}}\n{{\"t\":2,\"type\":\"lo"));
    assert!(error.is_none());
    assert_eq!(kinds, ["1 lost"]);
    assert!(notices.truncated.unwrap().contains("line 3"));
    assert_eq!(notices.bad_lines, 0);
}

#[test]
fn a_last_line_without_newline_that_is_whole_is_read() {
    let (kinds, notices, _) = read(&format!("{HEADER}\n{{\"t\":1,\"type\":\"lost\",\"source\":\"x\",\"n\":1}}"));
    assert_eq!(kinds, ["1 lost"]);
    assert_eq!(notices.truncated, None);
}

#[test]
fn a_cut_compressed_recording_keeps_what_was_flushed() {
    let mut writer = Writer::new(Vec::new(), true, &Header::new()).unwrap();
    for observation in sample() {
        writer.write(&observation).unwrap();
    }
    writer.flush().unwrap();
    let Output::Zstd(Some(encoder), _) = &writer.output else { unreachable!() };
    let bytes = encoder.get_ref().clone();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    assert!(reader.next(|_| ()).unwrap().is_some());
    assert!(reader.next(|_| ()).unwrap().is_some());
    assert!(reader.next(|_| ()).unwrap().is_none());
    let told = reader.notices().truncated.clone().expect("told");
    assert!(told.contains("cut off after line 3"), "{told}");
}

/// A recording of `lost` observations, in frames.
fn packed(observations: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), true, &Header::new()).unwrap();
    for t in 0..observations {
        let source = format!("{:x}", t.wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(8);
        let body = Body::Lost(crate::observation::Lost { source: source.into(), n: t });
        writer.write(&Observation { t, body }).unwrap();
    }
    writer.finish().unwrap()
}

/// How many observations it gives, and what is told of its end.
fn unpacked(bytes: &[u8]) -> Option<(u64, Option<String>)> {
    let mut reader = Reader::new(bytes).ok()?;
    while reader.next(|_| ()).ok()?.is_some() {}
    Some((reader.notices().observations, reader.notices().truncated.clone()))
}

#[test]
fn a_flipped_bit_in_a_compressed_recording_is_told() {
    let whole = packed_sample();
    assert_eq!(unpacked(&whole), Some((2, None)));
    for at in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[at / 8] ^= 1 << (at % 8);
        // Bits the format leaves unused change nothing.
        if unpacked(&bytes).is_some_and(|(_, told)| told.is_none()) {
            assert_eq!(zstd::decode_all(&bytes[..]).ok(), zstd::decode_all(&whole[..]).ok(), "bit {at}");
        }
    }
}

fn packed_sample() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), true, &Header::new()).unwrap();
    for observation in sample() {
        writer.write(&observation).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn damage_is_told_with_the_lines_it_may_have_touched() {
    let whole = packed(60_000);
    assert_eq!(unpacked(&whole), Some((60_000, None)));
    let mut bytes = whole.clone();
    let at = bytes.len() * 3 / 4;
    bytes[at] ^= 0x10;
    let (read, told) = unpacked(&bytes).expect("it opens");
    let told = told.expect("told");
    assert!(read > 20_000 && read < 60_000, "{read}");
    let first: u64 = told.split("lines ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    assert!(told.contains("damaged") && first > 20_000 && first < 50_000, "{told}");
    let cut = unpacked(&whole[..at]).expect("it opens");
    assert!(cut.0 >= read.min(20_000) && cut.1.expect("told").contains("cut off"));
}

#[test]
fn a_gzip_recording_and_one_with_a_mark_of_order_are_read() {
    let text = format!("\u{feff}{HEADER}\n{{\"t\":1,\"type\":\"lost\",\"source\":\"x\",\"n\":1}}\n");
    assert_eq!(read(&text).0, ["1 lost"]);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    assert_eq!(unpacked(&bytes), Some((1, None)));
    let cut = unpacked(&bytes[..bytes.len() - 8]).and_then(|(_, told)| told);
    assert!(cut.as_ref().is_some_and(|told| told.contains("cut off")), "{cut:?}");
    let mut damaged = bytes.clone();
    let last = damaged.len() - 8;
    damaged[last] ^= 1;
    assert!(unpacked(&damaged).and_then(|(_, told)| told).is_some_and(|told| told.contains("damaged")));
}

#[test]
fn a_bad_line_is_reported_with_its_number_and_the_rest_is_read() {
    let (kinds, notices, error) =
        read(&format!("{HEADER}\nnonsense\n{{\"t\":1,\"type\":\"lost\",\"source\":\"x\",\"n\":1}}\n"));
    assert!(error.is_none());
    assert_eq!(kinds, ["1 lost"]);
    assert_eq!(notices.bad[0].0, 2);
}

#[test]
fn more_than_a_hundred_bad_lines_in_a_row_end_the_read() {
    let good = "{\"t\":1,\"type\":\"lost\",\"source\":\"x\",\"n\":1}\n";
    let (kinds, _, error) = read(&format!("{HEADER}\n{}{good}", "bad\n".repeat(100)));
    assert!(error.is_none());
    assert_eq!(kinds.len(), 1);
    let (kinds, _, error) = read(&format!("{HEADER}\n{good}{}", "bad\n".repeat(101)));
    assert_eq!(kinds.len(), 1);
    assert!(matches!(error, Some(RecordingError::TooManyBadLines { line: 103, .. })));
}

#[test]
fn foreign_files_are_refused_with_a_reason() {
    for (text, part) in [
        ("", "empty"),
        ("hello\n", "no header"),
        ("{\"t\":1,\"type\":\"lost\"}\n", "type is \"lost\""),
        ("{\"type\":\"header\",\"format\":\"other\",\"version\":1}\n", "format is \"other\""),
        ("{\"type\":\"header\",\"format\":\"rdmascope-recording\",\"version\":2}\n", "version 2"),
        ("\u{1F}\u{8B}\u{8}binary", "no header"),
    ] {
        let error = Reader::new(text.as_bytes()).err().expect("refused").to_string();
        assert!(error.contains(part), "{text:?}: {error}");
    }
    assert!(Reader::new(&b"\x28\xb5\x2f\xfdgarbage after the magic"[..]).is_err());
}

#[test]
fn an_odd_counter_value_costs_only_itself() {
    let text = format!(
        "{HEADER}\n{{\"t\":1,\"type\":\"counters\",\"device\":\"d\",\"port\":1,\"source\":\"counters\",\
         \"values\":{{\"a\":1,\"b\":-1,\"c\":\"N/A\",\"d\":null,\"e\":[1],\"f\":2}}}}\n"
    );
    let mut reader = Reader::new(text.as_bytes()).unwrap();
    let values = reader
        .next(|o| match &o.body {
            Body::Counters(c) => c.values.iter().map(|(n, v)| (n.to_string(), *v)).collect::<Vec<_>>(),
            _ => unreachable!(),
        })
        .unwrap()
        .unwrap();
    assert_eq!(values, [("a".to_owned(), 1), ("f".to_owned(), 2)]);
    assert_eq!(reader.notices().odd_values, 4);
}

#[test]
fn the_header_ties_monotonic_time_to_the_wall_clock() {
    let header = Header { unix_ns: Some(1_000), mono_ns: Some(10), ..Header::new() };
    assert_eq!(header.unix_ns_at(15), Some(1_005));
    assert_eq!(Header::new().unix_ns_at(15), None);
}

#[test]
fn a_line_whose_time_alone_is_far_ahead_is_told_and_passed_over_and_a_pause_is_none() {
    const MINUTE: u64 = 60_000_000_000;
    let note = |t: u64| format!(r#"{{"t":{t},"type":"note","source":"s","text":"x"}}"#);
    let read = |times: &[u64]| {
        let lines: Vec<String> = times.iter().map(|t| note(*t)).collect();
        let (kinds, notices, error) = read(&format!("{HEADER}\n{}\n", lines.join("\n")));
        assert!(error.is_none());
        let times: Vec<u64> = kinds.iter().map(|kind| kind.split(' ').next().unwrap().parse().unwrap()).collect();
        (times, notices.lines())
    };
    let (times, told) = read(&[5, 6, 120 * MINUTE, 7, 8]);
    assert_eq!(times, [5, 6, 7, 8]);
    assert!(told[0].contains("line 4") && told[0].contains("7199 s ahead of the lines around it"), "{told:?}");
    for pause in
        [&[5, 6, 120 * MINUTE, 121 * MINUTE][..], &[5, 6, 120 * MINUTE], &[120 * MINUTE, 5, 6], &[5, MINUTE, 6]]
    {
        assert_eq!(read(pause), (pause.to_vec(), Vec::new()));
    }
    // The time to wait for is that of the line that is taken.
    let text = [5, 120 * MINUTE, 7].map(note).join("\n");
    let text = format!("{HEADER}\n{text}\n");
    let mut reader = Reader::new(text.as_bytes()).unwrap();
    for t in [5, 7] {
        assert_eq!((reader.next_time(), reader.next(|seen| seen.t).unwrap()), (Some(t), Some(t)));
    }
    assert_eq!((reader.next_time(), reader.next(|seen| seen.t).unwrap()), (None, None));
    // What was read ahead is told of at its place.
    let text = format!("{HEADER}\n{}\n{}\nnonsense\n{}\n", note(5), note(120 * MINUTE), note(121 * MINUTE));
    let (kinds, notices, _) = self::read(&text);
    assert_eq!(kinds.len(), 3);
    assert!(notices.lines()[0].contains("line 4"), "{:?}", notices.lines());
}
