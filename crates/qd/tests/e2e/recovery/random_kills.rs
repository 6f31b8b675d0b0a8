//! What a person typed and was told to be accepted is in the history exactly once, whoever is killed and when: a message
//! in the conversation, an answer to a question in the record that settles the question.
//!
//! Each round sends one input, waits for `success: true`, and kills `qd` with SIGKILL a random moment later, alone or with
//! its agent. A few rounds run in CI. `QD_KILLS=200 cargo test -p qd --test e2e random_kills -- --nocapture` runs as
//! many as are wanted, with a busy loop on each core beside them (nextest would end the test after four minutes).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qd_testkit::mux::{Mux, short, text_of};
use qd_testkit::pi::test_extension;
use qd_testkit::qd::Qd;
use qd_testkit::seeded_random::SeededRandom;
use serde_json::{Value, json};

use crate::{PIXEL, answer, on, pi_in, pi_session, prompt, say, until, up, with};

/// Kills in one run of CI: a few of each kind of input.
const KILLS: usize = 14;

/// The longest wait between an answer and the kill.
const DELAY_MS_MAX: u64 = 250;

fn kills() -> usize {
    std::env::var("QD_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(KILLS)
}

/// Keeps every core busy until it is dropped.
struct BusyCores(Arc<AtomicBool>);

impl BusyCores {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {});
        }
        BusyCores(is_over)
    }
}

impl Drop for BusyCores {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn seed() -> u64 {
    let given = std::env::var("QD_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| u64::from(std::process::id()) * 7919 + 1)
}

/// How an input reaches the agent.
#[derive(Debug, Clone, Copy)]
enum InputWay {
    Prompt,
    PromptWithImage,
    /// While the agent works: it waits in the agent's queue, and is taken from it when the turn goes on.
    Steer,
    FollowUp,
    PiServer,
    RunInput,
    /// To a question of an extension.
    Answer,
}

const WAYS: [InputWay; 7] = [
    InputWay::Prompt,
    InputWay::Answer,
    InputWay::Steer,
    InputWay::PromptWithImage,
    InputWay::PiServer,
    InputWay::FollowUp,
    InputWay::RunInput,
];

/// Sends one input by its way, and returns when it is acknowledged.
async fn send(qd: &Qd, mux: &mut Mux, session: &str, way: InputWay, text: &str) {
    match way {
        InputWay::Prompt => drop(mux.ok(prompt(session, text)).await),
        InputWay::PromptWithImage => {
            let images = json!({"images": [{"data": PIXEL, "media_type": "image/png"}]});
            mux.ok(with(prompt(session, text), images)).await;
        }
        InputWay::Steer | InputWay::FollowUp => {
            mux.ok(prompt(session, "@@text text=\"one two three four\" delay_ms=30")).await;
            let cmd = if matches!(way, InputWay::Steer) { "steer" } else { "follow_up" };
            mux.ok(say(cmd, session, text)).await;
        }
        InputWay::PiServer => {
            let mut client = qd.pi_client().await;
            client.ok(json!({"type": "prompt", "sessionId": session, "message": text})).await;
        }
        InputWay::RunInput => {
            let input = json!({"cmd": "run.input", "session_id": session, "input_id": text, "text": text});
            mux.ok(input).await;
        }
        InputWay::Answer => {
            mux.ok(on(session, "session.attach")).await;
            let from = mux.frames().len();
            // The prompt is done when its dialog is; it may be cut off, and nobody was told that it was accepted.
            mux.send(prompt(session, "/dlg-input")).await;
            let is_question = |frame: &Value| frame["event"] == "agent.input_needed";
            let asked = mux.wait_since(from, "the question", is_question).await;
            let value = json!({"value": text});
            mux.ok(answer(session, &asked["request"]["request_id"], value)).await;
        }
    }
}

/// What people said to the session, and what of it waits.
struct SessionHistory {
    messages: Vec<Value>,
    queue: Vec<Value>,
    /// The records of settled questions.
    settled: Vec<Value>,
}

impl SessionHistory {
    async fn to(qd: &Qd, mux: &mut Mux, session: &str) -> SessionHistory {
        let messages = mux.messages(session).await;
        let messages = messages.into_iter().filter(|message| message["role"] == "user").collect();
        let state = mux.state(session).await;
        let lane = |name: &str| state["queue"][name].as_array().cloned().unwrap_or_default();
        let settled = settled_questions(qd, session).await;
        SessionHistory { messages, queue: [lane("steering"), lane("follow_up")].concat(), settled }
    }

    /// The messages that say this, and the settled questions that were answered with it.
    fn shown(&self, text: &str) -> Vec<&Value> {
        let messages = self.messages.iter().filter(|message| text_of(message) == text);
        messages.chain(self.settled.iter().filter(|record| record["answer"] == *text)).collect()
    }

    fn waiting(&self, text: &str) -> usize {
        self.queue.iter().filter(|queued| **queued == *text).count()
    }
}

/// The records of the questions that are over, read from the beginning of the session.
async fn settled_questions(qd: &Qd, session: &str) -> Vec<Value> {
    let mut reader = qd.connect().await;
    let attach = reader.ok(json!({"cmd": "session.attach", "session_id": session, "after": 0})).await;
    let last = attach["state"]["seq"].clone();
    reader
        .wait_since(0, "the last record", |frame| frame["seq"] == last && frame["event"] != "response")
        .await;
    let is_end = |frame: &&Value| frame["event"] == "agent.input_resolved";
    reader.frames().iter().filter(is_end).cloned().collect()
}

/// Waits until the agent is up again and has read what waited: it may be on its way to it for a moment.
async fn settle(qd: &Qd, mux: &mut Mux, session: &str, text: &str) -> SessionHistory {
    until(text, async || {
        let said = SessionHistory::to(qd, mux, session).await;
        // Asked after the message is there, so that idle means that its turn is over.
        let state = mux.state(session).await;
        let is_settled = state["status"] == "idle" && said.queue.is_empty() && !said.shown(text).is_empty();
        if is_settled { Ok(said) } else { Err(short(&state)) }
    })
    .await
}

async fn new_session(qd: &Qd, mux: &mut Mux) -> String {
    pi_session(
        qd,
        mux,
        json!({"extensions": [test_extension("dialogs.ts"), test_extension("slow_start.ts")]}),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_input_is_in_the_history_once_after_a_kill_at_any_moment() {
    let _busy = std::env::var_os("QD_KILLS").map(|_| BusyCores::start());
    let (mut qd, mut mux, _llm) = pi_in(|sandbox| sandbox.set("QD_RESUME", "at-start")).await;
    let (seed, mut marked) = (seed(), 0);
    let mut random = SeededRandom::new(seed, "kills");
    let old_session = new_session(&qd, &mut mux).await;
    // From the first answer on pi writes its file at once.
    mux.prompt(&old_session, "@@text text=ready").await;
    let mut sent: Vec<(InputWay, String)> = Vec::new();
    for round in 0..kills() {
        let way = WAYS[round % WAYS.len()];
        let text = format!("@@text text=\"answer {round}\"");
        // Of a new session pi has no file until it has answered, so nobody but us has what was said.
        let is_new = random.below(2) == 0;
        let session = if is_new { new_session(&qd, &mut mux).await } else { old_session.clone() };
        send(&qd, &mut mux, &session, way, &text).await;
        // Most of what can go wrong goes wrong at once.
        let longest = [3, 30, DELAY_MS_MAX][random.below(3) as usize];
        tokio::time::sleep(Duration::from_millis(random.below(longest))).await;
        let is_alone = random.below(2) == 0;
        let sandbox = if is_alone { qd.kill9().await } else { qd.kill9_with_agents().await };
        (qd, mux) = up(sandbox).await;
        // Until the runner is back the hub answers with its copy, which may not have the last moment.
        until(&session, async || {
            let state = mux.state(&session).await;
            if state["status"] == "offline" { Err(short(&state)) } else { Ok(()) }
        })
        .await;
        let said = SessionHistory::to(&qd, &mut mux, &session).await;
        let (shown, waiting) = (said.shown(&text).len(), said.waiting(&text));
        let round_name = format!(
            "seed {seed}, round {round}, {way:?}, new session: {is_new}, qd killed alone: {is_alone}"
        );
        assert_eq!(shown + waiting, 1, "at once: {round_name}: {shown} shown, {waiting} waiting");
        let said = settle(&qd, &mut mux, &session, &text).await;
        marked += usize::from(said.shown(&text)[0]["interrupted"] == true);
        let in_session = if is_new { &mut Vec::new() } else { &mut sent };
        in_session.push((way, text));
        for (way, text) in in_session {
            let shown = said.shown(text);
            assert_eq!((shown.len(), said.waiting(text)), (1, 0), "{round_name}: {way:?} {text}");
            if matches!(way, InputWay::PromptWithImage) {
                assert!(shown[0]["parts"].to_string().contains(PIXEL), "its image: {}", short(shown[0]));
            }
        }
        if is_new {
            mux.ok(on(&session, "session.close")).await;
        }
    }
    println!("{} kills, seed {seed}, {marked} inputs marked as interrupted", kills());
    // So many kills that some must have met a message between its acknowledgement and the agent's own file.
    assert!(marked > 0 || kills() < 100, "no kill came early enough to prove anything");
}
