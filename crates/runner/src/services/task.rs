//! One call from its command to its answer: where it works, its record, the gate, the work, its record, the answer.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use qd_core::ids::base36;
use qd_core::ledger::{Outcome, Submission};
use qd_wire::command::Command;
use qd_wire::event::Event;
use qd_wire::people::Role;
use qd_wire::run::PermissionDetails;
use qd_wire::service::ServiceScope;
use qd_wire::{CodedError, ErrorCode, InputRequest};
use tokio::sync::{mpsc, oneshot};

use super::audit::{is_recorded, record, recorded_args, recorded_error, tool_name};
use super::call::ServiceError;
use super::calls::Entry;
use super::fs::Approved;
use super::gate::{Applicant, Question, is_gated, must_ask, op_tool, question};
use super::limits::Kind;
use super::once::{self, Admission};
use super::place::{self, Ground};
use super::staging::{self, Frozen, Kept};
use super::work::{self, Done};
use crate::clock::now_ms;
use crate::process::clock::now;
use crate::runner::{Answer, respond, respond_with};
use crate::session::{GateAnswer, Incoming, ServiceInput, SessionInput, Shared};

/// Bytes of the name a sender gives a call.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Bytes of the word for how a call came.
const ACTOR_BYTES_MAX: usize = 64;

/// Where a call comes from that outlived its asker; no connection has this number.
const NOBODY: u64 = 0;

/// One call.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    pub(super) incoming: Incoming,
    pub(super) command: Arc<Command>,
    scope: ServiceScope,
    role: Option<Role>,
    session: Option<Target>,
    request_id: String,
    actor: String,
    began: Instant,
    /// What a person has approved before the runner was restarted.
    approved: Option<Approved>,
}

/// What the gate says.
enum Passed {
    /// It may be done; what it is about is kept as it is until then.
    Go(Option<Frozen>),
    /// There was nothing to do.
    Answered(Done),
}

/// The session a call is for.
struct Target {
    session_id: String,
    sender: mpsc::Sender<SessionInput>,
}

impl Call {
    pub(super) fn new(
        shared: &Arc<Shared>,
        session_id: Option<String>,
        incoming: Incoming,
        command: Command,
        role: Option<Role>,
    ) -> Result<Call, Box<(Incoming, CodedError)>> {
        let session = match session_id.map(|id| find(shared, id)).transpose() {
            Ok(session) => session,
            Err(error) => return Err(Box::new((incoming, error))),
        };
        let scope = work::scope_of(&command).cloned().unwrap_or_default();
        if let Err(error) = check_scope(&scope) {
            return Err(Box::new((incoming, error)));
        }
        let request_id = scope.request_id.clone().unwrap_or_else(|| mint_request_id(&incoming));
        let actor = scope.actor.clone().unwrap_or_else(|| "system".to_owned());
        let (shared, command, began) = (Arc::clone(shared), Arc::new(command), now());
        Ok(Call { shared, incoming, command, scope, role, session, request_id, actor, began, approved: None })
    }

    /// A call that waited for a person when the runner stopped, as its question has kept it.
    pub(super) fn resumed(
        shared: &Arc<Shared>,
        session_id: &str,
        request_id: &str,
        details: PermissionDetails,
    ) -> Result<Call, CodedError> {
        let text = details.command.unwrap_or_default();
        #[derive(serde::Deserialize)]
        struct Named {
            cmd: String,
        }
        let Named { cmd } =
            serde_json::from_str(&text).map_err(|error| CodedError::invalid(error.to_string()))?;
        let command = Command::parse(&cmd, &text)?;
        if !is_gated(&command) {
            return Err(ErrorCode::Unsupported.with(format!("'{cmd}' needs no approval")));
        }
        let incoming = Incoming {
            token: shared.submissions.token(),
            is_local: false,
            origin: NOBODY,
            link_id: request_id.to_owned(),
            cmd,
            line: Bytes::from(text),
            principal: details.principal.unwrap_or_default(),
            user_role: None,
            connection: String::new(),
            client_command_id: None,
            idempotency_key: None,
            depends_on: Vec::new(),
            if_session_version: None,
            native: false,
            when_idle: false,
        };
        let session_id = Some(session_id.to_owned());
        let mut call = Call::new(shared, session_id, incoming, command, None).map_err(|refused| refused.1)?;
        call.request_id = request_id.to_owned();
        call.actor = details.actor.unwrap_or(call.actor);
        if matches!(*call.command, Command::FsUpload(_)) {
            // Its pieces are gone, and what has come under its name since may be something else.
            let sha256 = details.op_args.as_ref().and_then(|args| args["sha256"].as_str());
            call.approved = Some(Approved { ticket: None, sha256: sha256.unwrap_or_default().to_owned() });
        }
        Ok(call)
    }

    pub(super) async fn run(self, entry: Entry) {
        let submission = match once::admit(&self.shared, self.session_id(), &self.incoming).await {
            Admission::Go(submission) => submission,
            Admission::Replay(outcome) => return self.replay(&outcome),
            Admission::Refused(error) => return self.respond(&Err(ServiceError::Other(error))),
        };
        let result = self.go(&entry, submission.as_deref()).await;
        if let Some(submission) = &submission {
            once::finish(&self.shared, submission, &result).await;
        }
        self.respond(&result);
    }

    /// A call whose question has been answered, or never will be.
    pub(super) async fn run_decided(self, answer: GateAnswer) {
        let worked = self.decided(answer).await;
        self.record_result(&worked).await;
    }

    async fn decided(&self, answer: GateAnswer) -> Result<Done, ServiceError> {
        passed(answer)?;
        let begun = self.shared.services.calls.begin(&self.shared, &self.incoming, &self.command);
        let entry = begun?;
        let ground = self.ground().await?;
        self.work(&entry, &ground, None, self.approved.clone()).await
    }

    async fn go(&self, entry: &Entry, submission: Option<&Submission>) -> Result<Arc<str>, ServiceError> {
        let ground = self.ground().await?;
        self.record_call().await?;
        let worked = match self.pass(entry, &ground).await {
            Ok(Passed::Go(frozen)) => {
                let approved = frozen.as_ref().map(Frozen::approved);
                self.work(entry, &ground, submission, approved).await
            }
            Ok(Passed::Answered(done)) => Ok(done),
            Err(error) => Err(error),
        };
        self.record_result(&worked).await;
        worked.map(|done| done.data)
    }

    async fn ground(&self) -> Result<Ground, ServiceError> {
        let Some(Target { session_id, sender }) = &self.session else {
            if work::needs_directory(&self.command) {
                return place::without_session(&self.shared, &self.scope, self.role).await;
            }
            return Ok(Ground { path: "/".into(), facts: None });
        };
        self.shared.check_spool_room()?;
        let ground = place::in_session(sender, session_id, &self.scope).await?;
        let version = ground.facts.as_ref().map(|facts| facts.version).unwrap_or_default();
        match self.incoming.if_session_version {
            Some(expected) if expected != version => {
                let error = format!("Session version mismatch: expected {expected}, got {version}");
                Err(ErrorCode::VersionMismatch.with(error).into())
            }
            _ => Ok(ground),
        }
    }

    /// Returns when the call may be done.
    async fn pass(&self, entry: &Entry, ground: &Ground) -> Result<Passed, ServiceError> {
        if !is_gated(&self.command) {
            return Ok(Passed::Go(None));
        }
        let config = &self.shared.config.services;
        let op_tool = op_tool(&self.incoming.cmd);
        let ask = self.scope.ask == Some(true);
        let applicant = Applicant { op_tool: &op_tool, role: self.role, ask };
        if !must_ask(config, ground.facts.as_ref(), applicant)? {
            return Ok(Passed::Go(None));
        }
        // Without a session there was nobody to ask, which is an error above.
        let Some(Target { sender, .. }) = &self.session else { return Err(ServiceError::Denied) };
        let frozen = match self.freeze(entry, ground).await? {
            Some(Kept::Answered(done)) => return Ok(Passed::Answered(done)),
            Some(Kept::Frozen(frozen)) => Some(frozen),
            None => None,
        };
        let asked = Question {
            request_id: &self.request_id,
            cmd: &self.incoming.cmd,
            command: &self.command,
            text: self.incoming.text(),
            principal: &self.incoming.principal,
            actor: &self.actor,
            staged: frozen.as_ref().map(|frozen| &frozen.staged),
        };
        let request = question(config, &asked)?;
        self.ask(sender, entry, request).await?;
        Ok(Passed::Go(frozen))
    }

    /// The last piece of an upload is taken before a person is asked, who decides about the whole.
    async fn freeze(&self, entry: &Entry, ground: &Ground) -> Result<Option<Kept>, ServiceError> {
        let Command::FsUpload(params) = &*self.command else { return Ok(None) };
        let limits = &self.shared.services.limits;
        let place = limits.take(Kind::of(&self.command), self.session_id(), entry.cancel()).await?;
        staging::freeze(self, params, &ground.path, place).await.map(Some)
    }

    /// Returns when a person has said yes.
    async fn ask(
        &self,
        sender: &mpsc::Sender<SessionInput>,
        entry: &Entry,
        request: InputRequest,
    ) -> Result<(), ServiceError> {
        let request = Box::new(request);
        let (answer, answered) = oneshot::channel();
        let input = SessionInput::Service(ServiceInput::Ask { request, answer });
        entry.set_waiting(true);
        let is_asked = sender.send(input).await.is_ok();
        let answer = tokio::select! {
            answer = answered => answer.ok().filter(|_| is_asked),
            () = entry.cancel().cancelled() => {
                let request_id = self.request_id.clone();
                let input = SessionInput::Service(ServiceInput::Withdraw { request_id });
                // A session that is gone has no question.
                let _ = sender.send(input).await;
                return Err(ServiceError::Cancelled);
            }
        };
        entry.set_waiting(false);
        match answer {
            Some(answer) => passed(answer),
            None => Err(ServiceError::coded(
                ErrorCode::ShuttingDown,
                "The runner stopped before anybody decided; it is done when it is approved after the restart",
            )),
        }
    }

    async fn work(
        &self,
        entry: &Entry,
        ground: &Ground,
        submission: Option<&Submission>,
        approved: Option<Approved>,
    ) -> Result<Done, ServiceError> {
        entry.cancel().check()?;
        let limits = &self.shared.services.limits;
        let place = limits.take(Kind::of(&self.command), self.session_id(), entry.cancel()).await?;
        if let Some(submission) = submission {
            once::about_to_run(&self.shared, submission, &self.incoming.cmd).await?;
        }
        work::work(self, &ground.path, entry.cancel(), place, approved).await
    }

    async fn record_call(&self) -> Result<(), ServiceError> {
        let tool = tool_name(&self.incoming.cmd);
        let Some(Target { session_id, sender }) = self.recorder() else {
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

    async fn record_result(&self, worked: &Result<Done, ServiceError>) {
        let tool = tool_name(&self.incoming.cmd);
        let duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let error = match worked {
            Ok(done) => done.error.clone(),
            Err(error) => Some(error.to_string()),
        };
        let error = error.map(|error| recorded_error(&error));
        let Some(Target { session_id, sender }) = self.recorder() else {
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

    fn recorder(&self) -> Option<&Target> {
        self.session.as_ref().filter(|_| is_recorded(&self.command))
    }

    pub(super) fn session_id(&self) -> &str {
        self.session.as_ref().map(|target| &*target.session_id).unwrap_or_default()
    }

    fn respond(&self, result: &Result<Arc<str>, ServiceError>) {
        let coded = result.clone().map_err(CodedError::from);
        let result_text = coded.as_ref().map(|data| Some(&**data));
        if matches!(result, Err(ServiceError::Timeout)) {
            let answer = Answer { timed_out: true, ..Answer::new(result_text) };
            return respond_with(&self.shared, self.session_id(), &self.incoming, &answer);
        }
        respond(&self.shared, self.session_id(), &self.incoming, result_text);
    }

    fn replay(&self, outcome: &Outcome) {
        let answer = Answer {
            result: outcome.result.as_ref().map(Option::as_deref),
            replayed: true,
            indeterminate: outcome.indeterminate,
            timed_out: outcome.timed_out,
        };
        respond_with(&self.shared, self.session_id(), &self.incoming, &answer);
    }
}

/// What an answer means for the call that waited for it.
fn passed(answer: GateAnswer) -> Result<(), ServiceError> {
    match answer {
        GateAnswer::Approved => Ok(()),
        GateAnswer::Denied(None) => Err(ServiceError::Denied),
        GateAnswer::Denied(Some(reason)) => Err(ServiceError::DeniedBecause(reason)),
        GateAnswer::TimedOut => Err(ServiceError::Timeout),
        GateAnswer::Withdrawn => {
            Err(ServiceError::DeniedBecause("the session was closed before anybody decided".to_owned()))
        }
        GateAnswer::Refused(error) => Err(ServiceError::Other(error)),
    }
}

fn find(shared: &Shared, session_id: String) -> Result<Target, CodedError> {
    match shared.outlet.directory().get(&session_id).cloned() {
        Some(sender) => Ok(Target { session_id, sender }),
        None => Err(CodedError::session_not_found(&session_id)),
    }
}

fn check_scope(scope: &ServiceScope) -> Result<(), CodedError> {
    let is_bad = |text: &Option<String>, bytes_max: usize| {
        text.as_ref().is_some_and(|text| text.is_empty() || text.len() > bytes_max)
    };
    if is_bad(&scope.request_id, REQUEST_ID_BYTES_MAX) {
        return Err(CodedError::invalid(format!("request_id: Must have 1 to {REQUEST_ID_BYTES_MAX} bytes")));
    }
    if is_bad(&scope.actor, ACTOR_BYTES_MAX) {
        return Err(CodedError::invalid(format!("actor: Must have 1 to {ACTOR_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// A new name for a call; also that of its question.
fn mint_request_id(incoming: &Incoming) -> String {
    let mut seed = [0u8; 8];
    // Without randomness the token still makes the id unique within this run.
    if getrandom::fill(&mut seed).is_err() {
        seed = (now_ms().unsigned_abs() ^ incoming.token).to_le_bytes();
    }
    format!("c{}", base36(u64::from_le_bytes(seed)))
}
