//! Files over HTTP: downloads and uploads of any size, page by page, so that neither side holds more than one.
//!
//! An upload goes to the runner in pieces under a name of its own, and the file appears with the last one. A body
//! that breaks off is taken back, so that nothing half sent stays on the machine.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use qd_wire::command_table::CommandName;
use qd_wire::service::{Encoding, FsReadData, FsUploadData};
use qd_wire::{CodedError, ErrorCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::access::authenticate::random_text;
use crate::access::principals::Principal;
use crate::command::Command;
use crate::hub::Hub;
use crate::rest::commands::ask_and_wait;
use crate::rest::request::{Caller, QueryResult, RestError, RestResult, read_query};
use crate::server::Server;
use crate::server::router::no_randomness;

/// Bytes of one piece of an upload.
const PIECE_BYTES: usize = 512 << 10;
/// Names one upload among those that run at the same time; nobody may guess another's.
const UPLOAD_ID_BYTES: usize = 16;

/// Which file.
#[derive(Deserialize)]
pub(crate) struct FileQuery {
    path: String,
    /// Of an upload: write only if the file has this hash now; empty for a file that is not there.
    expected_hash: Option<String>,
    create_parents: Option<bool>,
    /// Show it, instead of saving it.
    inline: Option<bool>,
}

const NO_PLACE: &str = "Name the file as 'path'; 'create_parents' and 'inline' must be true or false";

/// `GET /api/sessions/{session_id}/file?path=…`: the bytes of a file.
pub(crate) async fn download(
    State(server): State<Server>,
    Caller(principal): Caller,
    Path(session_id): Path<String>,
    place: QueryResult<FileQuery>,
) -> RestResult {
    let place = read_query(place, NO_PLACE)?;
    let reader = FileReader { hub: Arc::clone(&server.hub), principal, session_id, path: place.path.clone() };
    // Before the headers are sent: afterwards an error could not have a status any more.
    let first = reader.page(0).await;
    let first = first.map_err(|error| RestError::with_status(StatusCode::NOT_FOUND, &error))?;
    let size = first.0.size;
    let name = place.path.rsplit('/').next().unwrap_or("file");
    let safe: String = name
        .chars()
        .map(|letter| if letter.is_ascii_graphic() && letter != '"' { letter } else { '_' })
        .collect();
    let disposition = if place.inline == Some(true) { "inline" } else { "attachment" };
    let headers = [
        // Never run as a page of ours, whatever it holds.
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (CONTENT_LENGTH, size.to_string()),
        (CONTENT_DISPOSITION, format!("{disposition}; filename=\"{safe}\"")),
    ];
    Ok((headers, Body::from_stream(pages(reader, first))).into_response())
}

type FilePage = (FsReadData, Bytes);

/// The first page, and those after it as they are wanted. Pages of two states of a file are no file: a change between
/// them ends the body with an error, and its length tells the reader that it is not whole.
fn pages(reader: FileReader, first: FilePage) -> impl futures_util::Stream<Item = io::Result<Bytes>> {
    let (size, modified_at) = (first.0.size, first.0.modified_at);
    stream::unfold((Some(first), reader, 0), move |(page, reader, sent)| async move {
        let (data, bytes) = page?;
        let sent = sent + bytes.len() as u64;
        let next = match data.next_offset {
            Some(offset) if sent < size => match reader.page(offset).await {
                Ok((next, _)) if (next.size, next.modified_at) != (size, modified_at) => {
                    let error = "the file was changed while it was sent; download it again";
                    return Some((Err(io::Error::other(error)), (None, reader, sent)));
                }
                Ok(page) => Some(page),
                Err(error) => return Some((Err(io::Error::other(error)), (None, reader, sent))),
            },
            _ if sent < size => {
                let error = io::Error::other("the file became shorter while it was sent");
                return Some((Err(error), (None, reader, sent)));
            }
            _ => None,
        };
        Some((Ok(bytes), (next, reader, sent)))
    })
}

struct FileReader {
    hub: Arc<Hub>,
    principal: Principal,
    session_id: String,
    path: String,
}

impl FileReader {
    async fn page(&self, offset: u64) -> Result<FilePage, CodedError> {
        let command = Command::new(CommandName::FsRead)
            .on(&*self.session_id)
            .with("path", &self.path)
            .with("offset", offset)
            .with("encoding", Encoding::Base64)
            .with("actor", "web");
        let data: FsReadData = call(&self.hub, &self.principal, command).await?;
        let bytes = STANDARD.decode(&data.content).map_err(|error| {
            ErrorCode::Internal.with(format!("The runner's answer cannot be read: {error}"))
        })?;
        Ok((data, bytes.into()))
    }
}

/// `PUT /api/sessions/{session_id}/file?path=…`: the body becomes the file, whole or not at all.
pub(crate) async fn upload(
    State(server): State<Server>,
    Caller(principal): Caller,
    Path(session_id): Path<String>,
    place: QueryResult<FileQuery>,
    body: Body,
) -> RestResult<Json<FsUploadData>> {
    let place = read_query(place, NO_PLACE)?;
    let upload_id = random_text(UPLOAD_ID_BYTES).ok_or_else(no_randomness)?;
    let writer = FileWriter { hub: &server.hub, principal, session_id, place, upload_id, sent: 0 };
    writer.take(body).await.map(Json).map_err(|error| {
        if matches!(error.code, ErrorCode::PermissionDenied | ErrorCode::Denied) {
            return error.into();
        }
        RestError::with_status(StatusCode::CONFLICT, &error)
    })
}

struct FileWriter<'a> {
    hub: &'a Arc<Hub>,
    principal: Principal,
    session_id: String,
    place: FileQuery,
    upload_id: String,
    sent: u64,
}

impl FileWriter<'_> {
    async fn take(mut self, body: Body) -> Result<FsUploadData, CodedError> {
        let mut stream = body.into_data_stream();
        let mut waiting = BytesMut::new();
        while let Some(chunk) = stream.next().await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    self.forget().await;
                    return Err(ErrorCode::Cancelled.with(format!(
                        "The upload broke off before its end: {error}. Send the file again."
                    )));
                }
            };
            waiting.extend_from_slice(&chunk);
            // `>` and not `>=`: something must be left for the last piece, which is the one that completes the file.
            while waiting.len() > PIECE_BYTES {
                let piece = waiting.split_to(PIECE_BYTES);
                self.send(&piece, false).await?;
            }
        }
        self.send(&waiting, true).await
    }

    async fn send(&mut self, piece: &[u8], last: bool) -> Result<FsUploadData, CodedError> {
        let command = self
            .command()
            .with("data", STANDARD.encode(piece))
            .with("last", last)
            .with("expected_hash", &self.place.expected_hash)
            .with("create_parents", self.place.create_parents);
        let data = call(self.hub, &self.principal, command).await?;
        self.sent += piece.len() as u64;
        Ok(data)
    }

    /// What has arrived of a body that broke off is of no use.
    async fn forget(&self) {
        let command = self.command().with("data", "").with("abort", true);
        if let Err(error) = call::<FsUploadData>(self.hub, &self.principal, command).await {
            tracing::debug!(%error, "a broken upload is forgotten by its age");
        }
    }

    /// What every piece of the upload says.
    fn command(&self) -> Command<'_> {
        Command::new(CommandName::FsUpload)
            .on(&*self.session_id)
            .with("upload_id", &self.upload_id)
            .with("actor", "web")
            .with("path", &self.place.path)
            .with("offset", self.sent)
    }
}

/// Asks and reads the answer.
async fn call<T: DeserializeOwned>(
    hub: &Arc<Hub>,
    principal: &Principal,
    command: Command<'_>,
) -> Result<T, CodedError> {
    ask_and_wait(hub, principal, command).await.read()
}
