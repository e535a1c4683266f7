//! `rdmascope-verbs`: the program beside rdmascope that makes QPs, and the only one that links libibverbs.
//!
//! `loopback` measures until its standard input ends; rdmascope starts it where the loopback probe is asked for.
//! `operations` tells where the functions of the extended interface lie. What a provider does to this process it does not
//! do to the collector.
//!
//! ```text
//! loopback    the devices and their threads    watch    one device       probe  one connection
//! operations  functions of extended QPs        say      what is printed  stop   the sign to end
//! ```

mod loopback;
mod operations;
mod probe;
mod say;
mod stop;
mod watch;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use collector::source::loopback::PROGRAM;

/// What needs queue pairs of its own, apart from rdmascope, which makes none.
#[derive(Parser)]
#[command(name = PROGRAM, version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure how long a write from each active port to itself takes, until standard input ends
    ///
    /// Makes one reliable connection on each active port, to the port itself, and prints a line of JSON for each
    /// measurement. Nothing is left when it ends.
    Loopback(Loopback),
    /// Print where each provider's functions of the extended interface lie, as one line of JSON
    ///
    /// They are known only of a queue pair that was made with it, so one of each kind is made on each device, and
    /// destroyed at once.
    Operations(Operations),
    /// Print the manual page
    Man,
}

/// `loopback`.
#[derive(Args)]
pub(crate) struct Loopback {
    /// Measure only devices whose name matches this pattern (* and ?); may be given more than once
    #[arg(long, value_name = "GLOB")]
    device: Vec<String>,
    /// Never open devices whose name matches this pattern; may be given more than once
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Time between two measurements of a port, in milliseconds
    #[arg(long, default_value_t = 1000, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    every_ms: u64,
    /// Operations of one measurement
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    operations: u32,
    /// Bytes of one operation
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=256))]
    bytes: u32,
}

impl Loopback {
    fn period(&self) -> Duration {
        Duration::from_millis(self.every_ms)
    }
}

/// `operations`.
#[derive(Args)]
pub(crate) struct Operations {
    /// Make queue pairs, which watching alone never does
    #[arg(long, required = true)]
    allow_changes: bool,
    /// Only devices whose name matches this pattern (* and ?); may be given more than once
    #[arg(long, value_name = "GLOB")]
    device: Vec<String>,
    /// Never open devices whose name matches this pattern; may be given more than once
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Loopback(asked) => loopback::run(&asked),
        Command::Operations(asked) => operations::run(&asked),
        Command::Man => man(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PROGRAM}: {error}");
            ExitCode::from(2)
        }
    }
}

/// The manual page: the program, then each command.
fn man() -> Result<(), String> {
    let mut page = Vec::new();
    let command = Cli::command();
    let written = (|| {
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "man") {
            let man = clap_mangen::Man::new(sub.clone().name(format!("{PROGRAM}-{}", sub.get_name())));
            man.render_synopsis_section(&mut page)?;
            man.render_description_section(&mut page)?;
            man.render_options_section(&mut page)?;
        }
        std::io::stdout().write_all(&page)
    })();
    written.map_err(|error| error.to_string())
}
