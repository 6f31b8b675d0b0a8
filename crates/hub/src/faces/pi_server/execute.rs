//! Commands that were admitted, on their way to those who do the work, and back.

use std::sync::Arc;

use qd_core::view::pi_server::admission::Outcome;
use qd_core::view::pi_server::{answer, request};
use qd_wire::command_table;
use qd_wire::pi_server::{Command, Target};
use qd_wire::{CodedError, ErrorCode};
use tokio::time::Duration;

use super::counters::Counters;
use super::desk::{After, Job};
use super::{history, is_open, lifecycle, messages, metrics, sessions};
use crate::ask::{Answered, OnAnswer, ask, ask_prepared, ask_within};
use crate::command::Prepared;
use crate::registry::{Hub, SessionEntry};

/// See [`backstop`].
const BACKSTOP: Duration = Duration::from_secs(60);

/// Does a command. Its outcome comes to the desk, now or later.
pub(super) fn execute(hub: &Arc<Hub>, job: Job) {
    match &job.request.command {
        Command::CreateSession(_) | Command::LoadSession(_) => sessions::create(hub, job),
        Command::DeleteSession(_) => sessions::delete(hub, job),
        Command::SwitchSession(fields) => sessions::switch(hub, &job, fields.resync == Some(true)),
        Command::ListSessions(_) => sessions::list(hub, job),
        Command::ListStoredSessions(_) => sessions::list_stored(hub, job),
        Command::GetMetrics(_) => metrics::metrics(hub, job),
        Command::HealthCheck(_) => metrics::health(hub, job),
        Command::GetStartupRecovery(_) => history::recovery(hub, &job),
        Command::GetCommandHistory(fields) => history::history(hub, &job, fields),
        Command::GetMessages(_) => messages::messages(hub, job),
        Command::GetAvailableModels(_)
        | Command::GetCommands(_)
        | Command::GetSkills(_)
        | Command::GetTools(_)
        | Command::ListSessionFiles(_)
        | Command::Prompt(_)
        | Command::Steer(_)
        | Command::FollowUp(_)
        | Command::Abort(_)
        | Command::GetState(_)
        | Command::SetModel(_)
        | Command::CycleModel(_)
        | Command::SetThinkingLevel(_)
        | Command::CycleThinkingLevel(_)
        | Command::SetSessionName(_)
        | Command::Compact(_)
        | Command::AbortCompaction(_)
        | Command::SetAutoCompaction(_)
        | Command::SetAutoRetry(_)
        | Command::AbortRetry(_)
        | Command::Bash(_)
        | Command::AbortBash(_)
        | Command::GetSessionStats(_)
        | Command::ExportHtml(_)
        | Command::NewSession(_)
        | Command::SwitchSessionFile(_)
        | Command::Fork(_)
        | Command::GetForkMessages(_)
        | Command::GetTree(_)
        | Command::NavigateTree(_)
        | Command::GetLastAssistantText(_)
        | Command::GetContextUsage(_)
        | Command::ExtensionUiResponse(_) => forward(hub, job),
    }
}

/// The work of a session's runner.
fn forward(hub: &Arc<Hub>, job: Job) {
    let entry = match open_session(hub, &job) {
        Ok(entry) => entry,
        Err(error) => return finish(hub, &job, failure(error)),
    };
    let text = request::canonical(&job.request, None, runner_key(&job));
    let then = |hub: &Arc<Hub>, job: Job, answered: Answered| {
        let outcome = outcome(&job, answered);
        finish(hub, &job, outcome);
    };
    let Some(spec) = command_table::spec(job.request.spec.canonical) else {
        return ask_for(hub, job, &text, then);
    };
    let (client, limit) = (Arc::clone(&job.client), backstop(hub, &job));
    let prepared = Prepared { asker: &client.asker, session: &entry, spec, text: &text, limit };
    ask_prepared(hub, &prepared, Box::new(move |hub, answered| then(hub, job, answered)));
}

/// After the face's own time limit nobody waits for the answer; what is kept for it goes some time later.
fn backstop(hub: &Hub, job: &Job) -> Option<Duration> {
    let limit = hub.faces.pi_server.timeout_ms(job.request.spec.timeout_ms)?;
    Some(Duration::from_millis(limit).saturating_add(BACKSTOP))
}

/// Asks on behalf of a command, which has a time limit of its own.
pub(super) fn ask_for(
    hub: &Arc<Hub>,
    job: Job,
    text: &str,
    then: impl FnOnce(&Arc<Hub>, Job, Answered) + Send + 'static,
) {
    let (client, limit) = (Arc::clone(&job.client), backstop(hub, &job));
    let on_answer: OnAnswer = Box::new(move |hub, answered| then(hub, job, answered));
    ask_within(hub, &client.asker, text, limit, on_answer);
}

/// The time of a command is over: what it does is stopped where that is possible.
pub(super) fn cancel(hub: &Arc<Hub>, job: &Job) {
    let Some(key) = runner_key(job).filter(|_| job.session_id.is_some()) else { return };
    Counters::count(&hub.faces.pi_server.counters.cancelled);
    let session_id = lifecycle::string(job.session());
    let text =
        format!("{{\"cmd\":\"_cancel\",\"session_id\":{session_id},\"key\":{}}}", lifecycle::string(key));
    let command = job.request.spec.name;
    ask(
        hub,
        &job.client.asker,
        &text,
        Box::new(move |_, answered| {
            if let Some(error) = answered.error {
                tracing::debug!(command, error, "a command whose time was over cannot be stopped");
            }
        }),
    );
}

/// The name under which the runner does the command at most once, and can stop it. Reads and aborts need none.
pub(super) fn runner_key(job: &Job) -> Option<&str> {
    let envelope = &job.request.envelope;
    let is_identified = envelope.id.is_some() || envelope.idempotency_key.is_some();
    let spec = job.request.spec;
    let needs_key = spec.is_journaled() && (is_identified || spec.timeout_ms.is_some());
    needs_key.then_some(&*job.uid)
}

/// The session a command is about, if this face shows it. One that a restart left in doubt is its runner's to judge.
pub(super) fn open_session(hub: &Hub, job: &Job) -> Result<Arc<SessionEntry>, CodedError> {
    let session_id = job.session();
    let found = hub.session(session_id).filter(|entry| job.is_taken_up_again || is_open(entry));
    found.ok_or_else(|| match job.request.envelope.if_session_version {
        Some(version) => ErrorCode::SessionNotFound
            .with(format!("Session {session_id} not found for ifSessionVersion={version}")),
        None => CodedError::session_not_found(session_id),
    })
}

pub(super) fn finish(hub: &Arc<Hub>, job: &Job, outcome: Outcome) {
    hub.faces.pi_server.finish(hub, job.token, outcome, After::Nothing);
}

/// A canonical answer in the words of the document.
pub(super) fn outcome(job: &Job, answered: Answered) -> Outcome {
    if !answered.success {
        return failed(job, answered);
    }
    match answer::data(&job.request, answered.data.as_deref()) {
        Ok(data) => {
            let is_of_session = job.request.spec.target == Target::Session;
            success(data, answered.session_version.filter(|_| is_of_session))
        }
        Err(error) => failure(error.into()),
    }
}

/// A canonical failure in the words of the document.
pub(super) fn failed(job: &Job, answered: Answered) -> Outcome {
    let error = answered.failed().unwrap_or_else(|| ErrorCode::Failed.with("The runner refused"));
    Outcome {
        indeterminate: answered.indeterminate,
        timed_out: answered.timed_out,
        // The runner can still tell, when it is back and somebody asks again.
        settled: !(answered.indeterminate && answered.link_lost),
        ..failure(answer::error(&job.request, job.session_id.as_deref(), error))
    }
}

pub(super) fn success(data: Option<String>, session_version: Option<u64>) -> Outcome {
    Outcome { success: true, data: data.map(Arc::from), session_version, ..Outcome::default() }
}

pub(super) fn failure(error: CodedError) -> Outcome {
    Outcome { code: Some(error.code), error: Some(Arc::from(error.message)), ..Outcome::default() }
}
