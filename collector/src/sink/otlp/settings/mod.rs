//! The standard `OTEL_*` variables (OpenTelemetry specification, "OpenTelemetry Protocol Exporter" and "Environment
//! Variable Specification"; docs/otlp.md lists those that are read). An empty variable is an unset one. A wrong value is
//! an error at the start, which names the variable and not its value.

mod endpoint;
mod list;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};

pub use self::endpoint::Endpoint;
use super::secret::Secret;

/// A kind of data with an endpoint of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Metrics.
    Metrics,
    /// Log records.
    Logs,
    /// Spans.
    Traces,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Metrics, Self::Logs, Self::Traces];

    /// The word in variables and in what is said.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Logs => "logs",
            Self::Traces => "traces",
        }
    }

    /// One of what it is made of, as what is lost of it is counted.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Metrics => "data points",
            Self::Logs => "log records",
            Self::Traces => "spans",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
            Self::Traces => "/v1/traces",
        }
    }
}

/// How it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP.
    HttpProtobuf,
    /// JSON over HTTP.
    HttpJson,
}

/// Who is trusted, and who this is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM of the authorities that are trusted in the place of the system's.
    pub ca: Option<Vec<u8>>,
    /// PEM of the certificate chain of this client.
    pub certificate: Option<Vec<u8>>,
    /// PEM of its key.
    pub key: Option<Secret>,
}

/// Where and how one signal is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where.
    pub endpoint: Endpoint,
    /// How.
    pub protocol: Protocol,
    /// Headers of every request, names in lower case.
    pub headers: Vec<(String, Secret)>,
    /// A request that takes longer has failed; `None`: however long it takes.
    pub timeout: Option<Duration>,
    /// Requests are compressed with gzip.
    pub gzip: bool,
    /// TLS.
    pub tls: Tls,
}

/// Everything that the variables say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Metrics are sent here.
    pub metrics: Option<Route>,
    /// Log records are sent here.
    pub logs: Option<Route>,
    /// Spans are sent here.
    pub traces: Option<Route>,
    /// Time between two exports of metrics.
    pub interval: Duration,
    /// Attributes of the resource, over those that are found here.
    pub resource: Vec<(String, String)>,
    /// Encoded bytes that may wait while an endpoint takes nothing.
    pub queue_bytes: usize,
}

/// So many bytes may wait where nothing is said: ten exports of the largest node, a day's findings.
pub const DEFAULT_QUEUE_BYTES: usize = 4 << 20;

/// What was asked besides the variables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// `--otlp`: also when no endpoint is set.
    pub on: bool,
    /// `--otlp-spans`: spans too.
    pub spans: bool,
}

/// A variable that cannot be obeyed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {reason}")]
pub struct SettingsError {
    variable: String,
    reason: String,
}

/// The interval of metrics where nothing is said, ms.
const DEFAULT_INTERVAL_MS: u64 = 60_000;
/// The longest export of metrics where nothing is said, ms.
const DEFAULT_EXPORT_TIMEOUT_MS: u64 = 30_000;
/// The longest request where nothing is said, ms.
const DEFAULT_TIMEOUT_MS: u64 = 10_000;
/// A certificate's file is no larger.
const MAX_PEM_BYTES: u64 = 4 << 20;
const NO_PEM: &str = "not the path of a PEM file";

impl Settings {
    /// From the variables of this process. `None`: nothing is to be sent.
    pub fn from_environment(asked: Asked) -> Result<Option<Self>, SettingsError> {
        Self::from(asked, &|name| std::env::var_os(name))
    }

    /// From the variables that `lookup` finds.
    pub fn from(asked: Asked, lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Option<Self>, SettingsError> {
        let variables = Variables { lookup };
        if variables.truth("OTEL_SDK_DISABLED")? {
            return Ok(None);
        }
        let route = |signal| variables.route(signal, asked);
        let (metrics, logs, traces) = (route(Signal::Metrics)?, route(Signal::Logs)?, route(Signal::Traces)?);
        if metrics.is_none() && logs.is_none() && traces.is_none() {
            return Ok(None);
        }
        let interval = variables.milliseconds("OTEL_METRIC_EXPORT_INTERVAL")?.unwrap_or(DEFAULT_INTERVAL_MS);
        if interval == 0 {
            return Err(error("OTEL_METRIC_EXPORT_INTERVAL", "0 is no interval"));
        }
        let temporality = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
        if variables.text(temporality)?.is_some_and(|text| !text.eq_ignore_ascii_case("cumulative")) {
            return Err(error(temporality, "only cumulative is supported"));
        }
        let export = variables.milliseconds("OTEL_METRIC_EXPORT_TIMEOUT")?.unwrap_or(DEFAULT_EXPORT_TIMEOUT_MS);
        let metrics = metrics.map(|mut route| {
            route.timeout = [route.timeout, limit(export)].into_iter().flatten().min();
            route
        });
        Ok(Some(Self {
            metrics,
            logs,
            traces,
            interval: Duration::from_millis(interval),
            resource: variables.resource()?,
            queue_bytes: DEFAULT_QUEUE_BYTES,
        }))
    }

    /// The route of a signal.
    #[must_use]
    pub fn route(&self, signal: Signal) -> Option<&Route> {
        match signal {
            Signal::Metrics => self.metrics.as_ref(),
            Signal::Logs => self.logs.as_ref(),
            Signal::Traces => self.traces.as_ref(),
        }
    }

    /// In a few words: what goes where.
    #[must_use]
    pub fn words(&self) -> String {
        let mut origins: Vec<(&str, Vec<&str>)> = Vec::new();
        for signal in Signal::ALL {
            let Some(route) = self.route(signal) else { continue };
            match origins.iter_mut().find(|(origin, _)| *origin == route.endpoint.origin()) {
                Some((_, names)) => names.push(signal.name()),
                None => origins.push((route.endpoint.origin(), vec![signal.name()])),
            }
        }
        let words = origins.into_iter().map(|(origin, names)| format!("OTLP {} to {origin}", names.join("+")));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// 0 is no limit (OpenTelemetry specification, "Environment Variable Specification", timeouts).
fn limit(ms: u64) -> Option<Duration> {
    (ms > 0).then(|| Duration::from_millis(ms))
}

fn error(variable: &str, reason: impl Into<String>) -> SettingsError {
    SettingsError { variable: variable.to_owned(), reason: reason.into() }
}

struct Variables<'l> {
    lookup: &'l dyn Fn(&str) -> Option<OsString>,
}

impl Variables<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, SettingsError> {
        let Some(text) = (self.lookup)(name) else { return Ok(None) };
        let text = text.into_string().map_err(|_| error(name, "no UTF-8"))?;
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }

    fn truth(&self, name: &str) -> Result<bool, SettingsError> {
        match self.text(name)? {
            None => Ok(false),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(error(name, "neither true nor false")),
        }
    }

    fn milliseconds(&self, name: &str) -> Result<Option<u64>, SettingsError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| error(name, "no whole number of milliseconds"))
    }

    /// A signal's own variable, or else the one of all signals; with the name of the one it is.
    fn either(&self, signal: Signal, what: &str) -> Result<Option<(String, String)>, SettingsError> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.name().to_uppercase());
        let all = format!("OTEL_EXPORTER_OTLP_{what}");
        for name in [own, all] {
            if let Some(text) = self.text(&name)? {
                return Ok(Some((name, text)));
            }
        }
        Ok(None)
    }

    /// What `OTEL_…_EXPORTER` says of a signal; `None` when it says nothing.
    fn wanted(&self, signal: Signal) -> Result<Option<bool>, SettingsError> {
        let name = format!("OTEL_{}_EXPORTER", signal.name().to_uppercase());
        match self.text(&name)?.as_deref() {
            None => Ok(None),
            Some("otlp") => Ok(Some(true)),
            Some("none") => Ok(Some(false)),
            Some(_) => Err(error(&name, "neither otlp nor none")),
        }
    }

    fn route(&self, signal: Signal, asked: Asked) -> Result<Option<Route>, SettingsError> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name().to_uppercase());
        let endpoint = match (self.text(&own)?, self.text("OTEL_EXPORTER_OTLP_ENDPOINT")?) {
            (Some(text), _) => Some((own, text, None)),
            (None, Some(text)) => Some(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), text, Some(signal))),
            (None, None) => None,
        };
        // Without either, what other programs of this environment export to is no business of this one.
        if endpoint.is_none() && !asked.on {
            return Ok(None);
        }
        let unless_said = signal != Signal::Traces || asked.spans;
        if !self.wanted(signal)?.unwrap_or(unless_said) {
            return Ok(None);
        }
        let protocol = match self.either(signal, "PROTOCOL")? {
            None => Protocol::HttpProtobuf,
            Some((name, text)) => match text.as_str() {
                "grpc" => Protocol::Grpc,
                "http/protobuf" => Protocol::HttpProtobuf,
                "http/json" => Protocol::HttpJson,
                _ => return Err(error(&name, "none of grpc, http/protobuf, http/json")),
            },
        };
        let insecure = match self.either(signal, "INSECURE")? {
            Some((name, _)) => self.truth(&name)?,
            None => false,
        };
        let (name, text, base) =
            endpoint.unwrap_or_else(|| (String::new(), endpoint::default(protocol).to_owned(), Some(signal)));
        let endpoint = Endpoint::new(&text, protocol, base, insecure).map_err(|reason| error(&name, reason))?;
        let gzip = match self.either(signal, "COMPRESSION")? {
            None => false,
            Some((name, text)) => match text.as_str() {
                "gzip" => true,
                "none" => false,
                _ => return Err(error(&name, "neither gzip nor none")),
            },
        };
        let timeout = match self.either(signal, "TIMEOUT")? {
            None => DEFAULT_TIMEOUT_MS,
            Some((name, _)) => self.milliseconds(&name)?.unwrap_or(DEFAULT_TIMEOUT_MS),
        };
        let mut headers = self.headers(signal)?;
        if let Some(authorization) = endpoint.authorization()
            && !headers.iter().any(|(name, _)| name == "authorization")
        {
            headers.push(("authorization".to_owned(), authorization.clone()));
        }
        // Files that nothing will use are not looked for.
        let tls = if endpoint.tls() { self.tls(signal)? } else { Tls::default() };
        Ok(Some(Route { endpoint, protocol, headers, timeout: limit(timeout), gzip, tls }))
    }

    fn headers(&self, signal: Signal) -> Result<Vec<(String, Secret)>, SettingsError> {
        let Some((variable, text)) = self.either(signal, "HEADERS")? else { return Ok(Vec::new()) };
        let pairs = list::pairs(&text)
            .map_err(|at| error(&variable, format!("entry {at} is no name=value with a percent-encoded value")))?;
        let mut headers = Vec::new();
        for (at, (name, value)) in pairs.into_iter().enumerate() {
            let wrong = |what| error(&variable, format!("the {what} of header {} cannot be sent", at + 1));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("name"))?;
            // gRPC takes only visible ASCII, and names that end in -bin are binary there.
            let sendable = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
            if !sendable || HeaderValue::from_str(&value).is_err() {
                return Err(wrong("value"));
            }
            if name.as_str().ends_with("-bin") {
                return Err(wrong("name"));
            }
            headers.push((name.as_str().to_owned(), Secret::new(value)));
        }
        Ok(headers)
    }

    fn tls(&self, signal: Signal) -> Result<Tls, SettingsError> {
        let read = |what: &str| -> Result<Option<(String, Vec<u8>)>, SettingsError> {
            let Some((variable, path)) = self.either(signal, what)? else { return Ok(None) };
            let bytes = read_pem(&PathBuf::from(path)).map_err(|reason| error(&variable, reason))?;
            Ok(Some((variable, bytes)))
        };
        let ca = read("CERTIFICATE")?;
        let certificate = read("CLIENT_CERTIFICATE")?;
        let key = read("CLIENT_KEY")?;
        match (&certificate, &key) {
            (Some((variable, _)), None) => return Err(error(variable, "without its key (…_CLIENT_KEY)")),
            (None, Some((variable, _))) => {
                return Err(error(variable, "without its certificate (…_CLIENT_CERTIFICATE)"));
            }
            _ => {}
        }
        let key = key
            .map(|(variable, bytes)| String::from_utf8(bytes).map(Secret::new).map_err(|_| error(&variable, "no PEM")));
        Ok(Tls { ca: ca.map(|(_, pem)| pem), certificate: certificate.map(|(_, pem)| pem), key: key.transpose()? })
    }

    fn resource(&self) -> Result<Vec<(String, String)>, SettingsError> {
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        let mut attributes: Vec<(String, String)> = match self.text(name)? {
            None => Vec::new(),
            Some(text) => list::pairs(&text)
                .map_err(|at| error(name, format!("entry {at} is no name=value with a percent-encoded value")))?,
        };
        // A resource has one attribute of a name: the last that is said.
        let all = std::mem::take(&mut attributes);
        for (name, value) in all {
            attributes.retain(|(known, _)| *known != name);
            attributes.push((name, value));
        }
        if let Some(service) = self.text("OTEL_SERVICE_NAME")? {
            attributes.retain(|(name, _)| name != "service.name");
            attributes.push(("service.name".to_owned(), service));
        }
        Ok(attributes)
    }
}

/// Reads a PEM file. The reason says neither the content nor the path: what was meant to be a path may be a key.
fn read_pem(path: &std::path::Path) -> Result<Vec<u8>, String> {
    let unreadable = |error| format!("cannot read the file that it names: {error}");
    let size = std::fs::metadata(path).map_err(unreadable)?;
    if !size.is_file() || size.len() > MAX_PEM_BYTES {
        return Err(NO_PEM.to_owned());
    }
    let pem = std::fs::read(path).map_err(unreadable)?;
    let begins = b"-----BEGIN ";
    if !pem.windows(begins.len()).any(|window| window == begins) {
        return Err(NO_PEM.to_owned());
    }
    Ok(pem)
}

#[cfg(test)]
mod tests;
