//! Whose turn it is.
//!
//! Each session has two lanes, one for work and one for shell commands, in which commands go one after the other in
//! order of arrival; reads and control commands go beside them. While a command that creates or loads the session
//! is in its lane, everything that names the session and came later waits for it, so that a client may send
//! create, switch and prompt in one go.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use qd_wire::command_table::Lane as Declared;
use qd_wire::pi_server::CommandSpec;

use super::Token;

/// Where a command waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Among the session's work.
    Work(Arc<str>),
    /// Among the session's shell commands.
    Shell(Arc<str>),
    /// In no lane, but after the birth of its session.
    Beside(Arc<str>),
    /// Nowhere: it is about no session.
    Free,
}

impl Place {
    pub(super) fn new(spec: &CommandSpec, session: Option<&str>) -> Place {
        match (spec.lane, session) {
            // The table gives every such command a session; one without would share a lane with its like.
            (Declared::Session, session) => Place::Work(session.unwrap_or_default().into()),
            (Declared::Shell, session) => Place::Shell(session.unwrap_or_default().into()),
            (Declared::Control | Declared::Read, Some(session)) => Place::Beside(session.into()),
            (Declared::Control | Declared::Read, None) => Place::Free,
        }
    }

    /// Whether it is a lane: one command at a time.
    pub(super) fn is_lane(&self) -> bool {
        matches!(self, Place::Work(_) | Place::Shell(_))
    }
}

/// Whether a command brings its session into being.
pub(super) fn is_birth(spec: &CommandSpec) -> bool {
    spec.canonical == "session.create"
}

/// The lanes of all sessions that have something in them.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    sessions: HashMap<Arc<str>, Session>,
}

#[derive(Debug, Default)]
struct Session {
    work: Lane,
    shell: Lane,
    /// Commands in the work lane, queued or at their turn, that bring the session into being.
    births: BTreeSet<Token>,
    /// Commands beside the lanes that wait for a birth.
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
        self.work.is_empty() && self.shell.is_empty() && self.births.is_empty() && self.held_back.is_empty()
    }

    fn is_born_for(&self, token: Token) -> bool {
        self.births.first().is_none_or(|birth| *birth > token)
    }
}

impl Lanes {
    /// Lines up; order of arrival counts, not of lining up.
    pub(super) fn enter(&mut self, place: &Place, token: Token, birth: bool) {
        match place {
            Place::Work(name) => {
                let session = self.sessions.entry(name.clone()).or_default();
                session.work.queue.insert(token);
                if birth {
                    session.births.insert(token);
                }
            }
            Place::Shell(name) => {
                self.sessions.entry(name.clone()).or_default().shell.queue.insert(token);
            }
            Place::Beside(name) => {
                if let Some(session) = self.sessions.get_mut(name)
                    && !session.is_born_for(token)
                {
                    session.held_back.insert(token);
                }
            }
            Place::Free => {}
        }
    }

    /// Gives a command its turn if it has come; a lane is then its own until [`Lanes::leave`].
    pub(super) fn take_turn(&mut self, place: &Place, token: Token) -> bool {
        let (Place::Work(name) | Place::Shell(name) | Place::Beside(name)) = place else { return true };
        let Some(session) = self.sessions.get_mut(name) else { return true };
        let born = session.is_born_for(token);
        let lane = match place {
            Place::Work(_) => &mut session.work,
            Place::Shell(_) if born => &mut session.shell,
            Place::Beside(_) if born => {
                if session.held_back.remove(&token) && session.is_empty() {
                    self.sessions.remove(name);
                }
                return true;
            }
            _ => return false,
        };
        if !lane.is_turn_of(token) {
            return false;
        }
        lane.queue.remove(&token);
        lane.holder = Some(token);
        true
    }

    /// Goes away from wherever it stood; `ready` gets those whose turn may have come by that.
    pub(super) fn leave(&mut self, place: &Place, token: Token, ready: &mut BTreeSet<Token>) {
        let (Place::Work(name) | Place::Shell(name) | Place::Beside(name)) = place else { return };
        let Some(session) = self.sessions.get_mut(name) else { return };
        match place {
            Place::Work(_) => {
                session.work.remove(token);
                ready.extend(session.work.next());
                if session.births.remove(&token) {
                    let next_birth = session.births.first().copied().unwrap_or(Token::MAX);
                    ready.extend(session.shell.next());
                    ready.extend(session.held_back.range(..next_birth));
                }
            }
            Place::Shell(_) => {
                session.shell.remove(token);
                ready.extend(session.shell.next());
            }
            Place::Beside(_) | Place::Free => {
                session.held_back.remove(&token);
            }
        }
        if session.is_empty() {
            self.sessions.remove(name);
        }
    }

    /// Lanes with something in them.
    pub(super) fn count(&self) -> usize {
        let lanes = |session: &Session| {
            usize::from(!session.work.is_empty()) + usize::from(!session.shell.is_empty())
        };
        self.sessions.values().map(lanes).sum()
    }
}
