//! People at work: one per session, who send prompts, repeat what was not answered, and note what they were told.

use std::sync::Arc;
use std::time::Duration;

use qd_link::client::{CallError, MuxClient};
use qd_wire::ErrorCode;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fleet::{Fleet, REMOTE, messages};
use crate::verdict::{Report, SessionReport};
use crate::watcher::{WatchedSession, Watcher};
use qd_testkit::seeded_random::SeededRandom;

/// An answer that has not come by then will not come on this connection.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// How long everything may take to settle when nobody kills any more.
const SETTLE_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);
/// A prompt is sent this often until somebody says how it went; every so often that is worth a line.
const TRIES_MAX: u32 = 600;
const TRIES_PER_NOTE: u32 = 75;

/// One dot, as a PNG.
pub(crate) const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// What a person was told about one prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PromptOutcome {
    Done,
    /// Refused before it ran, for good.
    Refused(String),
    /// Nobody can know.
    Indeterminate,
    /// The end came first.
    Nothing,
}

/// One prompt with the key that names it.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) key: String,
    pub(crate) has_image: bool,
    pub(crate) outcome: PromptOutcome,
}

/// What a person answered to a question, where the answer was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) request_id: String,
    pub(crate) value: &'static str,
}

/// All that one person did.
#[derive(Default)]
struct PersonLog {
    submissions: Vec<Submission>,
    answers: Vec<Answer>,
}

pub(crate) struct Load {
    stop: CancellationToken,
    people: Vec<(String, JoinHandle<PersonLog>)>,
    watchers: Vec<(String, Watcher)>,
}

impl Load {
    /// Creates the sessions and begins.
    pub(crate) async fn start(fleet: &Arc<Fleet>, seed: u64) -> Load {
        let sessions =
            [("p1", "pi", REMOTE), ("p2", "pi", REMOTE), ("d1", "demo", REMOTE), ("d2", "demo", REMOTE)];
        let sessions = sessions.into_iter().chain([("p3", "pi", "local"), ("d3", "demo", "local")]);
        let stop = CancellationToken::new();
        let mut load = Load { stop: stop.clone(), people: Vec::new(), watchers: Vec::new() };
        for (session, harness, runner) in sessions {
            fleet.create(session, harness, runner).await;
            for _ in 0..2 {
                load.watchers.push((session.to_owned(), Watcher::start(fleet, session, &stop)));
            }
            let random = SeededRandom::new(seed, session);
            let person = Person {
                fleet: Arc::clone(fleet),
                session,
                harness,
                random,
                client: None,
                stop: stop.clone(),
                log: PersonLog::default(),
            };
            load.people.push((session.to_owned(), tokio::spawn(person.work())));
        }
        load
    }

    /// Lets everybody finish, waits until all is quiet, and reads what there is.
    pub(crate) async fn finish(self, fleet: &Arc<Fleet>) -> Report {
        self.stop.cancel();
        let mut report = Report::default();
        for (session, person) in self.people {
            let PersonLog { submissions, answers } = person.await.expect("a person does not break");
            report.sessions.push(SessionReport { session, submissions, answers, ..SessionReport::default() });
        }
        for line in &mut report.sessions {
            read_all(fleet, line).await;
        }
        for (session, watcher) in self.watchers {
            let line = report.sessions.iter_mut().find(|line| line.session == session).unwrap();
            let watched: WatchedSession = watcher.finish(line.records.len() as u64).await;
            line.watched.push(watched);
        }
        report
    }
}

struct Person {
    fleet: Arc<Fleet>,
    session: &'static str,
    harness: &'static str,
    random: SeededRandom,
    client: Option<MuxClient>,
    stop: CancellationToken,
    log: PersonLog,
}

impl Person {
    async fn work(mut self) -> PersonLog {
        let mut number = 0;
        while !self.stop.is_cancelled() {
            number += 1;
            self.submit(number, "prompt").await;
            // While the agent works it may be steered; what it has not read when somebody dies is not lost either.
            if let Some(cmd) = ["steer", "follow_up"].get(self.random.below(8) as usize) {
                number += 1;
                self.submit(number, cmd).await;
            }
            let pause = self.random.millis(0, 400);
            tokio::time::sleep(pause).await;
            self.wait_until_idle().await;
        }
        self.log
    }

    fn message(&mut self, key: &str) -> String {
        match (self.harness, self.random.below(5)) {
            ("pi", 0) => format!("@@tool name=bash command=\"sleep 0.2; echo {key}\"\n{key}"),
            ("pi", 1) => format!("@@text repeat=40\n{key}"),
            ("pi", _) => format!("@@text\n{key}"),
            (_, 0) => format!("/tools {key}"),
            (_, 1) => format!("/long 300 {key}"),
            (_, 2) => format!("/question {key}"),
            (_, _) => format!("/thinking {key}"),
        }
    }

    /// Sends an input and notes what was told of it.
    async fn submit(&mut self, number: u32, cmd: &str) {
        let key = format!("{}-{number}", self.session);
        let message = self.message(&key);
        let mut input = json!({"cmd": cmd, "session_id": self.session, "message": message,
            "client_id": key, "idempotency_key": key});
        if cmd == "prompt" {
            input["streaming_behavior"] = "follow_up".into();
        }
        let has_image = self.random.below(5) == 0;
        if has_image {
            input["images"] = json!([{"data": PIXEL, "media_type": "image/png"}]);
        }
        let outcome = self.send_until_answered(&key, &input).await;
        self.log.submissions.push(Submission { key, has_image, outcome });
    }

    /// Sends an input until somebody says how it went. The key makes repeating safe.
    async fn send_until_answered(&mut self, key: &str, input: &Value) -> PromptOutcome {
        let mut last_refusal = None;
        for attempt in 1..=TRIES_MAX {
            let answer = match self.call(input.clone()).await {
                Some(answer) => answer,
                None => {
                    tokio::time::sleep(POLL).await;
                    continue;
                }
            };
            if answer["success"] == true {
                return PromptOutcome::Done;
            }
            // What the runner kept under the key is its last word; anything else may be a link that broke.
            let is_final = answer["replayed"] == true;
            if answer["indeterminate"] == true {
                if is_final {
                    return PromptOutcome::Indeterminate;
                }
            } else {
                let error = answer["error"].as_str().unwrap_or_default().to_owned();
                let code = answer["code"].as_str().and_then(ErrorCode::parse).unwrap_or(ErrorCode::Failed);
                if is_final || !code.may_retry() {
                    return PromptOutcome::Refused(error);
                }
                last_refusal = Some(error);
            }
            if attempt % TRIES_PER_NOTE == 0 {
                println!("chaos: {key} has been sent {attempt} times: {}", answer["error"]);
            }
            tokio::time::sleep(POLL).await;
        }
        last_refusal.map_or(PromptOutcome::Nothing, PromptOutcome::Refused)
    }

    /// The answer, if one came.
    async fn call(&mut self, command: Value) -> Option<Value> {
        if self.client.is_none() {
            let (client, mut frames) = self.fleet.connect().await?;
            // A person who is not attached gets only news of the system, which nobody here needs.
            tokio::spawn(async move { while frames.next().await.is_some() {} });
            self.client = Some(client);
        }
        let client = self.client.clone()?;
        match tokio::time::timeout(ANSWER_MAX, client.call_value(command)).await {
            Ok(Ok(response)) => serde_json::to_value(response).ok(),
            Ok(Err(CallError::Closed(_))) | Err(_) => {
                self.client = None;
                None
            }
            Ok(Err(error)) => panic!("{error}"),
        }
    }

    /// Answers the demo agent's question. An answer whose response is lost is sent no second time: the question may be
    /// over, and then nobody was told that the answer counts.
    async fn answer(&mut self, request_id: &str) {
        let value = ["red", "green", "blue"][self.random.below(3) as usize];
        let answer = json!({"cmd": "input_response", "session_id": self.session, "request_id": request_id,
            "value": value});
        if self.call(answer).await.is_some_and(|response| response["success"] == true) {
            self.log.answers.push(Answer { request_id: request_id.to_owned(), value });
        }
    }

    async fn wait_until_idle(&mut self) {
        for _ in 0..150 {
            if let Some(state) = self.call(json!({"cmd": "get_state", "session_id": self.session})).await
                && state["success"] == true
            {
                let state = &state["data"];
                if !["working", "starting"].contains(&state["status"].as_str().unwrap_or_default()) {
                    return;
                }
                if let Some(request_id) = state["pending_input"][0]["request_id"].as_str() {
                    self.answer(request_id).await;
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Waits until a session rests, then reads all its records and messages from the hub.
async fn read_all(fleet: &Fleet, line: &mut SessionReport) {
    let settled = tokio::time::timeout(SETTLE_MAX, async {
        loop {
            if let Some(read) = try_read(fleet, &line.session).await {
                return read;
            }
            tokio::time::sleep(POLL).await;
        }
    });
    match settled.await {
        Ok((records, messages)) => {
            line.records = records;
            line.messages = messages;
        }
        Err(_) => line.problems.push(format!("did not settle within {SETTLE_MAX:?}")),
    }
}

async fn try_read(fleet: &Fleet, session: &str) -> Option<(Vec<Value>, Vec<Value>)> {
    let (client, mut frames) = fleet.connect().await?;
    let state = client.call_value(json!({"cmd": "get_state", "session_id": session})).await.ok()?;
    let state = serde_json::to_value(state).ok()?;
    let rests = ["idle", "dormant", "failed"].contains(&state["data"]["status"].as_str()?);
    let runners = client.call_value(json!({"cmd": "get_runners"})).await.ok()?;
    let runners = serde_json::to_value(runners).ok()?;
    let is_whole = runners["data"]["runners"].as_array()?.iter().all(|runner| runner["status"] == "online");
    if !rests || !is_whole {
        return None;
    }
    let attach = json!({"cmd": "session.attach", "session_id": session, "after": 0});
    let answer = serde_json::to_value(client.call_value(attach).await.ok()?).ok()?;
    let until = answer["data"]["seq"].as_u64()?;
    let mut records = Vec::new();
    while (records.len() as u64) < until {
        let frame = tokio::time::timeout(ANSWER_MAX, frames.next()).await.ok()??;
        let frame: Value = serde_json::from_str(frame.text()).ok()?;
        if frame["session_id"] == session && frame["event"] != "session.resync" && frame["seq"].is_u64() {
            records.push(frame);
        }
    }
    Some((records, messages(&client, session).await?))
}
