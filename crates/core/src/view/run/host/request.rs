//! A canonical command as a message for a foreign host, or a clear no.
//!
//! The document has fewer commands and fewer parameters than we do. A call with globs, a later page or bytes is
//! refused: without them a host would answer another question.

use qd_wire::Command;
use qd_wire::command::{InputResponseParams, SessionConfig};
use qd_wire::run::{Decision, PTY_HARNESS, PermissionDetails, RunSignal};
use qd_wire::service::{Encoding, ServiceScope};
use qd_wire::{CodedError, ErrorCode, InputRequest, JsonObject};
use serde_json::{Value, json};

use super::foreign_run::ForeignRun;

/// A command on its way to a host.
#[derive(Debug, Clone, Copy)]
pub struct HostCommand<'a> {
    pub host_id: &'a str,
    /// The run it is about, if it names one.
    pub run_id: Option<&'a str>,
    pub cmd: &'a str,
    /// The whole command.
    pub text: &'a str,
    /// A new identity, for what needs one and has none.
    pub fresh_id: &'a str,
    /// What is known of the run.
    pub book: Option<&'a ForeignRun>,
}

/// What to do for a command.
#[derive(Debug, Clone, PartialEq)]
pub enum HostPlan {
    /// Send it. The document has no answer to it, so it is answered at once, with this.
    Tell {
        kind: &'static str,
        data: Value,
        answer: Option<Value>,
        then: SentNote,
    },
    /// Send it. The answer is the record that the input was written.
    Input {
        input_id: String,
        data: Value,
    },
    /// Send it, and wait for the `rpc.response` of this name.
    Call {
        kind: &'static str,
        request_id: String,
        data: Value,
    },
    /// Nothing is sent: this is the answer.
    Answer(Option<Value>),
    Attach {
        after: Option<u64>,
    },
    State,
    Sessions,
    Delete,
}

/// What is to be noted when a message was sent that has no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum SentNote {
    Nothing,
    Decided { request_id: String, decision: Decision, actor: Option<String> },
    Resized { cols: u16, rows: u16 },
}

/// Finds out what a command means for a host. An error says why it cannot be done there.
#[allow(clippy::wildcard_enum_match_arm)] // The document's commands are these; any other is refused by its name.
pub fn plan(asked: &HostCommand<'_>) -> Result<HostPlan, CodedError> {
    let HostCommand { cmd, text, .. } = *asked;
    let command = Command::parse(cmd, text)?;
    match command {
        Command::SessionAttach(params) => Ok(HostPlan::Attach { after: params.after }),
        Command::GetState(_) => Ok(HostPlan::State),
        Command::RunnerSessions(_) => Ok(HostPlan::Sessions),
        Command::SessionDelete(_) => Ok(HostPlan::Delete),
        // The host would refuse a run that is over; to close it is done already.
        Command::SessionClose(_) if asked.has_exited() => Ok(HostPlan::Answer(None)),
        Command::SessionClose(_) => Ok(asked.stop(RunSignal::Term, None)),
        Command::Abort(_) => Ok(asked.stop(RunSignal::Int, None)),
        Command::RunStop(params) => {
            Ok(asked.stop(params.signal.unwrap_or_default(), params.actor.as_deref()))
        }
        Command::SessionCreate(params) => asked.start(&params.config, params.check_only == Some(true)),
        Command::RunInput(params) => asked.input(&params.input_id, &params.text, params.actor.as_deref()),
        Command::Prompt(params) => asked.line(params.client_id.as_deref(), &params.message),
        Command::FollowUp(params) | Command::Steer(params) => {
            asked.line(params.client_id.as_deref(), &params.message)
        }
        Command::RunStdin(params) => {
            asked.check_alive()?;
            let data = with_actor(json!({ "text": params.text }), params.actor.as_deref());
            Ok(HostPlan::Tell { kind: "run.send_stdin", data, answer: None, then: SentNote::Nothing })
        }
        Command::RunResize(params) => {
            asked.check_alive()?;
            let (cols, rows) = (params.cols, params.rows);
            let data = json!({ "cols": cols, "rows": rows });
            Ok(HostPlan::Tell {
                kind: "run.resize",
                data,
                answer: None,
                then: SentNote::Resized { cols, rows },
            })
        }
        Command::InputResponse(params) => asked.decide(&params),
        command => asked.service(command),
    }
}

fn is_text(encoding: Option<Encoding>) -> bool {
    encoding.unwrap_or_default() == Encoding::Text
}

fn with_actor(mut data: Value, actor: Option<&str>) -> Value {
    data["actor"] = json!(actor.unwrap_or("web"));
    data
}

impl HostCommand<'_> {
    fn has_exited(&self) -> bool {
        self.book.is_some_and(ForeignRun::has_exited)
    }

    fn check_alive(&self) -> Result<(), CodedError> {
        if self.has_exited() {
            return Err(ErrorCode::RunEnded.with("The program has ended; start it again as a new run"));
        }
        Ok(())
    }

    fn call(&self, kind: &'static str, scope: &ServiceScope, mut data: Value) -> HostPlan {
        let request_id = scope.request_id.clone().filter(|id| !id.is_empty());
        let request_id = request_id.unwrap_or_else(|| self.fresh_id.to_owned());
        data["request_id"] = json!(request_id);
        if let Some(actor) = &scope.actor {
            data["actor"] = json!(actor);
        }
        HostPlan::Call { kind, request_id, data }
    }

    /// A service of the host's machine.
    #[allow(clippy::wildcard_enum_match_arm)] // The document's services are these; any other is refused by its name.
    fn service(&self, command: Command) -> Result<HostPlan, CodedError> {
        let HostCommand { cmd, host_id, .. } = *self;
        let call = |kind, scope: &ServiceScope, data| Ok(self.call(kind, scope, data));
        match command {
            // The document reads from the beginning and as text; a later page or bytes cannot be asked for.
            Command::FsRead(params)
                if params.offset.is_none_or(|offset| offset == 0) && is_text(params.encoding) =>
            {
                call("rpc.fs.read", &params.scope, json!({ "path": params.path }))
            }
            Command::FsSearch(params) if params.after.is_none() && params.globs.is_none() => {
                call("rpc.fs.search", &params.scope, json!({ "q": params.query }))
            }
            Command::FsList(params) if params.offset.is_none_or(|offset| offset == 0) => {
                let path = params.path.unwrap_or_else(|| ".".to_owned());
                call("rpc.fs.list", &params.scope, json!({ "path": path }))
            }
            Command::FsWrite(params) if is_text(params.encoding) && params.expected_hash.is_none() => {
                let data = json!({ "path": params.path, "content": params.content });
                call("rpc.fs.write", &params.scope, data)
            }
            Command::HostBash(params) if params.stdin.is_none() => {
                call("rpc.bash", &params.scope, json!({ "cmd": params.command }))
            }
            Command::GitStatus(params) => call("rpc.git.status", &params.scope, json!({})),
            Command::GitDiff(params)
                if params.staged != Some(true) && params.untracked != Some(true) && params.base.is_none() =>
            {
                let data = params.path.map_or_else(|| json!({}), |path| json!({ "path": path }));
                call("rpc.git.diff", &params.scope, data)
            }
            Command::HostInfo(params) => call("rpc.host.info", &params.scope, json!({ "host_id": host_id })),
            Command::HostDoctor(params) => {
                call("rpc.host.doctor", &params.scope, json!({ "host_id": host_id }))
            }
            Command::HostCapabilities(params) => {
                call("rpc.host.capabilities", &params.scope, json!({ "host_id": host_id }))
            }
            Command::HostLogs(params) => {
                let mut data = JsonObject::from_iter([("host_id".to_owned(), json!(host_id))]);
                data.extend(params.lines.map(|lines| ("lines".to_owned(), json!(lines))));
                data.extend(params.max_bytes.map(|bytes| ("max_bytes".to_owned(), json!(bytes))));
                call("rpc.host.logs.tail", &params.scope, Value::Object(data))
            }
            Command::FsRead(_)
            | Command::FsSearch(_)
            | Command::FsList(_)
            | Command::FsWrite(_)
            | Command::HostBash(_)
            | Command::GitDiff(_) => Err(ErrorCode::Unsupported.with(format!(
                "Host {host_id} speaks the run protocol, whose form of '{cmd}' has fewer parameters; leave them out"
            ))),
            _ => Err(ErrorCode::Unsupported.with(format!("Host {host_id} speaks the run protocol, which has no '{cmd}'"))),
        }
    }

    fn stop(&self, signal: RunSignal, actor: Option<&str>) -> HostPlan {
        if self.has_exited() {
            return HostPlan::Answer(Some(json!({ "signal": signal.as_str() })));
        }
        let data = with_actor(json!({ "request_id": self.fresh_id, "signal": signal.as_str() }), actor);
        HostPlan::Call { kind: "rpc.run.stop", request_id: self.fresh_id.to_owned(), data }
    }

    fn start(&self, config: &SessionConfig, is_check: bool) -> Result<HostPlan, CodedError> {
        let HostCommand { host_id, fresh_id, run_id, .. } = *self;
        if config.harness != PTY_HARNESS {
            return Err(ErrorCode::Unsupported.with(format!(
                "Host {host_id} speaks the run protocol: it starts programs in terminals (harness '{PTY_HARNESS}'), \
                 not '{}'",
                config.harness
            )));
        }
        if run_id.is_some_and(|run_id| !run_id.is_empty() && run_id != qd_wire::SYSTEM_SESSION) {
            return Err(ErrorCode::Unsupported
                .with(format!("Host {host_id} names its runs itself; leave out session_id")));
        }
        let run = config.run.clone().unwrap_or_default();
        let cmd = match run.cmd {
            Some(cmd) if run.argv.is_empty() => cmd,
            // The host gives the text to a shell, so the words are quoted for one.
            _ => run.argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        };
        let program = cmd.split_ascii_whitespace().next().and_then(|word| word.rsplit('/').next());
        let tool = run.tool.or_else(|| program.map(str::to_owned)).unwrap_or_else(|| "bash".to_owned());
        if !run.env.is_empty() {
            return Err(ErrorCode::Unsupported
                .with(format!("Host {host_id} speaks the run protocol, which has no variables for a run")));
        }
        // A host cannot be asked whether it would; what can be known here was checked above.
        if is_check {
            return Ok(HostPlan::Answer(None));
        }
        let data = json!({
            "request_id": fresh_id,
            "host_id": host_id,
            "tool": tool,
            "cmd": if cmd.is_empty() { &tool } else { &cmd },
            "cwd": config.cwd,
        });
        Ok(HostPlan::Call { kind: "rpc.run.start", request_id: fresh_id.to_owned(), data })
    }

    /// A line for the program, as a prompt says it.
    fn line(&self, input_id: Option<&str>, message: &str) -> Result<HostPlan, CodedError> {
        self.input(input_id.unwrap_or(self.fresh_id), &format!("{}\n", message.trim_end_matches('\n')), None)
    }

    fn input(&self, input_id: &str, text: &str, actor: Option<&str>) -> Result<HostPlan, CodedError> {
        if input_id.is_empty() {
            return Err(CodedError::invalid("'input_id' must not be empty"));
        }
        if self.book.is_some_and(|book| book.has_input(input_id)) {
            // The records know it. The host would not type it again either, but it would not answer.
            return Ok(HostPlan::Answer(Some(json!({ "input_id": input_id, "duplicate": true }))));
        }
        self.check_alive()?;
        let data = with_actor(json!({ "input_id": input_id, "text": text }), actor);
        Ok(HostPlan::Input { input_id: input_id.to_owned(), data })
    }

    /// A decision is for a question that is open, and for its own operation.
    fn decide(&self, params: &InputResponseParams) -> Result<HostPlan, CodedError> {
        let id = &params.request_id;
        let Some(question) = self.book.and_then(|book| book.question(id)) else {
            return Err(ErrorCode::QuestionNotFound.with(format!("No pending input request with id '{id}'")));
        };
        let decision = match (params.decision, params.confirmed, params.cancelled) {
            (Some(decision), _, _) => decision,
            (None, Some(true), _) => Decision::Approve,
            (None, Some(false), _) | (None, None, Some(true)) => Decision::Deny,
            (None, None, _) => {
                return Err(CodedError::invalid("A permission is answered with 'decision' or 'confirmed'"));
            }
        };
        let kind = if decision.is_approval() { "run.permission.approve" } else { "run.permission.deny" };
        let mut data = with_actor(json!({ "request_id": id }), params.actor.as_deref());
        // The original knows these words since a later version; an older one goes by the type alone.
        data["decision"] = json!(decision);
        if decision == Decision::ApproveForSession
            && let Some(op_tool) = op_tool(question)
        {
            data["allow_tools"] = json!([op_tool]);
        }
        if let Some(reason) = &params.reason {
            data["reason"] = json!(reason);
        }
        if let Some(responses) = &params.responses {
            data["answers"] = Value::Object(responses.clone());
        }
        let then = SentNote::Decided { request_id: id.clone(), decision, actor: params.actor.clone() };
        Ok(HostPlan::Tell { kind, data, answer: None, then })
    }
}

fn op_tool(question: &InputRequest) -> Option<String> {
    let InputRequest::Permission { metadata: Some(metadata), .. } = question else { return None };
    <PermissionDetails as serde::Deserialize>::deserialize(metadata).ok()?.op_tool
}

/// A word for `bash -lc`.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
