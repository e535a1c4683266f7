//! Where to send: the endpoint's URL, and how it is said.

use base64::Engine as _;
use reqwest::Url;

use super::super::secret::Secret;
use super::list::decoded;
use super::{Protocol, Signal};

/// An endpoint. What is said of it is scheme, host, port and path: never user, password or query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    url: Secret,
    shown: String,
    origin: String,
    tls: bool,
    authorization: Option<Secret>,
    secrets: Vec<Secret>,
}

/// The default endpoint (OpenTelemetry specification, "OpenTelemetry Protocol Exporter").
pub(super) fn default(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Grpc => "http://localhost:4317",
        Protocol::HttpProtobuf | Protocol::HttpJson => "http://localhost:4318",
    }
}

impl Endpoint {
    /// Reads an endpoint. `base`: of all signals, to which the path of one is appended (HTTP only). `insecure`: what an
    /// endpoint of gRPC without a scheme means. The error says nothing of the text.
    pub(super) fn new(
        text: &str,
        protocol: Protocol,
        base: Option<Signal>,
        insecure: bool,
    ) -> Result<Self, &'static str> {
        let text = match (text.contains("://"), protocol) {
            (true, _) => text.to_owned(),
            (false, Protocol::Grpc) => format!("{}://{text}", if insecure { "http" } else { "https" }),
            (false, _) => return Err("no URL: it begins with neither http:// nor https://"),
        };
        let mut url = Url::parse(&text).map_err(|_| "no URL")?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("its scheme is neither http nor https");
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err("no host");
        }
        let authorization = authorization(&url)?;
        let secrets = secrets(&url);
        // Only relative URLs have no user; this one has a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_fragment(None);
        if let (Some(signal), false) = (base, protocol == Protocol::Grpc) {
            let path = format!("{}{}", url.path().trim_end_matches('/'), signal.path());
            url.set_path(&path);
        }
        let mut shown = url.clone();
        shown.set_query(None);
        let origin = url.origin().ascii_serialization();
        Ok(Self {
            tls: url.scheme() == "https",
            shown: if protocol == Protocol::Grpc { origin.clone() } else { shown.to_string() },
            origin,
            url: Secret::new(url),
            authorization,
            secrets,
        })
    }

    /// The URL with everything, to be used and for nothing else.
    pub(in super::super) fn url(&self) -> &str {
        self.url.reveal()
    }

    /// As it may be said.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Scheme, host and port: what is down when a connection fails.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// TLS.
    #[must_use]
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The `authorization` header that user and password of the URL stand for.
    pub(super) fn authorization(&self) -> Option<&Secret> {
        self.authorization.as_ref()
    }

    /// What of the URL is in no line, also not in one that repeats an answer.
    pub(in super::super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.secrets.iter().chain(&self.authorization)
    }
}

/// Basic authentication (RFC 7617).
fn authorization(url: &Url) -> Result<Option<Secret>, &'static str> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user = decoded(url.username()).ok_or("its user is no UTF-8")?;
    let password = decoded(url.password().unwrap_or_default()).ok_or("its password is no UTF-8")?;
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    Ok(Some(Secret::new(format!("Basic {text}"))))
}

/// User, password and what the query says, as they stand there and decoded.
fn secrets(url: &Url) -> Vec<Secret> {
    let raw = |text: &str| [Some(text.to_owned()), decoded(text)];
    let mut all: Vec<String> =
        [url.username(), url.password().unwrap_or_default()].into_iter().flat_map(raw).flatten().collect();
    for pair in url.query().unwrap_or_default().split('&') {
        // A query without names is a value.
        all.extend(raw(pair.split_once('=').map_or(pair, |(_, value)| value)).into_iter().flatten());
    }
    // As a form: with a blank for each plus.
    all.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
    all.retain(|text| !text.is_empty());
    all.into_iter().map(Secret::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str, protocol: Protocol, base: Option<Signal>) -> String {
        Endpoint::new(text, protocol, base, false).expect("an endpoint").url().to_owned()
    }

    #[test]
    fn a_signals_path_is_appended_to_the_base_only_and_never_for_grpc() {
        let http = Protocol::HttpProtobuf;
        assert_eq!(url("http://c:4318", http, Some(Signal::Metrics)), "http://c:4318/v1/metrics");
        assert_eq!(url("http://c/otlp/", http, Some(Signal::Logs)), "http://c/otlp/v1/logs");
        assert_eq!(url("http://c/own?k=v", http, None), "http://c/own?k=v");
        assert_eq!(url("http://c", http, None), "http://c/");
        assert_eq!(url("http://c:4317", Protocol::Grpc, Some(Signal::Traces)), "http://c:4317/");
    }

    #[test]
    fn without_a_scheme_grpc_is_secure_unless_said_otherwise_and_http_is_refused() {
        let grpc = |insecure| Endpoint::new("c:4317", Protocol::Grpc, None, insecure).expect("an endpoint").tls();
        assert!(grpc(false));
        assert!(!grpc(true));
        assert!(Endpoint::new("c:4318", Protocol::HttpJson, None, true).is_err());
        for wrong in ["ftp://c", "http://", "http://c:99999", "https://"] {
            assert!(Endpoint::new(wrong, Protocol::Grpc, None, false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_that_is_printed_has_user_password_or_query() {
        let text = "https://me:sword%40fish@c:4318/p?api-key=tuna";
        let endpoint = Endpoint::new(text, Protocol::HttpProtobuf, None, false).expect("an endpoint");
        let said = format!("{endpoint:?} {} {}", endpoint.shown(), endpoint.origin());
        for secret in ["me:", "sword", "tuna"] {
            assert!(!said.contains(secret), "{said}");
        }
        assert_eq!(endpoint.url(), "https://c:4318/p?api-key=tuna");
        assert_eq!(endpoint.authorization().expect("one").reveal(), "Basic bWU6c3dvcmRAZmlzaA==");
    }
}
