//! The hub killed while programs write on another machine: nothing lost, nothing doubled, live again soon.
#![allow(clippy::disallowed_methods, reason = "a promise about time is tested")]

use std::time::{Duration, Instant};

use qd_testkit::process::eventually;
use qd_testkit::run_app::RunApp;
use serde_json::{Value, json};

use crate::sandbox;

/// The promise: how soon a client sees new output after the hub is back.
const LIVE_AGAIN: Duration = Duration::from_secs(2);

#[tokio::test]
async fn nothing_is_lost_or_doubled_while_the_hub_is_dead() {
    let qd = sandbox().up().await;
    let machine = qd.machine(sandbox(), "far").await;
    let mut mux = qd.connect().await;
    mux.wait_online("far").await;
    let mut app = qd.run_app().await;
    let cmd = "for i in $(seq 1 400); do echo line-$i; echo $i > written; sleep 0.02; done";
    let run = app.start("far", cmd, machine.sandbox().work().to_str().unwrap()).await;
    app.wait_output(&run, "line-20\r").await;
    let seen = app.output(&run);
    let last = app.seqs(&run).last().unwrap().1;
    let sandbox = qd.kill9_at_address().await;
    let written = machine.sandbox().work().join("written");
    eventually("the program goes on without a hub", || {
        std::fs::read_to_string(&written)
            .is_ok_and(|text| text.trim().parse().is_ok_and(|line: u32| line >= 170))
    })
    .await;
    let qd = sandbox.up().await;
    let back = Instant::now();
    let mut again = RunApp::connect(qd.url(), qd.token()).await;
    again.send("run.subscribe", &run, json!({"since_seq": last})).await;
    again.event(&run, "run.output").await;
    let took = back.elapsed();
    assert!(took < LIVE_AGAIN, "live again after {took:?}");
    let is_end = |frame: &Value| frame["type"] == "run.exited" && frame["run_id"] == run;
    again.since(0, "the end", is_end).await;
    let expected: String = (1..=400).map(|number| format!("line-{number}\r\n")).collect();
    assert_eq!(format!("{seen}{}", again.output(&run)), expected);
}
