//! One-time codes with which runners join. They live in memory, as hashes: a hub that restarts has none open.

use std::collections::HashMap;
use std::time::Duration;

use qd_link::mutex::Mutex;

use crate::access::authenticate::{Hash, hash, random_text};

/// How long a code can be used.
pub const INVITE_LIFE: Duration = Duration::from_secs(300);
/// Codes that can be open at a time: more than anyone types off within five minutes.
pub const INVITES_MAX: usize = 64;
/// How long the end of a code is remembered, so that who comes too late is told so.
const MEMORY: Duration = Duration::from_secs(3600);
/// Ended codes that are remembered; the oldest goes when there is one more.
const REMEMBERED_MAX: usize = 1024;
/// 128 bits cannot be guessed in five minutes, nor ever.
const SECRET_BYTES: usize = 16;

/// The codes of one hub.
#[derive(Default)]
pub(crate) struct Invites(Mutex<HashMap<Hash, InviteCode>>);

struct InviteCode {
    expires_at: i64,
    used: Option<InviteUse>,
}

#[derive(PartialEq, Eq, Clone)]
struct InviteUse {
    runner_id: String,
    key_hash: Hash,
}

/// A new code.
pub(crate) struct NewInvite {
    pub(crate) secret: String,
    /// Unix milliseconds.
    pub(crate) expires_at: i64,
}

/// Why there is no new code.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InviteError {
    #[error(
        "{INVITES_MAX} invites are open already; use one of them, or wait: each ends five minutes after it was made"
    )]
    TooMany,
    #[error("The system has no randomness; try again")]
    NoRandomness,
}

/// What a good code allows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InviteGrant {
    /// To join.
    Join,
    /// To hear again that it has joined, if the answer was lost: this runner has used the code with this key.
    Repeat,
}

/// Why a code allows nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InviteRefusal {
    #[error(
        "This code is not one of this hub's; copy it whole, or ask for a new one with 'qd runner invite'"
    )]
    Wrong,
    #[error("This code has expired: it was good for five minutes; ask for a new one with 'qd runner invite'")]
    Expired,
    #[error("This code has been used: it is good for one runner; ask for a new one with 'qd runner invite'")]
    Used,
}

impl Invites {
    pub(crate) fn issue(&self, now: i64) -> Result<NewInvite, InviteError> {
        let mut codes = self.0.lock();
        forget_old(&mut codes, now);
        if codes.values().filter(|code| code.is_open(now)).count() >= INVITES_MAX {
            return Err(InviteError::TooMany);
        }
        let secret = random_text(SECRET_BYTES).ok_or(InviteError::NoRandomness)?;
        let expires_at = now.saturating_add(milliseconds(INVITE_LIFE));
        codes.insert(hash(&secret), InviteCode { expires_at, used: None });
        Ok(NewInvite { secret, expires_at })
    }

    /// What `secret` allows this runner now. Nothing changes; see [`Invites::use_up`].
    pub(crate) fn check(
        &self,
        secret: &str,
        runner_id: &str,
        key_hash: &Hash,
        now: i64,
    ) -> Result<InviteGrant, InviteRefusal> {
        let mut codes = self.0.lock();
        forget_old(&mut codes, now);
        let code = codes.get(&hash(secret)).ok_or(InviteRefusal::Wrong)?;
        match &code.used {
            Some(used) if used.runner_id == runner_id && used.key_hash == *key_hash => {
                Ok(InviteGrant::Repeat)
            }
            Some(_) => Err(InviteRefusal::Used),
            None if code.is_open(now) => Ok(InviteGrant::Join),
            None => Err(InviteRefusal::Expired),
        }
    }

    /// The runner has joined: the code is good for nobody else any more.
    pub(crate) fn use_up(&self, secret: &str, runner_id: &str, key_hash: &Hash) {
        if let Some(code) = self.0.lock().get_mut(&hash(secret)) {
            code.used = Some(InviteUse { runner_id: runner_id.to_owned(), key_hash: *key_hash });
        }
    }
}

impl InviteCode {
    fn is_open(&self, now: i64) -> bool {
        self.used.is_none() && self.expires_at > now
    }
}

fn forget_old(codes: &mut HashMap<Hash, InviteCode>, now: i64) {
    codes.retain(|_, code| now < code.expires_at.saturating_add(milliseconds(MEMORY)));
    let mut ended: Vec<(i64, Hash)> = codes
        .iter()
        .filter(|(_, code)| !code.is_open(now))
        .map(|(hash, code)| (code.expires_at, *hash))
        .collect();
    let surplus = ended.len().saturating_sub(REMEMBERED_MAX);
    if surplus > 0 {
        ended.sort_unstable();
        for (_, hash) in &ended[..surplus] {
            codes.remove(hash);
        }
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Hash = [1; 32];

    #[test]
    fn a_code_is_good_for_five_minutes_and_its_end_is_remembered_for_an_hour() {
        let invites = Invites::default();
        let code = invites.issue(1_000).unwrap();
        assert_eq!(code.expires_at, 301_000);
        assert_eq!(invites.check(&code.secret, "r", &KEY, 300_999), Ok(InviteGrant::Join));
        assert_eq!(invites.check(&code.secret, "r", &KEY, 301_000), Err(InviteRefusal::Expired));
        assert_eq!(invites.check(&code.secret, "r", &KEY, 3_900_999), Err(InviteRefusal::Expired));
        assert_eq!(invites.check(&code.secret, "r", &KEY, 3_901_000), Err(InviteRefusal::Wrong));
        assert_eq!(invites.check("nonsense", "r", &KEY, 0), Err(InviteRefusal::Wrong));
    }

    #[test]
    fn a_used_code_is_good_for_its_runner_and_key_only() {
        let invites = Invites::default();
        let secret = invites.issue(0).unwrap().secret;
        invites.use_up(&secret, "r", &KEY);
        assert_eq!(invites.check(&secret, "r", &KEY, 1), Ok(InviteGrant::Repeat));
        assert_eq!(
            invites.check(&secret, "r", &KEY, 400_000),
            Ok(InviteGrant::Repeat),
            "late, but it has joined"
        );
        assert_eq!(invites.check(&secret, "other", &KEY, 1), Err(InviteRefusal::Used));
        assert_eq!(invites.check(&secret, "r", &[2; 32], 1), Err(InviteRefusal::Used));
        assert_eq!(invites.check(&secret, "other", &KEY, 400_000), Err(InviteRefusal::Used), "not expired");
    }

    #[test]
    fn neither_open_nor_ended_codes_pile_up() {
        let invites = Invites::default();
        for _ in 0..INVITES_MAX {
            invites.issue(0).unwrap();
        }
        assert_eq!(invites.issue(0).err(), Some(InviteError::TooMany));
        let secret = invites.issue(300_000).unwrap().secret;
        invites.use_up(&secret, "r", &KEY);
        for _ in 0..REMEMBERED_MAX * 2 {
            let code = invites.issue(300_000).unwrap();
            invites.use_up(&code.secret, "r", &KEY);
        }
        invites.issue(300_000).unwrap();
        assert_eq!(invites.0.lock().len(), REMEMBERED_MAX + 1);
    }
}
