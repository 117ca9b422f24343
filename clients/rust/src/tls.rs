//! The four TLS modes. A connection never falls back from the one it was given.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

use crate::error::TicketError;

/// How connections are secured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Not at all: for loopback, or a network that nobody else is on.
    #[default]
    Off,
    /// TLS 1.2 or 1.3; the server's certificate has to be valid for the host that was dialled, by the platform's roots
    /// (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others).
    SystemRoots,
    /// The same, by the CA certificates of this PEM file alone.
    Ca(PathBuf),
    /// TLS without verification, for tests: whoever is in between can read and take every lock.
    InsecureSkipVerify,
}

/// What connections are made with.
pub(crate) struct Connector {
    pub(crate) connector: TlsConnector,
    /// Whether the other side has to prove its name.
    pub(crate) verified: bool,
}

fn unusable(detail: String) -> TicketError {
    TicketError::Io { detail: format!("tls: {detail}") }
}

impl Connector {
    /// `None` without TLS. `Io` where the roots cannot be used.
    pub(crate) fn new(mode: &TlsMode) -> Result<Option<Self>, TicketError> {
        let roots = match mode {
            TlsMode::Off => return Ok(None),
            TlsMode::SystemRoots => Some(system_roots()?),
            TlsMode::Ca(path) => Some(roots_of(path)?),
            TlsMode::InsecureSkipVerify => {
                log::warn!("TLS without verification: whoever is in between can read and take every lock");
                None
            }
        };
        let verified = roots.is_some();
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?;
        let config = match roots {
            Some(roots) => builder.with_root_certificates(roots).with_no_client_auth(),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(NoVerification(provider)))
                .with_no_client_auth(),
        };
        Ok(Some(Self { connector: TlsConnector::from(Arc::new(config)), verified }))
    }
}

/// The name that the server has to prove.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned()).map_err(|_| format!("'{host}' is no name that a certificate can bear"))
}

fn system_roots() -> Result<RootCertStore, TicketError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        return Err(unusable(format!(
            "the platform has no root certificates{reasons}; install them, or name a CA"
        )));
    }
    Ok(roots)
}

fn roots_of(path: &PathBuf) -> Result<RootCertStore, TicketError> {
    let hint = || format!("'{}' is no usable CA file", path.display());
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(format!("{}: {error}", hint())))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|error| unusable(format!("{}: {error}", hint())))?;
    }
    if roots.is_empty() {
        return Err(unusable(format!("{}: it holds no certificate in PEM", hint())));
    }
    Ok(roots)
}

/// Checks that the server has the key of its certificate, and nothing else.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TicketErrorKind;

    #[test]
    fn a_ca_file_that_cannot_be_used_is_told_when_the_broker_is_made() {
        for path in ["/nowhere/ca.crt", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")] {
            let error = Connector::new(&TlsMode::Ca(path.into())).err().expect("no roots");
            assert_eq!(error.kind(), TicketErrorKind::Io);
            assert!(error.to_string().contains(path), "{error}");
        }
    }

    #[test]
    fn only_verified_modes_have_servers_prove_their_names() {
        assert!(Connector::new(&TlsMode::Off).unwrap().is_none());
        assert!(!Connector::new(&TlsMode::InsecureSkipVerify).unwrap().unwrap().verified);
    }
}
