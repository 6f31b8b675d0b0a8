//! A message of an app: a canonical command, something the server does itself, or an error.
//!
//! A message that cannot be read is answered with as much of its identity as could be read (`request_id`, `run_id`),
//! so that its sender knows what was refused.

mod commands;
mod fields;

use qd_wire::command_table::{self, CommandClass, CommandError};
use qd_wire::run_protocol::{ErrorData, MessageAddress, MessageDirection, SubscribeData, TypeSpec, spec};
use qd_wire::{CodedError, ErrorCode, JsonObject};
use serde_json::Value;

use fields::Fields;

/// A message that can be acted on.
#[derive(Debug, Clone, PartialEq)]
pub enum AppRequest {
    /// For a runner.
    Command(Box<RunCommand>),
    Subscribe(RunSubscription),
    /// From one run, or from all.
    Unsubscribe(Option<String>),
    /// What an app has no reason to send and nobody has to hear of: acknowledgements, heartbeats.
    Ignored,
}

/// A command for a runner, as the canonical protocol has it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCommand {
    pub spec: &'static TypeSpec,
    pub to: CommandTarget,
    /// The parameters, without the name and the address of the command.
    pub parameters: JsonObject,
    /// Those to send when they are refused: the same wish for a question of another form.
    pub otherwise: Option<JsonObject>,
    pub request_id: Option<String>,
    pub input_id: Option<String>,
}

/// Who is to do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandTarget {
    Run(String),
    /// The host that has this run.
    HostOfRun(String),
    Host(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSubscription {
    pub run_id: String,
    pub replace: bool,
    pub include_output: bool,
    pub since_seq: Option<u64>,
}

/// Why a message is not acted on, and what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRefusal {
    /// Behind a pointer, or every result with a refusal in it would be large.
    pub error: Box<CodedError>,
    /// The `type` of the message, where it could be read.
    pub about: Option<String>,
    pub run_id: Option<String>,
    pub request_id: Option<String>,
    pub input_id: Option<String>,
}

impl RunRefusal {
    /// Whether the asker waits for an `rpc.response`, which then says it; else an `error` does.
    pub fn rpc(&self) -> Option<(&str, &str)> {
        let about = self.about.as_deref()?;
        // One nobody knows is an RPC by its name.
        let is_rpc =
            spec(about).map_or_else(|| about.starts_with("rpc."), |spec| spec.way == MessageDirection::Rpc);
        self.request_id.as_deref().filter(|_| is_rpc).map(|request_id| (about, request_id))
    }

    pub fn data(&self) -> ErrorData {
        let RunRefusal { error, about, request_id, input_id, .. } = self.clone();
        ErrorData { error: error.message, code: Some(error.code), about, request_id, input_id }
    }
}

impl RunCommand {
    /// The canonical command for this runner.
    pub fn text(&self, runner_id: &str) -> String {
        self.addressed(self.parameters.clone(), runner_id)
    }

    /// The same for what is sent when that is refused.
    pub fn other_text(&self, runner_id: &str) -> Option<String> {
        self.otherwise.clone().map(|fields| self.addressed(fields, runner_id))
    }

    fn addressed(&self, mut fields: JsonObject, runner_id: &str) -> String {
        fields.insert("cmd".to_owned(), self.spec.canonical.into());
        match &self.to {
            CommandTarget::Run(run_id) => {
                fields.insert("session_id".to_owned(), run_id.as_str().into());
            }
            // A session that is to be is named by its runner.
            CommandTarget::HostOfRun(_) | CommandTarget::Host(_) if !self.creates_session() => {
                fields.insert("session_id".to_owned(), qd_wire::SYSTEM_SESSION.into());
                fields.insert("runner_id".to_owned(), runner_id.into());
            }
            CommandTarget::HostOfRun(_) | CommandTarget::Host(_) => {
                fields.insert("runner_id".to_owned(), runner_id.into());
            }
        }
        Value::Object(fields).to_string()
    }

    /// Whether it makes a session, which its runner then names.
    pub fn creates_session(&self) -> bool {
        command_table::class_of(self.spec.canonical) == CommandClass::Create
    }

    /// The canonical command's name.
    pub fn canonical(&self) -> &'static str {
        self.spec.canonical
    }

    /// The run it names, if it names one.
    pub fn run_id(&self) -> Option<&str> {
        match &self.to {
            CommandTarget::Run(run_id) | CommandTarget::HostOfRun(run_id) => Some(run_id),
            CommandTarget::Host(_) => None,
        }
    }

    /// Why it cannot be done, for its sender.
    pub fn refusal(&self, error: CodedError) -> RunRefusal {
        RunRefusal {
            error: Box::new(error),
            about: Some(self.spec.name.to_owned()),
            run_id: self.run_id().map(str::to_owned),
            request_id: self.request_id.clone(),
            input_id: self.input_id.clone(),
        }
    }
}

/// Reads one message of an app.
pub fn read(text: &str) -> Result<AppRequest, RunRefusal> {
    let bare = |error: String| RunRefusal {
        error: Box::new(CodedError::invalid(error)),
        about: None,
        run_id: None,
        request_id: None,
        input_id: None,
    };
    let mut message: JsonObject = match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(message)) => message,
        Ok(_) => return Err(bare("the message is not a JSON object".to_owned())),
        Err(error) => return Err(bare(format!("the message is not valid JSON: {error}"))),
    };
    let text_of = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let Some(about) = text_of(message.get("type")) else { return Err(bare("missing type".to_owned())) };
    let data = message.remove("data").unwrap_or(Value::Null);
    let run_id = text_of(message.get("run_id")).or_else(|| text_of(data.get("run_id")));
    let refused = |error: CodedError| RunRefusal {
        error: Box::new(error),
        about: Some(about.clone()),
        run_id: run_id.clone(),
        request_id: text_of(data.get("request_id")),
        input_id: text_of(data.get("input_id")),
    };
    let data_fields = match &data {
        Value::Object(fields) => fields.clone(),
        Value::Null => JsonObject::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(refused(CodedError::invalid("data must be an object")));
        }
    };
    let Some(spec) = spec(&about) else { return Err(refused(unknown_type(&about))) };
    act(spec, run_id.clone(), Fields(data_fields)).map_err(refused)
}

fn unknown_type(about: &str) -> CodedError {
    let error = if about.starts_with("rpc.") {
        "unknown rpc type".to_owned()
    } else {
        format!("unknown type '{about}'")
    };
    ErrorCode::UnknownCommand.with(error)
}

/// A body of `POST /runs/:run_id/input`.
pub fn read_input(run_id: &str, body: &[u8]) -> Result<RunCommand, CodedError> {
    let fields: JsonObject = serde_json::from_slice(body).map_err(|error| {
        CodedError::invalid(format!("the body must be a JSON object with input_id and text: {error}"))
    })?;
    let spec = spec("run.send_input").ok_or_else(|| unknown_type("run.send_input"))?;
    match act(spec, Some(run_id.to_owned()), Fields(fields))? {
        AppRequest::Command(command) => Ok(*command),
        AppRequest::Subscribe(_) | AppRequest::Unsubscribe(_) | AppRequest::Ignored => {
            Err(unknown_type(spec.name))
        }
    }
}

fn act(spec: &'static TypeSpec, run_id: Option<String>, fields: Fields) -> Result<AppRequest, CodedError> {
    match (spec.way, spec.name) {
        (MessageDirection::Control, "rpc.response" | "error") | (MessageDirection::Event, _) => {
            Err(CodedError::invalid(format!("'{}' is not for apps to send", spec.name)))
        }
        (MessageDirection::Control, _) => Ok(AppRequest::Ignored),
        (MessageDirection::ServerCommand, "run.unsubscribe") => Ok(AppRequest::Unsubscribe(run_id)),
        (MessageDirection::ServerCommand, _) => subscribe(run_id, &fields).map(AppRequest::Subscribe),
        (MessageDirection::Command | MessageDirection::Rpc, _) => {
            command(spec, run_id, fields).map(|it| AppRequest::Command(Box::new(it)))
        }
    }
}

fn no_run_id() -> CodedError {
    CodedError::invalid("missing run_id")
}

fn subscribe(run_id: Option<String>, fields: &Fields) -> Result<RunSubscription, CodedError> {
    let SubscribeData { replace, include_output, since_seq, .. } = fields.typed()?;
    Ok(RunSubscription {
        run_id: named(run_id)?,
        replace: replace.unwrap_or(false),
        include_output: include_output.unwrap_or(true),
        since_seq,
    })
}

fn named(run_id: Option<String>) -> Result<String, CodedError> {
    run_id.filter(|run_id| !run_id.is_empty()).ok_or_else(no_run_id)
}

fn command(
    spec: &'static TypeSpec,
    run_id: Option<String>,
    fields: Fields,
) -> Result<RunCommand, CodedError> {
    let request_id = match (spec.way, spec.name) {
        (MessageDirection::Rpc, _) | (_, "run.permission.approve" | "run.permission.deny") => {
            Some(fields.needed("request_id")?)
        }
        _ => None,
    };
    let is_input = command_table::class_of(spec.canonical) == CommandClass::Input;
    let input_id = if is_input { Some(fields.needed("input_id")?) } else { None };
    let to = match spec.address {
        MessageAddress::Host => CommandTarget::Host(fields.needed("host_id")?),
        MessageAddress::Run | MessageAddress::Nobody => CommandTarget::Run(named(run_id)?),
        MessageAddress::HostOfRun => CommandTarget::HostOfRun(named(run_id)?),
    };
    let (parameters, otherwise) = commands::canonical(spec, &fields)?;
    let command = RunCommand { spec, to, parameters, otherwise, request_id, input_id };
    if spec.way == MessageDirection::Rpc {
        readable(&command)?;
    }
    Ok(command)
}

/// Fields that are passed on as they came may be of the wrong kind; whoever sent them hears it here.
fn readable(command: &RunCommand) -> Result<(), CodedError> {
    match command_table::Command::parse(command.canonical(), &command.text("")) {
        Ok(_) => Ok(()),
        Err(CommandError::Unknown(name)) => Err(unknown_type(&name)),
        Err(CommandError::Invalid { reason, .. }) => {
            // The place is one in our own text, which nobody has seen.
            let reason = reason.split_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason);
            Err(CodedError::invalid(format!("invalid data: {reason}")))
        }
    }
}
