//! The questions that are open, who was told of them, and the tokens with which they can be answered from a push. All of
//! it is in memory: after a restart a runner says which questions are open, and people are told again.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use qd_link::mutex::Mutex;
use qd_wire::InputRequest;
use qd_wire::push::PushTopic;
use qd_wire::run::{PermissionDetails, PermissionSource};

use crate::access::authenticate::{Hash, hash};

/// Questions that are kept at a time. Beyond, new ones are not told of: nobody can answer so many.
const QUESTIONS_MAX: usize = 4096;
/// 120 bits: questions with the same tag would replace each other's notification.
const TAG_BYTES: usize = 15;

/// Which question: its session and its own id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct QuestionKey {
    pub(super) session_id: Arc<str>,
    pub(super) request_id: Arc<str>,
}

impl QuestionKey {
    /// Short, whatever agents call their questions.
    pub(super) fn tag(&self) -> String {
        let digest = hash(&format!("{}\n{}", self.session_id, self.request_id));
        format!("question:{}", URL_SAFE_NO_PAD.encode(&digest[..TAG_BYTES]))
    }
}

#[derive(Debug, Clone)]
pub(super) struct OpenQuestion {
    pub(super) request: Arc<InputRequest>,
    /// Unix milliseconds.
    pub(super) expires_at: Option<i64>,
    /// The subscriptions that were told.
    pub(super) told: Vec<String>,
}

impl OpenQuestion {
    pub(super) fn topic(&self) -> PushTopic {
        match *self.request {
            InputRequest::Permission { .. } => PushTopic::Approval,
            InputRequest::Select { .. }
            | InputRequest::Confirm { .. }
            | InputRequest::Input { .. }
            | InputRequest::Editor { .. }
            | InputRequest::Interview { .. } => PushTopic::Question,
        }
    }

    /// Whether yes and no are answers. Where a screen asks, they are only if it is known what to type for them.
    pub(super) fn takes_yes_or_no(&self) -> bool {
        let InputRequest::Permission { metadata, .. } = &*self.request else { return false };
        let details = metadata.as_ref();
        let details =
            details.and_then(|value| serde_json::from_value::<PermissionDetails>(value.clone()).ok());
        details.is_none_or(|details| {
            details.source != PermissionSource::Screen
                || details.approve_text.is_some() && details.deny_text.is_some()
        })
    }
}

/// What a token is good for.
#[derive(Debug, Clone)]
pub(crate) struct AnswerTicket {
    pub(super) key: QuestionKey,
    pub(super) principal: String,
    pub(super) subscription_id: String,
}

#[derive(Default)]
pub(super) struct OpenQuestions(Mutex<OpenQuestionTable>);

#[derive(Default)]
struct OpenQuestionTable {
    open: HashMap<QuestionKey, OpenQuestion>,
    tickets: HashMap<Hash, AnswerTicket>,
}

impl OpenQuestions {
    /// A question was asked; `None` if that is no news.
    pub(super) fn open(
        &self,
        session_id: &Arc<str>,
        request: Arc<InputRequest>,
        now: i64,
    ) -> Option<QuestionKey> {
        let key = key_of(session_id, request.request_id());
        let life = request.timeout_ms().and_then(|timeout| i64::try_from(timeout).ok());
        let question =
            OpenQuestion { request, expires_at: life.map(|life| now.saturating_add(life)), told: Vec::new() };
        let mut state = self.0.lock();
        if state.open.contains_key(&key) {
            return None;
        }
        if state.open.len() >= QUESTIONS_MAX {
            tracing::warn!(session = %session_id, "too many questions are open; nobody is pushed for this one");
            return None;
        }
        state.open.insert(key.clone(), question);
        Some(key)
    }

    /// It needs no answer any more. Gives what was known of it.
    pub(super) fn close(
        &self,
        session_id: &Arc<str>,
        request_id: &str,
    ) -> Option<(QuestionKey, OpenQuestion)> {
        let key = key_of(session_id, request_id);
        let mut state = self.0.lock();
        let question = state.open.remove(&key)?;
        // Under the same lock, so that no token outlives its question.
        state.tickets.retain(|_, ticket| ticket.key != key);
        Some((key, question))
    }

    /// The ids of a session's open questions.
    pub(super) fn ids_of(&self, session_id: &str) -> Vec<Arc<str>> {
        let state = self.0.lock();
        let of_session = state.open.keys().filter(|key| &*key.session_id == session_id);
        of_session.map(|key| Arc::clone(&key.request_id)).collect()
    }

    /// The question, while it is open and waited for.
    pub(super) fn get(&self, key: &QuestionKey, now: i64) -> Option<OpenQuestion> {
        let state = self.0.lock();
        let question = state.open.get(key)?;
        (question.expires_at.is_none_or(|end| now < end)).then(|| question.clone())
    }

    /// A subscription is being told, with a token or without. False if the question is open no more, or it was told.
    pub(super) fn note_notified(
        &self,
        key: &QuestionKey,
        subscription_id: &str,
        token: Option<(Hash, AnswerTicket)>,
    ) -> bool {
        let mut state = self.0.lock();
        let Some(question) = state.open.get_mut(key) else { return false };
        if question.told.iter().any(|told| told == subscription_id) {
            return false;
        }
        question.told.push(subscription_id.to_owned());
        state.tickets.extend(token);
        true
    }

    /// Takes what a token is good for; it is good for nothing then. The browser it is from has closed its notification
    /// itself, and need not be told of the answer.
    pub(super) fn take(&self, hash: &Hash, now: i64) -> Option<AnswerTicket> {
        let mut state = self.0.lock();
        let ticket = state.tickets.remove(hash)?;
        let question = state.open.get_mut(&ticket.key)?;
        question.told.retain(|told| *told != ticket.subscription_id);
        question.expires_at.is_none_or(|end| now < end).then_some(ticket)
    }

    /// The answer did not arrive: the token stays good as long as its question is open.
    pub(super) fn give_back(&self, hash: Hash, ticket: AnswerTicket) {
        let mut state = self.0.lock();
        if let Some(question) = state.open.get_mut(&ticket.key) {
            question.told.push(ticket.subscription_id.clone());
            state.tickets.insert(hash, ticket);
        }
    }
}

fn key_of(session_id: &Arc<str>, request_id: &str) -> QuestionKey {
    QuestionKey { session_id: Arc::clone(session_id), request_id: Arc::from(request_id) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn permission(timeout: Option<u64>) -> InputRequest {
        let (request_id, title) = ("q".to_owned(), "t".to_owned());
        InputRequest::Permission { request_id, title, description: None, metadata: None, timeout }
    }

    fn ticket(key: &QuestionKey) -> AnswerTicket {
        AnswerTicket { key: key.clone(), principal: "alice".into(), subscription_id: "s1".into() }
    }

    #[test]
    fn a_token_is_good_once_and_while_its_question_is_open() {
        let (questions, session) = (OpenQuestions::default(), Arc::from("s"));
        let key = questions.open(&session, Arc::new(permission(Some(100))), 1000).unwrap();
        assert!(questions.open(&session, Arc::new(permission(None)), 1000).is_none(), "known already");
        assert!(questions.note_notified(&key, "s1", Some(([1; 32], ticket(&key)))));
        assert!(!questions.note_notified(&key, "s1", Some(([2; 32], ticket(&key)))), "told already");
        assert!(questions.take(&[2; 32], 1000).is_none());
        let taken = questions.take(&[1; 32], 1050).unwrap();
        assert!(questions.take(&[1; 32], 1050).is_none());
        questions.give_back([1; 32], taken);
        assert!(questions.take(&[1; 32], 1100).is_none(), "nobody waits any more");

        questions.close(&session, "q").unwrap();
        let key = questions.open(&session, Arc::new(permission(None)), 1000).unwrap();
        questions.note_notified(&key, "s1", Some(([1; 32], ticket(&key))));
        let (_, closed) = questions.close(&session, "q").unwrap();
        assert_eq!(closed.told, ["s1"]);
        assert!(questions.take(&[1; 32], 1000).is_none());
        questions.give_back([1; 32], ticket(&key));
        assert!(questions.take(&[1; 32], 1000).is_none());
        assert!(!questions.note_notified(&key, "s2", None));
        assert!(questions.0.lock().tickets.is_empty());
    }

    #[test]
    fn yes_and_no_are_answers_to_permissions_only() {
        let (questions, session) = (OpenQuestions::default(), Arc::from("s"));
        let takes = |request: InputRequest| {
            let request_id = request.request_id().to_owned();
            let key = questions.open(&session, Arc::new(request), 0).unwrap();
            let question = questions.get(&key, 0).unwrap();
            questions.close(&session, &request_id);
            (question.topic(), question.takes_yes_or_no())
        };
        assert_eq!(takes(permission(None)), (PushTopic::Approval, true));
        let with = |metadata| {
            let InputRequest::Permission { request_id, title, .. } = permission(None) else { unreachable!() };
            InputRequest::Permission {
                request_id,
                title,
                description: None,
                metadata: Some(metadata),
                timeout: None,
            }
        };
        let screen = json!({"source":"screen","reason":"permission"});
        assert_eq!(takes(with(screen.clone())), (PushTopic::Approval, false));
        let mut typed = screen;
        typed["approve_text"] = json!("y\r");
        typed["deny_text"] = json!("n\r");
        assert_eq!(takes(with(typed)), (PushTopic::Approval, true));
        let (request_id, title) = ("c".to_owned(), "t".to_owned());
        let confirm = InputRequest::Confirm { request_id, title, message: String::new(), timeout: None };
        assert_eq!(takes(confirm), (PushTopic::Question, false));
    }
}
