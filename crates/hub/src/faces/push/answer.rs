//! Answers that come from a notification, with the token that was in its push.

use std::sync::Arc;

use qd_link::clock::now_ms;
use qd_store::StoreError;
use qd_wire::command_table::CommandName;
use qd_wire::push::PushDecision;
use qd_wire::{CodedError, ErrorCode};

use super::deliver::{alive_after, rights_of};
use super::questions::AnswerTicket;
use crate::access::authenticate::hash;
use crate::access::principals::Principal;
use crate::command::Command;
use crate::hub::Hub;
use crate::rest::commands::ask_and_wait;

/// How it was answered, in the records of the session.
const ACTOR: &str = "push";

/// What became of an answer.
pub(crate) enum AnswerResult {
    Done {
        session_id: Arc<str>,
        request_id: Arc<str>,
    },
    /// The token is unknown, used up, or its question is open no more.
    Over,
    Denied(CodedError),
    /// The session did not take it.
    Refused(CodedError),
    /// Nobody can know whether it arrived, or it can be tried again.
    Failed(CodedError),
}

/// Answers a question for the person whose push had the token, if they may still do so.
pub(crate) async fn answer(hub: &Arc<Hub>, token: &str, decision: PushDecision) -> AnswerResult {
    let hash = hash(token);
    let Some(ticket) = hub.faces.push.questions.take(&hash, now_ms()) else { return AnswerResult::Over };
    let principal = match principal_of(hub, &ticket).await {
        Ok(Ok(principal)) => principal,
        Ok(Err(error)) => return denied(hub, &ticket, error).await,
        Err(error) => {
            hub.faces.push.questions.give_back(hash, ticket);
            let error = ErrorCode::StoreUnavailable.with(format!("The hub cannot use its store: {error}"));
            return AnswerResult::Failed(error);
        }
    };
    let command = Command::new(CommandName::InputResponse)
        .on(&*ticket.key.session_id)
        .with("request_id", &*ticket.key.request_id)
        .with("decision", decision.as_str())
        .with("actor", ACTOR);
    let answer = ask_and_wait(hub, &principal, command).await;
    if answer.success {
        let key = ticket.key;
        return AnswerResult::Done { session_id: key.session_id, request_id: key.request_id };
    }
    let error = answer.reason();
    if error.code == ErrorCode::PermissionDenied {
        return denied(hub, &ticket, error).await;
    }
    let over = [ErrorCode::QuestionNotFound, ErrorCode::QuestionAnswered, ErrorCode::QuestionTimedOut];
    if over.contains(&error.code) {
        return AnswerResult::Refused(error);
    }
    // The runner takes one answer to a question: sending it again can do no harm.
    hub.faces.push.questions.give_back(hash, ticket);
    AnswerResult::Failed(error)
}

/// Somebody had a token and may not answer with it: the audit knows.
async fn denied(hub: &Hub, ticket: &AnswerTicket, error: CodedError) -> AnswerResult {
    let summary = format!("answer to {} of {} refused", ticket.key.request_id, ticket.key.session_id);
    let principal = Some(&*ticket.principal);
    hub.note_action("push", principal, Some(false), summary).await;
    AnswerResult::Denied(error)
}

/// Who the token was made for, if the browser is still theirs; else why not. What they may do is checked like any
/// other command.
async fn principal_of(hub: &Hub, ticket: &AnswerTicket) -> Result<Result<Principal, CodedError>, StoreError> {
    let gone = || {
        let error = "Permission denied: this browser is not logged in any more; log in again";
        Err(ErrorCode::PermissionDenied.with(error))
    };
    let subscription = hub.store.push_subscription(&ticket.subscription_id, alive_after(hub)).await?;
    if subscription.is_none_or(|subscription| subscription.principal != ticket.principal) {
        return Ok(gone());
    }
    let Some(rights) = rights_of(hub, &ticket.principal).await? else { return Ok(gone()) };
    Ok(Ok(Principal::lasting(&ticket.principal, rights.role)))
}
