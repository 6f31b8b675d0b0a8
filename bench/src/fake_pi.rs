//! An agent that speaks pi's RPC and prints as fast as it can: lines are rendered once, written in big pieces.

use std::io::{BufRead, StdoutLock, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::wall_nanoseconds;
use crate::error::Outcome;
use crate::script::Script;

/// The text of every delta: what a model prints at a time, so a line has the 290 bytes of the real pi.
pub(crate) const DELTA_TEXT: &str = "Hello, world";
/// Deltas of one answer.
pub(crate) const ANSWER_DELTAS: usize = 2000;
/// Bytes given to the pipe in one call.
const WRITE_BYTES: usize = 256 << 10;

const UPDATE_HEAD: &str = concat!(
    r#"{"type":"message_update","usage":{"input":1434,"output":5,"cacheRead":0,"cacheWrite":0,"reasoning":0,"#,
    r#""totalTokens":1439,"cost":{"input":0.001434,"output":0.00001,"cacheRead":0,"cacheWrite":0,"#,
    r#""total":0.001444}},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":""#
);

/// Serves until stdin ends.
pub(crate) fn run(arguments: &[String]) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    if arguments.iter().any(|argument| argument == "--version") {
        out.write_all(b"0.87.1\n")?;
        return Ok(());
    }
    let mut answers = 0;
    for line in std::io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line?)?;
        let kind = command["type"].as_str().unwrap_or_default();
        let reply = json!({"id": command["id"], "type": "response", "command": kind, "success": true,
            "data": data(kind)});
        say(&mut out, &reply)?;
        if kind == "prompt"
            && let Some(script) = command["message"].as_str().and_then(Script::parse)
        {
            answers = play(&mut out, &script, answers)?;
        }
        out.flush()?;
    }
    Ok(())
}

fn data(kind: &str) -> Value {
    match kind {
        "get_state" => json!({"model": {"id": "fake-1", "provider": "fake"}, "thinkingLevel": "off",
            "isStreaming": false, "isCompacting": false, "sessionId": "fake", "autoCompactionEnabled": true,
            "messageCount": 0, "pendingMessageCount": 0}),
        "get_entries" => json!({"entries": [], "leafId": null}),
        _ => Value::Null,
    }
}

/// Plays a script as one turn; gives the number of the last answer, which makes its timestamp.
fn play(out: &mut StdoutLock<'_>, script: &Script<'_>, mut answers: i64) -> Outcome<i64> {
    say(out, &json!({"type": "agent_start"}))?;
    let count = script.number("n", ANSWER_DELTAS);
    match script.name {
        "deltas" => {
            let per_answer = script.number("per", ANSWER_DELTAS).max(1);
            let mut left = count;
            while left > 0 {
                let now = left.min(per_answer);
                answers += 1;
                answer(out, answers, now)?;
                left -= now;
            }
        }
        "pace" => {
            answers += 1;
            message(out, "message_start", answers, "")?;
            let pause = Duration::from_micros(script.number("us", 5000) as u64);
            for _ in 0..count {
                // The pace is what is asked for; nothing is waited for here.
                std::thread::sleep(pause);
                writeln!(out, "{UPDATE_HEAD}{:020}\"}}}}", wall_nanoseconds())?;
                out.flush()?;
            }
            message(out, "message_end", answers, "done")?;
        }
        "tools" => tools(out, count)?,
        _ => {}
    }
    say(out, &json!({"type": "agent_end", "messages": [], "willRetry": false}))?;
    say(out, &json!({"type": "agent_settled"}))?;
    Ok(answers)
}

fn answer(out: &mut StdoutLock<'_>, number: i64, deltas: usize) -> Outcome<()> {
    message(out, "message_start", number, "")?;
    let line = format!("{UPDATE_HEAD}{DELTA_TEXT}\"}}}}\n");
    repeat(out, line.as_bytes(), deltas)?;
    message(out, "message_end", number, &DELTA_TEXT.repeat(deltas))
}

/// Pairs of records: a tool starts, a tool ends.
fn tools(out: &mut StdoutLock<'_>, records: usize) -> Outcome<()> {
    let start = json!({"type": "tool_execution_start", "toolCallId": "call_b4429d341731", "toolName": "bash",
        "args": {"command": "echo one"}});
    let end = json!({"type": "tool_execution_end", "toolCallId": "call_b4429d341731", "toolName": "bash",
        "result": {"content": [{"type": "text", "text": "one\n"}], "details": {}}, "isError": false});
    repeat(out, format!("{start}\n{end}\n").as_bytes(), records / 2)
}

fn repeat(out: &mut StdoutLock<'_>, piece: &[u8], count: usize) -> Outcome<()> {
    let at_once = (WRITE_BYTES / piece.len()).clamp(1, count.max(1));
    let block = piece.repeat(at_once);
    let mut left = count;
    while left > 0 {
        let now = left.min(at_once);
        out.write_all(&block[..now * piece.len()])?;
        left -= now;
    }
    Ok(())
}

fn message(out: &mut StdoutLock<'_>, kind: &str, number: i64, text: &str) -> Outcome<()> {
    let content = if text.is_empty() { json!([]) } else { json!([{"type": "text", "text": text}]) };
    let message = json!({"role": "assistant", "content": content, "api": "openai-completions",
        "provider": "fake", "model": "fake-1", "stopReason": "stop", "timestamp": 1_794_725_252_160_i64 + number});
    say(out, &json!({"type": kind, "message": message}))
}

fn say(out: &mut StdoutLock<'_>, value: &Value) -> Outcome<()> {
    let mut line = value.to_string();
    line.push('\n');
    out.write_all(line.as_bytes())?;
    Ok(())
}
