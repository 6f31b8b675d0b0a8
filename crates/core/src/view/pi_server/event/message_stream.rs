//! One answer while it streams: its blocks, opened and closed as pi does.
//! Clients of the document expect start, deltas and end of every block, also when the watcher came in the middle of an
//! answer or the agent left out an end.

use std::collections::BTreeMap;

use qd_wire::message::{KnownPart, Part};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::answer::message::{pending, tool_call};

/// An answer between its start and its end.
#[derive(Debug, Default)]
pub(super) struct MessageStream {
    created_at: i64,
    /// In the order of their index, which is the order in which they are closed.
    blocks: BTreeMap<u32, StreamBlock>,
}

#[derive(Debug)]
struct StreamBlock {
    kind: BlockKind,
    text: String,
    is_open: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum BlockKind {
    Text,
    Thinking,
    ToolCall { tool_call_id: String, name: String, input: Value },
}

/// What is said of one block.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BlockUpdate<'a> {
    #[serde(rename = "type")]
    name: &'static str,
    content_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call: Option<Value>,
}

impl<'a> BlockUpdate<'a> {
    fn new(name: &'static str, content_index: u32) -> Self {
        BlockUpdate {
            name,
            content_index,
            delta: None,
            content: None,
            id: None,
            tool_name: None,
            tool_call: None,
        }
    }

    /// Tokens are not counted before the end.
    fn text(&self) -> String {
        // Written as text, because there is one for every delta and it never differs.
        const FRONT: &str = "{\"type\":\"message_update\",\"usage\":{\"input\":0,\"output\":0,\"cacheRead\":0,\
            \"cacheWrite\":0,\"totalTokens\":0,\"cost\":{\"input\":0,\"output\":0,\"cacheRead\":0,\"cacheWrite\":0,\
            \"total\":0}},\"assistantMessageEvent\":";
        let mut bytes = FRONT.as_bytes().to_vec();
        // Writing to a vector cannot fail.
        let written = serde_json::to_writer(&mut bytes, self);
        debug_assert!(written.is_ok(), "{written:?}");
        bytes.push(b'}');
        String::from_utf8(bytes).unwrap_or_default()
    }
}

impl MessageStream {
    pub(super) fn new(created_at: i64) -> Self {
        MessageStream { created_at, blocks: BTreeMap::new() }
    }

    /// The message so far.
    pub(super) fn so_far(&self) -> Value {
        pending(Some(self.created_at), self.blocks.values().map(StreamBlock::value).collect())
    }

    pub(super) fn text(&mut self, index: u32, delta: &str, out: &mut Vec<String>) {
        self.grow(index, BlockKind::Text, delta, out);
    }

    pub(super) fn thinking(&mut self, index: u32, delta: &str, out: &mut Vec<String>) {
        self.grow(index, BlockKind::Thinking, delta, out);
    }

    pub(super) fn call_started(&mut self, index: u32, tool_call_id: &str, name: &str, out: &mut Vec<String>) {
        let (tool_call_id, name) = (tool_call_id.to_owned(), name.to_owned());
        self.open(index, BlockKind::ToolCall { tool_call_id, name, input: Value::Null }, out);
    }

    pub(super) fn call_delta(&mut self, index: u32, delta: &str, out: &mut Vec<String>) {
        // Its start was missed. Its name and id come with its end at the latest.
        let nameless =
            BlockKind::ToolCall { tool_call_id: String::new(), name: String::new(), input: Value::Null };
        self.grow(index, nameless, delta, out);
    }

    pub(super) fn call_ended(
        &mut self,
        index: u32,
        tool_call_id: &str,
        name: &str,
        input: &Value,
        out: &mut Vec<String>,
    ) {
        if !self.blocks.contains_key(&index) {
            self.call_started(index, tool_call_id, name, out);
        }
        if let Some(block) = self.blocks.get_mut(&index) {
            block.kind = BlockKind::ToolCall {
                tool_call_id: tool_call_id.to_owned(),
                name: name.to_owned(),
                input: input.clone(),
            };
            block.close(index, out);
        }
    }

    /// Closes what is open. The finished message knows best what was said: a watcher may have come in the middle.
    pub(super) fn finish(&mut self, parts: &[Part], out: &mut Vec<String>) {
        for (index, block) in &mut self.blocks {
            let part = usize::try_from(*index).ok().and_then(|index| parts.get(index));
            if let Some(Part::Known(KnownPart::Text { text, .. } | KnownPart::Thinking { text, .. })) = part {
                block.text.clone_from(text);
            }
            block.close(*index, out);
        }
    }

    fn grow(&mut self, index: u32, kind: BlockKind, delta: &str, out: &mut Vec<String>) {
        let is_known = self.blocks.get(&index).is_some_and(|block| block.is_open);
        if !is_known {
            self.open(index, kind, out);
        }
        let Some(block) = self.blocks.get_mut(&index) else { return };
        block.text.push_str(delta);
        let name = match block.kind {
            BlockKind::Text => "text_delta",
            BlockKind::Thinking => "thinking_delta",
            BlockKind::ToolCall { .. } => "toolcall_delta",
        };
        out.push(BlockUpdate { delta: Some(delta), ..BlockUpdate::new(name, index) }.text());
    }

    /// Opens a block; the ones before it are complete then.
    fn open(&mut self, index: u32, kind: BlockKind, out: &mut Vec<String>) {
        for (before, block) in self.blocks.range_mut(..index) {
            // A tool call is closed by its own end, which brings its arguments.
            if !matches!(block.kind, BlockKind::ToolCall { .. }) {
                block.close(*before, out);
            }
        }
        out.push(match &kind {
            BlockKind::Text => BlockUpdate::new("text_start", index).text(),
            BlockKind::Thinking => BlockUpdate::new("thinking_start", index).text(),
            BlockKind::ToolCall { tool_call_id, name, .. } => BlockUpdate {
                id: Some(tool_call_id),
                tool_name: Some(name),
                ..BlockUpdate::new("toolcall_start", index)
            }
            .text(),
        });
        self.blocks.insert(index, StreamBlock { kind, text: String::new(), is_open: true });
    }
}

impl StreamBlock {
    fn close(&mut self, index: u32, out: &mut Vec<String>) {
        if !self.is_open {
            return;
        }
        self.is_open = false;
        out.push(match &self.kind {
            BlockKind::Text => {
                BlockUpdate { content: Some(&self.text), ..BlockUpdate::new("text_end", index) }.text()
            }
            BlockKind::Thinking => {
                BlockUpdate { content: Some(&self.text), ..BlockUpdate::new("thinking_end", index) }.text()
            }
            BlockKind::ToolCall { .. } => {
                BlockUpdate { tool_call: Some(self.value()), ..BlockUpdate::new("toolcall_end", index) }
                    .text()
            }
        });
    }

    fn value(&self) -> Value {
        match &self.kind {
            BlockKind::Text => json!({ "type": "text", "text": self.text }),
            BlockKind::Thinking => json!({ "type": "thinking", "thinking": self.text }),
            BlockKind::ToolCall { tool_call_id, name, input } => {
                // A call that was cut off has arguments that are no JSON; it has none then.
                let written = || serde_json::from_str(&self.text).unwrap_or_default();
                let input = if input.is_null() { written() } else { input.clone() };
                tool_call(tool_call_id, name, &input)
            }
        }
    }
}
