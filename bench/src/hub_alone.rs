//! The hub with a scripted runner at the other end of the memory link: what the hub costs alone.

use bytes::Bytes;
use qd_hub::{HubConfig, LocalRunner, LoginCodes, OwnerToken};
use qd_link::memory::{LinkEnd, pair};
use qd_store::{HubStore, RunnerBatch, RunnerSession, RunnerStore, StoreOptions};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::error::{Outcome, failed};
use crate::fake_pi::DELTA_TEXT;
use crate::process::announce;
use crate::script::Script;

/// The session the scripted runner has.
pub(crate) const SESSION: &str = "s1a2b3c4d5";
/// Lines the client may not have seen yet: less than the hub keeps for one that is slow.
const WINDOW_LINES: usize = 4000;
/// The client tells after this many that it has seen them.
pub(crate) const CREDIT_LINES: usize = 1000;
const BLOCK_LINES: usize = 225;
const TOOL_END: &str = concat!(
    r#""tool_call_id":"call_b4429d341731","name":"bash","output":{"content":[{"type":"text","text":"one\n"}]},"#,
    r#""is_error":false,"duration_ms":1}"#
);

/// A delta as a line (with `\n`), after the head that says who reads it.
pub(crate) fn delta_line(head: &str, offset: usize) -> Vec<u8> {
    let line = format!(
        "{head}\"session_id\":\"{SESSION}\",\"runner_id\":\"local\",\"ts\":1794725252160,\
         \"event\":\"stream.text_delta\",\"message_id\":\"a-kfzs2m8w\",\"delta\":\"{DELTA_TEXT}\",\
         \"content_index\":0,\"offset\":{offset}}}\n"
    );
    line.into_bytes()
}

/// `hub-alone DIRECTORY`
pub(crate) async fn run(arguments: &[String]) -> Outcome<()> {
    let Some(directory) = arguments.first().map(std::path::PathBuf::from) else {
        return failed("name a directory");
    };
    let hub_store = HubStore::open(&directory.join("hub.db"), StoreOptions::default())?;
    let store = RunnerStore::open(&directory.join("runner.db"), StoreOptions::default())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (hub_end, link) = pair();
    let config = HubConfig::new(OwnerToken::new("token"), LoginCodes::default());
    let stop = CancellationToken::new();
    let local = Some(LocalRunner { runner_id: "local".to_owned(), link: hub_end });
    let hub = tokio::spawn(qd_hub::serve(config, listener, hub_store, local, stop));
    let row = RunnerSession { session_id: SESSION.to_owned(), ..RunnerSession::default() };
    store.put_session(row).await?;
    let mut runner = ScriptedRunner { link, store, seq: 0, acked: 0, left: 0, unseen: 0, wanted: Vec::new() };
    runner.introduce().await?;
    announce(address)?;
    runner.serve().await?;
    hub.await??;
    Ok(())
}

struct ScriptedRunner {
    link: LinkEnd,
    store: RunnerStore,
    seq: u64,
    acked: u64,
    /// Deltas to send, and deltas the client has not yet said it has.
    left: usize,
    unseen: usize,
    /// Commands that want a number of records stored.
    wanted: Vec<(Value, usize)>,
}

impl ScriptedRunner {
    /// Says hello and waits until the hub knows the session.
    async fn introduce(&mut self) -> Outcome<()> {
        let hello = json!({"type": "runner.hello", "runner_id": "local", "hostname": "h", "harnesses": ["pi"],
            "max_sessions": 4, "version": "1", "os": "linux"});
        self.say(format!("{hello}\n")).await?;
        self.seq = 1;
        let created = event_line("session.created", 1, r#""resumed":false,"harness":"pi","cwd":"/w"}"#);
        self.say(String::from_utf8(created)?).await?;
        while self.acked < self.seq {
            let Some(block) = self.link.receiver.recv().await else { return failed("the hub is gone") };
            self.take(&block).await?;
        }
        Ok(())
    }

    async fn serve(&mut self) -> Outcome<()> {
        let block = Bytes::from(delta_line("{\"type\":\"event\",", 0).repeat(BLOCK_LINES));
        loop {
            while let Some(block) = self.link.receiver.try_recv() {
                self.take(&block).await?;
            }
            if let Some((command, count)) = self.wanted.pop() {
                self.records(&command, count).await?;
            } else if self.left > 0 && self.unseen < WINDOW_LINES {
                self.link.sender.send(block.clone()).await?;
                self.unseen += BLOCK_LINES;
                self.left = self.left.saturating_sub(BLOCK_LINES);
            } else {
                let Some(block) = self.link.receiver.recv().await else { return Ok(()) };
                self.take(&block).await?;
            }
        }
    }

    async fn take(&mut self, block: &[u8]) -> Outcome<()> {
        for line in block.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: Value = serde_json::from_slice(line)?;
            match line["type"].as_str() {
                Some("ack") => {
                    self.acked = line["seq"].as_u64().unwrap_or_default();
                    self.store.ack(SESSION, self.acked);
                }
                Some("command") => self.command(line).await?,
                _ => {}
            }
        }
        Ok(())
    }

    async fn command(&mut self, command: Value) -> Outcome<()> {
        if command["cmd"] == "session.attach" {
            let data =
                json!({"resume": "ok", "seq": self.seq, "state": {"status": "idle"}, "pending_input": []});
            return self.answer(&command, &data).await;
        }
        let message = command["message"].as_str().unwrap_or_default().to_owned();
        let Some(script) = Script::parse(&message) else { return self.answer(&command, &Value::Null).await };
        let count = script.number("n", 0);
        match script.name {
            "deltas" => {
                self.left = count;
                self.unseen = 0;
            }
            "credit" => self.unseen = self.unseen.saturating_sub(count),
            "records" => {
                self.wanted.push((command, count));
                return Ok(());
            }
            _ => {}
        }
        self.answer(&command, &Value::Null).await
    }

    /// Stores, sends, and waits for the ack of every record, as a session does: a batch is on disk before it goes.
    async fn records(&mut self, command: &Value, count: usize) -> Outcome<()> {
        let start = clock::now();
        let last = self.seq + count as u64;
        while self.seq < last {
            let size = (BLOCK_LINES as u64).min(last - self.seq);
            let mut block = Vec::new();
            let mut spans = Vec::new();
            for seq in self.seq + 1..=self.seq + size {
                let line = event_line("tool.end", seq, TOOL_END);
                spans.push((seq, block.len()..block.len() + line.len()));
                block.extend_from_slice(&line);
            }
            self.seq += size;
            let block = Bytes::from(block);
            let spool = spans.into_iter().map(|(seq, range)| (seq, block.slice(range))).collect();
            let batch = RunnerBatch { session_id: SESSION.to_owned(), spool, ..RunnerBatch::default() };
            self.store.commit(batch).await?;
            self.link.sender.send(block).await?;
            while let Some(block) = self.link.receiver.try_recv() {
                self.take(&block).await?;
            }
        }
        while self.acked < last {
            let Some(block) = self.link.receiver.recv().await else { return failed("the hub is gone") };
            self.take(&block).await?;
        }
        let data = json!({"seconds": start.elapsed().as_secs_f64()});
        self.answer(command, &data).await
    }

    async fn answer(&self, command: &Value, data: &Value) -> Outcome<()> {
        let line = format!(
            "{{\"type\":\"response\",\"id\":{},\"session_id\":\"{SESSION}\",\"runner_id\":\"local\",\"ts\":1,\
             \"cmd\":{},\"success\":true,\"data\":{data}}}\n",
            command["id"], command["cmd"]
        );
        self.say(line).await
    }

    async fn say(&self, line: String) -> Outcome<()> {
        Ok(self.link.sender.send(Bytes::from(line)).await?)
    }
}

fn event_line(event: &str, seq: u64, rest: &str) -> Vec<u8> {
    let line = format!(
        "{{\"type\":\"event\",\"session_id\":\"{SESSION}\",\"runner_id\":\"local\",\"ts\":1794725252160,\
         \"seq\":{seq},\"event\":\"{event}\",{rest}\n"
    );
    line.into_bytes()
}
