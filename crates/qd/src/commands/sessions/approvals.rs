//! `qd approvals`.

use qd_wire::InputRequest;
use qd_wire::data::SessionSummary;
use serde_json::json;

use crate::arguments::ApprovalsArguments;
use crate::client::connection;
use crate::client::questions;
use crate::error::Result;
use crate::output::{Output, harmless, one_line};
use crate::settings::Settings;

const QUESTION_CHARACTERS_MAX: usize = 100;

/// Prints every question that waits.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: ApprovalsArguments) -> Result<()> {
    let connection = connection::connect(settings, output).await?;
    let waiting = connection.sessions().await?;
    let waiting = waiting.into_iter().filter(|session| session.pending_input_count > 0);
    let mut is_any = false;
    for session in waiting {
        let state = connection.session_state(&session.session_id).await?;
        for question in &state.pending_input {
            is_any = true;
            if output.json {
                output.json_line(&json!({"session_id": session.session_id, "request": question}))?;
            } else {
                output.out(&text(output, &session, question, arguments.full))?;
            }
        }
    }
    if !is_any && !output.json {
        output.note("no open questions\n");
    }
    Ok(())
}

fn text(output: &Output, session: &SessionSummary, question: &InputRequest, full: bool) -> String {
    let head = harmless(&format!("{} {}", session.session_id, question.request_id()));
    if full {
        return format!("{}\n{}", output.style.bold(&head), questions::question_text(question, output.style));
    }
    format!("{head}  {}\n", one_line(question.title(), QUESTION_CHARACTERS_MAX))
}
