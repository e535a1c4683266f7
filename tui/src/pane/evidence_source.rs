//! What stands behind the names that rules give their evidence in words, so that a chart beside it shows the same.
//!
//! A name is known as a whole or not at all: a longer one that begins alike is something else ("CNPs sent" are this port's,
//! "CNPs sent by the peer" are not).

use collector::inventory::{PostWindow, SizeClass};
use collector::observation::AerSeverity;
use collector::timeline::counter_table::Meaning;

use super::history::Write;

/// What stands behind a name in words.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    /// Rates of the port, those that are counted together.
    Rate(&'static [Meaning], Write),
    /// Of the ports the evidence names one by one, together.
    Sum(Meaning),
    /// The ones together per the other.
    Ratio(&'static [Meaning], Meaning),
    /// What the port carries in the direction that carries more.
    Busier,
    /// Microseconds a second, as a share of time.
    Paused(Meaning),
    /// What processes posted.
    Posted(fn(&PostWindow) -> Option<f64>, Write),
    /// A quantile of the latencies of a class.
    Latency(SizeClass, f64),
    /// The loopback probe's median.
    Loopback,
    /// QPs that failed unasked.
    Failures,
    /// Errors of the way to the host.
    Aer(Option<AerSeverity>),
}

/// A name of evidence, and the name of its chart where that is not the same: it shows what the evidence was made of.
type Known = (&'static str, Option<&'static str>, Of);

const CORRECTED: Option<&str> = Some("corrected errors");
const PCIE_ERRORS: Option<&str> = Some("PCIe errors");
const THROUGHPUT: Option<&str> = Some("throughput");
const FEC_BITS: Option<&str> = Some("bits that FEC corrected");
const CORRECTED_BITS: Of = Of::Rate(&[Meaning::PreFecCorrectedBits], Write::PerSecond);

const KNOWN: &[Known] = &[
    ("marked / received packets", None, Of::Ratio(&[Meaning::EcnMarkedRx], Meaning::RxPackets)),
    ("packets received with CE", None, Of::Rate(&[Meaning::EcnMarkedRx], Write::PerSecond)),
    ("packets marked by the NIC", None, Of::Rate(&[Meaning::HostMarked], Write::PerSecond)),
    ("received share of the rate", Some("received"), Of::Rate(&[Meaning::RxBytes], Write::Bits)),
    ("sent share of the rate", Some("sent"), Of::Rate(&[Meaning::TxBytes], Write::Bits)),
    ("throughput received", None, Of::Rate(&[Meaning::RxBytes], Write::Bits)),
    ("throughput sent", None, Of::Rate(&[Meaning::TxBytes], Write::Bits)),
    ("throughput, mean", THROUGHPUT, Of::Busier),
    ("throughput, lowest 5 % (p5)", THROUGHPUT, Of::Busier),
    ("sum sent", None, Of::Sum(Meaning::TxBytes)),
    ("sum received", None, Of::Sum(Meaning::RxBytes)),
    ("pause received", None, Of::Paused(Meaning::RxPauseDuration)),
    ("pause sent", None, Of::Paused(Meaning::TxPauseDuration)),
    ("CNPs sent", None, Of::Rate(&[Meaning::CnpSent], Write::PerSecond)),
    ("CNPs handled", None, Of::Rate(&[Meaning::CnpHandled], Write::PerSecond)),
    ("CNPs handled per second", None, Of::Rate(&[Meaning::CnpHandled], Write::PerSecond)),
    ("CNPs ignored", None, Of::Rate(&[Meaning::CnpIgnored], Write::PerSecond)),
    ("CNPs handled and ignored here", None, Of::Rate(&[Meaning::CnpHandled, Meaning::CnpIgnored], Write::PerSecond)),
    ("CNPs received / packets sent", None, Of::Ratio(&[Meaning::CnpHandled, Meaning::CnpIgnored], Meaning::TxPackets)),
    (
        "packets out of sequence, discarded, NAKed",
        None,
        Of::Rate(&[Meaning::OutOfSequence, Meaning::TxDiscards, Meaning::SequenceNak], Write::PerSecond),
    ),
    ("pre-FEC bit error ratio", FEC_BITS, CORRECTED_BITS),
    ("pre-FEC bit error ratio, baseline", FEC_BITS, CORRECTED_BITS),
    ("errors after FEC", None, Of::Rate(&[Meaning::PostFecErrors], Write::PerSecond)),
    ("CRC errors", None, Of::Rate(&[Meaning::CrcErrors], Write::PerSecond)),
    ("symbol errors", None, Of::Rate(&[Meaning::SymbolError], Write::PerSecond)),
    ("QPs posted to in one window", None, Of::Posted(|w| Some(f64::from(w.qps)), Write::Count)),
    ("changes of the QP, of all posts", None, Of::Posted(|w| share(w.switches.0, w.switches.1), Write::Share)),
    ("work requests of at most 4 KB", None, Of::Posted(|w| share(w.small, w.sized), Write::Share)),
    ("work requests", None, Of::Posted(|w| share(w.wrs, w.ns).map(|per_ns| per_ns * 1e9), Write::PerSecond)),
    ("latency of small operations, mean", None, Of::Posted(PostWindow::mean_small_latency_ns, Write::Time)),
    ("latency, mean", None, Of::Posted(PostWindow::mean_latency_ns, Write::Time)),
    ("median latency of small operations", None, Of::Latency(SizeClass::Small, 0.5)),
    ("median latency of large operations", None, Of::Latency(SizeClass::Large, 0.5)),
    ("loopback latency, median", None, Of::Loopback),
    ("loopback latency, baseline", Some("loopback latency"), Of::Loopback),
    ("QPs in error after the port left ACTIVE", None, Of::Failures),
    ("QPs in ERR that nobody was seen asking for", None, Of::Failures),
    ("QPs that went to the error state", None, Of::Failures),
    ("Rollover + Timeout", CORRECTED, Of::Aer(Some(AerSeverity::Corrected))),
    ("corrected errors", None, Of::Aer(Some(AerSeverity::Corrected))),
    ("corrected errors, quietest minute", CORRECTED, Of::Aer(Some(AerSeverity::Corrected))),
    ("uncorrected errors, non-fatal", None, Of::Aer(Some(AerSeverity::Nonfatal))),
    ("uncorrected errors, fatal", None, Of::Aer(Some(AerSeverity::Fatal))),
    ("pcie.aer_storm before", PCIE_ERRORS, Of::Aer(None)),
    ("pcie.aer_fatal before", PCIE_ERRORS, Of::Aer(None)),
];

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What stands behind a name, and the name of its chart; `None` where nothing has a history: a state, a limit, a total.
pub(super) fn known(name: &str) -> Option<(&str, Of)> {
    // What is known to be a part of the truth is charted as what it is.
    let whole = name.strip_suffix(", at least").unwrap_or(name);
    let (_, called, of) = KNOWN.iter().find(|(known, ..)| *known == whole)?;
    Some((called.unwrap_or(name), *of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_name_that_begins_like_a_known_one_is_another_thing() {
        for name in ["CNPs sent by the peer", "packets received with CE, ever", "pre-FEC bit error ratio, limit of KP4"]
        {
            assert!(known(name).is_none(), "{name}");
        }
        let of = |name| known(name).map(|(called, of)| (called, format!("{of:?}")));
        let what = |called, of: Of| Some((called, format!("{of:?}")));
        assert_eq!(
            of("packets marked by the NIC"),
            what("packets marked by the NIC", Of::Rate(&[Meaning::HostMarked], Write::PerSecond))
        );
        assert_eq!(
            of("received share of the rate"),
            what("received", Of::Rate(&[Meaning::RxBytes], Write::Bits)),
            "a share is not written in bits under its own name"
        );
        let name = "QPs that went to the error state, at least";
        assert_eq!(of(name), what(name, Of::Failures));
    }

    /// What rules put together: not to be found as it stands.
    const PUT_TOGETHER: [&str; 8] = [
        "throughput received",
        "throughput sent",
        "sum sent",
        "sum received",
        "median latency of small operations",
        "median latency of large operations",
        "pcie.aer_storm before",
        "pcie.aer_fatal before",
    ];

    #[test]
    fn every_name_is_one_that_a_rule_gives() {
        fn sources(folder: &std::path::Path, text: &mut String) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    sources(&path, text);
                } else {
                    text.push_str(&std::fs::read_to_string(&path).unwrap());
                }
            }
        }
        let mut rules = String::new();
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../collector/src/rule"), &mut rules);
        let stale = |name: &&str| !PUT_TOGETHER.contains(name) && !rules.contains(&format!("\"{name}\""));
        let stale: Vec<&str> = KNOWN.iter().map(|(name, ..)| *name).filter(stale).collect();
        assert_eq!(stale, [""; 0]);
    }

    #[test]
    fn no_name_stands_there_twice() {
        let mut names: Vec<&str> = KNOWN.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
