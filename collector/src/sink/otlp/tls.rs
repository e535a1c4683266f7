//! Whom a TLS connection over HTTP trusts. The cryptography is named here and not installed for the whole process.
//! (gRPC's own transport does the same with the same roots.)

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::settings::Tls;

/// The TLS side of a client; `None`: of one that uses none, and trusts nobody. The error says what is wrong, and nothing
/// of a key.
pub(super) fn client(tls: Option<&Tls>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(tls.map_or_else(|| Ok(RootCertStore::empty()), roots)?);
    match tls.map(|tls| (&tls.certificate, &tls.key)) {
        Some((Some(certificate), Some(key))) => {
            let chain = certificates(certificate).map_err(|()| "no certificate in the client's certificate file")?;
            let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
                .map_err(|_| "no private key in the client's key file")?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|_| "the client's key and certificate do not belong together".to_owned())
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

/// The given authorities, or else the system's.
fn roots(tls: &Tls) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let (certificates, whose) = match &tls.ca {
        Some(pem) => (certificates(pem).map_err(|()| "no certificate in the authorities' file")?, "the given"),
        None => (rustls_native_certs::load_native_certs().certs, "the system's"),
    };
    let (taken, _) = roots.add_parsable_certificates(certificates);
    if taken == 0 {
        return Err(format!("{whose} certificate authorities cannot be used"));
    }
    Ok(roots)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ()> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|_| ())?;
    if all.is_empty() { Err(()) } else { Ok(all) }
}
