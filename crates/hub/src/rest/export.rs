//! A whole conversation as a file to keep: from the hub's copy, so also while its runner is away, and page by page, so
//! that neither side holds more than one.
//!
//! The answer has begun when something fails, so its status says nothing any more: an error breaks the stream off,
//! and the browser reports a failed download instead of a short file.

mod html;
mod markdown;
mod text;

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::IntoResponse;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, stream};
use http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use qd_core::time::iso_8601;
use qd_link::clock::now_ms;
use qd_wire::data::SessionSummary;
use qd_wire::{CodedError, Message};
use serde::Deserialize;

use crate::hub::Hub;
use crate::rest::messages::no_session;
use crate::rest::request::{RestResult, Viewer};

/// Where the file is opened on the hub's own address after all, it is nobody's page and runs nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";
/// A file's name is to be read.
const SLUG_CHARS_MAX: usize = 60;

#[derive(Deserialize)]
pub(crate) struct ExportQuery {
    format: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExportFormat {
    Html,
    Json,
    Markdown,
}

impl ExportFormat {
    fn parse(word: Option<&str>) -> Option<Self> {
        match word {
            None | Some("html") => Some(ExportFormat::Html),
            Some("json") => Some(ExportFormat::Json),
            Some("md") => Some(ExportFormat::Markdown),
            Some(_) => None,
        }
    }

    fn mime(self) -> &'static str {
        match self {
            ExportFormat::Html => "text/html; charset=utf-8",
            ExportFormat::Json => "application/json",
            ExportFormat::Markdown => "text/markdown; charset=utf-8",
        }
    }

    fn ending(self) -> &'static str {
        match self {
            ExportFormat::Html => "html",
            ExportFormat::Json => "json",
            ExportFormat::Markdown => "md",
        }
    }
}

/// `GET /api/sessions/{session_id}/export`
pub(crate) async fn export(
    State(hub): State<Arc<Hub>>,
    _: Viewer,
    Path(session_id): Path<String>,
    wanted: Result<Query<ExportQuery>, QueryRejection>,
) -> RestResult {
    let format = wanted.ok().and_then(|Query(wanted)| ExportFormat::parse(wanted.format.as_deref()));
    let format = format.ok_or_else(|| CodedError::invalid("'format' must be 'html', 'json' or 'md'"))?;
    let session = hub.summary(hub.store.session(&session_id).await?.ok_or_else(no_session)?);
    let now = now_ms();
    let headers = [
        (CONTENT_TYPE, format.mime().to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{}\"", file_name(&session, format, now))),
        (CONTENT_SECURITY_POLICY, POLICY.to_owned()),
    ];
    let export = Export { hub, session, format, exported_at: now, after: None, stage: ExportStage::Head };
    Ok((headers, Body::from_stream(export.into_stream())).into_response())
}

/// The title as far as every system takes it, and the day.
fn file_name(session: &SessionSummary, format: ExportFormat, now: i64) -> String {
    let title = session.title.as_deref().filter(|title| !title.is_empty()).unwrap_or(&session.session_id);
    let mut slug = String::new();
    for letter in title.chars() {
        if letter.is_ascii_alphanumeric() {
            slug.push(letter.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
        if slug.len() >= SLUG_CHARS_MAX {
            break;
        }
    }
    let slug = slug.trim_matches('-');
    let slug = if slug.is_empty() { "session" } else { slug };
    let day = iso_8601(now);
    format!("{slug}-{}.{}", day.get(..10).unwrap_or_default(), format.ending())
}

struct Export {
    hub: Arc<Hub>,
    session: SessionSummary,
    format: ExportFormat,
    /// Unix milliseconds.
    exported_at: i64,
    /// The last message that is in it.
    after: Option<i64>,
    stage: ExportStage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExportStage {
    Head,
    Messages,
    Done,
}

impl Export {
    fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> {
        stream::unfold(self, |mut export| async move {
            let piece = export.next().await?;
            Some((piece, export))
        })
    }

    /// The next piece of the file. An error breaks the answer off, so that nobody takes a part for the whole.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        match self.stage {
            ExportStage::Head => {
                self.stage = ExportStage::Messages;
                Some(Ok(self.head().into()))
            }
            ExportStage::Messages => {
                let page = self.hub.store.messages_after(&self.session.session_id, self.after).await;
                let page = match page {
                    Ok(page) => page,
                    Err(error) => {
                        self.stage = ExportStage::Done;
                        return Some(Err(io::Error::other(error)));
                    }
                };
                let Some((last, _)) = page.last() else {
                    self.stage = ExportStage::Done;
                    return Some(Ok(Bytes::from_static(self.end().as_bytes())));
                };
                // Messages that arrive while the file is written have higher numbers, so they join its end.
                let is_first = self.after.replace(*last).is_none();
                Some(Ok(self.page(&page, is_first)))
            }
            ExportStage::Done => None,
        }
    }

    fn head(&self) -> String {
        match self.format {
            ExportFormat::Html => html::head(&self.session, self.exported_at),
            ExportFormat::Markdown => markdown::head(&self.session, self.exported_at),
            ExportFormat::Json => {
                // A summary has no maps with odd keys, so writing it cannot fail.
                let session = serde_json::to_string(&self.session).unwrap_or_default();
                format!("{{\"session\":{session},\"exported_at\":{},\"messages\":[", self.exported_at)
            }
        }
    }

    fn page(&self, page: &[(i64, Bytes)], is_first: bool) -> Bytes {
        if self.format == ExportFormat::Json {
            let mut out = BytesMut::new();
            for (number, (_, message)) in page.iter().enumerate() {
                if number > 0 || !is_first {
                    out.put_slice(b",");
                }
                out.put_slice(b"\n");
                // The stored bytes are copied unread, so the export also has fields that this version does not know.
                out.put_slice(message);
            }
            return out.freeze();
        }
        let mut out = String::new();
        for (_, message) in page {
            match serde_json::from_slice::<Message>(message) {
                Ok(message) if self.format == ExportFormat::Html => html::message(&mut out, &message),
                Ok(message) => markdown::message(&mut out, &message),
                Err(error) => {
                    tracing::warn!(session = self.session.session_id, %error, "a stored message cannot be read");
                    let note = "A message is missing here: it cannot be read.";
                    match self.format {
                        ExportFormat::Html => html::note(&mut out, note),
                        ExportFormat::Json | ExportFormat::Markdown => markdown::note(&mut out, note),
                    }
                }
            }
        }
        out.into()
    }

    fn end(&self) -> &'static str {
        match self.format {
            ExportFormat::Html => html::END,
            ExportFormat::Markdown => "",
            ExportFormat::Json => "\n]}\n",
        }
    }
}

#[cfg(test)]
#[path = "export/tests.rs"]
mod tests;
