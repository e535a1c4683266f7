//! The `rdmascope` binary: the command line and the screen. Everything it shows comes from the `collector` library.

mod args;
mod collect;
mod commands;
mod config;
mod journal;
mod notify;
mod obey;
mod otlp;
mod outputs;
mod reload;
mod scrape;
mod whatif;

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::ErrorKind;
use collector::command::table::plain;

fn main() -> ExitCode {
    // A closed pipe (`rdmascope ports | head`) ends the program quietly, as it does other tools.
    let cli = match args::Cli::of_args(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let failed = failure(matches!(cli.command, Some(args::Command::Check(_))));
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => {
            journal::fail(&plain(&one_line(&format!("{error:#}"))));
            failed
        }
    }
}

/// What a command that could not be carried out exits with: 2; `check` exits with 3 (unknown), for its 2 says that the
/// node is in a critical state, and a typing mistake must not drain a node.
fn failure(check: bool) -> ExitCode {
    ExitCode::from(if check { 3 } else { 2 })
}

/// Help and version are answers; anything else is one line on standard error and a failure.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return match commands::quiet_pipe(error.print().and_then(|()| std::io::stdout().flush())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                journal::fail(&format!("{error:#}"));
                ExitCode::from(2)
            }
        };
    }
    let text = error.render().to_string();
    // The first paragraph: what is wrong, and where clap lists them the arguments missing or the values possible.
    let first: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let first = first.join(" ");
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let tip = tip.map(|tip| format!(" ({tip})")).unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(&first);
    journal::tell(format_args!("rdmascope: {first}{tip}; see rdmascope --help"));
    // What cannot be parsed has no command; the first word that is one of the commands' names is it.
    let cli = args::Cli::command();
    let names: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    let asked = std::env::args().skip(1).find(|word| names.contains(&word.as_str()));
    failure(asked.as_deref() == Some("check"))
}

fn one_line(text: &str) -> String {
    text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
