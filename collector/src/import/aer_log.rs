//! AER in the kernel's log, in the wordings of fifteen years.
//!
//! | line | over time |
//! |---|---|
//! | announcement by the root port | `AER: Multiple Corrected error received: id=ae00`, `AER: Correctable error message received from 0000:06:00.0` |
//! | head of a record | `PCIe Bus Error: severity=Corrected, type=Physical Layer, id=0400(Transmitter ID)` or `(Receiver ID)` alone |
//! | status | `  device [15b3:1017] error status/mask=00001081/00006000` |
//! | bits | `   [ 6] Bad TLP`, `   [ 6] BadTLP (First)` |
//! | header | `  TLP Header: 40000001 0000000f fee00000 00000000` |
//! | firmware first (GHES) | `aer_cor_status: 0x00001000, aer_cor_mask: 0x00002000`, then `aer_status: 0x00001000, aer_mask: 0x00002000` |
//!
//! The bits are those of the hexadecimal status without the masked ones, never the names. A record is one event, whatever
//! an announcement says of several; an announcement alone is no event: who reported, and what, is not in it.

use std::collections::BTreeMap;

use super::moment::Clock;
use super::sink::Sink;
use crate::command::table::counted;
use crate::observation::{Aer, AerSeverity, Body};
use crate::source::probes::names;

/// A record whose lines are still coming.
#[derive(Debug)]
struct Record {
    clock: Clock,
    severity: AerSeverity,
    agent: Option<String>,
    status: Option<(u32, u32)>,
    tlp: Vec<u32>,
}

/// What is known of the AER lines so far.
#[derive(Debug, Default)]
pub(super) struct AerLog {
    open: BTreeMap<String, Record>,
    /// Announcements since the last record: they may belong to the records that follow.
    announced: u64,
    records: u64,
    several: u64,
    /// Announcements of which the log says that no record follows.
    bare: u64,
    /// Severity of the firmware's record that is being told.
    firmware: Option<AerSeverity>,
}

/// `DRIVER 0000:01:00.0: rest`, `0000:01:00.0: rest`: the driver, the function and what is said of it.
pub(super) fn function(message: &str) -> Option<(&str, &str, &str)> {
    let (first, rest) = message.split_once(' ').unwrap_or((message, ""));
    if let Some(pci) = address(first) {
        return Some(("", pci, rest));
    }
    let (second, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let pci = address(second)?;
    (!first.is_empty()).then_some((first, pci, rest))
}

/// A function's address, with or without a colon behind it: a domain of four or more digits, bus, device, function.
pub(super) fn address(word: &str) -> Option<&str> {
    let word = word.strip_suffix(':').unwrap_or(word);
    let mut parts = word.split(':');
    let (domain, bus, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (device, function) = rest.split_once('.')?;
    let hex = |text: &str, least: usize, most: usize| {
        (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let is = parts.next().is_none() && hex(domain, 4, 8) && hex(bus, 2, 2) && hex(device, 2, 2) && hex(function, 1, 1);
    is.then_some(word)
}

fn severity(text: &str) -> Option<AerSeverity> {
    let text = text.to_ascii_lowercase();
    if text.starts_with("correct") {
        Some(AerSeverity::Corrected)
    } else if text.contains("non-fatal") || text.contains("nonfatal") || text.contains("recoverable") {
        Some(AerSeverity::Nonfatal)
    } else if text.contains("fatal") {
        Some(AerSeverity::Fatal)
    } else {
        None
    }
}

impl AerLog {
    /// Takes a message, and says whether it was about AER.
    pub(super) fn take(&mut self, clock: Clock, message: &str, sink: &mut Sink<'_>) -> bool {
        if let Some(at) = message.find("[Hardware Error]:") {
            return self.firmware_line(message[at..].trim_start_matches("[Hardware Error]:").trim());
        }
        let Some((driver, pci, rest)) = function(message) else { return false };
        let said = rest.trim_start();
        let said = said.strip_prefix("AER:").map_or(said, str::trim_start);
        if let Some(head) = said.strip_prefix("PCIe Bus Error:").or_else(|| said.strip_prefix("CXL Bus Error:")) {
            self.head(clock, driver, pci, head, sink);
        } else if let Some((_, numbers)) = said.split_once("error status/mask=") {
            let (status, mask) = numbers.split_once('/').unwrap_or((numbers, "0"));
            let hex = |text: &str| u32::from_str_radix(text.split_whitespace().next().unwrap_or(text), 16).ok();
            if let (Some(record), Some(status)) = (self.open.get_mut(pci), hex(status)) {
                record.status = Some((status, hex(mask).unwrap_or(0)));
            }
        } else if let Some(words) = said.strip_prefix("TLP Header:") {
            if let Some(record) = self.open.get_mut(pci) {
                let hex = |word: &str| u32::from_str_radix(word.trim_start_matches("0x"), 16).ok();
                record.tlp = words.split_whitespace().map_while(hex).take(4).collect();
            }
        } else if let Some(numbers) = said.strip_prefix("aer_status: 0x") {
            self.firmware_record(clock, driver, pci, numbers, sink);
        } else if let Some((_, agent)) = said.split_once("aer_agent=").filter(|_| said.starts_with("aer_layer=")) {
            if let Some(record) = self.open.get_mut(pci) {
                record.agent = Some(agent.trim().to_owned());
            }
        } else if let Some(of) =
            said.split(" error ").next().filter(|of| severity_said(of) && said.contains("received"))
        {
            self.announced += 1;
            self.several += u64::from(of.starts_with("Multiple"));
        } else if [
            "found no error details",
            "can't find device of ID",
            "device recovery failed",
            "device recovery successful",
            "can't recover",
            "no AER capability",
        ]
        .iter()
        .any(|known| said.contains(known))
        {
            self.bare += u64::from(!said.contains("recover"));
            sink.note_at(clock, format!("{pci}: {said}"));
        } else {
            return bit_line(said) || said.starts_with("aer_uncor_severity") || said.contains("Error of this Agent");
        }
        true
    }

    fn head(&mut self, clock: Clock, driver: &str, pci: &str, head: &str, sink: &mut Sink<'_>) {
        let field = |name: &str| head.split(", ").find_map(|part| part.trim().strip_prefix(name));
        let Some(severity) = field("severity=").and_then(severity) else { return };
        let agent = head.rsplit_once('(').map(|(_, agent)| agent.trim_end().trim_end_matches(')').to_owned());
        let agent = agent.filter(|agent| agent.ends_with("ID"));
        self.open(driver, pci, Record { clock, severity, agent, status: None, tlp: Vec::new() }, sink);
    }

    fn open(&mut self, driver: &str, pci: &str, record: Record, sink: &mut Sink<'_>) {
        sink.machine.introduce(pci, driver);
        if let Some(before) = self.open.insert(pci.to_owned(), record) {
            self.tell(pci, before, sink);
        }
    }

    /// The lines of a record the firmware passed on.
    fn firmware_line(&mut self, said: &str) -> bool {
        if let Some(level) = said.strip_prefix("event severity:") {
            self.firmware = severity(level.trim());
        }
        true
    }

    fn firmware_record(&mut self, clock: Clock, driver: &str, pci: &str, numbers: &str, sink: &mut Sink<'_>) {
        let hex = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
            u32::from_str_radix(&text[..end], 16).ok()
        };
        let mask = numbers.split_once("aer_mask: 0x").and_then(|(_, mask)| hex(mask)).unwrap_or(0);
        let Some(status) = hex(numbers) else { return };
        let Some(severity) = self.firmware else {
            sink.note_at(
                clock,
                format!("{pci}: AER status {status:#010x} of a record whose severity is not in the log"),
            );
            return;
        };
        let record = Record { clock, severity, agent: None, status: Some((status, mask)), tlp: Vec::new() };
        self.open(driver, pci, record, sink);
    }

    fn tell(&mut self, pci: &str, record: Record, sink: &mut Sink<'_>) {
        let Some((status, mask)) = record.status else {
            sink.note_at(record.clock, format!("{pci}: an AER record without its status line"));
            return;
        };
        self.records += 1;
        if status & !mask == 0 {
            sink.note_at(record.clock, format!("{pci}: an AER record with masked errors only ({status:#010x})"));
            return;
        }
        let status = status & !mask;
        let names = names::aer(record.severity, status).into_iter().map(Into::into).collect();
        let (severity, tlp) = (record.severity, record.tlp);
        let agent = record.agent.map(Into::into);
        let body = Aer { pci: pci.to_owned().into(), severity, status, names, tlp, agent };
        sink.say_at(record.clock, Body::Aer(body));
    }

    /// The log has ended.
    pub(super) fn finish(mut self, sink: &mut Sink<'_>) {
        for (pci, record) in std::mem::take(&mut self.open) {
            self.tell(&pci, record, sink);
        }
        if self.announced > 0 {
            let several =
                if self.several > 0 { format!(", {} of them of several errors", self.several) } else { String::new() };
            sink.note(format!(
                "{}{several}, {} of them without a record, and {}: an announcement alone says nothing of what happened and \
                 is not counted",
                counted(self.announced, "AER announcement"),
                self.bare,
                counted(self.records, "record")
            ));
        }
    }
}

fn severity_said(of: &str) -> bool {
    severity(of.strip_prefix("Multiple ").unwrap_or(of)).is_some() || of.contains("ncorrect")
}

/// `[ 6] Bad TLP`: the status says the same.
fn bit_line(said: &str) -> bool {
    let number = said.strip_prefix('[').and_then(|inside| inside.split_once(']')).map(|(number, _)| number.trim());
    number.is_some_and(|number| number.parse::<u32>().is_ok_and(|bit| bit < 32))
}

#[cfg(test)]
mod tests {
    use super::super::read_text;
    use super::*;

    fn records(text: &str) -> Vec<Aer<'static>> {
        let found = read_text("dmesg.txt", text).found;
        found.into_iter().filter_map(|f| if let Body::Aer(aer) = f.body { Some(aer) } else { None }).collect()
    }

    #[test]
    fn the_bits_are_those_of_the_status_without_the_masked_ones() {
        let text = "[   30.1] mlx5_core 0000:06:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)\n\
                    [   30.2] mlx5_core 0000:06:00.0:   device [15b3:1017] error status/mask=00003081/00002000\n\
                    [   30.3] mlx5_core 0000:06:00.0:    [ 0] RxErr                  (First)\n";
        let all = records(text);
        assert_eq!((all.len(), all[0].status, all[0].severity), (1, 0x1081, AerSeverity::Corrected));
        assert_eq!(
            (all[0].names.join(" "), all[0].agent.as_deref()),
            ("RxErr BadDLLP Timeout".to_owned(), Some("Receiver ID"))
        );
    }

    #[test]
    fn records_of_several_functions_may_be_interleaved_and_a_header_is_kept() {
        let text = "[1.1] a 0000:01:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, id=0100(Requester ID)\n\
                    [1.2] b 10003:00:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Completer ID)\n\
                    [1.3] a 0000:01:00.0: AER:   device [15b3:101b] error status/mask=00004020/00000000\n\
                    [1.4] b 10003:00:00.0: AER:   device [8086:2030] error status/mask=00100000/00010000\n\
                    [1.5] a 0000:01:00.0: AER:   TLP Header: 40000001 0000000f fee00000 00000000\n";
        let mut all = records(text);
        all.sort_by(|a, b| a.pci.cmp(&b.pci));
        assert_eq!((all[0].severity, all[0].names.join(" ")), (AerSeverity::Fatal, "SDES CmpltTO".to_owned()));
        assert_eq!(all[0].tlp, [0x4000_0001, 0xf, 0xfee0_0000, 0]);
        assert_eq!((&*all[1].pci, all[1].severity), ("10003:00:00.0", AerSeverity::Nonfatal));
    }

    #[test]
    fn announcements_and_what_follows_an_error_are_no_events() {
        let text = "[1.0] pcieport 0000:00:1c.5: AER: Multiple Corrected error received: id=00e5\n\
                    [1.1] pcieport 0000:00:1c.5: can't find device of ID00e5\n\
                    [1.2] pcieport 0000:00:1d.0: AER: Uncorrected (Non-Fatal) error message received from 0000:00:1d.0\n\
                    [1.3] pcieport 0000:16:00.0: AER: device recovery failed\n";
        let read = read_text("dmesg.txt", text);
        assert!(read.found.iter().all(|found| matches!(found.body, Body::Note(_))), "{read:?}");
        assert!(
            read.notes.iter().any(|note| note.starts_with("2 AER announcements, 1 of them of several")),
            "{read:?}"
        );
    }

    #[test]
    fn what_the_firmware_passed_on_is_a_record_of_its_severity() {
        let text = "[9.0] {1}[Hardware Error]: event severity: corrected\n\
                    [9.1] {1}[Hardware Error]:   device_id: 0000:3b:00.0\n\
                    [9.2] mlx5_core 0000:3b:00.0: AER: aer_status: 0x00001000, aer_mask: 0x00002000\n\
                    [9.3] mlx5_core 0000:3b:00.0: AER: aer_layer=Data Link Layer, aer_agent=Transmitter ID\n";
        let all = records(text);
        assert_eq!(
            (all[0].status, all[0].severity, all[0].agent.as_deref()),
            (0x1000, AerSeverity::Corrected, Some("Transmitter ID"))
        );
    }

    #[test]
    fn an_address_has_a_domain_of_four_digits_or_more() {
        assert_eq!(address("0000:01:00.0:"), Some("0000:01:00.0"));
        assert_eq!(address("10003:00:00.0"), Some("10003:00:00.0"));
        for word in ["01:00.0", "0000:01:00", "12:34:56.7", "0000:1:00.0", "x"] {
            assert_eq!(address(word), None, "{word}");
        }
    }
}
