//! More runners than the local one, driven line by line.

use std::sync::Arc;

use qd_link::runner::{HubConnector, RunnerDialer};
use qd_link::url::ServerUrl;
use qd_store::RunnerRow;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Client, Runner, World, soon};

const KEY: &str = "key-of-the-tests";

pub(crate) fn hello(
    runner_id: &str,
    harnesses: &[&str],
    max_sessions: u64,
    sessions: &[(&str, u64)],
) -> String {
    let sessions: Vec<Value> =
        sessions.iter().map(|(id, seq)| json!({"session_id":id,"last_seq":seq})).collect();
    json!({"type":"runner.hello","runner_id":runner_id,"hostname":"h","harnesses":harnesses,
        "max_sessions":max_sessions,"version":"1","os":"linux","sessions":sessions})
    .to_string()
}

impl World {
    /// A connection of a runner that has joined.
    pub(crate) async fn dialed(&self, runner_id: &str) -> Runner {
        if self.store.runner(runner_id).await.unwrap().is_none() {
            let row = RunnerRow {
                runner_id: runner_id.to_owned(),
                key_hash: Sha256::digest(KEY.as_bytes()).to_vec(),
                harnesses_json: "[]".to_owned(),
                joined_at: 7,
                ..RunnerRow::default()
            };
            self.store.put_runner(row).await.unwrap();
        }
        let url = ServerUrl::parse(&format!("http://{}", self.address)).unwrap();
        let dialer = RunnerDialer::new(url, runner_id, Arc::new(|| vec![KEY.to_owned()]));
        Runner::over(soon("a link", dialer.connect()).await.unwrap())
    }

    /// The same after its hello, and what it was welcomed with.
    pub(crate) async fn come(&self, runner_id: &str, sessions: &[(&str, u64)]) -> (Runner, Value) {
        self.come_with(runner_id, &["demo"], 4, sessions).await
    }

    pub(crate) async fn come_with(
        &self,
        runner_id: &str,
        harnesses: &[&str],
        max_sessions: u64,
        sessions: &[(&str, u64)],
    ) -> (Runner, Value) {
        let mut runner = self.dialed(runner_id).await;
        runner.say(&hello(runner_id, harnesses, max_sessions, sessions)).await;
        let welcome = runner.line_of("runner.welcome").await;
        (runner, welcome)
    }

    /// Waits until a runner stands like this.
    pub(crate) async fn is_shown(&self, runner_id: &str, status: &str) -> Value {
        soon(&format!("{runner_id} to be {status}"), async {
            loop {
                let runners = self.api("GET", "/api/runners").await.1;
                let runners = runners["runners"].as_array().unwrap().clone();
                let found = runners.into_iter().find(|runner| runner["runner_id"] == runner_id);
                match found {
                    Some(runner) if runner["status"] == status => return runner,
                    _ => tokio::task::yield_now().await,
                }
            }
        })
        .await
    }
}

impl Runner {
    /// The hub ends the link; gives the lines before that.
    pub(crate) async fn ended(&mut self) -> Vec<Value> {
        let mut lines = Vec::new();
        while let Some(block) = soon("the end of the link", self.link.receiver.recv()).await {
            let text = std::str::from_utf8(&block).unwrap().to_owned();
            lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
        lines
    }

    pub(crate) async fn heartbeat(&self, runner_id: &str, agents: u64, load_1m: f64) {
        self.say(
            &json!({"type":"runner.heartbeat","runner_id":runner_id,"uptime_s":1,"sessions":[],
                "load":{"agents":agents,"cpu_count":2,"load_1m":load_1m,"spool_bytes":5}})
            .to_string(),
        )
        .await;
    }
}

impl Client {
    /// The next `runner.changed` of this runner.
    pub(crate) async fn runner_changed(&mut self, runner_id: &str) -> Value {
        loop {
            let told: Value = serde_json::from_str(&self.next_text().await).unwrap();
            if told["type"] == "runner.changed" && told["runner_id"] == runner_id {
                return told;
            }
        }
    }
}
