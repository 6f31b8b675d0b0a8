//! The part of the hub's store that concerns runners.

use super::types::{RunnerNote, RunnerRow};
use super::{HubStore, burials, runners};
use crate::error::Result;

impl HubStore {
    /// All runners that ever joined, revoked ones too, by id.
    pub async fn runners(&self) -> Result<Vec<RunnerRow>> {
        self.engine.read(runners::list).await
    }

    pub async fn runner(&self, runner_id: &str) -> Result<Option<RunnerRow>> {
        let runner_id = runner_id.to_owned();
        self.engine.read(move |connection| runners::get(connection, &runner_id)).await
    }

    /// Stores a runner; one of the same id is replaced whole, its revocation included.
    pub async fn put_runner(&self, runner: RunnerRow) -> Result<()> {
        self.engine.write(0, move |connection| runners::put(connection, &runner)).await
    }

    /// Notes what a runner said of itself. One that never joined gets a row with an empty key, which no key
    /// matches: that is for the hub's own runner. Keys and revocation stay as they are.
    pub async fn note_runner(&self, note: RunnerNote) -> Result<()> {
        self.engine.write(0, move |connection| runners::note(connection, &note)).await
    }

    /// Prepares a rotation; a later one takes the place of an earlier one. False if there is no such runner or it
    /// is revoked.
    pub async fn set_next_key(&self, runner_id: &str, key_hash: &[u8]) -> Result<bool> {
        let (runner_id, key_hash) = (runner_id.to_owned(), key_hash.to_vec());
        self.engine.write(0, move |connection| runners::set_next_key(connection, &runner_id, &key_hash)).await
    }

    /// Finishes a rotation: the prepared key becomes the key, if it is this one. False if it is not, or the runner
    /// is revoked.
    pub async fn promote_key(&self, runner_id: &str, key_hash: &[u8], now: i64) -> Result<bool> {
        let (runner_id, key_hash) = (runner_id.to_owned(), key_hash.to_vec());
        let promote = move |connection: &_| runners::promote_key(connection, &runner_id, &key_hash, now);
        self.engine.write(0, promote).await
    }

    /// False if there is no such runner or it was revoked before. Its hashes stay, so that its next visit can be
    /// refused by name.
    pub async fn revoke_runner(&self, runner_id: &str, now: i64) -> Result<bool> {
        let runner_id = runner_id.to_owned();
        self.engine.write(0, move |connection| runners::revoke(connection, &runner_id, now)).await
    }

    /// Removes a session with its records and messages and leaves a tombstone for its runner, in one transaction.
    /// The tombstone stands even if there was no session, which is what false says. Beyond `BURIED_SESSIONS_MAX`
    /// the oldest tombstones go.
    pub async fn bury_session(&self, session_id: &str, runner_id: &str, now: i64) -> Result<bool> {
        let (session_id, runner_id) = (session_id.to_owned(), runner_id.to_owned());
        self.engine.write(0, move |connection| burials::bury(connection, &session_id, &runner_id, now)).await
    }

    /// The sessions this runner has yet to delete, those buried first in front.
    pub async fn buried_sessions(&self, runner_id: &str) -> Result<Vec<String>> {
        let runner_id = runner_id.to_owned();
        self.engine.read(move |connection| burials::of_runner(connection, &runner_id)).await
    }

    /// The runner that has yet to delete this session, if it is buried.
    pub async fn is_buried(&self, session_id: &str) -> Result<Option<String>> {
        let session_id = session_id.to_owned();
        self.engine.read(move |connection| burials::runner_of(connection, &session_id)).await
    }

    /// Takes a tombstone away: its runner has deleted the session. False if there was none.
    pub async fn unbury_session(&self, session_id: &str) -> Result<bool> {
        let session_id = session_id.to_owned();
        self.engine.write(0, move |connection| burials::unbury(connection, &session_id)).await
    }
}
