//! OpenTelemetry: metrics, log records and spans by OTLP (docs/otlp.md).
//!
//! ```text
//! settings   the OTEL_* variables                        queue     what waits, bounded
//! metrics    families as messages                        shared    the queue and the counts, between the threads
//! logs       findings as log records                     exporter  the thread: a task for each signal
//! events     rare events as log records                  grpc, http, tls   how it is sent
//! spans      QPs and failovers as spans                  answer, backoff   what comes back, and when to try again
//! ```
//!
//! All three signals are `opentelemetry-proto` messages that go through one queue, one transport and one set of counts. The
//! SDK is not used: its batch processors drop what does not fit and tell nobody how much that was, and nothing may be lost
//! silently here; its metrics have one start time for each instrument, where each counter here has its own.
//!
//! The engine's thread only encodes and puts into the queue. Nothing an endpoint does or fails to do reaches the
//! collection.

mod answer;
mod attribute;
mod backoff;
mod events;
mod exporter;
mod grpc;
mod health;
mod http;
mod logs;
mod metrics;
mod queue;
mod random;
mod request;
mod resource;
mod secret;
mod settings;
mod shared;
mod spans;
mod tls;
mod wall;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::events::Events;
use self::exporter::Courier;
use self::health::Health;
pub use self::secret::Secret;
pub use self::settings::{Asked, DEFAULT_QUEUE_BYTES, Endpoint, Protocol, Route, Settings, SettingsError, Signal, Tls};
use self::shared::Shared;
pub use self::shared::SignalStatus;
use self::spans::Spans;
use self::wall::Wall;
use super::{Log, Sink};
use crate::feed::OwnCost;
use crate::finding::Finding;
use crate::inventory::{Failover, World};
use crate::metric::{self, ExporterReport, Options, Reports};
use crate::observation::Observation;
use crate::observation::recording::Header;

const USER_AGENT: &str = concat!("rdmascope/", env!("CARGO_PKG_VERSION"));

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The endpoint's client cannot be made.
    #[error("OTLP {0} to {1}: {2}")]
    Client(&'static str, String, String),
    /// There is no thread for it.
    #[error("cannot start the OTLP exporter: {0}")]
    Thread(std::io::Error),
}

/// OTLP as a sink.
pub struct Otlp {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// What of the metrics beyond the default; `None`: no metrics.
    detail: Option<Options>,
    reports: Reports,
    observations: u64,
    interval: Duration,
    next: Option<Instant>,
    wall: Option<Wall>,
    logs: Option<(Events, logs::Told)>,
    spans: Option<Spans>,
}

impl Otlp {
    /// Makes the clients and starts the thread; nothing is connected before there is something to send.
    /// `detail` is what of the metrics is exported beyond the default, `reports` what the program says of itself.
    pub fn start(
        settings: &Settings,
        header: &Header,
        detail: Options,
        reports: Reports,
        log: Log,
    ) -> Result<Self, OtlpError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(OtlpError::Thread)?;
        let (shared, health) = (Arc::new(Shared::new(settings.queue_bytes)), Arc::new(Mutex::new(Health::new(log))));
        let resource = Arc::new(resource::resource(header, &settings.resource));
        let mut couriers = Vec::new();
        {
            let _within = runtime.enter();
            for signal in Signal::ALL {
                let Some(route) = settings.route(signal) else { continue };
                let courier = Courier::new(signal, route, &resource, &shared, &health)
                    .map_err(|why| OtlpError::Client(signal.name(), route.endpoint.shown().to_owned(), why))?;
                couriers.push(courier);
            }
        }
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || exporter::run(runtime, couriers, &for_thread, &health))
            .map_err(OtlpError::Thread)?;
        let (for_report, sent) = (shared.clone(), Signal::ALL.map(|signal| settings.route(signal).is_some()));
        reports.add(move |report| {
            let used = for_report.status().into_iter().zip(sent).filter(|(_, sent)| *sent);
            report.exporters.extend(used.map(|(status, _)| ExporterReport {
                exporter: "otlp",
                signal: status.signal.name(),
                queued: Some(status.queued),
                sent: status.sent,
                dropped: status.dropped,
                failed: status.failed,
            }));
        });
        Ok(Self {
            shared,
            thread: Some(thread),
            detail: settings.metrics.is_some().then_some(detail),
            reports,
            observations: 0,
            interval: settings.interval,
            next: None,
            wall: None,
            logs: settings.logs.is_some().then(Default::default),
            spans: settings.traces.is_some().then(Spans::default),
        })
    }

    /// What became of each signal; also later.
    pub fn status(&self) -> impl Fn() -> [SignalStatus; 3] + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || shared.status()
    }

    fn wall(&mut self, world: &World) -> Wall {
        *self.wall.get_or_insert_with(|| Wall::new(world))
    }

    /// What the observation before has changed.
    fn settle(&mut self, world: &World) {
        // Nothing has been observed yet.
        if world.now == 0 {
            return;
        }
        let wall = self.wall(world);
        if let Some((events, _)) = &mut self.logs {
            self.shared.push(events.settle(world, wall));
        }
        if let Some(spans) = &mut self.spans {
            self.shared.push(spans.ended(world, wall));
        }
    }

    fn export(&mut self, world: &World, own: &OwnCost) {
        if world.now == 0 {
            return;
        }
        let wall = self.wall(world);
        if let Some(detail) = self.detail {
            let mut report = self.reports.report();
            (report.own, report.observations) = (*own, Some(self.observations));
            self.shared.push(metrics::items(&metric::collect(world, &report, detail), wall));
        }
    }
}

impl Sink for Otlp {
    fn observation(&mut self, observation: &Observation<'_>, world: &World) {
        self.observations += 1;
        self.settle(world);
        // The very first observation comes before there is a time: the world has none yet.
        if let Some((events, _)) = &mut self.logs
            && let Some(wall) = self.wall
        {
            self.shared.push(events.observe(observation, world, wall));
        }
    }

    fn findings(&mut self, findings: &[Arc<Finding>], world: &World) {
        self.settle(world);
        let wall = self.wall(world);
        if let Some((_, told)) = &mut self.logs {
            self.shared.push(findings.iter().filter_map(|finding| told.item(finding, wall)));
        }
    }

    fn failovers(&mut self, failovers: &[Arc<Failover>], world: &World) {
        let wall = self.wall(world);
        if let Some(spans) = &mut self.spans {
            self.shared.push(failovers.iter().flat_map(|failover| spans.failover(failover, wall)));
        }
    }

    /// Exports metrics when their time has come: at the first look, and then at the interval (rounded up to the ticks).
    fn tick(&mut self, world: &World, own: &OwnCost) {
        self.settle(world);
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + self.interval);
        self.export(world, own);
    }

    /// Exports metrics once more, so that what happened since the last export is not missing.
    fn last(&mut self, world: &World, own: &OwnCost) {
        self.settle(world);
        self.export(world, own);
    }

    fn ending(&mut self) {
        self.shared.end();
    }

    fn finish(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // It ends within two seconds, whatever the endpoint does.
            let _ = thread.join();
        }
    }
}

impl Drop for Otlp {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests;
