//! The flags of `whatif`, and the question they ask.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use collector::command::whatif::{Question, Setting, WhatIfReport, port_parameters};
use collector::dcqcn::markings;
use collector::replay::judge;
use collector::rule::Settings;
use collector::sim::packet::{Control, Params, Pfc, Red, Workload};

/// `whatif`.
///
/// Runs a model of one switch queue with two settings and says what differs, which setting does it, and what it costs.
/// Reads nothing of this node.
#[derive(Debug, Clone, Args)]
pub(crate) struct WhatIf {
    /// Rate of the bottleneck and of each sender, Gb/s [default: the port's with --from, else 400]
    #[arg(long, value_name = "GBPS", help_heading = "Network")]
    rate: Option<f64>,
    /// Round trip without queueing
    #[arg(long, default_value = "8us", value_name = "TIME", value_parser = round_trip, help_heading = "Network")]
    rtt: Duration,
    /// Bytes of a packet on the wire: 4096 of payload and their headers
    #[arg(long, default_value_t = 4178, value_name = "BYTES", help_heading = "Network")]
    packet: u32,
    /// Senders that share the bottleneck
    #[arg(long, default_value_t = 16, value_name = "N", help_heading = "Workload")]
    senders: u32,
    /// What the senders send
    #[arg(long, value_enum, default_value_t = Traffic::Bursts, value_name = "KIND", help_heading = "Workload")]
    workload: Traffic,
    /// Size of a burst; of a message where there are no bursts (K, M allowed)
    #[arg(long, default_value = "256K", value_name = "BYTES", value_parser = size, help_heading = "Workload")]
    burst: u64,
    /// Load that is offered, all senders together; incast has none
    #[arg(long, default_value = "80%", value_name = "SHARE", value_parser = share, help_heading = "Workload")]
    load: f64,
    /// Queue below which nothing is marked (K, M allowed)
    #[arg(long, default_value = "5K", value_name = "BYTES", value_parser = size, help_heading = "First setting")]
    kmin: u64,
    /// Queue above which everything is marked
    #[arg(long, default_value = "200K", value_name = "BYTES", value_parser = size, help_heading = "First setting")]
    kmax: u64,
    /// Share marked just below Kmax
    #[arg(long, default_value = "1%", value_name = "SHARE", value_parser = share, help_heading = "First setting")]
    pmax: f64,
    /// Parameters of DCQCN: the paper's, or the defaults of NVIDIA's NICs, scaled to the rate
    #[arg(long, value_enum, default_value_t = Cc::Nic, value_name = "SET", help_heading = "First setting")]
    cc: Cc,
    /// The parameters of this port instead, as it was recorded
    #[arg(
        long,
        value_name = "DEVICE/PORT",
        requires = "recording",
        conflicts_with = "cc",
        help_heading = "First setting"
    )]
    from: Option<String>,
    /// The recording with the port
    #[arg(long, value_name = "FILE", requires = "from", help_heading = "First setting")]
    recording: Option<PathBuf>,
    /// Queue above which the switch pauses its senders (PFC) [default: off]
    #[arg(long, value_name = "BYTES|off", value_parser = threshold, help_heading = "First setting")]
    xoff: Option<Threshold>,
    /// Queue at which they may go on [default: nine tenths of XOFF]
    #[arg(long, value_name = "BYTES", value_parser = size, help_heading = "First setting")]
    xon: Option<u64>,
    /// Time until a pause is heard
    #[arg(long, default_value = "1us", value_name = "TIME", value_parser = round_trip, help_heading = "Network")]
    pause_delay: Duration,
    /// What the second setting changes: kmin, kmax, pmax, cc, xoff, xon, and marking=paper|sonic|hpcc|huawei for known
    /// thresholds at this rate [default: kmin=256K,kmax=1M]
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', help_heading = "Second setting")]
    against: Vec<String>,
    /// Round trips the queue must stay above K* to count as congested
    #[arg(long = "l", default_value_t = 2.0, value_name = "L", help_heading = "Run")]
    l: f64,
    /// Simulated time of a run; its first fifth is not counted
    #[arg(long = "for", default_value = "100ms", value_name = "TIME", value_parser = round_trip, help_heading = "Run")]
    time: Duration,
    /// Runs of each setting, with different seeds
    #[arg(long, default_value_t = 3, value_name = "N", help_heading = "Run")]
    seeds: u32,
    /// First seed
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Run")]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the senders send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Traffic {
    /// Bursts at full speed, with random silences
    Bursts,
    /// Packets at even distances
    Paced,
    /// Everything at once, for ever
    Incast,
}

/// A parameter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cc {
    /// Of the DCQCN paper
    Paper,
    /// Defaults of NVIDIA's NICs
    Nic,
}

/// A queue length, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Threshold {
    Off,
    Bytes(u64),
}

/// One setting as it is written.
#[derive(Debug, Clone, Copy)]
struct Written {
    red: Red,
    control: Control,
    xoff: Option<u64>,
    xon: Option<u64>,
}

impl WhatIf {
    /// The answer.
    pub(crate) fn answer(&self) -> anyhow::Result<WhatIfReport> {
        let Some((name, path)) = self.from.as_deref().zip(self.recording.as_deref()) else {
            return Ok(self.question(None, None)?.answer()?);
        };
        let (engine, _) = judge(path, Settings::default(), |_, _| {})
            .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        let (control, port, rate_gbps) = port_parameters(engine.world(), name)?;
        let mut report = self.question(Some(control), rate_gbps)?.answer()?;
        report.port = Some(port);
        Ok(report)
    }

    /// The question, with the parameters and the rate of a port if there is one.
    fn question(&self, control: Option<Control>, port_gbps: Option<f64>) -> anyhow::Result<Question> {
        let rate_gbps = self.rate.or(port_gbps).unwrap_or(Params::example().rate_gbps);
        let given = Written {
            red: Red { kmin_bytes: self.kmin, kmax_bytes: self.kmax, pmax: self.pmax },
            control: control.unwrap_or_else(|| self.cc.control(rate_gbps)),
            xoff: bytes_of(self.xoff),
            xon: self.xon,
        };
        let against = self.against(given, rate_gbps)?;
        let given = self.setting("", given)?;
        let workload = match self.workload {
            Traffic::Bursts => Workload::Bursts { bytes: self.burst, load: self.load },
            Traffic::Paced => Workload::Paced { load: self.load, message_bytes: self.burst },
            Traffic::Incast => Workload::Incast { message_bytes: self.burst },
        };
        let duration_ns = nanoseconds(self.time);
        let params = Params {
            rate_gbps,
            rtt_ns: nanoseconds(self.rtt),
            packet_bytes: self.packet,
            senders: self.senders,
            workload,
            red: given.red,
            control: given.control,
            pfc: given.pfc,
            probe: None,
            seed: self.seed,
            duration_ns,
            warm_up_ns: duration_ns / 5,
            ..Params::example()
        };
        Ok(Question { params, against, l: self.l, seeds: self.seeds })
    }

    /// The second setting: the first with what `--against` says.
    fn against(&self, mut setting: Written, rate_gbps: f64) -> anyhow::Result<Setting> {
        let common = ["kmin=256K".to_owned(), "kmax=1M".to_owned()];
        let changes = if self.against.is_empty() { &common[..] } else { &self.against[..] };
        for change in changes {
            let Some((key, value)) = change.split_once('=') else {
                bail!("--against: {change:?} is not of the form key=value, for example kmax=1M");
            };
            let told = |why: String| anyhow::anyhow!("--against {key}: {why}");
            match key.trim() {
                "kmin" => setting.red.kmin_bytes = size(value).map_err(told)?,
                "kmax" => setting.red.kmax_bytes = size(value).map_err(told)?,
                "pmax" => setting.red.pmax = share(value).map_err(told)?,
                "marking" => setting.red = self.marking(value, rate_gbps).map_err(told)?,
                "cc" => {
                    let set =
                        Cc::from_str(value, true).map_err(|_| told(format!("{value:?} is neither paper nor nic")))?;
                    setting.control = set.control(rate_gbps);
                }
                "xoff" => {
                    // A pause at another place has its own XON, unless it is given.
                    setting.xoff = bytes_of(Some(threshold(value).map_err(told)?));
                    setting.xon = None;
                }
                "xon" => setting.xon = Some(size(value).map_err(told)?),
                _ => bail!("--against: there is no {key:?}; there are kmin, kmax, pmax, marking, cc, xoff, xon"),
            }
        }
        self.setting("--against: ", setting)
    }

    /// Known thresholds.
    fn marking(&self, name: &str, rate_gbps: f64) -> Result<Red, String> {
        let known = markings(rate_gbps, nanoseconds(self.rtt));
        let names: Vec<&str> = known.iter().map(|marking| marking.name).collect();
        let found = known.iter().find(|marking| marking.name == name.trim());
        found.map(|marking| marking.red).ok_or_else(|| format!("{name:?} is none of {}", names.join(", ")))
    }

    fn setting(&self, whose: &str, written: Written) -> anyhow::Result<Setting> {
        if written.xoff.is_none() && written.xon.is_some() {
            bail!("{whose}an XON without an XOFF does nothing");
        }
        let pfc = written.xoff.map(|xoff_bytes| Pfc {
            xoff_bytes,
            xon_bytes: written.xon.unwrap_or(xoff_bytes / 10 * 9),
            delay_ns: nanoseconds(self.pause_delay),
        });
        Ok(Setting { red: written.red, control: written.control, pfc })
    }
}

impl Cc {
    fn control(self, rate_gbps: f64) -> Control {
        match self {
            Self::Paper => Control::paper(rate_gbps),
            Self::Nic => Control::nic(rate_gbps),
        }
    }
}

fn bytes_of(threshold: Option<Threshold>) -> Option<u64> {
    match threshold? {
        Threshold::Off => None,
        Threshold::Bytes(bytes) => Some(bytes),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// `8us`, `100ms`; up to a minute.
fn round_trip(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time > Duration::from_secs(60) { Err("the longest time is a minute".to_owned()) } else { Ok(time) }
}

/// Bytes with K, M or G; 0 is one too.
fn size(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { crate::args::bytes(text.trim()) }
}

/// A queue length or `off`.
fn threshold(text: &str) -> Result<Threshold, String> {
    if text.trim() == "off" { Ok(Threshold::Off) } else { size(text).map(Threshold::Bytes) }
}

/// `80%` or `0.8`.
fn share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, of) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let value = number.trim().parse::<f64>().map(|value| value / of).ok().filter(|value| value.is_finite());
    let value = value.ok_or_else(|| format!("{text:?} is no share such as 80% or 0.8"))?;
    if value > 1.0 && of < 2.0 {
        return Err(format!("{text:?} is more than all; a percentage ends in %"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn asked(line: &str) -> Result<Question, String> {
        let words = ["rdmascope", "whatif"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Some(Command::WhatIf(asked)) = cli.command else { panic!("whatif") };
        let question = asked.question(None, None).map_err(|error| error.to_string())?;
        question.check().map_err(|error| error.to_string())?;
        Ok(question)
    }

    #[test]
    fn without_a_flag_it_is_the_common_question() {
        assert_eq!(asked(""), Ok(Question::common()));
    }

    #[test]
    fn the_second_setting_is_the_first_with_what_against_says() {
        let question =
            asked("--kmin 10K --cc paper --xoff 2M --against kmax=1M,pmax=20%,cc=nic --against xoff=off").unwrap();
        assert_eq!(question.params.red.kmin_bytes, 10 << 10);
        assert_eq!(question.params.pfc.map(|pfc| pfc.xoff_bytes), Some(2 << 20));
        assert_eq!(question.against.red, Red { kmin_bytes: 10 << 10, kmax_bytes: 1 << 20, pmax: 0.2 });
        assert_eq!((question.params.control.name, question.against.control.name), ("paper", "nic"));
        assert_eq!(question.against.pfc, None);
        let sonic = asked("--rate 100 --against marking=sonic").unwrap();
        assert_eq!(sonic.against.red, Red { kmin_bytes: 1 << 20, kmax_bytes: 2 << 20, pmax: 0.05 });
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, part) in [
            ("--rate 0", "the rate in Gb/s is 0"),
            ("--rate nan", "the rate in Gb/s is NaN"),
            ("--load 2000%", "the load is 20"),
            ("--load 80", "a percentage ends in %"),
            ("--kmin 1M", "Kmin must not be above Kmax"),
            ("--against kmin=2M", "--against: Kmin must not be above Kmax"),
            ("--against kmix=2M", "there is no \"kmix\""),
            ("--against kmin", "key=value"),
            ("--against cc=timely", "neither paper nor nic"),
            ("--against kmin=5K", "both settings are the same"),
            ("--against marking=cisco", "none of paper, sonic, hpcc, huawei"),
            ("--from mlx5_0/1", "--recording"),
            ("--xon 1M", "without an XOFF"),
            ("--for 50s", "million packets"),
            ("--for 500us", "100 round trips"),
            ("--senders 0", "the number of senders is 0"),
            ("--packet 1", "the packet size is 1"),
            ("--l 0", "L is"),
            ("--seeds 1000", "seeds"),
            ("--rtt 1h", "a minute"),
        ] {
            let error = asked(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
