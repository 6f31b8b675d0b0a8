//! Ways to lose what a run has written, or to have it twice, each of which was open somewhere once.

use qd_hub::Limits;
use serde_json::json;

use crate::hosts::support::{Host, trust};
use crate::run::support::{output, place};
use crate::support::{World, assert_fields, record, soon};

/// An app reads nothing while a run writes far more than feed and sockets hold.
#[tokio::test]
async fn hole_11_a_slow_reader_never_costs_the_log_a_record() {
    let limits = Limits { ring_bytes_max: 16 << 10, ..Limits::default() };
    let (world, mut runner) = World::start_with(limits).await;
    runner.start_run("run-1").await;
    let mut app = world.app().await;
    let text = "x".repeat(8000);
    let last = 3000;
    // 24 MB; the run is acked to its end before the app has taken anything.
    for seq in 3..=last {
        runner.output("run-1", seq, &text).await;
    }
    runner.stored("run-1", last).await;
    let mut after = 0;
    while after < last {
        let page = world.store.records_after("run-1", after, 500, 64 << 20).await.unwrap();
        assert!(!page.is_empty(), "nothing after record {after}");
        for (seq, _) in page {
            assert_eq!(seq, after + 1, "a record is not in the store");
            after = seq;
        }
    }
    for seq in 3..=last {
        let message = app.heard().await;
        assert_eq!(place(&message), ("run.output".to_owned(), "run-1".to_owned(), seq));
        assert_eq!(message["data"]["text"].as_str().unwrap().len(), text.len());
    }
    world.stop().await;
}

/// The disk is full: neither a runner nor a foreign host hears that something is kept, until it is.
#[tokio::test]
async fn hole_13_what_cannot_be_stored_is_not_acknowledged() {
    let (world, mut runner) = World::start().await;
    trust(&world, "h").await;
    let mut host = Host::connect(&world, "h").await;
    host.start("of-host").await;
    host.acked("of-host", 1).await;
    runner.start_run("of-runner").await;
    let mut client = world.client().await;
    world.store.set_full_for_tests(true).await.unwrap();
    let text = "x".repeat(400_000);
    host.event("of-host", 2, "run.output", json!({"stream": "stdout", "text": text})).await;
    runner.output("of-runner", 3, &text).await;
    assert_fields(&client.next().await, json!({"code": "store_unavailable"}));
    // A command comes after anything the hub had to say before it.
    client.command("a", "of-runner", "run.stdin", json!({"text": "a"})).await;
    assert_eq!(runner.kinds_until("command").await, ["command"], "acked before it was stored");
    client.command("b", "of-host", "run.input", json!({"input_id": "b", "text": "b"})).await;
    host.next("run.send_input").await;
    assert_eq!(host.acked["of-host"], 1, "acked before it was stored");
    assert_eq!(world.store.records_after("of-runner", 2, 10, 1 << 20).await.unwrap().len(), 0);
    world.store.set_full_for_tests(false).await.unwrap();
    soon("room on the disk", runner.stored("of-runner", 3)).await;
    host.acked("of-host", 2).await;
    for (run, after) in [("of-runner", 2), ("of-host", 1)] {
        assert_eq!(world.store.records_after(run, after, 10, 1 << 20).await.unwrap().len(), 1, "{run}");
    }
    world.stop().await;
}

/// What a program writes is in the database file once: in the record, and in no copy for lists, apps or search.
#[tokio::test]
async fn hole_26_an_event_is_stored_once() {
    let (world, mut runner) = World::start().await;
    runner.start_run("run-1").await;
    let mut app = world.app().await;
    let text = "only-once-in-the-whole-database";
    runner.say(&output("run-1", 3, text)).await;
    // The link was cut before the ack came: once more.
    runner.say(&output("run-1", 3, text)).await;
    runner.say(&record("run-1", 4, "run.exited", r#","exit_code":0"#)).await;
    runner.stored("run-1", 4).await;
    app.heard_of("run.exited").await;
    let directory = world.end().await;
    let mut count = 0;
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            count += bytes.windows(text.len()).filter(|found| *found == text.as_bytes()).count();
        }
    }
    assert_eq!(count, 1);
}
