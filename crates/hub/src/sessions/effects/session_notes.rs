//! Changes of a session as it looks from outside: applied when the events that say them are stored and published.
//!
//! They are applied in the order of the stream, and those of records not before their commit: so a list shows no
//! record that a crash could take back.

use std::sync::Arc;

use qd_core::projection::{EventMoment, ListUrgency, ProjectionChange, SessionDescription};
use qd_core::redact::redact_question;
use qd_link::clock::now_ms;
use qd_wire::data::SessionStatus;
use qd_wire::mux::SessionChange;

use crate::faces::SessionUpdate;
use crate::hub::Hub;
use crate::sessions::session::SessionEntry;
use crate::sessions::terminal_cleanup;

/// What an event says of its session.
#[derive(Debug, Clone)]
pub(crate) struct SessionNote {
    /// Our own time is put in when it is applied.
    moment: EventMoment,
    pub(crate) change: ProjectionChange,
    /// A turn has ended with it; when it began. Known once it is applied.
    pub(crate) ended_turn: Option<i64>,
}

impl SessionNote {
    pub(crate) fn new(moment: EventMoment, change: ProjectionChange) -> Self {
        Self { moment, change, ended_turn: None }
    }

    /// What its runner has said of the session since takes it in.
    pub(crate) fn is_past(&self) -> bool {
        self.moment.is_past
    }
}

/// What is to be told of a session.
#[derive(Default)]
struct SessionAnnouncement {
    news: ListUrgency,
    is_closed: bool,
}

/// Brings the session up to date, when the events are stored and published.
pub(crate) fn apply_notes(hub: &Arc<Hub>, entry: &SessionEntry, notes: &mut [SessionNote]) {
    let mut told = SessionAnnouncement::default();
    let now = now_ms();
    for note in notes {
        note.moment.now = now;
        apply(hub, entry, note, &mut told);
    }
    // One block may close a session and open it again; then the end is no news.
    let is_closed = told.is_closed && entry.status() == SessionStatus::Closed;
    match told.news {
        _ if is_closed => hub.announce_session(entry, SessionChange::Closed),
        ListUrgency::Now => hub.announce_session(entry, SessionChange::Updated),
        ListUrgency::Soon => hub.announce_session_soon(entry),
        ListUrgency::None => {}
    }
}

fn apply(hub: &Arc<Hub>, entry: &SessionEntry, note: &mut SessionNote, told: &mut SessionAnnouncement) {
    let SessionNote { moment, change, ended_turn } = note;
    let before = entry.status();
    let applied = entry.projection().apply(change, *moment);
    *ended_turn = applied.ended_turn;
    told.news = told.news.max(applied.news);
    told.is_closed |= applied.is_new_status && entry.status() == SessionStatus::Closed;
    match change {
        ProjectionChange::Created { .. } => {
            if is_new(entry, before, moment.seq) {
                hub.faces.session_update(hub, &entry.id, SessionUpdate::Created);
            }
            hub.announce_session(entry, SessionChange::Created);
        }
        ProjectionChange::Exited { .. } => {
            // A record from the spool may tell of a program that was started again since.
            if !moment.is_past {
                terminal_cleanup::forget_later(hub, &entry.id);
            }
        }
        ProjectionChange::Answered(answered) => {
            // Where no record tells that it is over.
            if let Some(seq) = answered.asked_seq.filter(|_| moment.seq.is_none()) {
                forget_secrets(hub, &entry.id, seq);
            }
        }
        ProjectionChange::Described(description) => note_described(hub, entry, before, description),
        ProjectionChange::Started { .. }
        | ProjectionChange::Closed
        | ProjectionChange::Working(_)
        | ProjectionChange::Idle { .. }
        | ProjectionChange::Failed { .. }
        | ProjectionChange::Asked(_)
        | ProjectionChange::Acted { .. }
        | ProjectionChange::Titled(_)
        | ProjectionChange::ModelChanged { .. }
        | ProjectionChange::BranchChanged(_)
        | ProjectionChange::Said { .. } => {}
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
fn is_new(entry: &SessionEntry, before: SessionStatus, seq: Option<u64>) -> bool {
    let is_closed = before == SessionStatus::Closed;
    if is_closed { !seq.is_some_and(|seq| entry.is_described(seq)) } else { seq == Some(1) }
}

/// The runner has said how the session stands.
pub(crate) fn describe(hub: &Arc<Hub>, entry: &SessionEntry, description: SessionDescription) {
    let before = entry.status();
    let change = ProjectionChange::Described(Box::new(description));
    entry.projection().apply(&change, EventMoment { now: now_ms(), ..EventMoment::default() });
    if let ProjectionChange::Described(description) = change {
        note_described(hub, entry, before, &description);
    }
}

fn note_described(
    hub: &Arc<Hub>,
    entry: &SessionEntry,
    before: SessionStatus,
    description: &SessionDescription,
) {
    entry.note_described(description.seq);
    let is_closed = description.status == SessionStatus::Closed;
    if (before == SessionStatus::Closed) != is_closed {
        let news = if is_closed { SessionUpdate::Closed } else { SessionUpdate::Created };
        hub.faces.session_update(hub, &entry.id, news);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::test_hub;

    #[tokio::test]
    async fn an_agent_that_died_is_shown_as_failed_until_it_runs_again() {
        let (hub, _directory) = test_hub(|_| {});
        let entry = hub.session_or_new("s", &Arc::from("r"));
        let shown = || (entry.status(), entry.summary(false).working_since.is_some());
        let apply = |seq: u64, changes: Vec<ProjectionChange>| {
            let moment = EventMoment { seq: Some(seq), ..EventMoment::default() };
            let mut notes: Vec<SessionNote> =
                changes.into_iter().map(|change| SessionNote::new(moment, change)).collect();
            apply_notes(&hub, &entry, &mut notes);
        };
        let created = || ProjectionChange::Created { harness: "demo".to_owned(), cwd: None };
        let idle = || ProjectionChange::Idle { reason: None };
        apply(1, vec![created(), ProjectionChange::Working(None)]);
        assert_eq!(shown(), (SessionStatus::Working, true));
        apply(2, vec![ProjectionChange::Failed { error: "killed".to_owned() }, idle()]);
        assert_eq!(shown(), (SessionStatus::Failed, false));
        assert_eq!(entry.summary(false).error.as_deref(), Some("killed"));
        apply(9, vec![ProjectionChange::Working(None), created(), idle()]);
        assert_eq!(shown(), (SessionStatus::Idle, false));
    }
}
