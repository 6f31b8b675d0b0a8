//! One local client: lines in, lines out, neither waiting for the other.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use qd_link::mutex::Mutex;
use qd_wire::Command;
use qd_wire::command_table::{Answerer, CommandClass, CommandHead, class_of, spec};
use qd_wire::data::{AttachData, Resume};
use qd_wire::{CodedError, ErrorCode};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::record_tail::RecordTail;
use super::{hub_queries, within};
use crate::hub_delivery::{LocalMessage, LocalQueueReceiver, local_queue};
use crate::runner::{LinkCommand, respond_with};
use crate::session::{RunnerContext, plain_response};

/// A client's longest line: a prompt with images.
const LINE_BYTES_MAX: usize = 32 << 20;

/// Attaches of one client that are remembered; the oldest were refused long ago, or are replayed from the start.
const ATTACHES_MAX: usize = 1024;

/// What a client that is cut off may take to read why.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// A hub that does not hear of it would take a new session of the same name for the old one.
const DELETE_NEEDS_HUB: &str = "A session is deleted through its hub, which has the history too; try again when it \
                                can be reached";

/// The cursors of the attaches under way, by command id.
type AttachCursors = Mutex<VecDeque<(String, Option<u64>)>>;

struct LocalClient {
    shared: Arc<RunnerContext>,
    commands: mpsc::Sender<LinkCommand>,
    origin: u64,
    /// It is a program of this session.
    within: Option<Arc<str>>,
    cursors: AttachCursors,
}

/// Says why a client is not served, if it reads at all.
pub(super) fn turn_away(stream: &UnixStream, reason: &CodedError) {
    let line = error_line_with(reason.code, &reason.message);
    // Nothing was written before, so there is room for a line; who has gone already need not hear it.
    let _unheard = stream.try_write(&line);
    tracing::warn!(%reason, "a local client was turned away");
}

/// Serves one client until it goes or is too slow. `within` is the session that it is a program of.
pub(super) async fn serve(
    shared: Arc<RunnerContext>,
    commands: mpsc::Sender<LinkCommand>,
    stream: UnixStream,
    within: Option<Arc<str>>,
) {
    let (read, write) = stream.into_split();
    let (queue, pieces) = local_queue();
    let origin = shared.hub_delivery.new_origin();
    shared.hub_delivery.add_local(origin, queue);
    // Also when this task is dropped in the middle.
    let _entry = ClientRegistration { shared: Arc::clone(&shared), origin };
    let client = LocalClient { shared, commands, origin, within, cursors: AttachCursors::default() };
    // Whichever ends first ends the other: a client that does not read is as good as gone.
    tokio::select! {
        () = client.read(read) => {}
        result = client.write(write, pieces) => if let Err(error) = result {
            tracing::debug!(%error, "a local client has gone");
        },
    }
}

struct ClientRegistration {
    shared: Arc<RunnerContext>,
    origin: u64,
}

impl Drop for ClientRegistration {
    fn drop(&mut self) {
        self.shared.hub_delivery.remove_local(self.origin);
        self.shared.services.origin_gone(self.origin);
    }
}

impl LocalClient {
    async fn read(&self, mut read: OwnedReadHalf) {
        let mut buffer = BytesMut::new();
        let mut searched = 0;
        loop {
            while let Some(end) = memchr::memchr(b'\n', &buffer[searched..]) {
                let mut line = buffer.split_to(searched + end + 1);
                line.truncate(searched + end);
                searched = 0;
                if !line.trim_ascii().is_empty() {
                    self.take_line(line.freeze()).await;
                }
            }
            searched = buffer.len();
            if searched > LINE_BYTES_MAX {
                self.complain(&format!(
                    "A line is longer than {LINE_BYTES_MAX} bytes; the connection is closed"
                ));
                // There is no way to find the next line: the writer tells what waits, and ends.
                self.shared.hub_delivery.remove_local(self.origin);
                return std::future::pending().await;
            }
            match read.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    async fn take_line(&self, line: Bytes) {
        #[derive(serde::Deserialize)]
        struct LineType<'a> {
            #[serde(borrow, rename = "type")]
            kind: Option<Cow<'a, str>>,
        }
        let Ok(text) = std::str::from_utf8(&line) else { return self.complain("The line is not UTF-8") };
        match serde_json::from_str::<LineType<'_>>(text) {
            Ok(LineType { kind: Some(kind) }) if kind != "command" => {
                return self.complain(&format!("A client sends lines of type 'command', not '{kind}'"));
            }
            Ok(_) => {}
            Err(error) => return self.complain(&format!("The line is not a JSON object: {error}")),
        }
        let head = match serde_json::from_str::<CommandHead<'_>>(text) {
            Ok(head) => head,
            // The runner's task answers those, as it does the hub's; it does nothing else with them.
            Err(_) => return self.forward(line).await,
        };
        let Some(cmd) = head.cmd.as_deref() else { return self.complain("The command has no 'cmd'") };
        let id: String = match head.id.map(|id| serde_json::from_str(id.get())).transpose() {
            Ok(id) => id.unwrap_or_default(),
            Err(_) => return self.complain("The field 'id' must be a string"),
        };
        let session_id = head.session_id.as_deref().unwrap_or_default();
        let Some(own) = self.within.as_deref() else {
            return self.take_command(cmd, id, session_id, text, line.clone()).await;
        };
        let needs_session = spec(cmd).is_some_and(|row| row.needs_session);
        let session_id = if needs_session && !within::is_a_session(session_id) { own } else { session_id };
        match within::confined(own, &head, text) {
            Ok(confined) => match std::str::from_utf8(&confined) {
                Ok(text) => self.take_command(cmd, id, session_id, text, confined.clone()).await,
                Err(error) => self.complain(&error.to_string()),
            },
            Err(error) => self.respond(session_id, &id, cmd, Err(&error)),
        }
    }

    async fn take_command(&self, cmd: &str, id: String, session_id: &str, text: &str, line: Bytes) {
        if spec(cmd).is_some_and(|row| row.answerer == Answerer::Hub) {
            let asker = hub_queries::LocalAsker { origin: self.origin, within: self.within.as_deref() };
            let answer = match Command::parse(cmd, text) {
                Ok(command) => hub_queries::answer(&self.shared, asker, session_id, &command).await,
                Err(error) => Err(error.into()),
            };
            return self.respond(session_id, &id, cmd, answer.as_ref().map(Option::as_deref));
        }
        if class_of(cmd) == CommandClass::Delete {
            return self.respond(session_id, &id, cmd, Err(&ErrorCode::Unsupported.with(DELETE_NEEDS_HUB)));
        }
        // Noted before it is sent on: the answer, which may come at once, is completed from the records after it.
        if class_of(cmd) == CommandClass::Attach {
            self.note_cursor(id, text);
        }
        self.forward(line).await;
    }

    async fn forward(&self, line: Bytes) {
        let command = LinkCommand { origin: self.origin, is_local: true, within: self.within.clone(), line };
        if self.commands.send(command).await.is_err() {
            self.complain("The runner stops");
        }
    }

    /// Remembers where the replay of an attach begins.
    fn note_cursor(&self, id: String, text: &str) {
        let after = match Command::parse("session.attach", text) {
            Ok(Command::SessionAttach(params)) => params.after,
            // The session refuses it with the same words.
            Ok(_) | Err(_) => None,
        };
        let mut cursors = self.cursors.lock();
        if cursors.len() >= ATTACHES_MAX {
            cursors.pop_front();
        }
        cursors.push_back((id, after));
    }

    fn take_cursor(&self, id: &str) -> Option<u64> {
        let mut cursors = self.cursors.lock();
        let place = cursors.iter().position(|(noted, _)| noted == id)?;
        cursors.remove(place)?.1
    }

    fn respond(&self, session_id: &str, id: &str, cmd: &str, result: Result<Option<&str>, &CodedError>) {
        respond_with(&self.shared, session_id, &plain_response(self.origin, id, cmd, result));
    }

    fn complain(&self, error: &str) {
        self.shared.hub_delivery.send_line(self.origin, error_line(error));
    }

    async fn write(&self, mut write: OwnedWriteHalf, mut pieces: LocalQueueReceiver) -> std::io::Result<()> {
        let overflow = pieces.overflow.clone();
        loop {
            let piece = tokio::select! {
                biased;
                () = overflow.cancelled() => return send_slow_client_error(&mut write).await,
                piece = pieces.next() => piece,
            };
            let Some(piece) = piece else { return Ok(()) };
            let lines = match piece {
                LocalMessage::Lines(lines) => lines,
                LocalMessage::Attached { session_id, id, line } => {
                    self.attached(&session_id, &id, line).await
                }
            };
            let writing = write.write_all(&lines);
            tokio::pin!(writing);
            tokio::select! {
                written = &mut writing => written?,
                () = overflow.cancelled() => {
                    // A line half written must be finished before the last one.
                    tokio::time::timeout(LAST_WORDS_TIMEOUT, &mut writing).await??;
                }
            }
        }
    }

    /// The answer to an attach, and the stored records that come before what is new.
    async fn attached(&self, session_id: &str, id: &str, line: Bytes) -> Bytes {
        let after = self.take_cursor(id);
        let tail = match RecordTail::read(&self.shared.store, session_id).await {
            Ok(tail) => tail,
            Err(error) => {
                tracing::error!(%error, session_id, "records cannot be replayed");
                return line;
            }
        };
        replayed(&line, after, &tail).unwrap_or(line)
    }
}

/// The attach's answer with what follows it; `None` if it cannot be read.
fn replayed(line: &[u8], after: Option<u64>, tail: &RecordTail) -> Option<Bytes> {
    let mut response: Value = serde_json::from_slice(line).ok()?;
    let mut data: AttachData = serde_json::from_value(response.get("data")?.clone()).ok()?;
    let until = data.seq;
    // The runner keeps a short tail only; a cursor before it is a gap, whatever the session says.
    let is_whole = after.is_none_or(|after| tail.reaches(after, until));
    let is_resumed = data.resume == Resume::Ok && is_whole;
    let rest = if is_resumed { tail.lines(after.unwrap_or(0), until) } else { Bytes::new() };
    match (is_resumed, data.terminal.is_some()) {
        (true, false) => return Some([line, &rest].concat().into()),
        // The records say all that is on the screen.
        (true, true) => data.terminal = None,
        (false, true) => data.resume = Resume::Gap,
        (false, false) => {
            data.resume = Resume::Gap;
            data.messages = Some(tail.snapshot(until));
        }
    }
    *response.get_mut("data")? = serde_json::to_value(&data).ok()?;
    let mut line = serde_json::to_vec(&response).ok()?;
    line.push(b'\n');
    line.extend_from_slice(&rest);
    Some(line.into())
}

/// Tells a client that is too slow why it is cut off, if it reads at all.
async fn send_slow_client_error(write: &mut OwnedWriteHalf) -> std::io::Result<()> {
    let line = error_line("The client reads too slowly; attach again with the last 'seq' as 'after'");
    tokio::time::timeout(LAST_WORDS_TIMEOUT, write.write_all(&line)).await?
}

fn error_line(error: &str) -> Bytes {
    error_line_with(ErrorCode::InvalidRequest, error)
}

fn error_line_with(code: ErrorCode, error: &str) -> Bytes {
    let mut line = serde_json::json!({ "type": "error", "error": error, "code": code }).to_string();
    line.push('\n');
    line.into()
}
