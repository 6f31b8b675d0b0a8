//! Every byte, in order, once.

use serde_json::json;

use super::{app, exited, mux_output, mux_run, start, type_in};
use crate::{demo, on};

/// What `seq 1 LAST` looks like behind a terminal.
fn counted(last: usize) -> String {
    (1..=last).map(|number| format!("{number}\r\n")).collect()
}

#[tokio::test]
async fn a_flood_arrives_whole_at_an_app_and_at_a_canonical_client() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "exec seq 1 300000").await;
    app.event(&run, "run.exited").await;
    assert!(app.output(&run) == counted(300_000), "not every byte in order, once");
    let mut mux = qd.connect().await;
    let session = mux_run(&qd, &mut mux, &["seq", "1", "300000"]).await;
    mux.wait_event("run.exited").await;
    assert!(mux_output(&mux, &session) == counted(300_000), "not every byte in order, once");
}

#[tokio::test]
async fn an_app_that_reads_late_gets_everything_once() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "exec seq 1 2000000").await;
    // Nothing is read meanwhile; another client tells when it is over.
    let mut other = qd.connect().await;
    let state = exited(&mut other, &run).await;
    assert_eq!(state["run"]["exit_code"], 0);
    app.event(&run, "run.exited").await;
    assert!(app.output(&run) == counted(2_000_000), "not every byte in order, once");
    assert_eq!(app.seqs(&run).last().unwrap().0, "run.exited");
}

#[tokio::test]
async fn text_of_every_script_survives_byte_for_byte() {
    let (qd, mut app, host) = app().await;
    let text = "中文字符测试 🦀👩‍👩‍👧‍👦 עברית العربية e\u{301} \u{202e}rtl\u{202c} ｆｕｌｌ\n".repeat(4000);
    std::fs::write(qd.sandbox().work().join("text"), &text).unwrap();
    let run = start(&qd, &mut app, &host, "stty -opost; exec cat text").await;
    app.event(&run, "run.exited").await;
    assert!(app.output(&run) == text, "the text changed on its way");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_marked_and_lose_nothing_around_them() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, r"printf 'a\xff\xfeb\xe4\xb8'; sleep 0.2; printf '\xadc\n'").await;
    app.event(&run, "run.exited").await;
    assert_eq!(app.output(&run), "a\u{fffd}\u{fffd}b中c\r\n");
}

#[tokio::test]
async fn run_exited_is_the_last_record_of_many_short_runs() {
    let (qd, mut app, host) = app().await;
    let mut runs = Vec::new();
    for number in 0..40 {
        runs.push((number, start(&qd, &mut app, &host, &format!("seq 1 500; echo end-{number}")).await));
    }
    for (number, run) in runs {
        app.since(0, "the end", |frame| frame["type"] == "run.exited" && frame["run_id"] == run).await;
        assert_eq!(app.seqs(&run).last().unwrap().0, "run.exited");
        assert_eq!(app.output(&run), format!("{}end-{number}\r\n", counted(500)));
    }
}

#[tokio::test]
async fn keys_typed_one_by_one_arrive_in_order() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "stty -echo; echo ready; read -r line; echo got:$line").await;
    app.wait_output(&run, "ready").await;
    for key in "the quick brown fox".chars() {
        app.send("run.send_stdin", &run, json!({"text": key.to_string()})).await;
    }
    type_in(&mut app, &run, "\n").await;
    app.wait_output(&run, "got:the quick brown fox").await;
}

#[tokio::test]
async fn an_attached_client_gets_the_screen_at_once_and_then_what_follows() {
    let (qd, mut mux) = demo().await;
    let session = mux_run(&qd, &mut mux, &["bash", "-c", "seq 1 5000; read -r line; echo after:$line"]).await;
    while !mux_output(&mux, &session).contains("5000") {
        mux.wait_event("run.output").await;
    }
    let mut late = qd.connect().await;
    let attached = late.ok(on(&session, "session.attach")).await;
    assert_eq!(attached["resume"], "gap", "{attached}");
    let terminal = &attached["terminal"];
    assert!(terminal["screen"].as_str().unwrap().contains("5000"), "{terminal}");
    assert!(terminal["scrollback"].as_str().unwrap().contains("4900"), "scrollback comes with it");
    mux.ok(json!({"cmd": "run.stdin", "session_id": session, "text": "x\n"})).await;
    late.wait_event("run.exited").await;
    let output = mux_output(&late, &session);
    assert!(output.contains("after:x") && !output.contains("4999"), "only what is new follows: {output}");
}
