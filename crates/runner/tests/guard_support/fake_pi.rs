//! Plays pi: answers its requests, and works, hangs or goes deaf as the prompt says.
#![allow(clippy::print_stdout, reason = "a test helper talks by its stdout")]

use std::io::{BufRead, Write};

use serde_json::{Value, json};

/// Runs until its input ends.
pub(crate) fn main(arguments: &[String]) {
    if arguments.iter().any(|argument| argument == "--version") {
        println!("1.5.0");
        return;
    }
    let named = arguments.iter().position(|argument| argument == "--session-id");
    let session_id = named.and_then(|at| arguments.get(at + 1)).cloned().unwrap_or_default();
    let mut agent = Agent {
        session_id,
        is_working: false,
        queue: Vec::new(),
        time: start_time(),
        held: None,
        hoard: None,
    };
    for line in std::io::stdin().lock().lines() {
        let Ok(request) = line.map_err(|_| ()).and_then(|line| serde_json::from_str(&line).map_err(|_| ()))
        else {
            continue;
        };
        agent.take(&request);
    }
}

struct Agent {
    session_id: String,
    is_working: bool,
    queue: Vec<String>,
    /// Message times; those of two agents differ.
    time: u64,
    /// A request that waits for its end.
    held: Option<Value>,
    /// Requests without an answer yet, while it hoards them.
    hoard: Option<Vec<Value>>,
}

#[allow(clippy::disallowed_methods, reason = "a program of its own, outside any simulated time")]
fn start_time() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(0)
}

impl Agent {
    fn take(&mut self, request: &Value) {
        if let Some(hoard) = &mut self.hoard {
            if request["type"] == "extension_ui_response" {
                // Cancelled: it answers everything, and asks again.
                self.hoard.take().into_iter().flatten().for_each(|request| reply(&request, &Value::Null));
                ask("q2");
            } else {
                hoard.push(request.clone());
            }
            return;
        }
        match request["type"].as_str().unwrap_or_default() {
            "get_state" => {
                let model = json!({"provider": "acme", "id": "m1", "name": "M 1"});
                let is_streaming = self.is_working;
                reply(
                    request,
                    &json!({"sessionId": self.session_id, "isStreaming": is_streaming, "model": model}),
                );
            }
            "get_entries" => reply(request, &json!({"entries": [], "leafId": null})),
            "prompt" => self.prompt(request),
            "abort" => {
                reply(request, &Value::Null);
                match self.held.take() {
                    Some(held) => reply(&held, &json!({"summary": "cut short"})),
                    None => self.settle(),
                }
            }
            // Work that does not end by itself.
            "compact" if request["customInstructions"] == "fail" => {
                say(&json!({"type": "compaction_start", "reason": "manual"}));
                let error = "Summarization failed: overloaded";
                say(
                    &json!({"type": "compaction_end", "reason": "manual", "aborted": false, "willRetry": false,
                    "errorMessage": format!("Compaction failed: {error}")}),
                );
                say(&json!({"id": request["id"], "type": "response", "command": "compact", "success": false,
                    "error": error}));
            }
            "compact" => self.held = Some(request.clone()),
            // Deaf to this one for good.
            "bash" if request["command"] == "forget" => {}
            "bash" if request["command"] == "hang" => self.held = Some(request.clone()),
            "bash" => reply(request, &json!({"output": "done", "exitCode": 0, "cancelled": false})),
            "abort_bash" => {
                reply(request, &Value::Null);
                if let Some(held) = self.held.take() {
                    reply(&held, &json!({"output": "", "cancelled": true}));
                }
            }
            // It leaves a turn in the middle, and calls that an error.
            "new_session" => {
                // Without a word of its queue, which it leaves behind.
                self.queue.clear();
                self.session_id.push_str("-new");
                if self.is_working {
                    self.fail("stream closed");
                }
                reply(request, &json!({"cancelled": false}));
            }
            "extension_ui_response" if self.held.is_some() => {
                self.held.take().iter().for_each(|held| reply(held, &json!({"disposition": "handled"})));
            }
            "extension_ui_response" => {
                let text = format!("the answer is {request}");
                self.message(&json!({"role": "assistant", "stopReason": "stop",
                    "content": [{"type": "text", "text": text}]}));
                self.settle();
            }
            _ => reply(request, &Value::Null),
        }
    }

    /// An idle agent never answers `mute`, says no to `refuse`, and yes to `die` with its last breath.
    fn prompt(&mut self, request: &Value) {
        let message = request["message"].as_str().unwrap_or_default().to_owned();
        if self.is_working {
            self.queue.push(message);
            self.tell_queue();
            return reply(request, &json!({"disposition": "queued"}));
        }
        match message.as_str() {
            "mute" => {}
            // An extension's command that asks before it is done.
            "/ask" => {
                self.held = Some(request.clone());
                ask("q1");
            }
            "die" => {
                reply(request, &json!({"disposition": "started"}));
                std::process::exit(1);
            }
            "refuse" => say(&json!({"id": request["id"], "type": "response", "command": "prompt",
                "success": false, "error": "No model"})),
            _ => {
                reply(request, &json!({"disposition": "started"}));
                self.begin(&message);
            }
        }
    }

    /// `work` and `tool` go on in silence, `close` closes the output, `ask` waits for a person and `flood` for many
    /// answers, `hoard` answers nothing until its question is cancelled; `fail`, `overflow` and `cut` fail in their
    /// ways; everything else is answered.
    fn begin(&mut self, message: &str) {
        self.is_working = true;
        say(&json!({"type": "agent_start"}));
        self.message(&json!({"role": "user", "content": [{"type": "text", "text": message}]}));
        match message {
            "work" => {}
            "tool" => say(&json!({"type": "tool_execution_start", "toolCallId": "t1", "toolName": "bash",
                "args": {"command": "make"}})),
            "close" => close_stdout(),
            "ask" => ask("q1"),
            // Our extension is there, but not between this dialog and whoever asks.
            "unwrapped" => {
                say(&json!({"type": "extension_ui_request", "id": "u", "method": "setStatus",
                    "statusKey": "qd_tools", "statusText": "[]"}));
                ask("q1");
            }
            "flood" => (0..=256).for_each(|number| ask(&format!("f{number}"))),
            "hoard" => {
                self.hoard = Some(Vec::new());
                ask("q1");
            }
            "fail" => self.fail("overloaded"),
            "overflow" => self.fail("prompt is too long: 2 tokens > 1 maximum"),
            "cut" => self.fail("Request was aborted."),
            _ => {
                self.message(&json!({"role": "assistant", "stopReason": "stop",
                    "content": [{"type": "text", "text": format!("you said {message}")}]}));
                self.settle();
            }
        }
    }

    fn fail(&mut self, error: &str) {
        self.message(&json!({"role": "assistant", "stopReason": "error", "errorMessage": error,
            "provider": "acme", "model": "m1", "content": []}));
        self.settle();
    }

    fn settle(&mut self) {
        if !self.queue.is_empty() {
            let message = self.queue.remove(0);
            self.tell_queue();
            return self.begin(&message);
        }
        self.is_working = false;
        say(&json!({"type": "agent_end", "messages": []}));
        say(&json!({"type": "agent_settled"}));
    }

    fn tell_queue(&self) {
        say(&json!({"type": "queue_update", "steering": [], "followUp": self.queue}));
    }

    fn message(&mut self, message: &Value) {
        self.time += 1;
        let mut message = message.clone();
        message["timestamp"] = json!(self.time);
        say(&json!({"type": "message_start", "message": message}));
        say(&json!({"type": "message_end", "message": message}));
    }
}

fn ask(id: &str) {
    say(&json!({"type": "extension_ui_request", "id": id, "method": "confirm", "title": "Sure?",
        "message": "Really?"}));
}

fn reply(request: &Value, data: &Value) {
    say(
        &json!({"id": request["id"], "type": "response", "command": request["type"], "success": true, "data": data}),
    );
}

/// As pi does, the type of an event comes first.
fn say(line: &Value) {
    let mut fields = line.as_object().cloned().unwrap_or_default();
    let kind = fields.remove("type").unwrap_or_default();
    match (kind.as_str(), fields.is_empty()) {
        (Some("response") | None, _) => println!("{line}"),
        (Some(_), true) => println!("{{\"type\":{kind}}}"),
        (Some(_), false) => println!("{{\"type\":{kind},{}", &Value::Object(fields).to_string()[1..]),
    }
    // Nobody listens any more when the runner is gone; the guard ends us then.
    let _ = std::io::stdout().flush();
}

fn close_stdout() {
    let Ok(nothing) = std::fs::OpenOptions::new().write(true).open("/dev/null") else { return };
    // The pipe's only writer is gone then.
    let _ = rustix::stdio::dup2_stdout(nothing);
}
