//! Recorded traffic through codec and session machine.
#![allow(dead_code, reason = "each test binary uses its own part of this module")]
#![allow(clippy::unwrap_used, reason = "a test helper that fails is a failing test")]

use std::path::Path;

use qd_core::event_writer::EventWriter;
use qd_core::harness::pi::{PiCodec, PiOutput};
use qd_core::session::{AgentEnd, Session, SessionIdentity, SessionMemory};
use qd_wire::data::SessionStatus;
use serde_json::Value;

/// One recorded file.
pub(crate) struct Fixture {
    /// `<version>__<scenario>`.
    pub(crate) name: String,
    /// What the agent printed, with the time since its start.
    pub(crate) lines: Vec<(i64, Vec<u8>)>,
}

/// All files of all versions, sorted by name.
pub(crate) fn fixtures() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pi");
    let mut fixtures = Vec::new();
    for version in std::fs::read_dir(root).unwrap() {
        let version = version.unwrap().path();
        for file in std::fs::read_dir(&version).unwrap() {
            let path = file.unwrap().path();
            let name = format!(
                "{}__{}",
                version.file_name().unwrap().to_string_lossy().replace('.', "_"),
                path.file_stem().unwrap().to_string_lossy()
            );
            fixtures.push(Fixture { name, lines: printed(&path) });
        }
    }
    assert!(fixtures.len() > 150, "the recorded traffic is missing");
    fixtures.sort_by(|left, right| left.name.cmp(&right.name));
    fixtures
}

fn printed(path: &Path) -> Vec<(i64, Vec<u8>)> {
    let text = std::fs::read_to_string(path).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries
        .filter(|entry| entry["dir"] == "out")
        .map(|entry| {
            let at = entry["t"].as_f64().unwrap_or(0.0) as i64;
            let line = match &entry["rec"] {
                Value::String(raw) => raw.clone().into_bytes(),
                record => record.to_string().into_bytes(),
            };
            (at, line)
        })
        .collect()
}

/// A fixture played through the machines, until the process is gone.
pub(crate) struct Replay {
    pub(crate) events: Vec<Value>,
}

pub(crate) fn session() -> Session {
    let identity = SessionIdentity {
        session_id: "s1".into(),
        runner_id: "local".into(),
        harness: "pi".into(),
        cwd: None,
        capabilities: Vec::new(),
        created_at: 0,
        worktree: None,
    };
    Session::new(identity, SessionMemory::default(), SessionStatus::Idle)
}

impl Replay {
    pub(crate) fn of(fixture: &Fixture) -> Replay {
        let (mut codec, mut session, mut out) = (PiCodec::new(), session(), EventWriter::default());
        let (mut outputs, mut events) = (Vec::new(), Vec::new());
        let mut now = 0;
        for (at, line) in &fixture.lines {
            now = *at;
            codec.line(line, now, &mut outputs);
            for output in outputs.drain(..) {
                if let PiOutput::Event(event) = output {
                    session.agent_event(now, event, &mut out);
                }
            }
            // One round for each line, as if each had come alone: pieces of text are not joined.
            events.extend(events_of(&out.take().bytes));
        }
        session.gone(now, AgentEnd::Stopped, &mut out);
        events.extend(events_of(out.bytes()));
        Replay { events }
    }
}

/// The lines of an outbox as values.
pub(crate) fn events_of(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
