//! An application that drains on a warning, as docs/failover.md advises: reliable traffic over one pair of devices; when
//! rdmascope predicts that the pair's port will fail it stops posting, waits for what is posted, moves its QPs to SQD
//! (where the device can) and ERR, and goes on over a second pair. With `--no-subscribe` it finds out the hard way.
//!
//! ```sh
//! cargo build -p rdmascope-verbs --example drain_on_warning
//! drain_on_warning mlx5_0 mlx5_1 --to mlx5_2 mlx5_3
//! ```
//!
//! Both ends are in this process. What happens is printed as lines of JSON, each with `t`, `CLOCK_MONOTONIC` ns. Exit code
//! 0: operations completed on the second pair, or there was no need of it.

mod path;
mod warnings;

use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use collector::clock::monotonic_ns;
use serde_json::{Value, json};

use self::path::{Completions, Path};
use self::warnings::{Heard, Warnings};

const USAGE: &str = "usage: drain_on_warning DEVICE PEER --to DEVICE PEER [--socket PATH] [--no-subscribe] \
    [--seconds N] [--timeout EXPONENT] [--retry N] [--depth N] [--pause-us N]";
/// Bytes of one operation.
const SIZE: u32 = 4096;
/// A drain does not wait longer for what is posted.
const PATIENCE: Duration = Duration::from_secs(2);

struct Asked {
    first: (String, String),
    second: (String, String),
    socket: String,
    subscribe: bool,
    seconds: u64,
    timeout: u8,
    retry: u8,
    depth: NonZeroU32,
    pause: Duration,
}

impl Asked {
    fn parse(arguments: impl Iterator<Item = String>) -> Option<Self> {
        let (mut devices, mut second) = (Vec::new(), None);
        let mut asked = Self {
            first: Default::default(),
            second: Default::default(),
            socket: "/run/rdmascope/events.sock".to_owned(),
            subscribe: true,
            seconds: 10,
            timeout: 14,
            retry: 3,
            depth: const { NonZeroU32::new(8).expect("8 is not 0") },
            pause: Duration::ZERO,
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next();
            match argument.as_str() {
                "--to" => second = Some((value()?, value()?)),
                "--socket" => asked.socket = value()?,
                "--no-subscribe" => asked.subscribe = false,
                "--seconds" => asked.seconds = value()?.parse().ok()?,
                "--timeout" => asked.timeout = value()?.parse().ok()?,
                "--retry" => asked.retry = value()?.parse().ok()?,
                "--depth" => asked.depth = value()?.parse().ok()?,
                "--pause-us" => asked.pause = Duration::from_micros(value()?.parse().ok()?),
                _ if argument.starts_with('-') => return None,
                _ => devices.push(argument),
            }
        }
        let [device, peer] = <[String; 2]>::try_from(devices).ok()?;
        (asked.first, asked.second) = ((device, peer), second?);
        Some(asked)
    }
}

fn say(what: &str, mut fields: Value) {
    fields["t"] = monotonic_ns().into();
    fields["what"] = what.into();
    println!("{fields}");
}

fn main() -> ExitCode {
    let Some(asked) = Asked::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say("failed", json!({ "error": error }));
            ExitCode::FAILURE
        }
    }
}

fn run(asked: &Asked) -> Result<(), String> {
    // Everything that takes long is done before it is needed: only the QPs of the second pair are made later.
    let depth = asked.depth.get();
    let mut first = Path::open(&asked.first.0, &asked.first.1, SIZE, depth)?;
    let mut second = Path::open(&asked.second.0, &asked.second.1, SIZE, depth)?;
    first.connect(asked.timeout, asked.retry, depth)?;
    let devices = [asked.first.0.clone(), asked.first.1.clone()];
    let mut warnings = if asked.subscribe { Some(Warnings::subscribe(&asked.socket, devices)?) } else { None };
    say(
        "connected",
        json!({"pid": std::process::id(), "device": asked.first.0, "qpn": first.qpn(), "peer": asked.first.1}),
    );
    let end = Instant::now() + Duration::from_secs(asked.seconds);

    let why = traffic(&mut first, asked, end, warnings.as_mut());
    match &why {
        Why::TimeIsOver => {
            say("end", json!({"device": asked.first.0, "posted": first.posted, "completed": first.completed}));
            return Ok(());
        }
        Why::Warned(finding) => drain(&mut first, finding),
        Why::Broken { status, alive_t } => {
            let qpn = first.qpn();
            say("error", json!({"device": asked.first.0, "qpn": qpn, "status": status, "alive_t": alive_t}));
        }
    }
    second.connect(asked.timeout, asked.retry, depth)?;
    say("reconnected", json!({"device": asked.second.0, "qpn": second.qpn(), "peer": asked.second.1}));
    second.post()?;
    let deadline = Instant::now() + PATIENCE;
    while second.completed == 0 {
        if let Completions { failed: Some(status), .. } = second.poll() {
            return Err(format!("the second pair fails too: {status}"));
        }
        if Instant::now() > deadline {
            return Err("nothing completes on the second pair".to_owned());
        }
    }
    say("resumed", json!({"device": asked.second.0, "qpn": second.qpn()}));
    let why = traffic(&mut second, asked, end, None);
    let account = |path: &Path| json!({"posted": path.posted, "completed": path.completed, "failed": path.failed});
    say("end", json!({"first": account(&first), "second": account(&second)}));
    // The old QPs are kept until here, so that whoever looks can see how they ended.
    match why {
        Why::Broken { status, .. } => Err(format!("the second pair fails too: {status}")),
        Why::TimeIsOver | Why::Warned(_) => Ok(()),
    }
}

/// Why traffic stopped.
enum Why {
    TimeIsOver,
    Warned(Value),
    /// By what, and when the last look began that found no failure, `CLOCK_MONOTONIC` ns: the QP died after that.
    Broken {
        status: String,
        alive_t: u64,
    },
}

fn traffic(path: &mut Path, asked: &Asked, end: Instant, mut warnings: Option<&mut Warnings>) -> Why {
    let mut alive_t = monotonic_ns();
    while Instant::now() < end {
        match warnings.as_mut().and_then(|warnings| warnings.next()) {
            Some(Heard::Warning(finding)) => return Why::Warned(finding),
            Some(Heard::End) => say("unsubscribed", json!({"why": "collect is gone"})),
            None => {}
        }
        if path.outstanding() < u64::from(asked.depth.get()) {
            if let Err(status) = path.post() {
                return Why::Broken { status, alive_t };
            }
            std::thread::sleep(asked.pause);
        }
        let look_t = monotonic_ns();
        if let Some(status) = path.poll().failed {
            return Why::Broken { status, alive_t };
        }
        alive_t = look_t;
    }
    Why::TimeIsOver
}

/// Nothing more is posted; what is posted completes; then the QP is moved to SQD and ERR, and flushes are reaped.
fn drain(path: &mut Path, finding: &Value) {
    say("warning", json!({"rule": finding["rule"], "subject": finding["subject"], "finding_t": finding["t"]}));
    let deadline = Instant::now() + PATIENCE;
    while path.outstanding() > 0 && Instant::now() < deadline {
        if let Some(status) = path.poll().failed {
            say("error", json!({"status": status}));
            break;
        }
    }
    say("drained", json!({"outstanding": path.outstanding()}));
    // A device that has no SQD says EINVAL (mlx5): then ERR it is, with nothing outstanding.
    let sqd = path.move_to_sqd().err();
    say("sqd", json!({"qpn": path.qpn(), "errno": sqd}));
    let err = path.move_to_err().err();
    say("err", json!({"qpn": path.qpn(), "errno": err}));
    let deadline = Instant::now() + PATIENCE;
    while path.outstanding() > 0 && Instant::now() < deadline {
        path.poll();
    }
    say("reaped", json!({"flushed": path.failed}));
}
