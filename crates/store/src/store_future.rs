//! What a caller of the store holds between queueing a request and its commit.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::{Result, StoreError};

/// A queued request; resolves after its commit. Dropping it does not take the request back.
#[must_use = "the request is durable only when this has resolved"]
pub struct StoreFuture<T> {
    receiver: oneshot::Receiver<Result<T>>,
}

impl<T> StoreFuture<T> {
    /// Where the backend puts the result, and what the caller waits for.
    pub(crate) fn new() -> (oneshot::Sender<Result<T>>, Self) {
        let (reply, receiver) = oneshot::channel();
        (reply, Self { receiver })
    }
}

impl<T> Future for StoreFuture<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context).map(|reply| reply.unwrap_or(Err(StoreError::Closed)))
    }
}
