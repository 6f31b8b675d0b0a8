//! A way to end a call, for blocking work and for tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::{ServiceError, ServiceResult};

/// Ends a call: blocking work looks at it now and then, tasks wait for it. Clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancellation(Arc<CancellationState>);

#[derive(Debug, Default)]
struct CancellationState {
    is_cancelled: AtomicBool,
    notify: Notify,
}

impl Cancellation {
    /// Ends the call; again is the same as once.
    pub(crate) fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        self.0.notify.notify_waiters();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// For loops of blocking work: an error as soon as the call is to end.
    pub(crate) fn check(&self) -> ServiceResult<()> {
        if self.is_cancelled() { Err(ServiceError::Cancelled) } else { Ok(()) }
    }

    /// Resolves when the call is to end.
    pub(crate) async fn cancelled(&self) {
        let notified = self.0.notify.notified();
        tokio::pin!(notified);
        // Listening before looking, so that no word is missed between.
        notified.as_mut().enable();
        if !self.is_cancelled() {
            notified.await;
        }
    }
}
