//! Everything pi says that is neither a delta, a reply nor an extension's wish.
//!
//! Each function reads one line. Only what the session cannot do without is required of it; everything else has a
//! default, because a line that cannot be read is lost whole, and pi adds and drops fields between versions.

use qd_wire::JsonObject;
use qd_wire::data::QueueState;
use qd_wire::message::StopReason;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::decode::{LineResult, PiCodec, PiOutput, text_of};
use super::message::{PiMessage, PiMessageHead};
use crate::agent::AgentEvent;

impl PiCodec {
    pub(super) fn agent_start(&mut self, line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
        absorbed(line)?;
        self.in_turn = true;
        push(out, AgentEvent::TurnStarted)
    }

    /// The one end of a turn.
    pub(super) fn agent_settled(&mut self, line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
        #[derive(Deserialize)]
        struct Settled {
            aborted: Option<bool>,
        }
        let settled: Settled = serde_json::from_slice(line)?;
        self.in_turn = false;
        // Before the turn's end, so that they belong to the turn in which they happened.
        for repeated in self.extension_errors.drain() {
            out.push(PiOutput::Event(repeated));
        }
        // Newer versions say it; before, the last answer is the only witness.
        let aborted = settled.aborted.unwrap_or(self.last_answer_aborted);
        self.last_answer_aborted = false;
        push(out, AgentEvent::TurnSettled { aborted })
    }

    pub(super) fn message_start(&mut self, line: &[u8], now_ms: i64, out: &mut Vec<PiOutput>) -> LineResult {
        #[derive(Deserialize)]
        struct Start {
            message: PiMessageHead,
        }
        let start: Start = serde_json::from_slice(line)?;
        // The id of the message follows from role and time, so the head is kept until its end.
        let head = start.message.into_head(now_ms);
        self.open = Some(head.clone());
        push(out, AgentEvent::MessageStarted(head))
    }

    pub(super) fn message_end(&mut self, line: &[u8], now_ms: i64, out: &mut Vec<PiOutput>) -> LineResult {
        #[derive(Deserialize)]
        struct End {
            message: PiMessage,
        }
        let end: End = serde_json::from_slice(line)?;
        let done = end.message.is_answer();
        let mut message = end.message.into_native(now_ms);
        match self.open.take() {
            // The id was made from the head, so the end keeps the head the start had.
            Some(head)
                if head.role == message.head.role && head.tool_call_id == message.head.tool_call_id =>
            {
                message.head = head;
            }
            // Nobody shall see an end without a start.
            _ => out.push(PiOutput::Event(AgentEvent::MessageStarted(message.head.clone()))),
        }
        let reason = message.stop_reason.unwrap_or(StopReason::Stop);
        if done {
            self.last_answer_aborted = reason == StopReason::Aborted
                || (reason == StopReason::Error && message.error.as_deref().is_some_and(is_abort));
        }
        out.push(PiOutput::Event(AgentEvent::MessageEnded(message)));
        if done {
            out.push(PiOutput::Event(AgentEvent::StreamDone { reason }));
        }
        Ok(())
    }
}

/// pi's words for an abort in the middle of a tool; its stop reason says `error` then.
fn is_abort(error: &str) -> bool {
    error == "This operation was aborted" || error == "Request was aborted" || error == "Operation aborted"
}

/// A record that changes nothing; still read, so that half a line is noticed.
pub(super) fn absorbed(line: &[u8]) -> LineResult {
    serde_json::from_slice::<IgnoredAny>(line).map(|_| ())
}

pub(super) fn agent_end(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    // `messages` repeats the whole run (many MB) and is skipped.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct End {
        #[serde(default)]
        will_retry: bool,
    }
    let end: End = serde_json::from_slice(line)?;
    push(out, AgentEvent::RunEnded { will_retry: end.will_retry })
}

/// Only the id is required, without which nothing can be matched. A pi that leaves out another field must not make the
/// line unreadable.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool {
    tool_call_id: String,
    #[serde(default)]
    tool_name: String,
    args: Option<Value>,
}

pub(super) fn tool_start(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    let tool: Tool = serde_json::from_slice(line)?;
    push(
        out,
        AgentEvent::ToolStarted { tool_call_id: tool.tool_call_id, name: tool.tool_name, input: tool.args },
    )
}

pub(super) fn tool_update(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    // `args` comes again with every update and is skipped.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update {
        tool_call_id: String,
        #[serde(default)]
        tool_name: String,
        #[serde(default)]
        partial_result: Value,
    }
    let update: Update = serde_json::from_slice(line)?;
    push(
        out,
        AgentEvent::ToolProgress {
            tool_call_id: update.tool_call_id,
            name: update.tool_name,
            partial_output: update.partial_result,
        },
    )
}

pub(super) fn tool_end(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct End {
        tool_call_id: String,
        #[serde(default)]
        tool_name: String,
        #[serde(default)]
        result: Value,
        #[serde(default)]
        is_error: bool,
        duration_ms: Option<f64>,
    }
    let end: End = serde_json::from_slice(line)?;
    push(
        out,
        AgentEvent::ToolEnded {
            tool_call_id: end.tool_call_id,
            name: end.tool_name,
            output: end.result,
            is_error: end.is_error,
            duration_ms: end.duration_ms.map(whole),
        },
    )
}

/// pi's numbers are JavaScript's; a float casts to the nearest whole number in range.
pub(super) fn whole(number: f64) -> u64 {
    number.round() as u64
}

pub(super) fn queue_update(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Queue {
        #[serde(default)]
        steering: Vec<Value>,
        #[serde(default)]
        follow_up: Vec<Value>,
    }
    let queue: Queue = serde_json::from_slice(line)?;
    let texts = |inputs: Vec<Value>| inputs.into_iter().map(text_of).collect();
    push(
        out,
        AgentEvent::QueueChanged(QueueState {
            steering: texts(queue.steering),
            follow_up: texts(queue.follow_up),
        }),
    )
}

pub(super) fn retry_start(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Start {
        #[serde(default)]
        attempt: u32,
        #[serde(default)]
        max_attempts: u32,
        #[serde(default)]
        delay_ms: f64,
        #[serde(default)]
        error_message: String,
    }
    let start: Start = serde_json::from_slice(line)?;
    push(
        out,
        AgentEvent::RetryStarted {
            attempt: start.attempt,
            max_attempts: start.max_attempts,
            delay_ms: whole(start.delay_ms),
            error: start.error_message,
        },
    )
}

pub(super) fn retry_end(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct End {
        #[serde(default)]
        success: bool,
        #[serde(default)]
        attempt: u32,
        final_error: Option<String>,
    }
    let end: End = serde_json::from_slice(line)?;
    push(
        out,
        AgentEvent::RetryEnded { success: end.success, attempt: end.attempt, final_error: end.final_error },
    )
}

pub(super) fn compaction_start(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    struct Start {
        reason: Option<String>,
    }
    let start: Start = serde_json::from_slice(line)?;
    push(
        out,
        AgentEvent::CompactionStarted { reason: start.reason.unwrap_or_else(|| "threshold".to_owned()) },
    )
}

pub(super) fn compaction_end(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct End {
        result: Option<Outcome>,
        #[serde(default)]
        aborted: bool,
        #[serde(default)]
        will_retry: bool,
        error_message: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outcome {
        summary: Option<String>,
        tokens_before: Option<f64>,
    }
    let end: End = serde_json::from_slice(line)?;
    // There is no field for it: a compaction succeeded if it has a result and nothing speaks against it.
    let success = end.result.is_some() && !end.aborted && end.error_message.is_none();
    // An abort has no words of pi's, and an end without success must say why.
    let error = match (end.error_message, end.aborted) {
        (None, true) => Some("compaction was aborted".to_owned()),
        (message, _) => message,
    };
    let (summary, tokens_before) =
        end.result.map_or((None, None), |outcome| (outcome.summary, outcome.tokens_before.map(whole)));
    // A failed summary speaks against the provider, an abort does not; the breakers need the difference.
    let summary_failed = error.as_deref().is_some_and(is_failed_summary);
    let will_retry = end.will_retry;
    push(
        out,
        AgentEvent::CompactionEnded { success, will_retry, error, summary_failed, summary, tokens_before },
    )
}

/// pi's words for a model that could not summarise.
fn is_failed_summary(error: &str) -> bool {
    error.to_ascii_lowercase().contains("summarization failed")
}

pub(super) fn thinking_level_changed(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    struct Changed {
        level: String,
    }
    let changed: Changed = serde_json::from_slice(line)?;
    push(out, AgentEvent::ThinkingLevelChanged { level: changed.level })
}

pub(super) fn session_info_changed(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    struct Changed {
        name: Option<String>,
    }
    let changed: Changed = serde_json::from_slice(line)?;
    push(out, AgentEvent::TitleChanged { title: changed.name.unwrap_or_default() })
}

/// Entry types that another event has told already, or that only change what the model sees.
const TOLD_ENTRIES: [&str; 9] = [
    "branch_summary",
    "compaction",
    "context_edit",
    "custom_message",
    "message",
    "model_change",
    "session_info",
    "thinking_level_change",
    "usage",
];

pub(super) fn entry_appended(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    struct Appended {
        entry: JsonObject,
    }
    let appended: Appended = serde_json::from_slice(line)?;
    let kind = appended.entry.get("type").and_then(Value::as_str).unwrap_or_default();
    if TOLD_ENTRIES.contains(&kind) {
        return Ok(());
    }
    // A kind of entry that a newer pi has invented is passed on, like every unknown event.
    super::decode::unknown("entry_appended", line, out)
}

fn push(out: &mut Vec<PiOutput>, event: AgentEvent) -> LineResult {
    out.push(PiOutput::Event(event));
    Ok(())
}
