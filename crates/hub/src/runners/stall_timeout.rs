//! How long a runner's link may wait for slow clients, all its sessions together.

use qd_link::mutex::Mutex;
use tokio::time::{Duration, Instant};

/// A link waits no longer than this in each window.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(2);
const WAIT_WINDOW: Duration = Duration::from_secs(30);

/// What is left of a link's time for waiting.
pub(crate) struct StallTimeout(Mutex<StallWindow>);

struct StallWindow {
    began: Instant,
    waited: Duration,
}

impl Default for StallTimeout {
    fn default() -> Self {
        Self(Mutex::new(StallWindow { began: Instant::now(), waited: Duration::ZERO }))
    }
}

impl StallTimeout {
    pub(crate) fn left(&self, now: Instant) -> Duration {
        let mut window = self.0.lock();
        if now.duration_since(window.began) >= WAIT_WINDOW {
            *window = StallWindow { began: now, waited: Duration::ZERO };
        }
        WAIT_MAX.saturating_sub(window.waited)
    }

    pub(crate) fn spend(&self, waited: Duration) {
        self.0.lock().waited += waited;
    }
}
