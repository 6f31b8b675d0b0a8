//! `qd approve` and `qd deny`.
//!
//! The question is read again before it is answered and shown with the answer, so that a person who answers from
//! memory sees what they have decided.

use qd_wire::command::InputResponseParams;
use qd_wire::run::Decision;
use qd_wire::{Command, InputRequest};

use crate::arguments::{ApproveArguments, DenyArguments};
use crate::client::connection::{self, Connection};
use crate::client::questions::{self, GivenAnswer};
use crate::client::sessions::resolve_name;
use crate::error::{CliError, Result};
use crate::output::{Output, Style};
use crate::settings::Settings;

pub(crate) async fn approve(settings: &Settings, output: &Output, arguments: ApproveArguments) -> Result<()> {
    let (connection, session_id, request) =
        open_question(settings, output, &arguments.session, arguments.request.as_deref()).await?;
    if arguments.for_session {
        let answer = InputResponseParams {
            decision: Some(Decision::ApproveForSession),
            actor: Some("cli".to_owned()),
            ..questions::response_to(&request)
        };
        return send(&connection, output, &session_id, &request, answer, "approved for the session").await;
    }
    let given = GivenAnswer {
        value: arguments.value.as_deref(),
        answers: arguments.answers.as_deref(),
        pairs: &arguments.answer,
    };
    let answer = questions::approval_of(&request, given).map_err(|problem| {
        let words = match request {
            InputRequest::Interview { .. } => "--answer KEY=VALUE …",
            _ => "--value VALUE",
        };
        // Who does not say what cannot have read the question.
        CliError::usage(format!("{problem}\n{}", questions::question_text(&request, Style::PLAIN).trim_end()))
            .hint(format!("qd approve {session_id} {} {words}", request.request_id()))
    })?;
    send(&connection, output, &session_id, &request, answer, "approved").await
}

pub(crate) async fn deny(settings: &Settings, output: &Output, arguments: DenyArguments) -> Result<()> {
    let (connection, session_id, request) =
        open_question(settings, output, &arguments.session, arguments.request.as_deref()).await?;
    let refusal = InputResponseParams { reason: arguments.reason, ..questions::refusal_of(&request) };
    send(&connection, output, &session_id, &request, refusal, "denied").await
}

/// A connection, the session and its question that are named.
async fn open_question(
    settings: &Settings,
    output: &Output,
    session: &str,
    question: Option<&str>,
) -> Result<(Connection, String, InputRequest)> {
    let (connection, session_id) = connection::connect_to(settings, output, Some(session)).await?;
    let pending = connection.session_state(&session_id).await?.pending_input;
    let request = choose_question(&pending, &session_id, question)?;
    Ok((connection, session_id, request))
}

async fn send(
    connection: &Connection,
    output: &Output,
    session_id: &str,
    question: &InputRequest,
    answer: InputResponseParams,
    done: &str,
) -> Result<()> {
    let sentence = format!("{done} {} of {session_id}", answer.request_id);
    let response = super::call(&connection.client, session_id, Command::InputResponse(answer)).await?;
    // Somebody who answers without looking sees at least now what the question was.
    if !output.json {
        output.out(&questions::question_text(question, output.style))?;
    }
    output.report(&response, &sentence)
}

/// The question meant by `name`, or the only one.
fn choose_question(pending: &[InputRequest], session_id: &str, name: Option<&str>) -> Result<InputRequest> {
    let ids: Vec<&str> = pending.iter().map(InputRequest::request_id).collect();
    let id = match (name, ids.as_slice()) {
        (_, []) => {
            return Err(CliError::failed(format!("session {session_id} has no open question"))
                .hint("it may already be answered; `qd ls --waiting` lists open questions"));
        }
        (Some(name), _) => resolve_name(&ids, name, "question", &format!("open ones: {}", ids.join(", ")))?,
        (None, [only]) => only,
        (None, several) => {
            let shown = questions::questions_text(pending, session_id, Style::PLAIN);
            return Err(CliError::usage(format!(
                "{} questions wait in {session_id}:\n{}",
                several.len(),
                shown.trim_end()
            ))
            .hint(format!("name one: {}", several.join(", "))));
        }
    };
    let found = pending.iter().find(|request| request.request_id() == id);
    found.cloned().ok_or_else(|| CliError::failed(format!("there is no open question '{id}'")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_only_question_needs_no_name() {
        let confirm = |id: &str| -> InputRequest {
            serde_json::from_value(json!({"type":"confirm","request_id":id,"title":id,"message":"m"}))
                .unwrap()
        };
        let two = [confirm("q1"), confirm("q2")];
        assert_eq!(choose_question(&two[..1], "s", None).unwrap(), two[0]);
        assert_eq!(choose_question(&two, "s", Some("q2")).unwrap(), two[1]);
        assert!(choose_question(&two, "s", None).unwrap_err().hint.unwrap().contains("q1, q2"));
        assert!(choose_question(&two, "s", Some("q")).is_err());
        assert!(choose_question(&[], "s", None).unwrap_err().message.contains("no open question"));
    }
}
