//! Leaving and coming back: a client that disconnects at any point ends with what one has that never left.

use qd_testkit::mux::Mux;
use qd_testkit::qd::Qd;
use qd_testkit::replica::Replica;
use serde_json::{Value, json};

use crate::{demo_with_session, pi, pi_session};

/// A client of one session, and where it leaves.
struct Watcher {
    mux: Mux,
    replica: Replica,
    leaves_after: usize,
}

impl Watcher {
    async fn new(qd: &Qd, session: &str, leaves_after: usize) -> Watcher {
        let mut mux = qd.connect().await;
        let replica = Replica::default();
        mux.send(replica.attach(session)).await;
        let mut watcher = Watcher { mux, replica, leaves_after };
        while watcher.replica.seq == 0 {
            watcher.take_one(session).await;
        }
        watcher
    }

    async fn take_one(&mut self, session: &str) -> bool {
        let frame = self.mux.next().await.expect("the connection stays");
        let own = frame["channel"] == "agent" && frame["session_id"] == session;
        if own {
            self.replica.take(&frame);
        }
        own
    }

    /// Follows the session until it has all messages, leaving once on the way. Says how many
    /// frames it took where it never left.
    async fn follow(mut self, qd: &Qd, session: &str, messages: usize) -> (Replica, usize) {
        let mut taken = 0;
        while !(self.replica.messages.len() == messages && self.replica.is_settled()) {
            taken += usize::from(self.take_one(session).await);
            if taken == self.leaves_after {
                // Dropped without a goodbye, as when a laptop closes.
                self.mux = qd.connect().await;
                self.mux.send(self.replica.attach(session)).await;
                // Idle or not is told by the answer; what was known before may be old.
                self.replica.is_idle = false;
            }
        }
        (self.replica, taken)
    }
}

/// One watcher per frame, each leaving after another one, and one that stays.
async fn leave_after_every_frame(
    qd: &Qd,
    mux: &mut Mux,
    session: &str,
    watchers: usize,
    prompts: &[&str],
    messages: usize,
) {
    let mut all = vec![Watcher::new(qd, session, usize::MAX).await];
    for leaves_after in 1..watchers {
        all.push(Watcher::new(qd, session, leaves_after).await);
    }
    let work = async {
        for prompt in prompts {
            let events = mux.prompt(session, prompt).await;
            assert_eq!(events.last().unwrap()["reason"], "stop");
        }
    };
    let follow =
        futures_util::future::join_all(all.into_iter().map(|watcher| watcher.follow(qd, session, messages)));
    let ((), ends) = tokio::join!(work, follow);
    let (stayed, frames) = &ends[0];
    assert!(*frames < watchers, "{frames} frames need more than {watchers} watchers");
    assert!(stayed.compared >= 2, "the answers were streamed");
    for (left, (replica, _)) in ends.iter().enumerate().skip(1) {
        assert_eq!(replica.messages, stayed.messages, "left after frame {left}");
        assert_eq!(replica.seq, stayed.seq, "left after frame {left}");
    }
    assert_eq!(mux.messages(session).await, stayed.messages);
}

/// Takes the frames of the one session until the client knows it to be idle with this many messages.
async fn follow(mux: &mut Mux, replica: &mut Replica, messages: usize) {
    while replica.messages.len() < messages || !replica.is_settled() {
        let frame = mux.next().await.unwrap();
        if frame["channel"] == "agent" {
            replica.take(&frame);
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_after_any_frame_ends_with_the_same_messages() {
    let (qd, mut mux, session) = demo_with_session().await;
    leave_after_every_frame(&qd, &mut mux, &session, 120, &["/thinking", "/tools"], 7).await;
}

#[tokio::test]
async fn the_same_with_real_pi() {
    let (qd, mut mux, _llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"model": "fake/fake-2", "thinking_level": "low"})).await;
    let prompts = [
        "@@thinking\n@@slow n=30 delay_ms=10",
        "@@bash command=\"echo hi\"\n@@final text=\"All of it is done.\"",
    ];
    let messages = 7;
    leave_after_every_frame(&qd, &mut mux, &session, 140, &prompts, messages).await;
}

#[tokio::test]
async fn a_cursor_is_continued_and_a_useless_one_gets_a_snapshot() {
    let (qd, mut mux, session) = demo_with_session().await;
    let first = mux.prompt(&session, "/text").await;
    let middle = first.iter().rev().find_map(|event| event["seq"].as_u64()).unwrap();
    let second = mux.prompt(&session, "/error").await;
    let mut other = qd.connect().await;
    let data = other.ok(json!({"cmd": "session.attach", "session_id": session, "after": middle})).await;
    assert_eq!(data["resume"], "ok");
    assert!(data.get("messages").is_none());
    let seq = data["seq"].as_u64().unwrap();
    let records: Vec<Value> = second.into_iter().filter(|event| event["seq"].is_u64()).collect();
    assert_eq!(seq, middle + records.len() as u64);
    other.skip();
    for record in records {
        assert_eq!(other.wait_for("a record", |frame| frame["seq"].is_u64()).await, record);
    }
    let data = other.ok(json!({"cmd": "session.attach", "session_id": session, "after": seq + 1000})).await;
    assert_eq!(data["resume"], "gap");
    assert_eq!(data["messages"], Value::Array(mux.messages(&session).await));
    assert_eq!(data["seq"], seq);
    let data = other.ok(json!({"cmd": "session.attach", "session_id": session, "after": 0})).await;
    assert_eq!(data["resume"], "ok");
    let created = other.wait_event("session.created").await;
    assert_eq!(created["seq"], 1);
}

#[tokio::test]
async fn attaching_in_the_middle_of_a_stream_gives_what_was_said_so_far() {
    let (qd, mut mux, session) = demo_with_session().await;
    let from = mux.begin_prompt(&session, "/long 1000000").await;
    mux.wait_for("some text", |frame| frame["offset"].as_u64() > Some(100)).await;
    let mut late = qd.connect().await;
    let mut replica = Replica::default();
    let response = late.call(replica.attach(&session)).await;
    replica.take(&response);
    let block = &response["data"]["partial"]["message"]["blocks"][0];
    assert!(block["text"].as_str().unwrap().starts_with("word0 word1 "), "{block}");
    assert_eq!(block["kind"], "text");
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;
    mux.until_idle(&session, from).await;
    follow(&mut late, &mut replica, 0).await;
    assert_eq!(replica.compared, 1, "the text put together is the text stored");
    assert_eq!(replica.messages, mux.messages(&session).await);
}

#[tokio::test]
async fn a_reader_that_falls_behind_is_told_of_its_gap_and_catches_up() {
    let (qd, mut mux, session) = demo_with_session().await;
    let mut slow = qd.connect().await;
    let mut replica = Replica::default();
    let response = slow.call(replica.attach(&session)).await;
    replica.take(&response);
    // Nothing is read here while far more than all buffers hold goes by.
    for _ in 0..4 {
        mux.prompt(&session, "/long 100000").await;
    }
    mux.prompt(&session, "/text").await;
    follow(&mut slow, &mut replica, 10).await;
    assert!(slow.frames().iter().any(|frame| frame["event"] == "session.resync"), "the gap was said");
    // Messages of this size come in several pages; the first will do.
    let stored = mux.messages(&session).await;
    let pairs = || {
        replica.messages.iter().filter_map(|message| {
            stored.iter().find(|stored| stored["id"] == message["id"]).map(|stored| (stored, message))
        })
    };
    assert!(pairs().count() == stored.len() && stored.len() > 1);
    assert!(pairs().all(|(stored, message)| stored == message), "what was put together is what is stored");
}
