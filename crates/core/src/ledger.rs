//! Submissions and outcomes: every command with an identity runs at most once, and its one result can be
//! asked for. One ledger serves all sessions of a runner, because dependencies cross sessions.
//!
//! Bounded in count and bytes: finished entries leave oldest first, entries in flight never do; when only
//! those are left, new ones are rejected.

mod reads;
mod submission;

use std::collections::{BTreeMap, HashMap, VecDeque};

pub use crate::fingerprint::Fingerprint;
use reads::AnsweredReads;
pub use submission::{
    CommandId, CommandOutcome, IdempotencyKey, LedgerLimits, LedgerRejection, LedgerVerdict,
    ReleasedCommands, Submission, SubmissionToken,
};
use submission::{FailureText, JOINED_MAX};

/// What a key was used for. It outlives the command, so that a repeat is recognised.
#[derive(Debug)]
struct KeyUse {
    fingerprint: Fingerprint,
    cmd: String,
    created_at: i64,
    state: KeyUseState,
}

/// A repeat either joins the command that runs or gets the outcome; it never runs a second time.
#[derive(Debug)]
enum KeyUseState {
    InFlight { joined: Vec<SubmissionToken> },
    Done(SubmissionToken, CommandOutcome),
}

/// How a command stands by its id. Unlike a key, an id can be used again; the token tells the uses apart.
#[derive(Debug, Clone)]
enum CommandState {
    InFlight(SubmissionToken),
    Done(SubmissionToken, Result<(), FailureText>),
}

#[derive(Debug)]
struct RunningCommand {
    key: Option<IdempotencyKey>,
    id: Option<CommandId>,
}

/// What a dependent still waits for: the very command that had the name when it asked.
type MissingDependencies = BTreeMap<CommandId, SubmissionToken>;

/// The ledger of one runner.
#[derive(Debug, Default)]
pub struct Ledger {
    limits: LedgerLimits,
    keys: HashMap<IdempotencyKey, KeyUse>,
    ids: HashMap<CommandId, CommandState>,
    running: BTreeMap<SubmissionToken, RunningCommand>,
    /// In the order they came, in which they go on.
    waiting: BTreeMap<SubmissionToken, MissingDependencies>,
    /// Oldest first. A name may have been taken again since; the token tells.
    done_keys: VecDeque<(IdempotencyKey, SubmissionToken)>,
    done_ids: VecDeque<(CommandId, SubmissionToken)>,
    done_bytes: usize,
    reads: AnsweredReads,
}

/// How a command stands that another one depends on.
enum DependencyState<'a> {
    InFlight(SubmissionToken),
    Done,
    Failed(&'a str),
}

impl Ledger {
    pub fn new(limits: LedgerLimits) -> Self {
        Ledger { limits, ..Ledger::default() }
    }

    /// Commands admitted and not finished.
    pub fn in_flight(&self) -> usize {
        self.running.len()
    }

    /// Puts back an outcome that survived a restart, under a token of its own.
    pub fn restore(&mut self, submission: Submission, at: i64, outcome: CommandOutcome) {
        let token = submission.token;
        if let Some(id) = submission.id {
            // A connection does not survive a restart, so stored ids have none and are found by their shared form.
            let result = outcome.success();
            self.ids.insert(id.clone(), CommandState::Done(token, result));
            self.done_ids.push_back((id, token));
        }
        if let Some(key) = submission.key {
            self.forget_key(&key);
            self.done_bytes += outcome.bytes();
            let entry = KeyUse {
                fingerprint: submission.fingerprint,
                cmd: outcome.cmd.clone(),
                created_at: at,
                state: KeyUseState::Done(token, outcome),
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
            KeyUseState::InFlight { .. } => true,
            KeyUseState::Done(..) => now.saturating_sub(entry.created_at) <= self.limits.key_ttl_ms,
        })
    }

    /// Decides about a new command. Everything but `Run`, `Wait` and `Join` is final.
    pub fn submit(&mut self, now: i64, submission: Submission) -> LedgerVerdict {
        if let Some(key) = &submission.key
            && let Some(verdict) = self.known_key(now, key, &submission)
        {
            return verdict;
        }
        // After the check of the key: a repeat needs no room, because it does not run.
        if self.running.len() >= self.limits.in_flight_max {
            return LedgerVerdict::Reject(LedgerRejection::Busy);
        }
        let missing = match self.missing_dependencies(&submission) {
            Ok(missing) => missing,
            Err(rejection) => return LedgerVerdict::Reject(rejection),
        };
        // Not before: a rejected command leaves its names free for the next attempt.
        self.register(now, &submission);
        if missing.is_empty() {
            return LedgerVerdict::Run;
        }
        self.waiting.insert(submission.token, missing);
        LedgerVerdict::Wait
    }

    /// A command that changes nothing and waits for nothing was answered as soon as it came; others may depend on it.
    pub fn answered_at_once(&mut self, token: SubmissionToken, principal: &str, connection: &str, id: &str) {
        self.reads.add(token, principal, connection, id, self.limits.outcomes_max);
    }

    /// A command finished (or was given up): remembers its outcome and says who can go on.
    pub fn finish(&mut self, now: i64, token: SubmissionToken, outcome: &CommandOutcome) -> ReleasedCommands {
        self.waiting.remove(&token);
        let Some(running) = self.running.remove(&token) else { return ReleasedCommands::default() };
        let mut released = ReleasedCommands::default();
        if let Some(key) = running.key {
            released.joined = self.finish_key(now, token, key, outcome);
        }
        if let Some(id) = running.id {
            let shared = id.shared();
            self.finish_id(&id, token, outcome, &mut released);
            // A command without a connection has one name for both.
            if shared != id {
                self.finish_id(&shared, token, outcome, &mut released);
            }
        }
        self.trim();
        released
    }

    fn known_key(
        &mut self,
        now: i64,
        key: &IdempotencyKey,
        submission: &Submission,
    ) -> Option<LedgerVerdict> {
        let ttl = self.limits.key_ttl_ms;
        let entry = self.keys.get(key)?;
        let expired =
            matches!(entry.state, KeyUseState::Done(..)) && now.saturating_sub(entry.created_at) > ttl;
        // Only a finished use expires. While the first command runs, a second one under its key must never start.
        if expired {
            self.forget_key(key);
            return None;
        }
        let entry = self.keys.get_mut(key)?;
        // The same key for something else is a mistake of the client, and running either would hide it.
        if entry.fingerprint != submission.fingerprint {
            return Some(LedgerVerdict::Reject(LedgerRejection::KeyConflict {
                key: key.key.clone(),
                before: entry.cmd.clone(),
                now: submission.cmd.clone(),
            }));
        }
        Some(match &mut entry.state {
            KeyUseState::InFlight { joined } if joined.len() >= JOINED_MAX => {
                LedgerVerdict::Reject(LedgerRejection::TooManyRepeats)
            }
            KeyUseState::InFlight { joined } => {
                joined.push(submission.token);
                LedgerVerdict::Join
            }
            KeyUseState::Done(_, outcome) => LedgerVerdict::Replay(outcome.clone()),
        })
    }

    fn missing_dependencies(&self, submission: &Submission) -> Result<MissingDependencies, LedgerRejection> {
        let mut missing = MissingDependencies::new();
        let Some(own) = &submission.id else {
            return if submission.depends_on.is_empty() {
                Ok(missing)
            } else {
                Err(LedgerRejection::IdMissing)
            };
        };
        for dependency in &submission.depends_on {
            if *dependency == own.id {
                return Err(LedgerRejection::DependsOnItself(dependency.clone()));
            }
            // First the command of the same connection: two tabs of one person may use the same ids.
            let mut name = CommandId { id: dependency.clone(), ..own.clone() };
            let mut found = self.dependency(&name);
            if found.is_none() {
                name = name.shared();
                found = self.dependency(&name);
            }
            match found {
                None => return Err(LedgerRejection::DependencyUnknown(dependency.clone())),
                Some(DependencyState::Failed(error)) => return Err(dependency_failed(dependency, error)),
                Some(DependencyState::Done) => {}
                Some(DependencyState::InFlight(token)) => {
                    missing.insert(name, token);
                }
            }
        }
        Ok(missing)
    }

    /// The newest command of a name.
    fn dependency(&self, name: &CommandId) -> Option<DependencyState<'_>> {
        let (token, found) = match self.ids.get(name) {
            None => return self.reads.find(name).map(|_| DependencyState::Done),
            Some(CommandState::InFlight(token)) => (token, DependencyState::InFlight(*token)),
            Some(CommandState::Done(token, Ok(()))) => (token, DependencyState::Done),
            Some(CommandState::Done(token, Err(error))) => (token, DependencyState::Failed(&error.0)),
        };
        // Reads are noted apart. Tokens grow, so the greater one is the later use of the name.
        let is_read_newer = self.reads.find(name).is_some_and(|read| read > *token);
        Some(if is_read_newer { DependencyState::Done } else { found })
    }

    fn register(&mut self, now: i64, submission: &Submission) {
        if let Some(key) = &submission.key {
            let state = KeyUseState::InFlight { joined: Vec::new() };
            let entry = KeyUse {
                fingerprint: submission.fingerprint,
                cmd: submission.cmd.clone(),
                created_at: now,
                state,
            };
            self.keys.insert(key.clone(), entry);
        }
        if let Some(id) = &submission.id {
            self.ids.insert(id.clone(), CommandState::InFlight(submission.token));
            // The second name lets commands of another connection of the principal depend on it.
            self.ids.insert(id.shared(), CommandState::InFlight(submission.token));
        }
        let running = RunningCommand { key: submission.key.clone(), id: submission.id.clone() };
        self.running.insert(submission.token, running);
    }

    fn finish_key(
        &mut self,
        now: i64,
        token: SubmissionToken,
        key: IdempotencyKey,
        outcome: &CommandOutcome,
    ) -> Vec<SubmissionToken> {
        let Some(entry) = self.keys.get_mut(&key) else { return Vec::new() };
        // The time a key is kept counts from the outcome: a long command must not expire while it runs.
        entry.created_at = now;
        let before = std::mem::replace(&mut entry.state, KeyUseState::Done(token, outcome.clone()));
        self.done_bytes += outcome.bytes();
        self.done_keys.push_back((key, token));
        match before {
            KeyUseState::InFlight { joined } => joined,
            KeyUseState::Done(..) => Vec::new(),
        }
    }

    fn finish_id(
        &mut self,
        id: &CommandId,
        token: SubmissionToken,
        outcome: &CommandOutcome,
        released: &mut ReleasedCommands,
    ) {
        // A newer command may have taken the name meanwhile; then it speaks for it.
        if matches!(self.ids.get(id), Some(CommandState::InFlight(current)) if *current == token) {
            self.ids.insert(id.clone(), CommandState::Done(token, outcome.success()));
            self.done_ids.push_back((id.clone(), token));
        }
        let waits = |missing: &MissingDependencies| missing.get(id) == Some(&token);
        let dependents: Vec<SubmissionToken> = self
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
        // In the order in which they were submitted, whatever order their dependencies ended in.
        released.ready.sort_unstable();
    }

    fn forget_key(&mut self, key: &IdempotencyKey) {
        if let Some(KeyUse { state: KeyUseState::Done(_, outcome), .. }) = self.keys.remove(key) {
            self.done_bytes = self.done_bytes.saturating_sub(outcome.bytes());
        }
    }

    /// Names in the lists may stand for a later use by now; those are left alone and only leave the list.
    fn trim(&mut self) {
        while self.done_keys.len() > self.limits.outcomes_max
            || self.done_bytes > self.limits.outcome_bytes_max
        {
            let Some((key, token)) = self.done_keys.pop_front() else { break };
            let state = self.keys.get(&key).map(|entry| &entry.state);
            if matches!(state, Some(KeyUseState::Done(current, _)) if *current == token) {
                self.forget_key(&key);
            }
        }
        while self.done_ids.len() > self.limits.outcomes_max {
            let Some((id, token)) = self.done_ids.pop_front() else { break };
            if matches!(self.ids.get(&id), Some(CommandState::Done(current, _)) if *current == token) {
                self.ids.remove(&id);
            }
        }
    }

    /// The ids a command still waits for, for the error when its time is over.
    pub fn missing(&self, token: SubmissionToken) -> Vec<String> {
        let Some(missing) = self.waiting.get(&token) else { return Vec::new() };
        let mut names: Vec<String> = missing.keys().map(|name| name.id.clone()).collect();
        names.sort();
        names
    }
}

fn dependency_failed(dependency: &str, error: &str) -> LedgerRejection {
    LedgerRejection::DependencyFailed { id: dependency.to_owned(), error: error.to_owned() }
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
mod tests;
