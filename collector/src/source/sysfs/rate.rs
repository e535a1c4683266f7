//! The text of a port's `rate`: a number of Gb/s, and in newer kernels the lanes and the speed's letters.
//!
//! The number is authoritative. The kernel writes `<number>[.5] Gb/sec (<lanes>X[ <speed>])` (drivers/infiniband/core/sysfs.c,
//! `rate_show`); old kernels write no letters for SDR, and other forms turn up in the wild.

/// What a rate's text says. Absent is unknown, never a default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rate {
    /// Gb/s, 10^9 bit/s.
    pub gbps: Option<f64>,
    /// Lanes, 1 to 12.
    pub lanes: Option<u32>,
    /// The speed's letters, for example `HDR`.
    pub speed: Option<&'static str>,
    /// Number, lanes and letters do not belong together.
    pub conflict: bool,
}

/// Signalling rate of one lane as the kernel counts it: the number it writes is this times the lanes, rounded down to
/// halves (`rate_show`).
const SPEEDS: [(&str, f64); 9] = [
    ("SDR", 2.5),
    ("DDR", 5.0),
    ("QDR", 10.0),
    ("FDR10", 10.0),
    ("FDR", 14.0),
    ("EDR", 25.0),
    ("HDR", 50.0),
    ("NDR", 100.0),
    ("XDR", 200.0),
];

/// Reads the text of a `rate` file.
#[must_use]
pub fn parse(text: &str) -> Rate {
    let text = text.trim();
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit = unit.trim_start();
    let is_gbps = unit.get(..6).is_some_and(|unit| unit.eq_ignore_ascii_case("gb/sec"));
    let Some(gbps) = number.parse::<f64>().ok().filter(|gbps| is_gbps && gbps.is_finite()) else {
        return Rate::default();
    };
    let mut rate = Rate { gbps: Some(gbps), ..Rate::default() };
    let Some(inside) = unit.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(inside, _)| inside) else {
        return rate;
    };
    let mut words = inside.split_whitespace();
    rate.lanes = words
        .next()
        .and_then(|word| word.strip_suffix(['X', 'x']))
        .and_then(|lanes| lanes.parse().ok())
        .filter(|lanes| (1..=12).contains(lanes));
    let letters = words.next();
    let Some(lanes) = rate.lanes else { return rate };
    let fits = |lane: f64| (lane * f64::from(lanes) - gbps).abs() < 1.0;
    match letters {
        Some(letters) => {
            let known = SPEEDS.iter().find(|(name, _)| *name == letters);
            rate.speed = known.map(|(name, _)| *name);
            rate.conflict = known.is_some_and(|(_, lane)| !fits(*lane));
        }
        // Old kernels leave the letters out for SDR alone; with another number they are not known.
        None => rate.speed = fits(2.5).then_some("SDR"),
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn every_form_of_the_text_gives_its_number_and_nothing_invented() {
        let table = [
            ("100 Gb/sec (4X EDR)", Some(100.0), Some(4), Some("EDR")),
            ("40 Gb/sec (4X QDR)", Some(40.0), Some(4), Some("QDR")),
            ("25 Gb/sec (1X EDR)", Some(25.0), Some(1), Some("EDR")),
            ("10 Gb/sec (4X)", Some(10.0), Some(4), Some("SDR")),
            ("10 Gb/sec (4X SDR)", Some(10.0), Some(4), Some("SDR")),
            ("2.5 Gb/sec (1X SDR)", Some(2.5), Some(1), Some("SDR")),
            ("40 Gb/sec (4X FDR10)", Some(40.0), Some(4), Some("FDR10")),
            ("56 Gb/sec (4X FDR)", Some(56.0), Some(4), Some("FDR")),
            ("14 Gb/sec (1X FDR)", Some(14.0), Some(1), Some("FDR")),
            ("100 Gb/sec (2X HDR)", Some(100.0), Some(2), Some("HDR")),
            ("200 Gb/sec (4X HDR)", Some(200.0), Some(4), Some("HDR")),
            ("200 Gb/sec (2X NDR)", Some(200.0), Some(2), Some("NDR")),
            ("400 Gb/sec (4X NDR)", Some(400.0), Some(4), Some("NDR")),
            ("800 Gb/sec (4X XDR)", Some(800.0), Some(4), Some("XDR")),
            ("500 Gb/sec (4X HDR)", Some(500.0), Some(4), Some("HDR")),
            ("0 GB/sec", Some(0.0), None, None),
            ("800Gb/sec", Some(800.0), None, None),
            ("200 Gb/sec", Some(200.0), None, None),
            ("50 Gb/sec (4X)", Some(50.0), Some(4), None),
            ("", None, None, None),
            ("N/A", None, None, None),
            ("100 parsecs", None, None, None),
        ];
        for (text, gbps, lanes, speed) in table {
            let rate = parse(text);
            assert_eq!((rate.gbps, rate.lanes, rate.speed), (gbps, lanes, speed), "{text}");
            assert_eq!(rate.conflict, text.starts_with("500"), "{text}");
        }
    }
}
