//! Runs the eBPF probes alone and prints what they say, as lines of a recording: for work on the probes themselves.
//!
//! `probes [--seconds N] [--max-qps N] [--probe-budget off|SHARE]`, as root. On a last line of its own, on standard
//! error, it says what is attached and what is missing.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use collector::observation::recording::write_observation;
use collector::source::Source;
use collector::source::probes::{Budget, CONFINED_ARG, ProbeOptions, Probes, confined_main};
use collector::source::verbs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (mut seconds, mut options) = (10, ProbeOptions::default());
    while let Some(arg) = args.next() {
        if arg == verbs::CHILD_ARG {
            return verbs::child_main();
        }
        if arg == CONFINED_ARG {
            return confined_main();
        }
        let value = args.next().unwrap_or_default();
        let parsed = match arg.as_str() {
            "--seconds" => value.parse().map(|n| seconds = n).is_ok(),
            "--max-qps" => value.parse().map(|n| options.max_qps = n).is_ok(),
            "--probe-budget" if value == "off" => {
                options.budget = Budget::Off;
                true
            }
            "--probe-budget" => value.parse().map(|share| options.budget = Budget::Share(share)).is_ok(),
            _ => false,
        };
        if !parsed {
            eprintln!("cannot use {arg} {value}");
            return ExitCode::from(2);
        }
    }
    match run(Duration::from_secs(seconds), &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(time: Duration, options: &ProbeOptions) -> io::Result<()> {
    let mut probes = Probes::start(options);
    for report in probes.probes() {
        eprintln!("{report:?}");
    }
    eprintln!("started");
    let end = Instant::now() + time;
    let (mut line, mut out) = (Vec::new(), io::stdout().lock());
    let (mut polls, mut spent) = (0_u32, Duration::ZERO);
    while Instant::now() < end {
        let begin = Instant::now();
        let mut failed = None;
        probes.poll(now(), &mut |observation| {
            line.clear();
            let written = write_observation(observation, &mut line).and_then(|()| out.write_all(line.trim_ascii_end()));
            if let Err(error) = written.and_then(|()| out.write_all(b"\n")) {
                failed = Some(error);
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        out.flush()?;
        polls += 1;
        spent += begin.elapsed();
        wait(&probes)?;
    }
    eprintln!("{polls} polls took {spent:?}");
    eprintln!("{:?}", probes.availability());
    Ok(())
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn wait(probes: &Probes) -> io::Result<()> {
    let timeout = Timespec::try_from(Duration::from_nanos(probes.due().saturating_sub(now()))).ok();
    let mut fds: Vec<PollFd<'_>> =
        probes.wake_fds().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    poll(&mut fds, timeout.as_ref())?;
    Ok(())
}
