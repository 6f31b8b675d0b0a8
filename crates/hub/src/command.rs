//! Commands on their way through the hub. A client's frame and a wish of a face become the same value, [`Command`], which
//! is admitted in one place ([`admission`]) and then answered here or sent to its runner.

mod admission;
pub(crate) mod ask;
mod client;
mod fields;
pub(crate) mod finished_commands;
pub(crate) mod head;
pub(crate) mod pending;
pub(crate) mod reply;
mod route;
mod send;
mod waiting;

use std::borrow::Cow;
use std::sync::Arc;

use qd_wire::command::SessionConfig;
use qd_wire::command_table::{CommandClass, CommandName, CommandSpec, TAKE_BACK, spec};
use qd_wire::{CodedError, ErrorCode, JsonObject, SYSTEM_SESSION};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Duration;

use crate::command::ask::OnProgress;
use crate::command::head::CommandHead;
use crate::runners::line_head::JsonFields;
use crate::sessions::session::SessionEntry;
pub(crate) use ask::{ReadyCommand, prepare, send_ready};
pub(crate) use client::{FrameSender, HandledFrame, handle, id_text, request_resync, request_resync_of_all};
use fields::CommandFields;
pub(crate) use send::send_cancel;
pub(crate) use waiting::{WaitingCommand, send_waiting};

/// One canonical command: its row of the table, its address, and what it says.
///
/// A client's is read from its frame. A face builds one field by field, and it is written once, into the line for its
/// runner; the hub does not read again what it has written itself.
pub(crate) struct Command<'a> {
    spec: &'static CommandSpec,
    /// The asker's own word for it, for the sentence of a refusal.
    called: &'static str,
    session: CommandSubject<'a>,
    runner_id: Option<Cow<'a, str>>,
    /// Commands that must have succeeded before.
    depends_on: Vec<String>,
    /// Whether it is to be done only if the session has a certain version.
    has_version: bool,
    fields: CommandFields<'a>,
    /// Replaces the time limit of the table; the inner `None` for as long as the runner's link lasts.
    limit: Option<Option<Duration>>,
    on_progress: Option<OnProgress>,
}

/// Which session a command is about.
enum CommandSubject<'a> {
    Nothing,
    Named(Cow<'a, str>),
    /// The asker has looked it up already.
    Known(Arc<SessionEntry>),
}

impl<'a> Command<'a> {
    pub(crate) fn new(name: CommandName) -> Self {
        Self::of(name.spec())
    }

    /// The same for a row that was found in the table.
    pub(crate) fn of(spec: &'static CommandSpec) -> Self {
        Self {
            spec,
            called: spec.name,
            session: CommandSubject::Nothing,
            runner_id: None,
            depends_on: Vec::new(),
            has_version: false,
            fields: CommandFields::empty(spec),
            limit: None,
            on_progress: None,
        }
    }

    /// Takes back the command that the runner of a session knows by this key.
    pub(crate) fn take_back(key: &str) -> Self {
        Self::of(&TAKE_BACK).with("key", key)
    }

    /// A client's command, of which the head has been read.
    pub(crate) fn from_frame(
        spec: &'static CommandSpec,
        text: &'a str,
        fields: JsonFields<'a>,
        head: CommandHead<'a>,
    ) -> Self {
        let CommandHead { session_id, runner_id, depends_on, .. } = head;
        Self {
            spec,
            called: spec.name,
            session: session_id.map_or(CommandSubject::Nothing, CommandSubject::Named),
            runner_id,
            depends_on,
            has_version: head::has_version(&fields),
            fields: CommandFields::Frame { text, fields },
            limit: None,
            on_progress: None,
        }
    }

    pub(crate) fn on(mut self, session_id: impl Into<Cow<'a, str>>) -> Self {
        self.session = CommandSubject::Named(session_id.into());
        self
    }

    /// The same for a session that need not be looked up any more.
    pub(crate) fn on_session(mut self, session: &Arc<SessionEntry>) -> Self {
        self.session = CommandSubject::Known(Arc::clone(session));
        self
    }

    /// What a runner is asked that is about no session.
    pub(crate) fn on_system(self) -> Self {
        self.on(SYSTEM_SESSION)
    }

    pub(crate) fn at(mut self, runner_id: impl Into<Cow<'a, str>>) -> Self {
        self.runner_id = Some(runner_id.into());
        self
    }

    /// The same for addresses that may not be given.
    pub(crate) fn on_if(self, session_id: Option<impl Into<Cow<'a, str>>>) -> Self {
        match session_id {
            Some(session_id) => self.on(session_id),
            None => self,
        }
    }

    pub(crate) fn at_if(self, runner_id: Option<impl Into<Cow<'a, str>>>) -> Self {
        Self { runner_id: runner_id.map(Into::into).or(self.runner_id), ..self }
    }

    /// Under this name in the words of a refusal, where the face's protocol has another one.
    pub(crate) fn called(mut self, name: &'static str) -> Self {
        self.called = name;
        self
    }

    /// Adds a parameter; one that is `None` is left out.
    pub(crate) fn with<T: Serialize>(mut self, name: &'static str, value: T) -> Self {
        self.add(name, &value);
        self
    }

    /// The same for fields that come one after the other.
    pub(crate) fn add<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) {
        self.fields.add(Cow::Borrowed(name), value);
    }

    /// Adds all of them, except what only the hub may say.
    pub(crate) fn with_all(mut self, fields: JsonObject) -> Self {
        self.fields.add_all(fields);
        self
    }

    /// The runner does it at most once under this key.
    pub(crate) fn once(self, key: Option<&str>) -> Self {
        self.with("idempotency_key", key)
    }

    /// The runner does it only if the session has this version.
    pub(crate) fn if_version(mut self, version: Option<u64>) -> Self {
        self.has_version = version.is_some();
        self.with("if_session_version", version)
    }

    /// Waits no longer than this for the answer; `None` for as long as the runner's link lasts.
    pub(crate) fn within(mut self, limit: Option<Duration>) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Is told how far a service is, before its answer.
    pub(crate) fn on_progress(mut self, on_progress: OnProgress) -> Self {
        self.on_progress = Some(on_progress);
        self
    }
}

impl Command<'_> {
    fn session_id(&self) -> Option<&str> {
        match &self.session {
            CommandSubject::Nothing => None,
            CommandSubject::Named(session_id) => Some(session_id),
            CommandSubject::Known(session) => Some(&session.id),
        }
    }

    /// The same to be kept: the session's own where it has been found.
    fn kept_session_id(&self, found: Option<&Arc<SessionEntry>>) -> Option<Arc<str>> {
        match found {
            Some(session) => Some(Arc::clone(&session.id)),
            None => self.session_id().map(Arc::from),
        }
    }

    /// Whether the runner has something to check before the command may run.
    fn has_conditions(&self) -> bool {
        self.has_version || !self.depends_on.is_empty()
    }

    /// Whether it creates nothing and only asks whether it could.
    fn is_check_only(&self) -> bool {
        self.spec.class == CommandClass::Create && matches!(self.fields.typed("check_only"), Ok(Some(true)))
    }

    /// The configuration of a session that is to be created, if it can be read.
    fn config(&self) -> Option<SessionConfig> {
        let is_create = self.spec.class == CommandClass::Create;
        is_create.then(|| self.fields.typed("config").ok().flatten()).flatten()
    }

    /// The record after which a client wants to follow a session.
    fn after(&self) -> Result<Option<u64>, CodedError> {
        self.fields
            .typed("after")
            .map_err(|error| CodedError::invalid(format!("Invalid '{}': {error}", self.spec.name)))
    }

    fn parameters<T: DeserializeOwned>(&self) -> Result<T, CodedError> {
        self.fields.parameters(self.spec)
    }

    /// How long it may wait for a runner that is away. Only clients can ask for that.
    fn wait(&self) -> Result<Option<Duration>, CodedError> {
        match &self.fields {
            CommandFields::Frame { fields, .. } => head::wait(fields),
            CommandFields::Object(_) | CommandFields::Written(_) => Ok(None),
        }
    }
}

/// The row of a command that somebody has named.
pub(crate) fn spec_of(cmd: &str) -> Result<&'static CommandSpec, CodedError> {
    spec(cmd).ok_or_else(|| ErrorCode::UnknownCommand.with(format!("Unknown command '{cmd}'")))
}
