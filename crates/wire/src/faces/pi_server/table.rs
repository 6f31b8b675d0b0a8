//! The one table of the document's commands: what each names, which canonical command does its work, its lane,
//! whether it changes the session, its time limit, its rate bucket, the permission it needs, whether it is answered in
//! the agent's own words and whether it waits for the end of a turn.

use crate::derive::wire;
use serde::Serialize;
#[cfg(feature = "codegen")]
use ts_rs::{Config, TS};

use super::command::*;
#[cfg(feature = "codegen")]
use super::data::*;
use crate::command_table::{self, Lane, Permission};

/// What a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// No session.
    Server,
    /// A session that is created, loaded, left or watched: a server command that may name one.
    Named,
    /// A session that must exist.
    Session,
}

/// Which limit a command is counted against. Every bucket is one principal's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bucket {
    /// Server commands that name no session.
    Server,
    /// Server commands about one session, and what must get through while it is busy: aborts.
    Control,
    /// Work and reads of one session.
    Session,
    /// Answers to dialogs of one session.
    UiResponse,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CommandSpec {
    pub name: &'static str,
    pub target: Target,
    /// The canonical command that does the work; empty where the hub does it by itself.
    pub canonical: &'static str,
    pub lane: Lane,
    /// Whether success raises the session's version.
    pub mutating: bool,
    /// From admission, waiting included; `None` for work that cannot be taken back.
    pub timeout_ms: Option<u64>,
    pub bucket: Bucket,
    pub permission: Permission,
    /// Whether the answer must have the agent's own words, because the document describes pi's.
    pub native: bool,
    /// Whether it would cut off a turn: the document has it wait for the turn's end.
    pub when_idle: bool,
}

impl CommandSpec {
    /// Whether it is written down before it is done, and its outcome before it is told. Aborts are not: they must
    /// work when nothing can be written, and one that is lost is sent again.
    pub fn is_journaled(&self) -> bool {
        self.mutating
            && !command_table::spec(self.canonical).is_some_and(command_table::CommandSpec::is_abort)
    }
}

/// The names of a command's types in TypeScript.
#[cfg(feature = "codegen")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeRow {
    pub name: &'static str,
    pub fields: String,
    pub data: String,
}

const READ: Option<u64> = Some(30_000);
const WORK: Option<u64> = Some(300_000);

macro_rules! pi_commands {
    ($( $variant:ident($fields:ident) -> $data:ident = $name:literal, $target:ident, $canonical:literal,
        $lane:ident, $mutating:literal, $timeout:expr, $bucket:ident, $permission:ident, $native:literal, $when_idle:literal; )*) => {
        /// A command with its own fields; those every command may have are in [`Envelope`].
        #[wire]
        #[serde(tag = "type")]
        pub enum Command {
            $( #[serde(rename = $name)] $variant($fields), )*
        }

        /// Every command, in the order of the document.
        pub const COMMANDS: &[CommandSpec] = &[
            $( CommandSpec {
                name: $name,
                target: Target::$target,
                canonical: $canonical,
                lane: Lane::$lane,
                mutating: $mutating,
                timeout_ms: $timeout,
                bucket: Bucket::$bucket,
                permission: Permission::$permission,
                native: $native,
                when_idle: $when_idle,
            }, )*
        ];

        impl Command {
            /// The name on the wire.
            pub const fn name(&self) -> &'static str {
                match self { $( Command::$variant(_) => $name, )* }
            }

            /// Whether the answer must have the agent's own words.
            pub const fn wants_native(&self) -> bool {
                match self { $( Command::$variant(_) => $native, )* }
            }

            /// Whether it waits for the end of a turn.
            pub const fn waits_for_agent(&self) -> bool {
                match self { $( Command::$variant(_) => $when_idle, )* }
            }
        }

        /// The types of every command, for the generated client.
        #[cfg(feature = "codegen")]
        pub fn type_rows(config: &Config) -> Vec<TypeRow> {
            vec![ $( TypeRow {
                name: $name,
                fields: <$fields as TS>::name(config),
                data: <$data as TS>::name(config),
            }, )* ]
        }

        /// Visits the types of every command's data.
        #[cfg(feature = "codegen")]
        pub(crate) fn visit_data(visitor: &mut impl ts_rs::TypeVisitor) {
            $( visitor.visit::<$data>(); )*
        }
    };
}

pi_commands! {
    // variant(fields) -> data = name, target, canonical, lane, mutating, timeout, bucket, permission, native,
    // when idle
    ListSessions(NoFields) -> SessionList = "list_sessions", Server, "list_sessions", Read, false, READ, Server, View, false, false;
    CreateSession(CreateSession) -> SessionCreated = "create_session", Named, "session.create", Session, true, None, Server, Operate, false, false;
    DeleteSession(SessionOnly) -> SessionDeleted = "delete_session", Named, "session.close", Control, true, None, Control, Operate, false, false;
    SwitchSession(SwitchSession) -> SessionSwitched = "switch_session", Named, "get_state", Read, false, READ, Control, View, false, false;
    GetMetrics(NoFields) -> Metrics = "get_metrics", Server, "runner.health", Read, false, READ, Server, View, false, false;
    HealthCheck(NoFields) -> Health = "health_check", Server, "runner.health", Read, false, READ, Server, View, false, false;
    ListStoredSessions(NoFields) -> StoredSessionList = "list_stored_sessions", Server, "runner.stored_sessions", Read, false, READ, Server, View, false, false;
    LoadSession(LoadSession) -> SessionCreated = "load_session", Named, "session.create", Session, true, None, Server, Operate, false, false;
    GetStartupRecovery(NoFields) -> StartupRecovery = "get_startup_recovery", Server, "", Read, false, READ, Server, View, false, false;
    GetCommandHistory(GetCommandHistory) -> CommandHistory = "get_command_history", Server, "", Read, false, READ, Server, View, false, false;
    GetAvailableModels(SessionOnly) -> ModelList = "get_available_models", Session, "get_models", Read, false, READ, Session, View, true, false;
    GetCommands(SessionOnly) -> SlashCommandList = "get_commands", Session, "get_commands", Read, false, READ, Session, View, true, false;
    GetSkills(SessionOnly) -> SkillList = "get_skills", Session, "get_skills", Read, false, READ, Session, View, true, false;
    GetTools(SessionOnly) -> ToolList = "get_tools", Session, "get_tools", Read, false, READ, Session, View, true, false;
    ListSessionFiles(SessionOnly) -> SessionFileList = "list_session_files", Session, "list_session_files", Read, false, READ, Session, View, true, false;
    Prompt(Prompt) -> NoData = "prompt", Session, "prompt", Session, true, None, Session, Operate, false, false;
    Steer(Steer) -> NoData = "steer", Session, "steer", Control, true, None, Session, Operate, false, false;
    FollowUp(Steer) -> NoData = "follow_up", Session, "follow_up", Control, true, None, Session, Operate, false, false;
    Abort(SessionOnly) -> NoData = "abort", Session, "abort", Control, true, READ, Control, Operate, false, false;
    GetState(SessionOnly) -> SessionInfo = "get_state", Session, "get_state", Read, false, READ, Session, View, false, false;
    GetMessages(SessionOnly) -> MessageList = "get_messages", Session, "get_native_messages", Read, false, READ, Session, View, true, false;
    SetModel(SetModel) -> ModelSet = "set_model", Session, "set_model", Session, true, None, Session, Operate, true, false;
    CycleModel(CycleModel) -> ModelCycled = "cycle_model", Session, "cycle_model", Session, true, None, Session, Operate, true, false;
    SetThinkingLevel(SetThinkingLevel) -> NoData = "set_thinking_level", Session, "set_thinking_level", Session, true, None, Session, Operate, false, false;
    CycleThinkingLevel(SessionOnly) -> ThinkingLevelCycled = "cycle_thinking_level", Session, "cycle_thinking_level", Session, true, None, Session, Operate, true, false;
    SetSessionName(SetSessionName) -> NoData = "set_session_name", Session, "set_session_name", Session, true, None, Session, Operate, false, false;
    Compact(Compact) -> Compacted = "compact", Session, "compact", Session, true, WORK, Session, Operate, true, true;
    AbortCompaction(SessionOnly) -> NoData = "abort_compaction", Session, "abort_compaction", Control, true, READ, Control, Operate, false, false;
    SetAutoCompaction(SetEnabled) -> NoData = "set_auto_compaction", Session, "set_auto_compaction", Session, true, None, Session, Operate, false, false;
    SetAutoRetry(SetEnabled) -> NoData = "set_auto_retry", Session, "set_auto_retry", Session, true, None, Session, Operate, false, false;
    AbortRetry(SessionOnly) -> NoData = "abort_retry", Session, "abort_retry", Control, true, READ, Control, Operate, false, false;
    Bash(Bash) -> BashResult = "bash", Session, "bash", Session, true, WORK, Session, Shell, true, false;
    AbortBash(SessionOnly) -> NoData = "abort_bash", Session, "abort_bash", Control, true, READ, Control, Operate, false, false;
    GetSessionStats(SessionOnly) -> SessionStats = "get_session_stats", Session, "get_stats", Read, false, READ, Session, View, true, false;
    ExportHtml(ExportHtml) -> Exported = "export_html", Session, "export_html", Session, true, None, Session, Operate, true, false;
    NewSession(NewSession) -> Moved = "new_session", Session, "session.new", Session, true, None, Session, Operate, true, true;
    SwitchSessionFile(SwitchSessionFile) -> Moved = "switch_session_file", Session, "session.switch", Session, true, None, Session, Operate, true, true;
    Fork(Fork) -> Forked = "fork", Session, "fork", Session, true, None, Session, Operate, true, true;
    GetForkMessages(SessionOnly) -> ForkMessageList = "get_fork_messages", Session, "get_fork_points", Read, false, READ, Session, View, true, false;
    GetTree(SessionOnly) -> SessionTree = "get_tree", Session, "get_tree", Read, false, READ, Session, View, true, false;
    NavigateTree(NavigateTree) -> Navigated = "navigate_tree", Session, "navigate_tree", Session, true, None, Session, Operate, true, true;
    GetLastAssistantText(SessionOnly) -> LastAssistantText = "get_last_assistant_text", Session, "get_last_assistant_text", Read, false, READ, Session, View, true, false;
    GetContextUsage(SessionOnly) -> ContextUsage = "get_context_usage", Session, "get_context_usage", Read, false, READ, Session, View, true, false;
    ExtensionUiResponse(ExtensionUiResponse) -> NoData = "extension_ui_response", Session, "input_response", Control, false, READ, UiResponse, Approve, false, false;
}

/// The row of a command by its name.
pub fn spec(name: &str) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|row| row.name == name)
}
