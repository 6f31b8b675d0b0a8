//! Handshakes over a stream in memory, with certificates made on the spot.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_rustls::TlsAcceptor;

use super::*;

/// A certificate for a name, and its key.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(crate) fn new(name: &str) -> Identity {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Identity { certificate: made.cert.der().clone(), key: key.into() }
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// A server that shows this certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor_of(&self.key, rustls::ALL_VERSIONS)
    }

    fn acceptor_of(
        &self,
        key: &PrivateKeyDer<'_>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> TlsAcceptor {
        let key = provider().key_provider.load_private_key(key.clone_key()).unwrap();
        // Unlike the usual way this does not check that key and certificate belong together.
        let certified = CertifiedKey::new(vec![self.certificate.clone()], key);
        let resolver: Arc<dyn ResolvesServerCert> = Arc::new(SingleCertAndKey::from(certified));
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        TlsAcceptor::from(Arc::new(config))
    }
}

/// What a client says of a server that echoes five bytes.
async fn meet(acceptor: TlsAcceptor, name: &str, config: Arc<ClientConfig>) -> Result<(), TlsError> {
    let (near, far) = duplex(4096);
    let server = tokio::spawn(async move {
        let mut stream = acceptor.accept(far).await?;
        let mut word = [0; 5];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.flush().await
    });
    let mut stream = connect(Box::new(near), name, config).await?;
    stream.write_all(b"hello").await.unwrap();
    stream.flush().await.unwrap();
    let mut word = [0; 5];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"hello");
    server.await.unwrap().unwrap();
    Ok(())
}

#[tokio::test]
async fn the_pinned_certificate_counts_under_any_name_and_version() {
    let hub = Identity::new("hub.home");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for name in ["elsewhere.example", "192.168.1.7", "fe80::1"] {
            let acceptor = hub.acceptor_of(&hub.key, &[version]);
            meet(acceptor, name, pinned_config(hub.fingerprint()).unwrap()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn another_certificate_is_refused_and_both_fingerprints_are_said() {
    let (hub, other) = (Identity::new("hub.home"), Identity::new("hub.home"));
    let config = pinned_config(hub.fingerprint()).unwrap();
    let error = meet(other.acceptor(), "hub.home", config).await.unwrap_err();
    assert!(matches!(error, TlsError::Untrusted(_)));
    let error = error.to_string();
    assert!(error.contains(&hub.fingerprint().to_string()), "{error}");
    assert!(error.contains(&other.fingerprint().to_string()), "{error}");
}

#[tokio::test]
async fn the_pinned_certificate_without_its_key_is_refused() {
    let (hub, thief) = (Identity::new("hub.home"), Identity::new("hub.home"));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let acceptor = hub.acceptor_of(&thief.key, &[version]);
        let config = pinned_config(hub.fingerprint()).unwrap();
        let error = meet(acceptor, "hub.home", config).await.unwrap_err();
        assert!(matches!(error, TlsError::Untrusted(_)), "{error}");
    }
}

#[tokio::test]
async fn authorities_vouch_for_a_name_and_not_for_another() {
    let hub = Identity::new("hub.example");
    let config = || {
        let mut roots = RootCertStore::empty();
        roots.add(hub.certificate.clone()).unwrap();
        rooted_config(roots).unwrap()
    };
    meet(hub.acceptor(), "hub.example", config()).await.unwrap();
    let error = meet(hub.acceptor(), "other.example", config()).await.unwrap_err();
    assert!(matches!(error, TlsError::Untrusted(_)), "{error}");
    let stranger = Identity::new("hub.example");
    let error = meet(stranger.acceptor(), "hub.example", config()).await.unwrap_err();
    assert!(matches!(error, TlsError::Untrusted(_)), "{error}");
}

#[tokio::test]
async fn the_system_does_not_trust_a_certificate_nobody_signed() {
    let hub = Identity::new("hub.example");
    let (near, far) = duplex(4096);
    // The client ends the handshake, so the server's part fails; that is the point.
    let server = tokio::spawn(async move { hub.acceptor().accept(far).await.is_err() });
    let error = client(Box::new(near), "hub.example", &Trust::System).await.err().unwrap();
    assert!(matches!(&error, TlsError::Untrusted(reason) if reason.contains("fingerprint")), "{error}");
    assert!(server.await.unwrap());
}

#[tokio::test]
async fn a_server_without_tls_and_a_broken_line_are_told_apart() {
    let trust = Trust::Pinned(Fingerprint::of(b"anything"));
    let (near, mut far) = duplex(4096);
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let error = client(Box::new(near), "hub", &trust).await.err().unwrap();
    assert!(error.to_string().contains("does not speak TLS"), "{error}");
    let (near, far) = duplex(4096);
    drop(far);
    let error = client(Box::new(near), "hub", &trust).await.err().unwrap();
    assert!(matches!(error, TlsError::Io(_)), "{error}");
}

#[test]
fn fingerprints_are_read_as_tools_print_them() {
    let fingerprint = Fingerprint::of(b"certificate");
    let text = fingerprint.to_string();
    assert_eq!(text.len(), 64);
    assert_eq!(text.parse(), Ok(fingerprint));
    let pairs: Vec<String> =
        text.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).to_uppercase()).collect();
    assert_eq!(pairs.join(":").parse(), Ok(fingerprint));
    for bad in ["", "ab", &text[1..], &format!("{text}0"), &text.replace(&text[..1], "g")] {
        assert_eq!(bad.parse::<Fingerprint>(), Err(BadFingerprint), "{bad}");
    }
}
