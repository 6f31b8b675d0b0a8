//! Waiting with a bound, without a new timer for each wait.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// One timer for many waits, one after another. It is set only when a wait is not over at once.
pub(crate) struct StallTimeout {
    timer: Pin<Box<Sleep>>,
    limit: Duration,
}

impl StallTimeout {
    pub(crate) fn new(limit: Duration) -> StallTimeout {
        StallTimeout { timer: Box::pin(tokio::time::sleep(limit)), limit }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Waits for the future; `None` when it took longer than the limit.
    pub(crate) async fn within_limit<F: Future>(&mut self, future: F) -> Option<F::Output> {
        self.wait(future, false).await
    }

    /// Waits for the future as long as it is woken now and then; `None` when nothing happened for the limit. What
    /// wakes a reader are bytes of its peer, also when they do not make a whole message yet.
    pub(crate) async fn while_alive<F: Future>(&mut self, future: F) -> Option<F::Output> {
        self.wait(future, true).await
    }

    async fn wait<F: Future>(&mut self, future: F, starts_again: bool) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut is_set = false;
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            // Checked before the timer is set again: a wake-up that comes after the limit must not count as a sign of
            // life.
            if is_set && self.timer.is_elapsed() {
                return Poll::Ready(None);
            }
            if !is_set || starts_again {
                self.timer.as_mut().reset(Instant::now() + self.limit);
                is_set = true;
            }
            self.timer.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Notify;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_limit_or_with_silence() {
        let mut stall_timeout = StallTimeout::new(Duration::from_secs(10));
        assert_eq!(stall_timeout.within_limit(std::future::ready(1)).await, Some(1));
        // Time spent elsewhere does not count.
        tokio::time::sleep(Duration::from_secs(100)).await;
        let nine = || tokio::time::sleep(Duration::from_secs(9));
        assert!(stall_timeout.within_limit(nine()).await.is_some());
        let news = Notify::new();
        let slow = || async {
            for _ in 0..3 {
                news.notified().await;
            }
        };
        let speak = async {
            for _ in 0..3 {
                nine().await;
                news.notify_one();
            }
        };
        let (heard, ()) = tokio::join!(stall_timeout.while_alive(slow()), speak);
        assert!(heard.is_some());
        let speak = async {
            nine().await;
            news.notify_one();
        };
        let started = Instant::now();
        let (heard, ()) = tokio::join!(stall_timeout.within_limit(slow()), speak);
        assert!(heard.is_none());
        assert_eq!(started.elapsed(), Duration::from_secs(10));
        assert!(stall_timeout.while_alive(std::future::pending::<()>()).await.is_none());
    }
}
