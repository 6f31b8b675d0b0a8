//! Decides what goes to the hub and when. Pure, so that every interleaving can be tested.
//!
//! Each session is live (its blocks go straight out), catching up (its records come from the spool, its live events
//! are dropped, a snapshot follows) or refused by the hub. All of it holds for one link; the next begins anew from
//! what the hub says it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use qd_wire::command_table::{CommandClass, class_of};

use super::session_output::{SessionOutput, has_place_in_stream, refusal};

/// Records of one session that may be under way to the hub; beyond it the session catches up from the spool, at
/// the pace of the hub's acks.
const WINDOW_BYTES_MAX: usize = 8 << 20;

/// What all sessions that catch up may have under way together: little enough that live events do not queue long
/// behind it, enough to keep a far link busy.
const CATCH_UP_BYTES_MAX: usize = 2 << 20;

/// What one turn of a session in catching up aims at.
const TURN_BYTES: usize = 256 << 10;

/// Rows of the first turn, whose size nobody knows, and of any.
const TURN_ROWS_FIRST: usize = 64;
const TURN_ROWS_MAX: usize = 1024;

/// Responses of one session that wait for their place in the stream; attaches beyond it are refused.
const HELD_ANSWER_BYTES_MAX: usize = 8 << 20;

/// Responses that wait for room in the link. A hub that asks this much and takes nothing is cut off.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// With more than this waiting, lines that may be left out are.
const DROPPABLE_BYTES_MAX: usize = 1 << 20;

/// Loose responses that go out as one block.
const ANSWER_BLOCK_BYTES: usize = 64 << 10;

/// What to do with a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PublishVerdict {
    /// To the link, now; if there is no room say [`DeliveryScheduler::unsent`].
    Send {
        link: u64,
        block: Bytes,
    },
    /// Nothing now; the sender has work.
    Wake,
    Nothing,
}

/// What the sender does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DeliveryStep {
    Send(Bytes),
    /// Read the spool after `after`, then say [`DeliveryScheduler::records_read`].
    Read(CatchUpTurn),
    /// Live events of this session were lost; its actor says how it stands.
    Snapshot(String),
    /// The link was full; look whether it has room again, then say [`DeliveryScheduler::has_room`].
    Room,
    Wait,
}

/// One session's turn in catching up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CatchUpTurn {
    pub(crate) link: u64,
    pub(crate) session_id: String,
    pub(crate) after: u64,
    pub(crate) rows_max: usize,
    /// The last record known to be in the spool before the read.
    pub(crate) published: u64,
}

/// What the hub has of each session, and what it gets next.
#[derive(Debug, Default)]
pub(crate) struct DeliveryScheduler {
    runner_id: String,
    window_max: usize,
    catch_up_max: usize,
    /// The link of now.
    link: Option<u64>,
    sessions: BTreeMap<String, SessionDelivery>,
    catching_up: BTreeSet<String>,
    /// Whose turn it was last.
    turn: String,
    /// Bytes under way that catching up has sent.
    catch_up_bytes: usize,
    /// Responses and lines of the runner itself, bound to no place in a stream.
    answers: VecDeque<Bytes>,
    answer_bytes: usize,
    /// The link had no room for a live block. No session is live again before it has, or each would wait for it
    /// with every block.
    is_congested: bool,
}

#[derive(Debug, Default)]
struct SessionDelivery {
    /// The last record in the spool.
    published: u64,
    /// The next record the hub gets.
    next_seq: u64,
    mode: DeliveryMode,
    sent: VecDeque<UnackedRecords>,
    sent_bytes: usize,
    /// Live events went out on this link; if it dies they may not have arrived.
    has_sent_events: bool,
    has_lost_events: bool,
    /// Until the actor has said how it stands, events mean nothing to who missed those before.
    awaits_snapshot: bool,
    /// Responses, each with the record it comes after.
    held_answers: VecDeque<(u64, Bytes)>,
    held_answer_bytes: usize,
    /// The mean size of the records of the last turn.
    row_bytes: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum DeliveryMode {
    #[default]
    Live,
    CatchingUp,
    Refused,
}

/// Records under way that are acked together.
#[derive(Debug)]
struct UnackedRecords {
    first_seq: u64,
    last_seq: u64,
    bytes: usize,
    is_catch_up: bool,
}

impl SessionDelivery {
    fn new(published: u64, mode: DeliveryMode) -> Self {
        let row_bytes = TURN_BYTES / TURN_ROWS_FIRST;
        SessionDelivery { published, next_seq: 1, mode, row_bytes, ..SessionDelivery::default() }
    }

    /// Forgets what is under way and what waits for its place.
    fn clear(&mut self) -> usize {
        let catch_up = self.sent.iter().filter(|sent| sent.is_catch_up).map(|sent| sent.bytes).sum();
        self.sent.clear();
        self.sent_bytes = 0;
        self.held_answers.clear();
        self.held_answer_bytes = 0;
        catch_up
    }
}

impl DeliveryScheduler {
    pub(crate) fn new(runner_id: &str) -> Self {
        DeliveryScheduler {
            runner_id: runner_id.to_owned(),
            window_max: WINDOW_BYTES_MAX,
            catch_up_max: CATCH_UP_BYTES_MAX,
            ..DeliveryScheduler::default()
        }
    }

    /// A session of last time and its last record.
    pub(crate) fn restore(&mut self, session_id: &str, published: u64) {
        self.sessions
            .insert(session_id.to_owned(), SessionDelivery::new(published, DeliveryMode::CatchingUp));
    }

    /// All sessions with records, and the last of each.
    pub(crate) fn sessions(&self) -> Vec<(String, u64)> {
        self.sessions.iter().map(|(session_id, session)| (session_id.clone(), session.published)).collect()
    }

    /// A link is there; `hub_seqs` is what the hub has.
    pub(crate) fn link_up(&mut self, link: u64, hub_seqs: &BTreeMap<String, u64>) {
        self.link_down();
        self.link = Some(link);
        for (session_id, session) in &mut self.sessions {
            session.mode = DeliveryMode::CatchingUp;
            session.next_seq = hub_seqs.get(session_id).map_or(1, |seq| seq.saturating_add(1));
            self.catching_up.insert(session_id.clone());
        }
    }

    /// The link is over: what waits for it is of no use to the next.
    pub(crate) fn link_down(&mut self) {
        self.link = None;
        self.answers.clear();
        self.answer_bytes = 0;
        self.catching_up.clear();
        self.catch_up_bytes = 0;
        self.is_congested = false;
        for session in self.sessions.values_mut() {
            session.clear();
            session.has_lost_events |= std::mem::take(&mut session.has_sent_events);
        }
    }

    /// A session has said something; its records are in the spool.
    pub(crate) fn publish(&mut self, output: &SessionOutput<'_>) -> PublishVerdict {
        let last = output.records.last().map_or(0, |record| record.seq);
        if last > 0 && !self.sessions.contains_key(output.session_id) {
            self.sessions.insert(output.session_id.to_owned(), SessionDelivery::new(0, DeliveryMode::Live));
        }
        let verdict = match self.link {
            Some(link) => self.publish_to(link, output, last),
            None => {
                if let Some(session) = self.sessions.get_mut(output.session_id) {
                    session.published = session.published.max(last);
                    session.has_lost_events |= output.has_events();
                }
                PublishVerdict::Nothing
            }
        };
        if output.is_deletion() {
            self.forget(output.session_id);
        }
        verdict
    }

    fn publish_to(&mut self, link: u64, output: &SessionOutput<'_>, last: u64) -> PublishVerdict {
        let Some(session) = self.sessions.get_mut(output.session_id) else {
            // A session that has no record yet: there is nothing to keep in order.
            return match output.for_hub(link, 0, 0) {
                Some(block) => PublishVerdict::Send { link, block },
                None => PublishVerdict::Nothing,
            };
        };
        session.published = session.published.max(last);
        if session.mode != DeliveryMode::Live {
            return self.defer(link, output);
        }
        let next_seq = session.next_seq;
        let first = output.records.iter().map(|record| record.seq).find(|seq| *seq >= next_seq);
        let bytes = output.record_bytes(next_seq);
        let has_hole = first.is_some_and(|first| first != next_seq);
        // A record greater than the window must pass all the same, alone.
        let is_full = bytes > 0 && session.sent_bytes > 0 && session.sent_bytes + bytes > self.window_max;
        if has_hole || is_full {
            self.fall_behind(output.session_id, next_seq);
            return self.defer(link, output);
        }
        if let Some(first_seq) = first {
            session.next_seq = last + 1;
            session.sent_bytes += bytes;
            session.sent.push_back(UnackedRecords { first_seq, last_seq: last, bytes, is_catch_up: false });
        }
        session.has_sent_events |= output.has_events();
        let snapshot = session.awaits_snapshot.then(|| output.snapshot());
        session.awaits_snapshot &= snapshot.flatten().is_none();
        let events_from = snapshot.map_or(0, |found| found.unwrap_or(output.block.len()));
        match output.for_hub(link, next_seq, events_from) {
            Some(block) => PublishVerdict::Send { link, block },
            None => PublishVerdict::Nothing,
        }
    }

    /// The link had no room for a block of a live session.
    pub(crate) fn unsent(&mut self, link: u64, output: &SessionOutput<'_>) {
        if self.link != Some(link) {
            return;
        }
        self.is_congested = true;
        if let Some(session) =
            self.sessions.get_mut(output.session_id).filter(|session| session.mode == DeliveryMode::Live)
        {
            let last = output.records.last().map_or(0, |record| record.seq);
            let mut next_seq = session.next_seq;
            if let Some(sent) = session.sent.pop_back_if(|sent| last > 0 && sent.last_seq == last) {
                session.sent_bytes -= sent.bytes;
                next_seq = sent.first_seq;
            }
            self.fall_behind(output.session_id, next_seq);
        }
        self.defer(link, output);
    }

    fn fall_behind(&mut self, session_id: &str, next_seq: u64) {
        if let Some(session) = self.sessions.get_mut(session_id) {
            session.mode = DeliveryMode::CatchingUp;
            session.next_seq = next_seq;
            self.catching_up.insert(session_id.to_owned());
        }
    }

    /// Keeps the hub's responses of a block whose events cannot go out now.
    fn defer(&mut self, link: u64, output: &SessionOutput<'_>) -> PublishVerdict {
        let mut session = self.sessions.get_mut(output.session_id);
        if let Some(session) = &mut session {
            session.has_lost_events |= output.has_events();
        }
        let mut answers = Vec::new();
        for response in output.responses.iter().filter(|response| response.origin == link) {
            let line = output.block.slice(response.range.clone());
            match &mut session {
                Some(session)
                    if session.mode == DeliveryMode::CatchingUp && has_place_in_stream(&response.cmd) =>
                {
                    if class_of(&response.cmd) == CommandClass::Attach
                        && session.held_answer_bytes + line.len() > HELD_ANSWER_BYTES_MAX
                    {
                        answers.push(refusal(output.session_id, &self.runner_id, response));
                    } else {
                        session.held_answer_bytes += line.len();
                        session
                            .held_answers
                            .push_back((output.record_before(response, session.published), line));
                    }
                }
                _ => answers.push(line),
            }
        }
        answers.into_iter().for_each(|line| self.queue_answer(line));
        PublishVerdict::Wake
    }

    /// A line for the hub that has no place in a session's stream.
    pub(crate) fn send_line(&mut self, link: u64, line: Bytes) {
        if self.link == Some(link) {
            self.queue_answer(line);
        }
    }

    /// The same for a line that may be left out; false if it is.
    pub(crate) fn send_line_if_room(&mut self, link: u64, line: Bytes) -> bool {
        let has_room = self.link == Some(link) && self.answer_bytes < DROPPABLE_BYTES_MAX;
        if has_room {
            self.queue_answer(line);
        }
        has_room
    }

    fn queue_answer(&mut self, line: Bytes) {
        self.answer_bytes += line.len();
        self.answers.push_back(line);
    }

    /// Whether the hub asks much and takes nothing.
    pub(crate) fn is_overrun(&self) -> bool {
        self.answer_bytes > ANSWER_BYTES_MAX
    }

    pub(crate) fn has_queued_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The hub has committed records. True when the sender may have waited for that.
    pub(crate) fn ack(&mut self, link: u64, session_id: &str, seq: u64) -> bool {
        let Some(session) = self.sessions.get_mut(session_id).filter(|_| self.link == Some(link)) else {
            return false;
        };
        let mut has_room = session.mode == DeliveryMode::CatchingUp;
        while let Some(sent) = session.sent.pop_front_if(|sent| sent.last_seq <= seq) {
            session.sent_bytes -= sent.bytes;
            if sent.is_catch_up {
                self.catch_up_bytes -= sent.bytes;
                has_room = true;
            }
        }
        has_room && !self.catching_up.is_empty()
    }

    /// The hub takes nothing of this session. False when that is known.
    pub(crate) fn refuse(&mut self, link: u64, session_id: &str) -> bool {
        let Some(session) = self.sessions.get_mut(session_id).filter(|_| self.link == Some(link)) else {
            return true;
        };
        let is_new = session.mode != DeliveryMode::Refused;
        session.mode = DeliveryMode::Refused;
        let held_answers = std::mem::take(&mut session.held_answers);
        self.catch_up_bytes -= session.clear();
        self.catching_up.remove(session_id);
        held_answers.into_iter().for_each(|(_, line)| self.queue_answer(line));
        is_new
    }

    /// The session is deleted: another one of its name begins anew.
    pub(crate) fn forget(&mut self, session_id: &str) {
        let Some(mut session) = self.sessions.remove(session_id) else { return };
        self.catching_up.remove(session_id);
        std::mem::take(&mut session.held_answers).into_iter().for_each(|(_, line)| self.queue_answer(line));
        self.catch_up_bytes -= session.clear();
    }

    /// What the sender does now. To be asked again when the last step is done.
    pub(crate) fn next(&mut self) -> DeliveryStep {
        let Some(link) = self.link else { return DeliveryStep::Wait };
        if self.has_queued_answers() {
            return DeliveryStep::Send(self.take_answers());
        }
        for _ in 0..self.catching_up.len() {
            let Some(session_id) = self.take_turn() else { break };
            let Some(session) = self.sessions.get_mut(&session_id) else { continue };
            let next_seq = session.next_seq;
            let mut due = Vec::new();
            while let Some((_, line)) = session.held_answers.pop_front_if(|(after, _)| *after < next_seq) {
                session.held_answer_bytes -= line.len();
                due.push(line);
            }
            if !due.is_empty() {
                return DeliveryStep::Send(join(due));
            }
            if session.published >= session.next_seq {
                if self.catch_up_bytes >= self.catch_up_max || session.sent_bytes >= self.window_max {
                    continue;
                }
                let rows_max = (TURN_BYTES / session.row_bytes.max(1)).clamp(1, TURN_ROWS_MAX);
                let until = session.held_answers.front().map_or(session.published, |(after, _)| *after);
                let (after, published) = (session.next_seq.saturating_sub(1), until);
                return DeliveryStep::Read(CatchUpTurn { link, session_id, after, rows_max, published });
            }
            if self.is_congested {
                continue;
            }
            session.mode = DeliveryMode::Live;
            self.catching_up.remove(&session_id);
            if std::mem::take(&mut session.has_lost_events) {
                session.awaits_snapshot = true;
                return DeliveryStep::Snapshot(session_id);
            }
        }
        if self.is_congested { DeliveryStep::Room } else { DeliveryStep::Wait }
    }

    /// The link has room again.
    pub(crate) fn has_room(&mut self, link: u64) {
        self.is_congested &= self.link != Some(link);
    }

    /// The session that catches up after the one whose turn it was.
    fn take_turn(&mut self) -> Option<String> {
        let later = (Bound::Excluded(self.turn.as_str()), Bound::Unbounded);
        let next = self.catching_up.range::<str, _>(later).next().or_else(|| self.catching_up.first())?;
        self.turn.clone_from(next);
        Some(self.turn.clone())
    }

    fn take_answers(&mut self) -> Bytes {
        let mut lines = Vec::new();
        let mut bytes = 0;
        while bytes < ANSWER_BLOCK_BYTES
            && let Some(line) = self.answers.pop_front()
        {
            bytes += line.len();
            lines.push(line);
        }
        self.answer_bytes -= bytes;
        join(lines)
    }

    /// Records were read from the spool; gives the block to send. An empty read of records that were there before
    /// it means that they are gone (their session is being deleted): they are passed over.
    pub(crate) fn records_read(&mut self, turn: &CatchUpTurn, mut rows: Vec<(u64, Bytes)>) -> Option<Bytes> {
        rows.retain(|(seq, _)| *seq <= turn.published);
        let session = self.sessions.get_mut(&turn.session_id).filter(|session| {
            self.link == Some(turn.link)
                && session.mode == DeliveryMode::CatchingUp
                && session.next_seq == turn.after.saturating_add(1)
        })?;
        let Some((last_seq, _)) = rows.last() else {
            tracing::debug!(session_id = turn.session_id, "records are not in the spool any more");
            session.next_seq = turn.published.saturating_add(1);
            return None;
        };
        let last_seq = *last_seq;
        let first_seq = session.next_seq;
        session.next_seq = last_seq + 1;
        let bytes = rows.iter().map(|(_, line)| line.len()).sum();
        session.row_bytes = bytes / rows.len();
        session.sent_bytes += bytes;
        session.sent.push_back(UnackedRecords { first_seq, last_seq, bytes, is_catch_up: true });
        self.catch_up_bytes += bytes;
        Some(join(rows.into_iter().map(|(_, line)| line).collect()))
    }
}

fn join(mut lines: Vec<Bytes>) -> Bytes {
    if lines.len() == 1 {
        return lines.swap_remove(0);
    }
    lines.concat().into()
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
