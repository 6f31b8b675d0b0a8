//! Who asks: the owner, or somebody with an access token of a name; and how an access token that is revoked ends
//! what it had opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// Whoever has the owner's token or cookie, and what the hub does on its own account.
pub(crate) const OWNER: &str = "owner";
/// Everybody, where nobody is asked for a token.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// Who asks. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    pub(crate) name: Arc<str>,
    /// Cancelled when the access is taken back: what it has opened is to be closed. A new access of the same name
    /// has another one.
    pub(crate) revoked: CancellationToken,
    /// How often an access of this name was taken back before: who has the name now is not who had it then.
    pub(crate) life: u64,
}

impl Principal {
    /// Never revoked.
    pub(crate) fn owner() -> Self {
        Self::lasting(OWNER)
    }

    /// One whose access is not the hub's to take back.
    pub(crate) fn lasting(name: &str) -> Self {
        Self { name: name.into(), revoked: CancellationToken::new(), life: 0 }
    }
}

/// Those with access tokens that have come since the start.
#[derive(Default)]
pub(crate) struct Principals(Mutex<State>);

#[derive(Default)]
struct State {
    /// Grows with each revocation.
    generation: u64,
    known: HashMap<Arc<str>, CancellationToken>,
    /// How often each name was revoked; a name that never was is not here.
    lives: HashMap<Arc<str>, u64>,
}

impl Principals {
    /// To be asked before the store is, and given to `enter` after.
    pub(crate) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Lets in whom the store knew in this generation. `None` when something was revoked since: ask the store again.
    pub(crate) fn enter(&self, name: &str, generation: u64) -> Option<Principal> {
        let mut state = self.lock();
        if state.generation != generation {
            return None;
        }
        let (name, revoked) = match state.known.get_key_value(name) {
            Some((name, revoked)) => (Arc::clone(name), revoked.clone()),
            None => {
                let (name, revoked) = (Arc::from(name), CancellationToken::new());
                state.known.insert(Arc::clone(&name), revoked.clone());
                (name, revoked)
            }
        };
        let life = state.lives.get(&name).copied().unwrap_or(0);
        Some(Principal { name, revoked, life })
    }

    /// To be called when the store knows the name no more.
    pub(crate) fn revoke(&self, name: &str) {
        let mut state = self.lock();
        state.generation += 1;
        *state.lives.entry(name.into()).or_default() += 1;
        if let Some(revoked) = state.known.remove(name) {
            revoked.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoked_name_is_another_when_it_comes_back() {
        let principals = Principals::default();
        let before = principals.generation();
        let first = principals.enter("ci", before).unwrap();
        let same = principals.enter("ci", before).unwrap();
        let other = principals.enter("bot", before).unwrap();
        principals.revoke("ci");
        assert!(first.revoked.is_cancelled() && same.revoked.is_cancelled() && !other.revoked.is_cancelled());
        assert!(principals.enter("ci", before).is_none(), "what the store said before counts no more");
        let again = principals.enter("ci", principals.generation()).unwrap();
        assert!(!again.revoked.is_cancelled());
        assert_eq!((first.life, again.life, other.life), (0, 1, 0));
    }
}
