//! What each canonical command answers with, for clients whose compiler shall know.

use ts_rs::{Config, TS, TypeVisitor};

use crate::answer::*;
use crate::data::*;
use crate::run::{RunInputData, RunStopData, TerminalSnapshot};
use crate::service::*;

macro_rules! answers {
    ($( $name:literal => $data:ty; )*) => {
        /// The type of a command's `data`; of one that is not listed nothing is known.
        pub(super) fn data_type(config: &Config, name: &str) -> String {
            match name {
                $( $name => <$data as TS>::name(config), )*
                _ => "unknown".to_owned(),
            }
        }

        pub(super) fn visit(visitor: &mut impl TypeVisitor) {
            $( visitor.visit::<$data>(); )*
        }
    };
}

answers! {
    "session.create" => SessionCreatedData;
    "session.attach" => AttachData;
    "session.restart" => SessionCreatedData;
    "session.new" => MovedData;
    "session.switch" => MovedData;
    "fork" => MovedData;
    "prompt" => PromptData;
    "steer" => PromptData;
    "follow_up" => PromptData;
    "queue.set" => QueueSetData;
    "get_state" => SessionState;
    "get_messages" => MessagesData;
    "get_stats" => StatsData;
    "get_models" => ModelsData;
    "get_commands" => CommandsData;
    "get_fork_points" => ForkPointsData;
    "set_model" => Option<ModelRef>;
    "cycle_model" => Option<ModelRef>;
    "set_thinking_level" => Option<ThinkingLevelData>;
    "cycle_thinking_level" => Option<ThinkingLevelData>;
    "compact" => CompactData;
    "bash" => AgentBashData;
    "export_html" => ExportData;
    "get_skills" => SkillsData;
    "get_tools" => ToolsData;
    "list_session_files" => SessionFilesData;
    "get_last_assistant_text" => TextData;
    "get_context_usage" => Option<ContextUsageData>;
    "get_tree" => TreeData;
    "navigate_tree" => NavigatedData;
    "list_sessions" => SessionsData;
    "get_runners" => RunnersData;
    "runner.sessions" => RunnerSessionsData;
    "runner.stored_sessions" => StoredSessionsData;
    "runner.health" => RunnerHealthData;
    "search" => SearchData;
    "run.input" => RunInputData;
    "run.stop" => RunStopData;
    "run.screen" => TerminalSnapshot;
    "fs.read" => FsReadData;
    "fs.write" => FsWriteData;
    "fs.upload" => FsUploadData;
    "fs.list" => FsListData;
    "fs.tree" => FsTreeData;
    "fs.stat" => FsStatData;
    "fs.search" => FsSearchData;
    "fs.create_directory" => FsDoneData;
    "fs.rename" => FsDoneData;
    "fs.move" => FsDoneData;
    "fs.copy" => FsDoneData;
    "fs.delete" => FsDoneData;
    "git.status" => GitStatusData;
    "git.diff" => GitDiffData;
    "git.log" => GitLogData;
    "git.worktrees" => GitWorktreesData;
    "git.worktree_add" => GitWorktreesData;
    "git.worktree_remove" => GitWorktreesData;
    "host.bash" => BashData;
    "host.info" => HostInfoData;
    "host.doctor" => HostInfoData;
    "host.capabilities" => HostInfoData;
    "host.logs" => HostLogsData;
}
