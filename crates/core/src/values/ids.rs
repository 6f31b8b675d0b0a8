//! Message ids: short, minted from what the agent itself remembers (role and time), so that the same message
//! gets the same id live, from history, and after a fork.

use std::borrow::Cow;
use std::collections::VecDeque;

use qd_wire::{CodedError, Role};
use sha2::{Digest, Sha256};

use crate::encoding::{base36, hex};

/// How many role-and-time pairs back a clash is looked for; messages of one millisecond are neighbours.
const RECENT_MAX: usize = 32;

/// Mints ids that are unique within one conversation.
#[derive(Debug, Clone, Default)]
pub struct MessageIds {
    /// The last ids without their number, each with how often it was given.
    recent: VecDeque<(String, u32)>,
}

impl MessageIds {
    /// The id of the next message of the conversation.
    pub fn mint(&mut self, role: Role, created_at: i64) -> String {
        let letter = match role {
            Role::User => 'u',
            Role::Assistant => 'a',
            Role::System => 's',
            Role::Tool => 't',
        };
        let base = format!("{letter}{}", base36(created_at.unsigned_abs()));
        if let Some((_, copies)) = self.recent.iter_mut().find(|(known, _)| *known == base) {
            *copies += 1;
            return format!("{base}-{copies}");
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((base.clone(), 1));
        base
    }
}

/// Characters a session id may have; the hub's store and every face count on it.
pub const SESSION_ID_CHARACTERS_MAX: usize = 256;

/// What fits into the name of a file, with what agents put before and after it.
const PLAIN_BYTES_MAX: usize = 128;

/// Why a client may not use a text as a session id; the words are those of the pi-server document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionIdError {
    #[error("Session ID too long (max {SESSION_ID_CHARACTERS_MAX} characters)")]
    TooLong,
    #[error("Session ID must contain only alphanumeric characters, underscores, dashes, and dots")]
    WrongCharacters,
}

impl From<SessionIdError> for CodedError {
    fn from(error: SessionIdError) -> Self {
        CodedError::invalid(error.to_string())
    }
}

/// Whether a client may use this text as a session id.
pub fn check_session_id(id: &str) -> Result<(), SessionIdError> {
    if id.len() > SESSION_ID_CHARACTERS_MAX {
        return Err(SessionIdError::TooLong);
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    // The name of the system's own channel is in use.
    if id.is_empty() || !id.bytes().all(is_allowed) || id == qd_wire::SYSTEM_SESSION {
        return Err(SessionIdError::WrongCharacters);
    }
    Ok(())
}

/// A name for directories and for agents: the session's id where that is safe, else one made from it.
pub fn plain_session_name(id: &str) -> Cow<'_, str> {
    let is_plain = check_session_id(id).is_ok()
        && id.len() <= PLAIN_BYTES_MAX
        && id.starts_with(|first: char| first.is_ascii_alphanumeric())
        // Those are made here.
        && !id.starts_with(MADE_FRONT);
    if is_plain {
        return Cow::Borrowed(id);
    }
    let digest = Sha256::digest(id.as_bytes());
    Cow::Owned(format!("{MADE_FRONT}{}", hex(&digest[..16])))
}

/// Another name for the same session, where its first one is taken. It is the plain name of no session, whatever its id.
pub fn further_session_name(plain_name: &str, number: u64) -> String {
    format!("{MADE_FRONT}{number}-{plain_name}")
}

/// How names begin that are made from an id. No plain id does.
const MADE_FRONT: &str = "qd-id-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_millisecond_get_different_ids_in_the_same_way_every_time() {
        let mint = || {
            let mut ids = MessageIds::default();
            [
                ids.mint(Role::User, 5),
                ids.mint(Role::User, 5),
                ids.mint(Role::Assistant, 5),
                ids.mint(Role::User, 6),
            ]
        };
        assert_eq!(mint(), ["u5", "u5-2", "a5", "u6"]);
        assert_eq!(mint(), mint());
        let mut ids = MessageIds::default();
        let many: std::collections::HashSet<String> = (0..100).map(|_| ids.mint(Role::Tool, 7)).collect();
        assert_eq!(many.len(), 100);
    }

    #[test]
    fn session_ids_are_words_of_some_length() {
        for good in ["ses_abc-1.2", "-x", "_y", ".", "..", "A", &"x".repeat(256)] {
            assert_eq!(check_session_id(good), Ok(()), "{good}");
        }
        for bad in ["", "a/b", "a b", "_system", "ä", "a\0", &"x".repeat(257)] {
            assert!(check_session_id(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_directories_cannot_leave_them_and_differ_as_the_ids_do() {
        let ids =
            ["a", "ses_abc-1.2", ".", "..", "-x", "_x", ".x", "qd-id-1", &"x".repeat(129), &"x".repeat(256)];
        let names: std::collections::BTreeSet<String> =
            ids.iter().map(|id| plain_session_name(id).into_owned()).collect();
        assert_eq!(names.len(), ids.len());
        for name in &names {
            assert!(
                name.len() <= 128 && name.starts_with(|first: char| first.is_ascii_alphanumeric()),
                "{name}"
            );
        }
        assert_eq!(plain_session_name("ses_abc-1.2"), "ses_abc-1.2");
        let made = plain_session_name("..").into_owned();
        assert_ne!(plain_session_name(&made), made);
    }
}
