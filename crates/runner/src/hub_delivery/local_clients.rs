//! Clients at the runner's own socket: what they follow, and their queues.
//!
//! A client that does not read is closed, for it can attach again and catch up from the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use qd_core::event_writer::ResponseSpan;
use qd_wire::command_table::{CommandClass, class_of};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::session_output::SessionOutput;

/// What may wait for a local client; one that is slower than that is closed.
pub(crate) const LOCAL_BYTES_MAX: usize = 8 << 20;

/// With more than this waiting, lines that may be left out are.
const DROPPABLE_BYTES_MAX: usize = 1 << 20;

/// Pieces that may wait; most are small.
const LOCAL_PIECES_MAX: usize = 4096;

/// One piece for a local client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LocalMessage {
    /// Whole lines.
    Lines(Bytes),
    /// The answer to the attach with this id; stored records follow it, then the rest of the queue.
    Attached { session_id: String, id: String, line: Bytes },
}

/// The way to one client.
#[derive(Clone)]
pub(crate) struct LocalQueue {
    pieces: mpsc::Sender<LocalMessage>,
    bytes: Arc<AtomicUsize>,
    /// Cancelled when the client is too slow.
    overflow: CancellationToken,
}

/// The client's end.
pub(crate) struct LocalQueueReceiver {
    pieces: mpsc::Receiver<LocalMessage>,
    bytes: Arc<AtomicUsize>,
    pub(crate) overflow: CancellationToken,
}

/// A queue for a new client.
pub(crate) fn local_queue() -> (LocalQueue, LocalQueueReceiver) {
    let (sender, receiver) = mpsc::channel(LOCAL_PIECES_MAX);
    let bytes = Arc::new(AtomicUsize::new(0));
    let overflow = CancellationToken::new();
    (
        LocalQueue { pieces: sender, bytes: Arc::clone(&bytes), overflow: overflow.clone() },
        LocalQueueReceiver { pieces: receiver, bytes, overflow },
    )
}

impl LocalQueue {
    pub(crate) fn push(&self, piece: LocalMessage) {
        let size = piece.size();
        let waiting = self.bytes.fetch_add(size, Ordering::AcqRel);
        // A single piece greater than the bound goes to a client that has taken everything before it.
        let is_full = waiting > 0 && waiting + size > LOCAL_BYTES_MAX;
        if is_full || self.pieces.try_send(piece).is_err() {
            self.overflow.cancel();
        }
    }
}

impl LocalQueueReceiver {
    pub(crate) async fn next(&mut self) -> Option<LocalMessage> {
        let piece = self.pieces.recv().await?;
        self.bytes.fetch_sub(piece.size(), Ordering::AcqRel);
        Some(piece)
    }
}

impl LocalMessage {
    fn size(&self) -> usize {
        match self {
            LocalMessage::Lines(lines) => lines.len(),
            LocalMessage::Attached { line, .. } => line.len(),
        }
    }
}

/// All local clients.
#[derive(Default)]
pub(crate) struct LocalClients {
    clients: BTreeMap<u64, LocalQueue>,
    followers: BTreeMap<String, BTreeSet<u64>>,
}

impl LocalClients {
    pub(crate) fn add(&mut self, origin: u64, queue: LocalQueue) {
        self.clients.insert(origin, queue);
    }

    pub(crate) fn remove(&mut self, origin: u64) {
        self.clients.remove(&origin);
        self.followers.retain(|_, origins| {
            origins.remove(&origin);
            !origins.is_empty()
        });
    }

    pub(crate) fn detach(&mut self, origin: u64, session_id: &str) {
        if let Some(origins) = self.followers.get_mut(session_id) {
            origins.remove(&origin);
        }
    }

    pub(crate) fn follower_count(&self, session_id: &str) -> usize {
        self.followers.get(session_id).map_or(0, BTreeSet::len)
    }

    /// Lines for one client; false if there is none of this number.
    pub(crate) fn send_line(&self, origin: u64, lines: Bytes) -> bool {
        let Some(client) = self.clients.get(&origin) else { return false };
        client.push(LocalMessage::Lines(lines));
        true
    }

    /// The same for lines that may be left out: whether they were told. `None` if there is no such client.
    pub(crate) fn send_line_if_room(&self, origin: u64, lines: &Bytes) -> Option<bool> {
        let client = self.clients.get(&origin)?;
        let has_room = client.bytes.load(Ordering::Acquire) + lines.len() <= DROPPABLE_BYTES_MAX;
        if has_room {
            client.push(LocalMessage::Lines(lines.clone()));
        }
        Some(has_room)
    }

    /// Gives everybody who follows the session what it said, and everybody who asked their answers.
    pub(crate) fn deliver(&mut self, output: &SessionOutput<'_>) {
        if self.clients.is_empty() {
            return;
        }
        let asked = output.responses.iter().map(|response| response.origin);
        let mut origins: BTreeSet<u64> = asked.filter(|origin| self.clients.contains_key(origin)).collect();
        origins.extend(self.followers.get(output.session_id).into_iter().flatten());
        for origin in origins {
            let Some(client) = self.clients.get(&origin) else { continue };
            let follows = self.followers.get(output.session_id).is_some_and(|all| all.contains(&origin));
            let (pieces, follows_now) = pieces_for(origin, follows, output);
            pieces.into_iter().for_each(|piece| client.push(piece));
            if follows_now && !follows {
                self.followers.entry(output.session_id.to_owned()).or_default().insert(origin);
            }
        }
        if output.is_deletion() {
            self.forget(output.session_id);
        }
    }

    /// Nobody follows a session that is deleted.
    pub(crate) fn forget(&mut self, session_id: &str) {
        self.followers.remove(session_id);
    }
}

/// What one client gets of a block, and whether it follows the session afterwards.
fn pieces_for(origin: u64, follows: bool, output: &SessionOutput<'_>) -> (Vec<LocalMessage>, bool) {
    let mut pieces = Vec::new();
    let mut follows = follows;
    let mut from = 0;
    let responses = output.responses.iter().map(|response| (response.range.clone(), Some(response)));
    let natives = output.natives.iter().map(|range| (range.clone(), None));
    let mut cuts: Vec<(Range<usize>, Option<&ResponseSpan>)> = responses.chain(natives).collect();
    cuts.sort_by_key(|(range, _)| range.start);
    for (range, response) in cuts {
        push_lines(&mut pieces, follows, output.block.slice(from..range.start));
        from = range.end;
        if let Some(response) = response.filter(|response| response.origin == origin) {
            pieces.push(answer(output, response));
            follows |= response.took_effect && class_of(&response.cmd).follows_session();
        }
    }
    push_lines(&mut pieces, follows, output.block.slice(from..));
    (pieces, follows)
}

fn push_lines(pieces: &mut Vec<LocalMessage>, follows: bool, lines: Bytes) {
    if follows && !lines.is_empty() {
        pieces.push(LocalMessage::Lines(lines));
    }
}

fn answer(output: &SessionOutput<'_>, response: &ResponseSpan) -> LocalMessage {
    let line = output.block.slice(response.range.clone());
    if response.took_effect && class_of(&response.cmd) == CommandClass::Attach {
        let session_id = output.session_id.to_owned();
        return LocalMessage::Attached { session_id, id: response.id.clone(), line };
    }
    LocalMessage::Lines(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qd_core::event_writer::{EventFront, EventWriter};

    #[test]
    fn a_local_client_gets_no_native_events() {
        let front = EventFront::new("s1", "local");
        let mut out = EventWriter::default();
        let idle = qd_wire::Event::AgentIdle { reason: None, message_version: None };
        out.native(&front, 1, "{\"type\":\"turn_start\"}");
        out.known(&front, 2, Some(1), &idle);
        out.native(&front, 3, "{\"type\":\"turn_end\"}");
        out.known(&front, 4, Some(2), &idle);
        let mut round = out.take();
        let block = Bytes::from(std::mem::take(&mut round.bytes));
        let output = SessionOutput::new("s1", &block, &round);
        let (pieces, _) = pieces_for(1, true, &output);
        let lines: Vec<Bytes> = pieces
            .into_iter()
            .map(|piece| match piece {
                LocalMessage::Lines(lines) => lines,
                LocalMessage::Attached { .. } => panic!("nobody attached"),
            })
            .collect();
        let text = String::from_utf8(lines.concat()).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains("x-native"), "{text}");
        assert!(pieces_for(1, false, &output).0.is_empty());
    }
}
