//! Approvals: the questions an agent asks people. The first answer wins, everybody learns of it.

use qd_wire::InputRequest;
use qd_wire::command::InputResponseParams;
use qd_wire::event::Event;
use qd_wire::input::InputOutcome;

use super::{Session, interview};
use crate::agent::Answer;
use crate::outbox::Outbox;

/// Questions open at once; more are refused, because nobody would find them.
const QUESTIONS_MAX: usize = 256;

/// Answered questions remembered, so that a late answer gets a clear error.
const SETTLED_MAX: usize = 64;

/// A question nobody has answered yet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenQuestion {
    pub request: InputRequest,
    /// Unix milliseconds.
    pub asked_at: i64,
    /// When nobody waits for an answer any more; Unix milliseconds.
    pub deadline: Option<i64>,
}

/// Why an answer was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerError {
    Unknown(String),
    AlreadyAnswered(String),
    /// Nobody waits for it any more.
    TimedOut(String),
    Invalid(String),
}

impl std::fmt::Display for AnswerError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnswerError::Unknown(id) => write!(formatter, "No pending input request with id '{id}'"),
            AnswerError::AlreadyAnswered(id) => {
                write!(formatter, "Input request '{id}' was already answered")
            }
            AnswerError::TimedOut(id) => write!(formatter, "Input request '{id}' has timed out"),
            AnswerError::Invalid(reason) => formatter.write_str(reason),
        }
    }
}

impl Session {
    /// The questions that wait, oldest first.
    pub fn open_questions(&self) -> impl Iterator<Item = &OpenQuestion> {
        self.questions.iter()
    }

    /// Checks an answer and settles its question. The returned value is for the agent.
    pub fn answer(
        &mut self,
        now: i64,
        response: &InputResponseParams,
        user_id: Option<&str>,
        out: &mut Outbox,
    ) -> Result<Answer, AnswerError> {
        let id = &response.request_id;
        let Some(question) = self.questions.iter().find(|question| question.request.request_id() == id)
        else {
            return Err(if self.settled_questions.contains(id) {
                AnswerError::AlreadyAnswered(id.clone())
            } else {
                AnswerError::Unknown(id.clone())
            });
        };
        if question.deadline.is_some_and(|at| at <= now) {
            // Its timer is about to settle it; the agent may have given up already.
            return Err(AnswerError::TimedOut(id.clone()));
        }
        let answer = check_answer(&question.request, response)?;
        let outcome = match answer {
            Answer::Cancelled => InputOutcome::Cancelled,
            Answer::TimedOut => InputOutcome::TimedOut,
            Answer::Value(_) | Answer::Confirmed(_) | Answer::Responses(_) => InputOutcome::Answered,
        };
        self.settle_question(now, id, outcome, user_id, out);
        Ok(answer)
    }

    /// The moment the next question runs out of time.
    pub fn next_question_deadline(&self) -> Option<i64> {
        self.questions.iter().filter_map(|question| question.deadline).min()
    }

    /// How long a question asked from now on stays open at most. Its asker then sees an error; without this the
    /// agent itself gives up on questions, if it does.
    pub fn set_question_timeout(&mut self, timeout_ms: Option<u64>) {
        self.question_timeout_ms = timeout_ms;
    }

    /// Settles questions whose time is over. Returns what the agent must be told of them; of the others it has given
    /// up by itself by now.
    pub fn expire_questions(&mut self, now: i64, out: &mut Outbox) -> Vec<(String, Answer)> {
        let is_over = |question: &&OpenQuestion| question.deadline.is_some_and(|at| at <= now);
        let expired: Vec<(String, Option<Answer>)> = self
            .questions
            .iter()
            .filter(is_over)
            .map(|OpenQuestion { request, .. }| {
                let answer = match request {
                    _ if self.question_timeout_ms.is_some() => Some(Answer::TimedOut),
                    // Agents have no timers for these: they would stay open on the other side.
                    InputRequest::Editor { .. } | InputRequest::Interview { .. } => Some(Answer::Cancelled),
                    _ => None,
                };
                (request.request_id().to_owned(), answer)
            })
            .collect();
        for (id, _) in &expired {
            self.settle_question(now, id, InputOutcome::TimedOut, None, out);
        }
        expired.into_iter().filter_map(|(id, answer)| Some((id, answer?))).collect()
    }

    /// Questions that were not taken because too many are open; the agent must hear that nobody will answer them.
    pub fn take_refused_questions(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refused_questions)
    }

    /// The ids of all open questions, for a driver that must cancel them before it aborts.
    pub fn open_question_ids(&self) -> Vec<String> {
        self.questions.iter().map(|question| question.request.request_id().to_owned()).collect()
    }

    /// Settles every open question: the agent will not hear an answer any more.
    pub fn withdraw_questions(&mut self, now: i64, out: &mut Outbox) {
        for id in self.open_question_ids() {
            self.settle_question(now, &id, InputOutcome::Withdrawn, None, out);
        }
    }

    pub(super) fn ask(&mut self, now: i64, mut request: InputRequest, out: &mut Outbox) {
        let known =
            self.questions.iter().any(|question| question.request.request_id() == request.request_id());
        if known {
            return;
        }
        if self.questions.len() >= QUESTIONS_MAX {
            return self.refused_questions.push(request.request_id().to_owned());
        }
        let timeout = [request.timeout_ms(), self.question_timeout_ms].into_iter().flatten().min();
        show_timeout(&mut request, timeout);
        let deadline = timeout.and_then(|timeout| now.checked_add(i64::try_from(timeout).ok()?));
        self.show_question(now, &request, out);
        self.questions.push(OpenQuestion { request: request.clone(), asked_at: now, deadline });
        self.emit(now, &Event::AgentInputNeeded { request }, out);
    }

    fn settle_question(
        &mut self,
        now: i64,
        id: &str,
        outcome: InputOutcome,
        user_id: Option<&str>,
        out: &mut Outbox,
    ) {
        self.questions.retain(|question| question.request.request_id() != id);
        if self.settled_questions.len() == SETTLED_MAX {
            self.settled_questions.pop_front();
        }
        self.settled_questions.push_back(id.to_owned());
        self.show_settled(now, id, outcome, out);
        let event = Event::AgentInputResolved {
            request_id: id.to_owned(),
            outcome: Some(outcome),
            user_id: user_id.map(str::to_owned),
        };
        self.emit(now, &event, out);
    }
}

/// A client sees how long the question is really open.
fn show_timeout(request: &mut InputRequest, effective: Option<u64>) {
    match request {
        InputRequest::Select { timeout, .. }
        | InputRequest::Confirm { timeout, .. }
        | InputRequest::Input { timeout, .. }
        | InputRequest::Editor { timeout, .. }
        | InputRequest::Interview { timeout, .. } => *timeout = effective,
        // It has no place for it.
        InputRequest::Permission { .. } => {}
    }
}

fn check_answer(request: &InputRequest, response: &InputResponseParams) -> Result<Answer, AnswerError> {
    if response.cancelled == Some(true) {
        return Ok(Answer::Cancelled);
    }
    let invalid = |reason: &str| Err(AnswerError::Invalid(reason.to_owned()));
    match request {
        InputRequest::Select { options, .. } => match &response.value {
            Some(value) if options.contains(value) => Ok(Answer::Value(value.clone())),
            Some(value) => Err(AnswerError::Invalid(format!(
                "'{value}' is not one of the options: {}",
                options.join(", ")
            ))),
            None => invalid("This question needs 'value': one of its options (or cancelled: true)"),
        },
        InputRequest::Confirm { .. } | InputRequest::Permission { .. } => match response.confirmed {
            Some(confirmed) => Ok(Answer::Confirmed(confirmed)),
            None => invalid("This question needs 'confirmed': true or false (or cancelled: true)"),
        },
        InputRequest::Input { .. } | InputRequest::Editor { .. } => match &response.value {
            Some(value) => Ok(Answer::Value(value.clone())),
            None => invalid("This question needs 'value': a text (or cancelled: true)"),
        },
        InputRequest::Interview { questions, .. } => match &response.responses {
            Some(responses) => match interview::check(questions, responses) {
                Ok(()) => Ok(Answer::Responses(responses.clone())),
                Err(reason) => Err(AnswerError::Invalid(reason)),
            },
            None => invalid("This question needs 'responses': the answers by id (or cancelled: true)"),
        },
    }
}
