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

use super::Token;

/// Where a command waits for its turn.
#[derive(Debug, Clone)]
pub(super) struct Place {
    kind: Kind,
    /// `None`: it is about no session, and waits for nobody.
    session: Option<Arc<str>>,
    /// Whether it waits until the rows of earlier commands are written. One that is written itself need not: rows
    /// are reported in order.
    after_rows: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Among the session's work.
    Work,
    /// In no lane, but after the birth of its session.
    Beside,
    /// The same, and a birth that comes later waits for it.
    End,
}

impl Place {
    pub(super) fn new(spec: &CommandSpec, session: Option<&str>, is_written_first: bool) -> Place {
        let kind = match spec.lane {
            // A client that sends a shell command and then a prompt means this order.
            Declared::Session | Declared::Shell => Kind::Work,
            Declared::Control if class_of(spec.canonical) == CommandClass::Close => Kind::End,
            Declared::Control | Declared::Read | Declared::Service => Kind::Beside,
        };
        Place {
            kind,
            session: session.map(Into::into),
            after_rows: spec.lane != Declared::Read && !is_written_first,
        }
    }

    /// Whether both are in one lane: one command at a time.
    pub(super) fn shares_lane(&self, other: &Place) -> bool {
        self.kind == Kind::Work && other.kind == Kind::Work && self.session == other.session
    }

    /// Whether a command is there until it is over, and not only until its turn.
    pub(super) fn is_held(&self) -> bool {
        self.kind != Kind::Beside
    }
}

/// Whether a command brings its session into being.
pub(super) fn is_birth(spec: &CommandSpec) -> bool {
    class_of(spec.canonical) == CommandClass::Create
}

/// The lanes of all sessions that have something in them.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    sessions: HashMap<Arc<str>, Session>,
}

#[derive(Debug, Default)]
struct Session {
    work: Lane,
    /// Commands in the work lane, queued or at their turn, that bring the session into being.
    births: BTreeSet<Token>,
    /// Commands, waiting or at their turn, that end the session.
    ends: BTreeSet<Token>,
    /// Commands whose rows are being written.
    rows: BTreeSet<Token>,
    /// Commands beside the lane that wait for a birth or for rows.
    held_back: BTreeSet<Token>,
}

#[derive(Debug, Default)]
struct Lane {
    queue: BTreeSet<Token>,
    holder: Option<Token>,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.holder.is_none()
    }

    fn is_turn_of(&self, token: Token) -> bool {
        self.holder.is_none() && self.queue.first() == Some(&token)
    }

    fn remove(&mut self, token: Token) {
        if self.holder == Some(token) {
            self.holder = None;
        } else {
            self.queue.remove(&token);
        }
    }

    /// Who may have become first.
    fn next(&self) -> Option<Token> {
        if self.holder.is_some() { None } else { self.queue.first().copied() }
    }
}

impl Session {
    fn is_empty(&self) -> bool {
        let sets = [&self.births, &self.ends, &self.rows, &self.held_back];
        self.work.is_empty() && sets.into_iter().all(BTreeSet::is_empty)
    }

    /// Whether nothing outside of its own lane keeps a command back.
    fn is_open(&self, place: &Place, token: Token) -> bool {
        let none_before = |tokens: &BTreeSet<Token>| tokens.first().is_none_or(|first| *first > token);
        (place.kind == Kind::Work || none_before(&self.births))
            && (!self.births.contains(&token) || none_before(&self.ends))
            && (!place.after_rows || none_before(&self.rows))
    }

    /// Those that may be able to go on when something of this session is over.
    fn wake(&self, ready: &mut BTreeSet<Token>) {
        ready.extend(self.work.next());
        let next_birth = self.births.first().copied().unwrap_or(Token::MAX);
        ready.extend(self.held_back.range(..next_birth));
    }
}

impl Lanes {
    /// Lines up; order of arrival counts, not of lining up.
    pub(super) fn enter(&mut self, place: &Place, token: Token, birth: bool) {
        let Some(name) = &place.session else { return };
        // Most commands beside the lane find nothing to wait for.
        if place.kind == Kind::Beside && !self.sessions.contains_key(name) {
            return;
        }
        let session = self.sessions.entry(name.clone()).or_default();
        match place.kind {
            Kind::Work => {
                session.work.queue.insert(token);
                if birth {
                    session.births.insert(token);
                }
            }
            Kind::End => {
                session.ends.insert(token);
                session.held_back.insert(token);
            }
            Kind::Beside if !session.is_open(place, token) => _ = session.held_back.insert(token),
            Kind::Beside => {}
        }
    }

    /// Gives a command its turn if it has come; a place that is held is then its own until [`Lanes::leave`].
    pub(super) fn take_turn(&mut self, place: &Place, token: Token) -> bool {
        let Some(name) = &place.session else { return true };
        let Some(session) = self.sessions.get_mut(name) else { return true };
        if !session.is_open(place, token) {
            return false;
        }
        let lane = match place.kind {
            Kind::Work => &mut session.work,
            Kind::Beside | Kind::End => {
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
    pub(super) fn begin_row(&mut self, place: &Place, token: Token) {
        if let Some(name) = &place.session {
            self.sessions.entry(name.clone()).or_default().rows.insert(token);
        }
    }

    /// The row is written, or never will be; `ready` gets those that may go on by that.
    pub(super) fn end_row(&mut self, place: &Place, token: Token, ready: &mut BTreeSet<Token>) {
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
    pub(super) fn leave(&mut self, place: &Place, token: Token, ready: &mut BTreeSet<Token>) {
        let Some(name) = &place.session else { return };
        let Some(session) = self.sessions.get_mut(name) else { return };
        match place.kind {
            Kind::Work => {
                session.work.remove(token);
                ready.extend(session.work.next());
                if session.births.remove(&token) {
                    session.wake(ready);
                }
            }
            Kind::End => {
                session.ends.remove(&token);
                session.held_back.remove(&token);
                ready.extend(session.work.next());
            }
            Kind::Beside => _ = session.held_back.remove(&token),
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
