//! The texts of a PCIe link: `16.0 GT/s PCIe`, `8`.

/// GT/s per lane; `None` for `Unknown`, an empty file and anything else that is no speed.
pub(super) fn speed(text: &str) -> Option<f64> {
    let (number, unit) = text.trim().split_once(' ')?;
    let speed: f64 = number.parse().ok()?;
    (unit.starts_with("GT/s") && speed.is_finite() && speed > 0.0).then_some(speed)
}

/// Lanes. A function that does not know answers 0, 63 (all bits of the register's six) or 255
/// (`PCIE_LNK_WIDTH_UNKNOWN`); no link has more than 32.
pub(super) fn width(text: &str) -> Option<u32> {
    text.trim().parse().ok().filter(|lanes| (1..=32).contains(lanes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_or_width_that_is_not_known_is_unknown() {
        assert_eq!(speed("16.0 GT/s PCIe\n"), Some(16.0));
        assert_eq!(speed("2.5 GT/s"), Some(2.5));
        assert_eq!(speed("8 GT/s"), Some(8.0));
        for text in ["Unknown", "Unknown speed", "", "56", "nan GT/s", "16.0 MT/s"] {
            assert_eq!(speed(text), None, "{text}");
        }
        assert_eq!(width("16\n"), Some(16));
        for text in ["0", "63", "255", "", "x8", "-1"] {
            assert_eq!(width(text), None, "{text}");
        }
    }
}
