//! The server itself. gRPC's unary calls are written out: a prefix of five bytes, and the status in the trailers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Read;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceResponse};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::{Behaviour, Message, Shared, Speaks, Taken, lock};

/// Serves until it is stopped.
pub(super) fn serve(
    listener: TcpListener,
    speaks: Speaks,
    tls: Option<Arc<rustls::ServerConfig>>,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    listener.set_nonblocking(true).expect("it can be made non-blocking");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let tls = tls.map(tokio_rustls::TlsAcceptor::from);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let (shared, tls) = (shared.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => talk(stream, speaks, shared).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                talk(stream, speaks, shared).await;
                            }
                        }
                    }
                });
            }
        });
        let _ = stopped.await;
    });
    runtime.shutdown_background();
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, speaks: Speaks, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(request, speaks, &shared).await) }
    });
    let stream = TokioIo::new(stream);
    // A connection that breaks is the other end's business, or what was asked for.
    match speaks {
        Speaks::Http => drop(hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await),
        Speaks::Grpc => {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            drop(builder.serve_connection(stream, service).await);
        }
    }
}

async fn answer(request: Request<Incoming>, speaks: Speaks, shared: &Shared) -> Response<Frames> {
    let path = request.uri().path().to_owned();
    let headers: Vec<(String, String)> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let Ok(body) = request.into_body().collect().await else { return Frames::broken() };
    let body = body.to_bytes();
    lock(&shared.state).asked.push(Instant::now());
    let behaviour = *lock(&shared.behaviour);
    let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let json = header("content-type") == Some("application/json");
    let gzipped = header("content-encoding") == Some("gzip") || (speaks == Speaks::Grpc && body.first() == Some(&1));
    let rejected = match behaviour {
        Behaviour::Take => 0,
        Behaviour::Partial(rejected) => rejected,
        Behaviour::Slow(time) => {
            tokio::time::sleep(time).await;
            0
        }
        Behaviour::Breaks => return Frames::broken(),
        Behaviour::Status(status, after) => {
            let mut response = Response::new(Frames::data(Vec::new()));
            *response.status_mut() = status.try_into().expect("a status");
            if let Some(after) = after {
                response.headers_mut().insert("retry-after", HeaderValue::from_static(after));
            }
            return response;
        }
        Behaviour::Code(code, after) => return Frames::status(code, after),
    };
    let bytes = match speaks {
        Speaks::Http => unpacked(&body, gzipped),
        Speaks::Grpc => unpacked(body.get(5..).unwrap_or_default(), gzipped),
    };
    let Some((message, reply)) = read(&path, &bytes, json, rejected) else {
        return if speaks == Speaks::Grpc { Frames::status(3, None) } else { Frames::http(400, Vec::new()) };
    };
    lock(&shared.state).taken.push(Taken { message, headers: headers.clone() });
    match speaks {
        Speaks::Http => Frames::http(200, reply),
        Speaks::Grpc => Frames::message(&reply),
    }
}

fn unpacked(bytes: &[u8], gzipped: bool) -> Vec<u8> {
    if !gzipped {
        return bytes.to_vec();
    }
    let mut plain = Vec::new();
    // What is no gzip is no message either.
    let _ = flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain);
    plain
}

/// The message, and the answer to it in the same form.
fn read(path: &str, bytes: &[u8], json: bool, rejected: i64) -> Option<(Message, Vec<u8>)> {
    fn decoded<M: prost::Message + Default + DeserializeOwned>(bytes: &[u8], json: bool) -> Option<M> {
        if json { serde_json::from_slice(bytes).ok() } else { M::decode(bytes).ok() }
    }
    fn encoded<M: prost::Message + serde::Serialize>(message: &M, json: bool) -> Vec<u8> {
        if json { serde_json::to_vec(message).expect("it has only string keys") } else { message.encode_to_vec() }
    }
    let error_message = if rejected > 0 { "too much".to_owned() } else { String::new() };
    if path.ends_with("/v1/metrics") || path.ends_with("MetricsService/Export") {
        let partial_success =
            (rejected > 0).then_some(ExportMetricsPartialSuccess { rejected_data_points: rejected, error_message });
        let reply = encoded(&ExportMetricsServiceResponse { partial_success }, json);
        return Some((Message::Metrics(decoded(bytes, json)?), reply));
    }
    if path.ends_with("/v1/logs") || path.ends_with("LogsService/Export") {
        let partial_success =
            (rejected > 0).then_some(ExportLogsPartialSuccess { rejected_log_records: rejected, error_message });
        let reply = encoded(&ExportLogsServiceResponse { partial_success }, json);
        return Some((Message::Logs(decoded(bytes, json)?), reply));
    }
    if path.ends_with("/v1/traces") || path.ends_with("TraceService/Export") {
        let partial_success =
            (rejected > 0).then_some(ExportTracePartialSuccess { rejected_spans: rejected, error_message });
        let reply = encoded(&ExportTraceServiceResponse { partial_success }, json);
        return Some((Message::Traces(decoded(bytes, json)?), reply));
    }
    None
}

/// An answer's body.
struct Frames(VecDeque<Result<Frame<Bytes>, std::io::Error>>);

impl Frames {
    fn data(bytes: Vec<u8>) -> Self {
        Self([Ok(Frame::data(bytes.into()))].into())
    }

    fn http(status: u16, bytes: Vec<u8>) -> Response<Self> {
        let mut response = Response::new(Self::data(bytes));
        *response.status_mut() = status.try_into().expect("a status");
        response
    }

    /// Something, and then the connection is closed.
    fn broken() -> Response<Self> {
        let begin = Ok(Frame::data(Bytes::from_static(b"\0\0")));
        let mut response = Response::new(Self([begin, Err(std::io::Error::other("closed"))].into()));
        response.headers_mut().insert("content-length", HeaderValue::from_static("1000"));
        response
    }

    fn grpc(frames: VecDeque<Result<Frame<Bytes>, std::io::Error>>) -> Response<Self> {
        let mut response = Response::new(Self(frames));
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        response
    }

    fn message(bytes: &[u8]) -> Response<Self> {
        let length = u32::try_from(bytes.len()).expect("a short message").to_be_bytes();
        let data = [&[0], &length[..], bytes].concat();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Self::grpc([Ok(Frame::data(data.into())), Ok(Frame::trailers(trailers))].into())
    }

    fn status(code: u8, after: Option<u8>) -> Response<Self> {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_str(&code.to_string()).expect("digits"));
        if let Some(seconds) = after {
            trailers.insert("grpc-status-details-bin", HeaderValue::from_str(&retry_info(seconds)).expect("base64"));
        }
        Self::grpc([Ok(Frame::trailers(trailers))].into())
    }
}

/// `google.rpc.Status` with a `RetryInfo` of so many seconds, in base64.
fn retry_info(seconds: u8) -> String {
    use base64::Engine as _;
    let url = b"type.googleapis.com/google.rpc.RetryInfo";
    // RetryInfo { retry_delay = 1: Duration { seconds = 1 } } in Any { type_url = 1, value = 2 } in Status { details = 3 }.
    let info = [0x0a, 2, 0x08, seconds];
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).expect("short");
    let any = [&[0x0a, length(url)], &url[..], &[0x12, length(&info)], &info[..]].concat();
    base64::engine::general_purpose::STANDARD.encode([&[0x1a, length(&any)], &any[..]].concat())
}

impl Body for Frames {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Poll::Ready(self.0.pop_front())
    }
}
