//! What the hub's store says of a host's runs.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use qd_core::terminal::Screen;
use qd_core::view::run::host::foreign_run::{FOREIGN_RUN_EVENTS, ForeignRun};
use qd_store::StoreError;
use qd_wire::event::{Event, EventPayload};
use qd_wire::run::TerminalSnapshot;
use qd_wire::{CodedError, ErrorCode, EventEnvelope};

use super::adapter::HostAdapter;
use crate::sessions::reads::unreadable;

/// Records read at a time.
const PAGE_ROWS: usize = 1000;
const PAGE_BYTES: usize = 4 << 20;
/// Output that a screen is made of: more than a screen with its scrollback holds.
const SCREEN_BYTES: usize = 1 << 20;
const OUTPUT: &[&str] = &["run.output"];

impl HostAdapter {
    /// The books of all runs that go on, as far as their records are committed.
    pub(super) async fn books(&self) -> Result<HashMap<String, ForeignRun>, StoreError> {
        let mut books = HashMap::new();
        for entry in self.hub.sessions_of(&self.host_id) {
            if self.has_ended(&entry.id) {
                continue;
            }
            let mut book = ForeignRun::default();
            let committed = entry.committed_seq();
            self.read_on(&entry.id, &mut book).await?;
            book.seq = book.seq.max(committed);
            books.insert(entry.id.to_string(), book);
        }
        Ok(books)
    }

    /// Reads what has been committed since the book was written.
    pub(super) async fn read_on(&self, run_id: &str, book: &mut ForeignRun) -> Result<(), StoreError> {
        loop {
            let page = self
                .hub
                .store
                .records_of(run_id, FOREIGN_RUN_EVENTS, book.seq, PAGE_ROWS, PAGE_BYTES)
                .await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            let last = *last;
            for (seq, body) in &page {
                if let Some(record) = read(run_id, body) {
                    book.read(record.ts, *seq, &record.payload);
                }
            }
            // A record that cannot be read must not be read for ever.
            book.seq = book.seq.max(last);
        }
    }

    /// The screen of a run, as of the records that are committed now.
    pub(super) async fn screen(
        self: &Arc<Self>,
        run_id: &str,
        (cols, rows): (u16, u16),
    ) -> Result<TerminalSnapshot, CodedError> {
        let entry = self.hub.session(run_id).ok_or_else(|| CodedError::session_not_found(run_id))?;
        let seq = entry.committed_seq();
        let output = self.hub.store.newest_records_of(run_id, OUTPUT, PAGE_ROWS, SCREEN_BYTES).await;
        let output = output.map_err(|error| unreadable(&error))?;
        let run_id = run_id.to_owned();
        let draw = move || {
            let mut screen = Screen::new(cols, rows);
            for (_, body) in output.iter().filter(|(place, _)| *place <= seq) {
                if let Some(EventPayload::Known(Event::RunOutput { text, .. })) =
                    read(&run_id, body).map(|record| record.payload)
                {
                    screen.push(&text);
                }
            }
            screen.snapshot(seq)
        };
        // Drawing a megabyte of output takes long enough to hold up other connections.
        tokio::task::spawn_blocking(draw)
            .await
            .map_err(|error| ErrorCode::Internal.with(format!("The screen cannot be drawn: {error}")))
    }
}

fn read(run_id: &str, body: &Bytes) -> Option<EventEnvelope> {
    serde_json::from_slice(body)
        .inspect_err(|error| tracing::warn!(session = run_id, %error, "a stored record cannot be read"))
        .ok()
}
