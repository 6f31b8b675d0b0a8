//! The message being generated: blocks keyed by content index, as the deltas build them.

use qd_wire::data::{PartialBlock, PartialKind, PartialMessage};
use qd_wire::message::{KnownPart, Message, Part, Role, StopReason, ToolStatus};
use serde_json::Value;

use crate::agent::MessageHead;
use crate::event_writer::count_characters;

/// Blocks one message may have; an agent that exceeds it streams into the last one.
/// The bound is on memory: an agent names indices freely.
const BLOCKS_MAX: usize = 4096;

/// A message that has started and not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageAssembly {
    pub message_id: String,
    pub head: MessageHead,
    blocks: Vec<AssembledBlock>,
}

#[derive(Debug, Clone, PartialEq)]
struct AssembledBlock {
    content_index: u32,
    kind: PartialKind,
    text: String,
    /// Counted along, because offsets are in characters and counting a long text anew for every delta is quadratic.
    characters: u64,
    tool_call_id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
}

impl MessageAssembly {
    pub fn new(message_id: String, head: MessageHead) -> Self {
        MessageAssembly { message_id, head, blocks: Vec::new() }
    }

    /// Appends a delta and says how many characters the block had before it.
    pub fn push(&mut self, content_index: u32, kind: PartialKind, delta: &str) -> u64 {
        let block = self.block(content_index, kind);
        let offset = block.characters;
        block.text.push_str(delta);
        block.characters += count_characters(delta);
        offset
    }

    /// Opens a tool call block.
    pub fn tool_call(&mut self, content_index: u32, tool_call_id: &str, name: &str) {
        let block = self.block(content_index, PartialKind::ToolCall);
        block.tool_call_id = Some(tool_call_id.to_owned());
        block.name = Some(name.to_owned());
    }

    /// The tool call is complete.
    pub fn tool_call_end(&mut self, content_index: u32, tool_call_id: &str, name: &str, input: &Value) {
        self.tool_call(content_index, tool_call_id, name);
        self.block(content_index, PartialKind::ToolCall).input = Some(input.clone());
    }

    /// The id of the tool call streaming at this index; empty when the agent has not said it.
    pub fn tool_call_id(&self, content_index: u32) -> Option<&str> {
        let block = self.blocks.iter().rfind(|block| block.content_index == content_index)?;
        block.tool_call_id.as_deref()
    }

    pub fn snapshot(&self) -> PartialMessage {
        let blocks = self.blocks.iter().map(|block| PartialBlock {
            content_index: block.content_index,
            kind: block.kind,
            text: block.text.clone(),
            offset: block.characters,
            tool_call_id: block.tool_call_id.clone(),
            name: block.name.clone(),
        });
        PartialMessage { message_id: self.message_id.clone(), role: self.head.role, blocks: blocks.collect() }
    }

    /// What there is of the message, closed because nothing more will come.
    pub fn close_as_aborted(self) -> Message {
        let parts =
            self.blocks.into_iter().enumerate().map(|(position, block)| block.into_part(position)).collect();
        Message {
            id: self.message_id,
            // The session gives it its place when it is appended.
            idx: 0,
            role: self.head.role,
            parts,
            created_at: self.head.created_at,
            model: None,
            provider: None,
            // Only answers have one.
            stop_reason: (self.head.role == Role::Assistant).then_some(StopReason::Aborted),
            usage: None,
            tool_call_id: self.head.tool_call_id,
            tool_name: None,
            is_error: None,
            client_id: None,
            sender: None,
            interrupted: None,
            metadata: None,
        }
    }

    fn block(&mut self, content_index: u32, kind: PartialKind) -> &mut AssembledBlock {
        // The block that streams is nearly always the last one.
        let found = self.blocks.iter().rposition(|block| block.content_index == content_index);
        let position = match found {
            Some(position) => position,
            None if self.blocks.len() < BLOCKS_MAX => {
                self.blocks.push(AssembledBlock {
                    content_index,
                    kind,
                    text: String::new(),
                    characters: 0,
                    tool_call_id: None,
                    name: None,
                    input: None,
                });
                self.blocks.len() - 1
            }
            None => self.blocks.len() - 1,
        };
        &mut self.blocks[position]
    }
}

impl AssembledBlock {
    fn into_part(self, position: usize) -> Part {
        let id = format!("p{position}");
        Part::Known(match self.kind {
            PartialKind::Text => KnownPart::Text { id, text: self.text, format: None, meta: None },
            PartialKind::Thinking => KnownPart::Thinking { id, text: self.text, meta: None },
            PartialKind::ToolCall => KnownPart::ToolCall {
                id,
                tool_call_id: self.tool_call_id.unwrap_or_default(),
                name: self.name.unwrap_or_default(),
                // A call cut off in the middle has arguments that are not JSON yet; they are kept as text.
                input: self.input.or_else(|| (!self.text.is_empty()).then_some(Value::String(self.text))),
                status: ToolStatus::Error,
                meta: None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_count_characters_not_bytes() {
        let head = MessageHead { role: Role::Assistant, created_at: 1, tool_call_id: None };
        let mut assembly = MessageAssembly::new("a1".into(), head);
        assert_eq!(assembly.push(0, PartialKind::Text, "äö"), 0);
        assert_eq!(assembly.push(0, PartialKind::Text, "🙂x"), 2);
        assert_eq!(assembly.push(0, PartialKind::Text, ""), 4);
        assert_eq!(assembly.push(1, PartialKind::Text, "y"), 0);
        assert_eq!(assembly.snapshot().blocks[0].text, "äö🙂x");
    }
}
