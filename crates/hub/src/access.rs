//! Who may talk to the hub: the owner's token, logins made from one-time codes, access tokens, and the names and
//! origins under which it may be asked. Secrets are kept and compared as hashes, and never written to a log.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use qd_store::{HubStore, Login, RunnerRow, StoreError};
use sha2::{Digest, Sha256};

use crate::clock::now_ms;
use crate::config::HubConfig;
use crate::principals::{Principal, Principals};

/// How long a login code can be used.
pub const LOGIN_CODE_LIFE: Duration = Duration::from_secs(600);
/// Codes that can be open at a time; the oldest goes when there is one more.
pub const LOGIN_CODES_MAX: usize = 64;
/// A login that is not used for this long is over.
pub(crate) const LOGIN_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The cookie of a browser that has logged in.
pub(crate) const COOKIE_NAME: &str = "qd_login";
/// The longest name of a runner or a token; it is shown in lists and typed by people.
const NAME_BYTES_MAX: usize = 64;
/// A token is looked up again when one was revoked meanwhile; people do not revoke faster than this.
const TOKEN_CHECKS_MAX: usize = 8;
const CODE_BYTES: usize = 16;
const COOKIE_BYTES: usize = 32;

/// SHA-256 of a secret's text.
pub(crate) type Hash = [u8; 32];

/// The owner's token. Shows nothing when printed.
#[derive(Clone)]
pub struct OwnerToken(Hash);

impl OwnerToken {
    pub fn new(token: &str) -> Self {
        Self(hash(token))
    }

    fn matches(&self, token: &str) -> bool {
        is_same(&self.0, &hash(token))
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("OwnerToken(…)")
    }
}

/// One-time codes that a browser trades for a cookie. Clones share the codes.
#[derive(Clone, Default)]
pub struct LoginCodes(Arc<Mutex<HashMap<Hash, i64>>>);

impl LoginCodes {
    /// A new code, for `/login?code=…`. `None` when the system has no randomness to give.
    pub fn issue(&self) -> Option<String> {
        let code = random_text(CODE_BYTES)?;
        let now = now_ms();
        let life = i64::try_from(LOGIN_CODE_LIFE.as_millis()).unwrap_or(i64::MAX);
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, end| *end > now);
        let oldest = codes.iter().min_by_key(|(_, end)| **end).map(|(code, _)| *code);
        if let Some(oldest) = oldest.filter(|_| codes.len() >= LOGIN_CODES_MAX) {
            codes.remove(&oldest);
        }
        codes.insert(hash(&code), now + life);
        Some(code)
    }

    /// Once for each code, while it is young enough: when it would have ended.
    pub(crate) fn redeem(&self, code: &str, now: i64) -> Option<i64> {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.remove(&hash(code)).filter(|end| *end > now)
    }

    /// The login could not be made: the code stays good until its end.
    pub(crate) fn give_back(&self, code: &str, end: i64) {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.len() < LOGIN_CODES_MAX {
            codes.insert(hash(code), end);
        }
    }
}

/// Makes a login and gives the text of its cookie.
pub(crate) async fn new_login(store: &HubStore) -> Result<Option<String>, StoreError> {
    let Some(token) = random_text(COOKIE_BYTES) else { return Ok(None) };
    let now = now_ms();
    let token_hash = hash(&token).to_vec();
    store
        .put_login(Login { token_hash, created_at: now, last_used_at: now, label: "browser".to_owned() })
        .await?;
    Ok(Some(token))
}

/// Forgets the login of a request, if it has one.
pub(crate) async fn end_login(store: &HubStore, headers: &HeaderMap) -> Result<(), StoreError> {
    match cookie(headers) {
        Some(cookie) => store.delete_login(&hash(cookie)).await.map(drop),
        None => Ok(()),
    }
}

/// Why a request is refused, in words for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "The Host header names '{0}', which is not a name of this hub; use 127.0.0.1 or localhost, or add the name to 'allowed_hosts' in the configuration of 'qd up'"
    )]
    Host(String),
    #[error("The header '{0}' comes twice; send it once")]
    Twice(&'static str),
    #[error(
        "The request comes from the origin '{0}', which is not this hub's own; open the hub's own address"
    )]
    Origin(String),
    #[error("The request comes from a page ('{0}'); this address is for runners only")]
    Browser(String),
    #[error(
        "Not logged in. Send the owner token (the file 'owner-token' in the data directory) or an access token (of 'qd token add') as 'Authorization: Bearer …' or '?token=…', or open the login link that 'qd up' prints"
    )]
    NotLoggedIn,
    #[error("The login cannot be checked: {0}")]
    Store(String),
}

/// Checks that the request was meant for us: against pages of other sites and names that are made to point here.
pub(crate) fn check_place(
    config: &HubConfig,
    headers: &HeaderMap,
    authority: Option<&str>,
) -> Result<(), Refusal> {
    for (name, shown) in [(HOST, "Host"), (ORIGIN, "Origin")] {
        if headers.get_all(name).iter().count() > 1 {
            return Err(Refusal::Twice(shown));
        }
    }
    let host = headers.get(HOST).map(|value| value.to_str().unwrap_or("?"));
    let host = host.or(authority).unwrap_or_default();
    let name = host_name(host);
    if !is_loopback(name) && !config.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)) {
        return Err(Refusal::Host(host.to_owned()));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or("?");
    let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let is_own = own.is_some_and(|own| own.eq_ignore_ascii_case(host));
    if is_own {
        return Ok(());
    }
    Err(Refusal::Origin(origin.to_owned()))
}

/// Checks that no page of a browser sent the request.
pub(crate) fn check_no_browser(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get(ORIGIN) {
        Some(origin) => Err(Refusal::Browser(origin.to_str().unwrap_or("?").to_owned())),
        None => Ok(()),
    }
}

/// Checks that the request comes from the owner.
pub(crate) async fn check_owner(
    config: &HubConfig,
    store: &HubStore,
    headers: &HeaderMap,
    query_token: Option<&str>,
) -> Result<(), Refusal> {
    let token = bearer(headers).or(query_token);
    if token.is_some_and(|token| config.owner_token.matches(token.trim())) {
        return Ok(());
    }
    check_cookie(store, headers).await
}

/// Checks that the request comes from the owner or from somebody with an access token, and tells who it is. A token
/// goes before a cookie.
pub(crate) async fn check_access(
    config: &HubConfig,
    store: &HubStore,
    principals: &Principals,
    headers: &HeaderMap,
    query_token: Option<&str>,
) -> Result<Principal, Refusal> {
    if let Some(token) = bearer(headers).or(query_token).map(str::trim) {
        if config.owner_token.matches(token) {
            return Ok(Principal::owner());
        }
        if let Some(principal) = check_token(store, principals, &hash(token)).await? {
            return Ok(principal);
        }
    }
    check_cookie(store, headers).await.map(|()| Principal::owner())
}

/// Who has the access token with this hash.
async fn check_token(
    store: &HubStore,
    principals: &Principals,
    token: &Hash,
) -> Result<Option<Principal>, Refusal> {
    for _ in 0..TOKEN_CHECKS_MAX {
        let generation = principals.generation();
        let name = store.check_access_token(token, now_ms()).await;
        let Some(name) = name.map_err(|error| Refusal::Store(error.to_string()))? else { return Ok(None) };
        if let Some(principal) = principals.enter(&name, generation) {
            return Ok(Some(principal));
        }
    }
    Err(Refusal::Store("tokens are being revoked; try again".to_owned()))
}

async fn check_cookie(store: &HubStore, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(cookie) = cookie(headers) else { return Err(Refusal::NotLoggedIn) };
    match store.check_login(&hash(cookie), now_ms(), LOGIN_LIFE).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Refusal::NotLoggedIn),
        Err(error) => Err(Refusal::Store(error.to_string())),
    }
}

/// Why a runner's key opens no link, in words for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyRefusal {
    #[error("No key. Send the runner's key as 'Authorization: Bearer …'")]
    NoKey,
    #[error(
        "No runner of this name has joined this hub; join with 'qd runner join' and a code of 'qd runner invite'"
    )]
    Unknown,
    #[error("This is not the runner's key; if the key is lost, revoke the runner and join again")]
    WrongKey,
    #[error("This runner was revoked; it has to join again with a new code")]
    Revoked,
    #[error("This is the name of the hub's own runner, which needs no link")]
    Local,
    #[error("The key cannot be checked: {0}; try again")]
    Store(String),
}

/// Checks that the request has the key of this runner. A next key counts from its first use, and the one before
/// it no more. Gives what is stored of the runner.
pub(crate) async fn check_key(
    store: &HubStore,
    runner_id: &str,
    headers: &HeaderMap,
) -> Result<RunnerRow, KeyRefusal> {
    let key = hash(bearer(headers).ok_or(KeyRefusal::NoKey)?.trim());
    let unavailable = |error: StoreError| KeyRefusal::Store(error.to_string());
    let row = joined(store, runner_id).await?;
    if is_key(&row.key_hash, &key) {
        return Ok(row);
    }
    if !row.next_key_hash.as_ref().is_some_and(|next| is_key(next, &key)) {
        return Err(KeyRefusal::WrongKey);
    }
    let now = now_ms();
    if store.promote_key(runner_id, &key, now).await.map_err(unavailable)? {
        tracing::info!(runner_id, "the runner's new key is in use; the old one is void");
        return Ok(RunnerRow { key_hash: key.to_vec(), next_key_hash: None, rotated_at: Some(now), ..row });
    }
    // Somebody was faster: another link with the same key, a revocation, or a later key.
    let row = joined(store, runner_id).await?;
    if is_key(&row.key_hash, &key) { Ok(row) } else { Err(KeyRefusal::WrongKey) }
}

async fn joined(store: &HubStore, runner_id: &str) -> Result<RunnerRow, KeyRefusal> {
    match store.runner(runner_id).await {
        Ok(Some(row)) if row.revoked_at.is_some() => Err(KeyRefusal::Revoked),
        Ok(Some(row)) => Ok(row),
        Ok(None) => Err(KeyRefusal::Unknown),
        Err(error) => Err(KeyRefusal::Store(error.to_string())),
    }
}

/// Whether `stored` is the hash of this key. The hub's own runner has an empty one, which is nobody's.
fn is_key(stored: &[u8], key: &Hash) -> bool {
    <&Hash>::try_from(stored).is_ok_and(|stored| is_same(stored, key))
}

/// Whether this is the runner's key, or its next one.
pub(crate) fn has_key(row: &RunnerRow, key: &Hash) -> bool {
    is_key(&row.key_hash, key) || row.next_key_hash.as_ref().is_some_and(|next| is_key(next, key))
}

/// Names of runners and tokens go into paths, headers and tables.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// The token in `Authorization: Bearer …`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='))
}

/// The name in `name:port`, `[::1]:port` or a bare name; empty when it is none of these.
fn host_name(host: &str) -> &str {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((name, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let is_whole = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
        return if is_whole { name } else { "" };
    }
    match host.split_once(':') {
        Some((name, port)) if is_port(port) => name,
        Some(_) => "",
        None => host,
    }
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Of a secret's text.
pub(crate) fn hash(text: &str) -> Hash {
    Sha256::digest(text.as_bytes()).into()
}

/// Takes the same time wherever the two differ.
fn is_same(left: &Hash, right: &Hash) -> bool {
    left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right)) == 0
}

/// So many random bytes as text; `None` when the system has no randomness to give.
pub(crate) fn random_text(length: usize) -> Option<String> {
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, origin: Option<&str>) -> bool {
        let mut config = HubConfig::new(OwnerToken::new("t"), LoginCodes::default());
        config.allowed_hosts = vec!["deck.example".to_owned()];
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        check_place(&config, &headers, None).is_ok()
    }

    #[test]
    fn only_our_names_and_origins() {
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:80", "127.9.9.9", "[::1]:80", "deck.example:1"] {
            assert!(place(host, None), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example", ""]
            .into_iter()
            .chain(["[::1]evil", "[::1]:80evil", "[::1", "localhost:80:80", "localhost:x", "::1"])
        {
            assert!(!place(host, None), "{host}");
        }
        assert!(place("127.0.0.1:80", Some("http://127.0.0.1:80")));
        for origin in
            ["http://127.0.0.1:81", "http://127.0.0.1", "null", "http://evil.example", "127.0.0.1:80"]
        {
            assert!(!place("127.0.0.1:80", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn a_code_works_once_and_not_for_ever() {
        let codes = LoginCodes::default();
        let code = codes.issue().unwrap();
        assert!(codes.redeem("nonsense", now_ms()).is_none());
        let end = codes.redeem(&code, now_ms()).unwrap();
        assert!(codes.redeem(&code, now_ms()).is_none());
        codes.give_back(&code, end);
        assert!(codes.redeem(&code, now_ms()).is_some());
        let old = codes.issue().unwrap();
        assert!(codes.redeem(&old, now_ms() + 600_001).is_none());
        for _ in 0..LOGIN_CODES_MAX * 2 {
            codes.issue().unwrap();
        }
        assert_eq!(codes.0.lock().unwrap().len(), LOGIN_CODES_MAX);
    }

    #[test]
    fn a_token_does_not_show_itself() {
        assert_eq!(format!("{:?}", OwnerToken::new("secret")), "OwnerToken(…)");
        assert!(OwnerToken::new("secret").matches("secret"));
        assert!(!OwnerToken::new("secret").matches("Secret"));
    }
}
