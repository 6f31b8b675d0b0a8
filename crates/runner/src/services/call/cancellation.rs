//! A way to end a call, for blocking work and for tasks.

use std::ops::Deref;

use tokio_util::sync::CancellationToken;

use super::{ServiceError, ServiceResult};

/// Ends a call: blocking work looks at it now and then, tasks wait for it. Clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancellation(CancellationToken);

impl Cancellation {
    /// For loops of blocking work: an error as soon as the call is to end.
    pub(crate) fn check(&self) -> ServiceResult<()> {
        if self.is_cancelled() { Err(ServiceError::Cancelled) } else { Ok(()) }
    }
}

impl Deref for Cancellation {
    type Target = CancellationToken;

    fn deref(&self) -> &CancellationToken {
        &self.0
    }
}
