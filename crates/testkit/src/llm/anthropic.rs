//! Answers in the shape of Anthropic's streaming messages.

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer_stream::{Frame, Frames};
use super::plan::{Block, Failure, FailureKind, Piece, Plan, cut};

/// The frames of one answer. `request` numbers the request, so that ids differ and yet repeat from run to run.
pub(crate) fn frames(plan: Plan, request: u64, model: &str, input_tokens: u64) -> Frames {
    let stop_reason = match (plan.stopped_for_length, plan.calls_tools()) {
        (true, _) => "max_tokens",
        (false, true) => "tool_use",
        (false, false) => "end_turn",
    };
    let input_tokens = plan.input_tokens.unwrap_or(input_tokens);
    let head = event(&json!({"type": "message_start", "message": {
        "id": format!("msg_{request}"), "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": input_tokens, "output_tokens": 1},
    }}));
    let tail = [
        event(&json!({
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": null},
            "usage": {"output_tokens": plan.output_tokens()},
        })),
        event(&json!({"type": "message_stop"})),
    ];
    let body = plan.blocks.into_iter().enumerate().flat_map(move |(index, block)| {
        let start = event(&json!({
            "type": "content_block_start", "index": index, "content_block": opening(&block, request, index),
        }));
        let stop = event(&json!({"type": "content_block_stop", "index": index}));
        std::iter::once(Frame::Event(start)).chain(deltas(index, block)).chain([Frame::Event(stop)])
    });
    Box::new(std::iter::once(Frame::Event(head)).chain(body).chain(tail.map(Frame::Event)))
}

/// The body of a failed request.
pub(crate) fn error_body(failure: &Failure) -> Value {
    let (kind, message) = match (failure.kind, failure.status) {
        (FailureKind::Overflow, _) => {
            ("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
        }
        (FailureKind::Status, 429) => ("rate_limit_error", "Rate limit reached"),
        (FailureKind::Status, 529) => ("overloaded_error", "Overloaded"),
        (FailureKind::Status, 500..) => ("api_error", "Internal server error"),
        (FailureKind::Status, _) => ("invalid_request_error", "Refused by the script"),
    };
    let message = failure.message.as_deref().unwrap_or(message);
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn event(data: &Value) -> Bytes {
    let name = data["type"].as_str().unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

fn opening(block: &Block, request: u64, index: usize) -> Value {
    match block {
        Block::Text(_) => json!({"type": "text", "text": ""}),
        Block::Thinking(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
        Block::Tool { name, .. } => {
            json!({"type": "tool_use", "id": format!("toolu_{request}_{index}"), "name": name, "input": {}})
        }
    }
}

fn deltas(index: usize, block: Block) -> Frames {
    let encode =
        move |delta: Value| event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
    match block {
        Block::Text(text) => Box::new(text.pieces().map(move |piece| match piece {
            Piece::Delta(text) => Frame::Delta(encode(json!({"type": "text_delta", "text": text}))),
            Piece::Hold(gate) => Frame::Hold(gate),
        })),
        Block::Thinking(text) => {
            let parts = cut(&text).into_iter();
            let parts = parts
                .map(move |part| Frame::Delta(encode(json!({"type": "thinking_delta", "thinking": part}))));
            let signature = json!({"type": "signature_delta", "signature": "c2NyaXB0ZWQ="});
            Box::new(parts.chain([Frame::Event(encode(signature))]))
        }
        Block::Tool { arguments, .. } => {
            let parts = cut(&Value::Object(arguments).to_string()).into_iter();
            Box::new(parts.map(move |part| {
                Frame::Delta(encode(json!({"type": "input_json_delta", "partial_json": part})))
            }))
        }
    }
}
