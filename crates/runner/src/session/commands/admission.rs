//! Admission: validation, replay, dependencies, lane, version, in this order; and the end of every command.
//!
//! The outcome of a command that changes something or has a key is stored before its answer leaves. `refuse` is for
//! commands that never entered: their names stay free, and sending them again is safe.

use std::sync::Arc;

use qd_core::command_queue::{QueueInput, QueuedCommand};
use qd_core::event_writer::ResponseLine;
use qd_core::ledger::{CommandOutcome, LedgerVerdict, Submission, SubmissionToken};
use qd_core::session::QueueEdit;
use qd_wire::command_table::{BARRIER, CommandClass, Permission, TAKE_BACK};
use qd_wire::{CodedError, Command, ErrorCode};

use super::is_abort;
use crate::clock::now_ms;
use crate::driver::AgentResult;
use crate::session::IncomingCommand;
use crate::session::actor::SessionActor;
use crate::submissions::{WaitOwner, WaitResult, in_flight_row, outcome_row};

const DEPENDENCIES_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 256;
/// Room for the state of a usual session.
const STATE_BYTES: usize = 1024;

/// Behind a pointer, because it goes from hand to hand, and every hand, queue and map keeps room for it as long as the
/// session lives.
pub(crate) type AdmittedCommand = Box<AdmittedState>;

/// A command that passed admission.
pub(crate) struct AdmittedState {
    pub(crate) incoming: Box<IncomingCommand>,
    pub(crate) command: Command,
    pub(crate) submission: Option<Submission>,
    /// It repeats one in flight and never has an outcome of its own.
    pub(crate) is_repeat: bool,
    /// The change it makes to the agent's queue, once that has begun; of `queue.set` only.
    pub(crate) queue_edit: Option<QueueEdit>,
    /// It has been answered: its time was over.
    pub(crate) is_given_up: bool,
    /// The name of its input is stored; of `run.input` only.
    pub(crate) is_input_taken: bool,
}

impl AdmittedState {
    fn new(
        incoming: Box<IncomingCommand>,
        command: Command,
        submission: Option<Submission>,
    ) -> AdmittedCommand {
        Box::new(AdmittedState {
            incoming,
            command,
            submission,
            is_repeat: false,
            queue_edit: None,
            is_given_up: false,
            is_input_taken: false,
        })
    }

    pub(crate) fn token(&self) -> SubmissionToken {
        self.incoming.token
    }

    /// What the queue has to know of it.
    fn queued(&self) -> QueuedCommand {
        QueuedCommand {
            token: self.token(),
            lane: self.command.spec().lane,
            when_idle: self.incoming.when_idle,
        }
    }
}

impl SessionActor {
    /// Takes a command from the link.
    pub(crate) async fn admit(&mut self, incoming: Box<IncomingCommand>) {
        if incoming.cmd == TAKE_BACK.name {
            return self.cancel(&incoming);
        }
        // A barrier is a read whose answer nobody looks at: its dependencies and its version are what counts.
        let name = if incoming.cmd == BARRIER { "get_state" } else { &incoming.cmd };
        let command = match Command::parse(name, incoming.text()) {
            Ok(command) => command,
            Err(error) => return self.refuse(&incoming, &error.into()),
        };
        if let Err(error) = self.check_terminal(&incoming, &command).and_then(|()| check_envelope(&incoming))
        {
            return self.refuse(&incoming, &error);
        }
        if matches!(command, Command::GetState(_)) && is_unconditional(&incoming) {
            return self.answer_state(&incoming);
        }
        let submission = self.submission(&incoming);
        if let Err(error) = self.check_room_for(&command, submission.as_ref()) {
            return self.refuse(&incoming, &error);
        }
        let Some(submission) = submission else {
            return self.enqueue(AdmittedState::new(incoming, command, None)).await;
        };
        let sender = &self.sender;
        let owner = || WaitOwner::Session(sender.clone());
        let verdict = self.shared.submissions.submit(now_ms(), submission.clone(), owner);
        let admitted = AdmittedState::new(incoming, command, Some(submission));
        match verdict {
            LedgerVerdict::Run => self.enqueue(admitted).await,
            LedgerVerdict::Wait => self.hold(admitted, false),
            LedgerVerdict::Join => self.hold(admitted, true),
            LedgerVerdict::Replay(outcome) => self.replay(&admitted.incoming, &outcome),
            LedgerVerdict::Reject(rejection) => self.refuse(&admitted.incoming, &rejection.into()),
        }
    }

    /// What is typed into a terminal is run: that needs the right to run commands.
    fn check_terminal(&self, incoming: &IncomingCommand, command: &Command) -> Result<(), CodedError> {
        if command.spec().runs_program() && self.is_run() {
            return incoming.rights.check(&incoming.cmd, Permission::Shell);
        }
        Ok(())
    }

    /// The state, at once: it waits for nothing, so it needs no place in the queue.
    fn answer_state(&mut self, incoming: &IncomingCommand) {
        let state = self.state();
        let mut text = Vec::with_capacity(STATE_BYTES);
        let result = serde_json::to_writer(&mut text, &state)
            .map_err(|error| error.to_string())
            .and_then(|()| String::from_utf8(text).map_err(|error| error.to_string()))
            .map_err(|error| ErrorCode::Internal.with(error));
        let session_version = self.exists.then(|| self.session.memory().version);
        self.answer_plainly(incoming, result.as_deref().map(Some), session_version);
        self.shared.submissions.answered_at_once(incoming);
    }

    /// New work is refused while the spool is full. What ran before is still answered, and running turns go on.
    fn check_room_for(&self, command: &Command, submission: Option<&Submission>) -> Result<(), CodedError> {
        // Typing to a program makes no records to speak of, and may end what does.
        let is_typed = self.is_run() && command.spec().is_input();
        if !command.spec().is_new_work() || is_typed {
            return Ok(());
        }
        self.shared.check_spool_room().or_else(|error| {
            let is_repeat =
                submission.is_some_and(|submission| self.shared.submissions.is_repeat(now_ms(), submission));
            if is_repeat { Ok(()) } else { Err(error) }
        })
    }

    /// A command waits for those it depends on, or for the one it repeats.
    fn hold(&mut self, mut admitted: AdmittedCommand, is_repeat: bool) {
        admitted.is_repeat = is_repeat;
        let command = admitted.queued();
        self.commands.put(admitted);
        self.notify_queue(QueueInput::Hold { command, is_repeat });
    }

    /// Those a command waited for have ended.
    pub(crate) async fn released(&mut self, token: SubmissionToken, release: WaitResult) {
        if !self.commands.queue().is_held(token) {
            return;
        }
        let Some(admitted) = self.commands.take(token) else { return };
        match release {
            WaitResult::Ready => {
                self.store_in_flight(&admitted).await;
                self.commands.put(admitted);
                self.notify_queue(QueueInput::Release { token });
            }
            WaitResult::Joined(outcome) => {
                self.replay(&admitted.incoming, &outcome);
                self.notify_queue(QueueInput::Finished { token });
            }
            WaitResult::Failed(rejection) => self.finish(admitted, Err(CodedError::from(rejection).into())),
        }
    }

    /// Hands a command to the queue, which says when it is executed.
    async fn enqueue(&mut self, admitted: AdmittedCommand) {
        self.store_in_flight(&admitted).await;
        let command = admitted.queued();
        self.commands.put(admitted);
        self.notify_queue(QueueInput::Enqueue(command));
    }

    /// On disk before it runs: after a crash it is known to have been under way.
    async fn store_in_flight(&mut self, admitted: &AdmittedCommand) {
        let submission = admitted.submission.as_ref().filter(|submission| submission.key.is_some());
        if let Some(submission) = submission.filter(|_| admitted.command.spec().mutating) {
            self.publishing.outcomes.push(in_flight_row(
                submission,
                now_ms(),
                &self.command_preview(&admitted.command),
            ));
            self.publish().await;
        }
    }

    /// Carries out a command whose turn it is, if the session is what its sender thinks it is.
    pub(crate) async fn execute(&mut self, admitted: AdmittedCommand) {
        if let Err(error) = admitted.incoming.check_version(self.session.memory().version) {
            return self.finish(admitted, Err(error.into()));
        }
        self.execute_checked(admitted).await;
    }

    /// The one end of a command: its outcome is stored, then its response sent, then whoever waited goes on.
    pub(crate) fn finish(&mut self, admitted: AdmittedCommand, result: AgentResult<Option<Arc<str>>>) {
        self.end_input_of(&admitted, &result);
        // One whose time was over has its outcome, and no other.
        if !admitted.is_given_up {
            self.conclude(&admitted, result, false);
        }
        self.notify_queue(QueueInput::Finished { token: admitted.token() });
    }

    /// Settles or frees the name of an input by what became of it.
    pub(crate) fn end_input_of(
        &mut self,
        admitted: &AdmittedCommand,
        result: &AgentResult<Option<Arc<str>>>,
    ) {
        if let Command::RunInput(params) = &admitted.command
            && admitted.is_input_taken
        {
            self.publishing.end_input(&params.input_id, result);
        }
    }

    /// Gives a command its outcome.
    pub(crate) fn conclude(
        &mut self,
        admitted: &AdmittedCommand,
        result: AgentResult<Option<Arc<str>>>,
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
            self.end_provider_call(token);
        }
        let session_version = self.exists.then(|| self.session.memory().version);
        let can_be_lost = spec.mutating || spec.is_input();
        let indeterminate = can_be_lost && result.as_ref().is_err_and(|failure| failure.lost);
        let result = result.map_err(|failure| match failure.code {
            _ if indeterminate => ErrorCode::Indeterminate.with(failure.error),
            _ if timed_out => ErrorCode::TimedOut.with(failure.error),
            code => code.with(failure.error),
        });
        // A lost abort needs no words: what it should have ended is over.
        if indeterminate && self.exists && !is_abort(&admitted.command) {
            let command_preview = self.command_preview(&admitted.command);
            self.session.cut_off(now, &admitted.incoming.cmd, &command_preview, &mut self.out);
        }
        let answer = result.as_ref().map(Option::as_deref);
        let response =
            ResponseLine { session_version, indeterminate, timed_out, ..admitted.incoming.response(answer) };
        self.out.response(self.session.front(), now, &response);
        if let Some(submission) = &admitted.submission {
            let cmd = admitted.incoming.cmd.clone();
            let outcome = CommandOutcome { cmd, result, session_version, indeterminate, timed_out };
            if spec.mutating || submission.key.is_some() {
                self.publishing.outcomes.push(outcome_row(submission, now, Some(&outcome)));
            }
            self.publishing.settled.push((token, outcome));
        }
    }

    /// An answer without an outcome: the command has none of its own.
    pub(crate) fn confirm(&mut self, incoming: &IncomingCommand) {
        self.answer_plainly(incoming, Ok(None), None);
    }

    /// An answer without an outcome: the command never entered.
    pub(crate) fn refuse(&mut self, incoming: &IncomingCommand, error: &CodedError) {
        self.answer_plainly(incoming, Err(error), None);
    }

    fn answer_plainly(
        &mut self,
        incoming: &IncomingCommand,
        result: Result<Option<&str>, &CodedError>,
        session_version: Option<u64>,
    ) {
        let response = ResponseLine { session_version, ..incoming.response(result) };
        self.out.response(self.session.front(), now_ms(), &response);
    }

    fn replay(&mut self, incoming: &IncomingCommand, outcome: &CommandOutcome) {
        self.out.response(self.session.front(), now_ms(), &incoming.replay(outcome));
    }

    /// The command's identity; `None` for one that nobody can name again.
    fn submission(&self, incoming: &IncomingCommand) -> Option<Submission> {
        if incoming.client_command_id.is_none()
            && incoming.idempotency_key.is_none()
            && incoming.depends_on.is_empty()
        {
            return None;
        }
        Some(incoming.submission(&self.session.identity().session_id))
    }
}

/// Whether nothing in its head says when, or whether, it may be carried out.
fn is_unconditional(incoming: &IncomingCommand) -> bool {
    incoming.idempotency_key.is_none()
        && incoming.depends_on.is_empty()
        && incoming.if_session_version.is_none()
        && !incoming.when_idle
        && incoming.cmd != BARRIER
}

fn check_envelope(incoming: &IncomingCommand) -> Result<(), CodedError> {
    if let Some(key) = &incoming.idempotency_key {
        if key.trim().is_empty() {
            refuse!(InvalidRequest, "idempotency_key: Must be a non-empty string if provided");
        }
        if key.len() > NAME_BYTES_MAX {
            refuse!(InvalidRequest, "idempotency_key: Too long (max {NAME_BYTES_MAX} chars)");
        }
    }
    if incoming.depends_on.len() > DEPENDENCIES_MAX {
        refuse!(InvalidRequest, "depends_on: Too many dependencies (max {DEPENDENCIES_MAX})");
    }
    Ok(())
}
