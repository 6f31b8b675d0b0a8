//! How often somebody may try to log in. After some failures for a name at an address each further one makes the next
//! wait longer, up to a minute; nobody is locked out for ever, and nothing here grows without bound.
//!
//! Many people may share an address, behind a proxy or in an office. So failures for one name keep out nobody else
//! there, and an address with many of them is slowed down, not refused. Who has logged in before in the same browser is
//! counted apart: a stranger at the same address who tries their name keeps them out neither.

use std::collections::HashMap;
use std::sync::Arc;

use crate::access::authenticate::{Hash, hash};

/// Failures for one name at one address, or in one known browser, that cost nothing.
const FREE_PER_PAIR: u32 = 5;
/// The same for one name from anywhere: whoever has many addresses does not get so many for each of them.
const FREE_PER_NAME: u32 = 50;
/// After these an address is slow.
const FREE_PER_ADDRESS: u32 = 20;
/// The first wait; each further failure doubles it.
const WAIT_FIRST_MS: i64 = 1000;
const WAIT_MAX_MS: i64 = 60_000;
/// Failures are forgotten when there was none for this long.
const MEMORY_MS: i64 = 15 * 60_000;
/// Names, addresses and pairs with failures that are remembered, each; the one that failed longest ago goes.
const FAILED_MAX: usize = 4096;
/// Pairs of a name and an address, or a browser, from which it has logged in that are remembered, each.
const GOOD_MAX: usize = 4096;

/// What is known of failures.
#[derive(Default)]
pub(crate) struct LoginThrottle {
    /// Of a name at an address, or in a known browser.
    pairs: FailureTable,
    names: FailureTable,
    addresses: FailureTable,
    /// Where people have logged in from: who tries their names from elsewhere does not keep them out.
    good: SuccessTable,
    /// In which browsers they have.
    browsers: SuccessTable,
}

/// Somebody who tries.
#[derive(Clone)]
pub(crate) struct LoginAttempt {
    name: Hash,
    address: Hash,
    pair: Hash,
    browser: Option<Hash>,
}

impl LoginAttempt {
    /// `browser_token` is what a browser got when somebody logged in there, or says it got.
    pub(crate) fn new(username: &str, peer: &Arc<str>, browser_token: Option<&str>) -> Self {
        let address = address_of(peer);
        // As a hash, whatever was sent as a name takes the same room.
        Self {
            name: hash(username),
            address: hash(address),
            pair: hash(&format!("{address}\n{username}")),
            browser: browser_token.map(|token| browser_of(username, token)),
        }
    }
}

fn browser_of(username: &str, token: &str) -> Hash {
    hash(&format!("{token}\n{username}"))
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
        let of_pair = self.pairs.wait_ms(self.pair_of(attempt), FREE_PER_PAIR, now);
        let of_name =
            if self.is_good(attempt) { None } else { self.names.wait_ms(&attempt.name, FREE_PER_NAME, now) };
        of_pair.max(of_name)
    }

    /// Whether so many have failed at this address that attempts from there take turns.
    pub(crate) fn is_slow(&self, attempt: &LoginAttempt, now: i64) -> bool {
        !self.is_good(attempt) && self.addresses.count(&attempt.address, now) >= FREE_PER_ADDRESS
    }

    /// Whether this browser has to be given a token, because it has none of ours.
    pub(crate) fn is_new_browser(&self, attempt: &LoginAttempt) -> bool {
        self.known_browser(attempt).is_none()
    }

    pub(crate) fn note_failure(&mut self, attempt: &LoginAttempt, now: i64) {
        let pair = *self.pair_of(attempt);
        self.pairs.note(&pair, now);
        self.names.note(&attempt.name, now);
        self.addresses.note(&attempt.address, now);
    }

    pub(crate) fn note_success(&mut self, attempt: &LoginAttempt, now: i64) {
        // The address keeps its failures. Otherwise somebody with one good account could try any number of others from
        // there.
        let pair = *self.pair_of(attempt);
        self.pairs.0.remove(&pair);
        self.names.0.remove(&attempt.name);
        self.good.note(attempt.pair, now);
        if let Some(browser) = self.known_browser(attempt).copied() {
            self.browsers.note(browser, now);
        }
    }

    /// A browser in which this name has logged in has got this token.
    pub(crate) fn note_browser(&mut self, username: &str, token: &str, now: i64) {
        self.browsers.note(browser_of(username, token), now);
    }

    /// What its failures are counted for.
    fn pair_of<'a>(&'a self, attempt: &'a LoginAttempt) -> &'a Hash {
        self.known_browser(attempt).unwrap_or(&attempt.pair)
    }

    fn is_good(&self, attempt: &LoginAttempt) -> bool {
        self.known_browser(attempt).is_some() || self.good.0.contains_key(&attempt.pair)
    }

    fn known_browser<'a>(&self, attempt: &'a LoginAttempt) -> Option<&'a Hash> {
        attempt.browser.as_ref().filter(|browser| self.browsers.0.contains_key(*browser))
    }
}

/// When each last succeeded.
#[derive(Default)]
struct SuccessTable(HashMap<Hash, i64>);

impl SuccessTable {
    fn note(&mut self, key: Hash, now: i64) {
        if self.0.len() >= GOOD_MAX
            && !self.0.contains_key(&key)
            && let Some(oldest) = self.0.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key)
        {
            self.0.remove(&oldest);
        }
        self.0.insert(key, now);
    }
}

#[derive(Default)]
struct FailureTable(HashMap<Hash, LoginFailures>);

struct LoginFailures {
    count: u32,
    last_at: i64,
}

impl FailureTable {
    fn count(&self, key: &Hash, now: i64) -> u32 {
        self.0.get(key).filter(|failures| !failures.is_old(now)).map_or(0, |failures| failures.count)
    }

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
        LoginAttempt::new(name, &Arc::from(peer), None)
    }

    #[test]
    fn hole_07_waits_grow_to_a_minute_and_are_forgotten() {
        let mut throttle = LoginThrottle::default();
        let alice = attempt("alice", "1.2.3.4:5");
        for number in 0..FREE_PER_PAIR {
            assert_eq!(throttle.wait_ms(&alice, 0), None, "{number}");
            throttle.note_failure(&alice, 0);
        }
        assert_eq!(throttle.wait_ms(&alice, 0), Some(1000));
        assert_eq!(throttle.wait_ms(&attempt("alice", "9.9.9.9:5"), 0), None, "another address");
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
    fn hole_07_a_name_that_many_addresses_try_has_to_wait_too() {
        let mut throttle = LoginThrottle::default();
        for number in 0..FREE_PER_NAME {
            throttle.note_failure(&attempt("alice", &format!("1.2.3.{number}:5")), 0);
        }
        assert_eq!(throttle.wait_ms(&attempt("alice", "9.9.9.9:5"), 0), Some(1000));
        assert_eq!(throttle.wait_ms(&attempt("bob", "1.2.3.4:5"), 0), None);
    }

    #[test]
    fn hole_07_many_names_from_one_address_slow_it_down_and_keep_nobody_out() {
        let mut throttle = LoginThrottle::default();
        let (bob, carol) = (attempt("bob", "[2001:db8:1:2:7::7]:9"), attempt("carol", "[2001:db8:1:2::8]:9"));
        throttle.note_success(&carol, 0);
        for number in 0..FREE_PER_ADDRESS * 5 {
            throttle.note_failure(&attempt(&format!("name{number}"), "[2001:db8:1:2:3:4:5:6]:9"), 0);
        }
        assert!(throttle.is_slow(&bob, 0), "the same network");
        assert_eq!(throttle.wait_ms(&bob, 0), None, "but not kept out");
        assert!(!throttle.is_slow(&carol, 0), "who has logged in from there");
        assert!(!throttle.is_slow(&attempt("bob", "[2001:db8:1:3::1]:1"), 0));
        assert!(!throttle.is_slow(&attempt("bob", "1.2.3.4:1"), 0));
        assert!(!throttle.is_slow(&bob, MEMORY_MS + 1));
    }

    #[test]
    fn hole_07_a_stranger_at_the_same_address_keeps_a_known_browser_out_neither() {
        let mut throttle = LoginThrottle::default();
        let in_browser = |token: &str| LoginAttempt::new("alice", &Arc::from("127.0.0.1:5"), Some(token));
        throttle.note_success(&in_browser("none"), 0);
        assert!(throttle.is_new_browser(&in_browser("none")), "whatever it says");
        throttle.note_browser("alice", "token", 0);
        assert!(!throttle.is_new_browser(&in_browser("token")));
        for _ in 0..FREE_PER_NAME {
            throttle.note_failure(&attempt("alice", "127.0.0.1:6"), 1);
            throttle.note_failure(&in_browser("guessed"), 1);
        }
        assert!(throttle.wait_ms(&attempt("alice", "127.0.0.1:6"), 1).is_some());
        assert!(throttle.wait_ms(&in_browser("guessed"), 1).is_some());
        assert_eq!(throttle.wait_ms(&in_browser("token"), 1), None);
        let other_name = LoginAttempt::new("bob", &Arc::from("127.0.0.1:5"), Some("token"));
        assert!(throttle.is_new_browser(&other_name), "it counts for its own name only");
        for _ in 0..FREE_PER_PAIR {
            throttle.note_failure(&in_browser("token"), 1);
        }
        assert!(throttle.wait_ms(&in_browser("token"), 1).is_some(), "its own failures count");
    }

    #[test]
    fn hole_07_who_has_logged_in_before_is_not_kept_out_by_others() {
        let mut throttle = LoginThrottle::default();
        let (home, elsewhere) = (attempt("alice", "1.2.3.4:5"), attempt("alice", "6.6.6.6:5"));
        throttle.note_success(&home, 0);
        for _ in 0..FREE_PER_NAME {
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
        for number in 0..GOOD_MAX as i64 + 500 {
            throttle.note_browser("alice", &number.to_string(), number);
        }
        assert_eq!(throttle.addresses.0.len(), FAILED_MAX);
        assert!(throttle.names.0.len() <= FAILED_MAX && throttle.pairs.0.len() <= FAILED_MAX);
        assert!(throttle.good.0.len() <= GOOD_MAX && throttle.browsers.0.len() <= GOOD_MAX);
    }
}
