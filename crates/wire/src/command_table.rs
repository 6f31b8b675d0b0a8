//! The one table of commands: name, parameters, lane, mutation, timeout, permission, who answers.
//!
//! Everything that depends on the kind of a command reads this table; nothing else lists commands.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use ts_rs::TS;

use crate::command::*;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "snake_case")]
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

impl Permission {
    pub const ALL: [Permission; 6] = [
        Permission::View,
        Permission::Operate,
        Permission::Approve,
        Permission::Files,
        Permission::Shell,
        Permission::Manage,
    ];

    /// The word on the wire; also the name of a token's scope.
    pub const fn as_str(self) -> &'static str {
        match self {
            Permission::View => "view",
            Permission::Operate => "operate",
            Permission::Approve => "approve",
            Permission::Files => "files",
            Permission::Shell => "shell",
            Permission::Manage => "manage",
        }
    }

    pub fn parse(word: &str) -> Option<Permission> {
        Permission::ALL.into_iter().find(|permission| permission.as_str() == word)
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CommandSpec {
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
}

const READ_TIMEOUT_MS: Option<u64> = Some(30_000);

/// For what goes through many files.
const SEARCH_TIMEOUT_MS: Option<u64> = Some(120_000);

macro_rules! commands {
    ($( $variant:ident($params:ident) = $name:literal, $lane:ident, $mutating:literal, $timeout:expr,
        $permission:ident, $answerer:ident, $needs_session:literal; )*) => {
        /// A command with its parameters.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
        #[serde(tag = "cmd")]
        pub enum Command {
            $( #[serde(rename = $name)] $variant($params), )*
        }

        /// Every command, in the order of the documentation.
        pub const COMMANDS: &[CommandSpec] = &[
            $( CommandSpec {
                name: $name,
                lane: Lane::$lane,
                mutating: $mutating,
                timeout_ms: $timeout,
                permission: Permission::$permission,
                answerer: Answerer::$answerer,
                needs_session: $needs_session,
            }, )*
        ];

        /// The names of every command and of the type of its parameters.
        pub const PARAMETERS: &[(&str, &str)] = &[ $( ($name, stringify!($params)), )* ];

        impl Command {
            /// The row of this command.
            pub fn spec(&self) -> &'static CommandSpec {
                let name = match self { $( Command::$variant(_) => $name, )* };
                // The match above names rows of the same macro call, so the row is always found.
                spec(name).unwrap_or(&COMMANDS[0])
            }

            /// Reads the parameters of the command `name` from the frame `text`; unknown fields are ignored.
            pub fn parse(name: &str, text: &str) -> Result<Command, CommandError> {
                match name {
                    $( $name => parameters::<$params>(name, text).map(Command::$variant), )*
                    _ => Err(CommandError::Unknown(name.to_owned())),
                }
            }
        }
    };
}

commands! {
    // variant(parameters) = name, lane, mutating, timeout, permission, answerer, needs session
    SessionCreate(SessionCreateParams) = "session.create", Session, true, None, Operate, Runner, false;
    SessionAttach(SessionAttachParams) = "session.attach", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    SessionDetach(NoParams) = "session.detach", Read, false, READ_TIMEOUT_MS, View, Hub, true;
    SessionClose(NoParams) = "session.close", Control, true, None, Operate, Runner, true;
    SessionDelete(NoParams) = "session.delete", Control, true, None, Operate, Runner, true;
    SessionRestart(NoParams) = "session.restart", Session, true, None, Operate, Runner, true;
    SessionNew(SessionNewParams) = "session.new", Session, true, None, Operate, Runner, true;
    SessionSwitch(SessionSwitchParams) = "session.switch", Session, true, None, Operate, Runner, true;
    Prompt(PromptParams) = "prompt", Session, true, None, Operate, Runner, true;
    Steer(SteerParams) = "steer", Control, true, None, Operate, Runner, true;
    FollowUp(SteerParams) = "follow_up", Control, true, None, Operate, Runner, true;
    QueueSet(QueueSetParams) = "queue.set", Control, true, None, Operate, Runner, true;
    Abort(NoParams) = "abort", Control, true, READ_TIMEOUT_MS, Operate, Runner, true;
    InputResponse(InputResponseParams) = "input_response", Control, false, READ_TIMEOUT_MS, Approve, Runner, true;
    GetState(NoParams) = "get_state", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    GetMessages(GetMessagesParams) = "get_messages", Read, false, READ_TIMEOUT_MS, View, Hub, true;
    GetStats(NoParams) = "get_stats", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    GetModels(NoParams) = "get_models", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    GetCommands(NoParams) = "get_commands", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    GetForkPoints(NoParams) = "get_fork_points", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    SetModel(SetModelParams) = "set_model", Session, true, None, Operate, Runner, true;
    CycleModel(CycleModelParams) = "cycle_model", Session, true, None, Operate, Runner, true;
    SetThinkingLevel(SetThinkingLevelParams) = "set_thinking_level", Session, true, None, Operate, Runner, true;
    CycleThinkingLevel(NoParams) = "cycle_thinking_level", Session, true, None, Operate, Runner, true;
    SetAutoCompaction(EnabledParams) = "set_auto_compaction", Session, true, None, Operate, Runner, true;
    SetAutoRetry(EnabledParams) = "set_auto_retry", Session, true, None, Operate, Runner, true;
    Compact(CompactParams) = "compact", Session, true, None, Operate, Runner, true;
    AbortRetry(NoParams) = "abort_retry", Control, true, READ_TIMEOUT_MS, Operate, Runner, true;
    AbortCompaction(NoParams) = "abort_compaction", Control, true, READ_TIMEOUT_MS, Operate, Runner, true;
    Bash(BashParams) = "bash", Shell, true, None, Shell, Runner, true;
    AbortBash(NoParams) = "abort_bash", Control, true, READ_TIMEOUT_MS, Operate, Runner, true;
    ExportHtml(ExportHtmlParams) = "export_html", Session, true, None, Operate, Runner, true;
    GetSkills(NoParams) = "get_skills", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    GetTools(NoParams) = "get_tools", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    ListSessionFiles(NoParams) = "list_session_files", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    GetNativeMessages(NoParams) = "get_native_messages", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    GetLastAssistantText(NoParams) = "get_last_assistant_text", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    GetContextUsage(NoParams) = "get_context_usage", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    GetTree(NoParams) = "get_tree", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    NavigateTree(NavigateTreeParams) = "navigate_tree", Session, true, None, Operate, Runner, true;
    SetSessionName(SetSessionNameParams) = "set_session_name", Session, true, None, Operate, Runner, true;
    Fork(ForkParams) = "fork", Session, true, None, Operate, Runner, true;
    ListSessions(NoParams) = "list_sessions", Read, false, READ_TIMEOUT_MS, View, Hub, false;
    GetRunners(NoParams) = "get_runners", Read, false, READ_TIMEOUT_MS, View, Hub, false;
    RunnerSessions(NoParams) = "runner.sessions", Read, false, READ_TIMEOUT_MS, View, Runner, false;
    RunnerStoredSessions(NoParams) = "runner.stored_sessions", Read, false, READ_TIMEOUT_MS, View, Runner, false;
    RunnerHealth(NoParams) = "runner.health", Read, false, READ_TIMEOUT_MS, View, Runner, false;
    Search(SearchParams) = "search", Read, false, READ_TIMEOUT_MS, View, Hub, false;
    Delegate(DelegateRequest) = "delegate", Control, true, None, Operate, Runner, true;
    RunInput(RunInputParams) = "run.input", Control, false, READ_TIMEOUT_MS, Operate, Runner, true;
    RunStdin(RunStdinParams) = "run.stdin", Control, false, READ_TIMEOUT_MS, Operate, Runner, true;
    RunResize(RunResizeParams) = "run.resize", Control, false, READ_TIMEOUT_MS, Operate, Runner, true;
    RunStop(RunStopParams) = "run.stop", Control, false, READ_TIMEOUT_MS, Operate, Runner, true;
    RunScreen(NoParams) = "run.screen", Read, false, READ_TIMEOUT_MS, View, Runner, true;
    FsRead(FsReadParams) = "fs.read", Service, false, READ_TIMEOUT_MS, View, Runner, false;
    FsWrite(FsWriteParams) = "fs.write", Service, false, None, Files, Runner, false;
    FsUpload(FsUploadParams) = "fs.upload", Service, false, None, Files, Runner, false;
    FsList(FsListParams) = "fs.list", Service, false, READ_TIMEOUT_MS, View, Runner, false;
    FsTree(FsTreeParams) = "fs.tree", Service, false, READ_TIMEOUT_MS, View, Runner, false;
    FsStat(FsStatParams) = "fs.stat", Service, false, READ_TIMEOUT_MS, View, Runner, false;
    FsSearch(FsSearchParams) = "fs.search", Service, false, SEARCH_TIMEOUT_MS, View, Runner, false;
    FsCreateDirectory(FsCreateDirectoryParams) = "fs.create_directory", Service, false, None, Files, Runner, false;
    FsRename(FsMoveParams) = "fs.rename", Service, false, None, Files, Runner, false;
    FsMove(FsMoveParams) = "fs.move", Service, false, None, Files, Runner, false;
    FsCopy(FsMoveParams) = "fs.copy", Service, false, None, Files, Runner, false;
    FsDelete(FsDeleteParams) = "fs.delete", Service, false, None, Files, Runner, false;
    FsWatch(FsWatchParams) = "fs.watch", Service, false, None, View, Runner, false;
    GitStatus(GitStatusParams) = "git.status", Service, false, SEARCH_TIMEOUT_MS, View, Runner, false;
    GitDiff(GitDiffParams) = "git.diff", Service, false, SEARCH_TIMEOUT_MS, View, Runner, false;
    GitLog(GitLogParams) = "git.log", Service, false, SEARCH_TIMEOUT_MS, View, Runner, false;
    GitWorktrees(GitWorktreesParams) = "git.worktrees", Service, false, READ_TIMEOUT_MS, View, Runner, false;
    GitWorktreeAdd(GitWorktreeAddParams) = "git.worktree_add", Service, false, None, Files, Runner, false;
    GitWorktreeRemove(GitWorktreeRemoveParams) = "git.worktree_remove", Service, false, None, Files, Runner, false;
    HostBash(HostBashParams) = "host.bash", Service, false, None, Shell, Runner, false;
    HostInfo(HostInfoParams) = "host.info", Service, false, READ_TIMEOUT_MS, View, Runner, false;
    HostDoctor(HostDoctorParams) = "host.doctor", Service, false, READ_TIMEOUT_MS, View, Runner, false;
    HostCapabilities(HostCapabilitiesParams) = "host.capabilities", Service, false, READ_TIMEOUT_MS, View, Runner, false;
    HostLogs(HostLogsParams) = "host.logs", Service, false, READ_TIMEOUT_MS, Manage, Runner, false;
    Cancel(CancelParams) = "cancel", Control, false, READ_TIMEOUT_MS, View, Hub, false;
    DelegateCancel(DelegateCancelParams) = "delegate.cancel", Control, true, READ_TIMEOUT_MS, Operate, Runner, true;
}

/// The row of a command by its name.
pub fn spec(name: &str) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|row| row.name == name)
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

fn parameters<'de, T: serde::Deserialize<'de>>(name: &str, text: &'de str) -> Result<T, CommandError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner().to_string();
        let reason = if path == "." { reason } else { format!("{path}: {reason}") };
        CommandError::Invalid { name: name.to_owned(), reason }
    })
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
    #[serde(default)]
    pub user_role: Option<crate::people::Role>,
    #[serde(default, borrow)]
    pub connection_id: Option<std::borrow::Cow<'a, str>>,
    /// The client's own `id` as it came, kept by the hub when it puts its own in place; dependencies name it.
    #[serde(default, borrow)]
    pub client_command_id: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    pub idempotency_key: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    pub depends_on: Option<Vec<String>>,
    #[serde(default)]
    pub if_session_version: Option<u64>,
    /// Answer with the agent's own words where it has some: `data` is then `{"native": …}`.
    #[serde(default)]
    pub native: Option<bool>,
    /// Do it only when the agent neither works nor compacts; the command waits for that at its turn in the lane.
    #[serde(default)]
    pub when_idle: Option<bool>,
}
