//! pi's session tree, flat. Made from `get_entries`: pi's own `get_tree` nests a level for each entry, deeper than
//! any reader of JSON goes.

use std::collections::HashMap;

use serde_json::{Value, json};

/// Nodes told; of a larger tree the newest.
const NODES_MAX: usize = 10_000;

/// Characters of a node's text.
const PREVIEW_CHARS_MAX: usize = 400;

/// `{current_leaf_id, nodes}`, oldest first, from the data of `get_entries`.
pub fn tree(data: &Value) -> Value {
    let entries = data.get("entries").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let labels = labels(entries);
    let newest = entries.get(entries.len().saturating_sub(NODES_MAX)..).unwrap_or_default();
    let nodes = newest.iter().filter_map(|entry| {
        let id = entry.get("id")?.as_str()?;
        let mut node = json!({
            "entry_id": id,
            "parent_id": entry.get("parentId"),
            "entry_type": entry.get("type"),
            "role": role(entry),
            "text": preview(entry),
            "timestamp": entry.get("timestamp"),
        });
        if let (Some(label), Some(node)) = (labels.get(id), node.as_object_mut()) {
            node.insert("label".to_owned(), Value::from(*label));
        }
        Some(node)
    });
    json!({ "current_leaf_id": data.get("leafId"), "nodes": nodes.collect::<Vec<_>>() })
}

/// The label of each entry that has one; a later one without text takes it away.
fn labels(entries: &[Value]) -> HashMap<&str, &str> {
    let mut labels = HashMap::new();
    for entry in entries.iter().filter(|entry| kind(entry) == "label") {
        let Some(target) = entry.get("targetId").and_then(Value::as_str) else { continue };
        match entry.get("label").and_then(Value::as_str) {
            Some(label) => labels.insert(target, label),
            None => labels.remove(target),
        };
    }
    labels
}

fn kind(entry: &Value) -> &str {
    entry.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn role(entry: &Value) -> Option<&str> {
    match kind(entry) {
        "message" => entry.pointer("/message/role")?.as_str(),
        "custom_message" => Some("custom"),
        _ => None,
    }
}

fn preview(entry: &Value) -> Option<String> {
    let field = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
    let text = match kind(entry) {
        "message" => {
            let message = entry.get("message")?;
            match message.get("command").and_then(Value::as_str) {
                Some(command) => Some(command.to_owned()),
                None => content_text(message.get("content")?),
            }
        }
        "custom_message" => content_text(entry.get("content")?),
        "compaction" | "branch_summary" => field("summary"),
        "session_info" => field("name"),
        "thinking_level_change" => field("thinkingLevel"),
        "label" => field("label"),
        "model_change" => Some(format!("{}/{}", field("provider")?, field("modelId")?)),
        _ => None,
    }?;
    Some(text.chars().take(PREVIEW_CHARS_MAX).collect())
}

/// The texts of a message, and the names of the tools it calls.
fn content_text(content: &Value) -> Option<String> {
    if let Some(text) = content.as_str() {
        return Some(text.to_owned());
    }
    let mut parts = Vec::new();
    for block in content.as_array()? {
        let part = match kind(block) {
            "text" => block.get("text").and_then(Value::as_str).map(str::to_owned),
            "toolCall" => block.get("name").and_then(Value::as_str).map(|name| format!("[{name}]")),
            "image" => Some("[image]".to_owned()),
            _ => None,
        };
        parts.extend(part);
    }
    Some(parts.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_flat_with_previews_and_labels() {
        let long = "x".repeat(1000);
        let data = json!({"leafId": "c", "entries": [
            {"type": "model_change", "id": "a", "parentId": null, "timestamp": "t", "provider": "p", "modelId": "m"},
            {"type": "message", "id": "b", "parentId": "a", "message": {"role": "user", "content": [{"type": "text", "text": long}]}},
            {"type": "message", "id": "c", "parentId": "a", "message": {"role": "assistant",
                "content": [{"type": "thinking", "thinking": "no"}, {"type": "toolCall", "name": "bash"}]}},
            {"type": "label", "id": "d", "parentId": "c", "targetId": "b", "label": "here"},
            {"type": "label", "id": "e", "parentId": "d", "targetId": "c", "label": "there"},
            {"type": "label", "id": "f", "parentId": "e", "targetId": "c"},
        ]});
        let tree = tree(&data);
        assert_eq!(tree["current_leaf_id"], "c");
        assert_eq!(tree["nodes"][0]["text"], "p/m");
        assert_eq!(tree["nodes"][0]["parent_id"], Value::Null);
        assert_eq!(tree["nodes"][1]["text"].as_str().map(str::len), Some(400));
        assert_eq!((&tree["nodes"][1]["role"], &tree["nodes"][1]["label"]), (&json!("user"), &json!("here")));
        assert_eq!(tree["nodes"][2]["text"], "[bash]");
        assert!(tree["nodes"][2].get("label").is_none());
    }

    #[test]
    fn of_a_huge_tree_the_newest_are_told() {
        let entries: Vec<Value> =
            (0..NODES_MAX + 5).map(|number| json!({"type": "usage", "id": number.to_string()})).collect();
        let tree = tree(&json!({"entries": entries}));
        assert_eq!(tree["nodes"].as_array().map(Vec::len), Some(NODES_MAX));
        assert_eq!(tree["nodes"][0]["entry_id"], "5");
    }
}
