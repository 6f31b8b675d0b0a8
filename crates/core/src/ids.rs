//! Message ids: short, minted from what the agent itself remembers (role and time), so that the same message
//! gets the same id live, from history, and after a fork.

use std::collections::VecDeque;

use qd_wire::Role;

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

/// Digits and lower-case letters, shortest form.
pub fn base36(mut number: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut digits = Vec::with_capacity(13);
    loop {
        digits.push(char::from(DIGITS[(number % 36) as usize]));
        number /= 36;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().collect()
}

/// Whether a client may use this text as a session id: it becomes part of file names.
pub fn valid_session_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        && !id.starts_with(['.', '-', '_'])
}

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
    fn session_ids_cannot_leave_a_directory() {
        assert!(valid_session_id("ses_abc-1.2"));
        for bad in ["", "..", "a/b", "a b", "_system", "-x", "ä"] {
            assert!(!valid_session_id(bad), "{bad}");
        }
    }
}
