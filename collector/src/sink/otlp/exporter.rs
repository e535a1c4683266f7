//! The exporter's thread: for each signal a task that takes what waits, sends it, and waits longer after each failure.
//! They share one runtime, and nothing they do reaches the collection.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::answer::Answer;
use super::backoff::Backoff;
use super::grpc::Grpc;
use super::health::Health;
use super::http::Http;
use super::queue::Item;
use super::request::Request;
use super::secret::{Secret, presentable};
use super::settings::{Protocol, Route, Signal};
use super::shared::Shared;

/// Encoded bytes in one request, if it has more than one item. Receivers take 4 MiB by default.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Items in one request.
const MAX_BATCH_ITEMS: usize = 1000;
/// At the end what waits has this long to get out.
const LAST_MOMENTS: Duration = Duration::from_millis(1500);

enum Client {
    Grpc(Grpc),
    Http(Http),
}

impl Client {
    fn new(route: &Route) -> Result<Self, String> {
        match route.protocol {
            Protocol::Grpc => Grpc::new(route).map(Self::Grpc),
            Protocol::HttpProtobuf | Protocol::HttpJson => Http::new(route).map(Self::Http),
        }
    }

    async fn send(&self, signal: Signal, request: Request) -> Answer {
        match self {
            Self::Grpc(client) => client.send(request).await,
            Self::Http(client) => client.send(signal, &request).await,
        }
    }
}

/// One signal's way out.
pub(super) struct Courier {
    signal: Signal,
    client: Client,
    route: Route,
    resource: Arc<Resource>,
    shared: Arc<Shared>,
    health: Arc<Mutex<Health>>,
    backoff: Backoff,
    partial_said: bool,
}

impl Courier {
    /// Within the runtime it will run in; the error says what is wrong about the route.
    pub(super) fn new(
        signal: Signal,
        route: &Route,
        resource: &Arc<Resource>,
        shared: &Arc<Shared>,
        health: &Arc<Mutex<Health>>,
    ) -> Result<Self, String> {
        Ok(Self {
            signal,
            client: Client::new(route)?,
            route: route.clone(),
            resource: resource.clone(),
            shared: shared.clone(),
            health: health.clone(),
            backoff: Backoff::default(),
            partial_said: false,
        })
    }

    async fn run(mut self) {
        loop {
            let batch = self.shared.queue().take(self.signal, MAX_BATCH_BYTES, MAX_BATCH_ITEMS);
            if batch.is_empty() {
                if self.shared.ended.load(Ordering::Acquire) {
                    return;
                }
                self.shared.lane(self.signal).wake.notified().await;
                continue;
            }
            let Some(wait) = self.deliver(batch).await else { continue };
            if self.shared.ended.load(Ordering::Acquire) {
                return;
            }
            // Cut short by the end: there is one more attempt.
            let _ = tokio::time::timeout(wait, self.shared.lane(self.signal).end.notified()).await;
        }
    }

    /// Sends a batch; the time to wait before the next attempt, if it has to come back.
    async fn deliver(&mut self, batch: Vec<Item>) -> Option<Duration> {
        let counts = &self.shared.lane(self.signal).counts;
        let records: u64 = batch.iter().map(|item| item.records).sum();
        counts.in_flight.store(records, Ordering::Relaxed);
        let request = Request::new(self.signal, &batch, &self.resource);
        let answer = self.client.send(self.signal, request);
        let answer = match self.route.timeout {
            None => answer.await,
            Some(timeout) => tokio::time::timeout(timeout, answer).await.unwrap_or_else(|_| Answer::missing(timeout)),
        };
        counts.in_flight.store(0, Ordering::Relaxed);
        let (origin, place) = (self.route.endpoint.origin().to_owned(), self.place());
        let now = Instant::now();
        match answer {
            Answer::Taken { rejected, message } => {
                let rejected = rejected.min(records);
                counts.sent.fetch_add(records - rejected, Ordering::Relaxed);
                counts.dropped.fetch_add(rejected, Ordering::Relaxed);
                self.backoff.reset();
                let lost = || self.lost();
                let mut health = lock(&self.health);
                health.worked(&origin, lost, now);
                health.worked(&place, lost, now);
                if (rejected > 0 || !message.is_empty()) && !self.partial_said {
                    let message = self.presentable(&message);
                    let unit = self.signal.unit();
                    health
                        .say(&format!("{place}: {rejected} {unit} not taken: {message} (said once; all are counted)"));
                    drop(health);
                    self.partial_said = true;
                }
                None
            }
            Answer::Refused { why } => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                counts.dropped.fetch_add(records, Ordering::Relaxed);
                self.backoff.reset();
                let mut health = lock(&self.health);
                // It answers, if not as one would like.
                health.worked(&origin, || self.lost(), now);
                health.failed(&place, &self.presentable(&why), "dropped and counted", now);
                None
            }
            Answer::Later { why, after, signal_only } => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                self.shared.give_back(batch);
                let why = self.presentable(&why);
                // Under the name of all signals the next one that arrives would declare it over.
                let what = if signal_only { &place } else { &origin };
                lock(&self.health).failed(what, &why, "kept as far as there is room, and sent again", now);
                Some(self.backoff.next(after))
            }
        }
    }

    fn place(&self) -> String {
        format!("{} to {}", self.signal.name(), self.route.endpoint.shown())
    }

    /// What was lost since the start, in words.
    fn lost(&self) -> String {
        let lost = self.shared.status().into_iter().filter(|status| status.dropped > 0);
        let words: Vec<String> = lost.map(|status| format!("{} {}", status.dropped, status.signal.unit())).collect();
        if words.is_empty() {
            "nothing was lost".to_owned()
        } else {
            format!("lost since the start: {}", words.join(", "))
        }
    }

    fn presentable(&self, text: &str) -> String {
        presentable(text, self.secrets())
    }

    fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let route = &self.route;
        route.headers.iter().map(|(_, value)| value).chain(&route.tls.key).chain(route.endpoint.secrets())
    }
}

fn lock(health: &Mutex<Health>) -> std::sync::MutexGuard<'_, Health> {
    health.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs until the end and a moment longer; what is left then is counted and said.
pub(super) fn run(runtime: Runtime, couriers: Vec<Courier>, ended: &Shared, health: &Mutex<Health>) {
    runtime.block_on(async {
        let signals: Vec<Signal> = couriers.iter().map(|courier| courier.signal).collect();
        let tasks: Vec<JoinHandle<()>> = couriers.into_iter().map(|courier| tokio::spawn(courier.run())).collect();
        let all = async {
            for task in tasks {
                // A task that panicked has counted what it could.
                let _ = task.await;
            }
        };
        let all = tokio::spawn(all);
        ended.stop.notified().await;
        let _ = tokio::time::timeout(LAST_MOMENTS, all).await;
        let mut left = Vec::new();
        for signal in signals {
            let records = ended.abandon(signal);
            if records > 0 {
                left.push(format!("{records} {}", signal.unit()));
            }
        }
        if !left.is_empty() {
            lock(health).say(&format!("not sent at the end: {}", left.join(", ")));
        }
    });
    // A name that is being resolved is not waited for.
    runtime.shutdown_background();
}

#[cfg(test)]
mod tests;
