//! `rdma statistic show`, `… qp show`, `… mode`: text, text wrapped by a mail program, JSON.
//!
//! A line is names and numbers in turn; a name may hold spaces (`RNR sent 5`), so a name is all words up to a number. A
//! counter that `mode supported` names and `mode` does not is one the device could count and was not told to: it is
//! unavailable, not 0.

use super::rdma_line::{Entry, entries, numbers};
use super::section::Section;
use super::sink::Sink;
use crate::observation::{Body, CounterSource, Counters, Pairs, Qp, QpEvent};

/// QPs of one bound counter that are listed; a list beyond it is no NIC's.
const MAX_QPS: usize = 1 << 18;

/// Reads a section.
pub(super) fn read(section: &Section<'_>, sink: &mut Sink<'_>) -> Result<(), String> {
    let mut any = false;
    let mut modes = Modes::default();
    for entry in entries(section) {
        any |= if let Some(list) = entry.get("optional-counters").map(str::to_owned) {
            let supported = entry.words.iter().any(|word| word.starts_with("supported"));
            modes.note(&entry, &list, supported);
            true
        } else {
            counters(&entry, sink)
        };
    }
    modes.tell(sink);
    if any { Ok(()) } else { Err("no counter in it".to_owned()) }
}

/// Emits the counters of one entry.
fn counters(entry: &Entry, sink: &mut Sink<'_>) -> bool {
    let bound = entry.get("cntn").is_some() || entry.get("qp-type").is_some();
    let mut values = Pairs::with_capacity(32);
    let mut name: Vec<&str> = Vec::new();
    let mut words = entry.words.iter().map(String::as_str).peekable();
    let mut qpns = None;
    let (mut qp_type, mut pid, mut comm, mut set) = (None, None, None, None);
    while let Some(word) = words.next() {
        match (word, bound || entry.paired) {
            ("cntn", true) => set = words.next().and_then(|set| set.parse().ok()),
            ("qp-type", true) => qp_type = words.next().map(str::to_owned),
            ("pid", true) => pid = words.next().and_then(|pid| pid.parse().ok()),
            ("comm", true) => comm = words.next().map(str::to_owned),
            ("LQPN:" | "lqpn", _) => qpns = words.next(),
            _ => match word.parse::<u64>() {
                Ok(number) if !name.is_empty() => {
                    values.push(name.join(" "), number);
                    name.clear();
                }
                Ok(_) => {}
                Err(_) if entry.paired => {
                    // A value that is no number leaves no name behind.
                    let value = words.peek().and_then(|value| value.parse::<u64>().ok());
                    if value.is_some() { name = vec![word] } else { words.next().map_or((), |_| name.clear()) }
                }
                Err(_) => name.push(word),
            },
        }
    }
    let found = !values.is_empty();
    let text = |text: &Option<String>| text.clone().map(Into::into);
    if let Some(port) = entry.port {
        sink.machine.port_named(&entry.device, port);
    }
    let source = if bound { CounterSource::Qp } else { CounterSource::Nldev };
    let (qpns, left) = qpns.map(|list| numbers(list, MAX_QPS)).unwrap_or_default();
    if found {
        sink.counters(Counters {
            device: entry.device.clone().into(),
            port: entry.port,
            source,
            qp_type: text(&qp_type),
            pid,
            set,
            qpns: set.map(|_| qpns.clone()),
            values,
            ..Counters::default()
        });
    }
    for qpn in qpns {
        sink.say(Body::Qp(Qp {
            device: entry.device.clone().into(),
            qpn,
            port: entry.port,
            event: QpEvent::Seen,
            qp_type: text(&qp_type),
            pid,
            comm: text(&comm),
            ..Qp::default()
        }));
    }
    if left > 0 {
        sink.note(format!("{left} QPs of a counter of {} were left out", entry.device));
    }
    found
}

/// What the ports could count and what they do count.
#[derive(Default)]
struct Modes {
    of: std::collections::BTreeMap<(String, u32), [Vec<String>; 2]>,
}

impl Modes {
    fn note(&mut self, entry: &Entry, list: &str, supported: bool) {
        let Some(port) = entry.port else { return };
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
        self.of.entry((entry.device.clone(), port)).or_default()[usize::from(supported)].extend(names);
    }

    fn tell(self, sink: &mut Sink<'_>) {
        for ((device, port), [enabled, supported]) in self.of {
            let off: Vec<String> = supported.into_iter().filter(|name| !enabled.contains(name)).collect();
            sink.machine.port_named(&device, port);
            if off.is_empty() {
                continue;
            }
            sink.note(format!(
                "{device}/{port} could count {} and was not told to; rdma statistic set link {device}/{port} \
                 optional-counters NAMES tells it, and changes the device",
                off.join(", ")
            ));
            sink.machine.not_enabled.entry((device, port)).or_default().extend(off);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;

    fn sets(text: &str) -> Vec<Counters<'static>> {
        let found = read_text("x.txt", text).found;
        found.into_iter().filter_map(|f| if let Body::Counters(set) = f.body { Some(set) } else { None }).collect()
    }

    #[test]
    fn a_wrapped_line_is_one_entry_and_a_name_may_hold_spaces() {
        let all = sets("link rocep8s0f0/1 rx_write_requests 5 RNR sent 7 out_of_buffer 0\nout_of_sequence\n");
        assert_eq!(all.len(), 1);
        let all = sets("link rocep8s0f0/1 rx_write_requests 5 RNR sent 7 out_of_buffer\n3 cnp_sent 9 np_cnp 1\n");
        let values = &all[0].values;
        let get = |name: &str| values.get(name).copied();
        assert_eq!((get("RNR sent"), get("out_of_buffer"), get("cnp_sent")), (Some(7), Some(3), Some(9)));
        assert_eq!((&*all[0].device, all[0].port, all[0].source), ("rocep8s0f0", Some(1), CounterSource::Nldev));
    }

    #[test]
    fn json_gives_what_text_gives() {
        let json =
            "[{\"ifindex\":0,\"ifname\":\"mlx5_0\",\"port\":1,\"RNR sent\":7,\"hw\":\"n/a\",\"out_of_buffer\":2}]";
        let all = sets(json);
        assert_eq!((all[0].values.get("RNR sent"), all[0].values.get("out_of_buffer")), (Some(&7), Some(&2)));
        assert_eq!(all[0].values.len(), 2);
    }

    #[test]
    fn bound_counters_of_two_processes_are_two_sets_and_name_their_qps() {
        let text = "link mlx5_0/1 cntn 4 qp-type RC pid 1 comm a rx_write_requests 0\n    LQPN: <8,10-11>\n\
                    link mlx5_0/1 cntn 5 qp-type RC pid 2 comm b rx_write_requests 9\n    LQPN: <9>\n";
        let all = sets(text);
        let found: Vec<_> =
            all.iter().map(|s| (s.pid, s.qp_type.as_deref(), s.values.get("rx_write_requests"))).collect();
        assert_eq!(found, [(Some(1), Some("RC"), Some(&0)), (Some(2), Some("RC"), Some(&9))]);
        assert_eq!(read_text("x", text).found.iter().filter(|f| matches!(f.body, Body::Qp(_))).count(), 4);
    }
}
