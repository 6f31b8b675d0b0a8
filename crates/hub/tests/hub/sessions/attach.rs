use std::collections::BTreeSet;

use qd_hub::Limits;
use serde_json::{Value, json};

use crate::support::{
    Client, Runner, World, assert_fields, attach_data, delta, followed_session, message_end, record,
    world_with_session,
};

impl Client {
    /// Attaches to a session whose runner answers as told.
    pub(crate) async fn attach(
        &mut self,
        runner: &mut Runner,
        session: &str,
        after: Option<u64>,
        seq: u64,
    ) -> Value {
        let rest = after.map_or(json!({}), |after| json!({ "after": after }));
        self.command("attach", session, "session.attach", rest).await;
        runner.attach(seq, "ok").await;
        let response = self.next().await;
        assert_eq!(response["id"], "attach", "{response}");
        response
    }
}

#[tokio::test]
async fn attach_answers_then_replays_then_follows() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let lines: Vec<_> = (2..=5000).map(|seq| record("s", seq, "notify", "")).collect();
    runner.say(&lines.join("\n")).await;
    while runner.line_of("ack").await["seq"] != 5000 {}
    let mut client = world.client().await;
    client.command("a", "s", "session.attach", json!({"after":10})).await;
    let command = runner.command().await;
    assert_eq!(command["after"], 10);
    // Live events right behind the answer wait until the replay is done.
    let answer = crate::support::answer(&command, &attach_data(5000, "ok"));
    runner.say(&format!("{answer}\n{}\n{}", delta("s", 7), record("s", 5001, "notify", ""))).await;
    let response = client.next().await;
    assert_eq!((&response["id"], &response["data"]["resume"]), (&json!("a"), &json!("ok")));
    assert!(response["data"].get("messages").is_none());
    for seq in 11..=5000 {
        assert_eq!(client.next().await["seq"], seq);
    }
    assert_eq!(client.next().await["delta"], "7");
    assert_eq!(client.next().await["seq"], 5001);
    world.stop().await;
}

#[tokio::test]
async fn a_gap_or_no_cursor_gives_the_newest_messages() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let lines: Vec<_> = (0..250).map(|idx| message_end("s", idx + 2, idx)).collect();
    runner.say(&lines.join("\n")).await;
    while runner.line_of("ack").await["seq"] != 251 {}
    let mut client = world.client().await;
    client.command("a", "s", "session.attach", json!({"after":9999})).await;
    runner.attach(251, "gap").await;
    let text = client.next_text().await;
    let response: Value = serde_json::from_str(&text).unwrap();
    let messages = response["data"]["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[0]["idx"], &messages[199]["idx"]), (200, &json!(50), &json!(249)));
    assert_fields(&response, json!({"data.resume": "gap", "data.pending_input": []}));

    let response = client.attach(&mut runner, "s", None, 251).await;
    assert_eq!(response["data"]["resume"], "ok");
    assert_eq!(response["data"]["messages"].as_array().unwrap().len(), 200);
    runner.say(&delta("s", 1)).await;
    assert_eq!(client.next().await["delta"], "1", "one subscription, however often attached");
    runner.say(&delta("s", 2)).await;
    assert_eq!(client.next().await["delta"], "2");
    world.stop().await;
}

#[tokio::test]
async fn detach_ends_the_stream() {
    let (world, runner, mut client) = followed_session().await;
    assert_eq!(client.call("d", "s", "session.detach", json!({})).await["success"], true);
    runner.say(&delta("s", 1)).await;
    assert_eq!(client.call("r", "_system", "get_runners", json!({})).await["id"], "r");
    world.stop().await;
}

#[tokio::test]
async fn a_refused_attach_is_passed_on() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    client.command("a", "s", "session.attach", json!({})).await;
    let command = runner.command().await;
    runner.refuse_as(&command, "no", "agent_gone").await;
    assert_eq!(client.next().await["code"], "agent_gone");
    runner.say(&delta("s", 1)).await;
    assert_eq!(client.call("r", "_system", "get_runners", json!({})).await["id"], "r");
    world.stop().await;
}

/// One client stays; others come and go with their cursors while records and deltas stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_and_goes_ends_with_what_who_stayed_has() {
    const LAST: u64 = 3000;
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut stays = world.client().await;
    stays.attach(&mut runner, "s", Some(1), 1).await;
    let script = tokio::spawn(async move {
        let mut seq = 1;
        while seq < LAST {
            seq += 1;
            runner.say(&format!("{}\n{}", delta("s", 0), record("s", seq, "notify", ""))).await;
            while let Some(block) = runner.link.receiver.try_recv() {
                for line in std::str::from_utf8(&block).unwrap().lines() {
                    let command: Value = serde_json::from_str(line).unwrap();
                    if command["cmd"] == "session.attach" {
                        runner.answer(&command, &attach_data(seq, "ok")).await;
                    }
                }
            }
            if seq % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
        // Late attaches are answered too.
        loop {
            runner.answer_next(&attach_data(LAST, "ok")).await;
        }
    });
    let goer = async {
        let mut seen = Vec::new();
        let mut cursor = 1;
        for turn in 0.. {
            let mut client = world.client().await;
            client.command("a", "s", "session.attach", json!({ "after": cursor })).await;
            assert_fields(&client.next().await, json!({"id": "a"}));
            for _ in 0..(turn * 37) % 400 + 20 {
                if cursor == LAST {
                    return seen;
                }
                let event = client.next().await;
                if let Some(seq) = event["seq"].as_u64() {
                    seen.push(seq);
                    cursor = seq;
                }
            }
        }
        seen
    };
    let stayer = async {
        let mut seen = Vec::new();
        while seen.last() != Some(&LAST) {
            seen.extend(stays.next().await["seq"].as_u64());
        }
        seen
    };
    let (gone, stayed) = tokio::join!(goer, stayer);
    let all: Vec<u64> = (2..=LAST).collect();
    assert_eq!(stayed, all);
    assert_eq!(gone, all, "no hole and nothing twice");
    script.abort();
    world.stop().await;
}

#[tokio::test]
async fn two_clients_see_everything_of_two_sessions() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    runner.create("t").await;
    let mut clients = [world.client().await, world.client().await];
    for client in &mut clients {
        client.attach(&mut runner, "s", Some(1), 1).await;
        client.attach(&mut runner, "t", Some(1), 1).await;
    }
    let lines: Vec<_> = (0..500).map(|number| delta(["s", "t"][number % 2], number)).collect();
    runner.say(&lines.join("\n")).await;
    for client in &mut clients {
        let mut seen = BTreeSet::new();
        let mut last = [-1, -1];
        while seen.len() < 500 {
            let event = client.next().await;
            let number: i64 = event["delta"].as_str().unwrap().parse().unwrap();
            let place = usize::from(event["session_id"] == "t");
            assert!(number > last[place], "the order within a session is kept");
            last[place] = number;
            assert!(seen.insert(number));
        }
    }
    let sessions = world.api("GET", "/api/sessions").await.1.to_string();
    let sessions: Value = serde_json::from_str(&sessions).unwrap();
    assert_eq!(sessions["sessions"][0]["subscriber_count"], 2);
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_left_gets_nothing_and_hinders_nobody() {
    let (world, mut runner) = World::start().await;
    runner.create("s").await;
    let mut client = world.client().await;
    client.command("a", "s", "session.attach", json!({})).await;
    let command = runner.command().await;
    drop(client);
    runner.answer(&command, &attach_data(1, "ok")).await;
    let mut other = world.client().await;
    other.attach(&mut runner, "s", Some(1), 1).await;
    runner.say(&delta("s", 3)).await;
    assert_eq!(other.next().await["delta"], "3");
    world.stop().await;
}

#[tokio::test]
async fn who_follows_as_many_as_it_may_can_still_attach_anew() {
    let (world, mut runner) = world_with_session(Limits { attachments_max: 1, ..Limits::default() }).await;
    runner.create("t").await;
    let mut client = world.client().await;
    for _ in 0..2 {
        client.attach(&mut runner, "s", Some(1), 1).await;
    }
    client.command("more", "t", "session.attach", json!({})).await;
    assert_fields(&client.next().await, json!({"code": "limit_reached"}));
    world.stop().await;
}
