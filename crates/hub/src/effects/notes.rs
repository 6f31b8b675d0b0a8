//! Changes of a session's line in lists: read from events as they come, applied when they are stored and published.

use std::sync::Arc;

use qd_core::redact::redact_question;
use qd_store::{Effect, HubSession, RecordIn, SessionPatch};
use qd_wire::data::SessionStatus;
use qd_wire::event::AgentPhase;
use qd_wire::mux::SessionChange;
use serde::Deserialize;

use crate::clock::now_ms;
use crate::faces::SessionNews;
use crate::registry::{Hub, Question, SessionEntry};
use crate::terminals;

/// A change of a session's line in lists.
#[derive(Debug, Clone)]
pub(crate) enum Note {
    Status(SessionStatus),
    Working(Option<AgentPhase>),
    /// The program is over; calls that wait for somebody's yes still wait.
    Exited,
    Created {
        seq: Option<u64>,
    },
    InputNeeded(Question),
    InputResolved {
        request_id: String,
        /// The record of the question, where no record tells that it is over.
        asked_seq: Option<u64>,
    },
    /// The runner has said how the session stands.
    Described(Box<Description>),
    /// The store has a row for it now.
    Row(Box<HubSession>),
    /// The store has changed its row.
    Patched(Box<SessionPatch>),
    /// Its last message, and how many there are; without a text the one before is the last that has one.
    Said {
        text: Option<String>,
        count: u64,
    },
}

/// How a session stands, as its runner says.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) status: SessionStatus,
    pub(crate) phase: Option<AgentPhase>,
    pub(crate) questions: Vec<Question>,
    pub(crate) seq: u64,
}

impl Note {
    /// Whether it tells of a moment: what its runner said later counts more.
    pub(crate) fn is_of_a_moment(&self) -> bool {
        match self {
            Note::Status(_)
            | Note::Working(_)
            | Note::Exited
            | Note::InputNeeded(_)
            | Note::InputResolved { .. } => true,
            Note::Created { .. }
            | Note::Described(_)
            | Note::Row(_)
            | Note::Patched(_)
            | Note::Said { .. } => false,
        }
    }
}

/// What an event says for lists, from its name. `tail` is the event's text without its opening brace.
pub(crate) fn note(event: &str, tail: &str, seq: Option<u64>) -> Option<Note> {
    // Deltas are nearly all there is; they end here.
    if event.starts_with("stream.") {
        return None;
    }
    match event {
        "session.resync" => described(tail),
        "agent.working" => Some(Note::Working(phase(tail))),
        "agent.idle" => Some(Note::Status(SessionStatus::Idle)),
        // A foreign host's run begins with it.
        "run.started" if seq == Some(1) => Some(Note::Created { seq }),
        "run.started" => Some(Note::Working(None)),
        "session.closed" => Some(Note::Status(SessionStatus::Closed)),
        "run.exited" => Some(Note::Exited),
        "session.created" => Some(Note::Created { seq }),
        "agent.error" if tail.contains("\"recoverable\":false") => Some(Note::Status(SessionStatus::Failed)),
        "agent.input_needed" => read::<Needed>(tail).map(|needed| Note::InputNeeded(needed.request)),
        "agent.input_resolved" => {
            let Resolved { request_id, asked_seq } = read(tail)?;
            Some(Note::InputResolved { request_id, asked_seq: asked_seq.filter(|_| seq.is_none()) })
        }
        _ => None,
    }
}

/// What a record that is to be stored says for lists.
pub(crate) fn of_record(record: &RecordIn) -> Option<Note> {
    match record.effect.as_ref()? {
        Effect::UpsertSession(row) => Some(Note::Row(row.clone())),
        Effect::SessionPatch(patch) => Some(Note::Patched(patch.clone())),
        Effect::Message(message) => Some(Note::Said {
            text: message.last_text.clone(),
            count: u64::try_from(message.idx).map_or(0, |idx| idx + 1),
        }),
        Effect::ReplaceMessages(list) => Some(Note::Said {
            text: Some(list.iter().rev().find_map(|message| message.last_text.clone()).unwrap_or_default()),
            count: list.len() as u64,
        }),
        Effect::Rewrite { .. } => None,
    }
}

#[derive(Deserialize)]
struct Phase {
    phase: AgentPhase,
}

#[derive(Deserialize)]
struct Needed {
    request: Question,
}

#[derive(Deserialize)]
struct Resolved {
    request_id: String,
    #[serde(default)]
    asked_seq: Option<u64>,
}

#[derive(Deserialize)]
struct Resync {
    state: ResyncState,
}

#[derive(Deserialize)]
struct ResyncState {
    status: SessionStatus,
    #[serde(default)]
    phase: Option<AgentPhase>,
    seq: u64,
    pending_input: Vec<Question>,
}

fn read<T: for<'a> Deserialize<'a>>(tail: &str) -> Option<T> {
    serde_json::from_str(&format!("{{{tail}")).ok()
}

/// A phase of a later version is none we could name.
fn phase(tail: &str) -> Option<AgentPhase> {
    read::<Phase>(tail).map(|working| working.phase)
}

fn described(tail: &str) -> Option<Note> {
    let ResyncState { status, phase, seq, pending_input } = read::<Resync>(tail)?.state;
    Some(Note::Described(Box::new(Description { status, phase, questions: pending_input, seq })))
}

/// What is to be told of a session.
#[derive(Default)]
struct Told {
    /// At once: a person may have to do something, or it came or went.
    now: Option<SessionChange>,
    /// Together with what else changes soon.
    soon: bool,
}

/// Brings lists up to date, when the events are stored and published.
pub(crate) fn apply_notes(hub: &Arc<Hub>, entry: &SessionEntry, notes: &[Note]) {
    let mut told = Told::default();
    for note in notes {
        apply(hub, entry, note, &mut told);
    }
    match told {
        Told { now: Some(change), .. } => hub.tell_session(entry, change),
        Told { soon: true, .. } => hub.tell_session_soon(entry),
        Told { .. } => {}
    }
}

fn apply(hub: &Arc<Hub>, entry: &SessionEntry, note: &Note, told: &mut Told) {
    match note {
        // An agent that died is told to be idle too, since nothing goes on; what matters is that it died.
        Note::Status(SessionStatus::Idle) if entry.status() == SessionStatus::Failed => entry.line().rest(),
        Note::Status(status) => {
            if matches!(status, SessionStatus::Closed | SessionStatus::Failed) {
                entry.set_questions(Vec::new());
            }
            entry.line().rest();
            if entry.set_status(*status) {
                let is_closed = *status == SessionStatus::Closed;
                told.now = Some(if is_closed { SessionChange::Closed } else { SessionChange::Updated });
            }
        }
        Note::Working(phase) => {
            told.soon |= entry.line().work(*phase, now_ms());
            if entry.set_status(SessionStatus::Working) {
                told.now = Some(SessionChange::Updated);
            }
        }
        Note::Exited => {
            terminals::forget_later(hub, &entry.id);
            entry.line().rest();
            if entry.set_status(SessionStatus::Closed) {
                told.now = Some(SessionChange::Closed);
            }
        }
        Note::Created { seq } => {
            if is_new(entry, *seq) {
                hub.faces.session_news(hub, &entry.id, SessionNews::Created);
            }
            if matches!(entry.status(), SessionStatus::Starting | SessionStatus::Failed) {
                entry.set_status(SessionStatus::Idle);
            }
            hub.tell_session(entry, SessionChange::Created);
        }
        Note::Described(description) => {
            if describe(hub, entry, description) {
                told.now = Some(SessionChange::Updated);
            }
        }
        Note::InputNeeded(question) => {
            entry.add_question(question);
            told.now = Some(SessionChange::Updated);
        }
        Note::InputResolved { request_id, asked_seq } => {
            entry.remove_question(request_id);
            if let Some(seq) = *asked_seq {
                forget_secrets(hub, &entry.id, seq);
            }
            told.now = Some(SessionChange::Updated);
        }
        Note::Row(row) => entry.line().learn(row),
        Note::Patched(patch) => {
            let mut line = entry.line();
            let is_renamed = line.patch(patch);
            drop(line);
            if is_renamed {
                told.now = told.now.or(Some(SessionChange::Updated));
            }
        }
        Note::Said { text, count } => {
            entry.line().say(text.as_deref(), *count);
            told.soon = true;
        }
    }
}

/// A question is over whose host records no decisions: its record is kept without the secrets in it from now on.
fn forget_secrets(hub: &Arc<Hub>, session_id: &Arc<str>, seq: u64) {
    let (store, session_id) = (hub.store.clone(), Arc::clone(session_id));
    hub.tasks.spawn(async move {
        if let Err(error) = store.rewrite_record(&session_id, seq, redact_question).await {
            tracing::warn!(%error, %session_id, seq, "a decided question keeps its secrets in the log");
        }
    });
}

/// Whether the agent's start, which is record `seq`, makes a session appear: it is the first, or the session was
/// closed before. A record of the past says nothing of a session that is known to be closed now.
fn is_new(entry: &SessionEntry, seq: Option<u64>) -> bool {
    let is_closed = entry.status() == SessionStatus::Closed;
    if is_closed { !seq.is_some_and(|seq| entry.is_described(seq)) } else { seq == Some(1) }
}

/// The runner has said how the session stands. True if the status is news.
pub(crate) fn describe(hub: &Arc<Hub>, entry: &SessionEntry, description: &Description) -> bool {
    let Description { status, phase, questions, seq } = description;
    let was_closed = entry.status() == SessionStatus::Closed;
    let is_closed = *status == SessionStatus::Closed;
    if *status == SessionStatus::Working {
        entry.line().work(*phase, now_ms());
    } else {
        entry.line().rest();
    }
    let is_news = entry.describe(*status, questions.clone(), *seq);
    if was_closed != is_closed {
        let news = if is_closed { SessionNews::Closed } else { SessionNews::Created };
        hub.faces.session_news(hub, &entry.id, news);
    }
    is_news
}

#[cfg(test)]
mod tests {
    use qd_store::{HubStore, StoreOptions};

    use super::*;
    use crate::config::HubConfig;
    use crate::registry::Stored;
    use crate::{LoginCodes, OwnerToken};

    #[tokio::test]
    async fn an_agent_that_died_is_shown_as_failed_until_it_runs_again() {
        let directory = tempfile::tempdir().unwrap();
        let store = HubStore::open(&directory.path().join("hub.db"), StoreOptions::default()).unwrap();
        let config = HubConfig::new(OwnerToken::new("t"), LoginCodes::default());
        let hub = Arc::new(Hub::new(config, store, Stored::default()));
        let entry = hub.session_or_new("s", &Arc::from("r"));
        let shown = || (entry.status(), entry.summary(false).working_since.is_some());
        let error = SessionPatch { error: Some("killed".into()), ..SessionPatch::default() };
        let (failed, idle) = (Note::Status(SessionStatus::Failed), Note::Status(SessionStatus::Idle));
        apply_notes(&hub, &entry, &[Note::Created { seq: Some(1) }, Note::Working(None)]);
        assert_eq!(shown(), (SessionStatus::Working, true));
        apply_notes(&hub, &entry, &[Note::Patched(Box::new(error)), failed, idle.clone()]);
        assert_eq!(shown(), (SessionStatus::Failed, false));
        assert_eq!(entry.summary(false).error.as_deref(), Some("killed"));
        apply_notes(&hub, &entry, &[Note::Working(None), Note::Created { seq: Some(9) }, idle]);
        assert_eq!(shown(), (SessionStatus::Idle, false));
    }

    #[test]
    fn events_that_matter_to_lists_are_read_and_deltas_are_not() {
        assert!(note("stream.text_delta", "nonsense", None).is_none());
        let working = note("agent.working", r#""event":"agent.working","phase":"thinking"}"#, None);
        assert!(matches!(working, Some(Note::Working(Some(AgentPhase::Thinking)))));
        let later = note("agent.working", r#""event":"agent.working","phase":"dreaming"}"#, None);
        assert!(matches!(later, Some(Note::Working(None))));
        let tail =
            r#""event":"agent.input_needed","request":{"type":"confirm","request_id":"q","title":"Go?"}}"#;
        let Some(Note::InputNeeded(question)) = note("agent.input_needed", tail, Some(3)) else { panic!() };
        assert_eq!((&*question.request_id, &*question.title), ("q", "Go?"));
    }
}
