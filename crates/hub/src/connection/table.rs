//! The open connections of one protocol. They are let in and closed under one lock, and whether the hub stops or the
//! access was taken back is looked at with the lock held: so none can slip in between.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use qd_link::mutex::Mutex;

use super::{Mailbox, MailboxBounds};
use crate::access::principals::Principal;

/// The open connections of the hub, or of one of its faces, by their numbers.
#[derive(Default)]
pub(crate) struct ConnectionTable(Mutex<OpenConnections>);

#[derive(Default)]
struct OpenConnections {
    last: u64,
    open: HashMap<u64, Arc<Mailbox>>,
    is_stopping: bool,
}

/// Why nobody is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionRefusal {
    TooMany,
    /// The access was taken back, or the hub stops.
    Closed,
}

impl ConnectionTable {
    /// A new connection's number and its mailbox, whose name is `prefix` and the number.
    pub(crate) fn add(
        &self,
        prefix: &str,
        principal: &Principal,
        connections_max: usize,
        bounds: MailboxBounds,
    ) -> Result<(u64, Arc<Mailbox>), ConnectionRefusal> {
        let mut state = self.0.lock();
        if state.is_stopping || principal.revoked.is_cancelled() {
            return Err(ConnectionRefusal::Closed);
        }
        if state.open.len() >= connections_max {
            return Err(ConnectionRefusal::TooMany);
        }
        state.last += 1;
        let number = state.last;
        let mailbox = Mailbox::new(format!("{prefix}{number}"), principal, bounds);
        state.open.insert(number, Arc::clone(&mailbox));
        Ok((number, mailbox))
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<Mailbox>> {
        self.0.lock().open.remove(&number)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().open.len()
    }

    pub(crate) fn broadcast(&self, frames: &Bytes) {
        self.0.lock().open.values().for_each(|mailbox| mailbox.send(frames.clone()));
    }

    /// Nobody is let in any more. True the first time.
    pub(crate) fn stop(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().is_stopping, true)
    }

    /// Closes every connection after what waits for it and these last frames, and takes no more.
    pub(crate) fn close(&self, frames: &Bytes, reason: &'static str) {
        let mut state = self.0.lock();
        // Set under the lock: who is not in the list yet will not get in.
        state.is_stopping = true;
        state.open.values().for_each(|mailbox| mailbox.send_close(frames.clone(), 1001, reason));
    }

    /// Closes the connections whose access was taken back or has ended.
    pub(crate) fn close_revoked(&self, reason: &'static str) {
        let state = self.0.lock();
        let revoked = state.open.values().filter(|mailbox| mailbox.asker.revoked.is_cancelled());
        revoked.for_each(|mailbox| mailbox.send_close(Bytes::new(), 1008, reason));
    }
}
