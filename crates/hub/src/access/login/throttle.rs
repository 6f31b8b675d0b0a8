//! How often somebody may try to log in. After some failures each further one makes the next wait longer, up to a
//! minute; nobody is locked out for ever, and nothing here grows without bound.

use std::collections::HashMap;
use std::sync::Arc;

use crate::access::authenticate::{Hash, hash};

/// Failures for one name that cost nothing.
const FREE_PER_NAME: u32 = 5;
/// The same for one address, behind which there may be many people.
const FREE_PER_ADDRESS: u32 = 20;
/// The first wait; each further failure doubles it.
const WAIT_FIRST_MS: i64 = 1000;
const WAIT_MAX_MS: i64 = 60_000;
/// Failures are forgotten when there was none for this long.
const MEMORY_MS: i64 = 15 * 60_000;
/// Names, and addresses, with failures that are remembered; the one that failed longest ago goes.
const FAILED_MAX: usize = 4096;
/// Pairs of a name and an address from which it has logged in that are remembered.
const GOOD_MAX: usize = 4096;

/// What is known of failures.
#[derive(Default)]
pub(crate) struct LoginThrottle {
    names: FailureTable,
    addresses: FailureTable,
    /// Where people have logged in from, and when: who tries their names from elsewhere does not keep them out.
    good: HashMap<Hash, i64>,
}

/// Somebody who tries.
#[derive(Clone)]
pub(crate) struct LoginAttempt {
    name: Hash,
    address: Hash,
    pair: Hash,
}

impl LoginAttempt {
    pub(crate) fn new(username: &str, peer: &Arc<str>) -> Self {
        let address = address_of(peer);
        // As a hash, whatever was sent as a name takes the same room.
        Self { name: hash(username), address: hash(address), pair: hash(&format!("{address}\n{username}")) }
    }
}

/// Without the port. All of an IPv6 network of a customer is one.
fn address_of(peer: &str) -> &str {
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    let Some(six) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) else { return host };
    match six.match_indices(':').nth(3) {
        Some((end, _)) if !six[..end].contains("::") => &six[..end],
        _ => six,
    }
}

impl LoginThrottle {
    /// How long it has to wait yet, in milliseconds; `None` if it may try now.
    pub(crate) fn wait_ms(&self, attempt: &LoginAttempt, now: i64) -> Option<i64> {
        let of_address = self.addresses.wait_ms(&attempt.address, FREE_PER_ADDRESS, now);
        let is_good = self.good.contains_key(&attempt.pair);
        let of_name = if is_good { None } else { self.names.wait_ms(&attempt.name, FREE_PER_NAME, now) };
        of_address.max(of_name)
    }

    pub(crate) fn note_failure(&mut self, attempt: &LoginAttempt, now: i64) {
        self.names.note(&attempt.name, now);
        self.addresses.note(&attempt.address, now);
    }

    pub(crate) fn note_success(&mut self, attempt: &LoginAttempt, now: i64) {
        // The address keeps its failures. Otherwise somebody with one good account could try any number of others from
        // there.
        self.names.0.remove(&attempt.name);
        if self.good.len() >= GOOD_MAX
            && !self.good.contains_key(&attempt.pair)
            && let Some(oldest) = self.good.iter().min_by_key(|(_, at)| **at).map(|(pair, _)| *pair)
        {
            self.good.remove(&oldest);
        }
        self.good.insert(attempt.pair, now);
    }
}

#[derive(Default)]
struct FailureTable(HashMap<Hash, LoginFailures>);

struct LoginFailures {
    count: u32,
    last_at: i64,
}

impl FailureTable {
    fn wait_ms(&self, key: &Hash, free: u32, now: i64) -> Option<i64> {
        let failures = self.0.get(key).filter(|failures| !failures.is_old(now))?;
        let doublings = failures.count.checked_sub(free)?;
        let wait = WAIT_FIRST_MS.checked_shl(doublings.min(16)).unwrap_or(WAIT_MAX_MS).min(WAIT_MAX_MS);
        // A clock that was set back must not make it longer.
        let rest = failures.last_at.saturating_add(wait).saturating_sub(now).min(wait);
        (rest > 0).then_some(rest)
    }

    fn note(&mut self, key: &Hash, now: i64) {
        if self.0.len() >= FAILED_MAX && !self.0.contains_key(key) {
            self.0.retain(|_, failures| !failures.is_old(now));
            let oldest = self.0.iter().min_by_key(|(_, failures)| failures.last_at).map(|(key, _)| *key);
            if let Some(oldest) = oldest.filter(|_| self.0.len() >= FAILED_MAX) {
                self.0.remove(&oldest);
            }
        }
        let failures = self.0.entry(*key).or_insert(LoginFailures { count: 0, last_at: now });
        failures.count = if failures.is_old(now) { 1 } else { failures.count.saturating_add(1) };
        failures.last_at = now;
    }
}

impl LoginFailures {
    fn is_old(&self, now: i64) -> bool {
        now.saturating_sub(self.last_at) > MEMORY_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(name: &str, peer: &str) -> LoginAttempt {
        LoginAttempt::new(name, &Arc::from(peer))
    }

    #[test]
    fn hole_07_waits_grow_to_a_minute_and_are_forgotten() {
        let mut throttle = LoginThrottle::default();
        let alice = attempt("alice", "1.2.3.4:5");
        for number in 0..FREE_PER_NAME {
            assert_eq!(throttle.wait_ms(&alice, 0), None, "{number}");
            throttle.note_failure(&alice, 0);
        }
        assert_eq!(throttle.wait_ms(&alice, 0), Some(1000));
        assert_eq!(throttle.wait_ms(&attempt("alice", "9.9.9.9:5"), 400), Some(600), "from anywhere");
        assert_eq!(throttle.wait_ms(&attempt("bob", "1.2.3.4:77"), 0), None, "another name");
        assert_eq!(throttle.wait_ms(&alice, 1000), None);
        throttle.note_failure(&alice, 1000);
        assert_eq!(throttle.wait_ms(&alice, 1000), Some(2000));
        for _ in 0..100 {
            throttle.note_failure(&alice, 5000);
        }
        assert_eq!(throttle.wait_ms(&alice, 5000), Some(60_000), "never longer");
        assert_eq!(throttle.wait_ms(&alice, -99_000), Some(60_000), "the clock was set back");
        assert_eq!(throttle.wait_ms(&alice, 5000 + MEMORY_MS + 1), None);
        throttle.note_failure(&alice, 5000 + MEMORY_MS + 1);
        assert_eq!(throttle.wait_ms(&alice, 5000 + MEMORY_MS + 1), None, "it starts anew");
    }

    #[test]
    fn hole_07_many_names_from_one_address_wait_too() {
        let mut throttle = LoginThrottle::default();
        for number in 0..FREE_PER_ADDRESS {
            throttle.note_failure(&attempt(&format!("name{number}"), "[2001:db8:1:2:3:4:5:6]:9"), 0);
        }
        assert!(
            throttle.wait_ms(&attempt("other", "[2001:db8:1:2:9:9:9:9]:1"), 0).is_some(),
            "the same network"
        );
        assert!(throttle.wait_ms(&attempt("other", "[2001:db8:1:3::1]:1"), 0).is_none());
        assert!(throttle.wait_ms(&attempt("other", "1.2.3.4:1"), 0).is_none());
    }

    #[test]
    fn hole_07_who_has_logged_in_before_is_not_kept_out_by_others() {
        let mut throttle = LoginThrottle::default();
        let (home, elsewhere) = (attempt("alice", "1.2.3.4:5"), attempt("alice", "6.6.6.6:5"));
        throttle.note_success(&home, 0);
        for _ in 0..15 {
            throttle.note_failure(&elsewhere, 1);
        }
        assert!(throttle.wait_ms(&elsewhere, 1).is_some());
        assert_eq!(throttle.wait_ms(&home, 1), None);
    }

    #[test]
    fn hole_07_the_tables_are_bounded() {
        let mut throttle = LoginThrottle::default();
        for number in 0..FAILED_MAX as i64 + 500 {
            let attempt = attempt(&format!("n{number}"), &format!("h{number}:1"));
            throttle.note_failure(&attempt, number / 100);
            throttle.note_success(&attempt, number);
            throttle.note_failure(&attempt, number / 100);
        }
        assert_eq!(throttle.addresses.0.len(), FAILED_MAX);
        assert!(throttle.names.0.len() <= FAILED_MAX && throttle.good.len() <= GOOD_MAX);
    }
}
