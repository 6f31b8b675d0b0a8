//! A client that watches a session through every loss of connection, and notes whatever it cannot make sense of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use qd_testkit::replica::Replica;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fleet::Fleet;

const RETRY: Duration = Duration::from_millis(100);
const CATCH_UP_MAX: Duration = Duration::from_secs(60);

/// What a watcher saw.
#[derive(Default)]
pub(crate) struct WatchedSession {
    /// Every record, by number.
    pub(crate) records: BTreeMap<u64, Value>,
    pub(crate) messages: Vec<Value>,
    pub(crate) reconnects: u64,
    pub(crate) problems: Vec<String>,
}

pub(crate) struct Watcher {
    /// Stop when this record has been seen.
    until: watch::Sender<Option<u64>>,
    task: JoinHandle<WatchedSession>,
}

impl Watcher {
    pub(crate) fn start(fleet: &Arc<Fleet>, session: &str, _stop: &CancellationToken) -> Watcher {
        let (until, waits) = watch::channel(None);
        let task = tokio::spawn(watch_session(Arc::clone(fleet), session.to_owned(), waits));
        Watcher { until, task }
    }

    pub(crate) async fn finish(self, last_seq: u64) -> WatchedSession {
        self.until.send_replace(Some(last_seq));
        self.task.await.unwrap_or_else(|error| {
            let problem = match error.try_into_panic() {
                Ok(panic) => panic.downcast_ref::<String>().cloned().unwrap_or("a broken promise".to_owned()),
                Err(error) => error.to_string(),
            };
            WatchedSession { problems: vec![problem], ..WatchedSession::default() }
        })
    }
}

async fn watch_session(
    fleet: Arc<Fleet>,
    session: String,
    mut until: watch::Receiver<Option<u64>>,
) -> WatchedSession {
    let mut watched = WatchedSession::default();
    let mut replica = Replica::behind_bad_links();
    let mut deadline = None;
    loop {
        if let Some(last) = *until.borrow() {
            if replica.seq >= last {
                watched.messages = replica.messages;
                return watched;
            }
            let end = *deadline.get_or_insert(tokio::time::Instant::now() + CATCH_UP_MAX);
            if tokio::time::Instant::now() > end {
                watched.problems.push(format!("stands at record {} of {last}", replica.seq));
                return watched;
            }
        }
        follow(&fleet, &session, &mut replica, &mut watched, &mut until).await;
        watched.reconnects += 1;
        tokio::time::sleep(RETRY).await;
    }
}

/// One connection's life.
async fn follow(
    fleet: &Fleet,
    session: &str,
    replica: &mut Replica,
    watched: &mut WatchedSession,
    until: &mut watch::Receiver<Option<u64>>,
) {
    let Some((client, mut frames)) = fleet.connect().await else { return };
    let mut attach = replica.attach(session);
    attach["channel"] = "agent".into();
    attach["id"] = "a".into();
    if client.send_text(attach.to_string()).await.is_err() {
        return;
    }
    loop {
        let frame = tokio::select! {
            frame = frames.next() => frame,
            _ = until.changed() => None,
        };
        let Some(frame) = frame else { return };
        let frame: Value = serde_json::from_str(frame.text()).expect("every frame is JSON");
        if frame["channel"] != "agent" || frame["session_id"] != session {
            continue;
        }
        if frame["event"] == "response" && frame["success"] != true {
            // Its runner is away, or comes up; the next try may be luckier.
            return;
        }
        if frame["event"] != "response" && frame["event"] != "session.resync" && frame["seq"].is_u64() {
            let seq = frame["seq"].as_u64().unwrap();
            if let Some(before) = watched.records.insert(seq, frame.clone())
                && before != frame
            {
                watched.problems.push(format!("record {seq} changed: {before} became {frame}"));
            }
        }
        replica.take(&frame);
        if until.borrow().is_some_and(|last| replica.seq >= last) {
            return;
        }
    }
}
