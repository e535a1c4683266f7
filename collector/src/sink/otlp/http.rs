//! OTLP over HTTP, as protobuf or JSON.

use std::io::Write as _;
use std::time::SystemTime;

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use super::answer::Answer;
use super::request::Request;
use super::settings::{Protocol, Route, Signal};
use super::tls;

/// So much of an answer is read.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// A client of one endpoint.
pub(super) struct Http {
    client: reqwest::Client,
    route: Route,
}

impl Http {
    /// Makes the client; nothing is connected yet. The error says what is wrong about the route.
    pub(super) fn new(route: &Route) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &route.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "a header's name cannot be sent")?;
            let mut value =
                HeaderValue::from_str(value.reveal()).map_err(|_| "a header's value cannot be sent".to_owned())?;
            value.set_sensitive(true);
            headers.append(name, value);
        }
        // Neither an unexpected proxy nor another place the endpoint names is to get the headers.
        let builder = reqwest::Client::builder()
            .user_agent(super::USER_AGENT)
            .default_headers(headers)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        // Without TLS too: the client would look for cryptography of the whole process otherwise, and there is none.
        let tls = tls::client(route.endpoint.tls().then_some(&route.tls))?;
        let builder = builder.tls_backend_preconfigured(tls);
        let client = builder.build().map_err(|error| innermost(&error.without_url()))?;
        Ok(Self { client, route: route.clone() })
    }

    /// Sends a request and reads the answer.
    pub(super) async fn send(&self, signal: Signal, request: &Request) -> Answer {
        let json = self.route.protocol == Protocol::HttpJson;
        let (body, content) =
            if json { (request.json(), "application/json") } else { (request.protobuf(), "application/x-protobuf") };
        let mut post = self.client.post(self.route.endpoint.url()).header(CONTENT_TYPE, content);
        post = if self.route.gzip { post.header(CONTENT_ENCODING, "gzip").body(gzip(&body)) } else { post.body(body) };
        let mut response = match post.send().await {
            Ok(response) => response,
            Err(error) => return Answer::failed(innermost(&error.without_url())),
        };
        let status = response.status();
        let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let retry_after = header(RETRY_AFTER).map(str::to_owned);
        let answers_json = header(CONTENT_TYPE).map_or(json, |text| text.contains("json"));
        let mut answer = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if answer.len() + chunk.len() <= MAX_ANSWER_BYTES => answer.extend_from_slice(&chunk),
                // Without its answer it is not known to have been taken.
                Err(error) if status.is_success() => return Answer::failed(innermost(&error.without_url())),
                Ok(_) | Err(_) => break,
            }
        }
        if status.is_success() {
            return taken(signal, &answer, answers_json);
        }
        let why = format!("HTTP {status} {}", words(&answer, answers_json));
        Answer::of_http(status.as_u16(), retry_after.as_deref(), SystemTime::now(), why)
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(body).and_then(|()| encoder.finish());
    written.expect("writing into a Vec cannot fail")
}

/// What a 2xx says; an answer that cannot be read is a full success.
fn taken(signal: Signal, answer: &[u8], json: bool) -> Answer {
    macro_rules! partial {
        ($response:ty, $rejected:ident) => {{
            let response: Option<$response> =
                if json { serde_json::from_slice(answer).ok() } else { <$response>::decode(answer).ok() };
            response.and_then(|response| response.partial_success).map(|p| (p.$rejected, p.error_message))
        }};
    }
    let partial = match signal {
        Signal::Metrics => partial!(ExportMetricsServiceResponse, rejected_data_points),
        Signal::Logs => partial!(ExportLogsServiceResponse, rejected_log_records),
        Signal::Traces => partial!(ExportTraceServiceResponse, rejected_spans),
    };
    let (rejected, message) = partial.unwrap_or_default();
    Answer::Taken { rejected: u64::try_from(rejected).unwrap_or(0), message }
}

/// `google.rpc.Status`: the error's words.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
}

/// The other end's words about an error: a `Status`, or a text.
fn words(answer: &[u8], json: bool) -> String {
    if json {
        let value: Option<serde_json::Value> = serde_json::from_slice(answer).ok();
        let message = value.as_ref().and_then(|value| value["message"].as_str());
        return message.map(str::to_owned).unwrap_or_default();
    }
    if let Ok(status) = Status::decode(answer)
        && !status.message.is_empty()
    {
        return status.message;
    }
    std::str::from_utf8(answer).map(str::to_owned).unwrap_or_default()
}

/// The cause of an error, which is what can be acted on: `Connection refused`, not `error sending request`.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
