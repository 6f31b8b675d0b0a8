//! One-time codes that a browser trades for a login: the owner's, which `qd up` prints, and those that people who are
//! signed in make for one more browser of theirs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
use tokio_util::sync::CancellationToken;

use crate::access::authenticate::{Hash, hash, random_text};
use crate::access::principals::Principal;

/// How long a login code can be used.
pub const LOGIN_CODE_LIFE: Duration = Duration::from_secs(600);
/// How long a link that somebody makes for another browser can be used: long enough to take a phone out and look at
/// a screen with it.
pub const LOGIN_LINK_LIFE: Duration = Duration::from_secs(300);
/// Codes that can be open at a time; the oldest goes when there is one more.
pub const LOGIN_CODES_MAX: usize = 64;
/// Of these, links of one person, so that nobody's links push out everybody else's.
const LINKS_EACH_MAX: usize = 8;
const CODE_BYTES: usize = 16;

/// One-time codes that a browser trades for a cookie. Clones share the codes.
#[derive(Clone, Default)]
pub struct LoginCodes(Arc<Mutex<HashMap<Hash, LoginCode>>>);

/// What a code is good for.
#[derive(Clone)]
pub(crate) struct LoginCode {
    /// Unix milliseconds.
    end: i64,
    /// Whose login it makes; `None` for the hub's owner.
    pub(crate) person: Option<Arc<str>>,
    /// Cancelled when the access that has made it is taken back: then the code is void too.
    revoked: CancellationToken,
}

impl LoginCodes {
    /// A new code of the owner, for `/login?code=…`. `None` when the system has no randomness to give.
    pub fn issue(&self) -> Option<String> {
        let end = after(LOGIN_CODE_LIFE);
        self.put(LoginCode { end, person: None, revoked: CancellationToken::new() })
    }

    /// A code for one more login of somebody, and when it ends.
    pub(crate) fn issue_for(&self, principal: &Principal) -> Option<(String, i64)> {
        let end = after(LOGIN_LINK_LIFE);
        let person = principal.person().map(Arc::from);
        self.retain_links_of(person.as_deref());
        let code = self.put(LoginCode { end, person, revoked: principal.revoked.clone() })?;
        Some((code, end))
    }

    fn put(&self, code: LoginCode) -> Option<String> {
        let text = random_text(CODE_BYTES)?;
        let now = now_ms();
        let mut codes = self.0.lock();
        codes.retain(|_, code| code.is_good(now));
        while codes.len() >= LOGIN_CODES_MAX {
            let oldest = codes.iter().min_by_key(|(_, code)| code.end).map(|(code, _)| *code)?;
            codes.remove(&oldest);
        }
        codes.insert(hash(&text), code);
        Some(text)
    }

    /// Makes room for one more of a person's own.
    fn retain_links_of(&self, person: Option<&str>) {
        let Some(person) = person else { return };
        let mut codes = self.0.lock();
        let own = codes.iter().filter(|(_, code)| code.person.as_deref() == Some(person));
        let mut own: Vec<(i64, Hash)> = own.map(|(hash, code)| (code.end, *hash)).collect();
        own.sort_unstable();
        let too_many = (own.len() + 1).saturating_sub(LINKS_EACH_MAX);
        for (_, hash) in &own[..too_many] {
            codes.remove(hash);
        }
    }

    /// Once for each code, while it is good: what it is good for.
    pub(crate) fn redeem(&self, code: &str, now: i64) -> Option<LoginCode> {
        self.0.lock().remove(&hash(code)).filter(|code| code.is_good(now))
    }

    /// The login could not be made: the code stays good until its end.
    pub(crate) fn give_back(&self, text: &str, code: LoginCode) {
        let mut codes = self.0.lock();
        if codes.len() < LOGIN_CODES_MAX {
            codes.insert(hash(text), code);
        }
    }
}

impl LoginCode {
    fn is_good(&self, now: i64) -> bool {
        self.end > now && !self.revoked.is_cancelled()
    }
}

fn after(life: Duration) -> i64 {
    now_ms().saturating_add(i64::try_from(life.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use qd_wire::people::Role;

    use super::*;

    #[test]
    fn a_code_works_once_and_not_for_ever() {
        let codes = LoginCodes::default();
        let text = codes.issue().unwrap();
        assert!(codes.redeem("nonsense", now_ms()).is_none());
        let code = codes.redeem(&text, now_ms()).unwrap();
        assert!(codes.redeem(&text, now_ms()).is_none());
        codes.give_back(&text, code);
        assert!(codes.redeem(&text, now_ms()).is_some());
        let old = codes.issue().unwrap();
        assert!(codes.redeem(&old, now_ms() + 600_001).is_none());
        for _ in 0..LOGIN_CODES_MAX * 2 {
            codes.issue().unwrap();
        }
        assert_eq!(codes.0.lock().len(), LOGIN_CODES_MAX);
    }

    #[test]
    fn a_link_is_its_makers_and_goes_with_their_access() {
        let codes = LoginCodes::default();
        let person = Principal { is_person: true, ..Principal::lasting("alice", Role::Viewer) };
        let (text, end) = codes.issue_for(&person).unwrap();
        assert!(end <= now_ms() + 300_000);
        assert_eq!(codes.redeem(&text, now_ms()).unwrap().person.as_deref(), Some("alice"));
        let (old, _) = codes.issue_for(&person).unwrap();
        assert!(codes.redeem(&old, now_ms() + 300_001).is_none());
        let (void, _) = codes.issue_for(&person).unwrap();
        person.revoked.cancel();
        assert!(codes.redeem(&void, now_ms()).is_none());
        let (owners, _) = codes.issue_for(&Principal::owner()).unwrap();
        assert!(codes.redeem(&owners, now_ms()).unwrap().person.is_none());
    }

    #[test]
    fn nobodys_links_push_out_those_of_others() {
        let codes = LoginCodes::default();
        let printed = codes.issue().unwrap();
        let person = Principal { is_person: true, ..Principal::lasting("alice", Role::Viewer) };
        let links: Vec<String> =
            (0..LOGIN_CODES_MAX * 2).map(|_| codes.issue_for(&person).unwrap().0).collect();
        assert_eq!(codes.0.lock().len(), LINKS_EACH_MAX + 1);
        assert!(codes.redeem(&printed, now_ms()).is_some());
        assert!(codes.redeem(links.last().unwrap(), now_ms()).is_some());
    }
}
