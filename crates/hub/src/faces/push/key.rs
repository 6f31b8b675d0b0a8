//! The hub's own key for pushes: by it a push service knows that a message comes from whom the browser subscribed to
//! (RFC 8292).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use crate::server::tls;

/// Push services refuse proofs that are good for longer than a day.
const PROOF_LIFE: Duration = Duration::from_secs(12 * 3600);
const SECRET_MODE: u32 = 0o600;
/// `{"typ":"JWT","alg":"ES256"}`
const PROOF_HEAD: &str = "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9";

/// The pair of keys that pushes are signed with. Shows nothing when printed; clones share it.
#[derive(Clone)]
pub struct PushKey(Arc<SigningKeyPair>);

struct SigningKeyPair {
    pair: EcdsaKeyPair,
    /// As browsers want it.
    public: String,
}

/// Why there is no key for pushes.
#[derive(Debug, thiserror::Error)]
pub enum PushKeyError {
    #[error(
        "the key for pushes {path} cannot be used: {reason}; put back the one that was there, or delete it: then a new one is made, and every browser has to turn its notifications on again"
    )]
    File { path: PathBuf, reason: String },
    #[error("a key for pushes cannot be made: {0}")]
    Make(String),
}

/// What was read is something else.
#[derive(Debug, thiserror::Error)]
#[error("it is no private key of the curve P-256 ({0})")]
struct InvalidKey(String);

impl PushKey {
    /// The key in a file that only its owner can read; made if there is none yet.
    pub fn open(path: &Path) -> Result<PushKey, PushKeyError> {
        let failed = |reason: String| PushKeyError::File { path: path.to_owned(), reason };
        match fs::read(path) {
            Ok(pem) => {
                let mode = fs::Permissions::from_mode(SECRET_MODE);
                // A backup that was put back may be readable by others.
                fs::set_permissions(path, mode).map_err(|error| failed(error.to_string()))?;
                let key =
                    PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|error| failed(error.to_string()))?;
                PushKey::of(key.secret_pkcs8_der()).map_err(|error| failed(error.to_string()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let made = make()?;
                tls::write(path, &made.serialize_pem(), SECRET_MODE)
                    .map_err(|error| failed(error.to_string()))?;
                PushKey::of(&made.serialize_der()).map_err(|error| PushKeyError::Make(error.to_string()))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// A new one that is kept nowhere.
    pub fn new() -> Result<PushKey, PushKeyError> {
        PushKey::of(&make()?.serialize_der()).map_err(|error| PushKeyError::Make(error.to_string()))
    }

    fn of(pkcs8: &[u8]) -> Result<PushKey, InvalidKey> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new())
            .map_err(|error| InvalidKey(error.to_string()))?;
        let public = URL_SAFE_NO_PAD.encode(pair.public_key());
        Ok(PushKey(Arc::new(SigningKeyPair { pair, public })))
    }

    /// For `applicationServerKey`.
    pub(crate) fn public(&self) -> &str {
        &self.0.public
    }

    /// The header that proves to a push service who sends: good for its origin, for some hours.
    pub(super) fn authorization(&self, origin: &str, contact: &str, now: i64) -> Option<String> {
        let exp = now / 1000 + i64::try_from(PROOF_LIFE.as_secs()).unwrap_or(0);
        let claims = json!({ "aud": origin, "exp": exp, "sub": contact }).to_string();
        let signed = format!("{PROOF_HEAD}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = self.0.pair.sign(&SystemRandom::new(), signed.as_bytes()).ok()?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Some(format!("vapid t={signed}.{signature}, k={}", self.0.public))
    }
}

fn make() -> Result<rcgen::KeyPair, PushKeyError> {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)
        .map_err(|error| PushKeyError::Make(error.to_string()))
}

impl fmt::Debug for PushKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PushKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn the_key_is_made_once_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("push-key.pem");
        let first = PushKey::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(PushKey::open(&path).unwrap().public(), first.public());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let point = URL_SAFE_NO_PAD.decode(first.public()).unwrap();
        assert_eq!((point.len(), point[0]), (65, 4), "an uncompressed point");
        assert_ne!(PushKey::new().unwrap().public(), first.public());
        fs::write(&path, "nonsense").unwrap();
        assert!(PushKey::open(&path).unwrap_err().to_string().contains("push-key.pem"));
        assert_eq!(format!("{first:?}"), "PushKey(…)");
    }

    #[test]
    fn a_proof_is_for_one_origin_and_not_for_ever() {
        let key = PushKey::new().unwrap();
        let header =
            key.authorization("https://push.example", "mailto:me@example.org", 1_700_000_000_000).unwrap();
        let (token, public) = header.strip_prefix("vapid t=").unwrap().split_once(", k=").unwrap();
        assert_eq!(public, key.public());
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let point = URL_SAFE_NO_PAD.decode(public).unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point)
            .verify(signed.as_bytes(), &signature)
            .unwrap();
        let (head, claims) = signed.split_once('.').unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(head).unwrap(), br#"{"typ":"JWT","alg":"ES256"}"#);
        let claims: serde_json::Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        assert_eq!(
            claims,
            json!({"aud":"https://push.example","exp":1_700_043_200,"sub":"mailto:me@example.org"})
        );
    }
}
