//! A push service on this machine, and the browsers that get their messages from it. A browser has keys of its own and
//! reads what is sent to it as RFC 8291 says, with an agreement on secrets that is not the one the hub uses.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed test")]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use num_bigint::BigUint;
use qd_link::mutex::Mutex;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;

const MESSAGE_WAIT_MAX: Duration = Duration::from_secs(30);

/// What is kept of a message.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// What the sender proves, if the proof is right: its claims and its public key.
    pub fn proof(&self) -> (Value, String) {
        let header = self.header("authorization").strip_prefix("vapid t=").unwrap();
        let (token, key) = header.split_once(", k=").unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (point, signature) = (decode(key), decode(signature));
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point)
            .verify(signed.as_bytes(), &signature)
            .unwrap();
        let claims = decode(signed.split_once('.').unwrap().1);
        (serde_json::from_slice(&claims).unwrap(), key.to_owned())
    }
}

#[derive(Default)]
struct SharedPushes {
    received: Mutex<Vec<Received>>,
    /// What is answered next at a path; then 201.
    answers: Mutex<HashMap<String, VecDeque<u16>>>,
    changed: Notify,
}

/// A push service. Ends with the runtime of its test.
pub struct PushService {
    url: String,
    shared: Arc<SharedPushes>,
}

impl PushService {
    pub async fn start() -> PushService {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::<SharedPushes>::default();
        let router = Router::new().fallback(take).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        PushService { url, shared }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Lets the next messages to a browser fail like this.
    pub fn answer_with(&self, browser: &Browser, statuses: &[u16]) {
        self.shared.answers.lock().insert(browser.path.clone(), statuses.iter().copied().collect());
    }

    /// How many messages have come for a browser, whatever was answered.
    pub fn count(&self, browser: &Browser) -> usize {
        self.messages(browser).len()
    }

    fn messages(&self, browser: &Browser) -> Vec<Received> {
        let received = self.shared.received.lock();
        received.iter().filter(|message| message.path == browser.path).cloned().collect()
    }

    /// The message to a browser with this number, from 0, when it has come; as it came, and read.
    pub async fn message(&self, browser: &Browser, number: usize) -> (Received, Value) {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                if let Some(message) = self.messages(browser).get(number) {
                    return message.clone();
                }
                changed.await;
            }
        };
        let message = timeout(MESSAGE_WAIT_MAX, waiting).await;
        let message = message.unwrap_or_else(|_| panic!("no message {number} for {}", browser.path));
        let read = browser.read(&message.body);
        (message, read)
    }
}

async fn take(
    State(shared): State<Arc<SharedPushes>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let status = shared.answers.lock().get_mut(&path).and_then(VecDeque::pop_front).unwrap_or(201);
    let message = Received { path, headers, body: body.to_vec() };
    shared.received.lock().push(message);
    shared.changed.notify_waiters();
    StatusCode::from_u16(status).unwrap().into_response()
}

/// A browser that has subscribed.
pub struct Browser {
    path: String,
    endpoint: String,
    secret: BigUint,
    public: Vec<u8>,
    auth: [u8; 16],
}

impl Browser {
    /// One that gets its messages from this service.
    pub fn new(service: &PushService, name: &str) -> Browser {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let pkcs8 = pkcs8.unwrap();
        let bytes = pkcs8.as_ref();
        // The private number has its fixed place, the public point is the end.
        let (secret, public) = (&bytes[36..68], &bytes[bytes.len() - 65..]);
        let path = format!("/push/{name}");
        Browser {
            endpoint: format!("{}{path}", service.url),
            path,
            secret: BigUint::from_bytes_be(secret),
            public: public.to_vec(),
            auth: [name.len() as u8; 16],
        }
    }

    /// The body of `POST /api/push/subscriptions`.
    pub fn subscription(&self, topics: &[&str], content: bool) -> Value {
        json!({
            "endpoint": self.endpoint,
            "keys": {"p256dh": URL_SAFE_NO_PAD.encode(&self.public), "auth": URL_SAFE_NO_PAD.encode(self.auth)},
            "label": self.path,
            "topics": topics,
            "content": content,
        })
    }

    /// Reads a message.
    pub fn read(&self, body: &[u8]) -> Value {
        let (salt, rest) = body.split_at(16);
        assert_eq!(rest[..5], [0, 0, 16, 0, 65], "one record, and the sender's point");
        let (sender, sealed) = rest[5..].split_at(65);
        let shared = multiply(sender, &self.secret);
        let both = Salt::new(HKDF_SHA256, &self.auth).extract(&shared);
        let material = expand::<32>(&both, &[b"WebPush: info\0", &self.public, sender]);
        let of_message = Salt::new(HKDF_SHA256, salt).extract(&material);
        let key = expand::<16>(&of_message, &[b"Content-Encoding: aes128gcm\0"]);
        let nonce = expand::<12>(&of_message, &[b"Content-Encoding: nonce\0"]);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = key.open_in_place(nonce, Aad::empty(), &mut sealed).expect("it was for another browser");
        let end = opened.iter().rposition(|byte| *byte != 0).unwrap();
        assert_eq!(opened[end], 2, "the last record");
        serde_json::from_slice(&opened[..end]).unwrap()
    }
}

fn decode(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(from: &Prk, info: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    from.expand(info, Length(N)).unwrap().fill(&mut out).unwrap();
    out
}

/// The first coordinate of a point of P-256 times a number, in Jacobian coordinates.
fn multiply(point: &[u8], number: &BigUint) -> [u8; 32] {
    let p = BigUint::parse_bytes(b"ffffffff00000001000000000000000000000000ffffffffffffffffffffffff", 16)
        .unwrap();
    let (x, y) = (BigUint::from_bytes_be(&point[1..33]), BigUint::from_bytes_be(&point[33..]));
    let sub = |a: &BigUint, b: &BigUint| (a + &p - b) % &p;
    let mul = |a: &BigUint, b: &BigUint| (a * b) % &p;
    let (mut x1, mut y1, mut z1) = (x.clone(), y.clone(), BigUint::from(1_u8));
    for bit in (0..number.bits() - 1).rev() {
        let (delta, gamma) = (mul(&z1, &z1), mul(&y1, &y1));
        let beta = mul(&x1, &gamma);
        let alpha = mul(&(sub(&x1, &delta) * 3_u8), &(&x1 + &delta));
        let x3 = sub(&mul(&alpha, &alpha), &((&beta * 8_u8) % &p));
        let sum = &y1 + &z1;
        z1 = sub(&sub(&mul(&sum, &sum), &gamma), &delta);
        let four_beta = (&beta * 4_u8) % &p;
        y1 = sub(&mul(&alpha, &sub(&four_beta, &x3)), &((mul(&gamma, &gamma) * 8_u8) % &p));
        x1 = x3;
        if number.bit(bit) {
            let zz = mul(&z1, &z1);
            let h = sub(&mul(&x, &zz), &x1);
            let r = sub(&mul(&y, &mul(&zz, &z1)), &y1);
            let hh = mul(&h, &h);
            let (hhh, v) = (mul(&h, &hh), mul(&x1, &hh));
            let x3 = sub(&sub(&mul(&r, &r), &hhh), &((&v * 2_u8) % &p));
            y1 = sub(&mul(&r, &sub(&v, &x3)), &mul(&y1, &hhh));
            z1 = mul(&h, &z1);
            x1 = x3;
        }
    }
    let inverse = z1.modpow(&(&p - 2_u8), &p);
    let bytes = mul(&x1, &mul(&inverse, &inverse)).to_bytes_be();
    let mut out = [0; 32];
    out[32 - bytes.len()..].copy_from_slice(&bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The private key of the receiver and the public key of the sender in RFC 8291, appendix A.
    #[test]
    fn the_agreement_of_the_standard() {
        let secret = BigUint::from_bytes_be(&decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"));
        let sender =
            decode("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
        let expected = decode("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
        assert_eq!(multiply(&sender, &secret)[..], expected);
    }
}
