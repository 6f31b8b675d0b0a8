//! Who asks: the owner, a person, or somebody with an access token; what they may do; and how an access that is taken
//! back, or has come to its end, ends what it had opened.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
pub(crate) use qd_wire::people::Rights;
use qd_wire::people::{Permissions, Role};
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::access::authenticate::Hash;
use crate::hub::Hub;

/// Whoever has the owner's token or cookie, and what the hub does on its own account.
pub(crate) const OWNER: &str = "owner";
/// Everybody, where nobody is asked for a token.
pub(crate) const ANONYMOUS: &str = "anonymous";
/// Nothing that ends is looked at less often; a clock that was set is noticed by then.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Who asks. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    /// Of the role, as far as the scopes of the access go.
    pub(crate) permissions: Permissions,
    /// What it came in with.
    pub(crate) access: Access,
    /// Whether it is somebody with an account, and not the owner or a token that the owner has made for others.
    pub(crate) is_person: bool,
    /// Cancelled when the access is taken back or ends: what it has opened is to be closed. A new access of the same
    /// name has another one.
    pub(crate) revoked: CancellationToken,
    /// How often the accesses of this name were all taken back before: who has the name now may not be who had it then.
    pub(crate) life: u64,
}

/// What somebody came in with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Access {
    /// The owner's token, or a way in on which nobody is asked.
    OwnerToken,
    /// A login, by the hash of its token.
    Login(Hash),
    /// An access token, by its name.
    Token(Arc<str>),
}

impl Access {
    /// The word in `GET /api/me`.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Access::OwnerToken => "owner_token",
            Access::Login(_) => "login",
            Access::Token(_) => "token",
        }
    }
}

impl Principal {
    /// Never revoked.
    pub(crate) fn owner() -> Self {
        Self::lasting(OWNER, Role::Owner)
    }

    /// One whose access is not the hub's to take back.
    pub(crate) fn lasting(name: &str, role: Role) -> Self {
        Self {
            name: name.into(),
            role,
            permissions: role.permissions(),
            access: Access::OwnerToken,
            is_person: false,
            revoked: CancellationToken::new(),
            life: 0,
        }
    }

    pub(crate) fn rights(&self) -> Rights {
        Rights { role: self.role, permissions: self.permissions }
    }

    /// Refuses a token what would be good for more than the token is, or for longer.
    pub(crate) fn check_no_token(&self, error: &str) -> Result<(), CodedError> {
        match self.access {
            Access::Token(_) => Err(ErrorCode::PermissionDenied.with(format!("Permission denied: {error}"))),
            Access::OwnerToken | Access::Login(_) => Ok(()),
        }
    }

    /// The person it is; `None` for the owner and for tokens that the owner has made for others.
    pub(crate) fn person(&self) -> Option<&str> {
        self.is_person.then_some(&*self.name)
    }
}

/// Refuses what comes on a connection that is about to be closed because its access was taken back.
pub(crate) fn check_revoked(revoked: &CancellationToken) -> Result<(), CodedError> {
    if revoked.is_cancelled() {
        return Err(ErrorCode::PermissionDenied
            .with("Permission denied: this access was revoked or has ended; log in again"));
    }
    Ok(())
}

/// An access that the store knows.
pub(crate) struct KnownAccess {
    pub(crate) name: String,
    pub(crate) rights: Rights,
    pub(crate) access: Access,
    pub(crate) is_person: bool,
    /// Of its token.
    pub(crate) hash: Hash,
    /// Unix milliseconds.
    pub(crate) expires_at: Option<i64>,
}

/// Those with logins and access tokens that have come since the start. There are no more of them than the store has.
#[derive(Default)]
pub(crate) struct Principals {
    state: Mutex<PrincipalTable>,
    /// Something ends earlier than whoever waits for that thinks.
    alarm: Notify,
}

#[derive(Default)]
struct PrincipalTable {
    /// Grows with each revocation.
    generation: u64,
    known: HashMap<Arc<str>, OpenAccesses>,
    /// How often each name was revoked; a name that never was is not here.
    lives: HashMap<Arc<str>, u64>,
    /// When it is looked next for what has ended; `None` when nothing is known to end.
    looks_at: Option<i64>,
}

/// What somebody has come in with. Cancelling `all` cancels each.
#[derive(Default)]
struct OpenAccesses {
    all: CancellationToken,
    each: HashMap<Hash, OpenAccess>,
}

struct OpenAccess {
    revoked: CancellationToken,
    expires_at: Option<i64>,
}

impl Principals {
    /// To be asked before the store is, and given to `enter` after.
    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    /// Lets in whom the store knew in this generation. `None` when something was revoked since: ask the store again.
    pub(crate) fn enter(&self, known: KnownAccess, generation: u64) -> Option<Principal> {
        let KnownAccess { name, rights, access, is_person, hash, expires_at } = known;
        let mut state = self.state.lock();
        if state.generation != generation {
            return None;
        }
        let name = match state.known.get_key_value(&*name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(name),
        };
        let accesses = state.known.entry(Arc::clone(&name)).or_default();
        let OpenAccesses { all, each } = accesses;
        let open = each.entry(hash).or_insert_with(|| OpenAccess { revoked: all.child_token(), expires_at });
        open.expires_at = expires_at;
        let revoked = open.revoked.clone();
        let life = state.lives.get(&name).copied().unwrap_or(0);
        let is_earlier = expires_at.is_some_and(|end| state.looks_at.is_none_or(|at| end < at));
        drop(state);
        if is_earlier {
            self.alarm.notify_one();
        }
        let Rights { role, permissions } = rights;
        Some(Principal { name, role, permissions, access, is_person, revoked, life })
    }

    /// Takes back every access of a name. To be called when the store knows them no more, or not as they were.
    pub(crate) fn revoke(&self, name: &str) {
        let mut state = self.state.lock();
        state.generation += 1;
        *state.lives.entry(name.into()).or_default() += 1;
        if let Some(accesses) = state.known.remove(name) {
            accesses.all.cancel();
        }
    }

    /// Takes back one access, by the hash of its token. To be called when the store knows it no more.
    pub(crate) fn end(&self, hash: &Hash) {
        let mut state = self.state.lock();
        state.generation += 1;
        for open in state.known.values_mut().filter_map(|accesses| accesses.each.remove(hash)) {
            open.revoked.cancel();
        }
    }

    /// Ends what has come to its end; whether there was something.
    fn expire(&self, now: i64) -> bool {
        let mut is_some = false;
        for accesses in self.state.lock().known.values_mut() {
            accesses.each.retain(|_, open| {
                let is_over = open.expires_at.is_some_and(|end| end <= now);
                if is_over {
                    open.revoked.cancel();
                    is_some = true;
                }
                !is_over
            });
        }
        is_some
    }

    /// When the next access ends, which is when whoever asks will look.
    fn next_end(&self) -> Option<i64> {
        let mut state = self.state.lock();
        let all = state.known.values().flat_map(|accesses| accesses.each.values());
        state.looks_at = all.filter_map(|open| open.expires_at).min();
        state.looks_at
    }

    /// Closes what accesses have opened when they end, for ever.
    pub(crate) async fn expire_accesses(&self, hub: &Hub) {
        loop {
            if self.expire(now_ms()) {
                hub.close_revoked();
            }
            let alarm = self.alarm.notified();
            let Some(end) = self.next_end() else {
                alarm.await;
                continue;
            };
            let rest = u64::try_from(end.saturating_sub(now_ms())).unwrap_or(0).max(1);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(rest).min(SLEEP_MAX)) => {}
                () = alarm => {}
            }
        }
    }
}

#[cfg(test)]
impl Principals {
    /// Lets in somebody with a token that the owner has made.
    pub(crate) fn enter_for_tests(&self, name: &str, generation: u64) -> Option<Principal> {
        let known = KnownAccess {
            name: name.to_owned(),
            rights: Rights { role: Role::Operator, permissions: Role::Operator.permissions() },
            access: Access::Token(name.into()),
            is_person: false,
            hash: crate::access::authenticate::hash(name),
            expires_at: None,
        };
        self.enter(known, generation)
    }
}

#[cfg(test)]
#[path = "principals_tests.rs"]
mod tests;
