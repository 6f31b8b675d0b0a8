//! Approvals: the questions an agent asks people. The first answer wins, everybody learns of it.
//!
//! A question has one of three sources: the agent, a gate in front of a service call, or the screen of a terminal.
//! They differ in who hears the answer, and a gate denies what was cancelled.

use qd_wire::InputRequest;
use qd_wire::command::InputResponseParams;
use qd_wire::event::Event;
use qd_wire::input::InputOutcome;
use qd_wire::run::{Decision, PermissionDetails, PermissionSource};
use qd_wire::{CodedError, ErrorCode};
use serde::{Deserialize, Serialize};

use super::{Allowance, Session, answer_text, gate, interview};
use crate::agent::QuestionAnswer;
use crate::event_writer::EventWriter;

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
    /// Who asks: the agent, a gate, or the screen of a terminal.
    pub source: PermissionSource,
    /// Of a gate and of a screen.
    pub details: Option<PermissionDetails>,
    /// The record that asks; `None` where an older version stored the question.
    pub asked_seq: Option<u64>,
    /// What is typed is not shown, so the answer is not recorded.
    pub is_secret: bool,
}

/// A question as it is stored while it is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredQuestion {
    #[serde(flatten)]
    pub request: InputRequest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_seq: Option<u64>,
}

impl From<&OpenQuestion> for StoredQuestion {
    fn from(question: &OpenQuestion) -> Self {
        StoredQuestion { request: question.request.clone(), asked_seq: question.asked_seq }
    }
}

/// An answer that settled its question.
#[derive(Debug, Clone, PartialEq)]
pub struct SettledAnswer {
    /// For the agent, where it asked.
    pub answer: QuestionAnswer,
    /// Of a permission. A gate lets through what is an approval, and nothing else.
    pub decision: Option<Decision>,
    /// Of a gate and of a screen; their `source` says which.
    pub details: Option<PermissionDetails>,
    /// Why not, in the words of who answered.
    pub reason: Option<String>,
}

impl SettledAnswer {
    /// Who had asked.
    pub fn source(&self) -> PermissionSource {
        self.details.as_ref().map_or(PermissionSource::Agent, |details| details.source)
    }

    /// What is to be typed for the person, where a screen asked: nothing when the person only wanted the question
    /// gone. A text ends with the key that sends it.
    pub fn text_to_type(&self) -> Option<String> {
        let details = self.details.as_ref().filter(|details| details.source == PermissionSource::Screen)?;
        let choice = |label: &String| details.choices.iter().find(|choice| choice.label == *label);
        match &self.answer {
            QuestionAnswer::Confirmed(true) => details.approve_text.clone(),
            QuestionAnswer::Confirmed(false) => details.deny_text.clone(),
            QuestionAnswer::Value(value) if details.choices.is_empty() => Some(format!("{value}\r")),
            QuestionAnswer::Value(value) => choice(value).map(|choice| choice.text.clone()),
            QuestionAnswer::Responses(_) | QuestionAnswer::Cancelled | QuestionAnswer::TimedOut => None,
        }
    }
}

/// Who settled a question, and how; all of it is for the record.
#[derive(Debug, Clone, Default)]
pub(super) struct SettledBy<'a> {
    pub(super) user_id: Option<&'a str>,
    pub(super) decision: Option<Decision>,
    pub(super) actor: Option<&'a str>,
    pub(super) answer: Option<String>,
}

/// Why an answer was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("No pending input request with id '{0}'")]
    Unknown(String),
    #[error("Input request '{0}' was already answered")]
    AlreadyAnswered(String),
    /// Nobody waits for it any more.
    #[error("Input request '{0}' has timed out")]
    TimedOut(String),
    #[error("{0}")]
    Invalid(String),
}

impl AnswerError {
    pub const fn code(&self) -> ErrorCode {
        match self {
            AnswerError::Unknown(_) => ErrorCode::QuestionNotFound,
            AnswerError::AlreadyAnswered(_) => ErrorCode::QuestionAnswered,
            AnswerError::TimedOut(_) => ErrorCode::QuestionTimedOut,
            AnswerError::Invalid(_) => ErrorCode::InvalidRequest,
        }
    }
}

impl From<AnswerError> for CodedError {
    fn from(error: AnswerError) -> Self {
        error.code().with(error.to_string())
    }
}

impl Session {
    /// The questions that wait, oldest first.
    pub fn open_questions(&self) -> impl Iterator<Item = &OpenQuestion> {
        self.questions.iter()
    }

    /// What this answer says to whoever asked, if it is one to an open question. Nothing is settled yet.
    pub fn answered_by(
        &self,
        now: i64,
        response: &InputResponseParams,
    ) -> Result<SettledAnswer, AnswerError> {
        let question = self.find_question(now, &response.request_id)?;
        let (answer, decision) = check_answer(question, response)?;
        let (details, reason) = (question.details.clone(), response.reason.clone());
        Ok(SettledAnswer { answer, decision, details, reason })
    }

    /// Checks an answer and settles its question. What is returned is for whoever asked.
    pub fn answer(
        &mut self,
        now: i64,
        response: &InputResponseParams,
        user_id: Option<&str>,
        out: &mut EventWriter,
    ) -> Result<SettledAnswer, AnswerError> {
        let answered = self.answered_by(now, response)?;
        let id = &response.request_id;
        let kept_answer = answer_text::kept(self.find_question(now, id)?, &answered.answer, response);
        if answered.decision == Some(Decision::ApproveForSession)
            && let Some(allowance) = answered.details.as_ref().and_then(Allowance::of)
        {
            self.allow(allowance);
        }
        let outcome = match answered.answer {
            QuestionAnswer::Cancelled => InputOutcome::Cancelled,
            QuestionAnswer::TimedOut => InputOutcome::TimedOut,
            QuestionAnswer::Value(_) | QuestionAnswer::Confirmed(_) | QuestionAnswer::Responses(_) => {
                InputOutcome::Answered
            }
        };
        let actor = response.actor.as_deref();
        let by = SettledBy { user_id, decision: answered.decision, actor, answer: kept_answer };
        self.settle_question(now, id, outcome, by, out);
        Ok(answered)
    }

    fn find_question(&self, now: i64, id: &str) -> Result<&OpenQuestion, AnswerError> {
        let Some(question) = self.questions.iter().find(|question| question.request.request_id() == id)
        else {
            return Err(if self.settled_questions.iter().any(|settled| settled == id) {
                AnswerError::AlreadyAnswered(id.to_owned())
            } else {
                AnswerError::Unknown(id.to_owned())
            });
        };
        if question.deadline.is_some_and(|at| at <= now) {
            // Its timer is about to settle it; the agent may have given up already.
            return Err(AnswerError::TimedOut(id.to_owned()));
        }
        Ok(question)
    }

    /// The terminal shows nothing of what is typed now: what answers this question of its screen is not recorded.
    pub fn mark_secret(&mut self, request_id: &str) {
        let is_it = |open: &&mut OpenQuestion| {
            open.source == PermissionSource::Screen && open.request.request_id() == request_id
        };
        if let Some(question) = self.questions.iter_mut().find(is_it) {
            question.is_secret = true;
        }
    }

    /// What this answer would let through: the details of an open question of a gate, where it is an approval.
    pub fn gate_let_through(&self, response: &InputResponseParams) -> Option<&PermissionDetails> {
        let question = self.gates().find(|gate| gate.request.request_id() == response.request_id)?;
        let (_, decision) = check_answer(question, response).ok()?;
        question.details.as_ref().filter(|_| decision.is_some_and(Decision::is_approval))
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
    /// up by itself by now. Calls at the gate are kept for [`Session::take_timed_out_gates`].
    pub fn expire_questions(&mut self, now: i64, out: &mut EventWriter) -> Vec<(String, QuestionAnswer)> {
        let is_over = |question: &OpenQuestion| question.deadline.is_some_and(|at| at <= now);
        let expired: Vec<OpenQuestion> =
            self.questions.iter().filter(|question| is_over(question)).cloned().collect();
        let mut told = Vec::new();
        for OpenQuestion { request, source, details, .. } in expired {
            let id = request.request_id().to_owned();
            self.settle_question(now, &id, InputOutcome::TimedOut, SettledBy::default(), out);
            let answer = match request {
                _ if source != PermissionSource::Agent => None,
                _ if self.question_timeout_ms.is_some() => Some(QuestionAnswer::TimedOut),
                // Agents have no timers for these: they would stay open on the other side.
                InputRequest::Editor { .. } | InputRequest::Interview { .. } => {
                    Some(QuestionAnswer::Cancelled)
                }
                InputRequest::Select { .. }
                | InputRequest::Confirm { .. }
                | InputRequest::Input { .. }
                | InputRequest::Permission { .. } => None,
            };
            match (source, details) {
                (PermissionSource::Gate, Some(details)) => self.timed_out_gates.push((id, details)),
                _ => told.extend(answer.map(|answer| (id, answer))),
            }
        }
        told
    }

    /// Questions that were not taken because too many are open; the agent must hear that nobody will answer them.
    pub fn take_refused_questions(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refused_questions)
    }

    /// The ids of all open questions of the agent, for a driver that must cancel them before it aborts.
    pub fn open_question_ids(&self) -> Vec<String> {
        self.ids_from(|source| source == PermissionSource::Agent)
    }

    /// Settles every question that the agent or the screen asked: nobody will hear an answer any more. Calls at the
    /// gate wait on.
    pub fn withdraw_questions(&mut self, now: i64, out: &mut EventWriter) {
        self.withdraw_from(now, PermissionSource::Agent, out);
        self.withdraw_from(now, PermissionSource::Screen, out);
    }

    pub(super) fn withdraw_from(&mut self, now: i64, source: PermissionSource, out: &mut EventWriter) {
        for id in self.ids_from(|asker| asker == source) {
            self.settle_question(now, &id, InputOutcome::Withdrawn, SettledBy::default(), out);
        }
    }

    fn ids_from(&self, is_meant: impl Fn(PermissionSource) -> bool) -> Vec<String> {
        let meant = self.questions.iter().filter(|question| is_meant(question.source));
        meant.map(|question| question.request.request_id().to_owned()).collect()
    }

    /// A question of the agent.
    pub(super) fn ask(&mut self, now: i64, mut request: InputRequest, out: &mut EventWriter) {
        if self.is_open_question(request.request_id()) {
            return;
        }
        let from_agent =
            self.questions.iter().filter(|question| question.source == PermissionSource::Agent).count();
        if from_agent >= QUESTIONS_MAX {
            return self.refused_questions.push(request.request_id().to_owned());
        }
        gate::disown(&mut request);
        let timeout = [request.timeout_ms(), self.question_timeout_ms].into_iter().flatten().min();
        show_timeout(&mut request, timeout);
        let deadline = timeout.and_then(|timeout| now.checked_add(i64::try_from(timeout).ok()?));
        let source = PermissionSource::Agent;
        self.open_question(
            now,
            OpenQuestion {
                request,
                asked_at: now,
                deadline,
                source,
                details: None,
                asked_seq: None,
                is_secret: false,
            },
            out,
        );
    }

    /// What a terminal's screen asks; there is one at a time.
    pub(super) fn ask_screen(
        &mut self,
        now: i64,
        request: InputRequest,
        details: PermissionDetails,
        is_secret: bool,
        out: &mut EventWriter,
    ) {
        let (source, details) = (PermissionSource::Screen, Some(details));
        self.open_question(
            now,
            OpenQuestion {
                request,
                asked_at: now,
                deadline: None,
                source,
                details,
                asked_seq: None,
                is_secret,
            },
            out,
        );
    }

    pub(super) fn open_question(&mut self, now: i64, mut question: OpenQuestion, out: &mut EventWriter) {
        self.show_question(now, &question.request, out);
        let request = question.request.clone();
        self.emit(now, &Event::AgentInputNeeded { request }, out);
        question.asked_seq = Some(self.memory.last_seq);
        self.questions.push(question);
    }

    /// The records of questions that were settled since the last time somebody asked: their secrets are not needed any
    /// more.
    pub fn take_settled_records(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.settled_records)
    }

    /// Whether this question waits for its answer.
    pub fn is_open_question(&self, id: &str) -> bool {
        self.questions.iter().any(|question| question.request.request_id() == id)
    }

    /// Open, or settled not long ago.
    pub(super) fn is_known_question(&self, id: &str) -> bool {
        self.is_open_question(id) || self.settled_questions.iter().any(|settled| settled == id)
    }

    pub(super) fn settle_question(
        &mut self,
        now: i64,
        id: &str,
        outcome: InputOutcome,
        by: SettledBy<'_>,
        out: &mut EventWriter,
    ) {
        let is_on_screen =
            |open: &OpenQuestion| open.source == PermissionSource::Screen && open.request.request_id() == id;
        if self.questions.iter().any(is_on_screen) {
            self.clear_awaiting();
        }
        let position = self.questions.iter().position(|question| question.request.request_id() == id);
        let asked_seq = position.and_then(|position| self.questions.remove(position).asked_seq);
        if self.settled_questions.len() == SETTLED_MAX {
            self.settled_questions.pop_front();
        }
        self.settled_questions.push_back(id.to_owned());
        self.show_settled(now, id, outcome, out);
        let event = Event::AgentInputResolved {
            request_id: id.to_owned(),
            outcome: Some(outcome),
            user_id: by.user_id.map(str::to_owned),
            decision: by.decision,
            actor: by.actor.map(str::to_owned),
            asked_seq,
            answer: by.answer,
        };
        self.settled_records.extend(asked_seq);
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
        | InputRequest::Interview { timeout, .. }
        | InputRequest::Permission { timeout, .. } => *timeout = effective,
    }
}

/// What the answer says, and how it decides a permission.
fn check_answer(
    question: &OpenQuestion,
    response: &InputResponseParams,
) -> Result<(QuestionAnswer, Option<Decision>), AnswerError> {
    let is_permission = matches!(question.request, InputRequest::Permission { .. });
    if response.cancelled == Some(true) {
        // Who asks at a gate must know: what was not approved is denied.
        let decision = (question.source == PermissionSource::Gate).then_some(Decision::Deny);
        return Ok((QuestionAnswer::Cancelled, decision));
    }
    if question.source == PermissionSource::Screen
        && response.value.as_ref().is_some_and(|value| value.contains(char::is_control))
    {
        // It is typed as it stands: another line would answer what comes next, and keys would do what keys do.
        let reason =
            "The answer is one line of text and must not contain control characters; Enter is typed after it";
        return Err(AnswerError::Invalid(reason.to_owned()));
    }
    if is_permission {
        check_permission(question, response)
    } else {
        Ok((check_value(question, response)?, None))
    }
}

/// `decision` goes before `confirmed`. For the session is only what a gate asks: of an agent's own question nobody but
/// the agent knows what it is for.
fn check_permission(
    question: &OpenQuestion,
    response: &InputResponseParams,
) -> Result<(QuestionAnswer, Option<Decision>), AnswerError> {
    let choices = question.details.as_ref().map_or(&[][..], |details| &details.choices);
    let decision = match (response.decision, &response.value, response.confirmed) {
        (Some(Decision::ApproveForSession), _, _) if question.source != PermissionSource::Gate => {
            Decision::Approve
        }
        (Some(decision), _, _) => decision,
        (None, Some(value), _) if choices.iter().any(|choice| choice.label == *value) => {
            return Ok((QuestionAnswer::Value(value.clone()), None));
        }
        (None, _, Some(true)) => Decision::Approve,
        (None, _, Some(false)) => Decision::Deny,
        (None, _, None) => {
            let reason = "This question needs 'decision' (approve, deny, approve_for_session or abort) or \
                          'confirmed': true or false (or cancelled: true)";
            return Err(AnswerError::Invalid(reason.to_owned()));
        }
    };
    Ok((QuestionAnswer::Confirmed(decision.is_approval()), Some(decision)))
}

fn check_value(
    question: &OpenQuestion,
    response: &InputResponseParams,
) -> Result<QuestionAnswer, AnswerError> {
    let invalid = |reason: &str| Err(AnswerError::Invalid(reason.to_owned()));
    match &question.request {
        InputRequest::Select { options, .. } => match &response.value {
            Some(value) if options.contains(value) => Ok(QuestionAnswer::Value(value.clone())),
            Some(value) => Err(AnswerError::Invalid(format!(
                "'{value}' is not one of the options: {}",
                options.join(", ")
            ))),
            None => invalid("This question needs 'value': one of its options (or cancelled: true)"),
        },
        InputRequest::Confirm { .. } | InputRequest::Permission { .. } => match response.confirmed {
            Some(confirmed) => Ok(QuestionAnswer::Confirmed(confirmed)),
            None => invalid("This question needs 'confirmed': true or false (or cancelled: true)"),
        },
        InputRequest::Input { .. } | InputRequest::Editor { .. } => match &response.value {
            Some(value) => Ok(QuestionAnswer::Value(value.clone())),
            None => invalid("This question needs 'value': a text (or cancelled: true)"),
        },
        InputRequest::Interview { questions, .. } => match &response.responses {
            Some(responses) => match interview::check(questions, responses) {
                Ok(()) => Ok(QuestionAnswer::Responses(responses.clone())),
                Err(error) => Err(error),
            },
            None => invalid("This question needs 'responses': the answers by id (or cancelled: true)"),
        },
    }
}
