//! What is recorded of a call: who wanted what, and what came of it. Never contents, never secrets.

use std::time::Duration;

use qd_core::redact::{is_guessable, redact, redact_value};
use qd_wire::JsonObject;
use qd_wire::command::Command;
use qd_wire::event::Event;
use qd_wire::service::ServiceScope;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};

use crate::session::{ServiceInput, SessionInput};
use crate::text::shorten;
use qd_core::encoding::hex;

/// Characters of a text in the recorded arguments.
const TEXT_CHARACTERS_MAX: usize = 2000;

/// How long a session may take to record something; one whose disk is full takes for ever.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);

/// The run document's name of a command.
pub(crate) fn tool_name(cmd: &str) -> String {
    match cmd {
        "host.bash" => "rpc.bash".to_owned(),
        "host.logs" => "rpc.host.logs.tail".to_owned(),
        cmd => format!("rpc.{cmd}"),
    }
}

/// Whether a call is recorded. The pieces of an upload are one call, which is recorded with the last.
pub(crate) fn is_recorded(command: &Command) -> bool {
    match command {
        Command::FsUpload(params) => params.last == Some(true) || params.abort == Some(true),
        _ => true,
    }
}

/// The parameters of a command without what is the same for all.
pub(crate) fn parameters(command: &Command) -> JsonObject {
    let Ok(Value::Object(mut object)) = serde_json::to_value(command) else { return JsonObject::new() };
    for name in ["cmd", "root", "request_id", "actor", "ask", "ask_unless_allowed"] {
        object.remove(name);
    }
    object
}

/// The parameters as they are recorded.
pub(crate) fn recorded_args(command: &Command, scope: &ServiceScope) -> Value {
    let mut object = parameters(command);
    if let Some(root) = &scope.root {
        object.insert("root".to_owned(), json!(root));
    }
    for name in ["content", "data", "stdin"] {
        if let Some(Value::String(text)) = object.get(name) {
            // What is typed into a command may be a password; and what is short could be found by trying.
            let has_hash = name != "stdin" && !is_guessable(text);
            let kept = if has_hash {
                json!({ "bytes": text.len(), "sha256": hash(text.as_bytes()) })
            } else {
                json!({ "bytes": text.len() })
            };
            object.insert(name.to_owned(), kept);
        }
    }
    let mut value = redact_value(&Value::Object(object));
    cut_texts(&mut value);
    value
}

/// An error as it is recorded.
pub(crate) fn recorded_error(error: &str) -> String {
    shorten(&redact(error), TEXT_CHARACTERS_MAX)
}

fn cut_texts(value: &mut Value) {
    match value {
        Value::String(text) if text.chars().count() > TEXT_CHARACTERS_MAX => {
            *text = shorten(text, TEXT_CHARACTERS_MAX);
        }
        Value::Array(items) => items.iter_mut().for_each(cut_texts),
        Value::Object(fields) => fields.values_mut().for_each(cut_texts),
        _ => {}
    }
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Puts an event into the session's record; resolves when it is stored. False when it cannot be now.
pub(crate) async fn record(session: &mpsc::Sender<SessionInput>, event: Event) -> bool {
    let (done, stored) = oneshot::channel();
    let input = SessionInput::Service(ServiceInput::Record { event: Box::new(event), done });
    let recorded = async { session.send(input).await.is_ok() && stored.await.is_ok() };
    tokio::time::timeout(RECORD_TIMEOUT, recorded).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(value: Value) -> Value {
        let name = value["cmd"].as_str().unwrap().to_owned();
        let command = Command::parse(&name, &value.to_string()).unwrap();
        recorded_args(&command, &ServiceScope::default())
    }

    #[test]
    fn contents_and_secrets_are_not_recorded() {
        let content = "let answer = 42; // a file of some length that nobody would guess";
        let args_of_write =
            args(json!({ "cmd": "fs.write", "path": "a.rs", "content": content, "ask": true }));
        assert_eq!(args_of_write["path"], "a.rs");
        assert_eq!(args_of_write["content"]["bytes"], content.len());
        assert_eq!(args_of_write["content"]["sha256"], hash(content.as_bytes()));
        assert!(args_of_write.get("ask").is_none());
        let short = args(json!({ "cmd": "fs.write", "path": "pin", "content": "1234" }));
        assert_eq!(short["content"], json!({ "bytes": 4 }));
        let secret = format!("ghp_{}", "a1B2".repeat(9));
        let bash = args(
            json!({ "cmd": "host.bash", "command": format!("curl -H 'x: {secret}'"), "stdin": "hunter2" }),
        );
        assert!(!bash.to_string().contains(&secret), "{bash}");
        assert_eq!(bash["stdin"], json!({ "bytes": 7 }));
    }

    #[test]
    fn names_are_those_of_the_run_document() {
        for (cmd, tool) in [
            ("fs.read", "rpc.fs.read"),
            ("git.diff", "rpc.git.diff"),
            ("host.bash", "rpc.bash"),
            ("host.info", "rpc.host.info"),
            ("host.logs", "rpc.host.logs.tail"),
        ] {
            assert_eq!(tool_name(cmd), tool);
        }
    }
}
