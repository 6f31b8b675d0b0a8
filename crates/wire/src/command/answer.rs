//! Answers that an agent's own words are made into, where nothing else names their shape. For the documents and the
//! clients: the runner writes them field by field.

use crate::derive::TS;

/// `prompt`, `steer`, `follow_up`: what became of it.
#[derive(Debug, Clone, TS)]
pub struct PromptData {
    /// `started` a turn, `queued`, or `handled`: no turn follows.
    #[ts(type = "\"started\" | \"queued\" | \"handled\"")]
    pub disposition: String,
}

/// `session.new`, `session.switch`, `fork`.
#[derive(Debug, Clone, TS)]
#[ts(optional_fields)]
pub struct MovedData {
    /// An extension said no.
    pub cancelled: bool,
    pub native_session_id: Option<String>,
    pub native_session_file: Option<String>,
    /// Of a fork: the message it went back before, to be edited.
    pub text: Option<String>,
}

/// `navigate_tree`.
#[derive(Debug, Clone, TS)]
#[ts(optional_fields)]
pub struct NavigatedData {
    pub cancelled: bool,
    pub aborted: Option<bool>,
    /// What to put into the editor.
    pub editor_text: Option<String>,
}

/// `set_thinking_level`, `cycle_thinking_level`: the level as the agent took it.
#[derive(Debug, Clone, TS)]
pub struct ThinkingLevelData {
    pub level: String,
}

/// `compact`.
#[derive(Debug, Clone, TS)]
pub struct CompactData {
    pub summary: Option<String>,
    #[ts(type = "number | null")]
    pub tokens_before: Option<u64>,
    #[ts(type = "number | null")]
    pub tokens_after: Option<u64>,
}

/// `bash`.
#[derive(Debug, Clone, TS)]
pub struct AgentBashData {
    pub output: Option<String>,
    pub exit_code: Option<i32>,
    pub cancelled: Option<bool>,
    pub truncated: Option<bool>,
    pub full_output_path: Option<String>,
}

/// `export_html`.
#[derive(Debug, Clone, TS)]
pub struct ExportData {
    /// On the session's machine.
    pub path: String,
}

/// `get_last_assistant_text`.
#[derive(Debug, Clone, TS)]
pub struct TextData {
    pub text: Option<String>,
}

/// `get_context_usage`; null where the agent cannot say.
#[derive(Debug, Clone, TS)]
pub struct ContextUsageData {
    pub tokens: Option<f64>,
    pub context_window: Option<f64>,
    pub percent: Option<f64>,
}

/// `get_skills`.
#[derive(Debug, Clone, TS)]
pub struct SkillsData {
    pub skills: Vec<Skill>,
}

#[derive(Debug, Clone, TS)]
pub struct Skill {
    pub name: String,
    pub description: String,
    pub file_path: String,
    pub source: String,
}

/// `get_tools`.
#[derive(Debug, Clone, TS)]
pub struct ToolsData {
    pub tools: Vec<Tool>,
}

#[derive(Debug, Clone, TS)]
#[ts(rename = "ToolInfo")]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
}

/// `list_session_files`, newest first.
#[derive(Debug, Clone, TS)]
pub struct SessionFilesData {
    pub files: Vec<SessionFile>,
}

#[derive(Debug, Clone, TS)]
pub struct SessionFile {
    pub path: String,
    pub name: Option<String>,
    /// Unix milliseconds.
    #[ts(type = "number")]
    pub modified_at: i64,
}

/// `get_tree`, oldest first.
#[derive(Debug, Clone, TS)]
pub struct TreeData {
    pub current_leaf_id: Option<String>,
    pub nodes: Vec<TreeNode>,
}

#[derive(Debug, Clone, TS)]
#[ts(optional_fields)]
pub struct TreeNode {
    pub entry_id: String,
    #[ts(optional = false)]
    pub parent_id: Option<String>,
    pub entry_type: String,
    #[ts(optional = false)]
    pub role: Option<String>,
    #[ts(optional = false)]
    pub text: Option<String>,
    #[ts(optional, type = "unknown")]
    pub timestamp: Option<serde_json::Value>,
    pub label: Option<String>,
}
