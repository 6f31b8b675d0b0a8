//! Commands that were admitted, on their way to those who do the work, and back.
//!
//! Every job ends in one `finish`, maybe much later and on another thread. Work of runners is asked for by canonical
//! commands, so everything that holds for those (permissions, routing, limits) holds here.

use std::sync::Arc;

use qd_core::view::pi_server::admission::PiServerOutcome;
use qd_core::view::pi_server::request::FieldWriter;
use qd_core::view::pi_server::{answer as view, request};
use qd_wire::pi_server::{Command, Target};
use qd_wire::{CodedError, ErrorCode};
use serde::Serialize;
use tokio::time::Duration;

use crate::command::ask::{CommandAnswer, ask};
use crate::command::{Command as CanonicalCommand, spec_of};
use crate::faces::pi_server::commands::pending_commands::{AfterResponse, CommandJob};
use crate::faces::pi_server::commands::{history, lifecycle, messages, metrics, sessions};
use crate::faces::pi_server::counters::PiCounters;
use crate::faces::pi_server::is_open;
use crate::hub::Hub;
use crate::sessions::session::SessionEntry;

/// See [`backstop`].
const BACKSTOP: Duration = Duration::from_secs(60);

/// Does a command. Its outcome comes to the pending commands, now or later.
pub(crate) fn execute(hub: &Arc<Hub>, job: CommandJob) {
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
fn forward(hub: &Arc<Hub>, job: CommandJob) {
    let command = session_command(hub, &job);
    ask_for(hub, job, command, |hub, job, answer| {
        let outcome = outcome(&job, answer);
        finish(hub, &job, outcome);
    });
}

/// The canonical command for the session that the job is about, if this face shows it.
pub(crate) fn session_command(hub: &Hub, job: &CommandJob) -> Result<CanonicalCommand<'static>, CodedError> {
    let entry = open_session(hub, job)?;
    Ok(canonical(job, runner_key(job))?.on_session(&entry))
}

/// The canonical command that does the work of a request, without its address. `key` is the name under which the runner
/// does it at most once.
pub(crate) fn canonical(
    job: &CommandJob,
    key: Option<&str>,
) -> Result<CanonicalCommand<'static>, CodedError> {
    let request = &job.request;
    let command = CanonicalCommand::of(spec_of(request.spec.canonical)?);
    let mut command = command.once(key).if_version(request.envelope.if_session_version);
    request::write_parameters(request, &mut command);
    Ok(command)
}

impl FieldWriter for CanonicalCommand<'_> {
    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) {
        self.add(name, value);
    }
}

/// After the face's own time limit nobody waits for the answer; what is kept for it goes some time later.
fn backstop(hub: &Hub, job: &CommandJob) -> Option<Duration> {
    let limit = hub.faces.pi_server.timeout_ms(job.request.spec.timeout_ms)?;
    Some(Duration::from_millis(limit).saturating_add(BACKSTOP))
}

/// Asks on behalf of a command, which has a time limit of its own. One that cannot be asked for has failed.
pub(crate) fn ask_for(
    hub: &Arc<Hub>,
    job: CommandJob,
    command: Result<CanonicalCommand<'_>, CodedError>,
    then: impl FnOnce(&Arc<Hub>, CommandJob, CommandAnswer) + Send + 'static,
) {
    let command = match command {
        Ok(command) => command,
        Err(error) => return finish(hub, &job, failure(error)),
    };
    let (client, limit) = (Arc::clone(&job.client), backstop(hub, &job));
    ask(hub, &client.asker, command.within(limit), move |hub, answer| then(hub, job, answer));
}

/// The same where only a success leads on; a failure is the outcome.
pub(crate) fn ask_for_success(
    hub: &Arc<Hub>,
    job: CommandJob,
    command: Result<CanonicalCommand<'_>, CodedError>,
    then: impl FnOnce(&Arc<Hub>, CommandJob, CommandAnswer) + Send + 'static,
) {
    ask_for(hub, job, command, |hub, job, answer| {
        if answer.success {
            return then(hub, job, answer);
        }
        let outcome = failed(&job, answer);
        finish(hub, &job, outcome);
    });
}

/// The time of a command is over: what it does is stopped where that is possible.
pub(crate) fn cancel(hub: &Arc<Hub>, job: &CommandJob) {
    let Some(key) = runner_key(job).filter(|_| job.session_id.is_some()) else { return };
    PiCounters::count(&hub.faces.pi_server.counters.cancelled);
    let command = job.request.spec.name;
    let take_back = CanonicalCommand::take_back(key).on(job.session());
    ask(hub, &job.client.asker, take_back, move |_, answer| {
        if let Some(error) = answer.error {
            tracing::debug!(command, error, "a command whose time was over cannot be stopped");
        }
    });
}

/// The name under which the runner does the command at most once, and can stop it. Reads and aborts need none.
pub(crate) fn runner_key(job: &CommandJob) -> Option<&str> {
    // A client that names its command may repeat it after a crash, and a time limit needs a name to cancel by.
    let envelope = &job.request.envelope;
    let is_identified = envelope.id.is_some() || envelope.idempotency_key.is_some();
    let spec = job.request.spec;
    let needs_key = spec.is_journaled() && (is_identified || spec.timeout_ms.is_some());
    needs_key.then_some(&*job.uid)
}

/// The session a command is about, if this face shows it. One that a restart left in doubt is its runner's to judge.
pub(crate) fn open_session(hub: &Hub, job: &CommandJob) -> Result<Arc<SessionEntry>, CodedError> {
    let session_id = job.session();
    let found = hub.session(session_id).filter(|entry| job.is_taken_up_again || is_open(entry));
    found.ok_or_else(|| match job.request.envelope.if_session_version {
        Some(version) => ErrorCode::SessionNotFound
            .with(format!("Session {session_id} not found for ifSessionVersion={version}")),
        None => CodedError::session_not_found(session_id),
    })
}

pub(crate) fn finish(hub: &Arc<Hub>, job: &CommandJob, outcome: PiServerOutcome) {
    hub.faces.pi_server.finish(hub, job.token, outcome, AfterResponse::Nothing);
}

/// A canonical answer in the words of the document.
pub(crate) fn outcome(job: &CommandJob, answer: CommandAnswer) -> PiServerOutcome {
    if !answer.success {
        return failed(job, answer);
    }
    match view::data(&job.request, answer.data.as_deref()) {
        Ok(data) => {
            let is_of_session = job.request.spec.target == Target::Session;
            // The document gives versions only to commands about a session.
            success(data, answer.session_version.filter(|_| is_of_session))
        }
        Err(error) => failure(error.into()),
    }
}

/// A canonical failure in the words of the document.
pub(crate) fn failed(job: &CommandJob, answer: CommandAnswer) -> PiServerOutcome {
    let error = answer.reason();
    PiServerOutcome {
        indeterminate: answer.indeterminate,
        timed_out: answer.timed_out,
        // The runner can still tell, when it is back and somebody asks again.
        settled: !(answer.indeterminate && answer.link_lost),
        ..failure(view::error(&job.request, job.session_id.as_deref(), error))
    }
}

/// A success whose data is this wire type.
pub(crate) fn finish_with(hub: &Arc<Hub>, job: &CommandJob, data: &impl Serialize) {
    finish(hub, job, success(Some(lifecycle::json(data)), None));
}

pub(crate) fn success(data: Option<String>, session_version: Option<u64>) -> PiServerOutcome {
    PiServerOutcome {
        success: true,
        data: data.map(Arc::from),
        session_version,
        ..PiServerOutcome::default()
    }
}

pub(crate) fn failure(error: CodedError) -> PiServerOutcome {
    PiServerOutcome {
        code: Some(error.code),
        error: Some(Arc::from(error.message)),
        ..PiServerOutcome::default()
    }
}
