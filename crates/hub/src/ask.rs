//! Commands of the hub's own faces: routed like a client's, answered to a callback.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qd_wire::command_table::Permission;
use qd_wire::link::LinkLine;
use qd_wire::{CodedError, ErrorCode, SYSTEM_SESSION};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::command::{Asking, Prepared, send_ask, send_cancel, send_prepared};
use crate::head::json_string;
use crate::principals::{Principal, Rights, check_revoked};
use crate::registry::{Hub, SessionEntry};
use crate::runner_link::{OutboxError, line_of};

/// Who asks: what the runner is told of it.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) principal: Arc<str>,
    /// What it may ask for, and its role.
    pub(crate) rights: Rights,
    /// Cancelled when it may ask for nothing any more.
    pub(crate) revoked: CancellationToken,
    pub(crate) connection_id: Arc<str>,
}

impl Asker {
    pub(crate) fn new(principal: &Principal, connection_id: Arc<str>) -> Self {
        Self {
            principal: Arc::clone(&principal.name),
            rights: principal.rights(),
            revoked: principal.revoked.clone(),
            connection_id,
        }
    }

    /// Refuses what it may not ask for, or not any more.
    pub(crate) fn check(&self, what: &str, permission: Permission) -> Result<(), CodedError> {
        check_revoked(&self.revoked)?;
        self.rights.check(what, permission)
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

/// An answer, as far as a face needs it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answered {
    pub(crate) success: bool,
    pub(crate) data: Option<Box<RawValue>>,
    pub(crate) error: Option<String>,
    /// Beside every error: where an answer enters the hub it gets one if its runner knows none.
    pub(crate) code: Option<ErrorCode>,
    pub(crate) session_version: Option<u64>,
    /// The runner had the outcome already.
    #[serde(deserialize_with = "flag")]
    pub(crate) replayed: bool,
    /// Nobody can know whether the command took effect.
    #[serde(deserialize_with = "flag")]
    pub(crate) indeterminate: bool,
    /// Its time was over before it was done.
    #[serde(deserialize_with = "flag")]
    pub(crate) timed_out: bool,
    /// The link to its runner ended before the answer came: when it is back it can be asked again.
    #[serde(skip)]
    pub(crate) link_lost: bool,
    pub(crate) session_id: Option<String>,
    /// The runner that answered, or should have.
    #[serde(skip)]
    pub(crate) runner_id: Option<Arc<str>>,
}

/// A flag that may be `null`.
fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<bool>::deserialize(deserializer)?.unwrap_or(false))
}

impl Answered {
    pub(crate) fn failure(error: CodedError) -> Self {
        Self { error: Some(error.message), code: Some(error.code), ..Self::default() }
    }

    /// Why it failed; `None` for a success.
    pub(crate) fn failed(&self) -> Option<CodedError> {
        if self.success {
            return None;
        }
        let error = self.error.as_deref().unwrap_or("The runner refused and did not say why");
        Some(self.code.unwrap_or(ErrorCode::Failed).with(error))
    }

    /// Whether it failed for this reason.
    pub(crate) fn failed_with(&self, code: ErrorCode) -> bool {
        !self.success && self.code == Some(code)
    }
}

/// Called with the answer, once.
pub(crate) type OnAnswer = Box<dyn FnOnce(&Arc<Hub>, Answered) + Send>;
/// Called each time the command says how far it is, before its answer.
pub(crate) type OnProgress = Arc<dyn Fn(&Arc<Hub>, &RawValue) + Send + Sync>;
/// Called with the answers of several runners, once.
pub(crate) type OnAnswers = Box<dyn FnOnce(&Arc<Hub>, Answers) + Send>;
/// Runners and what each has answered.
pub(crate) type Answers = Vec<(Arc<str>, Answered)>;

/// Routes a canonical command: the text of a JSON object with `cmd`, `session_id`, `runner_id` and its own fields.
/// It follows nothing and waits for no runner that is away.
///
/// `on_answer` is called exactly once. For what cannot be sent that is before this returns, so the caller must not hold
/// a lock that it takes. Else it is called by the task of the runner's link, in the order of its stream, and for
/// creating, closing and deleting after what came before is stored: it must be quick. When the link ends, or the
/// time limit of the command passes, it gets a failure, which is indeterminate for a command that changes something.
pub(crate) fn ask(hub: &Arc<Hub>, asker: &Asker, text: &str, on_answer: OnAnswer) {
    send_ask(hub, Asking { asker, text, limit: None, on_progress: None }, on_answer);
}

/// The same for a service that says how far it is. The number is for [`cancel_asked`]; there is none when the answer
/// has been given already.
pub(crate) fn ask_service(
    hub: &Arc<Hub>,
    asker: &Asker,
    text: &str,
    on_progress: Option<OnProgress>,
    on_answer: OnAnswer,
) -> Option<u64> {
    send_ask(hub, Asking { asker, text, limit: None, on_progress }, on_answer)
}

/// Takes back a command of a face that is not answered yet; its answer comes all the same.
pub(crate) fn cancel_asked(hub: &Hub, number: u64) {
    if let Some(link) = hub.pending.link_of(number) {
        send_cancel(number, &link, false);
    }
}

/// The same with a time limit of the asker's own; `None` for as long as the runner's link lasts.
pub(crate) fn ask_within(
    hub: &Arc<Hub>,
    asker: &Asker,
    text: &str,
    limit: Option<Duration>,
    on_answer: OnAnswer,
) {
    send_ask(hub, Asking { asker, text, limit: Some(limit), on_progress: None }, on_answer);
}

/// The same for a command about one session whose text the asker has written itself, with `session_id` and on one
/// line: it is not read again.
pub(crate) fn ask_prepared(hub: &Arc<Hub>, prepared: &Prepared<'_>, on_answer: OnAnswer) {
    send_prepared(hub, prepared, on_answer);
}

/// Asks every connected runner the same, a command without parameters. `on_answers` is called once, when all have
/// answered or `limit` is over; those who did not answer are there with a failure. One that hangs does not keep the
/// answers of the others for longer.
pub(crate) fn ask_runners(hub: &Arc<Hub>, asker: &Asker, cmd: &str, limit: Duration, on_answers: OnAnswers) {
    let runners: Vec<Arc<str>> = hub
        .runners()
        .into_iter()
        .filter(|runner| runner.link().is_some())
        .map(|runner| Arc::clone(&runner.id))
        .collect();
    if runners.is_empty() {
        return on_answers(hub, Vec::new());
    }
    let left = Arc::new(Mutex::new(Left {
        answers: runners.iter().map(|runner_id| (Arc::clone(runner_id), None)).collect(),
        count: runners.len(),
        on_answers: Some(on_answers),
    }));
    let (cmd, system) = (json_string(cmd), json_string(SYSTEM_SESSION));
    for (place, runner_id) in runners.iter().enumerate() {
        let text =
            format!("{{\"cmd\":{cmd},\"session_id\":{system},\"runner_id\":{}}}", json_string(runner_id));
        let left = Arc::clone(&left);
        let on_answer: OnAnswer = Box::new(move |hub, answered| {
            let done = left.lock().unwrap_or_else(PoisonError::into_inner).take(place, answered);
            if let Some((on_answers, answers)) = done {
                on_answers(hub, answers);
            }
        });
        ask_within(hub, asker, &text, Some(limit), on_answer);
    }
}

/// Answers that are yet to come.
struct Left {
    answers: Vec<(Arc<str>, Option<Answered>)>,
    count: usize,
    on_answers: Option<OnAnswers>,
}

impl Left {
    /// Notes an answer; after the last one gives all, and who wants them.
    fn take(&mut self, place: usize, answered: Answered) -> Option<(OnAnswers, Answers)> {
        if let Some((_, slot)) = self.answers.get_mut(place) {
            *slot = Some(answered);
        }
        self.count -= 1;
        if self.count > 0 {
            return None;
        }
        let answers = std::mem::take(&mut self.answers);
        let answers = answers.into_iter().map(|(id, answered)| (id, answered.unwrap_or_default()));
        self.on_answers.take().map(|on_answers| (on_answers, answers.collect()))
    }
}

/// Tells the session's runner whether to say the session's events in the words of its own harness too. A
/// runner that is away is told when it comes, if the face still wants it then.
pub(crate) fn watch(hub: &Hub, session: &SessionEntry, on: bool) {
    let Some(link) = hub.runner(&session.runner_id).and_then(|runner| runner.link()) else { return };
    let line = line_of(&LinkLine::SessionWatch { session_id: session.id.to_string(), on });
    match link.outbox.push_control(&line) {
        Ok(()) => {}
        Err(OutboxError::Closed) => {
            tracing::debug!(session = %session.id, "a runner that is gone cannot be told to watch a session");
        }
        Err(OutboxError::Full) => {
            // It would go on with a wrong idea of who listens; when it comes again it is told all of it.
            tracing::warn!(runner = %session.runner_id, "a runner does not read; its link is ended");
            link.end();
        }
    }
}

#[cfg(test)]
#[path = "ask_tests.rs"]
pub(crate) mod tests;
