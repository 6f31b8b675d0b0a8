//! Commands of the hub's own faces: routed like a client's, answered to a callback.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qd_wire::SYSTEM_SESSION;
use qd_wire::link::LinkLine;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::command::{Asking, send_ask};
use crate::head::json_string;
use crate::registry::{Hub, SessionEntry};
use crate::runner_link::line_of;

/// How long each of all runners may take where the command itself has no limit: one that hangs must not keep the
/// answers of the others.
const ALL_RUNNERS_WAIT_MAX: Duration = Duration::from_secs(30);

/// Who asks: what the runner is told of it.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) principal: Arc<str>,
    pub(crate) connection_id: Arc<str>,
}

/// An answer, as far as a face needs it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answered {
    pub(crate) success: bool,
    pub(crate) data: Option<Box<RawValue>>,
    pub(crate) error: Option<String>,
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
    pub(crate) fn failure(error: &str) -> Self {
        Self { error: Some(error.to_owned()), ..Self::default() }
    }
}

/// Called with the answer, once.
pub(crate) type OnAnswer = Box<dyn FnOnce(&Arc<Hub>, Answered) + Send>;
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
    send_ask(hub, &Asking { asker, text, limit: None }, on_answer);
}

/// Asks every connected runner the same, a command without parameters. `on_answers` is called once, when all have
/// answered or their time is over; those who did not answer are there with a failure.
pub(crate) fn ask_runners(hub: &Arc<Hub>, asker: &Asker, cmd: &str, on_answers: OnAnswers) {
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
        send_ask(hub, &Asking { asker, text: &text, limit: Some(all_runners_limit(hub)) }, on_answer);
    }
}

fn all_runners_limit(hub: &Hub) -> Duration {
    hub.config.limits.command_timeout.unwrap_or(ALL_RUNNERS_WAIT_MAX)
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

/// Tells the session's runner whether to say the session's events in the words of the pi-server document too. A
/// runner that is away is told when it comes, if the face still wants it then.
pub(crate) fn watch(hub: &Hub, session: &SessionEntry, on: bool) {
    let Some(link) = hub.runner(&session.runner_id).and_then(|runner| runner.link()) else { return };
    let line = line_of(&LinkLine::SessionWatch { session_id: session.id.to_string(), on });
    if let Err(error) = link.outbox.push(&line) {
        tracing::debug!(session = %session.id, %error, "a runner cannot be told to watch a session");
    }
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
