//! Whose turn it is.
//!
//! Each session has a lane, in which commands go one after the other in order of arrival; reads and control commands
//! go beside it. While a command that creates or loads the session
//! is in its lane, everything that names the session and came later waits for it, so that a client may send
//! create, switch and prompt in one go; and one that comes after the end of the session waits for that.
//!
//! What a command has to wait for outside of its own lane are always earlier ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use qd_wire::command_table::{CommandClass, Lane as Declared, class_of};
use qd_wire::pi_server::CommandSpec;

use super::SubmissionToken;

/// Where a command waits for its turn.
#[derive(Debug, Clone)]
pub(super) struct LanePlace {
    kind: LaneUse,
    /// `None`: it is about no session, and waits for nobody.
    session: Option<Arc<str>>,
    /// Whether it waits until the rows of earlier commands are written. One that is written itself need not: rows
    /// are reported in order.
    after_rows: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneUse {
    /// Among the session's work.
    Work,
    /// In no lane, but after the birth of its session.
    Beside,
    /// The same, and a birth that comes later waits for it.
    End,
}

impl LanePlace {
    pub(super) fn new(spec: &CommandSpec, session: Option<&str>, is_written_first: bool) -> LanePlace {
        let kind = match spec.lane {
            // A client that sends a shell command and then a prompt means this order.
            Declared::Session | Declared::Shell => LaneUse::Work,
            Declared::Control if class_of(spec.canonical) == CommandClass::Close => LaneUse::End,
            Declared::Control | Declared::Read | Declared::Service => LaneUse::Beside,
        };
        LanePlace {
            kind,
            session: session.map(Into::into),
            after_rows: spec.lane != Declared::Read && !is_written_first,
        }
    }

    /// Whether both are in one lane: one command at a time.
    pub(super) fn shares_lane(&self, other: &LanePlace) -> bool {
        self.kind == LaneUse::Work && other.kind == LaneUse::Work && self.session == other.session
    }

    /// Whether a command is there until it is over, and not only until its turn.
    pub(super) fn is_held(&self) -> bool {
        self.kind != LaneUse::Beside
    }
}

/// Whether a command brings its session into being.
pub(super) fn is_birth(spec: &CommandSpec) -> bool {
    class_of(spec.canonical) == CommandClass::Create
}

/// The lanes of all sessions that have something in them.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    sessions: HashMap<Arc<str>, SessionLanes>,
}

#[derive(Debug, Default)]
struct SessionLanes {
    work: WorkLane,
    /// Commands in the work lane, queued or at their turn, that bring the session into being.
    births: BTreeSet<SubmissionToken>,
    /// Commands, waiting or at their turn, that end the session.
    ends: BTreeSet<SubmissionToken>,
    /// Commands whose rows are being written.
    rows: BTreeSet<SubmissionToken>,
    /// Commands beside the lane that wait for a birth or for rows.
    held_back: BTreeSet<SubmissionToken>,
}

#[derive(Debug, Default)]
struct WorkLane {
    queue: BTreeSet<SubmissionToken>,
    holder: Option<SubmissionToken>,
}

impl WorkLane {
    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.holder.is_none()
    }

    fn is_turn_of(&self, token: SubmissionToken) -> bool {
        self.holder.is_none() && self.queue.first() == Some(&token)
    }

    fn remove(&mut self, token: SubmissionToken) {
        if self.holder == Some(token) {
            self.holder = None;
        } else {
            self.queue.remove(&token);
        }
    }

    /// Who may have become first.
    fn next(&self) -> Option<SubmissionToken> {
        if self.holder.is_some() { None } else { self.queue.first().copied() }
    }
}

impl SessionLanes {
    fn is_empty(&self) -> bool {
        let sets = [&self.births, &self.ends, &self.rows, &self.held_back];
        self.work.is_empty() && sets.into_iter().all(BTreeSet::is_empty)
    }

    /// Whether nothing outside of its own lane keeps a command back.
    fn is_open(&self, place: &LanePlace, token: SubmissionToken) -> bool {
        let none_before =
            |tokens: &BTreeSet<SubmissionToken>| tokens.first().is_none_or(|first| *first > token);
        (place.kind == LaneUse::Work || none_before(&self.births))
            && (!self.births.contains(&token) || none_before(&self.ends))
            && (!place.after_rows || none_before(&self.rows))
    }

    /// Those that may be able to go on when something of this session is over.
    fn wake(&self, ready: &mut BTreeSet<SubmissionToken>) {
        ready.extend(self.work.next());
        let next_birth = self.births.first().copied().unwrap_or(SubmissionToken::MAX);
        ready.extend(self.held_back.range(..next_birth));
    }
}

impl Lanes {
    /// Lines up; order of arrival counts, not of lining up.
    pub(super) fn enter(&mut self, place: &LanePlace, token: SubmissionToken, birth: bool) {
        let Some(name) = &place.session else { return };
        // Most commands beside the lane find nothing to wait for.
        if place.kind == LaneUse::Beside && !self.sessions.contains_key(name) {
            return;
        }
        let session = self.sessions.entry(name.clone()).or_default();
        match place.kind {
            LaneUse::Work => {
                session.work.queue.insert(token);
                if birth {
                    session.births.insert(token);
                }
            }
            LaneUse::End => {
                session.ends.insert(token);
                session.held_back.insert(token);
            }
            LaneUse::Beside if !session.is_open(place, token) => _ = session.held_back.insert(token),
            LaneUse::Beside => {}
        }
    }

    /// Gives a command its turn if it has come; a place that is held is then its own until [`Lanes::leave`].
    pub(super) fn take_turn(&mut self, place: &LanePlace, token: SubmissionToken) -> bool {
        let Some(name) = &place.session else { return true };
        let Some(session) = self.sessions.get_mut(name) else { return true };
        if !session.is_open(place, token) {
            return false;
        }
        let lane = match place.kind {
            LaneUse::Work => &mut session.work,
            LaneUse::Beside | LaneUse::End => {
                if session.held_back.remove(&token) && session.is_empty() {
                    self.sessions.remove(name);
                }
                return true;
            }
        };
        if !lane.is_turn_of(token) {
            return false;
        }
        lane.queue.remove(&token);
        lane.holder = Some(token);
        true
    }

    /// The row of a command at its turn is being written.
    pub(super) fn begin_row(&mut self, place: &LanePlace, token: SubmissionToken) {
        if let Some(name) = &place.session {
            self.sessions.entry(name.clone()).or_default().rows.insert(token);
        }
    }

    /// The row is written, or never will be; `ready` gets those that may go on by that.
    pub(super) fn end_row(
        &mut self,
        place: &LanePlace,
        token: SubmissionToken,
        ready: &mut BTreeSet<SubmissionToken>,
    ) {
        let Some(name) = &place.session else { return };
        let Some(session) = self.sessions.get_mut(name) else { return };
        if session.rows.remove(&token) {
            session.wake(ready);
            if session.is_empty() {
                self.sessions.remove(name);
            }
        }
    }

    /// Goes away from wherever it stood; `ready` gets those whose turn may have come by that.
    pub(super) fn leave(
        &mut self,
        place: &LanePlace,
        token: SubmissionToken,
        ready: &mut BTreeSet<SubmissionToken>,
    ) {
        let Some(name) = &place.session else { return };
        let Some(session) = self.sessions.get_mut(name) else { return };
        match place.kind {
            LaneUse::Work => {
                session.work.remove(token);
                ready.extend(session.work.next());
                if session.births.remove(&token) {
                    session.wake(ready);
                }
            }
            LaneUse::End => {
                session.ends.remove(&token);
                session.held_back.remove(&token);
                ready.extend(session.work.next());
            }
            LaneUse::Beside => _ = session.held_back.remove(&token),
        }
        if session.is_empty() {
            self.sessions.remove(name);
        }
    }

    /// Lanes with something in them.
    pub(super) fn count(&self) -> usize {
        self.sessions.values().filter(|session| !session.work.is_empty()).count()
    }
}
