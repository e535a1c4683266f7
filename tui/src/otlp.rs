//! `collect`'s export by OTLP (docs/otlp.md).

use collector::metric::Reports;
use collector::observation::recording::Header;
use collector::sink::Log;
use collector::sink::otlp::{Asked, Otlp, Settings, SignalStatus};

use crate::args::{self, Collect};
use crate::config::{Config, key};
use crate::scrape;

/// The exporter, when it is asked for, and what is to be said of it.
pub(crate) fn start(
    config: &Config,
    asked: &Collect,
    header: &Header,
    reports: &Reports,
    log: &Log,
) -> anyhow::Result<Option<(Otlp, String)>> {
    let spans = asked.otlp_spans || config.collect.otlp_spans;
    // Who asks for spans asks for OTLP.
    let on = asked.otlp || config.collect.otlp || spans;
    let queue_bytes = queue_bytes(config, asked)?;
    let Some(mut settings) = Settings::from_environment(Asked { on, spans })? else { return Ok(None) };
    if let Some(bytes) = queue_bytes {
        settings.queue_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    let otlp = Otlp::start(&settings, header, scrape::detail(config, asked), reports.clone(), log.clone())?;
    Ok(Some((otlp, settings.words())))
}

/// What may wait, where it is said. A wrong size is an error also where nothing is exported.
pub(crate) fn queue_bytes(config: &Config, asked: &Collect) -> anyhow::Result<Option<u64>> {
    match (asked.otlp_queue, &config.collect.otlp_queue) {
        (Some(bytes), _) => Ok(Some(bytes)),
        (None, Some(text)) => key("otlp-queue", args::queue_bytes(text)).map(Some),
        (None, None) => Ok(None),
    }
}

/// What became of it, for the last line.
pub(crate) fn words(status: &[SignalStatus]) -> String {
    let used = status.iter().filter(|signal| signal.sent + signal.dropped > 0);
    let words: Vec<String> = used
        .map(|signal| {
            let lost = if signal.dropped > 0 { format!(" ({} lost)", signal.dropped) } else { String::new() };
            format!("{} {}{lost}", signal.sent, signal.signal.unit())
        })
        .collect();
    if words.is_empty() { "nothing sent by OTLP".to_owned() } else { format!("{} sent by OTLP", words.join(", ")) }
}
