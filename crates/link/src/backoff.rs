//! How long to wait before the next attempt to connect.
//!
//! The cap is the caller's, because it is a promise: how soon after its server's return a client is back at the
//! latest.

use std::time::Duration;

/// What the first delay is at most.
const FIRST_MAX: Duration = Duration::from_millis(100);

/// Exponential delays with jitter, so that many clients of a restarted server do not return at once. They never end:
/// who has lost its server has nothing better to do than to look for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    cap: Duration,
    attempt: u32,
}

impl Backoff {
    /// Delays of up to 100 ms, twice that, and so on up to `cap`.
    pub fn new(cap: Duration) -> Backoff {
        Backoff { cap, attempt: 0 }
    }

    /// The delay before the next attempt, jittered by the system's randomness.
    pub fn pause(&mut self) -> Duration {
        self.next_delay(random())
    }

    /// The same; `random` is any number.
    pub fn next_delay(&mut self, random: u64) -> Duration {
        let longest = FIRST_MAX.saturating_mul(1 << self.attempt.min(20)).min(self.cap);
        self.attempt = self.attempt.saturating_add(1);
        let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX).max(1);
        // The lower half is fixed, so that no client spins.
        Duration::from_micros(micros / 2 + random % (micros / 2 + 1))
    }

    /// A connection worked: the next trouble starts from the beginning.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// A number for [`Backoff::next_delay`]. A system without randomness still spreads its attempts a little, by time.
pub fn random() -> u64 {
    getrandom::u64()
        .unwrap_or_else(|_| crate::clock::now_ms().unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_cap() {
        let mut backoff = Backoff::new(Duration::from_millis(300));
        for bound in [100, 200, 300, 300] {
            let delay = backoff.next_delay(u64::MAX / 3);
            assert!(delay <= Duration::from_millis(bound) && delay >= Duration::from_millis(bound / 2));
        }
        backoff.reset();
        assert_eq!(backoff.next_delay(0), Duration::from_millis(50));
    }

    #[test]
    fn they_stay_at_the_cap_and_differ_each_time() {
        let cap = Duration::from_millis(1500);
        let mut backoff = Backoff::new(cap);
        let pauses: Vec<Duration> = (0..100).map(|_| backoff.pause()).collect();
        assert!(pauses[0] <= Duration::from_millis(100));
        assert!(pauses[10..].iter().all(|pause| *pause <= cap && *pause >= cap / 2), "{pauses:?}");
        let distinct: std::collections::HashSet<_> = pauses[10..].iter().collect();
        assert!(distinct.len() > 10, "{pauses:?}");
    }
}
