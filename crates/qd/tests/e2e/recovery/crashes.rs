//! `kill -9` at any moment: what a client has seen is never taken back, and what nobody can know is said.

use std::collections::BTreeMap;

use qd_testkit::mux::{Mux, short};
use qd_testkit::process::{eventually, with_marker};
use qd_testkit::replica::Replica;
use serde_json::{Value, json};

use crate::{assert_fields, demo, pi, prompt, restarted, with};

/// Every record of a session, by its number.
fn records(frames: &[Value], session: &str) -> BTreeMap<u64, Value> {
    let own = frames.iter().filter(|frame| frame["channel"] == "agent" && frame["session_id"] == session);
    own.filter(|frame| frame["event"] != "response" && frame["event"] != "session.resync")
        .filter_map(|frame| Some((frame["seq"].as_u64()?, frame.clone())))
        .collect()
}

async fn read_all(mux: &mut Mux, session: &str) -> Replica {
    let mut replica = Replica::default();
    let answer = mux.call(json!({"cmd": "session.attach", "session_id": session, "after": 0})).await;
    let until = answer["data"]["seq"].as_u64().unwrap();
    mux.wait_for("the last record", |frame| {
        frame["session_id"] == session && frame["event"] != "response" && frame["seq"] == until
    })
    .await;
    let own =
        mux.frames().iter().filter(|frame| frame["session_id"] == session && frame["event"] != "response");
    own.filter(|frame| frame["channel"] == "agent").for_each(|frame| replica.take(frame));
    replica
}

#[tokio::test]
async fn what_a_client_has_seen_survives_a_kill_at_any_moment() {
    let (mut qd, mut mux) = demo().await;
    let sessions = ["a", "b", "c"];
    let mut seen: BTreeMap<&str, BTreeMap<u64, Value>> = BTreeMap::new();
    for session in sessions {
        mux.ok(json!({"cmd": "session.create", "session_id": session, "config": {"harness": "demo"}})).await;
    }
    for round in 0..10_usize {
        let from = mux.frames().len();
        let mut last = None;
        for (session, script) in sessions.iter().zip(["/tools", "/thinking", "/long 2000"]) {
            last = Some(mux.send(prompt(session, script)).await);
        }
        mux.response(from, &last.unwrap()).await;
        // Each round dies after another frame.
        for _ in 0..round * round * 3 {
            if tokio::time::timeout(std::time::Duration::from_secs(2), mux.next()).await.is_err() {
                break;
            }
        }
        for session in sessions {
            seen.entry(session).or_default().extend(records(mux.frames(), session));
        }
        (qd, mux) = restarted(qd).await;
        for session in sessions {
            let replica = read_all(&mut mux, session).await;
            let stored = records(mux.frames(), session);
            for (seq, record) in &seen[session] {
                assert_eq!(stored.get(seq), Some(record), "round {round}, {session}: {}", short(record));
            }
            assert!(stored.keys().copied().eq(1..=stored.len() as u64), "{:?}", stored.keys());
            assert_eq!(mux.messages(session).await, replica.messages, "round {round}, {session}");
            assert_eq!(mux.state(session).await["status"], "dormant");
        }
        mux.skip();
    }
}

#[tokio::test]
async fn a_command_cut_off_by_a_kill_is_indeterminate_and_not_run_again() {
    let (qd, mut mux, _llm) = pi().await;
    let create = json!({"cmd": "session.create", "session_id": "cut", "idempotency_key": "k",
        "config": {"harness": "pi", "cwd": qd.sandbox().work()}});
    mux.send(create.clone()).await;
    let sessions = qd.sandbox().pi_dir().join("sessions").display().to_string();
    eventually("pi is being started", || !with_marker(&sessions).is_empty()).await;
    let (_qd, mut mux) = restarted(qd).await;
    let answer = mux.call(create.clone()).await;
    assert_fields(&answer, json!({"success": false, "indeterminate": true}));
    let says_what_to_do = answer["error"].as_str().unwrap().contains("idempotency_key");
    assert!(says_what_to_do, "{}", short(&answer));
    mux.ok(with(create, json!({"idempotency_key": "k2"}))).await;
    assert_eq!(mux.prompt("cut", "@@text").await.last().unwrap()["reason"], "stop");
}
