//! The timer of a session's loop, which is set anew in every round.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::clock::now_ms;

/// A timer that stays set from round to round.
///
/// A session's next deadline mostly moves further away: every key and every line postpones something. A new timer
/// would be entered in the runtime's wheel each time, and wake it from its sleep for that; this one is left as it is
/// while it rings early enough, and set again when it rings.
#[derive(Default)]
pub(super) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    /// Waits until that time, in milliseconds since 1970, or a moment if it is over; for ever where there is none.
    pub(super) async fn ring_at(&mut self, deadline: Option<i64>) {
        let Some(deadline) = deadline else { return std::future::pending().await };
        loop {
            let rest = u64::try_from(deadline - now_ms()).unwrap_or(0);
            self.sleep_at_most(Duration::from_millis(rest)).await;
            if now_ms() >= deadline {
                return;
            }
        }
    }

    async fn sleep_at_most(&mut self, rest: Duration) {
        let until = Instant::now() + rest;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if sleep.is_elapsed() || sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        sleep.await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    /// The clock of the paused runtime, which is what the timers go by.
    fn paused_ms() -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        i64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_at_the_last_deadline_it_was_set_to() {
        qd_link::clock::simulate(Some(paused_ms));
        let mut alarm = Alarm::default();
        let start = now_ms();
        let rings = async |alarm: &mut Alarm, after: i64, patience: u64| {
            let ringing = alarm.ring_at(Some(start + after));
            tokio::time::timeout(Duration::from_millis(patience), ringing).await.is_ok()
        };
        assert!(!rings(&mut alarm, 1_000, 10).await, "not due");
        assert!(!rings(&mut alarm, 5_000, 2_000).await, "postponed, though it was set to ring by now");
        assert!(rings(&mut alarm, 2_100, 200).await, "earlier than it was set to");
        assert!(rings(&mut alarm, 0, 10).await, "over");
        assert!(rings(&mut alarm, 9_000, 8_000).await, "after it rang");
        let never = alarm.ring_at(None);
        assert!(tokio::time::timeout(Duration::from_secs(60), never).await.is_err());
    }
}
