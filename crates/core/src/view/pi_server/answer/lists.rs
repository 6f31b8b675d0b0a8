//! Lists: models, commands, skills, tools, files, messages, and the tree of a conversation.
//!
//! Models, messages and fork points in pi's own words are passed on as they are; all else is brought into the
//! document's form.

use qd_wire::Message;
use qd_wire::data::{ForkPointsData, ModelsData};
use qd_wire::pi_server::{
    ForkMessage, ForkMessageList, Model, ModelList, SessionFile, SessionFileList, SessionTree, Skill,
    SkillList, SlashCommand, SlashCommandList, Tool, ToolList, TreeNode,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::runner_answer::{RunnerAnswer, pick, pick_text, to_text};
use crate::time::iso_8601;

/// Of each message of a tree this much is shown, in characters.
const PREVIEW_CHARS_MAX: usize = 400;

pub(super) fn models(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    // The document's form is pi's own, so an answer in pi's words is passed on unchanged.
    if said.is_native {
        return Ok(said.text().to_owned());
    }
    let canonical: ModelsData = said.read()?;
    let models = canonical.models.into_iter().map(|model| Model {
        id: model.model_id,
        provider: model.provider,
        name: model.name,
        reasoning: model.reasoning,
        context_window: model.context_window,
        max_tokens: model.max_tokens,
        ..Model::default()
    });
    to_text(&ModelList { models: models.collect() })
}

pub(super) fn commands(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    let said = said.value()?;
    let commands = items(&said, "commands").filter_map(|command| {
        let source = pick_text(command, &["source"]);
        Some(SlashCommand {
            name: pick_text(command, &["name"])?,
            description: pick_text(command, &["description"]),
            // The document knows three words; what another agent brings with it is an extension of it.
            source: source
                .filter(|source| matches!(source.as_str(), "extension" | "skill" | "prompt"))
                .unwrap_or_else(|| "extension".to_owned()),
            path: pick_text(command, &["path"]).or_else(|| source_info(command, "path")),
        })
    });
    to_text(&SlashCommandList { commands: commands.collect() })
}

/// pi lists its skills as commands `skill:<name>`.
pub(super) fn skills(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    let said = said.value()?;
    let named = items(&said, "skills");
    let among_commands = items(&said, "commands")
        .filter(|command| command.get("source").and_then(Value::as_str) == Some("skill"));
    let skills = named.chain(among_commands).filter_map(|skill| {
        let name = pick_text(skill, &["name"])?;
        // `source` means the kind of command in one form and where the skill came from in the other.
        let is_command = skill.get("sourceInfo").is_some();
        let path =
            pick_text(skill, &["filePath", "file_path", "path"]).or_else(|| source_info(skill, "path"));
        let source = if is_command { source_info(skill, "source") } else { pick_text(skill, &["source"]) };
        Some(Skill {
            name: name.strip_prefix("skill:").unwrap_or(&name).to_owned(),
            description: pick_text(skill, &["description"]).unwrap_or_default(),
            file_path: path.unwrap_or_default(),
            source: source.unwrap_or_else(|| "unknown".to_owned()),
        })
    });
    to_text(&SkillList { skills: skills.collect() })
}

pub(super) fn tools(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    let said = said.value()?;
    let tools = items(&said, "tools").filter_map(|tool| {
        let description = pick_text(tool, &["description"]).unwrap_or_default();
        Some(Tool { name: pick_text(tool, &["name"])?, description })
    });
    to_text(&ToolList { tools: tools.collect() })
}

pub(super) fn files(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    let said = said.value()?;
    let files = items(&said, "files").filter_map(|file| {
        let path = pick_text(file, &["path"])?;
        let last = path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let modified_at = match pick(file, &["modifiedAt", "modified_at"]) {
            Some(Value::String(text)) => text.clone(),
            Some(number) => iso_8601(number.as_i64().unwrap_or(0)),
            None => iso_8601(0),
        };
        Some(SessionFile { name: pick_text(file, &["name"]).unwrap_or(last), path, modified_at })
    });
    to_text(&SessionFileList { files: files.collect() })
}

/// pi's own are passed on unread: they may be many megabytes.
pub(super) fn messages(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    struct Messages {
        messages: Vec<Message>,
    }
    if said.is_native {
        return Ok(said.text().to_owned());
    }
    let canonical: Messages = said.read()?;
    to_text(&json!({ "messages": super::messages(&canonical.messages) }))
}

pub(super) fn fork_messages(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    if said.is_native {
        return Ok(said.text().to_owned());
    }
    let points: ForkPointsData = said.read()?;
    let messages = points.fork_points.into_iter();
    let messages = messages.map(|point| ForkMessage { entry_id: point.entry_id, text: point.preview });
    to_text(&ForkMessageList { messages: messages.collect() })
}

/// Nodes as they are, or made from pi's entries (`get_entries`).
pub(super) fn tree(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    let said = said.value()?;
    let leaf = pick_text(&said, &["currentLeafId", "current_leaf_id", "leafId"]);
    let nodes = items(&said, "nodes").map(known_node).chain(items(&said, "entries").map(node));
    let nodes = nodes.flatten().collect();
    to_text(&SessionTree { current_leaf_id: leaf, nodes })
}

fn known_node(node: &Value) -> Option<TreeNode> {
    Some(TreeNode {
        entry_id: pick_text(node, &["entryId", "entry_id"])?,
        parent_id: pick_text(node, &["parentId", "parent_id"]),
        entry_type: pick_text(node, &["entryType", "entry_type"])?,
        role: pick_text(node, &["role"]),
        text: pick_text(node, &["text"]),
        timestamp: pick_text(node, &["timestamp"]),
        label: pick_text(node, &["label"]),
    })
}

fn node(entry: &Value) -> Option<TreeNode> {
    let message = entry.get("message");
    Some(TreeNode {
        entry_id: pick_text(entry, &["id"])?,
        parent_id: pick_text(entry, &["parentId"]),
        entry_type: pick_text(entry, &["type"])?,
        role: message.and_then(|message| pick_text(message, &["role"])),
        text: preview(entry),
        timestamp: pick_text(entry, &["timestamp"]),
        label: pick_text(entry, &["label"]),
    })
}

fn preview(entry: &Value) -> Option<String> {
    let content =
        entry.get("message").and_then(|message| message.get("content")).or_else(|| entry.get("summary"))?;
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    Some(text.chars().take(PREVIEW_CHARS_MAX).collect())
}

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn source_info(value: &Value, field: &str) -> Option<String> {
    value.get("sourceInfo").and_then(|info| pick_text(info, &[field]))
}
