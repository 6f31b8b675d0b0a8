//! A client of a runner's own socket: the frames of `/ws/mux` are written as lines of the link, and its lines read
//! as frames, so that whoever uses a [`super::MuxClient`] sees no difference.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use qd_wire::PROTOCOL_VERSION;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::connect::{ConnectError, ConnectOptions, ServerInfo};
use super::frame::Frame;
use super::queue::SharedFrames;
use super::tasks::ConnectionTasks;
use crate::memory::{LinkEnd, LinkReceiver, LinkSender};
use crate::socket::{SocketOptions, over_lines};

/// Lines and frames differ in their first fields only, and both are written in a fixed order. So most of them are
/// translated by swapping the prefix, without parsing what may be a long body.
const FRAME_PREFIX: &str = "{\"channel\":\"agent\",";
const COMMAND_PREFIX: &str = "{\"type\":\"command\",";
const EVENT_PREFIX: &str = "{\"type\":\"event\",";
const RESPONSE_PREFIX: &str = "{\"type\":\"response\",";
const RESPONSE_FRAME_PREFIX: &str = "{\"channel\":\"agent\",\"event\":\"response\",";

/// A link to the runner that listens on this path.
pub(super) async fn open(path: &Path, options: &ConnectOptions) -> Result<LinkEnd, ConnectError> {
    let address = || path.display().to_string();
    match tokio::time::timeout(options.timeout, UnixStream::connect(path)).await {
        Ok(Ok(stream)) => Ok(over_lines(stream, &SocketOptions::default())),
        Ok(Err(source)) if source.kind() == io::ErrorKind::PermissionDenied => Err(ConnectError::Denied {
            status: 403,
            // There is no HTTP here; callers treat it like a hub that refuses the login.
            body: format!("the socket {} is another user's", address()),
        }),
        Ok(Err(source)) => Err(ConnectError::Unreachable { address: address(), source }),
        Err(_) => Err(ConnectError::TimedOut { address: address() }),
    }
}

/// A runner does not introduce itself; it is this machine's.
pub(super) fn server_info() -> ServerInfo {
    ServerInfo {
        protocol_version: PROTOCOL_VERSION.to_owned(),
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        connection_id: "local".to_owned(),
    }
}

pub(super) fn spawn(
    link: LinkEnd,
    outgoing: mpsc::Receiver<Message>,
    queue: Arc<SharedFrames>,
) -> ConnectionTasks {
    let reader = tokio::spawn(read(link.receiver, queue.clone())).abort_handle();
    tokio::spawn(write(link.sender, outgoing, queue.clone()));
    ConnectionTasks::new(reader, queue)
}

async fn read(mut receiver: LinkReceiver, queue: Arc<SharedFrames>) {
    let reason = loop {
        let Some(block) = receiver.recv().await else { break receiver.close_reason() };
        if let Err(reason) = accept_block(&block, &queue).await {
            break reason;
        }
    };
    queue.close(&reason);
}

async fn accept_block(block: &Bytes, queue: &SharedFrames) -> Result<(), String> {
    for line in block.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let Ok(line) = std::str::from_utf8(line) else {
            tracing::warn!(bytes = line.len(), "the runner sent a line that is not UTF-8; it is left out");
            continue;
        };
        let Some(frame) = frame_of(line) else { continue };
        // Not reading on is what slows down the runner; it disconnects a client that stays behind.
        if !queue.accept(Frame::new(frame))? {
            queue.wait_for_room().await;
        }
    }
    Ok(())
}

async fn write(sender: LinkSender, mut outgoing: mpsc::Receiver<Message>, queue: Arc<SharedFrames>) {
    while let Some(message) = outgoing.recv().await {
        // The client writes nothing but text.
        let Message::Text(text) = message else { continue };
        match line_of(&text) {
            Ok(line) => {
                if sender.send(Bytes::from(line)).await.is_err() {
                    // The reader says why.
                    return;
                }
            }
            Err(refusal) => {
                if let Err(reason) = queue.accept(Frame::new(refusal)) {
                    queue.close(&reason);
                    return;
                }
            }
        }
    }
}

/// The link's line for a client's frame; the error is the frame that says what is wrong with it.
fn line_of(frame: &str) -> Result<String, String> {
    // A line feed between fields is legal JSON and would end the line early; parsing and writing it anew removes it.
    let is_one_line = memchr::memchr(b'\n', frame.as_bytes()).is_none();
    if let Some(rest) = frame.strip_prefix(FRAME_PREFIX)
        && is_one_line
    {
        return Ok(format!("{COMMAND_PREFIX}{rest}\n"));
    }
    let refusal = |id: Option<Value>, reason: &str| {
        let mut frame = json!({"channel":"system","type":"error","error":reason,"code":"invalid_request"});
        if let (Some(id), Some(object)) = (id, frame.as_object_mut()) {
            object.insert("id".to_owned(), id);
        }
        frame.to_string()
    };
    let Ok(mut object) = serde_json::from_str::<Map<String, Value>>(frame) else {
        return Err(refusal(None, "the frame is not a JSON object"));
    };
    let channel = object.remove("channel");
    if channel.as_ref().and_then(Value::as_str) != Some("agent") {
        let reason = "a runner's socket has the channel 'agent' only; connect to a hub for the others";
        return Err(refusal(object.remove("id"), reason));
    }
    object.insert("type".to_owned(), "command".into());
    Ok(format!("{}\n", Value::Object(object)))
}

/// The frame for a line of the link; `None` for lines that are not for clients.
fn frame_of(line: &str) -> Option<Utf8Bytes> {
    if let Some(rest) = line.strip_prefix(EVENT_PREFIX) {
        return Some(format!("{FRAME_PREFIX}{rest}").into());
    }
    if let Some(rest) = line.strip_prefix(RESPONSE_PREFIX) {
        return Some(format!("{RESPONSE_FRAME_PREFIX}{rest}").into());
    }
    #[derive(Deserialize)]
    struct LineHead<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    // Only the type is read first: lines that are not for clients are dropped without building them.
    let head = serde_json::from_str::<LineHead<'_>>(line).ok()?;
    if !matches!(&*head.kind, "event" | "response" | "progress" | "error") {
        return None;
    }
    let mut object = serde_json::from_str::<Map<String, Value>>(line).ok()?;
    let channel = if &*head.kind == "error" { "system" } else { "agent" };
    if channel == "agent" {
        object.remove("type");
        // Every frame of a hub has these two.
        object.entry("runner_id").or_insert_with(|| "local".into());
        object.entry("ts").or_insert_with(|| crate::clock::now_ms().into());
    }
    // The hub makes events of these two.
    if matches!(&*head.kind, "response" | "progress") {
        object.insert("event".to_owned(), (&*head.kind).into());
    }
    object.insert("channel".to_owned(), channel.into());
    Some(Value::Object(object).to_string().into())
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
