//! The hub is down for a while during a run that never stops: does every line arrive, once and in order, and how soon
//! does live delivery resume?

use std::sync::Arc;
use std::time::Duration;

use qd_link::client::MuxClient;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fleet::{Fleet, REMOTE, messages};

const SESSION: &str = "steady";
/// Live delivery must be back this soon after the hub.
const RESUME_MAX: Duration = Duration::from_secs(2);
const CATCH_UP_MAX: Duration = Duration::from_secs(60);

/// What one outage did; true if every promise was kept.
pub(crate) async fn run(fleet: &Arc<Fleet>, down: Duration) -> bool {
    fleet.create(SESSION, "demo", REMOTE).await;
    let stop = CancellationToken::new();
    let speaker = tokio::spawn(speak(Arc::clone(fleet), stop.clone()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    fleet.kill_hub().await;
    tokio::time::sleep(down).await;
    fleet.start_hub().await;
    let back = Instant::now();
    let resumed = first_live(fleet, back).await;
    stop.cancel();
    let said = speaker.await.expect("the speaker does not break");
    let heard = hear_all(fleet, said).await;
    let in_order = heard.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    let is_whole = in_order && heard.first() == Some(&1) && heard.last() == Some(&said);
    let is_soon = resumed.is_some_and(|resumed| resumed <= RESUME_MAX);
    println!(
        "hub down for {} s: {said} lines said, {} heard, {}; live again {} after its return",
        down.as_secs(),
        heard.len(),
        if is_whole { "each once and in order" } else { "NOT each once and in order" },
        resumed.map_or("never".to_owned(), |resumed| format!("{:.2} s", resumed.as_secs_f64())),
    );
    is_whole && is_soon
}

/// Makes the agent say numbered lines, through the runner's own socket, until told to stop; gives the last number.
async fn speak(fleet: Arc<Fleet>, stop: CancellationToken) -> u64 {
    let url = format!("unix:{}", fleet.runner_world.path("run/qd-runner.sock").display());
    let (client, mut frames) = MuxClient::connect(&url, "").await.expect("the runner's socket");
    let attach = json!({"cmd": "session.attach", "session_id": SESSION});
    assert!(client.call_value(attach).await.expect("an answer").success);
    let mut number = 0;
    while !stop.is_cancelled() {
        number += 1;
        let prompt =
            json!({"cmd": "prompt", "session_id": SESSION, "message": format!("/text line {number}")});
        let answer = client.call_value(prompt).await.expect("the runner answers without its hub");
        assert!(answer.success, "{answer:?}");
        loop {
            let frame = frames.next().await.expect("the runner's socket stays open");
            let frame: Value = serde_json::from_str(frame.text()).expect("every frame is JSON");
            if frame["event"] == "agent.idle" && frame["reason"].is_string() {
                break;
            }
        }
    }
    number
}

/// How long after `back` a client that follows the session gets the first live event of it.
async fn first_live(fleet: &Fleet, back: Instant) -> Option<Duration> {
    let deadline = back + CATCH_UP_MAX;
    let (client, mut frames) = fleet.connect().await?;
    let attach = json!({"cmd": "session.attach", "session_id": SESSION});
    client.call_value(attach).await.ok()?;
    while let Ok(Some(frame)) = tokio::time::timeout_at(deadline, frames.next()).await {
        let frame: Value = serde_json::from_str(frame.text()).expect("every frame is JSON");
        // Records of the past come first; a delta is of now.
        if frame["event"] == "stream.text_delta" {
            return Some(back.elapsed());
        }
    }
    None
}

/// The numbers of all lines the hub has, in the order of its conversation, once it has the last of them.
async fn hear_all(fleet: &Fleet, said: u64) -> Vec<u64> {
    let deadline = Instant::now() + CATCH_UP_MAX;
    loop {
        let heard = hear(fleet).await.unwrap_or_default();
        if heard.last() == Some(&said) || Instant::now() > deadline {
            return heard;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn hear(fleet: &Fleet) -> Option<Vec<u64>> {
    let (client, _frames) = fleet.connect().await?;
    let numbers = messages(&client, SESSION).await?.into_iter().filter_map(|message| {
        let text = message["parts"][0]["text"].as_str().filter(|_| message["role"] == "user")?;
        text.strip_prefix("/text line ")?.parse::<u64>().ok()
    });
    Some(numbers.collect())
}
