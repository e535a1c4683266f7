//! `collect`'s page for Prometheus, and what the other outputs report of themselves on it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use collector::feed::RecordingStatus;
use collector::metric::{HooksReport, Options, RecordingReport, Reports};
use collector::sink::Log;
use collector::sink::hook::HookStatus;
use collector::sink::prometheus::{Names, Prometheus, PrometheusOptions};
use collector::sink::socket::SocketStatus;

use crate::args::Collect;
use crate::config::Config;

/// The page, when it is asked for, and what is to be said of it.
pub(crate) fn prometheus(
    config: &Config,
    asked: &Collect,
    reports: &Reports,
    log: &Log,
) -> anyhow::Result<Option<(Prometheus, String)>> {
    let names = asked.prometheus_names.as_ref().or(config.collect.prometheus_names.as_ref());
    let names = match names.map(String::as_str) {
        None | Some("otel") => Names::Otel,
        Some("node") => Names::Node,
        Some(other) => bail!("prometheus-names: {other:?} is neither otel nor node"),
    };
    let address = match asked.prometheus.as_ref().or(config.collect.prometheus.as_ref()).map(String::as_str) {
        None | Some("off" | "") => return Ok(None),
        Some(text) => text
            .parse::<SocketAddr>()
            .map_err(|_| anyhow::anyhow!("prometheus: {text:?} is no address with a port such as 127.0.0.1:9948"))?,
    };
    let options = PrometheusOptions { address, names, detail: detail(config, asked) };
    let page = Prometheus::start(options, reports.clone(), log.clone())?;
    let address = page.address();
    let open = if address.ip().is_loopback() { "" } else { " (open to the network)" };
    Ok(Some((page, format!("Prometheus at {address}{open}"))))
}

/// What is exported beyond the default.
pub(crate) fn detail(config: &Config, asked: &Collect) -> Options {
    Options {
        processes: asked.export_processes || config.collect.export_processes,
        qps: asked.export_qps.unwrap_or(config.collect.export_qps),
        ..Options::default()
    }
}

/// The hooks report. What the debouncing replaced by something newer is no loss: the hook is told of the newer.
pub(crate) fn report_hooks(
    reports: &Reports,
    status: impl Fn() -> Vec<HookStatus> + Send + 'static,
    lost: impl Fn() -> u64 + Send + 'static,
) {
    reports.add(move |report| {
        let hooks = status();
        let sum = |count: fn(&HookStatus) -> u64| hooks.iter().map(count).sum::<u64>();
        report.hooks = (!hooks.is_empty()).then(|| HooksReport {
            run: sum(|hook| hook.started),
            failed: sum(|hook| hook.failed),
            untold: sum(|hook| hook.dropped) + lost(),
        });
    });
}

/// The socket reports.
pub(crate) fn report_socket(reports: &Reports, status: impl Fn() -> SocketStatus + Send + 'static) {
    reports.add(move |report| report.socket = Some(status()));
}

/// The recording reports.
pub(crate) fn report_recording(reports: &Reports, status: Arc<Mutex<RecordingStatus>>) {
    reports.add(move |report| {
        let status = status.lock().unwrap_or_else(PoisonError::into_inner);
        report.recording = Some(RecordingReport { bytes: status.bytes, stopped: status.stopped.is_some() });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_debounced_is_not_untold_and_what_was_dropped_or_lost_is() {
        let reports = Reports::default();
        let told = HookStatus { started: 9, failed: 1, suppressed: 40, ..HookStatus::default() };
        let dropped = HookStatus { dropped: 3, ..HookStatus::default() };
        report_hooks(&reports, move || vec![told.clone(), dropped.clone()], || 2);
        let hooks = reports.report().hooks.unwrap();
        assert_eq!((hooks.run, hooks.failed, hooks.untold), (9, 1, 5));
    }
}
