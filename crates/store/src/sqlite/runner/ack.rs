//! Acks on their way to the disk. They are joined and written lazily, since losing one only repeats a send.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rusqlite::Connection;

use super::spool::{SpoolPosition, SpoolPositions};
use super::tail;
use crate::sqlite::engine::group::in_transaction;
use crate::sqlite::engine::writer::BackgroundWork;
use crate::sqlite::error::SqlResult;
use crate::sqlite::lock::lock;

/// Acks wait this long at most, so that many become one change. Rare, because on two cores a thread that wakes up
/// drives the one that echoes a key from its core, and its next keys find cold caches.
pub const ACK_FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// The same while the thread is at work for others: a long list of acks would make them wait.
const BUSY_ACK_FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// So often the thread looks for acks in vain before it sleeps until it is woken. Whoever types is acked more often,
/// so none of the keys has to wake it.
const LOOKS_IN_VAIN_MAX: u32 = 10;

/// Acks not yet stored: the greatest per session, so bounded by the number of sessions. They
/// run in a transaction of their own, since they must get through when new lines do not fit any more.
pub(super) struct PendingAcks {
    waiting: Mutex<WaitingAcks>,
    places: Arc<SpoolPositions>,
    spool_bytes: Arc<AtomicU64>,
}

#[derive(Default)]
struct WaitingAcks {
    acks: HashMap<String, u64>,
    /// The writer looks here by itself, so it need not be woken.
    is_watched: bool,
    /// Looks of the writer since it found something.
    looks_in_vain: u32,
}

impl PendingAcks {
    pub(super) fn new(places: Arc<SpoolPositions>, spool_bytes: Arc<AtomicU64>) -> Self {
        Self { waiting: Mutex::default(), places, spool_bytes }
    }

    /// True if the writer must be woken.
    pub(super) fn note(&self, session_id: &str, seq: u64) -> bool {
        let mut waiting = self.lock();
        match waiting.acks.get_mut(session_id) {
            Some(known) => *known = seq.max(*known),
            None => {
                waiting.acks.insert(session_id.to_owned(), seq);
            }
        }
        !std::mem::replace(&mut waiting.is_watched, true)
    }

    pub(super) fn forget(&self, session_id: &str) {
        self.lock().acks.remove(session_id);
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

    fn lock(&self) -> MutexGuard<'_, WaitingAcks> {
        lock(&self.waiting)
    }
}

impl BackgroundWork for PendingAcks {
    fn is_pending(&self) -> bool {
        !self.lock().acks.is_empty()
    }

    fn watch(&self) -> Option<Duration> {
        let mut waiting = self.lock();
        waiting.looks_in_vain = if waiting.acks.is_empty() { waiting.looks_in_vain + 1 } else { 0 };
        waiting.is_watched = waiting.looks_in_vain <= LOOKS_IN_VAIN_MAX;
        waiting.is_watched.then_some(ACK_FLUSH_INTERVAL)
    }

    fn run(&self, connection: &Connection) {
        let acks = std::mem::take(&mut self.lock().acks);
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

    fn interval(&self, is_awake: bool) -> Duration {
        if is_awake { BUSY_ACK_FLUSH_INTERVAL } else { ACK_FLUSH_INTERVAL }
    }
}
