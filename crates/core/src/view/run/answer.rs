//! What the server says to one app: answers to its calls, and errors.
//!
//! What the document has in another form is reshaped; in most answers our other fields go along beside it.

use qd_wire::data::{RunnerSessionsData, SessionState, SessionStatus};
use qd_wire::run_protocol::{ErrorData, ResponseData, TypeSpec};
use qd_wire::service::{BashData, FsListData, HostInfoData};
use qd_wire::{CodedError, ErrorCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::request::{RunCommand, RunRefusal};
use crate::time::iso_8601;

/// A runner's answer to a command.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunAnswer<'a> {
    pub success: bool,
    /// JSON.
    pub data: Option<&'a str>,
    pub error: Option<&'a str>,
    /// Beside every error.
    pub code: Option<ErrorCode>,
    /// The session it was about; the new one, where one was started.
    pub session_id: Option<&'a str>,
    pub runner_id: Option<&'a str>,
}

/// The answer to a call, as its sender gets it.
pub fn response(now: i64, command: &RunCommand, answer: &RunAnswer<'_>) -> String {
    let spec = command.spec;
    let mut run_id = command.run_id().map(str::to_owned);
    let (ok, result, error) = match (answer.success, spec.name) {
        (false, _) => {
            let code = answer.code.unwrap_or(ErrorCode::Failed);
            (false, None, Some(code.with(answer.error.unwrap_or("the host gave no reason"))))
        }
        (true, "rpc.run.start") => {
            run_id = created(answer.data).or_else(|| answer.session_id.map(str::to_owned));
            (true, Some(json!({ "run_id": run_id })), None)
        }
        (true, _) => result(spec, answer.data),
    };
    let data = ResponseData {
        request_id: command.request_id.clone().unwrap_or_default(),
        ok,
        rpc_type: spec.name.to_owned(),
        result,
        code: error.as_ref().map(|error| error.code),
        error: error.map(|error| error.message),
    };
    envelope(now, "rpc.response", answer.runner_id, run_id.as_deref(), &data)
}

/// The session that was started.
fn created(data: Option<&str>) -> Option<String> {
    let data: Value = serde_json::from_str(data?).ok()?;
    data.get("session_id")?.as_str().map(str::to_owned)
}

/// A message that is not acted on, as its sender is told: in the answer it waits for, else in an `error`.
pub fn refused(now: i64, refusal: &RunRefusal) -> String {
    let run_id = refusal.run_id.as_deref();
    let Some((about, request_id)) = refusal.rpc() else {
        return envelope(now, "error", None, run_id, &refusal.data());
    };
    let data = ResponseData {
        request_id: request_id.to_owned(),
        ok: false,
        rpc_type: about.to_owned(),
        result: None,
        error: Some(refusal.error.message.clone()),
        code: Some(refusal.error.code),
    };
    envelope(now, "rpc.response", None, run_id, &data)
}

/// What is told about a message that cannot even be read.
pub fn complaint(now: i64, error: &CodedError) -> String {
    let data = ErrorData { error: error.message.clone(), code: Some(error.code), ..ErrorData::default() };
    envelope(now, "error", None, None, &data)
}

fn envelope(
    now: i64,
    kind: &str,
    host_id: Option<&str>,
    run_id: Option<&str>,
    data: &impl Serialize,
) -> String {
    let field = |name: &str, value: Option<&str>| {
        value.map_or(String::new(), |value| format!("\"{name}\":{},", Value::from(value)))
    };
    // These types have no maps with odd keys, so writing them cannot fail.
    let data = serde_json::to_string(data).unwrap_or_default();
    let (host_id, run_id) = (field("host_id", host_id), field("run_id", run_id));
    format!("{{\"type\":\"{kind}\",\"ts\":\"{}\",{host_id}{run_id}\"data\":{data}}}", iso_8601(now))
}

type CallResult = (bool, Option<Value>, Option<CodedError>);

/// The result in the document's shape, with what ours says beside it.
fn result(spec: &TypeSpec, data: Option<&str>) -> CallResult {
    let data = data.and_then(|data| serde_json::from_str(data).ok()).unwrap_or(Value::Null);
    let done = |value: Value| (true, Some(value), None);
    match spec.name {
        "rpc.bash" => bash(data),
        "rpc.fs.list" => done(typed::<FsListData>(&data).map_or(data, |list| files(&list))),
        "rpc.runs.list" => {
            let runs =
                typed::<RunnerSessionsData>(&data).unwrap_or(RunnerSessionsData { sessions: Vec::new() });
            done(
                json!({ "runs": runs.sessions.iter().filter(|run| is_up(run)).map(run).collect::<Vec<_>>() }),
            )
        }
        "rpc.host.info" | "rpc.host.doctor" | "rpc.host.capabilities" => done(host(data)),
        _ => done(if data.is_null() { json!({}) } else { data }),
    }
}

fn typed<T: DeserializeOwned>(data: &Value) -> Option<T> {
    serde_json::from_value(data.clone()).ok()
}

/// A size that is not known is `null` here.
fn files(list: &FsListData) -> Value {
    let entries = list.entries.iter().map(|entry| {
        let mut shown = json!(entry);
        shown["size_bytes"] = json!(entry.size_bytes);
        shown
    });
    let entries: Vec<Value> = entries.collect();
    let mut shown = json!(list);
    shown["entries"] = entries.into();
    shown
}

/// A command that failed has said why: what it wrote is there in any case.
fn bash(data: Value) -> CallResult {
    let Some(bash) = typed::<BashData>(&data) else { return (true, Some(data), None) };
    let mut shown = data;
    shown["exit_code"] = json!(bash.exit_code);
    if bash.exit_code == Some(0) && !bash.timed_out && !bash.cancelled {
        return (true, Some(shown), None);
    }
    let error = match (bash.exit_code, bash.signal) {
        _ if bash.cancelled => ErrorCode::Cancelled.with("bash was cancelled"),
        _ if bash.timed_out => {
            ErrorCode::TimedOut.with(format!("bash was ended after {} ms, its time limit", bash.duration_ms))
        }
        (Some(code), _) => ErrorCode::Failed.with(format!("bash exited with code {code}")),
        (None, Some(signal)) => ErrorCode::Failed.with(format!("bash was ended by signal {signal}")),
        (None, None) => ErrorCode::Failed.with("bash ended without an exit code"),
    };
    let stderr = bash.stderr.trim();
    let error = if stderr.is_empty() { error } else { error.reworded(|error| format!("{error}: {stderr}")) };
    (false, Some(shown), Some(error))
}

/// Whether a session counts as a run that goes on.
fn is_up(state: &SessionState) -> bool {
    !matches!(state.status, SessionStatus::Closed | SessionStatus::Failed | SessionStatus::Dormant)
}

fn run(state: &SessionState) -> Value {
    let pty = state.run.as_deref();
    let awaited = pty.and_then(|run| run.awaiting.as_ref());
    let pending = state.pending_input.first().map(|request| request.request_id().to_owned());
    let pending = pending.or_else(|| awaited?.request_id.clone());
    json!({
        "run_id": state.session_id,
        "pid": pty.and_then(|run| run.pid).or_else(|| state.process.as_ref()?.pid),
        "tool": pty.map_or(&state.harness, |run| &run.tool),
        "cwd": state.cwd,
        "awaiting_input": awaited.is_some() || pending.is_some() || state.status == SessionStatus::Idle,
        "pending_request_id": pending,
    })
}

/// What is not known of a tool is `null` here.
fn host(data: Value) -> Value {
    let Some(info) = typed::<HostInfoData>(&data) else { return data };
    let tools = info
        .tools
        .iter()
        .map(|tool| json!({ "tool": tool.tool, "bin": tool.bin, "ok": tool.ok, "error": tool.error }));
    let tools: Vec<Value> = tools.collect();
    let mut shown = data;
    shown["tools"] = tools.into();
    shown
}
