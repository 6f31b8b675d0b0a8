//! Apps that do not keep up, and floods.

use qd_hub::Limits;
use serde_json::json;

use crate::run::support::{output, place};
use crate::support::{TOKEN, World, soon};

/// Puts out much more than feed and sockets hold while one app reads nothing; then it reads, while more comes.
#[tokio::test]
async fn a_slow_app_catches_up_without_loss_or_repetition() {
    let limits = Limits { ring_bytes_max: 16 << 10, ..Limits::default() };
    let (world, mut runner) = World::start_with(limits).await;
    let runs = ["run-1", "run-2", "run-3"];
    for run in runs {
        runner.start_run(run).await;
    }
    let mut slow = world.app().await;
    let mut quick = world.app().await;
    let last = 1500;
    let text = "x".repeat(4000);
    let script = tokio::spawn(async move {
        for seq in 3..=last {
            let lines: Vec<String> = runs.iter().map(|run| output(run, seq, &text)).collect();
            runner.say(&lines.join("\n")).await;
        }
        for run in runs {
            runner.record(run, last + 1, "run.exited", r#","exit_code":0"#).await;
        }
        runner
    });
    let mut left = runs.len();
    let mut seen = std::collections::HashMap::new();
    while left > 0 {
        let (kind, run, seq) = place(&quick.heard().await);
        assert_eq!(seq, seen.insert(run, seq).unwrap_or(2) + 1, "the quick one");
        left -= usize::from(kind == "run.exited");
    }
    seen.clear();
    left = runs.len();
    while left > 0 {
        let (kind, run, seq) = place(&slow.heard().await);
        assert_eq!(seq, seen.insert(run, seq).unwrap_or(2) + 1, "the slow one");
        left -= usize::from(kind == "run.exited");
    }
    let runner = script.await.unwrap();
    // Both are live again.
    runner.output("run-1", last + 2, "after").await;
    assert_eq!(place(&slow.heard().await).2, last + 2);
    assert_eq!(place(&quick.heard().await).2, last + 2);
    assert!(slow.heard_until_now().await.is_empty());
    drop(runner);
    world.stop().await;
}

/// As `seq 1 2000000` makes it: 17 MB in records of 64 KiB, one frame for each, to two apps.
#[tokio::test]
async fn a_flood_passes_whole_and_in_order() {
    let (world, mut runner) = World::start().await;
    runner.start_run("run-1").await;
    let mut apps = [world.app().await, world.app().await];
    let text = "1234567\n".repeat(8 << 10);
    let records = 270;
    let script = tokio::spawn(async move {
        for seq in 3..3 + records {
            runner.output("run-1", seq, &text).await;
        }
        runner.record("run-1", 3 + records, "run.exited", r#","exit_code":0"#).await;
        runner
    });
    for app in &mut apps {
        let mut expected = 3;
        loop {
            let message = app.heard().await;
            assert_eq!(message["seq"], expected);
            expected += 1;
            if message["type"] == "run.exited" {
                break;
            }
            assert_eq!(message["data"]["text"].as_str().unwrap().len(), 64 << 10);
        }
        assert_eq!(expected, 4 + records);
    }
    drop(script.await.unwrap());
    world.stop().await;
}

/// Many runs that do nothing cost an app nothing, and it hears of each that does something.
#[tokio::test]
async fn hole_24_many_idle_runs_cost_an_app_nothing() {
    let (world, mut runner) = World::start().await;
    let count = 2000;
    let started: Vec<String> = (0..count)
        .map(|number| {
            crate::support::record(
                &format!("run-{number}"),
                1,
                "session.created",
                r#","resumed":false,"harness":"pty","cwd":"/w""#,
            )
        })
        .collect();
    runner.say(&started.join("\n")).await;
    runner.stored(&format!("run-{}", count - 1), 1).await;
    let mut apps = Vec::new();
    for _ in 0..20 {
        apps.push(world.app().await);
    }
    runner.output("run-77", 2, "here").await;
    for app in &mut apps {
        assert_eq!(place(&app.heard().await), ("run.output".to_owned(), "run-77".to_owned(), 2));
    }
    let bearer = format!("Bearer {TOKEN}");
    let list = soon("a list", world.http("/runs?limit=50&offset=1990", &[("Authorization", &bearer)])).await;
    assert_eq!(list.0, 200);
    assert!(list.1.contains("x-total-count: 2000"), "{}", list.1);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&list.2).unwrap();
    assert_eq!(rows.len(), 10, "there is a way to every run");
    assert_eq!(rows[0]["host_id"], json!("r1"));
    world.stop().await;
}
