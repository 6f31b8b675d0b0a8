use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::spool::{SpoolPosition, SpoolPositions};
use super::tail;
use crate::sqlite::error::SqlResult;
use crate::sqlite::group::in_transaction;
use crate::sqlite::writer::BackgroundWork;

/// Acks wait this long at most, so that many become one change.
pub const ACK_FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Acks not yet stored: the greatest per session, so bounded by the number of sessions. They
/// run in a transaction of their own, since they must get through when new lines do not fit any more.
pub(super) struct PendingAcks {
    waiting: Mutex<HashMap<String, u64>>,
    places: Arc<SpoolPositions>,
    spool_bytes: Arc<AtomicU64>,
}

impl PendingAcks {
    pub(super) fn new(places: Arc<SpoolPositions>, spool_bytes: Arc<AtomicU64>) -> Self {
        Self { waiting: Mutex::new(HashMap::new()), places, spool_bytes }
    }

    /// True if nothing was waiting before, so that the writer must be woken.
    pub(super) fn note(&self, session_id: &str, seq: u64) -> bool {
        let mut waiting = self.lock();
        let first = waiting.is_empty();
        match waiting.get_mut(session_id) {
            Some(known) => *known = seq.max(*known),
            None => {
                waiting.insert(session_id.to_owned(), seq);
            }
        }
        first
    }

    pub(super) fn forget(&self, session_id: &str) {
        self.lock().remove(session_id);
    }

    /// Where the sessions stand after these acks, and the bytes that wait no longer.
    fn flush(
        &self,
        connection: &Connection,
        acks: &HashMap<String, u64>,
    ) -> SqlResult<(Vec<(String, SpoolPosition)>, u64)> {
        in_transaction(connection, || {
            let (mut moved, mut freed) = (Vec::new(), 0);
            for (session_id, seq) in acks {
                let Some(place) = self.places.get(session_id) else { continue };
                let (place, bytes) = tail::ack(connection, place, *seq)?;
                moved.push((session_id.clone(), place));
                freed += bytes;
            }
            Ok((moved, freed))
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackgroundWork for PendingAcks {
    fn is_pending(&self) -> bool {
        !self.lock().is_empty()
    }

    fn run(&self, connection: &Connection) {
        let acks = std::mem::take(&mut *self.lock());
        match self.flush(connection, &acks) {
            Ok((moved, freed)) => {
                // Commits and acks take turns on the one connection, so no unit comes between.
                moved.iter().for_each(|(session_id, place)| self.places.set(session_id, *place));
                self.spool_bytes.fetch_sub(freed, Ordering::AcqRel);
            }
            Err(error) => {
                tracing::warn!(%error, "acks could not be stored, so the spool does not shrink; trying again");
                for (session_id, seq) in acks {
                    self.note(&session_id, seq);
                }
            }
        }
    }

    fn interval(&self) -> Duration {
        ACK_FLUSH_INTERVAL
    }
}
