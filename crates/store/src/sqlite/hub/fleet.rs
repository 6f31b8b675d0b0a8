//! The part of the hub's store that concerns runners.

use super::{SqliteHub, deleted_sessions, runners};
use crate::error::Result;
use crate::hub::{RunnerNote, RunnerRow};

impl SqliteHub {
    pub(crate) async fn runners(&self) -> Result<Vec<RunnerRow>> {
        self.engine.read(runners::list).await
    }

    pub(crate) async fn runner(&self, runner_id: &str) -> Result<Option<RunnerRow>> {
        let runner_id = runner_id.to_owned();
        self.engine.read(move |connection| runners::get(connection, &runner_id)).await
    }

    pub(crate) async fn put_runner(&self, runner: RunnerRow) -> Result<()> {
        self.engine.write(0, move |connection| runners::put(connection, &runner)).await
    }

    pub(crate) async fn note_runner(&self, note: RunnerNote) -> Result<()> {
        self.engine.write(0, move |connection| runners::note(connection, &note)).await
    }

    pub(crate) async fn set_next_key(&self, runner_id: &str, key_hash: &[u8]) -> Result<bool> {
        let (runner_id, key_hash) = (runner_id.to_owned(), key_hash.to_vec());
        self.engine.write(0, move |connection| runners::set_next_key(connection, &runner_id, &key_hash)).await
    }

    pub(crate) async fn promote_key(&self, runner_id: &str, key_hash: &[u8], now: i64) -> Result<bool> {
        let (runner_id, key_hash) = (runner_id.to_owned(), key_hash.to_vec());
        let promote = move |connection: &_| runners::promote_key(connection, &runner_id, &key_hash, now);
        self.engine.write(0, promote).await
    }

    pub(crate) async fn revoke_runner(&self, runner_id: &str, now: i64) -> Result<bool> {
        let runner_id = runner_id.to_owned();
        self.engine.write(0, move |connection| runners::revoke(connection, &runner_id, now)).await
    }

    pub(crate) async fn mark_session_deleted(
        &self,
        session_id: &str,
        runner_id: &str,
        now: i64,
    ) -> Result<bool> {
        let (session_id, runner_id) = (session_id.to_owned(), runner_id.to_owned());
        self.engine
            .write(0, move |connection| deleted_sessions::mark(connection, &session_id, &runner_id, now))
            .await
    }

    pub(crate) async fn deleted_sessions_of(&self, runner_id: &str) -> Result<Vec<String>> {
        let runner_id = runner_id.to_owned();
        self.engine.read(move |connection| deleted_sessions::of_runner(connection, &runner_id)).await
    }

    pub(crate) async fn runner_of_deleted(&self, session_id: &str) -> Result<Option<String>> {
        let session_id = session_id.to_owned();
        self.engine.read(move |connection| deleted_sessions::runner_of(connection, &session_id)).await
    }

    pub(crate) async fn forget_deleted_session(&self, session_id: &str) -> Result<bool> {
        let session_id = session_id.to_owned();
        self.engine.write(0, move |connection| deleted_sessions::forget(connection, &session_id)).await
    }
}
