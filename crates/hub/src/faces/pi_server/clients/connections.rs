//! The clients of the pi-server face. They are counted by themselves, and get none of the hub's own broadcasts.
//!
//! A client that is one too many is told so on its WebSocket, up to `TURNED_AWAY_MAX` at a time.

use std::sync::Arc;

use qd_link::mutex::Mutex;

use crate::access::principals::Principal;
use crate::connection::{ConnectionRefusal, ConnectionTable, Mailbox, MailboxBounds};

/// Connections that are told at one time that they are too many; more are refused before the upgrade. Each is kept
/// for some seconds, until its peer has read the close.
const TURNED_AWAY_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct PiConnections {
    pub(crate) open: ConnectionTable,
    turned_away: Mutex<TurnedAway>,
}

/// Connections that were too many.
#[derive(Default)]
struct TurnedAway {
    /// Those that are being told so.
    open: usize,
    total: u64,
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
        match self.open.add("p", principal, connections_max, bounds) {
            Ok((number, mailbox)) => ConnectionAdmission::Served(number, mailbox),
            Err(ConnectionRefusal::Closed) => ConnectionAdmission::Refused,
            Err(ConnectionRefusal::TooMany) => {
                let mut turned_away = self.turned_away.lock();
                turned_away.total += 1;
                if turned_away.open >= TURNED_AWAY_MAX {
                    return ConnectionAdmission::Refused;
                }
                turned_away.open += 1;
                // It asks for nothing, so it needs no number of its own.
                ConnectionAdmission::Rejected(Mailbox::new("p0".to_owned(), principal, bounds))
            }
        }
    }

    pub(crate) fn note_turned_away_gone(&self) {
        self.turned_away.lock().open -= 1;
    }

    /// How many were turned away because there were too many.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.lock().total
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::access::principals::Principals;
    use crate::connection::ConnectionMail;

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
        connections.open.remove(first);
        assert!(matches!(connections.add(&owner, 1, bounds), ConnectionAdmission::Served(..)));
        assert!(connections.open.stop() && !connections.open.stop());
        assert!(matches!(connections.add(&owner, 9, bounds), ConnectionAdmission::Refused));
        assert_eq!(connections.open.count(), 1);
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
        connections.open.close_revoked("revoked");
        assert!(matches!(theirs.take(1).pop_front(), Some(ConnectionMail::Close { code: 1008, .. })));
        assert!(owners.take(1).is_empty());
        assert!(served(&ci).is_none());
    }
}
