//! The clients of the pi-server face. They are counted by themselves, and get none of the hub's own broadcasts.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use qd_link::mutex::Mutex;

use crate::access::principals::Principal;
use crate::connection::{ConnectionMail, Mailbox, MailboxBounds};

/// Connections that are told at one time that they are too many; more are refused before the upgrade. Each is kept
/// for some seconds, until its peer has read the close.
const TURNED_AWAY_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct PiConnections(Mutex<PiConnectionTable>);

#[derive(Default)]
struct PiConnectionTable {
    last: u64,
    open: HashMap<u64, Arc<Mailbox>>,
    turned_away: usize,
    /// All that were too many so far.
    turned_away_total: u64,
    is_stopping: bool,
}

/// What becomes of one who wants to connect.
pub(crate) enum ConnectionAdmission {
    Served(u64, Arc<Mailbox>),
    /// It is one too many, and can be told so on its connection.
    Rejected(Arc<Mailbox>),
    /// It is one too many of those, its access was taken back, or the hub stops.
    Refused,
}

impl PiConnections {
    pub(crate) fn add(
        &self,
        principal: &Principal,
        connections_max: usize,
        bounds: MailboxBounds,
    ) -> ConnectionAdmission {
        let mut state = self.0.lock();
        if state.is_stopping || principal.revoked.is_cancelled() {
            return ConnectionAdmission::Refused;
        }
        let is_full = state.open.len() >= connections_max;
        state.turned_away_total += u64::from(is_full);
        if is_full && state.turned_away >= TURNED_AWAY_MAX {
            return ConnectionAdmission::Refused;
        }
        state.last += 1;
        let number = state.last;
        let mailbox = Mailbox::new(format!("p{number}"), principal, bounds);
        if is_full {
            state.turned_away += 1;
            return ConnectionAdmission::Rejected(mailbox);
        }
        state.open.insert(number, Arc::clone(&mailbox));
        ConnectionAdmission::Served(number, mailbox)
    }

    pub(crate) fn remove(&self, number: u64) {
        self.0.lock().open.remove(&number);
    }

    pub(crate) fn note_turned_away_gone(&self) {
        self.0.lock().turned_away -= 1;
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().open.len()
    }

    /// How many were turned away because there were too many.
    pub(crate) fn turned_away(&self) -> u64 {
        self.0.lock().turned_away_total
    }

    /// Nobody is let in any more. True the first time.
    pub(crate) fn stop(&self) -> bool {
        !std::mem::replace(&mut self.0.lock().is_stopping, true)
    }

    /// Closes every connection after what waits for it.
    pub(crate) fn close(&self) {
        let mailboxes: Vec<Arc<Mailbox>> = {
            let mut state = self.0.lock();
            state.is_stopping = true;
            state.open.values().cloned().collect()
        };
        for mailbox in mailboxes {
            let reason = "Server shutting down".into();
            mailbox.put(ConnectionMail::Close { frames: Bytes::new(), code: 1001, reason });
        }
    }

    /// Closes the connections whose access was taken back.
    pub(crate) fn close_revoked(&self) {
        let state = self.0.lock();
        for mailbox in state.open.values().filter(|mailbox| mailbox.asker.revoked.is_cancelled()) {
            let reason = "Access token revoked".into();
            mailbox.put(ConnectionMail::Close { frames: Bytes::new(), code: 1008, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::access::principals::Principals;

    #[test]
    fn one_too_many_is_told_so_and_the_next_of_those_is_refused() {
        let connections = PiConnections::default();
        let bounds = MailboxBounds { held_bytes_max: 1 << 20, stall_max: Duration::from_secs(1) };
        let owner = Principal::owner();
        let ConnectionAdmission::Served(first, _) = connections.add(&owner, 1, bounds) else {
            panic!("not served")
        };
        for _ in 0..TURNED_AWAY_MAX {
            assert!(matches!(connections.add(&owner, 1, bounds), ConnectionAdmission::Rejected(_)));
        }
        assert!(matches!(connections.add(&owner, 1, bounds), ConnectionAdmission::Refused));
        connections.note_turned_away_gone();
        assert!(matches!(connections.add(&owner, 1, bounds), ConnectionAdmission::Rejected(_)));
        connections.remove(first);
        assert!(matches!(connections.add(&owner, 1, bounds), ConnectionAdmission::Served(..)));
        assert!(connections.stop() && !connections.stop());
        assert!(matches!(connections.add(&owner, 9, bounds), ConnectionAdmission::Refused));
        assert_eq!(connections.count(), 1);
    }

    #[test]
    fn who_has_no_access_any_more_is_closed_and_not_let_in() {
        let connections = PiConnections::default();
        let bounds = MailboxBounds { held_bytes_max: 1 << 20, stall_max: Duration::from_secs(1) };
        let principals = Principals::default();
        let ci = principals.enter_for_tests("ci", principals.generation()).unwrap();
        let served = |principal: &Principal| match connections.add(principal, 9, bounds) {
            ConnectionAdmission::Served(_, mailbox) => Some(mailbox),
            _ => None,
        };
        let (theirs, owners) = (served(&ci).unwrap(), served(&Principal::owner()).unwrap());
        principals.revoke("ci");
        connections.close_revoked();
        assert!(matches!(theirs.take(1).pop_front(), Some(ConnectionMail::Close { code: 1008, .. })));
        assert!(owners.take(1).is_empty());
        assert!(served(&ci).is_none());
    }
}
