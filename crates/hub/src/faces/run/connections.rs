//! The apps that are connected. They get none of the hub's own broadcasts, which are not in the document.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use qd_link::mutex::Mutex;

use crate::access::principals::Principal;
use crate::config::Limits;
use crate::connection::{ConnectionMail, Mailbox};

#[derive(Default)]
pub(super) struct AppConnections(Mutex<AppConnectionTable>);

#[derive(Default)]
struct AppConnectionTable {
    last: u64,
    open: HashMap<u64, Arc<Mailbox>>,
    is_stopping: bool,
}

impl AppConnections {
    /// `None` when there are too many, the access was taken back, or the hub stops.
    pub(super) fn add(&self, principal: &Principal, limits: &Limits) -> Option<(u64, Arc<Mailbox>)> {
        let mut state = self.0.lock();
        let is_full = state.open.len() >= limits.connections_max;
        if is_full || state.is_stopping || principal.revoked.is_cancelled() {
            return None;
        }
        state.last += 1;
        let number = state.last;
        let mailbox = Mailbox::new(format!("a{number}"), principal, limits.mail_bounds());
        state.open.insert(number, Arc::clone(&mailbox));
        Some((number, mailbox))
    }

    pub(super) fn remove(&self, number: u64) {
        self.0.lock().open.remove(&number);
    }

    pub(super) fn count(&self) -> usize {
        self.0.lock().open.len()
    }

    pub(super) fn close_revoked(&self) {
        for mailbox in self.0.lock().open.values().filter(|mailbox| mailbox.asker.revoked.is_cancelled()) {
            let reason = "the access is revoked; log in again, or use another token".into();
            mailbox.put(ConnectionMail::Close { frames: Bytes::new(), code: 1008, reason });
        }
    }

    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        // Set under the lock: who is not in the list yet will not get in.
        state.is_stopping = true;
        for mailbox in state.open.values() {
            mailbox.put(ConnectionMail::Close {
                frames: Bytes::new(),
                code: 1001,
                reason: "the hub stops".into(),
            });
        }
    }
}
