//! What `rdmascope-verbs loopback` prints: one JSON object a line.
//!
//! A measurement is the line a recording has for it (docs/recording.md); the others are between the two programs, which
//! are of one version ([`Line::Hello`]).

use serde::{Deserialize, Serialize};

use crate::observation::Nanos;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Hello {
        /// Version of the program.
        version: String,
        /// Operations of one measurement.
        operations: u32,
        /// Bytes of one operation.
        bytes: u32,
        /// Between two measurements of a port, ns.
        period_ns: Nanos,
    },
    /// A measurement.
    Loopback {
        /// When it was complete, `CLOCK_MONOTONIC` ns.
        t: Nanos,
        /// Device name.
        device: String,
        /// Port number, from 1.
        port: u32,
        /// Median, ns.
        p50_ns: u64,
        /// 99th percentile, ns.
        p99_ns: u64,
        /// Maximum, ns.
        max_ns: u64,
        /// Operations measured.
        n: u64,
    },
    /// A port, or where none is named the whole device, is measured or not from here on. Said when it changes.
    Port {
        /// Device name.
        device: String,
        /// Port number, from 1.
        port: Option<u32>,
        /// Whether it is measured.
        state: Measured,
    },
    /// Said once a second, and the first time when every port has been tried once.
    Alive {
        /// `CLOCK_MONOTONIC` ns.
        t: Nanos,
        /// CPU time of the process since it started, ns.
        cpu_ns: u64,
    },
}

/// Whether a port is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// It is.
    Yes,
    /// Its state is not ACTIVE: there is nothing to measure.
    Inactive,
    /// It cannot be, for this reason; it is tried again.
    Failed(String),
    /// The device is gone.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::recording::write_observation;
    use crate::observation::{Body, Loopback, Observation};

    #[test]
    fn a_measurement_is_the_line_of_a_recording() {
        let loopback = Loopback { device: "mlx5_0".into(), port: 1, p50_ns: 1900, p99_ns: 2500, max_ns: 9000, n: 32 };
        let mut recorded = Vec::new();
        write_observation(&Observation { t: 7, body: Body::Loopback(loopback) }, &mut recorded).expect("a line");
        let line: Line = serde_json::from_slice(&recorded).expect("it is a line");
        let Line::Loopback { t, device, port, p50_ns, p99_ns, max_ns, n } = line else { panic!("{line:?}") };
        assert_eq!((t, device.as_str(), port, p50_ns, p99_ns, max_ns, n), (7, "mlx5_0", 1, 1900, 2500, 9000, 32));
    }

    #[test]
    fn a_failure_carries_its_reason_there_and_back() {
        let line = Line::Port { device: "a".into(), port: None, state: Measured::Failed("no GID".into()) };
        let text = serde_json::to_string(&line).expect("a line");
        assert_eq!(text, r#"{"type":"port","device":"a","port":null,"state":{"failed":"no GID"}}"#);
        assert_eq!(serde_json::from_str::<Line>(&text).expect("it is a line"), line);
    }
}
