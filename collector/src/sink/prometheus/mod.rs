//! A page for Prometheus (docs/prometheus.md): `GET /metrics` in the text format 0.0.4.
//!
//! ```text
//! exposition  families as text        node    the same counters under the names of `node_exporter`
//! server      who asks, and what they get
//! ```
//!
//! At each tick the engine's thread puts what is exported now where the server's thread finds it; the page is made there,
//! when somebody asks. No scrape touches the engine, and no client can hold anything but its own connection.
//!
//! There are no timestamps: what is old has no line. When the engine's thread itself has not ticked for long (a read of a
//! broken device hangs), everything is old, and there is no page; nor is there one before the first tick.

mod exposition;
mod node;
mod server;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::Notify;

use self::node::NodePoint;
use super::{Log, Sink};
use crate::feed::OwnCost;
use crate::inventory::World;
use crate::metric::{self, ExporterReport, Family, Options, Reports};
use crate::observation::Observation;

/// How things are called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Names {
    /// As OpenTelemetry's names are written in Prometheus: `hw_network_io_bytes_total`.
    #[default]
    Otel,
    /// What `node_exporter`'s `infiniband` collector has as it calls it (`node_infiniband_*`), the rest as before.
    Node,
}

/// Where, and what.
#[derive(Debug, Clone, Copy)]
pub struct PrometheusOptions {
    /// The address to listen on.
    pub address: SocketAddr,
    /// How things are called.
    pub names: Names,
    /// What is exported beyond the default.
    pub detail: Options,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PrometheusError {
    /// Nobody can listen there.
    #[error("cannot listen on {0} for Prometheus: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// There is no thread or no event queue for it.
    #[error("cannot serve Prometheus: {0}")]
    Start(std::io::Error),
}

/// What became of the scrapes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrometheusStatus {
    /// Pages served.
    pub served: u64,
    /// Connections that were closed at once because there were too many.
    pub refused: u64,
    /// Connections that broke, or that took too long.
    pub failed: u64,
}

/// What is exported now.
#[derive(Default)]
struct Now {
    /// When; `None` before the first tick.
    at: Option<Instant>,
    families: Vec<Family>,
    node: Vec<NodePoint>,
}

struct Shared {
    now: Mutex<Arc<Now>>,
    status: Mutex<PrometheusStatus>,
    ended: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the mutexes guard is good after every statement, so also after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The page as a sink.
pub struct Prometheus {
    shared: Arc<Shared>,
    address: SocketAddr,
    options: PrometheusOptions,
    reports: Reports,
    observations: u64,
    thread: Option<JoinHandle<()>>,
}

impl Prometheus {
    /// Listens, and serves in a thread of its own. There is no page before the first tick.
    pub fn start(options: PrometheusOptions, reports: Reports, log: Log) -> Result<Self, PrometheusError> {
        let shared = Arc::new(Shared { now: Mutex::default(), status: Mutex::default(), ended: Notify::new() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(PrometheusError::Start)?;
        let failed = |error| PrometheusError::Listen(options.address, error);
        let listener = runtime.block_on(tokio::net::TcpListener::bind(options.address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("prometheus".to_owned())
            .spawn(move || {
                runtime.block_on(server::run(listener, for_thread, log));
                // Connections that are still open are not waited for.
                runtime.shutdown_background();
            })
            .map_err(PrometheusError::Start)?;
        let for_report = shared.clone();
        reports.add(move |report| {
            let status = *lock(&for_report.status);
            report.exporters.push(ExporterReport {
                exporter: "prometheus",
                signal: "metrics",
                queued: None,
                sent: status.served,
                dropped: status.refused,
                failed: status.failed,
            });
        });
        let options = PrometheusOptions {
            detail: Options { beside_node_names: options.names == Names::Node, ..options.detail },
            ..options
        };
        Ok(Self { shared, address, options, reports, observations: 0, thread: Some(thread) })
    }

    /// Where it listens; the port is a real one also when 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What became of the scrapes; also later.
    pub fn status(&self) -> impl Fn() -> PrometheusStatus + Send + 'static {
        let shared = self.shared.clone();
        move || *lock(&shared.status)
    }
}

impl Sink for Prometheus {
    fn observation(&mut self, _: &Observation<'_>, _: &World) {
        self.observations += 1;
    }

    fn tick(&mut self, world: &World, own: &OwnCost) {
        let mut report = self.reports.report();
        (report.own, report.observations) = (*own, Some(self.observations));
        let families = metric::collect(world, &report, self.options.detail);
        let node = if self.options.names == Names::Node { node::points(world) } else { Vec::new() };
        *lock(&self.shared.now) = Arc::new(Now { at: Some(Instant::now()), families, node });
    }

    fn finish(&mut self) {
        self.shared.ended.notify_one();
        if let Some(thread) = self.thread.take() {
            // It ends at once: nobody is waited for.
            let _ = thread.join();
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests;
