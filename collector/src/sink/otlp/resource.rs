//! The resource: which node and which program all of it is from (OpenTelemetry semantic conventions, `host`, `os`,
//! `service`). `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` go before what is found here.

use opentelemetry_proto::tonic::resource::v1::Resource;

use super::attribute::Attributes;
use crate::observation::recording::Header;

/// The resource of a node with this header.
pub(super) fn resource(header: &Header, configured: &[(String, String)]) -> Resource {
    let host = header.host.as_deref();
    let found = [
        ("service.name", Some("rdmascope")),
        ("service.version", Some(env!("CARGO_PKG_VERSION"))),
        // One on each node.
        ("service.instance.id", host),
        ("host.name", host),
        ("os.type", Some("linux")),
        ("os.version", header.kernel.as_deref()),
    ];
    let mut attributes = Attributes::default();
    for (name, value) in found {
        if !configured.iter().any(|(other, _)| other == name) {
            attributes = attributes.some_text(name, value);
        }
    }
    for (name, value) in configured {
        attributes = attributes.text(name, value);
    }
    Resource { attributes: attributes.done(), ..Resource::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_goes_before_what_is_found_and_the_unknown_is_absent() {
        let header = Header { host: Some("node7".into()), ..Header::new() };
        let configured = [("service.name".to_owned(), "fabric".to_owned()), ("rack".to_owned(), "7".to_owned())];
        let resource = resource(&header, &configured);
        let names: Vec<&str> = resource.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
        let expected = ["service.version", "service.instance.id", "host.name", "os.type", "service.name", "rack"];
        assert_eq!(names, expected);
    }
}
