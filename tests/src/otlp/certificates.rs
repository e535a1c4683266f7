//! Authorities and certificates, made anew by openssl for each test that wants some.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// An authority in a directory of its own.
pub struct Authority {
    dir: tempfile::TempDir,
}

impl Authority {
    /// Makes one.
    ///
    /// # Panics
    /// openssl does not run.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let authority = Self { dir: tempfile::tempdir().expect("a temporary directory") };
        let (key, certificate) = (authority.at("ca.key"), authority.certificate());
        openssl(
            ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
                .map(str::to_owned)
                .into_iter()
                .chain(["-subj".to_owned(), format!("/CN={name}"), "-keyout".to_owned(), text(&key)])
                .chain(["-out".to_owned(), text(&certificate)]),
        );
        authority
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The PEM file of its own certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.at("ca.pem")
    }

    /// Issues a certificate for a host; the PEM files of certificate and key.
    ///
    /// # Panics
    /// openssl does not run.
    #[must_use]
    pub fn issue(&self, host: &str) -> (PathBuf, PathBuf) {
        let (key, request) = (self.at(&format!("{host}.key")), self.at(&format!("{host}.csr")));
        let (certificate, extensions) = (self.at(&format!("{host}.pem")), self.at(&format!("{host}.ext")));
        std::fs::write(&extensions, format!("subjectAltName=DNS:{host}\n")).expect("written");
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let new = words("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj");
        openssl(
            new.into_iter()
                .chain([format!("/CN={host}"), "-keyout".into(), text(&key)])
                .chain(["-out".into(), text(&request)]),
        );
        let sign = words("x509 -req -days 2 -set_serial 7");
        let files = [
            ("-in", &request),
            ("-CA", &self.certificate()),
            ("-CAkey", &self.at("ca.key")),
            ("-extfile", &extensions),
            ("-out", &certificate),
        ];
        openssl(sign.into_iter().chain(files.into_iter().flat_map(|(flag, file)| [flag.to_owned(), text(file)])));
        (certificate, key)
    }

    /// A server that is this host; `clients`: and wants a certificate of this authority's.
    ///
    /// # Panics
    /// openssl does not run.
    #[must_use]
    pub fn server(&self, host: &str, clients: bool) -> ServerConfig {
        let (certificate, key) = self.issue(host);
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the default versions");
        let builder = if clients {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(self.certificate()).expect("PEM")).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let chain = vec![CertificateDer::from_pem_file(certificate).expect("PEM")];
        builder.with_single_cert(chain, PrivateKeyDer::from_pem_file(key).expect("PEM")).expect("they fit")
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn openssl(arguments: impl Iterator<Item = String>) {
    let mut command = Command::new("openssl");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.stderr(Stdio::piped()).output().expect("openssl runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
