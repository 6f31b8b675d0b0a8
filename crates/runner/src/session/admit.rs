//! Admission: validation, replay, dependencies, lane, version, in this order; and the end of every command.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use qd_core::ledger::{KeyName, Outcome, Submission, Token, Verdict, fingerprint};
use qd_core::outbox::Response;
use qd_wire::command_table::{CommandClass, Lane};
use qd_wire::{CodedError, Command, ErrorCode};

use super::Incoming;
use super::actor::SessionActor;
use super::commands::{is_abort, is_input};
use crate::clock::now_ms;
use crate::driver::AgentFailure;
use crate::runner::{BARRIER, CANCEL};
use crate::submissions::{Owner, Release, in_flight_row, outcome_row};

/// How long a command waits for those it depends on.
const DEPENDENCY_WAIT_MS: i64 = 30_000;
const DEPENDENCIES_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 256;

/// Commands that may wait in one lane.
const LANE_MAX: usize = 1024;

/// Shell commands that may wait for the one that runs; each may take minutes.
const SHELL_MAX: usize = 128;

/// A command that has passed the door. Behind a pointer, because it goes from hand to hand and every hand, queue and
/// map keeps room for it as long as the session lives.
pub(crate) struct Admitted(Box<Passed>);

pub(crate) struct Passed {
    pub(super) incoming: Box<Incoming>,
    pub(super) command: Command,
    pub(super) submission: Option<Submission>,
    /// Turns begun before the agent got it; of prompts only.
    pub(super) turns_before: u64,
    /// It has been answered: its time was over.
    pub(super) is_given_up: bool,
    /// The name of its input is stored; of `run.input` only.
    pub(super) is_input_taken: bool,
}

impl Admitted {
    fn new(incoming: Box<Incoming>, command: Command, submission: Option<Submission>) -> Self {
        Admitted(Box::new(Passed {
            incoming,
            command,
            submission,
            turns_before: 0,
            is_given_up: false,
            is_input_taken: false,
        }))
    }
}

impl Deref for Admitted {
    type Target = Passed;

    fn deref(&self) -> &Passed {
        &self.0
    }
}

impl DerefMut for Admitted {
    fn deref_mut(&mut self) -> &mut Passed {
        &mut self.0
    }
}

/// A command that waits for others.
pub(crate) struct Held {
    pub(super) admitted: Admitted,
    /// A repeat of a running command waits as long as that takes, and never has an outcome of its own.
    pub(super) joined: bool,
    pub(super) deadline: Option<i64>,
}

impl Admitted {
    pub(super) fn token(&self) -> Token {
        self.incoming.token
    }
}

impl SessionActor {
    /// Takes a command from the link.
    pub(super) async fn admit(&mut self, incoming: Box<Incoming>) {
        if incoming.cmd == CANCEL {
            return self.cancel(&incoming);
        }
        // A barrier is a read whose answer nobody looks at: its dependencies and its version are what counts.
        let name = if incoming.cmd == BARRIER { "get_state" } else { &incoming.cmd };
        let command = match Command::parse(name, incoming.text()) {
            Ok(command) => command,
            Err(error) => return self.refuse(&incoming, &error.into()),
        };
        if let Err(error) = check_envelope(&incoming) {
            return self.refuse(&incoming, &error);
        }
        let submission = self.submission(&incoming);
        if let Some(error) = self.no_room_for(&command, submission.as_ref()) {
            return self.refuse(&incoming, &ErrorCode::StorageFull.with(error));
        }
        let Some(submission) = submission else {
            return self.dispatch(Admitted::new(incoming, command, None)).await;
        };
        let sender = &self.sender;
        let owner = || Owner::Session(sender.clone());
        let verdict = self.shared.submissions.submit(now_ms(), submission.clone(), owner);
        let admitted = Admitted::new(incoming, command, Some(submission));
        match verdict {
            Verdict::Run => self.dispatch(admitted).await,
            Verdict::Wait => {
                let deadline = Some(now_ms() + DEPENDENCY_WAIT_MS);
                self.held.insert(admitted.token(), Held { admitted, joined: false, deadline });
            }
            Verdict::Join => {
                self.held.insert(admitted.token(), Held { admitted, joined: true, deadline: None });
            }
            Verdict::Replay(outcome) => self.replay(&admitted.incoming, &outcome),
            Verdict::Reject(rejection) => self.refuse(&admitted.incoming, &rejection.into()),
        }
    }

    /// New work is refused while the spool is full. What ran before is still answered, and running turns go on.
    fn no_room_for(&self, command: &Command, submission: Option<&Submission>) -> Option<String> {
        // Typing to a program makes no records to speak of, and may end what does.
        let is_typed = self.is_run() && command.spec().is_input();
        if !command.spec().is_new_work() || is_typed {
            return None;
        }
        let error = self.shared.spool_is_full()?;
        let is_repeat =
            submission.is_some_and(|submission| self.shared.submissions.is_repeat(now_ms(), submission));
        (!is_repeat).then_some(error)
    }

    /// A command that waited goes on.
    pub(super) async fn released(&mut self, token: Token, release: Release) {
        let Some(Held { admitted, .. }) = self.held.remove(&token) else { return };
        match release {
            Release::Ready => self.dispatch(admitted).await,
            Release::Joined(outcome) => self.replay(&admitted.incoming, &outcome),
            Release::Failed(rejection) => self.finish(admitted, Err(CodedError::from(rejection).into())),
        }
    }

    /// Fails the commands that have waited long enough for others.
    pub(super) fn expire_held(&mut self, now: i64) {
        let is_over = |held: &Held| held.deadline.is_some_and(|deadline| deadline <= now);
        let expired: Vec<Token> =
            self.held.iter().filter(|(_, held)| is_over(held)).map(|(token, _)| *token).collect();
        for token in expired {
            let Some(Held { admitted, .. }) = self.held.remove(&token) else { continue };
            let missing = self.shared.submissions.missing(token).join(", ");
            let error = ErrorCode::TimedOut
                .with(format!("Command 'depends_on:{missing}' timed out after {DEPENDENCY_WAIT_MS}ms"));
            self.finish(admitted, Err(error.into()));
        }
    }

    async fn dispatch(&mut self, admitted: Admitted) {
        let spec = admitted.command.spec();
        if spec.mutating
            && let Some(submission) =
                admitted.submission.as_ref().filter(|submission| submission.key.is_some())
        {
            // On disk before it runs: after a crash it is known to have been under way.
            self.outcomes.push(in_flight_row(submission, now_ms(), &self.beginning(&admitted.command)));
            self.publish().await;
        }
        match spec.lane {
            Lane::Control | Lane::Read | Lane::Service => self.begin(admitted).await,
            Lane::Shell if self.shell.len() >= SHELL_MAX => {
                let error = ErrorCode::Busy
                    .with(format!("Too many shell commands wait for this session (max {SHELL_MAX})"));
                self.finish(admitted, Err(error.into()));
            }
            Lane::Shell => self.shell.push_back(admitted),
            Lane::Session if self.lane.len() >= LANE_MAX => {
                let error =
                    ErrorCode::Busy.with(format!("Too many commands wait for this session (max {LANE_MAX})"));
                self.finish(admitted, Err(error.into()));
            }
            Lane::Session => self.lane.push_back(admitted),
        }
    }

    /// Starts the commands of the lane, one after the other, and beside them the shell commands, one after the other
    /// too: an agent can only end all that run. Called between inputs only: a command that ends at once must not start
    /// the next from within itself.
    pub(super) async fn pump_lanes(&mut self) {
        while !self.finished && self.lane_busy.is_none() {
            if self.lane.front().is_some_and(|next| next.incoming.when_idle) && !self.is_agent_idle() {
                break;
            }
            let Some(admitted) = self.lane.pop_front() else { break };
            self.lane_busy = Some(admitted.token());
            self.begin(admitted).await;
        }
        while !self.finished && self.shell_busy.is_none() {
            let Some(admitted) = self.shell.pop_front() else { break };
            self.shell_busy = Some(admitted.token());
            self.begin(admitted).await;
        }
    }

    /// Whether the agent has nothing to do that a command which waits for its end would cut off. A prompt without an
    /// answer may become a turn, or be an extension's command that goes on.
    fn is_agent_idle(&self) -> bool {
        let has_prompt = || self.running.values().any(|running| is_input(&running.command));
        let has_deliveries = self.delivery.is_some() || self.has_deliveries();
        // A program in a terminal does what it does; nothing waits for its end.
        let is_working = self.session.is_working() && !self.is_run();
        !is_working && self.door.is_quiet() && !has_deliveries && !has_prompt()
    }

    async fn begin(&mut self, admitted: Admitted) {
        let version = self.session.memory().version;
        if let Some(expected) = admitted.incoming.if_session_version
            && expected != version
        {
            let error = ErrorCode::VersionMismatch
                .with(format!("Session version mismatch: expected {expected}, got {version}"));
            return self.finish(admitted, Err(error.into()));
        }
        self.execute(admitted).await;
    }

    /// The one end of a command: its outcome is stored, then its response sent, then whoever waited goes on.
    pub(super) fn finish(&mut self, admitted: Admitted, result: Result<Option<Arc<str>>, AgentFailure>) {
        // One whose time was over has its outcome, and no other.
        if !admitted.is_given_up {
            self.conclude(&admitted, result, false);
        }
    }

    /// Gives a command its outcome.
    pub(super) fn conclude(
        &mut self,
        admitted: &Admitted,
        result: Result<Option<Arc<str>>, AgentFailure>,
        timed_out: bool,
    ) {
        let now = now_ms();
        let token = admitted.token();
        let spec = admitted.command.spec();
        let created = spec.class == CommandClass::Create;
        if spec.mutating && result.is_ok() && !created {
            self.session.bump_version();
        }
        if result.is_err() {
            self.call_over(token);
        }
        if let Command::RunInput(params) = &admitted.command
            && admitted.is_input_taken
            && result.as_ref().is_err_and(|failure| !failure.lost)
        {
            // Nothing was written: it may be sent again under the same name.
            self.refused_inputs.push(params.input_id.clone());
        }
        let session_version = self.exists.then(|| self.session.memory().version);
        let indeterminate = spec.mutating && result.as_ref().is_err_and(|failure| failure.lost);
        let result = result.map_err(|failure| match failure.code {
            _ if indeterminate => ErrorCode::Indeterminate.with(failure.error),
            _ if timed_out => ErrorCode::TimedOut.with(failure.error),
            code => code.with(failure.error),
        });
        // A lost abort needs no words: what it should have ended is over.
        if indeterminate && self.exists && !is_abort(&admitted.command) {
            let beginning = self.beginning(&admitted.command);
            self.session.cut_off(now, &admitted.incoming.cmd, &beginning, &mut self.out);
        }
        let response = Response {
            origin: admitted.incoming.origin,
            id: &admitted.incoming.link_id,
            cmd: &admitted.incoming.cmd,
            result: result.as_ref().map(Option::as_deref),
            session_version,
            replayed: false,
            indeterminate,
            timed_out,
        };
        self.out.response(self.session.front(), now, &response);
        if let Some(submission) = &admitted.submission {
            let cmd = admitted.incoming.cmd.clone();
            let outcome = Outcome { cmd, result, session_version, indeterminate, timed_out };
            if spec.mutating || submission.key.is_some() {
                self.outcomes.push(outcome_row(submission, now, Some(&outcome)));
            }
            self.settled.push((token, outcome));
        }
        for busy in [&mut self.lane_busy, &mut self.shell_busy] {
            busy.take_if(|busy| *busy == token);
        }
    }

    /// An answer without an outcome: the command has none of its own.
    pub(super) fn confirm(&mut self, incoming: &Incoming) {
        self.answer_plainly(incoming, Ok(None));
    }

    /// An answer without an outcome: the command never entered.
    pub(super) fn refuse(&mut self, incoming: &Incoming, error: &CodedError) {
        self.answer_plainly(incoming, Err(error));
    }

    fn answer_plainly(&mut self, incoming: &Incoming, result: Result<Option<&str>, &CodedError>) {
        let response = Response {
            origin: incoming.origin,
            id: &incoming.link_id,
            cmd: &incoming.cmd,
            result,
            session_version: None,
            replayed: false,
            indeterminate: false,
            timed_out: false,
        };
        self.out.response(self.session.front(), now_ms(), &response);
    }

    fn replay(&mut self, incoming: &Incoming, outcome: &Outcome) {
        let response = Response {
            origin: incoming.origin,
            id: &incoming.link_id,
            cmd: &incoming.cmd,
            result: outcome.result.as_ref().map(Option::as_deref),
            session_version: outcome.session_version,
            replayed: true,
            indeterminate: outcome.indeterminate,
            timed_out: outcome.timed_out,
        };
        self.out.response(self.session.front(), now_ms(), &response);
    }

    /// The command's identity; `None` for one that nobody can name again.
    fn submission(&self, incoming: &Incoming) -> Option<Submission> {
        if incoming.client_command_id.is_none()
            && incoming.idempotency_key.is_none()
            && incoming.depends_on.is_empty()
        {
            return None;
        }
        let principal = &incoming.principal;
        let key = incoming.idempotency_key.as_ref().map(|key| KeyName {
            principal: principal.clone(),
            scope: self.session.identity().session_id.clone(),
            key: key.clone(),
        });
        let id = incoming.id_name();
        // Only a key is ever compared; hashing every read would cost more than answering it.
        let fingerprint = if key.is_some() { fingerprint(incoming.text()) } else { [0; 32] };
        Some(Submission {
            token: incoming.token,
            cmd: incoming.cmd.clone(),
            key,
            id,
            fingerprint,
            depends_on: incoming.depends_on.clone(),
        })
    }
}

fn check_envelope(incoming: &Incoming) -> Result<(), CodedError> {
    if let Some(key) = &incoming.idempotency_key {
        if key.trim().is_empty() {
            return Err(CodedError::invalid("idempotency_key: Must be a non-empty string if provided"));
        }
        if key.len() > NAME_BYTES_MAX {
            return Err(CodedError::invalid(format!(
                "idempotency_key: Too long (max {NAME_BYTES_MAX} chars)"
            )));
        }
    }
    if incoming.depends_on.len() > DEPENDENCIES_MAX {
        return Err(CodedError::invalid(format!(
            "depends_on: Too many dependencies (max {DEPENDENCIES_MAX})"
        )));
    }
    Ok(())
}
