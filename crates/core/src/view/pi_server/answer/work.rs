//! Results of commands that do something, and of the smaller reads.

use qd_wire::data::StatsData;
use qd_wire::pi_server::{
    BashResult, Compacted, ContextUsage, Exported, Forked, LastAssistantText, Moved, Navigated, SessionStats,
    ThinkingLevelCycled, TokenStats,
};
use serde_json::{Value, json};

use super::runner_answer::{RunnerAnswer, pick, pick_number, pick_text, to_text};

type Text = Result<String, serde_json::Error>;

/// pi answers with the model itself.
pub(super) fn model_set(said: &RunnerAnswer<'_>) -> Text {
    to_text(&json!({ "model": model(&said.value()?) }))
}

/// `null` when there is nothing to cycle through.
pub(super) fn model_cycled(said: &RunnerAnswer<'_>) -> Text {
    if said.is_null() {
        return Ok("null".to_owned());
    }
    let said = said.value()?;
    let level = pick_text(&said, &["thinkingLevel", "thinking_level"]).unwrap_or_else(|| "off".to_owned());
    let is_scoped = flag(&said, &["isScoped", "is_scoped"]).unwrap_or(false);
    to_text(&json!({ "model": model(&said), "thinkingLevel": level, "isScoped": is_scoped }))
}

pub(super) fn level_cycled(said: &RunnerAnswer<'_>) -> Text {
    match pick_text(&said.value()?, &["level", "thinkingLevel"]) {
        Some(level) => to_text(&ThinkingLevelCycled { level }),
        None => Ok("null".to_owned()),
    }
}

pub(super) fn compacted(said: &RunnerAnswer<'_>) -> Text {
    if said.is_native {
        return Ok(said.text().to_owned());
    }
    let said = said.value()?;
    to_text(&Compacted {
        summary: pick_text(&said, &["summary"]).unwrap_or_default(),
        first_kept_entry_id: pick_text(&said, &["firstKeptEntryId", "first_kept_entry_id"])
            .unwrap_or_default(),
        tokens_before: pick_number(&said, &["tokensBefore", "tokens_before"]).unwrap_or(0),
        details: pick(&said, &["details"]).cloned(),
    })
}

pub(super) fn bash(said: &RunnerAnswer<'_>) -> Text {
    let said = said.value()?;
    to_text(&BashResult {
        exit_code: pick(&said, &["exitCode", "exit_code"]).and_then(Value::as_i64),
        output: pick_text(&said, &["output"]).unwrap_or_default(),
        cancelled: flag(&said, &["cancelled"]).unwrap_or(false),
        truncated: flag(&said, &["truncated"]),
        full_output_path: pick_text(&said, &["fullOutputPath", "full_output_path"]),
    })
}

/// `sessionId` is the session's name here, not pi's own name of the conversation: that one no command takes.
pub(super) fn stats(session_id: &str, said: &RunnerAnswer<'_>) -> Text {
    if said.is_native {
        let mut stats = said.value()?;
        if let Some(fields) = stats.as_object_mut() {
            fields.insert("sessionId".to_owned(), Value::from(session_id));
        }
        return to_text(&stats);
    }
    let stats: StatsData = said.read()?;
    to_text(&SessionStats {
        session_file: None,
        session_id: session_id.to_owned(),
        user_messages: stats.user_messages,
        assistant_messages: stats.assistant_messages,
        tool_calls: stats.tool_calls,
        tool_results: stats.tool_results,
        total_messages: stats.total_messages,
        tokens: TokenStats {
            input: stats.tokens.input,
            output: stats.tokens.output,
            cache_read: stats.tokens.cache_read,
            cache_write: stats.tokens.cache_write,
            total: stats.tokens.total,
        },
        cost: stats.cost_usd,
    })
}

pub(super) fn exported(said: &RunnerAnswer<'_>) -> Text {
    to_text(&Exported { path: pick_text(&said.value()?, &["path"]).unwrap_or_default() })
}

pub(super) fn moved(said: &RunnerAnswer<'_>) -> Text {
    to_text(&Moved { cancelled: flag(&said.value()?, &["cancelled"]).unwrap_or(false) })
}

pub(super) fn forked(said: &RunnerAnswer<'_>) -> Text {
    let forked = said.value()?;
    let beside = said.beside("native_session_id");
    to_text(&Forked {
        text: pick_text(&forked, &["text"]).unwrap_or_default(),
        cancelled: flag(&forked, &["cancelled"]).unwrap_or(false),
        session_id: pick_text(&forked, &["sessionId", "native_session_id"])
            .or_else(|| beside.as_str().map(str::to_owned)),
    })
}

pub(super) fn navigated(said: &RunnerAnswer<'_>) -> Text {
    let said = said.value()?;
    to_text(&Navigated {
        editor_text: pick_text(&said, &["editorText", "editor_text"]),
        cancelled: flag(&said, &["cancelled"]).unwrap_or(false),
        aborted: flag(&said, &["aborted"]),
    })
}

/// pi leaves the field out when there is none.
pub(super) fn last_text(said: &RunnerAnswer<'_>) -> Text {
    to_text(&LastAssistantText { text: pick_text(&said.value()?, &["text"]) })
}

/// `null` when the model's window is not known. pi tells it among its statistics.
pub(super) fn context_usage(said: &RunnerAnswer<'_>) -> Text {
    let said = said.value()?;
    let usage = pick(&said, &["contextUsage", "context_usage"]).unwrap_or(&said);
    let Some(context_window) = pick_number(usage, &["contextWindow", "context_window"]) else {
        return Ok("null".to_owned());
    };
    let tokens = pick_number(usage, &["tokens", "context_tokens"]);
    let told = pick(usage, &["percent"]).and_then(Value::as_f64);
    let computed =
        tokens.filter(|_| context_window > 0).map(|tokens| 100.0 * tokens as f64 / context_window as f64);
    to_text(&ContextUsage { tokens, context_window, percent: told.or(computed) })
}

/// The model of an answer: in pi's words, or its names.
fn model(said: &Value) -> Value {
    let model = pick(said, &["model"]).filter(|model| model.is_object()).unwrap_or(said);
    match (pick_text(model, &["provider"]), pick_text(model, &["model_id"])) {
        (Some(provider), Some(model_id)) => json!({ "id": model_id, "provider": provider }),
        _ => model.clone(),
    }
}

fn flag(value: &Value, names: &[&str]) -> Option<bool> {
    pick(value, names).and_then(Value::as_bool)
}
