//! The timer of a session's loop, which gets a new deadline in every round.

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
pub(super) struct DeadlineTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl DeadlineTimer {
    /// Waits for as long as it is now until that time, in milliseconds since 1970; for ever where there is none.
    ///
    /// A clock that is set back meanwhile makes nobody wait longer: who is woken looks at the clock and waits again.
    pub(super) async fn wait_until(&mut self, deadline: Option<i64>) {
        let Some(deadline) = deadline else { return std::future::pending().await };
        let rest = u64::try_from(deadline - now_ms()).unwrap_or(0);
        let until = Instant::now() + Duration::from_millis(rest);
        loop {
            self.sleep_at_most(until).await;
            if Instant::now() >= until {
                return;
            }
        }
    }

    /// Sleeps until then, or until what it was set to, if that is earlier.
    async fn sleep_at_most(&mut self, until: Instant) {
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
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    static SET_BACK_MS: AtomicI64 = AtomicI64::new(0);

    /// The clock of the paused runtime, which is what the timers go by.
    fn paused_ms() -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        let passed = i64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(i64::MAX);
        passed - SET_BACK_MS.load(Ordering::Relaxed)
    }

    async fn rings(timer: &mut DeadlineTimer, deadline: i64, patience_ms: u64) -> bool {
        let ringing = timer.wait_until(Some(deadline));
        tokio::time::timeout(Duration::from_millis(patience_ms), ringing).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn it_rings_at_the_last_deadline_it_was_set_to() {
        qd_link::clock::simulate(Some(paused_ms));
        let mut timer = DeadlineTimer::default();
        let start = now_ms();
        assert!(!rings(&mut timer, start + 1_000, 10).await, "not due");
        assert!(
            !rings(&mut timer, start + 5_000, 2_000).await,
            "postponed, though it was set to ring by now"
        );
        assert!(rings(&mut timer, start + 2_100, 200).await, "earlier than it was set to");
        assert!(rings(&mut timer, start, 10).await, "over");
        assert!(rings(&mut timer, start + 9_000, 8_000).await, "after it rang");
        let never = timer.wait_until(None);
        assert!(tokio::time::timeout(Duration::from_secs(60), never).await.is_err());
        let set_back = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            SET_BACK_MS.store(3_600_000, Ordering::Relaxed);
        };
        let deadline = now_ms() + 100;
        let (rang, ()) = tokio::join!(rings(&mut timer, deadline, 200), set_back);
        assert!(rang, "though the clock was set back by an hour meanwhile");
    }
}
