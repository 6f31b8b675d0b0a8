//! Answers in the shape of OpenAI's streaming chat completions.

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer_stream::{Frame, Frames};
use super::plan::{Block, Failure, FailureKind, Piece, Plan, cut};

/// The frames of one answer. `request` numbers the request, so that ids differ and yet repeat from run to run.
pub(crate) fn frames(plan: Plan, request: u64, model: &str, input_tokens: u64) -> Frames {
    let envelope = Envelope { id: format!("chatcmpl-{request}"), model: model.to_owned() };
    let finish_reason = match (plan.stopped_for_length, plan.calls_tools()) {
        (true, _) => "length",
        (false, true) => "tool_calls",
        (false, false) => "stop",
    };
    let output_tokens = plan.output_tokens();
    let usage = json!({
        "prompt_tokens": plan.input_tokens.unwrap_or(input_tokens),
        "completion_tokens": output_tokens,
        "total_tokens": plan.input_tokens.unwrap_or(input_tokens) + output_tokens,
    });
    let head = envelope.chunk(json!({"role": "assistant", "content": ""}), None);
    let tail = [
        Frame::Event(envelope.chunk(json!({}), Some(finish_reason))),
        Frame::Event(envelope.usage(&usage)),
        Frame::Event(Bytes::from_static(b"data: [DONE]\n\n")),
    ];
    let mut next_call = 0;
    let numbered = plan.blocks.into_iter().map(move |block| {
        let call = next_call;
        next_call += u64::from(matches!(block, Block::Tool { .. }));
        (call, block)
    });
    let body = numbered.flat_map(move |(call, block)| block_frames(envelope.clone(), request, call, block));
    Box::new(std::iter::once(Frame::Event(head)).chain(body).chain(tail))
}

/// The body of a failed request.
pub(crate) fn error_body(failure: &Failure) -> Value {
    let (kind, code, message) = match (failure.kind, failure.status) {
        (FailureKind::Overflow, _) => (
            "invalid_request_error",
            "context_length_exceeded",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        ),
        (FailureKind::Status, 429) => ("rate_limit_exceeded", "rate_limit_exceeded", "Rate limit reached"),
        (FailureKind::Status, 529) => ("overloaded_error", "overloaded", "Overloaded"),
        (FailureKind::Status, 500..) => ("server_error", "server_error", "Internal server error"),
        (FailureKind::Status, _) => ("invalid_request_error", "invalid_request", "Refused by the script"),
    };
    let message = failure.message.as_deref().unwrap_or(message);
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

#[derive(Clone)]
struct Envelope {
    id: String,
    model: String,
}

impl Envelope {
    fn chunk(&self, delta: Value, finish_reason: Option<&str>) -> Bytes {
        self.data(json!([{"index": 0, "delta": delta, "finish_reason": finish_reason}]), &Value::Null)
    }

    fn usage(&self, usage: &Value) -> Bytes {
        self.data(json!([]), usage)
    }

    fn data(&self, choices: Value, usage: &Value) -> Bytes {
        let chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": 1, "model": self.model,
            "choices": choices, "usage": usage,
        });
        Bytes::from(format!("data: {chunk}\n\n"))
    }
}

fn block_frames(envelope: Envelope, request: u64, call: u64, block: Block) -> Frames {
    match block {
        Block::Text(text) => Box::new(text.pieces().map(move |piece| match piece {
            Piece::Delta(delta) => Frame::Delta(envelope.chunk(json!({"content": delta}), None)),
            Piece::Hold(gate) => Frame::Hold(gate),
        })),
        Block::Thinking(text) => Box::new(
            cut(&text)
                .into_iter()
                .map(move |delta| Frame::Delta(envelope.chunk(json!({"reasoning_content": delta}), None))),
        ),
        Block::Tool { name, arguments } => {
            let id = format!("call_{request}_{call}");
            let function = json!({"name": name, "arguments": ""});
            let head = envelope.chunk(
                json!({"tool_calls": [{"index": call, "id": id, "type": "function", "function": function}]}),
                None,
            );
            let pieces = cut(&Value::Object(arguments).to_string()).into_iter().map(move |part| {
                let call = json!({"index": call, "function": {"arguments": part}});
                Frame::Delta(envelope.chunk(json!({"tool_calls": [call]}), None))
            });
            Box::new(std::iter::once(Frame::Event(head)).chain(pieces))
        }
    }
}
