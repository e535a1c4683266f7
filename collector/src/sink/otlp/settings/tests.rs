use super::*;

fn settings(asked: Asked, variables: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
    Settings::from(asked, &|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
}

fn on(variables: &[(&str, &str)]) -> Settings {
    settings(Asked::default(), variables).expect("no error").expect("on")
}

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");

#[test]
fn nothing_is_sent_unless_an_endpoint_is_set_or_it_is_asked_for() {
    assert_eq!(settings(Asked::default(), &[]), Ok(None));
    assert_eq!(settings(Asked::default(), &[("OTEL_METRICS_EXPORTER", "otlp"), ("OTEL_SERVICE_NAME", "x")]), Ok(None));
    assert_eq!(settings(Asked::default(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]), Ok(None), "empty is unset");
    let asked = settings(Asked { on: true, spans: false }, &[]).expect("no error").expect("on");
    assert_eq!(asked.metrics.as_ref().map(|route| route.endpoint.url()), Some("http://localhost:4318/v1/metrics"));
    assert!(asked.logs.is_some() && asked.traces.is_none());
    let grpc = settings(Asked { on: true, spans: true }, &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    let grpc = grpc.expect("no error").expect("on");
    assert_eq!(grpc.traces.map(|route| route.endpoint.url().to_owned()).as_deref(), Some("http://localhost:4317/"));
}

#[test]
fn a_signal_of_its_own_is_sent_alone_and_the_disabled_sdk_sends_nothing() {
    let logs = on(&[("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://l:1/x")]);
    assert_eq!(logs.logs.as_ref().map(|route| route.endpoint.url()), Some("http://l:1/x"));
    assert!(logs.metrics.is_none() && logs.traces.is_none());
    let asked = Asked { on: true, spans: true };
    assert_eq!(settings(asked, &[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(None));
    let none = [("OTEL_METRICS_EXPORTER", "none"), ("OTEL_LOGS_EXPORTER", "none")];
    assert_eq!(settings(Asked::default(), &[ENDPOINT, none[0], none[1]]), Ok(None));
}

#[test]
fn spans_are_opt_in() {
    assert!(on(&[ENDPOINT]).traces.is_none());
    assert!(on(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "otlp")]).traces.is_some());
    let asked = Asked { on: false, spans: true };
    assert!(settings(asked, &[ENDPOINT]).expect("no error").expect("on").traces.is_some());
    let never = settings(asked, &[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]);
    assert!(never.expect("no error").expect("on").traces.is_none());
}

#[test]
fn a_signals_own_variables_go_before_those_of_all() {
    let settings = on(&[
        ENDPOINT,
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:9"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20all"),
        ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "x-logs=1"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_LOGS_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "2500"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "700"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "Cumulative"),
    ]);
    let (metrics, logs) = (settings.metrics.expect("on"), settings.logs.expect("on"));
    assert_eq!((metrics.protocol, metrics.gzip, metrics.timeout), (Protocol::Grpc, true, limit(700)));
    assert_eq!(metrics.headers, [("authorization".to_owned(), Secret::new("Bearer all"))]);
    assert_eq!((logs.protocol, logs.gzip, logs.timeout), (Protocol::HttpJson, false, limit(2500)));
    assert_eq!(logs.headers, [("x-logs".to_owned(), Secret::new("1"))]);
    assert_eq!(settings.interval, Duration::from_millis(1500));
    let words = on(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:9/x?k=tuna")]).words();
    assert_eq!(words, "OTLP metrics to http://m:9, OTLP logs to http://c:4318");
}

#[test]
fn the_defaults_are_the_specifications() {
    let settings = on(&[ENDPOINT]);
    assert_eq!(settings.interval, Duration::from_secs(60));
    let logs = settings.logs.expect("on");
    assert_eq!((logs.protocol, logs.timeout), (Protocol::HttpProtobuf, limit(10_000)));
    assert!(!logs.gzip && logs.headers.is_empty());
}

#[test]
fn a_wrong_value_is_named_by_its_variable_and_never_told() {
    let base = "OTEL_EXPORTER_OTLP_";
    for (name, value) in [
        ("ENDPOINT", "swordfish:4318"),
        ("ENDPOINT", "http://u:swordfish@c:port"),
        ("LOGS_ENDPOINT", "swordfish://c"),
        ("PROTOCOL", "swordfish"),
        ("METRICS_PROTOCOL", "swordfish"),
        ("HEADERS", "a=1,swordfish"),
        ("LOGS_HEADERS", "a b=swordfish"),
        ("HEADERS", "a=sword%0afish"),
        ("HEADERS", "a-bin=swordfish"),
        ("TIMEOUT", "swordfish"),
        ("METRICS_TIMEOUT", "-1"),
        ("COMPRESSION", "swordfish"),
        ("INSECURE", "swordfish"),
        ("METRICS_TEMPORALITY_PREFERENCE", "delta"),
    ] {
        let variable = format!("{base}{name}");
        let error = settings(Asked { on: true, spans: false }, &[(&variable, value)]).expect_err("refused").to_string();
        assert!(error.starts_with(&format!("{variable}: ")) && !error.contains('\n'), "{error}");
        assert!(!error.contains("sword"), "{error}");
    }
    for (variable, value) in [
        ("OTEL_SDK_DISABLED", "swordfish"),
        ("OTEL_METRICS_EXPORTER", "swordfish"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "1.5"),
        ("OTEL_RESOURCE_ATTRIBUTES", "swordfish"),
    ] {
        let error = settings(Asked { on: true, spans: false }, &[(variable, value)]).expect_err("refused").to_string();
        assert!(error.starts_with(variable) && !error.contains("sword"), "{error}");
    }
}

#[test]
fn certificates_are_read_at_the_start_for_tls_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let pem = at("pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let key = at("key", "-----BEGIN PRIVATE KEY-----\nswordfish\n");
    let other = at("other", "swordfish");
    let https = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c");
    let [ca, certificate, private] =
        ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"].map(|name| format!("OTEL_EXPORTER_OTLP_{name}"));
    let all = on(&[https, (&ca, &pem), (&certificate, &pem), (&private, &key)]);
    let tls = &all.logs.as_ref().expect("on").tls;
    assert!(tls.ca.is_some() && tls.certificate.is_some() && tls.key.is_some());
    assert!(!format!("{all:?}").contains("swordfish"));
    for (variable, file) in [(&ca, "/nowhere"), (&ca, &*other), (&certificate, &*pem), (&private, &*key)] {
        let error = settings(Asked::default(), &[https, (variable, file)]).expect_err("refused").to_string();
        assert!(error.starts_with(variable.as_str()) && !error.contains("swordfish"), "{error}");
    }
    assert!(settings(Asked::default(), &[ENDPOINT, (&ca, "/nowhere")]).is_ok());
}

#[test]
fn a_key_or_token_in_the_place_of_a_path_is_not_told() {
    let https = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c");
    let long = "swordfish".repeat(1000);
    for name in ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "LOGS_CERTIFICATE", "METRICS_CLIENT_KEY"] {
        let variable = format!("OTEL_EXPORTER_OTLP_{name}");
        for value in
            ["-----BEGIN PRIVATE KEY-----\nswordfish\n-----END PRIVATE KEY-----", "swordfish", "/swordfish", &long]
        {
            let error = settings(Asked::default(), &[https, (&variable, value)]).expect_err("refused").to_string();
            assert!(error.starts_with(&format!("{variable}: cannot read ")) && error.len() < 200, "{error}");
            assert!(!error.contains("sword") && !error.contains("BEGIN") && !error.contains('\n'), "{error}");
        }
    }
    // What exists and is none is not told either.
    let dir = tempfile::tempdir().expect("a directory");
    for (path, text) in [(dir.path().join("swordfish.pem"), Some("tuna")), (dir.path().join("swordfish"), None)] {
        match text {
            Some(text) => std::fs::write(&path, text).expect("written"),
            None => std::fs::create_dir(&path).expect("made"),
        }
        let ca = ("OTEL_EXPORTER_OTLP_CERTIFICATE", &*path.display().to_string());
        let error = settings(Asked::default(), &[https, ca]).expect_err("refused").to_string();
        assert_eq!(error, "OTEL_EXPORTER_OTLP_CERTIFICATE: not the path of a PEM file");
    }
}

#[test]
fn resource_attributes_are_decoded_and_the_service_name_goes_before_them() {
    let settings = on(&[
        ENDPOINT,
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,deployment.environment.name=rack%207"),
        ("OTEL_SERVICE_NAME", "fabric"),
    ]);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(settings.resource, [pair("deployment.environment.name", "rack 7"), pair("service.name", "fabric")]);
}

#[test]
fn of_a_resource_attribute_that_is_said_twice_the_last_is_sent() {
    let settings = on(&[ENDPOINT, ("OTEL_RESOURCE_ATTRIBUTES", "a=1,b=2,a=3,a=4")]);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(settings.resource, [pair("b", "2"), pair("a", "4")]);
}

#[test]
fn an_exporter_this_program_has_not_is_an_error_only_where_something_is_to_be_sent() {
    let console = ["TRACES", "LOGS", "METRICS"].map(|signal| format!("OTEL_{signal}_EXPORTER"));
    for variable in &console {
        assert_eq!(settings(Asked::default(), &[(variable, "console")]), Ok(None), "{variable}");
        assert!(settings(Asked::default(), &[ENDPOINT, (variable, "console")]).is_err(), "{variable}");
        assert!(settings(Asked { on: true, spans: true }, &[(variable, "console")]).is_err(), "{variable}");
    }
    // Of the other signals nobody was asked.
    let metrics = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:1");
    assert!(on(&[metrics, (&console[0], "console"), (&console[1], "console")]).metrics.is_some());
}
