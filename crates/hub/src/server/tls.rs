//! The hub's certificate: from the owner's files, or a self-signed one made on the first start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qd_link::clock::now_ms;
use qd_link::net::BoxedStream;
use qd_link::tls::Fingerprint;
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Duration, timeout};
use tokio_rustls::LazyConfigAcceptor;

/// Nobody renews a self-signed certificate, so it lasts; those who use it trust its fingerprint.
const SELF_SIGNED_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A clock that is a little behind ours finds the certificate good already.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(24 * 3600);
/// The names under which every machine reaches itself.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const CERTIFICATE_FILE: &str = "cert.pem";
const KEY_FILE: &str = "key.pem";
/// The first byte of a TLS connection: a record that carries a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// How long a peer that spoke plain HTTP gets to read what we say to that.
const ANSWER_GRACE: Duration = Duration::from_secs(1);
const USE_HTTPS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 74\r\nConnection: close\r\n\r\n\
    This hub speaks TLS here; use https:// (or wss://) instead of plain http.\n";

/// What the hub proves itself with. Clones share it.
#[derive(Clone)]
pub struct HubTls {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    /// Whether the file has no certificates of issuers.
    is_alone: bool,
}

/// Why there is no certificate to serve with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(
        "the certificate file {path} cannot be used: {reason}; it must hold PEM certificates, the hub's own first"
    )]
    Certificate { path: PathBuf, reason: String },
    #[error(
        "the key file {path} cannot be used: {reason}; it must hold one PEM private key, without a passphrase"
    )]
    Key { path: PathBuf, reason: String },
    #[error("the certificate {certificate} and the key {key} cannot be used together: {reason}")]
    Pair { certificate: PathBuf, key: PathBuf, reason: String },
    #[error(
        "the key {key} of the certificate {certificate} is gone; put it back, or delete the certificate too: then a new one is made, and every runner has to join again"
    )]
    KeyGone { certificate: PathBuf, key: PathBuf },
    #[error("a self-signed certificate cannot be made: {0}; check the names the hub is given")]
    Make(#[from] rcgen::Error),
    #[error("{path} cannot be written: {error}")]
    Write { path: PathBuf, error: io::Error },
}

/// Reads certificates and key from PEM files.
pub fn load(certificate_path: &Path, key_path: &Path) -> Result<HubTls, TlsError> {
    let unusable = |reason: String| TlsError::Certificate { path: certificate_path.to_owned(), reason };
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate_path)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(error.to_string()))?;
    let Some(first) = certificates.first() else {
        return Err(unusable("no certificate is in it".to_owned()));
    };
    let fingerprint = Fingerprint::of(first);
    let is_alone = certificates.len() == 1;
    let key = PrivateKeyDer::from_pem_file(key_path)
        .map_err(|error| TlsError::Key { path: key_path.to_owned(), reason: error.to_string() })?;
    warn_if_readable(key_path);
    let mismatched = |error: rustls::Error| TlsError::Pair {
        certificate: certificate_path.to_owned(),
        key: key_path.to_owned(),
        reason: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(qd_link::tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(mismatched)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(mismatched)?;
    // The listener speaks HTTP/1.1 only, so a client must not choose HTTP/2.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(HubTls { config: Arc::new(config), fingerprint, is_alone })
}

/// The self-signed certificate in `directory`, made if there is none yet: for `names` and the loopback ones.
pub fn self_signed(directory: &Path, names: &[String]) -> Result<HubTls, TlsError> {
    let (certificate_path, key_path) = (directory.join(CERTIFICATE_FILE), directory.join(KEY_FILE));
    if !certificate_path.exists() {
        let (certificate, key) = make(names)?;
        // The certificate is written last: where there is one, its key was written whole.
        write(&key_path, &key, 0o600)?;
        write(&certificate_path, &certificate, 0o644)?;
    } else if !key_path.exists() {
        return Err(TlsError::KeyGone { certificate: certificate_path, key: key_path });
    }
    load(&certificate_path, &key_path)
}

/// A new certificate and its key, as PEM.
fn make(names: &[String]) -> Result<(String, String), rcgen::Error> {
    let mut all: Vec<String> = LOOPBACK_NAMES.map(str::to_owned).to_vec();
    for name in names {
        if !all.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            all.push(name.clone());
        }
    }
    let now = date_time_ymd(1970, 1, 1) + Duration::from_millis(now_ms().unsigned_abs());
    let mut parameters = CertificateParams::new(all)?;
    parameters.distinguished_name.push(DnType::CommonName, "Quarterdeck hub");
    parameters.not_before = now - CLOCK_SKEW_MAX;
    parameters.not_after = now + SELF_SIGNED_LIFE;
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Whole or not at all, and never readable by more than `mode` says.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let failed = |error: io::Error| TlsError::Write { path: path.to_owned(), error };
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed)?;
    let new_path = path.with_extension("pem.new");
    // One that was left half-written would keep its own mode.
    match fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(&new_path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&new_path, path).map_err(failed)?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}

fn warn_if_readable(key_path: &Path) {
    let mode = fs::metadata(key_path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(
            path = %key_path.display(),
            "others on this machine may read the hub's TLS key; 'chmod 600' it"
        );
    }
}

impl HubTls {
    /// Of the hub's own certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Whether runners are told to trust this certificate and no other. Not when it comes with those of its
    /// issuers: then it is an authority's, who is trusted already, and it is renewed every few weeks.
    pub(crate) fn is_pinned(&self) -> bool {
        self.is_alone
    }

    /// Shakes hands. One that speaks plain HTTP is told what to do instead.
    pub(crate) async fn accept(&self, mut stream: BoxedStream) -> io::Result<BoxedStream> {
        let first = stream.read_u8().await?;
        if first.is_ascii_uppercase() {
            answer_plain(stream).await;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "plain HTTP on the TLS port"));
        }
        if first != HANDSHAKE_RECORD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "neither TLS nor HTTP"));
        }
        let mut acceptor = Acceptor::default();
        acceptor.read_tls(&mut [first].as_slice())?;
        let start = LazyConfigAcceptor::new(acceptor, stream).await?;
        Ok(Box::new(start.into_stream(Arc::clone(&self.config)).await?))
    }
}

async fn answer_plain(mut stream: BoxedStream) {
    let answer = async {
        stream.write_all(USE_HTTPS).await?;
        stream.shutdown().await?;
        // Closing with something unread would take the answer away from the peer.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    if !matches!(timeout(ANSWER_GRACE, answer).await, Ok(Ok(_))) {
        tracing::debug!("one that spoke plain HTTP to the TLS port did not wait for an answer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_self_signed_certificate_is_made_once_and_its_key_is_ours_alone() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("tls");
        let made = self_signed(&directory, &["deck.example".to_owned(), "LOCALHOST".to_owned()]).unwrap();
        assert!(made.is_pinned());
        let mode = |name: &str| fs::metadata(directory.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(CERTIFICATE_FILE), mode(KEY_FILE)), (0o644, 0o600));
        let again = self_signed(&directory, &["other.example".to_owned()]).unwrap();
        assert_eq!(made.fingerprint().to_string(), again.fingerprint().to_string());

        fs::remove_file(directory.join(KEY_FILE)).unwrap();
        let error = self_signed(&directory, &[]).err().unwrap().to_string();
        assert!(error.contains("every runner has to join again"), "{error}");
        fs::remove_file(directory.join(CERTIFICATE_FILE)).unwrap();
        let new = self_signed(&directory, &[]).unwrap();
        assert_ne!(made.fingerprint().to_string(), new.fingerprint().to_string());
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        self_signed(&one, &[]).unwrap();
        self_signed(&other, &[]).unwrap();
        let error = |certificate: PathBuf, key: PathBuf| load(&certificate, &key).err().unwrap().to_string();
        let text = error(one.join(CERTIFICATE_FILE), other.join(KEY_FILE));
        assert!(text.contains("cannot be used together"), "{text}");
        let text = error(one.join("none.pem"), one.join(KEY_FILE));
        assert!(text.contains("none.pem"), "{text}");
        let text = error(one.join(KEY_FILE), one.join(KEY_FILE));
        assert!(text.contains("no certificate is in it"), "{text}");
        let text = error(one.join(CERTIFICATE_FILE), one.join(CERTIFICATE_FILE));
        assert!(text.contains("PEM private key"), "{text}");
    }

    #[test]
    fn a_certificate_with_its_issuers_is_not_pinned() {
        let directory = tempfile::tempdir().unwrap();
        self_signed(directory.path(), &[]).unwrap();
        let path = directory.path().join(CERTIFICATE_FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.repeat(2)).unwrap();
        assert!(!load(&path, &directory.path().join(KEY_FILE)).unwrap().is_pinned());
    }

    #[test]
    fn the_answer_to_plain_http_says_its_length() {
        let text = std::str::from_utf8(USE_HTTPS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
