//! What clients are told of the hub itself: runners, lists of sessions, the store.
//!
//! With many clients each of these costs as many frames. So changes of runners, and of sessions that only go on, are
//! collected for a moment, and only the newest state of each is told.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use qd_link::mutex::Mutex;
use qd_store::StoreError;
use qd_wire::ErrorCode;
use qd_wire::mux::{SessionChange, SystemEvent};
use tokio::sync::Notify;
use tokio::time::{Duration, sleep};

use crate::command::reply;
use crate::connection::Mailbox;
use crate::faces::SessionUpdate;
use crate::hub::Hub;
use crate::runners::runner::Runner;
use crate::sessions::session::SessionEntry;

/// How often clients are told of runners. When a hub with many of both starts, all runners change at once, and each
/// client gets one chunk instead of one for every change.
const RUNNER_NEWS_INTERVAL: Duration = Duration::from_millis(100);

/// How often clients are told of sessions that only go on: an agent that works changes its phase many times a second.
const SESSION_NEWS_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct Announcements {
    /// Runners that clients are yet to be told of.
    changed_runners: Mutex<BTreeSet<Arc<str>>>,
    runners_changed: Notify,
    /// Sessions that clients are yet to be told of.
    changed_sessions: Mutex<HashSet<Arc<str>>>,
    sessions_changed: Notify,
    /// Clients that have asked for the list of sessions, by connection.
    watching: Mutex<HashMap<Arc<str>, Arc<Mailbox>>>,
    /// Links that the store fails for.
    failing_links: AtomicUsize,
    /// Clients think that the store fails.
    is_failure_told: AtomicBool,
}

impl Hub {
    /// Every client is told soon how a runner stands.
    pub(crate) fn announce_runner(&self, runner: &Runner) {
        self.announcements.changed_runners.lock().insert(Arc::clone(&runner.id));
        self.announcements.runners_changed.notify_one();
    }

    /// Tells clients of changed runners, for ever. Nothing runs while nothing changes.
    pub(crate) async fn announce_changed_runners(&self) {
        loop {
            self.announcements.runners_changed.notified().await;
            let changed = std::mem::take(&mut *self.announcements.changed_runners.lock());
            if changed.is_empty() {
                continue;
            }
            self.broadcast(&self.runner_frames(&changed));
            // After telling, so that a single change is told at once and only a burst is collected.
            sleep(RUNNER_NEWS_INTERVAL).await;
        }
    }

    /// How these runners stand now, as one chunk of frames.
    fn runner_frames(&self, changed: &BTreeSet<Arc<str>>) -> Bytes {
        let counts = self.session_counts();
        let mut frames = BytesMut::new();
        for runner in changed.iter().filter_map(|runner_id| self.runner(runner_id)) {
            let info = runner.info(counts.get(&runner.id).copied().unwrap_or(0));
            frames.extend_from_slice(&reply::system(SystemEvent::RunnerChanged {
                runner_id: runner.id.to_string(),
                status: info.status,
                runner: Some(Box::new(info)),
            }));
        }
        frames.freeze()
    }

    /// The client has asked for the list of sessions: it is told of changes to it from now on.
    pub(crate) fn show_sessions(&self, mailbox: &Arc<Mailbox>) {
        self.announcements
            .watching
            .lock()
            .insert(Arc::clone(&mailbox.asker.connection_id), Arc::clone(mailbox));
    }

    pub(crate) fn hide_sessions(&self, mailbox: &Mailbox) {
        self.announcements.watching.lock().remove(&mailbox.asker.connection_id);
    }

    /// Tells the clients that have asked for the list of sessions that a line of it has changed. Not everybody:
    /// with many clients and busy sessions this would be most of what the hub sends.
    pub(crate) fn announce_session(self: &Arc<Self>, entry: &SessionEntry, change: SessionChange) {
        let announcements = match change {
            SessionChange::Closed => Some(SessionUpdate::Closed),
            SessionChange::Deleted => Some(SessionUpdate::Deleted),
            // Said where it is known whether it is really new.
            SessionChange::Created | SessionChange::Updated => None,
        };
        if let Some(announcements) = announcements {
            self.faces.session_update(self, &entry.id, announcements);
        }
        let watching = self.announcements.watching.lock();
        if watching.is_empty() {
            return;
        }
        let frames = self.session_frames(entry, change);
        watching.values().for_each(|mailbox| mailbox.send(frames.clone()));
    }

    fn session_frames(&self, entry: &SessionEntry, change: SessionChange) -> Bytes {
        let is_gone = change == SessionChange::Deleted;
        let summary = (!is_gone).then(|| Box::new(entry.summary(self.is_away(&entry.runner_id))));
        reply::system(SystemEvent::SessionChanged {
            session_id: entry.id.to_string(),
            runner_id: entry.runner_id.to_string(),
            change,
            session: summary,
        })
    }

    /// The same, together with what else changes soon.
    pub(crate) fn announce_session_soon(&self, entry: &SessionEntry) {
        if self.announcements.watching.lock().is_empty() {
            return;
        }
        self.announcements.changed_sessions.lock().insert(Arc::clone(&entry.id));
        self.announcements.sessions_changed.notify_one();
    }

    /// Tells clients of sessions that go on, for ever. Nothing runs while nothing changes.
    pub(crate) async fn announce_changed_sessions(&self) {
        loop {
            self.announcements.sessions_changed.notified().await;
            // Before telling: these changes come in bursts, and their first is seldom their last.
            sleep(SESSION_NEWS_INTERVAL).await;
            let changed = std::mem::take(&mut *self.announcements.changed_sessions.lock());
            let mut frames = BytesMut::new();
            for entry in changed.iter().filter_map(|session_id| self.session(session_id)) {
                frames.extend_from_slice(&self.session_frames(&entry, SessionChange::Updated));
            }
            if !frames.is_empty() {
                let frames = frames.freeze();
                let watching = self.announcements.watching.lock();
                watching.values().for_each(|mailbox| mailbox.send(frames.clone()));
            }
        }
    }

    /// The store fails for one more link. Clients are told once, not for each.
    pub(crate) fn note_store_failure(&self, error: &StoreError) {
        self.announcements.failing_links.fetch_add(1, Ordering::AcqRel);
        if !self.announcements.is_failure_told.swap(true, Ordering::AcqRel) {
            let error = ErrorCode::StoreUnavailable
                .with(format!("The hub cannot store events and holds them back: {error}"));
            self.broadcast(&reply::system_error(None, &error));
        }
    }

    /// A link for which the store failed is over, or its records are stored after all.
    pub(crate) fn note_failing_link_gone(&self) {
        self.announcements.failing_links.fetch_sub(1, Ordering::AcqRel);
    }

    /// Something was stored. That is worth announcing after a failure, if there is no link left that still waits.
    pub(crate) fn note_store_success(&self) {
        let announcements = &self.announcements;
        if announcements.is_failure_told.load(Ordering::Acquire)
            && announcements.failing_links.load(Ordering::Acquire) == 0
            && announcements.is_failure_told.swap(false, Ordering::AcqRel)
        {
            let message = "The hub stores events again".to_owned();
            self.broadcast(&reply::system(SystemEvent::Notice { message }));
        }
    }
}

#[cfg(test)]
mod tests {
    use qd_core::projection::{EventMoment, ProjectionChange};

    use super::*;
    use crate::access::principals::Principal;
    use crate::connection::ConnectionMail;
    use crate::hub::test_hub;

    fn frames(mailbox: &Mailbox) -> Vec<String> {
        let text = |mail| match mail {
            ConnectionMail::Frames(frames) => String::from_utf8_lossy(&frames).into_owned(),
            _ => panic!("no frames"),
        };
        mailbox.take(usize::MAX).into_iter().map(text).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn runners_that_change_together_are_told_together() {
        let (hub, _directory) = test_hub(|_| {});
        let (_, mailbox) = hub.add_connection(&Principal::owner()).unwrap();
        let (one, two) = (hub.runner_or_new(&Arc::from("one")), hub.runner_or_new(&Arc::from("two")));
        for _ in 0..10 {
            hub.announce_runner(&one);
            hub.announce_runner(&two);
        }
        let teller = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move { hub.announce_changed_runners().await }
        });
        sleep(RUNNER_NEWS_INTERVAL * 3).await;
        let told = frames(&mailbox);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].matches("runner.changed").count(), 2, "{told:?}");
        hub.announce_runner(&two);
        sleep(RUNNER_NEWS_INTERVAL * 3).await;
        assert_eq!(frames(&mailbox).len(), 1);
        teller.abort();
    }

    #[tokio::test]
    async fn only_who_watches_is_told_of_sessions_and_nobody_who_has_gone() {
        let (hub, _directory) = test_hub(|_| {});
        let (number, watching) = hub.add_connection(&Principal::owner()).unwrap();
        let (_, other) = hub.add_connection(&Principal::owner()).unwrap();
        let entry = hub.session_or_new("s", &Arc::from("r"));
        hub.show_sessions(&watching);
        hub.announce_session(&entry, SessionChange::Updated);
        assert_eq!((frames(&watching).len(), frames(&other).len()), (1, 0));
        hub.remove_connection(number);
        assert!(hub.announcements.watching.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_goes_on_is_told_now_and_then() {
        let (hub, _directory) = test_hub(|_| {});
        let (_, watching) = hub.add_connection(&Principal::owner()).unwrap();
        let entry = hub.session_or_new("s", &Arc::from("r"));
        hub.announce_session_soon(&entry);
        assert!(hub.announcements.changed_sessions.lock().is_empty(), "nobody watches");
        hub.show_sessions(&watching);
        let teller = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move { hub.announce_changed_sessions().await }
        });
        for count in 1..=10 {
            let said = ProjectionChange::Said { text: Some("working on it".to_owned()), count };
            entry.projection().apply(&said, EventMoment::default());
            hub.announce_session_soon(&entry);
        }
        sleep(SESSION_NEWS_INTERVAL * 3).await;
        let told = frames(&watching);
        assert_eq!(told.len(), 1, "{told:?}");
        for part in ["\"last_text\":\"working on it\"", "\"message_count\":10", "\"change\":\"updated\""] {
            assert!(told[0].contains(part), "{part}: {told:?}");
        }
        teller.abort();
    }

    #[tokio::test]
    async fn a_failing_store_is_told_once_and_over_when_no_link_waits() {
        let (hub, _directory) = test_hub(|_| {});
        let (_, mailbox) = hub.add_connection(&Principal::owner()).unwrap();
        hub.note_store_failure(&StoreError::Full);
        hub.note_store_failure(&StoreError::Full);
        assert_eq!(frames(&mailbox).len(), 1);
        hub.note_failing_link_gone();
        hub.note_store_success();
        assert!(frames(&mailbox).is_empty(), "one link still waits");
        hub.note_failing_link_gone();
        hub.note_store_success();
        hub.note_store_success();
        let told = frames(&mailbox);
        assert!(told.len() == 1 && told[0].contains("stores events again"), "{told:?}");
    }
}
