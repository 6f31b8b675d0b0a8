//! `qd approve` and `qd deny`.

use qd_link::client::{ClientRequest, MuxClient};
use qd_wire::command::InputResponseParams;
use qd_wire::run::Decision;
use qd_wire::{Command, InputRequest};

use crate::approval::{self, Given};
use crate::arguments::{ApproveArguments, DenyArguments};
use crate::error::CliError;
use crate::output::{Output, Style};
use crate::server::{self, Connection};
use crate::settings::Settings;

pub(crate) async fn approve(
    settings: &Settings,
    output: &Output,
    arguments: ApproveArguments,
) -> Result<(), CliError> {
    let Connection { client, frames: _frames, .. } = server::connect(settings, output).await?;
    let session_id = server::resolve_session(&client, Some(&arguments.session)).await?;
    let request = find(&client, &session_id, arguments.request.as_deref()).await?;
    if arguments.for_session {
        let answer = InputResponseParams {
            request_id: request.request_id().to_owned(),
            decision: Some(Decision::ApproveForSession),
            actor: Some("cli".to_owned()),
            ..InputResponseParams::default()
        };
        return send(&client, output, &session_id, &request, answer, "approved for the session").await;
    }
    let given = Given {
        value: arguments.value.as_deref(),
        answers: arguments.answers.as_deref(),
        pairs: &arguments.answer,
    };
    let answer = approval::approval(&request, given).map_err(|problem| {
        let words = match request {
            InputRequest::Interview { .. } => "--answer KEY=VALUE …",
            _ => "--value VALUE",
        };
        // Who does not say what cannot have read the question.
        CliError::usage(format!("{problem}\n{}", approval::show(&request, Style::PLAIN).trim_end()))
            .hint(format!("qd approve {session_id} {} {words}", request.request_id()))
    })?;
    send(&client, output, &session_id, &request, answer, "approved").await
}

pub(crate) async fn deny(
    settings: &Settings,
    output: &Output,
    arguments: DenyArguments,
) -> Result<(), CliError> {
    let Connection { client, frames: _frames, .. } = server::connect(settings, output).await?;
    let session_id = server::resolve_session(&client, Some(&arguments.session)).await?;
    let request = find(&client, &session_id, arguments.request.as_deref()).await?;
    let refusal = InputResponseParams { reason: arguments.reason, ..approval::refusal(&request) };
    send(&client, output, &session_id, &request, refusal, "denied").await
}

async fn send(
    client: &MuxClient,
    output: &Output,
    session_id: &str,
    question: &InputRequest,
    answer: InputResponseParams,
    done: &str,
) -> Result<(), CliError> {
    let sentence = format!("{done} {} of {session_id}", answer.request_id);
    let request = ClientRequest::session(session_id, Command::InputResponse(answer));
    let response = super::succeed(client, &request).await?;
    if !output.json {
        output.out(&approval::show(question, output.style))?;
    }
    super::report(output, &response, &sentence)
}

async fn find(client: &MuxClient, session_id: &str, name: Option<&str>) -> Result<InputRequest, CliError> {
    let state = server::state(client, session_id).await?;
    choose(&state.pending_input, session_id, name)
}

/// The question meant by `name`, or the only one.
fn choose(pending: &[InputRequest], session_id: &str, name: Option<&str>) -> Result<InputRequest, CliError> {
    let ids: Vec<&str> = pending.iter().map(InputRequest::request_id).collect();
    let id = match (name, ids.as_slice()) {
        (_, []) => {
            return Err(CliError::failed(format!("no question waits in {session_id}"))
                .hint("it may have been answered already; `qd ls --waiting` shows what waits"));
        }
        (Some(name), _) => {
            server::resolve(&ids, name, "question", &format!("open ones: {}", ids.join(", ")))?
        }
        (None, [only]) => only,
        (None, several) => {
            let shown = approval::show_all(pending, session_id, Style::PLAIN);
            return Err(CliError::usage(format!(
                "{} questions wait in {session_id}:\n{}",
                several.len(),
                shown.trim_end()
            ))
            .hint(format!("name one: {}", several.join(", "))));
        }
    };
    let found = pending.iter().find(|request| request.request_id() == id);
    found.cloned().ok_or_else(|| CliError::failed(format!("no question is called '{id}'")))
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
        assert_eq!(choose(&two[..1], "s", None).unwrap(), two[0]);
        assert_eq!(choose(&two, "s", Some("q2")).unwrap(), two[1]);
        assert!(choose(&two, "s", None).unwrap_err().hint.unwrap().contains("q1, q2"));
        assert!(choose(&two, "s", Some("q")).is_err());
        assert!(choose(&[], "s", None).unwrap_err().message.contains("no question"));
    }
}
