//! What goes to the hub and when: pure, so that every interleaving can be tried.
//!
//! Each session is live (its blocks go straight out), catching up (its records come from the spool, its live events
//! are dropped, a snapshot follows) or refused by the hub. All of it holds for one link; the next begins anew from
//! what the hub says it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use qd_wire::command_table::{CommandClass, class_of};

use super::session_output::{Said, has_a_place, refusal};

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
const HELD_BYTES_MAX: usize = 8 << 20;

/// Responses that wait for room in the link. A hub that asks this much and takes nothing is cut off.
const LOOSE_BYTES_MAX: usize = 32 << 20;

/// With more than this waiting, lines that may be left out are.
const DROPPABLE_BYTES_MAX: usize = 1 << 20;

/// Loose responses that go out as one block.
const LOOSE_BLOCK_BYTES: usize = 64 << 10;

/// What to do with a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// To the link, now; if there is no room say [`Flow::unsent`].
    Send {
        link: u64,
        block: Bytes,
    },
    /// Nothing now; the pump has work.
    Wake,
    Nothing,
}

/// What the pump does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send(Bytes),
    /// Read the spool after `after`, then say [`Flow::have_read`].
    Read(Turn),
    /// Live events of this session were lost; its actor says how it stands.
    Snapshot(String),
    /// The link was full; look whether it has room again, then say [`Flow::has_room`].
    Room,
    Wait,
}

/// One session's turn in catching up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) link: u64,
    pub(crate) session_id: String,
    pub(crate) after: u64,
    pub(crate) rows_max: usize,
    /// The last record known to be in the spool before the read.
    pub(crate) published: u64,
}

/// The state of all sessions towards the hub.
#[derive(Debug)]
pub(crate) struct Flow {
    runner_id: String,
    window_max: usize,
    catch_up_max: usize,
    /// The link of now.
    link: Option<u64>,
    lanes: BTreeMap<String, Lane>,
    catching_up: BTreeSet<String>,
    /// Whose turn it was last.
    turn: String,
    /// Bytes under way that catching up has sent.
    catch_up_bytes: usize,
    /// Responses and lines of the runner itself, bound to no place in a stream.
    loose: VecDeque<Bytes>,
    loose_bytes: usize,
    /// The link had no room for a live block. No session is live again before it has, or each would wait for it
    /// with every block.
    is_congested: bool,
}

#[derive(Debug)]
struct Lane {
    /// The last record in the spool.
    published: u64,
    /// The next record the hub gets.
    next_seq: u64,
    mode: Mode,
    sent: VecDeque<Sent>,
    sent_bytes: usize,
    /// Live events went out on this link; if it dies they may not have arrived.
    has_sent_events: bool,
    has_lost_events: bool,
    /// Until the actor has said how it stands, events mean nothing to who missed those before.
    awaits_snapshot: bool,
    /// Responses, each with the record it comes after.
    held: VecDeque<(u64, Bytes)>,
    held_bytes: usize,
    /// The mean size of the records of the last turn.
    row_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Live,
    CatchingUp,
    Refused,
}

/// Records under way that are acked together.
#[derive(Debug)]
struct Sent {
    first_seq: u64,
    last_seq: u64,
    bytes: usize,
    is_catch_up: bool,
}

impl Lane {
    fn new(published: u64, mode: Mode) -> Self {
        Lane {
            published,
            next_seq: 1,
            mode,
            sent: VecDeque::new(),
            sent_bytes: 0,
            has_sent_events: false,
            has_lost_events: false,
            held: VecDeque::new(),
            awaits_snapshot: false,
            held_bytes: 0,
            row_bytes: TURN_BYTES / TURN_ROWS_FIRST,
        }
    }

    /// Forgets what is under way and what waits for its place.
    fn clear(&mut self) -> usize {
        let catch_up = self.sent.iter().filter(|sent| sent.is_catch_up).map(|sent| sent.bytes).sum();
        self.sent.clear();
        self.sent_bytes = 0;
        self.held.clear();
        self.held_bytes = 0;
        catch_up
    }
}

impl Flow {
    pub(crate) fn new(runner_id: &str) -> Self {
        Flow {
            runner_id: runner_id.to_owned(),
            window_max: WINDOW_BYTES_MAX,
            catch_up_max: CATCH_UP_BYTES_MAX,
            link: None,
            lanes: BTreeMap::new(),
            catching_up: BTreeSet::new(),
            turn: String::new(),
            catch_up_bytes: 0,
            loose: VecDeque::new(),
            loose_bytes: 0,
            is_congested: false,
        }
    }

    /// A session of last time and its last record.
    pub(crate) fn restore(&mut self, session_id: &str, published: u64) {
        self.lanes.insert(session_id.to_owned(), Lane::new(published, Mode::CatchingUp));
    }

    /// All sessions with records, and the last of each.
    pub(crate) fn sessions(&self) -> Vec<(String, u64)> {
        self.lanes.iter().map(|(session_id, lane)| (session_id.clone(), lane.published)).collect()
    }

    /// A link is there; `hub_seqs` is what the hub has.
    pub(crate) fn link_up(&mut self, link: u64, hub_seqs: &BTreeMap<String, u64>) {
        self.link_down();
        self.link = Some(link);
        for (session_id, lane) in &mut self.lanes {
            lane.mode = Mode::CatchingUp;
            lane.next_seq = hub_seqs.get(session_id).map_or(1, |seq| seq.saturating_add(1));
            self.catching_up.insert(session_id.clone());
        }
    }

    /// The link is over: what waits for it is of no use to the next.
    pub(crate) fn link_down(&mut self) {
        self.link = None;
        self.loose.clear();
        self.loose_bytes = 0;
        self.catching_up.clear();
        self.catch_up_bytes = 0;
        self.is_congested = false;
        for lane in self.lanes.values_mut() {
            lane.clear();
            lane.has_lost_events |= std::mem::take(&mut lane.has_sent_events);
        }
    }

    /// A session has said something; its records are in the spool.
    pub(crate) fn publish(&mut self, said: &Said<'_>) -> Verdict {
        let last = said.records.last().map_or(0, |record| record.seq);
        if last > 0 && !self.lanes.contains_key(said.session_id) {
            self.lanes.insert(said.session_id.to_owned(), Lane::new(0, Mode::Live));
        }
        let verdict = match self.link {
            Some(link) => self.publish_to(link, said, last),
            None => {
                if let Some(lane) = self.lanes.get_mut(said.session_id) {
                    lane.published = lane.published.max(last);
                    lane.has_lost_events |= said.has_events();
                }
                Verdict::Nothing
            }
        };
        if said
            .responses
            .iter()
            .any(|response| response.took_effect && class_of(&response.cmd) == CommandClass::Delete)
        {
            self.forget(said.session_id);
        }
        verdict
    }

    fn publish_to(&mut self, link: u64, said: &Said<'_>, last: u64) -> Verdict {
        let Some(lane) = self.lanes.get_mut(said.session_id) else {
            // A session that has no record yet: there is nothing to keep in order.
            return match said.for_hub(link, 0, 0) {
                Some(block) => Verdict::Send { link, block },
                None => Verdict::Nothing,
            };
        };
        lane.published = lane.published.max(last);
        if lane.mode != Mode::Live {
            return self.defer(link, said);
        }
        let next_seq = lane.next_seq;
        let first = said.records.iter().map(|record| record.seq).find(|seq| *seq >= next_seq);
        let bytes = said.record_bytes(next_seq);
        let has_hole = first.is_some_and(|first| first != next_seq);
        // A record greater than the window must pass all the same, alone.
        let is_full = bytes > 0 && lane.sent_bytes > 0 && lane.sent_bytes + bytes > self.window_max;
        if has_hole || is_full {
            self.fall_behind(said.session_id, next_seq);
            return self.defer(link, said);
        }
        if let Some(first_seq) = first {
            lane.next_seq = last + 1;
            lane.sent_bytes += bytes;
            lane.sent.push_back(Sent { first_seq, last_seq: last, bytes, is_catch_up: false });
        }
        lane.has_sent_events |= said.has_events();
        let snapshot = lane.awaits_snapshot.then(|| said.snapshot());
        lane.awaits_snapshot &= snapshot.flatten().is_none();
        let events_from = snapshot.map_or(0, |found| found.unwrap_or(said.block.len()));
        match said.for_hub(link, next_seq, events_from) {
            Some(block) => Verdict::Send { link, block },
            None => Verdict::Nothing,
        }
    }

    /// The link had no room for a block of a live session.
    pub(crate) fn unsent(&mut self, link: u64, said: &Said<'_>) {
        if self.link != Some(link) {
            return;
        }
        self.is_congested = true;
        if let Some(lane) = self.lanes.get_mut(said.session_id).filter(|lane| lane.mode == Mode::Live) {
            let last = said.records.last().map_or(0, |record| record.seq);
            let mut next_seq = lane.next_seq;
            if let Some(sent) = lane.sent.pop_back_if(|sent| last > 0 && sent.last_seq == last) {
                lane.sent_bytes -= sent.bytes;
                next_seq = sent.first_seq;
            }
            self.fall_behind(said.session_id, next_seq);
        }
        self.defer(link, said);
    }

    fn fall_behind(&mut self, session_id: &str, next_seq: u64) {
        if let Some(lane) = self.lanes.get_mut(session_id) {
            lane.mode = Mode::CatchingUp;
            lane.next_seq = next_seq;
            self.catching_up.insert(session_id.to_owned());
        }
    }

    /// Keeps the hub's responses of a block whose events cannot go out now.
    fn defer(&mut self, link: u64, said: &Said<'_>) -> Verdict {
        let mut lane = self.lanes.get_mut(said.session_id);
        if let Some(lane) = &mut lane {
            lane.has_lost_events |= said.has_events();
        }
        let mut loose = Vec::new();
        for response in said.responses.iter().filter(|response| response.origin == link) {
            let line = said.block.slice(response.range.clone());
            match &mut lane {
                Some(lane) if lane.mode == Mode::CatchingUp && has_a_place(&response.cmd) => {
                    if class_of(&response.cmd) == CommandClass::Attach
                        && lane.held_bytes + line.len() > HELD_BYTES_MAX
                    {
                        loose.push(refusal(said.session_id, &self.runner_id, response));
                    } else {
                        lane.held_bytes += line.len();
                        lane.held.push_back((said.place_of(response, lane.published), line));
                    }
                }
                _ => loose.push(line),
            }
        }
        loose.into_iter().for_each(|line| self.push_loose(line));
        Verdict::Wake
    }

    /// A line for the hub that has no place in a session's stream.
    pub(crate) fn tell(&mut self, link: u64, line: Bytes) {
        if self.link == Some(link) {
            self.push_loose(line);
        }
    }

    /// The same for a line that may be left out; false if it is.
    pub(crate) fn tell_if_room(&mut self, link: u64, line: Bytes) -> bool {
        let has_room = self.link == Some(link) && self.loose_bytes < DROPPABLE_BYTES_MAX;
        if has_room {
            self.push_loose(line);
        }
        has_room
    }

    fn push_loose(&mut self, line: Bytes) {
        self.loose_bytes += line.len();
        self.loose.push_back(line);
    }

    /// Whether the hub asks much and takes nothing.
    pub(crate) fn is_overrun(&self) -> bool {
        self.loose_bytes > LOOSE_BYTES_MAX
    }

    pub(crate) fn has_loose(&self) -> bool {
        !self.loose.is_empty()
    }

    /// The hub has committed records. True when the pump may have waited for that.
    pub(crate) fn ack(&mut self, link: u64, session_id: &str, seq: u64) -> bool {
        let Some(lane) = self.lanes.get_mut(session_id).filter(|_| self.link == Some(link)) else {
            return false;
        };
        let mut has_room = lane.mode == Mode::CatchingUp;
        while let Some(sent) = lane.sent.pop_front_if(|sent| sent.last_seq <= seq) {
            lane.sent_bytes -= sent.bytes;
            if sent.is_catch_up {
                self.catch_up_bytes -= sent.bytes;
                has_room = true;
            }
        }
        has_room && !self.catching_up.is_empty()
    }

    /// The hub takes nothing of this session. False when that is known.
    pub(crate) fn refuse(&mut self, link: u64, session_id: &str) -> bool {
        let Some(lane) = self.lanes.get_mut(session_id).filter(|_| self.link == Some(link)) else {
            return true;
        };
        let is_new = lane.mode != Mode::Refused;
        lane.mode = Mode::Refused;
        let held = std::mem::take(&mut lane.held);
        self.catch_up_bytes -= lane.clear();
        self.catching_up.remove(session_id);
        held.into_iter().for_each(|(_, line)| self.push_loose(line));
        is_new
    }

    /// The session is deleted: another one of its name begins anew.
    pub(crate) fn forget(&mut self, session_id: &str) {
        let Some(mut lane) = self.lanes.remove(session_id) else { return };
        self.catching_up.remove(session_id);
        std::mem::take(&mut lane.held).into_iter().for_each(|(_, line)| self.push_loose(line));
        self.catch_up_bytes -= lane.clear();
    }

    /// What the pump does now. To be asked again when the last step is done.
    pub(crate) fn next(&mut self) -> Step {
        let Some(link) = self.link else { return Step::Wait };
        if self.has_loose() {
            return Step::Send(self.take_loose());
        }
        for _ in 0..self.catching_up.len() {
            let Some(session_id) = self.take_turn() else { break };
            let Some(lane) = self.lanes.get_mut(&session_id) else { continue };
            let next_seq = lane.next_seq;
            let mut due = Vec::new();
            while let Some((_, line)) = lane.held.pop_front_if(|(after, _)| *after < next_seq) {
                lane.held_bytes -= line.len();
                due.push(line);
            }
            if !due.is_empty() {
                return Step::Send(join(due));
            }
            if lane.published >= lane.next_seq {
                if self.catch_up_bytes >= self.catch_up_max || lane.sent_bytes >= self.window_max {
                    continue;
                }
                let rows_max = (TURN_BYTES / lane.row_bytes.max(1)).clamp(1, TURN_ROWS_MAX);
                let until = lane.held.front().map_or(lane.published, |(after, _)| *after);
                let (after, published) = (lane.next_seq.saturating_sub(1), until);
                return Step::Read(Turn { link, session_id, after, rows_max, published });
            }
            if self.is_congested {
                continue;
            }
            lane.mode = Mode::Live;
            self.catching_up.remove(&session_id);
            if std::mem::take(&mut lane.has_lost_events) {
                lane.awaits_snapshot = true;
                return Step::Snapshot(session_id);
            }
        }
        if self.is_congested { Step::Room } else { Step::Wait }
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

    fn take_loose(&mut self) -> Bytes {
        let mut lines = Vec::new();
        let mut bytes = 0;
        while bytes < LOOSE_BLOCK_BYTES
            && let Some(line) = self.loose.pop_front()
        {
            bytes += line.len();
            lines.push(line);
        }
        self.loose_bytes -= bytes;
        join(lines)
    }

    /// Records were read from the spool; gives the block to send. An empty read of records that were there before
    /// it means that they are gone (their session is being deleted): they are passed over.
    pub(crate) fn have_read(&mut self, turn: &Turn, mut rows: Vec<(u64, Bytes)>) -> Option<Bytes> {
        rows.retain(|(seq, _)| *seq <= turn.published);
        let lane = self.lanes.get_mut(&turn.session_id).filter(|lane| {
            self.link == Some(turn.link)
                && lane.mode == Mode::CatchingUp
                && lane.next_seq == turn.after.saturating_add(1)
        })?;
        let Some((last_seq, _)) = rows.last() else {
            tracing::debug!(session_id = turn.session_id, "records are not in the spool any more");
            lane.next_seq = turn.published.saturating_add(1);
            return None;
        };
        let last_seq = *last_seq;
        let first_seq = lane.next_seq;
        lane.next_seq = last_seq + 1;
        let bytes = rows.iter().map(|(_, line)| line.len()).sum();
        lane.row_bytes = bytes / rows.len();
        lane.sent_bytes += bytes;
        lane.sent.push_back(Sent { first_seq, last_seq, bytes, is_catch_up: true });
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
