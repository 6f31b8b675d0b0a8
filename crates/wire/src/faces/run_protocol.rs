//! The run document: its envelope, the fields of its messages, and the table that declares each type once.
//! Field names are the document's. Types that it shares with the canonical protocol are in [`crate::run`].

use serde::Serialize;
use serde_json::Value;

use crate::derive::wire;
use crate::error::ErrorCode;
use crate::run::{AwaitingReason, Decision, RunSignal};

/// Every message, either way.
#[wire(Default)]
pub struct Envelope {
    #[serde(rename = "type")]
    pub kind: String,
    /// RFC 3339. We write it and do not insist on it.
    pub ts: Option<String>,
    pub host_id: Option<String>,
    pub run_id: Option<String>,
    pub seq: Option<u64>,
    #[serde(default)]
    #[ts(type = "unknown")]
    pub data: Value,
}

/// Which way a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageDirection {
    /// Host to server to apps.
    Event,
    /// App to server to host.
    Command,
    /// App to server, answered there.
    ServerCommand,
    /// App to server to host, answered with `rpc.response` to the asker.
    Rpc,
    /// Server and host, or server and app, among themselves.
    Control,
}

/// How the host of a command is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageAddress {
    /// By the envelope's `run_id`.
    Run,
    /// By the envelope's `run_id`, for what the host is asked about itself.
    HostOfRun,
    /// By `data.host_id`.
    Host,
    Nobody,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TypeSpec {
    pub name: &'static str,
    pub way: MessageDirection,
    pub address: MessageAddress,
    /// The canonical command that does the work, or the canonical event it comes from; empty where there is none.
    pub canonical: &'static str,
    /// Whether a person is asked first.
    pub gated: bool,
    /// In the document itself; else an addition that its clients have come to use.
    pub documented: bool,
}

macro_rules! types {
    ($( $name:literal, $way:ident, $address:ident, $canonical:literal, $gated:literal, $documented:literal; )*) => {
        /// Every type of message, in the order of the document.
        pub const TYPES: &[TypeSpec] = &[
            $( TypeSpec {
                name: $name,
                way: MessageDirection::$way,
                address: MessageAddress::$address,
                canonical: $canonical,
                gated: $gated,
                documented: $documented,
            }, )*
        ];
    };
}

types! {
    // name, way, address, canonical, gated, documented
    "run.started", Event, Run, "run.started", false, true;
    "run.output", Event, Run, "run.output", false, true;
    "run.awaiting_input", Event, Run, "run.awaiting_input", false, true;
    "run.exited", Event, Run, "run.exited", false, true;
    "run.input", Event, Run, "run.input", false, true;
    "run.send_input", Command, Run, "run.input", false, true;
    "run.stop", Command, Run, "run.stop", false, true;
    "run.ack", Control, Run, "", false, true;
    "run.permission_requested", Event, Run, "agent.input_needed", false, true;
    "run.permission.approve", Command, Run, "input_response", false, true;
    "run.permission.deny", Command, Run, "input_response", false, true;
    "tool.call", Event, Run, "tool.call", false, true;
    "tool.result", Event, Run, "tool.result", false, true;
    "rpc.fs.read", Rpc, Run, "fs.read", false, true;
    "rpc.fs.search", Rpc, Run, "fs.search", false, true;
    "rpc.fs.list", Rpc, Run, "fs.list", false, true;
    "rpc.fs.write", Rpc, Run, "fs.write", true, true;
    "rpc.bash", Rpc, Run, "host.bash", true, true;
    "rpc.git.status", Rpc, Run, "git.status", false, true;
    "rpc.git.diff", Rpc, Run, "git.diff", false, true;
    "rpc.response", Control, Run, "", false, true;
    "rpc.run.start", Rpc, Host, "session.create", false, true;
    "rpc.host.info", Rpc, Host, "host.info", false, true;
    "rpc.host.doctor", Rpc, Host, "host.doctor", false, true;
    "rpc.host.capabilities", Rpc, Host, "host.capabilities", false, true;
    "rpc.host.logs.tail", Rpc, Host, "host.logs", false, true;
    "rpc.runs.list", Rpc, HostOfRun, "runner.sessions", false, true;
    "rpc.run.stop", Rpc, Run, "run.stop", false, true;
    "run.ready", Event, Run, "", false, false;
    "run.metadata", Event, Run, "", false, false;
    "run.resized", Event, Run, "run.resized", false, false;
    "run.permission_decided", Event, Run, "agent.input_resolved", false, false;
    "run.send_stdin", Command, Run, "run.stdin", false, false;
    "run.resize", Command, Run, "run.resize", false, false;
    "run.subscribe", ServerCommand, Nobody, "", false, false;
    "run.unsubscribe", ServerCommand, Nobody, "", false, false;
    "host.heartbeat", Control, Nobody, "", false, false;
    "error", Control, Nobody, "", false, false;
}

/// The row of a type.
pub fn spec(name: &str) -> Option<&'static TypeSpec> {
    TYPES.iter().find(|row| row.name == name)
}

/// The names in `rpc.host.capabilities`.
pub fn rpc_names() -> impl Iterator<Item = &'static str> {
    TYPES.iter().filter(|row| row.way == MessageDirection::Rpc).map(|row| row.name)
}

macro_rules! message_data {
    ($( $(#[$meta:meta])* $name:ident { $( $(#[$field_meta:meta])* $field:ident : $kind:ty, )* } )*) => {
        $(
            $(#[$meta])*
            #[wire(Default)]
            pub struct $name { $( $(#[$field_meta])* pub $field: $kind, )* }
        )*
    };
}

message_data! {
    StartedData { tool: String, cwd: String, command: String, }
    OutputData { stream: String, text: String, }
    AwaitingInputData { reason: AwaitingReason, prompt: Option<String>, request_id: Option<String>, }
    ExitedData {
        exit_code: i32,
        /// Ours: the signal that ended it.
        signal: Option<i32>,
    }
    InputData { actor: String, input_id: String, text_redacted: String, text_sha256: String, }
    SendInputData { input_id: String, text: String, actor: Option<String>, }
    SendStdinData { text: String, actor: Option<String>, }
    ResizeData { cols: Option<u16>, rows: Option<u16>, }
    StopData { signal: Option<RunSignal>, actor: Option<String>, }
    AckData { run_id: String, last_seq: u64, }
    PermissionRequestedData {
        request_id: String,
        reason: AwaitingReason,
        prompt: String,
        op_tool: Option<String>,
        #[ts(optional, type = "unknown")]
        op_args: Option<Value>,
        op_args_summary: Option<String>,
        approve_text: String,
        deny_text: String,
        /// Ours: questions beyond yes and no, in the canonical form.
        #[ts(optional, type = "unknown")]
        questions: Option<Value>,
    }
    PermissionDecisionData {
        request_id: String,
        actor: Option<String>,
        decision: Option<Decision>,
        /// Counts only for the tool of the request itself.
        allow_tools: Option<Vec<String>>,
        #[ts(optional, type = "unknown")]
        answers: Option<Value>,
        reason: Option<String>,
    }
    PermissionDecidedData { request_id: String, decision: String, actor: Option<String>, by: Option<String>, }
    SubscribeData {
        run_id: Option<String>,
        replace: Option<bool>,
        include_output: Option<bool>,
        /// Send what came after this record first.
        since_seq: Option<u64>,
    }
    ResponseData {
        request_id: String,
        ok: bool,
        rpc_type: String,
        #[ts(optional, type = "unknown")]
        result: Option<Value>,
        error: Option<String>,
        /// Ours: what programs decide by.
        code: Option<ErrorCode>,
    }
    ErrorData {
        error: String,
        /// Ours: what programs decide by.
        code: Option<ErrorCode>,
        /// The `type` of the message it is about.
        about: Option<String>,
        request_id: Option<String>,
        input_id: Option<String>,
    }
}
