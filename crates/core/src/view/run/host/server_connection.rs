//! Our runner as a host of the run document, towards a server that others wrote: what the runner says over its link
//! becomes messages of the document, what the server says becomes lines for the runner.
//!
//! Towards the runner this plays the hub. The server's acks are believed as far as events were sent: the original acks
//! each event by its own number, and one that acks more than it was sent must not make us forget the rest. Every
//! record becomes exactly one numbered event, so that a server which waits for each number waits for none in vain.

use std::collections::HashMap;

use qd_wire::ErrorCode;
use qd_wire::link::{LinkLine, RunnerHello, RunnerWelcome, WelcomeSession};
use qd_wire::run_protocol::{AckData, Envelope};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::SessionKind;
use super::super::answer::{RunAnswer, complaint, refused, response};
use super::super::event::show;
use super::super::record::Record;
use super::super::request::{AppRequest, CommandTarget, RunCommand, read};
use crate::time::iso_8601;

/// Commands of the server that the runner may have to answer at once.
pub const COMMANDS_MAX: usize = 1024;
/// Who the runner is told commands are from. What a server lets its people do is its own affair; here they may do what
/// an operator may, and are asked at every gate. Its connection has the same name, as no connection of a hub has.
pub const PRINCIPAL: &str = "run-server";

/// One connection to a server.
#[derive(Debug)]
pub struct ServerConnection {
    host_id: String,
    runs: HashMap<String, SentRun>,
    /// Commands the runner has not answered, by the name they have on its link.
    commands: HashMap<String, ForwardedCommand>,
    last_command: u64,
}

#[derive(Debug, Clone, Copy)]
struct SentRun {
    kind: SessionKind,
    /// The last record that was sent, on this connection or before.
    seq: u64,
    acked: u64,
}

#[derive(Debug)]
struct ForwardedCommand {
    command: Box<RunCommand>,
    /// It was refused in its first form already.
    is_second: bool,
}

/// What is to be sent: messages to the server, lines (with their ends) to the runner.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TranslatedLines {
    pub to_server: Vec<String>,
    pub to_runner: String,
    /// A run and how far the server has it, where that is news.
    pub acked: Option<(String, u64)>,
}

/// An answer of the runner, as far as it is read.
#[derive(Deserialize)]
struct RunnerResponse<'a> {
    id: String,
    session_id: Option<String>,
    #[serde(default)]
    success: bool,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    error: Option<String>,
    code: Option<ErrorCode>,
}

#[derive(Deserialize)]
struct LineHead<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
struct CreatedBody {
    harness: String,
}

impl ServerConnection {
    /// Takes the runner's hello and welcomes it with what the server has acked of each run.
    pub fn welcome(hello: &RunnerHello, acked: &HashMap<String, u64>) -> (ServerConnection, RunnerWelcome) {
        let mut outgoing = ServerConnection {
            host_id: hello.runner_id.clone(),
            runs: HashMap::new(),
            commands: HashMap::new(),
            last_command: 0,
        };
        let mut sessions = Vec::new();
        for session in &hello.sessions {
            let last_seq = acked.get(&session.session_id).copied().unwrap_or(0).min(session.last_seq);
            let kind =
                session.state.as_ref().map_or(SessionKind::Agent, |state| SessionKind::of(&state.harness));
            let sent = SentRun { kind, seq: last_seq, acked: last_seq };
            outgoing.runs.insert(session.session_id.clone(), sent);
            sessions.push(WelcomeSession { session_id: session.session_id.clone(), last_seq });
        }
        let runner_id = hello.runner_id.clone();
        (outgoing, RunnerWelcome { runner_id, sessions, refused: Vec::new(), compression: None })
    }

    /// A line of the runner (without its end).
    pub fn line(&mut self, now: i64, line: &str) -> TranslatedLines {
        let mut outcome = TranslatedLines::default();
        if let Some(record) = Record::parse(line) {
            self.record(&record, &mut outcome);
            return outcome;
        }
        match serde_json::from_str::<LineHead<'_>>(line).as_ref().map(|head| &*head.kind) {
            Ok("response") => self.answered(now, line, &mut outcome),
            Ok("runner.heartbeat") => {
                outcome.to_server.push(self.envelope(now, "host.heartbeat", &json!({})));
            }
            // Live events are not in the document, nor is what the runner says of itself.
            _ => {}
        }
        outcome
    }

    /// A message of the server.
    pub fn message(&mut self, now: i64, text: &str) -> TranslatedLines {
        let mut outcome = TranslatedLines::default();
        match read(text) {
            Ok(AppRequest::Command(command)) => self.command(now, command, &mut outcome),
            Ok(AppRequest::Ignored) => self.acked(text, &mut outcome),
            Ok(AppRequest::Subscribe(_) | AppRequest::Unsubscribe(_)) => {
                outcome
                    .to_server
                    .push(complaint(now, &ErrorCode::Unsupported.with("a host has no subscriptions")));
            }
            // An error that answers an error would have no end.
            Err(refusal) if refusal.about.as_deref() == Some("error") => {}
            Err(refusal) => outcome.to_server.push(refused(now, &refusal)),
        }
        outcome
    }

    fn record(&mut self, record: &Record<'_>, outcome: &mut TranslatedLines) {
        let Ok(run_id) = serde_json::from_str::<String>(&record.session_id) else { return };
        let new = SentRun { kind: SessionKind::Agent, seq: 0, acked: 0 };
        let sent = self.runs.entry(run_id).or_insert(new);
        if record.event == "session.created"
            && let Some(CreatedBody { harness }) = record.read()
        {
            sent.kind = SessionKind::of(&harness);
        }
        sent.seq = sent.seq.max(record.seq);
        let before = outcome.to_server.len();
        show(sent.kind, record, &mut |shown| outcome.to_server.push(shown.pieces.concat()));
        if outcome.to_server.len() == before {
            let data = json!({ "event": record.event });
            outcome.to_server.push(format!(
                "{{\"type\":\"run.metadata\",\"ts\":\"{}\",\"host_id\":{},\"run_id\":{},\"seq\":{},\"data\":{data}}}",
                iso_8601(record.ts),
                record.runner_id,
                record.session_id,
                record.seq
            ));
        }
    }

    fn acked(&mut self, text: &str, outcome: &mut TranslatedLines) {
        let Ok(envelope) = serde_json::from_str::<Envelope>(text) else { return };
        if envelope.kind != "run.ack" {
            return;
        }
        let Ok(AckData { run_id, last_seq }) = serde_json::from_value(envelope.data) else { return };
        let Some(sent) = self.runs.get_mut(&run_id) else { return };
        let seq = last_seq.min(sent.seq);
        if seq <= sent.acked {
            return;
        }
        sent.acked = seq;
        outcome.to_runner = line_of(&LinkLine::Ack { session_id: run_id.clone(), seq });
        outcome.acked = Some((run_id, seq));
    }

    fn command(&mut self, now: i64, command: Box<RunCommand>, outcome: &mut TranslatedLines) {
        let error = match &command.to {
            CommandTarget::Host(host_id) if *host_id != self.host_id => {
                Some(ErrorCode::RunnerNotFound.with("unknown host_id"))
            }
            CommandTarget::Host(_) | CommandTarget::Run(_) | CommandTarget::HostOfRun(_)
                if self.commands.len() >= COMMANDS_MAX =>
            {
                Some(ErrorCode::Busy.with("too many commands wait for this host; try again later"))
            }
            CommandTarget::Host(_) | CommandTarget::Run(_) | CommandTarget::HostOfRun(_) => None,
        };
        if let Some(error) = error {
            return outcome.to_server.push(refused(now, &command.refusal(error)));
        }
        let text = command.text(&self.host_id);
        self.ask(ForwardedCommand { command, is_second: false }, &text, outcome);
    }

    fn ask(&mut self, asked: ForwardedCommand, text: &str, outcome: &mut TranslatedLines) {
        self.last_command += 1;
        let id = format!("s{}", self.last_command);
        outcome.to_runner.push_str(&format!(
            "{{\"type\":\"command\",\"id\":\"{id}\",\"user_id\":\"{PRINCIPAL}\",\"user_role\":\"operator\",\
             \"connection_id\":\"{PRINCIPAL}\",{}\n",
            text.strip_prefix('{').unwrap_or(text)
        ));
        self.commands.insert(id, asked);
    }

    fn answered(&mut self, now: i64, line: &str, outcome: &mut TranslatedLines) {
        let Ok(answer) = serde_json::from_str::<RunnerResponse<'_>>(line) else { return };
        let Some(ForwardedCommand { command, is_second }) = self.commands.remove(&answer.id) else { return };
        if !answer.success
            && !is_second
            && let Some(text) = command.other_text(&self.host_id)
        {
            return self.ask(ForwardedCommand { command, is_second: true }, &text, outcome);
        }
        let code = answer.code.unwrap_or(ErrorCode::Failed);
        let error = answer.error.as_deref().map(|error| in_documents_words(code, error));
        if command.spec.way == qd_wire::run_protocol::MessageDirection::Rpc {
            let answer = RunAnswer {
                success: answer.success,
                data: answer.data.map(RawValue::get),
                error,
                code: Some(code),
                session_id: answer.session_id.as_deref(),
                runner_id: Some(&self.host_id),
            };
            outcome.to_server.push(response(now, &command, &answer));
        } else if !answer.success {
            let error = code.with(error.unwrap_or("the host gave no reason"));
            outcome.to_server.push(refused(now, &command.refusal(error)));
        }
    }

    fn envelope(&self, now: i64, kind: &str, data: &Value) -> String {
        let (host_id, ts) = (Value::from(&*self.host_id), iso_8601(now));
        format!("{{\"type\":\"{kind}\",\"ts\":\"{ts}\",\"host_id\":{host_id},\"data\":{data}}}")
    }
}

/// The runner's word for a session it does not have, as the document's host says it.
fn in_documents_words(code: ErrorCode, error: &str) -> &str {
    if code == ErrorCode::SessionNotFound { "unknown run_id" } else { error }
}

fn line_of(line: &LinkLine) -> String {
    // A type of ours with text keys only: it can always be written.
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
#[path = "server_connection_tests.rs"]
mod tests;
