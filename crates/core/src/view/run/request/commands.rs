//! The parameters of the document's commands, as ours.
//!
//! Bounds and defaults are the document's. What it calls a run is a session of ours whose agent is a program in a
//! terminal.

use qd_wire::run::{Decision, PTY_HARNESS, RunSignal};
use qd_wire::run_protocol::TypeSpec;
use qd_wire::{CodedError, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::fields::Fields;

/// Sizes of a terminal.
const COLS: (u64, u64, u64) = (2, 500, 80);
const ROWS: (u64, u64, u64) = (1, 200, 24);
/// What may be asked of a log.
const LOG_LINES_MAX: u64 = 2000;
const LOG_BYTES_MAX: u64 = 2_000_000;
/// A UUID; a shorter name may be one that its sender uses again.
const UUID_BYTES: usize = 36;

/// The parameters, and those to try when they are refused.
type Canonical = (JsonObject, Option<JsonObject>);

/// The canonical command for a message; its name and address are not in it.
pub(super) fn canonical(spec: &TypeSpec, fields: &Fields) -> Result<Canonical, CodedError> {
    let parameters = match spec.name {
        "run.send_input" => object(json!({
            "input_id": fields.needed("input_id")?, "text": fields.text("text")?, "actor": fields.actor(),
        })),
        "run.send_stdin" => object(json!({ "text": fields.text("text")?, "actor": fields.actor() })),
        "run.resize" => {
            let cols = fields.number("cols", COLS.0, COLS.1)?.unwrap_or(COLS.2);
            let rows = fields.number("rows", ROWS.0, ROWS.1)?.unwrap_or(ROWS.2);
            object(json!({ "cols": cols, "rows": rows }))
        }
        "run.stop" | "rpc.run.stop" => {
            object(json!({ "signal": signal(fields)?.as_str(), "actor": fields.actor() }))
        }
        "run.permission.approve" => return decision(fields, true),
        "run.permission.deny" => return decision(fields, false),
        "rpc.run.start" => run_start(fields)?,
        // These have nothing to say but their address.
        "rpc.runs.list" => JsonObject::new(),
        _ => service(spec, fields)?,
    };
    Ok((parameters, None))
}

/// A service of the host, with the names that the audit trail needs. What is gated is always asked for here, whoever
/// calls.
fn service(spec: &TypeSpec, fields: &Fields) -> Result<JsonObject, CodedError> {
    let mut parameters = match spec.name {
        "rpc.fs.read" => with_path(fields, &["offset", "length", "encoding"])?,
        "rpc.fs.write" => {
            let mut parameters = with_path(fields, &["encoding", "create_parents", "expected_hash"])?;
            parameters.insert("content".to_owned(), fields.text("content")?.into());
            parameters
        }
        "rpc.fs.search" => {
            let query = fields.needed_text("q")?;
            // As ripgrep does unless told otherwise: a pattern, and capitals count.
            let mut parameters = object(json!({ "query": query, "regex": true, "case_sensitive": true }));
            let names = ["path", "regex", "case_sensitive", "include_hidden", "globs", "limit", "after"];
            parameters.extend(fields.some(&names));
            parameters
        }
        "rpc.fs.list" => {
            let mut parameters = object(json!({ "path": ".", "include_hidden": true }));
            parameters.extend(fields.some(&["path", "include_hidden", "offset", "limit"]));
            parameters
        }
        "rpc.bash" => {
            let mut parameters = fields.some(&["timeout_ms", "stdin"]);
            parameters.insert("command".to_owned(), fields.needed_text("cmd")?.into());
            parameters
        }
        "rpc.git.diff" => fields.some(&["path", "staged", "untracked", "base", "offset", "limit"]),
        "rpc.host.logs.tail" => {
            let lines = fields.number("lines", 1, LOG_LINES_MAX)?;
            let max_bytes = fields.number("max_bytes", 1, LOG_BYTES_MAX)?;
            let found = [("lines", lines), ("max_bytes", max_bytes)];
            let found = found.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
            found.collect()
        }
        _ => JsonObject::new(),
    };
    parameters.insert("request_id".to_owned(), fields.needed("request_id")?.into());
    parameters.insert("actor".to_owned(), fields.actor().into());
    if spec.gated {
        // Who is on this protocol is always asked, except for what the document's `approve_for_session` has allowed.
        parameters.insert("ask".to_owned(), true.into());
        parameters.insert("ask_unless_allowed".to_owned(), true.into());
    }
    Ok(parameters)
}

fn with_path(fields: &Fields, names: &[&str]) -> Result<JsonObject, CodedError> {
    let mut parameters = fields.some(names);
    parameters.insert("path".to_owned(), fields.needed_text("path")?.into());
    Ok(parameters)
}

/// A program in a terminal on the named host.
fn run_start(fields: &Fields) -> Result<JsonObject, CodedError> {
    let tool = fields.needed("tool")?;
    let cmd = match fields.0.get("cmd") {
        Some(Value::Null) | None => String::new(),
        Some(_) => fields.text("cmd")?,
    };
    let cmd = if cmd.trim().is_empty() { tool.clone() } else { cmd };
    let mut run = object(json!({ "tool": tool, "cmd": cmd }));
    for (name, bounds) in [("cols", COLS), ("rows", ROWS)] {
        if let Some(number) = fields.number(name, bounds.0, bounds.1)? {
            run.insert(name.to_owned(), number.into());
        }
    }
    let mut config = object(json!({ "harness": PTY_HARNESS, "run": run }));
    match fields.0.get("cwd") {
        Some(Value::Null) | None => {}
        Some(_) => {
            config.insert("cwd".to_owned(), fields.text("cwd")?.into());
        }
    }
    let mut parameters = object(json!({ "config": config }));
    let request_id = fields.needed("request_id")?;
    if request_id.len() == UUID_BYTES {
        // Sent again, it starts nothing again.
        parameters.insert("idempotency_key".to_owned(), format!("rpc.run.start:{request_id}").into());
    }
    Ok(parameters)
}

fn signal(fields: &Fields) -> Result<RunSignal, CodedError> {
    match fields.0.get("signal") {
        Some(Value::Null) | None => Ok(RunSignal::Term),
        Some(value) => {
            RunSignal::deserialize(value).map_err(|_| CodedError::invalid("signal must be term, kill or int"))
        }
    }
}

/// The answer to a question. `decision` says more than the type of the message does, and never the opposite: a denial
/// that approves would be a way around those who look at the type. For which tool an approval is good is known where
/// the question is; `allow_tools` adds nothing to that.
fn decision(fields: &Fields, approves: bool) -> Result<Canonical, CodedError> {
    let said = match fields.0.get("decision") {
        Some(Value::Null) | None => None,
        Some(value) => Some(Decision::deserialize(value).map_err(|_| {
            CodedError::invalid("decision must be approve, approve_for_session, deny or abort")
        })?),
    };
    if said.is_some_and(|decision| decision.is_approval() != approves) {
        let word = if approves { "approve" } else { "deny" };
        return Err(CodedError::invalid(format!("decision says the opposite of run.permission.{word}")));
    }
    let mut parameters = object(json!({
        "request_id": fields.needed("request_id")?, "confirmed": approves, "actor": fields.actor(),
    }));
    parameters.extend(fields.some(&["reason"]));
    let has_answers = approves && add_answers(&mut parameters, fields.0.get("answers"))?;
    let decision =
        said.or((!has_answers).then_some(if approves { Decision::Approve } else { Decision::Deny }));
    if let Some(decision) = decision {
        parameters.insert("decision".to_owned(), json!(decision));
    }
    // A question that is no yes or no is not denied but left unanswered.
    let otherwise = (!approves).then(|| {
        let mut otherwise = parameters.clone();
        otherwise.insert("cancelled".to_owned(), true.into());
        otherwise
    });
    Ok((parameters, otherwise))
}

/// A text, one of several, or a form's answers by their ids.
fn add_answers(parameters: &mut JsonObject, answers: Option<&Value>) -> Result<bool, CodedError> {
    match answers {
        Some(Value::Null) | None => return Ok(false),
        Some(value @ Value::String(_)) => parameters.insert("value".to_owned(), value.clone()),
        Some(Value::Array(list)) if list.len() == 1 && list[0].is_string() => {
            parameters.insert("value".to_owned(), list[0].clone())
        }
        Some(value @ Value::Object(_)) => parameters.insert("responses".to_owned(), value.clone()),
        Some(_) => {
            return Err(CodedError::invalid("answers must be a text, a list with one text, or an object"));
        }
    };
    Ok(true)
}

impl Fields {
    /// A text that must be there and say something.
    fn needed_text(&self, name: &str) -> Result<String, CodedError> {
        self.text(name).and_then(|text| {
            if text.is_empty() { Err(CodedError::invalid(format!("missing {name}"))) } else { Ok(text) }
        })
    }
}

/// The fields of an object written out as one.
fn object(value: Value) -> JsonObject {
    if let Value::Object(fields) = value { fields } else { JsonObject::new() }
}
