//! TLS for those who dial: certificates are checked by the system's authorities, or pinned by their fingerprint.
//!
//! A pinned fingerprint also works for certificates that a hub made for itself; an invite code carries it.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsConnector;

use crate::net::BoxedStream;

/// The SHA-256 of a certificate in DER form, written in hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// Whose certificates count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those that the system's authorities signed for the host's name.
    #[default]
    System,
    /// Exactly this one, whatever name it carries.
    Pinned(Fingerprint),
}

/// Why there is no TLS connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The network failed; trying again may help.
    #[error("the TLS handshake failed: {0}")]
    Io(#[source] io::Error),
    /// The server is not the one that is trusted, or does not speak TLS.
    #[error("{0}")]
    Untrusted(String),
}

/// The text is no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is the SHA-256 of a certificate in 64 hex digits")]
pub struct BadFingerprint;

/// Puts TLS on a stream to `host`.
pub async fn client(io: BoxedStream, host: &str, trust: &Trust) -> Result<BoxedStream, TlsError> {
    let config = match trust {
        Trust::System => system_config()?,
        Trust::Pinned(fingerprint) => pinned_config(*fingerprint)?,
    };
    connect(io, host, config).await
}

/// The cryptography used everywhere; the process's default is never relied on.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

async fn connect(io: BoxedStream, host: &str, config: Arc<ClientConfig>) -> Result<BoxedStream, TlsError> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| TlsError::Untrusted(format!("'{host}' cannot be the name of a server")))?;
    let stream = TlsConnector::from(config).connect(name, io).await.map_err(explain)?;
    Ok(Box::new(stream))
}

fn explain(error: io::Error) -> TlsError {
    let Some(rustls_error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return TlsError::Io(error);
    };
    match rustls_error {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(reason))) => {
            TlsError::Untrusted(reason.to_string())
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => TlsError::Untrusted(
            "the server's certificate is signed by nobody this system trusts; \
             for a self-signed hub give its fingerprint"
                .to_owned(),
        ),
        rustls::Error::InvalidMessage(_) => {
            TlsError::Untrusted("the server does not speak TLS; is the address right?".to_owned())
        }
        other => TlsError::Untrusted(format!("the TLS handshake failed: {other}")),
    }
}

/// Loaded once per process, since every connection needs it. A failure is not kept, so that installing certificates
/// helps without a restart.
fn system_config() -> Result<Arc<ClientConfig>, TlsError> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _unreadable) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(TlsError::Untrusted(format!(
            "this system has no certificate authorities ({}); install them or give the hub's fingerprint",
            reasons.join("; ")
        )));
    }
    let config = rooted_config(roots)?;
    Ok(CONFIG.get_or_init(|| config).clone())
}

fn rooted_config(roots: RootCertStore) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| TlsError::Untrusted(format!("the system's authorities cannot be used: {error}")))?;
    config(verifier)
}

fn pinned_config(fingerprint: Fingerprint) -> Result<Arc<ClientConfig>, TlsError> {
    config(Arc::new(PinnedVerifier { fingerprint, provider: provider() }))
}

/// Both kinds of trust go through one verifier, so that both get the same protocol versions and cryptography.
fn config(verifier: Arc<dyn ServerCertVerifier>) -> Result<Arc<ClientConfig>, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Untrusted(format!("TLS cannot be set up: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Takes one certificate, and only from whoever has its key.
#[derive(Debug)]
struct PinnedVerifier {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the server shows another certificate (SHA-256 {shown}) than the one expected ({expected}); \
     somebody may stand in between, or the hub has a new certificate"
)]
struct WrongFingerprint {
    shown: Fingerprint,
    expected: Fingerprint,
}

impl ServerCertVerifier for PinnedVerifier {
    // A pinned certificate is trusted as such: neither its issuer, its name nor its dates are looked at.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = Fingerprint::of(end_entity);
        if shown == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongFingerprint { shown, expected: self.fingerprint };
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(wrong)))))
    }

    // The certificate is public, so showing it proves nothing. Whoever shows it must sign with its key.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Fingerprint {
    /// The fingerprint of a certificate in DER form.
    pub fn of(certificate: &[u8]) -> Fingerprint {
        Fingerprint(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Hex in either case; colons between the bytes, as other tools print them, are allowed.
impl FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, BadFingerprint> {
        let digits: Option<Vec<u8>> = text
            .chars()
            .filter(|character| *character != ':')
            .map(|character| character.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or(BadFingerprint)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        Ok(Fingerprint(bytes))
    }
}

#[cfg(test)]
pub(crate) mod tests;
