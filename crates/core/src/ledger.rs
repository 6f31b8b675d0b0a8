//! Submissions and outcomes: every command with an identity runs at most once, and its one result can be
//! asked for. One ledger serves all sessions of a runner, because dependencies cross sessions.
//!
//! Bounded in count and bytes: finished entries leave oldest first, entries in flight never do; when only
//! those are left, new ones are rejected.

mod reads;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use qd_wire::{CodedError, ErrorCode};

pub use crate::fingerprint::Fingerprint;
use reads::AnsweredReads;

/// A submission in the caller's books.
pub type Token = u64;

/// Repeats of one running command that may wait for its outcome.
const JOINED_MAX: usize = 64;

/// Bounds of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub outcomes_max: usize,
    pub outcome_bytes_max: usize,
    pub in_flight_max: usize,
    /// How long a key replays; after that it is a new command.
    pub key_ttl_ms: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            outcomes_max: 10_000,
            outcome_bytes_max: 16 * 1024 * 1024,
            in_flight_max: 10_000,
            key_ttl_ms: 24 * 60 * 60 * 1000,
        }
    }
}

/// The name under which a command runs at most once: scoped to one principal and one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyName {
    pub principal: String,
    /// The session, or empty for commands of no session.
    pub scope: String,
    pub key: String,
}

/// The name other commands depend on. Clients count 1, 2, 3, so a connection's own ids come first; only an id it has
/// not used itself is looked for among all of its principal, which is what a client that reconnected needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdName {
    pub principal: String,
    /// Empty for the name shared by all connections of the principal.
    pub connection: String,
    pub id: String,
}

impl IdName {
    fn shared(&self) -> IdName {
        IdName { connection: String::new(), ..self.clone() }
    }
}

/// What a finished command answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub cmd: String,
    /// `data` as JSON text, or the error.
    pub result: Result<Option<Arc<str>>, CodedError>,
    pub session_version: Option<u64>,
    /// The process died between write and reply: nobody can know.
    pub indeterminate: bool,
    /// Its time was over before it was done.
    pub timed_out: bool,
}

impl Outcome {
    /// What it takes of the byte bound.
    fn bytes(&self) -> usize {
        match &self.result {
            Ok(data) => data.as_ref().map_or(0, |data| data.len()),
            Err(error) => error.message.len(),
        }
    }

    /// What dependents are told: whether it succeeded, and why not.
    fn success(&self) -> Result<(), FailureText> {
        match &self.result {
            Ok(_) => Ok(()),
            Err(error) => Err(FailureText(error.message.as_str().into())),
        }
    }
}

/// What a failed command said, kept for those that depend on it.
#[derive(Debug, Clone)]
struct FailureText(Box<str>);

/// Why a command must not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("Server busy - too many concurrent commands. Please retry.")]
    Busy,
    #[error("Conflicting idempotency_key '{key}': previously used for '{before}', now used for '{now}'")]
    KeyConflict { key: String, before: String, now: String },
    #[error("Too many repeats of one command wait for it (max {JOINED_MAX})")]
    TooManyRepeats,
    #[error("id: Required when depends_on is provided")]
    IdMissing,
    #[error("Command '{0}' cannot depend on itself")]
    DependsOnItself(String),
    #[error("Dependency '{0}' is unknown")]
    DependencyUnknown(String),
    #[error("Dependency '{id}' failed: {error}")]
    DependencyFailed { id: String, error: String },
}

impl Rejection {
    pub const fn code(&self) -> ErrorCode {
        match self {
            Rejection::Busy | Rejection::TooManyRepeats => ErrorCode::Busy,
            Rejection::KeyConflict { .. } => ErrorCode::IdempotencyConflict,
            Rejection::IdMissing | Rejection::DependsOnItself(_) => ErrorCode::InvalidRequest,
            Rejection::DependencyUnknown(_) | Rejection::DependencyFailed { .. } => {
                ErrorCode::DependencyFailed
            }
        }
    }
}

impl From<Rejection> for CodedError {
    fn from(rejection: Rejection) -> Self {
        CodedError::new(rejection.code(), rejection.to_string())
    }
}

/// A new command at the door.
#[derive(Debug, Clone)]
pub struct Submission {
    pub token: Token,
    pub cmd: String,
    pub key: Option<KeyName>,
    pub id: Option<IdName>,
    pub fingerprint: Fingerprint,
    pub depends_on: Vec<String>,
}

/// What to do with it.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Run it now.
    Run,
    /// It waits for others; [`Ledger::finish`] will name it.
    Wait,
    /// The same command is running; [`Ledger::finish`] will name it among the joined.
    Join,
    /// It ran before.
    Replay(Outcome),
    /// It must not run.
    Reject(Rejection),
}

/// Who can go on because a command finished.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Released {
    /// Duplicates: answer them with the outcome, marked as replayed.
    pub joined: Vec<Token>,
    /// Dependents whose last dependency succeeded: run them.
    pub ready: Vec<Token>,
    /// Dependents that fail because this command did.
    pub failed: Vec<(Token, Rejection)>,
}

#[derive(Debug)]
struct KeyEntry {
    fingerprint: Fingerprint,
    cmd: String,
    created_at: i64,
    state: KeyState,
}

#[derive(Debug)]
enum KeyState {
    InFlight { joined: Vec<Token> },
    Done(Token, Outcome),
}

#[derive(Debug, Clone)]
enum IdState {
    InFlight(Token),
    Done(Token, Result<(), FailureText>),
}

#[derive(Debug)]
struct Running {
    key: Option<KeyName>,
    id: Option<IdName>,
}

/// What a dependent still waits for: the very command that had the name when it asked.
type Missing = BTreeMap<IdName, Token>;

/// The ledger of one runner.
#[derive(Debug, Default)]
pub struct Ledger {
    limits: Limits,
    keys: HashMap<KeyName, KeyEntry>,
    ids: HashMap<IdName, IdState>,
    running: BTreeMap<Token, Running>,
    /// In the order they came, in which they go on.
    waiting: BTreeMap<Token, Missing>,
    /// Oldest first. A name may have been taken again since; the token tells.
    done_keys: VecDeque<(KeyName, Token)>,
    done_ids: VecDeque<(IdName, Token)>,
    done_bytes: usize,
    reads: AnsweredReads,
}

/// How a command stands that another one depends on.
enum Dependency<'a> {
    InFlight(Token),
    Done,
    Failed(&'a str),
}

impl Ledger {
    pub fn new(limits: Limits) -> Self {
        Ledger { limits, ..Ledger::default() }
    }

    /// Commands admitted and not finished.
    pub fn in_flight(&self) -> usize {
        self.running.len()
    }

    /// Puts back an outcome that survived a restart, under a token of its own.
    pub fn restore(&mut self, submission: Submission, at: i64, outcome: Outcome) {
        let token = submission.token;
        if let Some(id) = submission.id {
            let result = outcome.success();
            self.ids.insert(id.clone(), IdState::Done(token, result));
            self.done_ids.push_back((id, token));
        }
        if let Some(key) = submission.key {
            self.forget_key(&key);
            self.done_bytes += outcome.bytes();
            let entry = KeyEntry {
                fingerprint: submission.fingerprint,
                cmd: outcome.cmd.clone(),
                created_at: at,
                state: KeyState::Done(token, outcome),
            };
            self.keys.insert(key.clone(), entry);
            self.done_keys.push_back((key, token));
        }
        self.trim();
    }

    /// Whether the answer to a command is decided by one that came before it under the same key.
    pub fn is_repeat(&self, now: i64, submission: &Submission) -> bool {
        let entry = submission.key.as_ref().and_then(|key| self.keys.get(key));
        entry.is_some_and(|entry| match entry.state {
            KeyState::InFlight { .. } => true,
            KeyState::Done(..) => now.saturating_sub(entry.created_at) <= self.limits.key_ttl_ms,
        })
    }

    /// Decides about a new command. Everything but `Run`, `Wait` and `Join` is final.
    pub fn submit(&mut self, now: i64, submission: Submission) -> Verdict {
        if let Some(key) = &submission.key
            && let Some(verdict) = self.known_key(now, key, &submission)
        {
            return verdict;
        }
        if self.running.len() >= self.limits.in_flight_max {
            return Verdict::Reject(Rejection::Busy);
        }
        let missing = match self.missing_dependencies(&submission) {
            Ok(missing) => missing,
            Err(rejection) => return Verdict::Reject(rejection),
        };
        self.register(now, &submission);
        if missing.is_empty() {
            return Verdict::Run;
        }
        self.waiting.insert(submission.token, missing);
        Verdict::Wait
    }

    /// A command that changes nothing and waits for nothing was answered as soon as it came; others may depend on it.
    pub fn answered_at_once(&mut self, token: Token, principal: &str, connection: &str, id: &str) {
        self.reads.add(token, principal, connection, id, self.limits.outcomes_max);
    }

    /// A command finished (or was given up): remembers its outcome and says who can go on.
    pub fn finish(&mut self, now: i64, token: Token, outcome: &Outcome) -> Released {
        self.waiting.remove(&token);
        let Some(running) = self.running.remove(&token) else { return Released::default() };
        let mut released = Released::default();
        if let Some(key) = running.key {
            released.joined = self.finish_key(now, token, key, outcome);
        }
        if let Some(id) = running.id {
            let shared = id.shared();
            self.finish_id(&id, token, outcome, &mut released);
            if shared != id {
                self.finish_id(&shared, token, outcome, &mut released);
            }
        }
        self.trim();
        released
    }

    fn known_key(&mut self, now: i64, key: &KeyName, submission: &Submission) -> Option<Verdict> {
        let ttl = self.limits.key_ttl_ms;
        let entry = self.keys.get(key)?;
        let expired = matches!(entry.state, KeyState::Done(..)) && now.saturating_sub(entry.created_at) > ttl;
        if expired {
            self.forget_key(key);
            return None;
        }
        let entry = self.keys.get_mut(key)?;
        if entry.fingerprint != submission.fingerprint {
            return Some(Verdict::Reject(Rejection::KeyConflict {
                key: key.key.clone(),
                before: entry.cmd.clone(),
                now: submission.cmd.clone(),
            }));
        }
        Some(match &mut entry.state {
            KeyState::InFlight { joined } if joined.len() >= JOINED_MAX => {
                Verdict::Reject(Rejection::TooManyRepeats)
            }
            KeyState::InFlight { joined } => {
                joined.push(submission.token);
                Verdict::Join
            }
            KeyState::Done(_, outcome) => Verdict::Replay(outcome.clone()),
        })
    }

    fn missing_dependencies(&self, submission: &Submission) -> Result<Missing, Rejection> {
        let mut missing = Missing::new();
        let Some(own) = &submission.id else {
            return if submission.depends_on.is_empty() { Ok(missing) } else { Err(Rejection::IdMissing) };
        };
        for dependency in &submission.depends_on {
            if *dependency == own.id {
                return Err(Rejection::DependsOnItself(dependency.clone()));
            }
            let mut name = IdName { id: dependency.clone(), ..own.clone() };
            let mut found = self.dependency(&name);
            if found.is_none() {
                name = name.shared();
                found = self.dependency(&name);
            }
            match found {
                None => return Err(Rejection::DependencyUnknown(dependency.clone())),
                Some(Dependency::Failed(error)) => return Err(dependency_failed(dependency, error)),
                Some(Dependency::Done) => {}
                Some(Dependency::InFlight(token)) => {
                    missing.insert(name, token);
                }
            }
        }
        Ok(missing)
    }

    /// The newest command of a name.
    fn dependency(&self, name: &IdName) -> Option<Dependency<'_>> {
        let (token, found) = match self.ids.get(name) {
            None => return self.reads.find(name).map(|_| Dependency::Done),
            Some(IdState::InFlight(token)) => (token, Dependency::InFlight(*token)),
            Some(IdState::Done(token, Ok(()))) => (token, Dependency::Done),
            Some(IdState::Done(token, Err(error))) => (token, Dependency::Failed(&error.0)),
        };
        let is_read_newer = self.reads.find(name).is_some_and(|read| read > *token);
        Some(if is_read_newer { Dependency::Done } else { found })
    }

    fn register(&mut self, now: i64, submission: &Submission) {
        if let Some(key) = &submission.key {
            let state = KeyState::InFlight { joined: Vec::new() };
            let entry = KeyEntry {
                fingerprint: submission.fingerprint,
                cmd: submission.cmd.clone(),
                created_at: now,
                state,
            };
            self.keys.insert(key.clone(), entry);
        }
        if let Some(id) = &submission.id {
            self.ids.insert(id.clone(), IdState::InFlight(submission.token));
            self.ids.insert(id.shared(), IdState::InFlight(submission.token));
        }
        let running = Running { key: submission.key.clone(), id: submission.id.clone() };
        self.running.insert(submission.token, running);
    }

    fn finish_key(&mut self, now: i64, token: Token, key: KeyName, outcome: &Outcome) -> Vec<Token> {
        let Some(entry) = self.keys.get_mut(&key) else { return Vec::new() };
        entry.created_at = now;
        let before = std::mem::replace(&mut entry.state, KeyState::Done(token, outcome.clone()));
        self.done_bytes += outcome.bytes();
        self.done_keys.push_back((key, token));
        match before {
            KeyState::InFlight { joined } => joined,
            KeyState::Done(..) => Vec::new(),
        }
    }

    fn finish_id(&mut self, id: &IdName, token: Token, outcome: &Outcome, released: &mut Released) {
        // A newer command may have taken the name meanwhile; then it speaks for it.
        if matches!(self.ids.get(id), Some(IdState::InFlight(current)) if *current == token) {
            self.ids.insert(id.clone(), IdState::Done(token, outcome.success()));
            self.done_ids.push_back((id.clone(), token));
        }
        let waits = |missing: &Missing| missing.get(id) == Some(&token);
        let dependents: Vec<Token> = self
            .waiting
            .iter()
            .filter(|(_, missing)| waits(missing))
            .map(|(dependent, _)| *dependent)
            .collect();
        for dependent in dependents {
            match &outcome.result {
                Err(error) => {
                    self.waiting.remove(&dependent);
                    released.failed.push((dependent, dependency_failed(&id.id, &error.message)));
                }
                Ok(_) => {
                    let Some(missing) = self.waiting.get_mut(&dependent) else { continue };
                    missing.remove(id);
                    if missing.is_empty() {
                        self.waiting.remove(&dependent);
                        released.ready.push(dependent);
                    }
                }
            }
        }
        released.ready.sort_unstable();
    }

    fn forget_key(&mut self, key: &KeyName) {
        if let Some(KeyEntry { state: KeyState::Done(_, outcome), .. }) = self.keys.remove(key) {
            self.done_bytes = self.done_bytes.saturating_sub(outcome.bytes());
        }
    }

    fn trim(&mut self) {
        while self.done_keys.len() > self.limits.outcomes_max
            || self.done_bytes > self.limits.outcome_bytes_max
        {
            let Some((key, token)) = self.done_keys.pop_front() else { break };
            let state = self.keys.get(&key).map(|entry| &entry.state);
            if matches!(state, Some(KeyState::Done(current, _)) if *current == token) {
                self.forget_key(&key);
            }
        }
        while self.done_ids.len() > self.limits.outcomes_max {
            let Some((id, token)) = self.done_ids.pop_front() else { break };
            if matches!(self.ids.get(&id), Some(IdState::Done(current, _)) if *current == token) {
                self.ids.remove(&id);
            }
        }
    }

    /// The ids a command still waits for, for the error when its time is over.
    pub fn missing(&self, token: Token) -> Vec<String> {
        let Some(missing) = self.waiting.get(&token) else { return Vec::new() };
        let mut names: Vec<String> = missing.keys().map(|name| name.id.clone()).collect();
        names.sort();
        names
    }
}

fn dependency_failed(dependency: &str, error: &str) -> Rejection {
    Rejection::DependencyFailed { id: dependency.to_owned(), error: error.to_owned() }
}

/// Fields that say who asks and how to answer, not what is asked.
const IDENTITY_FIELDS: &[&str] = &[
    "id",
    "idempotency_key",
    "type",
    "channel",
    "user_id",
    "connection_id",
    "client_command_id",
    "runner_id",
];

/// The fingerprint of a command frame; key order does not matter.
pub fn fingerprint(frame: &str) -> Fingerprint {
    match serde_json::from_str(frame).unwrap_or_default() {
        serde_json::Value::Object(fields) => crate::fingerprint::of_fields(&fields, IDENTITY_FIELDS),
        other @ (serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_)
        | serde_json::Value::Array(_)) => crate::fingerprint::of_text(&other.to_string()),
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
