//! The one table of commands: name, parameters, lane, mutation, timeout, permission, who answers, class.
//!
//! Code that depends on the kind of a command reads this table. Other lists of commands only add to it: the types of
//! answers (`codegen/answers.rs`), and the tables of the faces, whose rows name a canonical command.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::command::*;
use crate::derive::wire;
use crate::error::{CodedError, ErrorCode};
use crate::run::{RunInputParams, RunResizeParams, RunStdinParams, RunStopParams};
use crate::service::*;

/// What a command waits for before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// One after the other within the session.
    Session,
    /// One after the other among the shell commands of the session, beside everything else.
    Shell,
    /// At once, whatever runs: aborts, steering, answers to questions.
    Control,
    /// At once; changes nothing.
    Read,
    /// Beside everything else, each in a task of its own: services of the machine, which may take long.
    Service,
}

/// Who does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answerer {
    /// The hub, from its copies.
    Hub,
    /// The session's runner.
    Runner,
}

/// What the sender must be allowed to do.
#[wire(words)]
pub enum Permission {
    /// See sessions, files and history.
    View,
    /// Start, prompt, steer and stop sessions.
    Operate,
    /// Answer questions.
    Approve,
    /// Change files.
    Files,
    /// Run shell commands and open terminals.
    Shell,
    /// People, tokens, machines.
    Manage,
}

/// What kind of work a command is. Code that treats several commands alike asks for this and not for their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandClass {
    /// Starts a session; its sender follows the session from then on.
    Create,
    /// Follows a session from a cursor.
    Attach,
    /// Stops following a session.
    Detach,
    /// Removes a session and its history.
    Delete,
    /// Ends the agent of a session; the history stays.
    Close,
    /// Starts the program of a session again.
    Restart,
    /// Asks how a session stands.
    State,
    /// Gives the agent something to work on: prompts, steering, follow-ups, input of a run.
    Input,
    /// Types into the program of a terminal.
    Typing,
    /// Sends a signal to the program of a terminal.
    Stop,
    /// Ends work that is under way.
    Abort,
    /// Takes back another command of the same asker that is not answered yet.
    Cancel,
    /// Takes the agent to another conversation; a turn that runs in the old one is cut.
    Switch,
    /// Moves the agent to another point of the same conversation.
    Navigate,
    /// Changes files of the machine. A person may have to approve it first.
    Change,
    /// Runs a program on the machine, beside the agent. A person may have to approve it first.
    Execute,
    /// Reports changes until it is taken back.
    Watch,
    /// Asks the runner about itself.
    Runner,
    /// Nothing that several places must know: most reads and settings.
    Other,
}

/// A service of the machine, beside the agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Files,
    Git,
    Shell,
    /// The machine and its runner themselves; it works in no directory.
    Host,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CommandSpec {
    /// Which command it is, for code that is about this one alone; `None` for what only hub and runner say.
    #[serde(skip)]
    pub command: Option<CommandName>,
    pub name: &'static str,
    pub lane: Lane,
    /// Whether success raises the session's version.
    pub mutating: bool,
    /// How long the answer may take; `None` for work that cannot be taken back.
    pub timeout_ms: Option<u64>,
    pub permission: Permission,
    pub answerer: Answerer,
    /// Whether the command names an existing session.
    pub needs_session: bool,
    pub class: CommandClass,
    /// Which service of the machine it is, if it is one.
    #[serde(skip)]
    pub service: Option<Service>,
}

impl CommandSpec {
    pub const fn is_input(&self) -> bool {
        matches!(self.class, CommandClass::Input)
    }

    pub const fn is_abort(&self) -> bool {
        matches!(self.class, CommandClass::Abort)
    }

    /// Whether it takes the agent to another conversation, or to another point of this one.
    pub const fn is_move(&self) -> bool {
        matches!(self.class, CommandClass::Switch | CommandClass::Navigate)
    }

    /// Whether it makes an agent write new records, so that it is refused while the spool is full.
    pub const fn is_new_work(&self) -> bool {
        matches!(self.class, CommandClass::Create | CommandClass::Input)
    }

    /// Whether it makes the program of a terminal run what its sender likes: typing into it, and starting it again.
    pub const fn runs_program(&self) -> bool {
        matches!(self.class, CommandClass::Input | CommandClass::Typing | CommandClass::Restart)
    }

    /// Whether it makes sense on a connection only, because something stays open or refers to the connection.
    pub const fn needs_connection(&self) -> bool {
        matches!(
            self.class,
            CommandClass::Attach | CommandClass::Detach | CommandClass::Watch | CommandClass::Cancel
        )
    }

    /// Whether the hub reads more of it than its head: it answers the command itself, or needs the parameters to find
    /// the runner or to follow the session. Everything else it only forwards.
    pub const fn is_read_by_hub(&self) -> bool {
        matches!(self.answerer, Answerer::Hub)
            || matches!(self.class, CommandClass::Create | CommandClass::Attach)
    }

    /// Whether a person may have to approve it first.
    pub const fn is_gated(&self) -> bool {
        matches!(self.class, CommandClass::Change | CommandClass::Execute)
    }
}

impl CommandClass {
    /// Whether the sender follows the session once the command has succeeded.
    pub const fn follows_session(self) -> bool {
        matches!(self, CommandClass::Create | CommandClass::Attach)
    }

    /// Whether the response belongs at one point of the session's stream, because it says what came before it.
    pub const fn has_place_in_stream(self) -> bool {
        matches!(self, CommandClass::Create | CommandClass::Attach | CommandClass::Delete)
    }
}

const READ_TIMEOUT_MS: Option<u64> = Some(30_000);

/// What the hub asks a runner to do when a command that the hub answers itself has conditions: check them, and no more.
pub const BARRIER: &str = "_barrier";

/// Takes back a command of the hub's that has run out of time, or for which nobody waits any more. It is not in
/// [`COMMANDS`], so no client can send it.
pub const TAKE_BACK: CommandSpec = CommandSpec {
    command: None,
    name: "_cancel",
    lane: Lane::Control,
    mutating: false,
    timeout_ms: READ_TIMEOUT_MS,
    // Whoever may ask may take back what they asked for.
    permission: Permission::View,
    answerer: Answerer::Runner,
    needs_session: true,
    class: CommandClass::Cancel,
    service: None,
};

/// For what goes through many files.
const SEARCH_TIMEOUT_MS: Option<u64> = Some(120_000);

macro_rules! service {
    () => {
        None
    };
    ($service:ident) => {
        Some(Service::$service)
    };
}

macro_rules! commands {
    ($( $variant:ident($params:ident) = $name:literal, $lane:ident, $mutating:literal, $timeout:expr,
        $permission:ident, $answerer:ident, $needs_session:literal, $class:ident $(of $service:ident)?; )*) => {
        /// A command with its parameters.
        #[wire]
        #[serde(tag = "cmd")]
        pub enum Command {
            $( #[serde(rename = $name)] $variant($params), )*
        }

        /// Every command, in the order of the documentation.
        pub const COMMANDS: &[CommandSpec] = &[
            $( CommandSpec {
                command: Some(CommandName::$variant),
                name: $name,
                lane: Lane::$lane,
                mutating: $mutating,
                timeout_ms: $timeout,
                permission: Permission::$permission,
                answerer: Answerer::$answerer,
                needs_session: $needs_session,
                class: CommandClass::$class,
                service: service!($($service)?),
            }, )*
        ];

        /// A command by its name, which is also where its row stands in [`COMMANDS`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum CommandName { $( $variant, )* }

        /// The names of every command and of the type of its parameters.
        pub const PARAMETERS: &[(&str, &str)] = &[ $( ($name, stringify!($params)), )* ];

        impl Command {
            /// The row of this command.
            pub fn spec(&self) -> &'static CommandSpec {
                match self { $( Command::$variant(_) => &COMMANDS[CommandName::$variant as usize], )* }
            }

            /// Reads the parameters of the command `name` from the frame `text`; unknown fields are ignored.
            pub fn parse(name: &str, text: &str) -> Result<Command, CommandError> {
                match name {
                    $( $name => parameters::<$params>(name, text).map(Command::$variant), )*
                    _ => Err(CommandError::Unknown(name.to_owned())),
                }
            }
        }

        /// The row of a command by its name.
        pub fn spec(name: &str) -> Option<&'static CommandSpec> {
            match name {
                $( $name => Some(&COMMANDS[CommandName::$variant as usize]), )*
                _ => None,
            }
        }
    };
}

commands! {
    // variant(parameters) = name, lane, mutating, timeout, permission, answerer, needs session, class, of which service
    SessionCreate(SessionCreateParams) = "session.create", Session, true, None, Operate, Runner, false, Create;
    SessionAttach(SessionAttachParams) = "session.attach", Read, false, READ_TIMEOUT_MS, View, Runner, true, Attach;
    SessionDetach(NoParams) = "session.detach", Read, false, READ_TIMEOUT_MS, View, Hub, true, Detach;
    SessionClose(NoParams) = "session.close", Control, true, None, Operate, Runner, true, Close;
    SessionDelete(NoParams) = "session.delete", Control, true, None, Operate, Runner, true, Delete;
    SessionRestart(NoParams) = "session.restart", Session, true, None, Operate, Runner, true, Restart;
    SessionNew(SessionNewParams) = "session.new", Session, true, None, Operate, Runner, true, Switch;
    SessionSwitch(SessionSwitchParams) = "session.switch", Session, true, None, Operate, Runner, true, Switch;
    Prompt(PromptParams) = "prompt", Session, true, None, Operate, Runner, true, Input;
    Steer(SteerParams) = "steer", Control, true, None, Operate, Runner, true, Input;
    FollowUp(SteerParams) = "follow_up", Control, true, None, Operate, Runner, true, Input;
    QueueSet(QueueSetParams) = "queue.set", Control, true, None, Operate, Runner, true, Other;
    Abort(NoParams) = "abort", Control, true, READ_TIMEOUT_MS, Operate, Runner, true, Abort;
    InputResponse(InputResponseParams) = "input_response", Control, false, READ_TIMEOUT_MS, Approve, Runner, true, Other;
    GetState(NoParams) = "get_state", Read, false, READ_TIMEOUT_MS, View, Runner, true, State;
    GetMessages(GetMessagesParams) = "get_messages", Read, false, READ_TIMEOUT_MS, View, Hub, true, Other;
    GetStats(NoParams) = "get_stats", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    GetModels(NoParams) = "get_models", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    GetCommands(NoParams) = "get_commands", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    GetForkPoints(NoParams) = "get_fork_points", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    SetModel(SetModelParams) = "set_model", Session, true, None, Operate, Runner, true, Other;
    CycleModel(CycleModelParams) = "cycle_model", Session, true, None, Operate, Runner, true, Other;
    SetThinkingLevel(SetThinkingLevelParams) = "set_thinking_level", Session, true, None, Operate, Runner, true, Other;
    CycleThinkingLevel(NoParams) = "cycle_thinking_level", Session, true, None, Operate, Runner, true, Other;
    SetAutoCompaction(EnabledParams) = "set_auto_compaction", Session, true, None, Operate, Runner, true, Other;
    SetAutoRetry(EnabledParams) = "set_auto_retry", Session, true, None, Operate, Runner, true, Other;
    Compact(CompactParams) = "compact", Session, true, None, Operate, Runner, true, Other;
    AbortRetry(NoParams) = "abort_retry", Control, true, READ_TIMEOUT_MS, Operate, Runner, true, Abort;
    AbortCompaction(NoParams) = "abort_compaction", Control, true, READ_TIMEOUT_MS, Operate, Runner, true, Abort;
    Bash(BashParams) = "bash", Shell, true, None, Shell, Runner, true, Other;
    AbortBash(NoParams) = "abort_bash", Control, true, READ_TIMEOUT_MS, Operate, Runner, true, Abort;
    ExportHtml(ExportHtmlParams) = "export_html", Session, true, None, Operate, Runner, true, Other;
    GetSkills(NoParams) = "get_skills", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    GetTools(NoParams) = "get_tools", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    ListSessionFiles(NoParams) = "list_session_files", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    GetNativeMessages(NoParams) = "get_native_messages", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    GetLastAssistantText(NoParams) = "get_last_assistant_text", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    GetContextUsage(NoParams) = "get_context_usage", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    GetTree(NoParams) = "get_tree", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    NavigateTree(NavigateTreeParams) = "navigate_tree", Session, true, None, Operate, Runner, true, Navigate;
    SetSessionName(SetSessionNameParams) = "set_session_name", Session, true, None, Operate, Runner, true, Other;
    Fork(ForkParams) = "fork", Session, true, None, Operate, Runner, true, Switch;
    ListSessions(NoParams) = "list_sessions", Read, false, READ_TIMEOUT_MS, View, Hub, false, Other;
    GetRunners(NoParams) = "get_runners", Read, false, READ_TIMEOUT_MS, View, Hub, false, Other;
    RunnerSessions(NoParams) = "runner.sessions", Read, false, READ_TIMEOUT_MS, View, Runner, false, Runner;
    RunnerStoredSessions(NoParams) = "runner.stored_sessions", Read, false, READ_TIMEOUT_MS, View, Runner, false, Runner;
    RunnerHealth(NoParams) = "runner.health", Read, false, READ_TIMEOUT_MS, View, Runner, false, Runner;
    Search(SearchParams) = "search", Read, false, READ_TIMEOUT_MS, View, Hub, false, Other;
    Delegate(DelegateRequest) = "delegate", Control, true, None, Operate, Runner, true, Other;
    RunInput(RunInputParams) = "run.input", Control, false, READ_TIMEOUT_MS, Operate, Runner, true, Input;
    RunStdin(RunStdinParams) = "run.stdin", Control, false, READ_TIMEOUT_MS, Operate, Runner, true, Typing;
    RunResize(RunResizeParams) = "run.resize", Control, false, READ_TIMEOUT_MS, Operate, Runner, true, Other;
    RunStop(RunStopParams) = "run.stop", Control, false, READ_TIMEOUT_MS, Operate, Runner, true, Stop;
    RunScreen(NoParams) = "run.screen", Read, false, READ_TIMEOUT_MS, View, Runner, true, Other;
    FsRead(FsReadParams) = "fs.read", Service, false, READ_TIMEOUT_MS, View, Runner, false, Other of Files;
    FsWrite(FsWriteParams) = "fs.write", Service, false, None, Files, Runner, false, Change of Files;
    FsUpload(FsUploadParams) = "fs.upload", Service, false, None, Files, Runner, false, Change of Files;
    FsList(FsListParams) = "fs.list", Service, false, READ_TIMEOUT_MS, View, Runner, false, Other of Files;
    FsTree(FsTreeParams) = "fs.tree", Service, false, READ_TIMEOUT_MS, View, Runner, false, Other of Files;
    FsStat(FsStatParams) = "fs.stat", Service, false, READ_TIMEOUT_MS, View, Runner, false, Other of Files;
    FsSearch(FsSearchParams) = "fs.search", Service, false, SEARCH_TIMEOUT_MS, View, Runner, false, Other of Files;
    FsCreateDirectory(FsCreateDirectoryParams) = "fs.create_directory", Service, false, None, Files, Runner, false, Change of Files;
    FsRename(FsMoveParams) = "fs.rename", Service, false, None, Files, Runner, false, Change of Files;
    FsMove(FsMoveParams) = "fs.move", Service, false, None, Files, Runner, false, Change of Files;
    FsCopy(FsMoveParams) = "fs.copy", Service, false, None, Files, Runner, false, Change of Files;
    FsDelete(FsDeleteParams) = "fs.delete", Service, false, None, Files, Runner, false, Change of Files;
    FsWatch(FsWatchParams) = "fs.watch", Service, false, None, View, Runner, false, Watch of Files;
    GitStatus(GitStatusParams) = "git.status", Service, false, SEARCH_TIMEOUT_MS, View, Runner, false, Other of Git;
    GitDiff(GitDiffParams) = "git.diff", Service, false, SEARCH_TIMEOUT_MS, View, Runner, false, Other of Git;
    GitLog(GitLogParams) = "git.log", Service, false, SEARCH_TIMEOUT_MS, View, Runner, false, Other of Git;
    GitWorktrees(GitWorktreesParams) = "git.worktrees", Service, false, READ_TIMEOUT_MS, View, Runner, false, Other of Git;
    GitWorktreeAdd(GitWorktreeAddParams) = "git.worktree_add", Service, false, None, Files, Runner, false, Change of Git;
    GitWorktreeRemove(GitWorktreeRemoveParams) = "git.worktree_remove", Service, false, None, Files, Runner, false, Change of Git;
    HostBash(HostBashParams) = "host.bash", Service, false, None, Shell, Runner, false, Execute of Shell;
    HostInfo(HostInfoParams) = "host.info", Service, false, READ_TIMEOUT_MS, View, Runner, false, Other of Host;
    HostDoctor(HostDoctorParams) = "host.doctor", Service, false, READ_TIMEOUT_MS, View, Runner, false, Other of Host;
    HostCapabilities(HostCapabilitiesParams) = "host.capabilities", Service, false, READ_TIMEOUT_MS, View, Runner, false, Other of Host;
    HostLogs(HostLogsParams) = "host.logs", Service, false, READ_TIMEOUT_MS, Manage, Runner, false, Other of Host;
    Cancel(CancelParams) = "cancel", Control, false, READ_TIMEOUT_MS, View, Hub, false, Cancel;
    DelegateCancel(DelegateCancelParams) = "delegate.cancel", Control, true, READ_TIMEOUT_MS, Operate, Runner, true, Other;
}

impl CommandName {
    /// The row of this command.
    pub const fn spec(self) -> &'static CommandSpec {
        &COMMANDS[self as usize]
    }
}

/// The class of a command by its name; `Other` for a name that is not in the table.
pub fn class_of(name: &str) -> CommandClass {
    if name == TAKE_BACK.name {
        return TAKE_BACK.class;
    }
    spec(name).map_or(CommandClass::Other, |row| row.class)
}

/// Why a frame is not a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    Unknown(String),
    Invalid { name: String, reason: String },
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CommandError::Unknown(name) => write!(formatter, "Unknown command '{name}'"),
            CommandError::Invalid { name, reason } => write!(formatter, "Invalid '{name}': {reason}"),
        }
    }
}

impl std::error::Error for CommandError {}

impl CommandError {
    pub const fn code(&self) -> ErrorCode {
        match self {
            CommandError::Unknown(_) => ErrorCode::UnknownCommand,
            CommandError::Invalid { .. } => ErrorCode::InvalidRequest,
        }
    }
}

impl From<CommandError> for CodedError {
    fn from(error: CommandError) -> Self {
        CodedError::new(error.code(), error.to_string())
    }
}

/// Reads the parameters of the command `name` from the frame `text`; unknown fields are ignored.
pub fn parameters<'de, T: serde::Deserialize<'de>>(name: &str, text: &'de str) -> Result<T, CommandError> {
    // Nothing is read of what has no parameters; that the text is an object was seen when its head was read.
    let text = if size_of::<T>() == 0 { "{}" } else { text };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    parameters_of(name, &mut deserializer)
}

/// The same from fields that are in memory.
pub fn parameters_of<'de, T, D>(name: &str, fields: D) -> Result<T, CommandError>
where
    T: serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    serde_path_to_error::deserialize(fields).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        let reason = if path == "." { reason } else { format!("{path}: {reason}") };
        CommandError::Invalid { name: name.to_owned(), reason }
    })
}

impl CommandHead<'_> {
    /// What the hub says of the sender.
    pub fn rights(&self) -> crate::people::Rights {
        crate::people::Rights::said(self.user_role, self.user_permissions)
    }
}

/// The fields every command may carry; the rest of the frame is its parameters.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct CommandHead<'a> {
    #[serde(default, borrow)]
    pub cmd: Option<std::borrow::Cow<'a, str>>,
    /// Echoed as it came.
    #[serde(default, borrow)]
    pub id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub session_id: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    pub runner_id: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    pub user_id: Option<std::borrow::Cow<'a, str>>,
    /// The sender's role, said by the hub.
    pub user_role: Option<crate::people::Role>,
    /// What the sender may do, said by the hub; those of earlier versions do not.
    pub user_permissions: Option<crate::people::Permissions>,
    #[serde(default, borrow)]
    pub connection_id: Option<std::borrow::Cow<'a, str>>,
    /// The client's own `id` as it came, kept by the hub when it puts its own in place; dependencies name it.
    #[serde(default, borrow)]
    pub client_command_id: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    pub idempotency_key: Option<std::borrow::Cow<'a, str>>,
    pub depends_on: Option<Vec<String>>,
    pub if_session_version: Option<u64>,
    /// Answer with the agent's own words where it has some: `data` is then `{"native": …}`.
    pub native: Option<bool>,
    /// Do it only when the agent neither works nor compacts; the command waits for that at its turn in the lane.
    pub when_idle: Option<bool>,
}
