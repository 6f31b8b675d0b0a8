//! Recorded traffic through codec and session machine.

use std::path::Path;

use qd_core::agent::{AgentEvent, MessageHead, NativeMessage};
use qd_core::event_writer::EventWriter;
use qd_core::harness::pi::{PiCodec, PiOutput};
use qd_core::session::{AgentEnd, ExpectedPrompt, Session, SessionIdentity, SessionMemory};
use qd_wire::data::{QueueState, SessionStatus};
use qd_wire::message::{KnownPart, Part, Role};
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

pub(crate) fn queue(steering: &[&str], follow_up: &[&str]) -> QueueState {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    QueueState { steering: owned(steering), follow_up: owned(follow_up) }
}

pub(crate) fn user_message(text: &str, created_at: i64) -> NativeMessage {
    let text = KnownPart::Text { id: "p0".into(), text: text.into(), format: None, meta: None };
    let head = MessageHead { role: Role::User, created_at, tool_call_id: None };
    NativeMessage::new(head, vec![Part::Known(text)])
}

/// The agent shows that it has read this.
pub(crate) fn user_message_ended(text: &str, created_at: i64) -> AgentEvent {
    AgentEvent::MessageEnded(user_message(text, created_at))
}

/// A prompt with this token on its way to the agent.
pub(crate) fn expect(session: &mut Session, token: u64, text: &str) {
    session.expect_prompt(ExpectedPrompt { token, text: text.to_owned(), ..ExpectedPrompt::default() });
}

/// The session as the store would give it back after a crash.
pub(crate) fn after_a_crash(session: &Session) -> Session {
    let mut memory = session.memory().clone();
    memory.kept = session.waiting_inputs();
    memory.queue = QueueState::default();
    Session::new(session.identity().clone(), memory, SessionStatus::Dormant)
}

pub(crate) fn notes(out: &EventWriter) -> Vec<String> {
    let events = events_of(out.bytes());
    let notes = events.iter().filter(|event| event["event"] == "notify");
    notes.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

/// The texts of the messages that are marked as interrupted.
pub(crate) fn interrupted(out: &EventWriter) -> Vec<String> {
    let events = events_of(out.bytes());
    let marked = events.iter().filter(|event| event["message"]["interrupted"] == true);
    marked.map(|event| event["message"]["parts"][0]["text"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn last_queue(out: &EventWriter) -> Value {
    let events = events_of(out.bytes());
    events.iter().rev().find(|event| event["event"] == "queue.changed").unwrap()["queue"].clone()
}
