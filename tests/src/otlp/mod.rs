//! A receiver of OTLP that keeps what it gets, and can be told to misbehave.
//!
//! ```text
//! serve         the server: HTTP with protobuf or JSON, or gRPC, plain or over TLS
//! told          what was received, as tests look at it
//! certificates  authorities and certificates made for a test
//! rotel         a real OpenTelemetry collector in between
//! ```

pub mod certificates;
pub mod rotel;
mod serve;
mod told;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use tokio::sync::oneshot;

pub use self::told::{Number, Point, Record};

/// What a receiver speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1, protobuf or JSON as it is asked.
    Http,
    /// gRPC.
    Grpc,
}

/// What it does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Takes it.
    Take,
    /// Takes it but for so many records.
    Partial(i64),
    /// Answers with this HTTP status and `Retry-After`.
    Status(u16, Option<&'static str>),
    /// Answers with this gRPC status and, if told so, a `RetryInfo` of so many seconds.
    Code(u8, Option<u8>),
    /// Answers after this time.
    Slow(Duration),
    /// Closes the connection in the middle of the answer.
    Breaks,
}

/// A request.
#[derive(Debug, Clone)]
pub enum Message {
    /// Of metrics.
    Metrics(ExportMetricsServiceRequest),
    /// Of logs.
    Logs(ExportLogsServiceRequest),
    /// Of spans.
    Traces(ExportTraceServiceRequest),
}

/// A request that was taken.
#[derive(Debug, Clone)]
pub struct Taken {
    /// What it carried.
    pub message: Message,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
}

#[derive(Default)]
struct State {
    taken: Vec<Taken>,
    /// When each request came, taken or not.
    asked: Vec<Instant>,
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    state: Mutex<State>,
    connections: AtomicUsize,
}

/// A receiver that runs.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    speaks: Speaks,
    tls: Option<Arc<rustls::ServerConfig>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Receiver {
    /// Starts one on a free port of the loopback address.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn start(speaks: Speaks) -> Self {
        Self::make(speaks, None)
    }

    /// Starts one that wants TLS.
    ///
    /// # Panics
    /// There is no free port.
    #[must_use]
    pub fn with_tls(speaks: Speaks, config: rustls::ServerConfig) -> Self {
        let mut config = config;
        config.alpn_protocols = vec![if speaks == Speaks::Grpc { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        Self::make(speaks, Some(Arc::new(config)))
    }

    fn make(speaks: Speaks, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let shared = Shared {
            behaviour: Mutex::new(Behaviour::Take),
            state: Mutex::default(),
            connections: AtomicUsize::new(0),
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let mut receiver = Self { address, shared: Arc::new(shared), running: None, speaks, tls };
        receiver.listen(listener);
        receiver
    }

    fn listen(&mut self, listener: TcpListener) {
        let (stop, stopped) = oneshot::channel();
        let (shared, speaks, tls) = (self.shared.clone(), self.speaks, self.tls.clone());
        let thread = std::thread::spawn(move || serve::serve(listener, speaks, tls, shared, stopped));
        self.running = Some((stop, thread));
    }

    /// Stops it: connections are closed, and new ones refused.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }

    /// Starts it again at the same address.
    ///
    /// # Panics
    /// Somebody else has its port now.
    pub fn start_again(&mut self) {
        self.listen(TcpListener::bind(self.address).expect("its port is free"));
    }

    /// What it does from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        *lock(&self.shared.behaviour) = behaviour;
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://localhost:{}", if self.tls.is_some() { "https" } else { "http" }, self.address.port())
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What it took, in its order.
    #[must_use]
    pub fn taken(&self) -> Vec<Taken> {
        lock(&self.shared.state).taken.clone()
    }

    /// When requests came, taken or not.
    #[must_use]
    pub fn asked(&self) -> Vec<Instant> {
        lock(&self.shared.state).asked.clone()
    }

    /// Connections that were made, whatever became of them.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}
