//! OTLP over gRPC.

use std::error::Error as _;

use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{Ascii, MetadataKey, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::answer::Answer;
use super::http::innermost;
use super::request::Request;
use super::settings::Route;
use super::tls;

/// A client of one endpoint. It connects when it is first used, and anew after the connection was lost.
pub(super) struct Grpc {
    channel: Channel,
    headers: Vec<(MetadataKey<Ascii>, MetadataValue<Ascii>)>,
    gzip: bool,
}

impl Grpc {
    /// Makes the client; nothing is connected yet. It has to be made within the runtime it is used in. The error says
    /// what is wrong about the route.
    pub(super) fn new(route: &Route) -> Result<Self, String> {
        let mut headers = Vec::new();
        for (name, value) in &route.headers {
            let name = MetadataKey::from_bytes(name.as_bytes()).map_err(|_| "a header's name cannot be sent")?;
            let mut value: MetadataValue<Ascii> =
                value.reveal().parse().map_err(|_| "a header's value cannot be sent")?;
            value.set_sensitive(true);
            headers.push((name, value));
        }
        let wrong = |error: tonic::transport::Error| innermost(&error);
        let mut endpoint = Endpoint::from_shared(route.endpoint.url().to_owned()).map_err(|_| "no URL of gRPC")?;
        endpoint = endpoint.user_agent(super::USER_AGENT).map_err(wrong)?;
        if let Some(timeout) = route.timeout {
            endpoint = endpoint.connect_timeout(timeout);
        }
        if route.endpoint.tls() {
            // The same files as over HTTP, so that what is wrong with them is said at the start in the same words.
            tls::client(Some(&route.tls))?;
            let mut config = ClientTlsConfig::new();
            config = match &route.tls.ca {
                Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
                None => config.with_native_roots(),
            };
            if let (Some(certificate), Some(key)) = (&route.tls.certificate, &route.tls.key) {
                config = config.identity(Identity::from_pem(certificate, key.reveal()));
            }
            endpoint = endpoint.tls_config(config).map_err(wrong)?;
        }
        Ok(Self { channel: endpoint.connect_lazy(), headers, gzip: route.gzip })
    }

    /// Sends a request and reads the answer.
    pub(super) async fn send(&self, request: Request) -> Answer {
        macro_rules! export {
            ($client:ident, $request:expr, $rejected:ident) => {{
                let mut client = $client::new(self.channel.clone());
                if self.gzip {
                    client = client.send_compressed(CompressionEncoding::Gzip);
                }
                client = client.accept_compressed(CompressionEncoding::Gzip);
                client.export(self.with_headers($request)).await.map(|response| {
                    response.into_inner().partial_success.map(|p| (p.$rejected, p.error_message)).unwrap_or_default()
                })
            }};
        }
        let answer = match request {
            Request::Metrics(request) => export!(MetricsServiceClient, request, rejected_data_points),
            Request::Logs(request) => export!(LogsServiceClient, request, rejected_log_records),
            Request::Traces(request) => export!(TraceServiceClient, request, rejected_spans),
        };
        match answer {
            Ok((rejected, message)) => Answer::Taken { rejected: u64::try_from(rejected).unwrap_or(0), message },
            Err(status) => {
                // A status with a cause was made here: there was no connection, or it broke.
                let why = match status.source() {
                    Some(cause) => innermost(cause),
                    None => format!("gRPC {:?} {}", status.code(), status.message()),
                };
                Answer::of_grpc(status.code(), status.details(), status.source().is_some(), why)
            }
        }
    }

    fn with_headers<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        for (name, value) in &self.headers {
            request.metadata_mut().append(name.clone(), value.clone());
        }
        request
    }
}
