//! The texts of a port's `state` and `phys_state`: a number and a name, `4: ACTIVE`.

use crate::observation::{PortState, Text};

/// Names of the physical states by number, from 1 (IBA PortInfo.PortPhysicalState; `phys_state_to_str` in
/// drivers/infiniband/core/sysfs.c).
const PHYS_STATES: [&str; 7] =
    ["Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"];

/// How a note on a state that is not known, or contradicts itself, begins.
pub(crate) const STATE_READS: &str = "state reads ";

/// The number and the name of such a text; either can be absent.
fn split(text: &str) -> (Option<u32>, &str) {
    let text = text.trim();
    match text.split_once(':') {
        Some((number, name)) => (number.trim().parse().ok(), name.trim()),
        None => (text.parse().ok(), if text.bytes().all(|byte| byte.is_ascii_digit()) { "" } else { text }),
    }
}

/// The logical state. The name decides where there is one; the number where there is none that is known.
pub(super) fn port_state(text: &str) -> (PortState, Option<String>) {
    let (number, name) = split(text);
    let by_number = match number {
        Some(1) => PortState::Down,
        Some(2) => PortState::Init,
        Some(3) => PortState::Armed,
        Some(4 | 5) => PortState::Active,
        _ => PortState::Unknown,
    };
    let by_name = match name {
        "DOWN" => PortState::Down,
        "INIT" => PortState::Init,
        "ARMED" => PortState::Armed,
        "ACTIVE" | "ACTIVE_DEFER" => PortState::Active,
        _ => return (by_number, (by_number == PortState::Unknown).then(|| format!("{STATE_READS}{text:?}"))),
    };
    let agree = number.is_none() || by_number == by_name;
    (by_name, (!agree).then(|| format!("{STATE_READS}{text:?}: number and name disagree")))
}

/// The physical state's name, or its number where the name beside it is not the name of that number.
pub(super) fn phys_state(text: &str) -> (Option<Text<'static>>, Option<String>) {
    let (number, name) = split(text);
    let of_number = number.and_then(|n| PHYS_STATES.get((n as usize).checked_sub(1)?)).copied();
    match (number, of_number) {
        (_, Some(known)) if name.is_empty() || name == known => (Some(known.into()), None),
        (Some(number), Some(known)) => {
            (Some(number.to_string().into()), Some(format!("phys_state reads {text:?}, but {number} is {known}")))
        }
        (Some(number), None) => (Some(number.to_string().into()), None),
        (None, _) => match PHYS_STATES.iter().find(|known| **known == name) {
            Some(known) => (Some((*known).into()), None),
            None if name.is_empty() => (None, Some("phys_state: empty file".to_owned())),
            None => (None, Some(format!("phys_state reads {text:?}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_known_by_its_name_and_an_odd_one_is_unknown_with_a_note() {
        for (text, state, noted) in [
            ("4: ACTIVE\n", PortState::Active, false),
            ("1: DOWN", PortState::Down, false),
            ("2: INIT", PortState::Init, false),
            ("3: ARMED", PortState::Armed, false),
            ("5: ACTIVE_DEFER", PortState::Active, false),
            ("4", PortState::Active, false),
            ("ACTIVE", PortState::Active, false),
            ("1: ACTIVE", PortState::Active, true),
            ("", PortState::Unknown, true),
            ("banana", PortState::Unknown, true),
        ] {
            let (read, note) = port_state(text);
            assert_eq!((read, note.is_some()), (state, noted), "{text:?}");
        }
    }

    #[test]
    fn a_physical_state_whose_name_is_not_its_number_keeps_the_number_and_a_note() {
        assert_eq!(phys_state("5: LinkUp\n"), (Some("LinkUp".into()), None));
        assert_eq!(phys_state("2"), (Some("Polling".into()), None));
        assert_eq!(phys_state("0: <unknown>"), (Some("0".into()), None));
        let (state, note) = phys_state("4: ACTIVE");
        assert_eq!(state.as_deref(), Some("4"));
        assert!(note.unwrap().contains("PortConfigurationTraining"));
        assert!(phys_state("").0.is_none() && phys_state("junk").1.is_some());
    }
}
