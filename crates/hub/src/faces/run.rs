//! The run document towards apps: `/ws/app`, and its HTTP routes.
//!
//! An app gets the events of all runs from the moment it connects. Records are put into the document's words once,
//! whoever listens, and go into one [`feed`] that all apps share; who falls behind in it reads the log.

mod feed;
mod handler;
mod http;
mod lists;
mod messages;
mod past;

use std::ops::Range;
use std::sync::Arc;

use axum::Router;
use bytes::{BufMut, Bytes, BytesMut};
use qd_core::record::Record;
use qd_core::view::run::SessionKind;
use qd_core::view::run::event::{EventClass, is_shown, show};
use qd_wire::rest::Health;
use serde::Deserialize;

use super::{Face, FaceFuture};
use crate::config::HubConfig;
use crate::connection::{ConnectionTable, frame};
use crate::hub::{ACCESS_REVOKED, HUB_STOPS, Hub};
use crate::server::Server;
use crate::sessions::published::PublishedEvents;
use crate::sessions::session::SessionEntry;
use feed::{EventFeed, RecordEvents};

/// The feed of all runs holds so many times what the ring of one session does.
const FEED_FACTOR: usize = 8;
/// What an event of the document is longer than its record, at most and about.
const HEAD_BYTES: usize = 128;

/// The question that an event is about.
#[derive(Deserialize)]
struct QuestionName {
    request_id: String,
}

/// What the face knows.
pub(crate) struct RunFace {
    feed: Arc<EventFeed>,
    connections: ConnectionTable,
}

impl RunFace {
    pub(super) fn new(config: &HubConfig) -> Self {
        let ring_bytes_max = config.limits.ring_bytes_max;
        Self {
            feed: Arc::new(EventFeed::new(ring_bytes_max.saturating_mul(FEED_FACTOR))),
            connections: ConnectionTable::default(),
        }
    }

    async fn show_unrecorded(&self, hub: &Hub, entry: &Arc<SessionEntry>, line: &[u8]) {
        let Some(record) = std::str::from_utf8(line).ok().and_then(Record::parse_live) else {
            return tracing::warn!(session = %entry.id, "apps cannot be told of an event");
        };
        let kind = entry.kind();
        // The log does not have it: what is read there later would be without it.
        if let Err(error) = past::run_of(hub, entry).await {
            tracing::warn!(session = %entry.id, %error, "the past of a run cannot be read");
        }
        if let Some(QuestionName { request_id }) = record.read() {
            entry.projection().settle(&request_id);
        }
        if self.feed.is_followed() {
            let mut events = RunFrames::with_capacity(line.len());
            events.push(kind, &record);
            self.feed.publish(events.into_chunks(entry));
        }
    }
}

impl Face for RunFace {
    fn routes(&self) -> Router<Server> {
        http::routes()
    }

    fn path_prefixes(&self) -> &'static [&'static str] {
        &["runs", "sessions", "hosts", "server", "health"]
    }

    fn is_used(&self) -> bool {
        self.feed.is_followed()
    }

    /// Records are shown to apps.
    fn on_published(&self, _hub: &Arc<Hub>, published: PublishedEvents<'_>) {
        if !published.has_records() {
            return;
        }
        let entry = published.entry;
        let mut events = RunFrames::with_capacity(published.frame_bytes());
        published.records().for_each(|record| events.push(entry.kind(), &record));
        self.feed.publish(events.into_chunks(entry));
    }

    fn on_unrecorded<'a>(
        &'a self,
        hub: &'a Arc<Hub>,
        entry: &'a Arc<SessionEntry>,
        line: &'a [u8],
    ) -> FaceFuture<'a, ()> {
        Box::pin(self.show_unrecorded(hub, entry, line))
    }

    fn close_revoked(&self) {
        self.connections.close_revoked(ACCESS_REVOKED);
    }

    fn close_connections(&self) {
        self.connections.close(&Bytes::new(), HUB_STOPS);
    }

    fn connection_count(&self) -> usize {
        self.connections.count()
    }

    fn show_health(&self, health: &mut Health) {
        health.apps = self.connections.count() as u64;
    }
}

/// Records of one session in the document's words, as frames for every app.
pub(super) struct RunFrames {
    out: BytesMut,
    marks: Vec<FrameMark>,
    /// The last record that is in it, or was before the first.
    after: Option<u64>,
}

struct FrameMark {
    after: u64,
    seq: u64,
    class: EventClass,
    range: Range<usize>,
}

impl RunFrames {
    fn with_capacity(bytes: usize) -> Self {
        Self { out: BytesMut::with_capacity(bytes + HEAD_BYTES), marks: Vec::new(), after: None }
    }

    fn push(&mut self, kind: SessionKind, record: &Record<'_>) {
        let after = self.after.unwrap_or(record.seq.saturating_sub(1));
        // Decided by the name alone, so that records which no app sees are not parsed.
        if !is_shown(kind, &record.event) {
            self.after = Some(after);
            return;
        }
        let start = self.out.len();
        let mut class = EventClass::Other;
        show(kind, record, &mut |shown| {
            class = shown.class();
            let length = shown.pieces.iter().map(|piece| piece.len()).sum();
            frame::put_text_header(&mut self.out, length);
            shown.pieces.iter().for_each(|piece| self.out.put_slice(piece.as_bytes()));
        });
        if self.out.len() > start {
            self.marks.push(FrameMark { after, seq: record.seq, class, range: start..self.out.len() });
            self.after = Some(record.seq);
        } else {
            self.after = Some(after);
        }
    }

    /// The frames of the events that are wanted.
    fn into_frames(self, wants: impl Fn(EventClass) -> bool) -> Bytes {
        // Most apps want everything, and get the bytes without a copy.
        if self.marks.iter().all(|mark| wants(mark.class)) {
            return self.out.freeze();
        }
        let mut out = BytesMut::new();
        for mark in self.marks.iter().filter(|mark| wants(mark.class)) {
            out.put_slice(&self.out[mark.range.clone()]);
        }
        out.freeze()
    }

    fn into_chunks(self, entry: &Arc<SessionEntry>) -> Vec<RecordEvents> {
        let frames = self.out.freeze();
        let chunk = |mark: FrameMark| RecordEvents {
            entry: Arc::clone(entry),
            after: mark.after,
            seq: mark.seq,
            class: mark.class,
            frames: frames.slice(mark.range),
        };
        self.marks.into_iter().map(chunk).collect()
    }
}
