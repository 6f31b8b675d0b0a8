//! An agent program unlike pi: it repeats what it is told, word by word. It speaks lines of JSON of its own.
//!
//! Told `{"n":1,"do":"say","text":"…"}` it repeats the text; `hold …` begins a turn that lasts until it is told
//! `stop`, and what is said meanwhile waits; `hold and ask …` asks something too. `take_back` gives what waits back, `ping` is answered.

use std::collections::VecDeque;
use std::io::{BufRead, Write};

use serde_json::{Value, json};

#[derive(Default)]
struct Parrot {
    is_holding: bool,
    waiting: VecDeque<String>,
    turns: u64,
}

/// Speaks until its input ends.
pub(crate) fn main() {
    let mut parrot = Parrot::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(order) =
            line.as_deref().map_err(drop).and_then(|line| serde_json::from_str(line).map_err(drop))
        else {
            return;
        };
        parrot.obey(&order);
    }
}

impl Parrot {
    fn obey(&mut self, order: &Value) {
        let text = order["text"].as_str().unwrap_or_default().to_owned();
        let mut given_back = Vec::new();
        match order["do"].as_str().unwrap_or_default() {
            "say" if self.is_holding => {
                self.waiting.push_back(text.clone());
                tell(&json!({"e": "queue", "waiting": self.waiting}));
            }
            "say" | "stop" | "ping" => {}
            "take_back" => {
                given_back = self.waiting.drain(..).collect();
                tell(&json!({"e": "queue", "waiting": []}));
            }
            other => return tell(&json!({"n": order["n"], "error": format!("what is {other}?")})),
        }
        tell(&json!({"n": order["n"], "queued": self.is_holding, "texts": given_back}));
        match order["do"].as_str() {
            Some("say") if !self.is_holding => self.turn(text),
            Some("stop") if self.is_holding => {
                self.is_holding = false;
                tell(&json!({"e": "end", "stopped": true}));
            }
            _ => {}
        }
    }

    /// One turn, with all that waits.
    fn turn(&mut self, text: String) {
        self.turns += 1;
        tell(&json!({"e": "begin"}));
        tell(&json!({"e": "heard", "at": self.turns * 10, "text": text}));
        if text.starts_with("hold") {
            self.is_holding = true;
            if text.starts_with("hold and ask") {
                tell(&json!({"e": "asks", "text": text}));
            }
            return;
        }
        tell(&json!({"e": "speaks", "at": self.turns * 10 + 1}));
        for word in text.split_inclusive(' ') {
            tell(&json!({"e": "word", "text": word}));
        }
        tell(&json!({"e": "spoke", "at": self.turns * 10 + 1, "text": text}));
        tell(&json!({"e": "feather", "colour": "green"}));
        tell(&json!({"e": "end", "stopped": false}));
    }
}

fn tell(line: &Value) {
    let mut out = std::io::stdout().lock();
    // The runner is gone: then nobody listens.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
