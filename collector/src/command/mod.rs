//! The commands without a screen: each builds a report from a [`World`](crate::inventory::World) and prints it as aligned
//! text or as JSON (docs/json.md).

pub mod check;
pub mod doctor;
pub mod failovers;
pub mod findings;
pub mod notes;
pub mod ports;
mod probe_lines;
pub mod qps;
pub mod table;
pub mod whatif;

pub use table::Table;

#[cfg(test)]
mod tests {
    use super::doctor::DoctorReport;
    use super::{check, findings, ports, qps};
    use crate::engine::Engine;
    use crate::observation::Seeing;
    use crate::observation::recording::{Header, Reader};
    use crate::rule::Settings;
    use crate::source::{Availability, Missing, ProbeReport};

    /// Clears the screen, sets the title, moves up a line, ends the line, and two bytes that are controls by themselves.
    const EVIL: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\r\n\u{7f}\u{9b}31m";

    #[test]
    fn no_name_comm_reason_or_note_drives_the_terminal() {
        let evil = serde_json::to_string(EVIL).unwrap();
        let evil = &evil[1..evil.len() - 1];
        let log = [
            r#"{"type":"header","format":"rdmascope-recording","version":1}"#,
            r#"{"t":1,"type":"device","device":"d@","driver":"mlx5_core","pci":"0000:01:00.0","model":"@"}"#,
            r#"{"t":1,"type":"port","device":"d@","port":1,"link_layer":"Ethernet","state":"ACTIVE","phys_state":"@","netdevs":["@"],"notes":["@"]}"#,
            r#"{"t":1,"type":"source","source":"nldev@","state":"partial","reason":"@"}"#,
            r#"{"t":1,"type":"qp","device":"d@","port":1,"qpn":7,"event":"seen","qp_type":"R@","to":"RTS","pid":7,"comm":"@"}"#,
            r#"{"t":2000000000,"type":"qp","device":"d@","port":1,"qpn":7,"event":"seen","to":"ERR","pid":7,"comm":"@"}"#,
            r#"{"t":2000000000,"type":"async","device":"d@","port":1,"event":"PORT_ERR"}"#,
            r#"{"t":2000000000,"type":"process","pid":8,"comm":"@","unseen":[{"way":"doca","library":"@"},{"way":"unknown_provider","reason":"@"}]}"#,
            r#"{"t":20000000000,"type":"source","source":"sysfs","state":"ok"}"#,
        ];
        let log = log.join("\n").replace('@', evil);
        let mut engine = Engine::new(Header::new(), Settings::default());
        let mut reader = Reader::new(log.as_bytes()).unwrap();
        while reader.next(|observation| engine.take(observation)).unwrap().is_some() {}
        assert_eq!(reader.notices().lines(), Vec::<String>::new());
        engine.finish();
        let world = engine.world();
        assert!(world.findings.iter().any(|finding| finding.summary.contains(EVIL)), "the comm is in a sentence");
        let sees = Availability {
            name: "nldev",
            state: Seeing::Partial,
            sees: EVIL.to_owned(),
            missing: vec![Missing { what: EVIL.to_owned(), reason: EVIL.to_owned(), fix: Some(EVIL.to_owned()) }],
        };
        let probe = ProbeReport {
            name: EVIL.into(),
            wanted: true,
            attached: false,
            at: None,
            reason: Some(EVIL.into()),
            fix: None,
        };
        let texts = [
            ports::report(world).text(),
            qps::report(world).text(),
            findings::text(world, &findings::report(world).findings),
            check::report(&engine.view()).text(world),
            DoctorReport::new(vec![sees.clone()], vec![probe.clone()], world).text(false),
            DoctorReport::new(vec![sees], vec![probe], world).text(true),
        ];
        for text in texts {
            assert!(text.contains("?[2J?]0;x???"), "{text:?}");
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with('?')), "no name begins a line: {text:?}");
        }
    }
}
