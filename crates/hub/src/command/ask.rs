//! Commands of the hub's own faces: admitted and routed like a client's, answered to a callback.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use qd_link::mutex::Mutex;
use qd_wire::command_table::CommandName;
use qd_wire::link::LinkLine;
use qd_wire::{CodedError, ErrorCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::Command;
use super::admission::{AdmittedCommand, CommandOrigin, CommandStep, RunnerRoute, admit, find_way};
use super::pending::{AnswerTo, PendingKind};
use super::reply::ReplyTo;
use super::route::Destination;
use super::send::{CommandSend, command_line, send, send_cancel};
use crate::access::principals::{Principal, Rights};
use crate::hub::Hub;
use crate::runners::link::{SendQueueError, line_of};
use crate::sessions::reads::HubCommand;
use crate::sessions::session::SessionEntry;

/// Who asks: what the runner is told of it.
#[derive(Debug, Clone)]
pub(crate) struct CommandSender {
    pub(crate) principal: Arc<str>,
    /// What it may ask for, and its role.
    pub(crate) rights: Rights,
    /// Cancelled when it may ask for nothing any more.
    pub(crate) revoked: CancellationToken,
    pub(crate) connection_id: Arc<str>,
}

impl CommandSender {
    pub(crate) fn new(principal: &Principal, connection_id: Arc<str>) -> Self {
        Self {
            principal: Arc::clone(&principal.name),
            rights: principal.rights(),
            revoked: principal.revoked.clone(),
            connection_id,
        }
    }

    /// The hub itself, which may everything.
    pub(crate) fn hub() -> Self {
        Self {
            principal: Arc::from("hub"),
            rights: Rights::ALL,
            revoked: CancellationToken::new(),
            connection_id: Arc::from("hub"),
        }
    }
}

/// An answer, as far as a face needs it, and as JSON what a command over HTTP is answered with.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CommandAnswer {
    pub(crate) success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Beside every error: where an answer enters the hub it gets one if its runner knows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<ErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_version: Option<u64>,
    /// The runner had the outcome already.
    #[serde(deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) replayed: bool,
    /// Nobody can know whether the command took effect.
    #[serde(deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) indeterminate: bool,
    /// Its time was over before it was done.
    #[serde(deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) timed_out: bool,
    /// The link to its runner ended before the answer came: when it is back it can be asked again.
    #[serde(skip)]
    pub(crate) link_lost: bool,
    /// The runner that answered, or should have.
    #[serde(skip)]
    pub(crate) runner_id: Option<Arc<str>>,
}

/// A flag that may be `null`.
fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<bool>::deserialize(deserializer)?.unwrap_or(false))
}

impl CommandAnswer {
    pub(crate) fn failure(error: CodedError) -> Self {
        Self { error: Some(error.message), code: Some(error.code), ..Self::default() }
    }

    /// Why it failed; `None` for a success.
    pub(crate) fn failed(&self) -> Option<CodedError> {
        (!self.success).then(|| self.reason())
    }

    /// The same for one that is known to have failed.
    pub(crate) fn reason(&self) -> CodedError {
        let error = self.error.as_deref().unwrap_or("The runner refused and did not say why");
        self.code.unwrap_or(ErrorCode::Failed).with(error)
    }

    /// The data of a success, or why there is none.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, CodedError> {
        if let Some(error) = self.failed() {
            return Err(error);
        }
        let Some(data) = &self.data else {
            return Err(ErrorCode::Internal.with("The runner's answer has no data"));
        };
        serde_json::from_str(data.get()).map_err(|error| {
            tracing::warn!(%error, "an answer cannot be read");
            ErrorCode::Internal.with(format!("The runner's answer cannot be read: {error}"))
        })
    }

    /// Whether it failed for this reason.
    pub(crate) fn failed_with(&self, code: ErrorCode) -> bool {
        !self.success && self.code == Some(code)
    }
}

/// Called with the answer, once.
pub(crate) type OnAnswer = Box<dyn FnOnce(&Arc<Hub>, CommandAnswer) + Send>;
/// Called each time the command says how far it is, before its answer.
pub(crate) type OnProgress = Arc<dyn Fn(&Arc<Hub>, &RawValue) + Send + Sync>;
/// Called with the answers of several runners, once.
pub(crate) type OnAnswers = Box<dyn FnOnce(&Arc<Hub>, RunnerAnswers) + Send>;
/// Runners and what each has answered.
pub(crate) type RunnerAnswers = Vec<(Arc<str>, CommandAnswer)>;

/// Asks for a canonical command. The asker follows nothing by it, and it waits for no runner that is away.
///
/// `on_answer` is called exactly once. For what cannot be sent that is before this returns, so the caller must not hold
/// a lock that it takes. Else it is called by the task of the runner's link, in the order of its stream, and for
/// creating, closing and deleting after what came before is stored: it must be quick. When the link ends, or the
/// time limit of the command passes, it gets a failure, which is indeterminate for a command that changes something.
///
/// It is a callback and no future, because the answer has its place in the stream: what the link reads next is told after
/// the callback has returned, and a task that is woken some time later would have lost that place.
///
/// The number is for [`cancel_asked`]; there is none when the answer has been given already.
pub(crate) fn ask(
    hub: &Arc<Hub>,
    asker: &CommandSender,
    command: Command<'_>,
    on_answer: impl FnOnce(&Arc<Hub>, CommandAnswer) + Send + 'static,
) -> Option<u64> {
    match prepare(hub, asker, command) {
        Ok(ready) => send_ready(hub, asker, ready, Box::new(on_answer)),
        Err(error) => {
            on_answer(hub, CommandAnswer::failure(error));
            None
        }
    }
}

/// A command that nothing speaks against: it was admitted, and it is known who does it.
pub(crate) struct ReadyCommand<'a> {
    command: Command<'a>,
    session_id: Option<Arc<str>>,
    next: ReadyWork,
}

/// Who does it.
enum ReadyWork {
    Hub(HubCommand),
    Runner { destination: Destination, kind: PendingKind, cmd: &'static str },
}

impl ReadyCommand<'_> {
    /// The runner that will be asked.
    pub(crate) fn runner_id(&self) -> Option<&Arc<str>> {
        match &self.next {
            ReadyWork::Hub(_) => None,
            ReadyWork::Runner { destination, .. } => Some(&destination.runner.id),
        }
    }
}

/// Admits a face's command and finds who does it.
pub(crate) fn prepare<'a>(
    hub: &Hub,
    asker: &CommandSender,
    command: Command<'a>,
) -> Result<ReadyCommand<'a>, CodedError> {
    let AdmittedCommand { command, session, work } = admit(hub, asker, &CommandOrigin::Face, command)?;
    let session_id = command.kept_session_id(session.as_ref());
    let reply = || ReplyTo {
        id: None,
        cmd: Cow::Borrowed(command.spec.name),
        session_id: session_id.clone(),
        runner_id: session.as_ref().map(|session| Arc::clone(&session.runner_id)),
    };
    let next = match CommandStep::of(work, &command, reply) {
        Some(CommandStep::Answer(read)) => ReadyWork::Hub(read),
        Some(CommandStep::Ask { kind, cmd }) => {
            match find_way(hub, asker, &command, session.as_ref(), &kind)? {
                RunnerRoute::To(destination) => ReadyWork::Runner { destination, kind, cmd },
                RunnerRoute::Away { from_copies: Some(read), .. } => {
                    ReadyWork::Hub(HubCommand { reply: reply(), read })
                }
                RunnerRoute::Away { error, .. } => return Err(error),
            }
        }
        None => return Err(ErrorCode::Unsupported.with("Only a connection can do this")),
    };
    Ok(ReadyCommand { command, session_id, next })
}

/// Sends a command to its runner, or answers it here. Gives its number if there is something to take back.
pub(crate) fn send_ready(
    hub: &Arc<Hub>,
    asker: &CommandSender,
    ready: ReadyCommand<'_>,
    on_answer: OnAnswer,
) -> Option<u64> {
    let ReadyCommand { mut command, session_id, next } = ready;
    let (destination, kind, cmd) = match next {
        ReadyWork::Hub(read) => {
            read.run_for_face(hub, on_answer);
            return None;
        }
        ReadyWork::Runner { destination, kind, cmd } => (destination, kind, cmd),
    };
    let on_progress = command.on_progress.take();
    let to = AnswerTo::Face { cmd: command.spec.name, session_id, on_answer, on_progress };
    let sending = CommandSend::new(hub, asker, &command, to, kind);
    let sent = send(hub, &destination, sending, |number| command_line(number, asker, None, cmd, &command));
    sent.unwrap_or_else(|error| {
        // Only clients are told by the caller.
        tracing::error!(%error, "a command of a face was refused without an answer");
        None
    })
}

/// Takes back a command of a face that is not answered yet; its answer comes all the same.
pub(crate) fn cancel_asked(hub: &Hub, number: u64) {
    if let Some(link) = hub.pending.link_of(number) {
        send_cancel(number, &link, false);
    }
}

/// Asks every connected runner the same, a command without parameters. `on_answers` is called once, when all have
/// answered or `limit` is over; those who did not answer are there with a failure. One that hangs does not keep the
/// answers of the others for longer.
pub(crate) fn ask_runners(
    hub: &Arc<Hub>,
    asker: &CommandSender,
    name: CommandName,
    limit: Duration,
    on_answers: OnAnswers,
) {
    let runners: Vec<Arc<str>> = hub
        .runners()
        .into_iter()
        .filter(|runner| runner.link().is_some())
        .map(|runner| Arc::clone(&runner.id))
        .collect();
    if runners.is_empty() {
        return on_answers(hub, Vec::new());
    }
    let left = Arc::new(Mutex::new(OutstandingAnswers {
        answers: runners.iter().map(|runner_id| (Arc::clone(runner_id), None)).collect(),
        count: runners.len(),
        on_answers: Some(on_answers),
    }));
    for (place, runner_id) in runners.iter().enumerate() {
        let command = Command::new(name).on_system().at(&**runner_id).within(Some(limit));
        let left = Arc::clone(&left);
        ask(hub, asker, command, move |hub, answer| {
            let done = left.lock().take(place, answer);
            if let Some((on_answers, answers)) = done {
                on_answers(hub, answers);
            }
        });
    }
}

/// Answers that are yet to come.
struct OutstandingAnswers {
    answers: Vec<(Arc<str>, Option<CommandAnswer>)>,
    count: usize,
    on_answers: Option<OnAnswers>,
}

impl OutstandingAnswers {
    /// Notes an answer; after the last one gives all, and who wants them.
    fn take(&mut self, place: usize, answer: CommandAnswer) -> Option<(OnAnswers, RunnerAnswers)> {
        if let Some((_, slot)) = self.answers.get_mut(place) {
            *slot = Some(answer);
        }
        self.count -= 1;
        if self.count > 0 {
            return None;
        }
        let answers = std::mem::take(&mut self.answers);
        let answers = answers.into_iter().map(|(id, answer)| (id, answer.unwrap_or_default()));
        self.on_answers.take().map(|on_answers| (on_answers, answers.collect()))
    }
}

/// Tells the session's runner whether to say the session's events in the words of its own harness too. A
/// runner that is away is told when it comes, if the face still wants it then.
pub(crate) fn watch(hub: &Hub, session: &SessionEntry, on: bool) {
    let Some(link) = hub.runner(&session.runner_id).and_then(|runner| runner.link()) else { return };
    let line = line_of(&LinkLine::SessionWatch { session_id: session.id.to_string(), on });
    match link.send_queue.push_control(&line) {
        Ok(()) => {}
        Err(SendQueueError::Closed) => {
            tracing::debug!(session = %session.id, "a runner that is gone cannot be told to watch a session");
        }
        Err(SendQueueError::Full) => {
            // It would go on with a wrong idea of who listens; when it comes again it is told all of it.
            tracing::warn!(runner = %session.runner_id, "a runner does not read; its link is ended");
            link.end();
        }
    }
}

#[cfg(test)]
#[path = "ask_tests.rs"]
pub(crate) mod tests;
