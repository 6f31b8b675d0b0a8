//! One call from its command to its answer: where it works, its record, the gate, the work, its record, the answer.

mod audit;
mod cancellation;
pub(crate) mod directory;
pub(crate) mod dispatch;
mod error;
mod gate;
mod idempotency;
pub(crate) mod limits;
pub(crate) mod progress;
pub(crate) mod running_calls;
mod upload_approval;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use qd_core::event_writer::ResponseLine;
use qd_core::ledger::{CommandOutcome, Submission};
use qd_core::session::Allowance;
use qd_wire::command::Command;
use qd_wire::event::Event;
use qd_wire::run::PermissionDetails;
use qd_wire::service::ServiceScope;
use qd_wire::{CodedError, ErrorCode, InputRequest};
use tokio::sync::{mpsc, oneshot};

use self::audit::{is_recorded, record, recorded_args, recorded_error, tool_name};
pub(crate) use self::cancellation::Cancellation;
use self::directory::CallDirectory;
pub(crate) use self::dispatch::{CallOutput, CallResult};
pub(crate) use self::error::{ServiceError, ServiceResult};
use self::gate::{AskWish, GateQuestion, GateRequest, is_gated, must_ask, op_tool, question};
use self::idempotency::CallAdmission;
use self::limits::CallKind;
use self::running_calls::CallRegistration;
use self::upload_approval::{ApprovalStage, FrozenUpload};
use super::fs::ApprovedUpload;
use crate::clock::monotonic_now;
use crate::runner::{respond, respond_with};
use crate::session::{GateAnswer, IncomingCommand, RunnerContext, ServiceInput, SessionInput};
use crate::text::random_id;

/// Bytes of the name a sender gives a call.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Bytes of the word for how a call came.
const ACTOR_BYTES_MAX: usize = 64;

/// Where a call comes from that outlived its asker; no connection has this number.
const NOBODY: u64 = 0;

/// One call.
pub(crate) struct Call {
    pub(crate) shared: Arc<RunnerContext>,
    pub(crate) incoming: IncomingCommand,
    pub(crate) command: Arc<Command>,
    scope: ServiceScope,
    session: Option<TargetSession>,
    request_id: String,
    actor: String,
    began: Instant,
    /// What a person has approved before the runner was restarted.
    approved: Option<ApprovedUpload>,
}

/// What the gate says.
enum GateOutcome {
    /// It may be done; what it is about is kept as it is until then.
    Go(Option<FrozenUpload>),
    /// There was nothing to do.
    Answered(CallOutput),
}

/// The session a call is for.
struct TargetSession {
    session_id: String,
    sender: mpsc::Sender<SessionInput>,
}

impl Call {
    pub(crate) fn new(
        shared: &Arc<RunnerContext>,
        session_id: Option<String>,
        incoming: IncomingCommand,
        command: Command,
    ) -> Result<Call, Box<(IncomingCommand, CodedError)>> {
        let session = match session_id.map(|id| find(shared, id)).transpose() {
            Ok(session) => session,
            Err(error) => return Err(Box::new((incoming, error))),
        };
        // The fields that all service commands have, beside their own.
        // Wrong types in the command itself were refused when it was parsed; here the fields are simply absent then.
        let scope: ServiceScope = serde_json::from_str(incoming.text()).unwrap_or_default();
        if let Err(error) = check_scope(&scope) {
            return Err(Box::new((incoming, error)));
        }
        let request_id = scope.request_id.clone().unwrap_or_else(|| random_id("c"));
        let actor = scope.actor.clone().unwrap_or_else(|| "system".to_owned());
        let (shared, command, began) = (Arc::clone(shared), Arc::new(command), monotonic_now());
        Ok(Call { shared, incoming, command, scope, session, request_id, actor, began, approved: None })
    }

    /// A call that waited for a person when the runner stopped, as its question has kept it.
    pub(crate) fn resumed(
        shared: &Arc<RunnerContext>,
        session_id: &str,
        request_id: &str,
        details: PermissionDetails,
    ) -> Result<Call, CodedError> {
        let text = details.command.unwrap_or_default();
        #[derive(serde::Deserialize)]
        struct NamedCommand {
            cmd: String,
        }
        let NamedCommand { cmd } =
            serde_json::from_str(&text).map_err(|error| CodedError::invalid(error.to_string()))?;
        let command = Command::parse(&cmd, &text)?;
        // The stored text decides what is done now. It must be something that a person could have been asked about.
        if !is_gated(&command) {
            refuse!(Unsupported, "'{cmd}' needs no approval");
        }
        let incoming = IncomingCommand {
            token: shared.submissions.token(),
            origin: NOBODY,
            link_id: request_id.to_owned(),
            cmd,
            line: Bytes::from(text),
            principal: details.principal.unwrap_or_default(),
            ..IncomingCommand::default()
        };
        let session_id = Some(session_id.to_owned());
        let mut call = Call::new(shared, session_id, incoming, command).map_err(|refused| refused.1)?;
        call.request_id = request_id.to_owned();
        call.actor = details.actor.unwrap_or(call.actor);
        if matches!(*call.command, Command::FsUpload(_)) {
            // Its pieces are gone, and what has come under its name since may be something else.
            let sha256 = details.op_args.as_ref().and_then(|args| args["sha256"].as_str());
            call.approved =
                Some(ApprovedUpload { ticket: None, sha256: sha256.unwrap_or_default().to_owned() });
        }
        Ok(call)
    }

    pub(crate) async fn run(self, registration: CallRegistration) {
        // First of all: a repeat must neither be recorded nor ask a person again.
        let submission = match idempotency::admit(&self.shared, self.session_id(), &self.incoming).await {
            CallAdmission::Go(submission) => submission,
            CallAdmission::Replay(outcome) => return self.replay(&outcome),
            CallAdmission::Refused(error) => return self.respond(&Err(ServiceError::Other(error))),
        };
        let result = self.run_admitted(&registration, submission.as_deref()).await;
        if let Some(submission) = &submission {
            // Stored before the answer, so that nobody hears of an outcome that a crash could take back.
            idempotency::finish(&self.shared, submission, &result).await;
        }
        self.respond(&result);
    }

    /// A call whose question has been answered, or never will be.
    pub(crate) async fn run_decided(self, answer: GateAnswer) {
        let worked = self.decided(answer).await;
        self.record_result(&worked).await;
    }

    /// The asker of the first life is gone, so there is no answer to send; the session's record tells what came of it.
    async fn decided(&self, answer: GateAnswer) -> CallResult {
        require_approval(answer)?;
        let registered = self.shared.services.calls.register(&self.shared, &self.incoming, &self.command);
        let registration = registered?;
        let directory = self.directory().await?;
        self.work(&registration, &directory, None, self.approved.clone()).await
    }

    async fn run_admitted(
        &self,
        registration: &CallRegistration,
        submission: Option<&Submission>,
    ) -> ServiceResult<Arc<str>> {
        let directory = self.directory().await?;
        // Before the gate, so that a call nobody approved is on record too.
        self.record_call().await?;
        let worked = match self.pass(registration, &directory).await {
            Ok(GateOutcome::Go(frozen)) => {
                let approved = frozen.as_ref().map(FrozenUpload::approved);
                self.work(registration, &directory, submission, approved).await
            }
            Ok(GateOutcome::Answered(done)) => Ok(done),
            Err(error) => Err(error),
        };
        self.record_result(&worked).await;
        worked.map(|done| done.data)
    }

    async fn directory(&self) -> ServiceResult<CallDirectory> {
        let Some(TargetSession { session_id, sender }) = &self.session else {
            if dispatch::needs_directory(&self.command) {
                return directory::without_session(&self.shared, &self.scope, self.incoming.rights).await;
            }
            return Ok(CallDirectory { path: "/".into(), facts: None });
        };
        // Before anything is done: a call that could not be recorded must not run.
        self.shared.check_spool_room()?;
        let directory = directory::in_session(sender, session_id, &self.scope).await?;
        let version = directory.facts.as_ref().map(|facts| facts.version).unwrap_or_default();
        self.incoming.check_version(version)?;
        Ok(directory)
    }

    /// Returns when the call may be done.
    async fn pass(
        &self,
        registration: &CallRegistration,
        directory: &CallDirectory,
    ) -> ServiceResult<GateOutcome> {
        // Also the pieces of an upload before the last, about which a person is asked.
        let upload = match &*self.command {
            Command::FsUpload(params) if params.abort != Some(true) => Some(params),
            _ => None,
        };
        if !is_gated(&self.command) && upload.is_none() {
            return Ok(GateOutcome::Go(None));
        }
        let config = &self.shared.config.services;
        let wanted = Allowance {
            principal: self.incoming.principal.clone(),
            actor: self.actor.clone(),
            op_tool: op_tool(&self.incoming.cmd),
        };
        let ask = AskWish::of(&self.scope);
        let applicant = GateRequest { wanted: &wanted, rights: self.incoming.rights, ask };
        if !must_ask(config, directory.facts.as_ref(), applicant)? {
            return Ok(GateOutcome::Go(None));
        }
        if let Some(params) = upload {
            self.shared.services.uploads.check_unapproved(params, &self.incoming.principal)?;
        }
        if !is_gated(&self.command) {
            return Ok(GateOutcome::Go(None));
        }
        // Without a session there was nobody to ask, which is an error above.
        let Some(TargetSession { sender, .. }) = &self.session else { return Err(ServiceError::Denied) };
        let frozen = match self.freeze(registration, directory).await? {
            Some(ApprovalStage::Answered(done)) => return Ok(GateOutcome::Answered(done)),
            Some(ApprovalStage::Frozen(frozen)) => Some(frozen),
            None => None,
        };
        let asked = GateQuestion {
            request_id: &self.request_id,
            cmd: &self.incoming.cmd,
            command: &self.command,
            text: self.incoming.text(),
            principal: &self.incoming.principal,
            actor: &self.actor,
            staged: frozen.as_ref().map(|frozen| &frozen.staged),
        };
        let request = question(config, &asked)?;
        self.ask(sender, registration, request).await?;
        Ok(GateOutcome::Go(frozen))
    }

    /// The last piece of an upload is taken before a person is asked, who decides about the whole.
    async fn freeze(
        &self,
        registration: &CallRegistration,
        directory: &CallDirectory,
    ) -> ServiceResult<Option<ApprovalStage>> {
        let Command::FsUpload(params) = &*self.command else { return Ok(None) };
        let limits = &self.shared.services.limits;
        let permit =
            limits.take(CallKind::of(&self.command), self.session_id(), registration.cancel()).await?;
        upload_approval::freeze(self, params, &directory.path, permit).await.map(Some)
    }

    /// Returns when a person has said yes.
    async fn ask(
        &self,
        sender: &mpsc::Sender<SessionInput>,
        registration: &CallRegistration,
        request: InputRequest,
    ) -> ServiceResult<()> {
        let request = Box::new(request);
        let (answer, answered) = oneshot::channel();
        let input = SessionInput::Service(ServiceInput::Ask { request, answer });
        // A connection that is lost now does not cancel the call: a person is being asked, and may be at another
        // device.
        registration.set_waiting(true);
        let is_asked = sender.send(input).await.is_ok();
        let answer = tokio::select! {
            answer = answered => answer.ok().filter(|_| is_asked),
            () = registration.cancel().cancelled() => {
                let request_id = self.request_id.clone();
                let input = SessionInput::Service(ServiceInput::Withdraw { request_id });
                // A session that is gone has no question.
                let _ = sender.send(input).await;
                return Err(ServiceError::Cancelled);
            }
        };
        registration.set_waiting(false);
        match answer {
            Some(answer) => require_approval(answer),
            None => refuse!(
                ShuttingDown,
                "The runner stopped before anybody decided; it is done when it is approved after the restart"
            ),
        }
    }

    async fn work(
        &self,
        registration: &CallRegistration,
        directory: &CallDirectory,
        submission: Option<&Submission>,
        approved: Option<ApprovedUpload>,
    ) -> CallResult {
        // It may have been cancelled while a person was deciding.
        registration.cancel().check()?;
        let limits = &self.shared.services.limits;
        let permit =
            limits.take(CallKind::of(&self.command), self.session_id(), registration.cancel()).await?;
        // Only now, with a place to work in: a call that is cancelled while it waits was never begun, and after a crash
        // it must not count as one that may have run.
        if let Some(submission) = submission {
            idempotency::store_in_flight(&self.shared, submission, &self.incoming.cmd).await?;
        }
        dispatch::work(self, &directory.path, registration.cancel(), permit, approved).await
    }

    async fn record_call(&self) -> ServiceResult<()> {
        let tool = tool_name(&self.incoming.cmd);
        let Some(TargetSession { session_id, sender }) = self.recorder() else {
            // There is no session to record it in; the log is what is left.
            if self.session.is_none() {
                let (user, actor) = (&self.incoming.principal, &self.actor);
                tracing::info!(
                    tool,
                    request_id = self.request_id,
                    user,
                    actor,
                    root = self.scope.root,
                    "tool.call"
                );
            }
            return Ok(());
        };
        let event = Event::ServiceCall {
            request_id: self.request_id.clone(),
            tool,
            actor: self.actor.clone(),
            args: recorded_args(&self.command, &self.scope),
            user_id: Some(self.incoming.principal.clone()),
        };
        if record(sender, event).await {
            return Ok(());
        }
        // What cannot be recorded is not done.
        let error = format!("Session '{session_id}' cannot record the call now. Please retry later.");
        Err(ErrorCode::Busy.with(error).into())
    }

    async fn record_result(&self, worked: &CallResult) {
        let tool = tool_name(&self.incoming.cmd);
        let duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let error = match worked {
            Ok(done) => done.error.clone(),
            Err(error) => Some(error.to_string()),
        };
        let error = error.map(|error| recorded_error(&error));
        let Some(TargetSession { session_id, sender }) = self.recorder() else {
            if self.session.is_none() {
                let (user, request_id) = (&self.incoming.principal, &self.request_id);
                tracing::info!(tool, request_id, user, duration_ms, error, "tool.result");
            }
            return;
        };
        let event = Event::ServiceResult {
            request_id: self.request_id.clone(),
            tool,
            actor: self.actor.clone(),
            ok: error.is_none(),
            duration_ms,
            result: worked.as_ref().ok().map(|done| done.summary.clone()),
            error,
            user_id: Some(self.incoming.principal.clone()),
        };
        if !record(sender, event).await {
            tracing::error!(
                session_id,
                request_id = self.request_id,
                "the result of a call cannot be recorded"
            );
        }
    }

    fn recorder(&self) -> Option<&TargetSession> {
        self.session.as_ref().filter(|_| is_recorded(&self.command))
    }

    pub(crate) fn session_id(&self) -> &str {
        self.session.as_ref().map(|target| &*target.session_id).unwrap_or_default()
    }

    fn respond(&self, result: &ServiceResult<Arc<str>>) {
        let coded = result.clone().map_err(CodedError::from);
        let result_text = coded.as_ref().map(|data| Some(&**data));
        if matches!(result, Err(ServiceError::Timeout)) {
            let response = ResponseLine { timed_out: true, ..self.incoming.response(result_text) };
            return respond_with(&self.shared, self.session_id(), &response);
        }
        respond(&self.shared, self.session_id(), &self.incoming, result_text);
    }

    fn replay(&self, outcome: &CommandOutcome) {
        respond_with(&self.shared, self.session_id(), &self.incoming.replay(outcome));
    }
}

/// What an answer means for the call that waited for it.
fn require_approval(answer: GateAnswer) -> ServiceResult<()> {
    match answer {
        GateAnswer::Approved => Ok(()),
        GateAnswer::Denied(None) => Err(ServiceError::Denied),
        GateAnswer::Denied(Some(reason)) => Err(ServiceError::DeniedBecause(reason)),
        GateAnswer::TimedOut => Err(ServiceError::Timeout),
        // Told as a denial, since for the call it is one: it was not done and will not be.
        GateAnswer::Withdrawn => {
            Err(ServiceError::DeniedBecause("the session was closed before anybody decided".to_owned()))
        }
        GateAnswer::Refused(error) => Err(ServiceError::Other(error)),
    }
}

fn find(shared: &RunnerContext, session_id: String) -> Result<TargetSession, CodedError> {
    match shared.hub_delivery.mailboxes.lock().get(&session_id).cloned() {
        Some(sender) => Ok(TargetSession { session_id, sender }),
        None => Err(CodedError::session_not_found(&session_id)),
    }
}

fn check_scope(scope: &ServiceScope) -> Result<(), CodedError> {
    let is_bad = |text: &Option<String>, bytes_max: usize| {
        text.as_ref().is_some_and(|text| text.is_empty() || text.len() > bytes_max)
    };
    if is_bad(&scope.request_id, REQUEST_ID_BYTES_MAX) {
        refuse!(InvalidRequest, "request_id: Must have 1 to {REQUEST_ID_BYTES_MAX} bytes");
    }
    if is_bad(&scope.actor, ACTOR_BYTES_MAX) {
        refuse!(InvalidRequest, "actor: Must have 1 to {ACTOR_BYTES_MAX} bytes");
    }
    Ok(())
}
