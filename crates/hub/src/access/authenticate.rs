//! Who may talk to the hub: the owner's token, logins made from one-time codes or passwords, access tokens, and the
//! names and origins under which it may be asked. Secrets are kept and compared as hashes, and never written to a log.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use qd_link::clock::now_ms;
use qd_store::{AccessTokenRow, HubStore, LoginRow, PersonRow, RunnerRow, StoreError};
use qd_wire::command_table::Permission;
use qd_wire::people::{Permissions, Role};
use qd_wire::{CodedError, ErrorCode};
use sha2::{Digest, Sha256};

use crate::access::principals::{ANONYMOUS, Access, KnownAccess, OWNER, Principal, Principals, Rights};
use crate::config::HubConfig;
use crate::server::slots::note_authenticated;

/// The cookie of a browser that has logged in.
pub(crate) const COOKIE_NAME: &str = "qd_login";
/// The longest name of a runner or a token; it is shown in lists and typed by people.
const NAME_BYTES_MAX: usize = 64;
/// A token is looked up again when one was revoked meanwhile; people do not revoke faster than this.
const TOKEN_CHECKS_MAX: usize = 8;
/// Principals that are somebody already, and names that mean something else in a path.
const RESERVED_NAMES: [&str; 5] = [OWNER, ANONYMOUS, "hub", ".", ".."];
/// Random bytes of a login's token, far beyond guessing.
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

/// Makes a login of a person, or of the hub's owner, and gives the text of its token.
pub(crate) async fn new_login(
    store: &HubStore,
    principals: &Principals,
    username: Option<&str>,
    label: String,
) -> Result<Option<String>, StoreError> {
    let Some(token) = random_text(COOKIE_BYTES) else { return Ok(None) };
    let (now, token_hash) = (now_ms(), hash(&token).to_vec());
    let username = username.map(str::to_owned);
    let login = LoginRow { token_hash, username, created_at: now, last_used_at: now, label };
    // Those that had to make room are known no more.
    for gone in store.put_login(login).await? {
        if let Ok(gone) = Hash::try_from(gone) {
            principals.end(&gone);
        }
    }
    Ok(Some(token))
}

/// Forgets the logins of a request: a browser has one as a cookie, a program as a bearer. Gives their hashes.
pub(crate) async fn end_logins(store: &HubStore, headers: &HeaderMap) -> Result<Vec<Hash>, StoreError> {
    let mut ended = Vec::new();
    for token in bearer(headers).map(str::trim).into_iter().chain(cookie(headers)).map(hash) {
        if store.delete_login(&token).await? {
            ended.push(token);
        }
    }
    Ok(ended)
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
        "Not logged in. Send the owner token (the file 'owner-token' in the data directory) or an access token (of 'qd token add') as 'Authorization: Bearer …' (for a WebSocket also as '?token=…'), or open the login link that 'qd up' prints"
    )]
    NotLoggedIn,
    #[error("{0}")]
    Denied(CodedError),
    #[error("The login cannot be checked: {0}")]
    Store(String),
}

impl Refusal {
    pub(crate) const fn code(&self) -> ErrorCode {
        match self {
            Refusal::Host(_) | Refusal::Origin(_) | Refusal::Browser(_) => ErrorCode::ForbiddenOrigin,
            Refusal::Twice(_) => ErrorCode::InvalidRequest,
            Refusal::NotLoggedIn => ErrorCode::NotLoggedIn,
            Refusal::Denied(error) => error.code,
            Refusal::Store(_) => ErrorCode::StoreUnavailable,
        }
    }
}

/// Checks that the request was meant for us: against pages of other sites and names that are made to point here.
pub(crate) fn check_host_and_origin(
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
    // The scheme is not compared: behind a proxy that ends TLS the hub itself is asked over plain HTTP.
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

/// Checks that the request comes from somebody who is known here, and tells who it is. A token goes before a cookie.
pub(crate) async fn check_access(
    config: &HubConfig,
    store: &HubStore,
    principals: &Principals,
    headers: &HeaderMap,
    query_token: Option<&str>,
) -> Result<Principal, Refusal> {
    let lookup = AccessLookup { config, store, principals };
    let principal = lookup.principal_of(headers, query_token).await?;
    note_authenticated();
    Ok(principal)
}

/// Where an access is looked up.
struct AccessLookup<'a> {
    config: &'a HubConfig,
    store: &'a HubStore,
    principals: &'a Principals,
}

impl AccessLookup<'_> {
    async fn principal_of(
        &self,
        headers: &HeaderMap,
        query_token: Option<&str>,
    ) -> Result<Principal, Refusal> {
        if let Some(token) = bearer(headers).or(query_token).map(str::trim) {
            if self.config.owner_token.matches(token) {
                return Ok(Principal::owner());
            }
            if let Some(principal) = self.open(&hash(token)).await? {
                return Ok(principal);
            }
        }
        match cookie(headers) {
            Some(cookie) => self.open(&hash(cookie)).await?.ok_or(Refusal::NotLoggedIn),
            None => Err(Refusal::NotLoggedIn),
        }
    }

    /// Who has the access token or login with this hash.
    async fn open(&self, hash: &Hash) -> Result<Option<Principal>, Refusal> {
        for _ in 0..TOKEN_CHECKS_MAX {
            // Read before the store. If somebody is revoked between the lookup and `enter`, the number differs and the
            // lookup is repeated, so that a revoked token is never let in.
            let generation = self.principals.generation();
            let found = self.find(hash).await.map_err(|error| Refusal::Store(error.to_string()))?;
            let Some(known) = found else { return Ok(None) };
            if let Some(principal) = self.principals.enter(known, generation) {
                return Ok(Some(principal));
            }
        }
        Err(Refusal::Store("accesses are being revoked; try again".to_owned()))
    }

    async fn find(&self, hash: &Hash) -> Result<Option<KnownAccess>, StoreError> {
        let now = now_ms();
        if let Some(token) = self.store.check_access_token(hash, now).await? {
            let Some(owner) = token.owner.clone() else {
                // A token that the owner has made for somebody else is a principal of its own: all but managing, if
                // nothing else is said.
                let name = token.name.clone();
                return Ok(Some(token_access(&token, hash, name, Role::Owner, false)));
            };
            // A token of a person acts as that person.
            let role = self.person(&owner).await?;
            return Ok(role.map(|role| token_access(&token, hash, owner, role, true)));
        }
        let life = self.config.login_life;
        let Some(login) = self.store.check_login(hash, now, life).await? else { return Ok(None) };
        let life_ms = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
        let expires_at = Some(now.saturating_add(life_ms));
        let (name, role, is_person) = match login.username {
            None => (OWNER.to_owned(), Role::Owner, false),
            Some(username) => match self.person(&username).await? {
                Some(role) => (username, role, true),
                None => return Ok(None),
            },
        };
        let rights = Rights { role, permissions: role.permissions() };
        let access = Access::Login(*hash);
        Ok(Some(KnownAccess { name, rights, access, is_person, hash: *hash, expires_at }))
    }

    /// The role of a person who may come in.
    async fn person(&self, username: &str) -> Result<Option<Role>, StoreError> {
        let person = self.store.person(username).await?;
        Ok(person.filter(|person| !person.disabled).as_ref().and_then(role_of))
    }
}

/// What the table says of a person's role.
pub(crate) fn role_of(person: &PersonRow) -> Option<Role> {
    let role = Role::parse(&person.role);
    if role.is_none() {
        tracing::error!(role = person.role, "a person has a role that this qd does not know");
    }
    role
}

/// Whoever makes a token has to say that it manages: one for a script does not skip the gates of an owner.
fn token_access(
    token: &AccessTokenRow,
    hash: &Hash,
    name: String,
    role: Role,
    is_person: bool,
) -> KnownAccess {
    let is_manager = scopes(token).is_some_and(|scopes| scopes.contains(Permission::Manage));
    let role = if role == Role::Owner && !is_manager { Role::Operator } else { role };
    let permissions = scopes(token).map_or(role.permissions(), |scopes| scopes.and(role.permissions()));
    KnownAccess {
        name,
        rights: Rights { role, permissions },
        access: Access::Token(Arc::from(&*token.name)),
        is_person,
        hash: *hash,
        expires_at: token.expires_at,
    }
}

/// What a token may do at most; `None` for all that its owner may.
pub(crate) fn scopes(token: &AccessTokenRow) -> Option<Permissions> {
    let words = token.scopes.as_deref()?;
    // A word from another version of qd allows nothing here.
    let list: Vec<Permission> = words.split(' ').filter_map(Permission::parse).collect();
    Some(Permissions::of(&list))
}

/// Why a runner's key opens no link, in words for the hub's log.
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

impl KeyRefusal {
    pub(crate) const fn code(&self) -> ErrorCode {
        match self {
            KeyRefusal::Revoked => ErrorCode::RunnerRevoked,
            KeyRefusal::Store(_) => ErrorCode::StoreUnavailable,
            KeyRefusal::NoKey | KeyRefusal::Unknown | KeyRefusal::WrongKey | KeyRefusal::Local => {
                ErrorCode::NotLoggedIn
            }
        }
    }

    /// What the other end is told. Without the key of a runner it does not learn which names there are.
    pub(crate) fn answer(&self) -> CodedError {
        let text = match self {
            KeyRefusal::Unknown | KeyRefusal::WrongKey | KeyRefusal::Local => NO_SUCH_KEY.to_owned(),
            KeyRefusal::NoKey | KeyRefusal::Revoked | KeyRefusal::Store(_) => self.to_string(),
        };
        self.code().with(text)
    }
}

const NO_SUCH_KEY: &str = "No runner of this name and with this key has joined this hub; join with 'qd runner join' and a code of 'qd runner invite'. If the runner has lost its key, revoke it first ('qd runner revoke')";

/// Checks that the request has the key of this runner. A next key counts from its first use, and the one before
/// it no more. Gives what is stored of the runner.
pub(crate) async fn check_key(
    store: &HubStore,
    runner_id: &str,
    headers: &HeaderMap,
) -> Result<RunnerRow, KeyRefusal> {
    let key = hash(bearer(headers).ok_or(KeyRefusal::NoKey)?.trim());
    let unavailable = |error: StoreError| KeyRefusal::Store(error.to_string());
    let row = joined(store, runner_id, &key).await?;
    if is_key(&row.key_hash, &key) {
        return Ok(row);
    }
    let now = now_ms();
    if store.promote_key(runner_id, &key, now).await.map_err(unavailable)? {
        tracing::info!(runner_id, "the runner's new key is in use; the old one is void");
        return Ok(RunnerRow { key_hash: key.to_vec(), next_key_hash: None, rotated_at: Some(now), ..row });
    }
    // Somebody was faster: another link with the same key, a revocation, or a later key.
    let row = joined(store, runner_id, &key).await?;
    if is_key(&row.key_hash, &key) { Ok(row) } else { Err(KeyRefusal::WrongKey) }
}

/// What is stored of a runner that has this key, or has it as its next one. That it is revoked is for itself to know.
async fn joined(store: &HubStore, runner_id: &str, key: &Hash) -> Result<RunnerRow, KeyRefusal> {
    match store.runner(runner_id).await {
        Ok(Some(row)) if !has_key(&row, key) => Err(KeyRefusal::WrongKey),
        Ok(Some(row)) if row.revoked_at.is_some() => Err(KeyRefusal::Revoked),
        Ok(Some(row)) => Ok(row),
        Ok(None) => Err(KeyRefusal::Unknown),
        Err(error) => Err(KeyRefusal::Store(error.to_string())),
    }
}

/// Whether `stored` is the hash of this key. The hub's own runner has an empty one, which is nobody's.
pub(crate) fn is_key(stored: &[u8], key: &Hash) -> bool {
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

/// Checks the name of somebody: a person, or a token that is a principal of its own.
pub(crate) fn check_principal_name(field: &str, name: &str) -> Result<(), CodedError> {
    if !is_plain_name(name) {
        return Err(CodedError::invalid(format!(
            "'{field}' must be 1 to 64 of the characters A-Z a-z 0-9 . _ -"
        )));
    }
    if RESERVED_NAMES.contains(&name) {
        return Err(CodedError::invalid(format!("'{field}' cannot be '{name}'; take another one")));
    }
    Ok(())
}

/// The token in `Authorization: Bearer …`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    cookie_named(headers, COOKIE_NAME)
}

pub(crate) fn cookie_named<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
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
    use crate::access::login::LoginCodes;

    fn place(host: &str, origin: Option<&str>) -> bool {
        let mut config = HubConfig::new(OwnerToken::new("t"), LoginCodes::default());
        config.allowed_hosts = vec!["deck.example".to_owned()];
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        check_host_and_origin(&config, &headers, None).is_ok()
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
    fn a_token_does_not_show_itself() {
        assert_eq!(format!("{:?}", OwnerToken::new("secret")), "OwnerToken(…)");
        assert!(OwnerToken::new("secret").matches("secret"));
        assert!(!OwnerToken::new("secret").matches("Secret"));
    }
}
