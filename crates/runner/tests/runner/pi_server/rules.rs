//! Rules of the runner that the pi-server face relies on: one shell command at a time, what is not a provider's fault,
//! questions nobody can answer, words that are our own.

use std::time::Duration;

use crate::support::real_pi;
use crate::support::runner_fixture::{RunnerFixture, bash, on};
use serde_json::{Value, json};

#[tokio::test]
async fn one_shell_command_runs_at_a_time_and_only_that_one_is_aborted() {
    let mut runner = RunnerFixture::with_session("pi").await;
    let from = runner.lines.len();
    let first = runner.send(bash("hang", "k1")).await;
    let second = runner.send(bash("hang", "k2")).await;
    let third = runner.send(bash("ls", "k3")).await;
    let fourth = runner.send(bash("ls", "k4")).await;
    // Everything else goes on beside it.
    runner.ok(json!({"cmd": "set_session_name", "session_id": "s", "name": "n"})).await;
    let answered =
        |runner: &RunnerFixture, id: &str| runner.lines[from..].iter().any(|line| line["id"] == id);
    assert!(!answered(&runner, &first) && !answered(&runner, &third));
    runner.ok(json!({"cmd": "abort_bash", "session_id": "s"})).await;
    let answer = runner.find(from, "the first", |line| line["id"] == first.as_str()).await;
    assert_eq!(answer["data"]["cancelled"], true, "{answer}");
    // One that waits is cancelled without ever running.
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k3"})).await;
    let answer = runner.find(from, "the third", |line| line["id"] == third.as_str()).await;
    assert_eq!(answer["timed_out"], true, "{answer}");
    assert!(
        !answered(&runner, &second) && !answered(&runner, &fourth),
        "the second runs, and was not aborted"
    );
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k2"})).await;
    let answer = runner.find(from, "the fourth", |line| line["id"] == fourth.as_str()).await;
    assert_eq!(answer["data"]["output"], "done", "{answer}");
}

#[tokio::test]
async fn only_what_is_a_providers_fault_speaks_against_it() {
    let mut runner = RunnerFixture::with_session("pi").await;
    for message in ["overflow", "cut"] {
        for _ in 0..5 {
            runner.turn(message).await;
        }
    }
    for _ in 0..5 {
        let from = runner.lines.len();
        runner.prompt("work").await;
        runner.ok(json!({"cmd": "session.new", "session_id": "s"})).await;
        runner.find(from, "the end", |line| line["event"] == "agent.idle" && line["reason"] == "error").await;
    }
    let breaker = runner.ok(json!({"cmd": "runner.health"})).await["breakers"][0].clone();
    assert_eq!((&breaker["state"], &breaker["total_failures"]), (&json!("closed"), &json!(0)), "{breaker}");
    for _ in 0..5 {
        let compact = json!({"cmd": "compact", "session_id": "s", "instructions": "fail"});
        assert_eq!(runner.call(compact).await["error"], "Summarization failed: overloaded");
    }
    let breaker = runner.ok(json!({"cmd": "runner.health"})).await["breakers"][0].clone();
    assert_eq!((&breaker["state"], &breaker["total_failures"]), (&json!("open"), &json!(5)), "{breaker}");
}

#[tokio::test]
async fn a_dialog_without_our_extension_is_cancelled_when_its_time_is_over() {
    let mut runner = RunnerFixture::session_with("pi", |config| {
        config.question_timeout = Some(Duration::from_millis(100))
    })
    .await;
    let from = runner.lines.len();
    runner.prompt("unwrapped").await;
    assert_eq!(runner.event(from, "agent.input_resolved").await["outcome"], "timed_out");
    let is_told =
        |line: &Value| line["event"] == "stream.message_end" && line["message"]["role"] == "assistant";
    let told = runner.find(from, "what the agent was told", is_told).await;
    let text = told["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(text.contains("\"cancelled\":true") && !text.contains("confirmed"), "{text}");
}

#[tokio::test]
async fn a_question_too_many_is_cancelled() {
    let mut runner = RunnerFixture::with_session("pi").await;
    let from = runner.lines.len();
    runner.prompt("flood").await;
    // The agent repeats what it was told.
    let is_told = |line: &Value| {
        let text = line["message"]["parts"][0]["text"].as_str().unwrap_or_default();
        line["event"] == "stream.message_end" && text.contains("\"f256\"") && text.contains("cancelled")
    };
    runner.find(from, "the word to the agent", is_told).await;
    assert_eq!(runner.state().await["pending_input"].as_array().map(Vec::len), Some(256));
}

#[tokio::test]
async fn an_abort_that_could_not_be_sent_cancels_no_later_question() {
    let mut runner = RunnerFixture::with_session("pi").await;
    let from = runner.lines.len();
    runner.prompt("hoard").await;
    runner.event(from, "agent.input_needed").await;
    for _ in 0..1024 {
        runner.send(json!({"cmd": "get_stats", "session_id": "s"})).await;
    }
    let refused = runner.call(json!({"cmd": "abort", "session_id": "s"})).await;
    assert_eq!(refused["code"], "busy", "{refused}");
    let is_second =
        |line: &Value| line["event"] == "agent.input_needed" && line["request"]["request_id"] == "q2";
    runner.find(from, "the next question", is_second).await;
    // Anything else the agent does comes after it.
    runner.ok(json!({"cmd": "get_stats", "session_id": "s"})).await;
    assert_eq!(runner.state().await["pending_input"][0]["request_id"], "q2");
}

#[tokio::test]
async fn a_command_that_is_never_answered_keeps_no_agent_busy() {
    let mut runner =
        RunnerFixture::session_with("pi", |config| config.agent_idle_stop = Some(Duration::from_millis(100)))
            .await;
    let from = runner.lines.len();
    let id = runner.send(bash("forget", "k1")).await;
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k1"})).await;
    let answer = runner.find(from, "the answer", |line| line["id"] == id.as_str()).await;
    assert_eq!(answer["timed_out"], true, "{answer}");
    runner.until_status("dormant").await;
}

#[tokio::test]
async fn the_bridges_own_command_is_not_for_clients() {
    let mut runner = RunnerFixture::with_session("pi").await;
    for cmd in ["prompt", "steer", "follow_up"] {
        let message = r#"/qd-navigate {"id":"n1","targetId":"x"}"#;
        let refused = runner.call(json!({"cmd": cmd, "session_id": "s", "message": message})).await;
        let error = "'/qd-navigate' is Quarterdeck's own; use the command navigate_tree";
        assert_eq!((&refused["code"], &refused["error"]), (&json!("unsupported"), &json!(error)), "{cmd}");
    }
    assert_eq!(runner.user_messages(), [""; 0]);
}

#[tokio::test]
async fn the_breaker_of_a_closed_session_is_forgotten() {
    let mut runner = RunnerFixture::with_session("pi").await;
    let from = runner.lines.len();
    let id = runner.send(bash("hang", "k1")).await;
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k1"})).await;
    runner.find(from, "the answer", |line| line["id"] == id.as_str()).await;
    assert_eq!(runner.ok(json!({"cmd": "runner.health"})).await["bash"]["sessions"], 1);
    runner.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    assert_eq!(runner.ok(json!({"cmd": "runner.health"})).await["bash"]["sessions"], 0);
}

/// Does with the real pi what a person's extension might.
const EXTENSION: &str = r#"
export default function (pi) {
  pi.registerCommand("back", {
    description: "moves in the session tree",
    handler: async (_args, ctx) => {
      await ctx.navigateTree(ctx.sessionManager.getEntries().find((entry) => entry.type === "message").id, {});
    },
  });
  pi.registerCommand("form", {
    description: "asks what is not quite a form",
    handler: async (_args, ctx) => {
      const questions = [{ id: "n", type: "select", question: 5, options: [1, 2], required: "yes", placeholder: null }];
      const answer = await globalThis.quarterdeck.interview({ title: "Form", questions, timeout: 60000.4 });
      ctx.ui.notify(`answer: ${JSON.stringify(answer)}`, "info");
    },
  });
  const dialogs = {
    select: (ui) => ui.select("Pick", ["a", "b"]),
    confirm: (ui) => ui.confirm("Sure?", "Really"),
    input: (ui) => ui.input("Name?"),
    editor: (ui) => ui.editor("Text"),
    interview: () => globalThis.quarterdeck.interview({ title: "Form", questions: [{ id: "n" }] }),
  };
  for (const [name, dialog] of Object.entries(dialogs)) {
    pi.registerCommand(`wait-${name}`, {
      description: "asks nobody",
      handler: async (_args, ctx) => {
        const end = await dialog(ctx.ui).catch((error) => error.message);
        ctx.ui.notify(`${name}: ${end}`, "info");
      },
    });
  }
  pi.registerCommand("odd", {
    description: "says what only the bridge may",
    handler: async (_args, ctx) => {
      ctx.ui.setStatus("qd_tomorrow", "secret");
      const answer = await ctx.ui.editor("Odd", "\u0001qd:interview:{\"questions\":7}");
      ctx.ui.notify(`odd: ${JSON.stringify(answer ?? null)}`, "info");
    },
  });
}
"#;

/// The pi of `tests/agents`, without any model, watched.
async fn extended_pi(question_timeout: Option<Duration>) -> RunnerFixture {
    let mut runner = RunnerFixture::start(|config| {
        config.harnesses.settings_mut("pi").unwrap().command = real_pi();
        config.question_timeout = question_timeout;
    })
    .await;
    let extension = runner.config.default_cwd.clone().unwrap().join("test.ts");
    std::fs::write(&extension, EXTENSION).unwrap();
    runner.say(json!({"type": "session.watch", "session_id": "s", "on": true})).await;
    let config = json!({"harness": "pi", "extensions": [extension]});
    runner.ok(json!({"cmd": "session.create", "session_id": "s", "config": config})).await;
    runner
}

fn changed(reason: &'static str) -> impl Fn(&Value) -> bool {
    move |line| line["native"] == json!({"type": "conversation_changed", "reason": reason})
}

#[tokio::test]
async fn an_extension_that_moves_in_the_tree_is_noticed() {
    let mut runner = extended_pi(None).await;
    let from = runner.lines.len();
    for number in 0..3 {
        runner.ok(bash(&format!("echo {number}"), &format!("k{number}"))).await;
    }
    runner.find(from, "that messages were added", changed("added")).await;
    assert_eq!(runner.state().await["message_count"], 3);
    let from = runner.lines.len();
    runner.prompt("/back").await;
    runner.find(from, "that the conversation is another", changed("replaced")).await;
    assert_eq!(runner.state().await["message_count"], 1);
    let from = runner.lines.len();
    runner.ok(json!({"cmd": "session.new", "session_id": "s"})).await;
    runner.find(from, "that it is another again", changed("replaced")).await;
}

#[tokio::test]
async fn a_form_is_made_readable_and_what_is_not_is_shown_to_nobody() {
    let mut runner = extended_pi(None).await;
    let from = runner.lines.len();
    runner.send(json!({"cmd": "prompt", "session_id": "s", "message": "/form"})).await;
    let request = runner.event(from, "agent.input_needed").await["request"].clone();
    let question =
        json!({"id": "n", "type": "select", "question": "5", "options": ["1", "2"], "required": true});
    assert_eq!((&request["questions"][0], &request["timeout"]), (&question, &json!(60000)), "{request}");
    let answer = json!({"cmd": "input_response", "session_id": "s", "request_id": request["request_id"],
        "responses": {"n": "2"}});
    runner.ok(answer).await;
    runner.find(from, "the answer", |line| line["message"] == r#"answer: {"n":"2"}"#).await;
    let from = runner.lines.len();
    runner.prompt("/odd").await;
    runner.find(from, "the end of it", |line| line["message"] == "odd: null").await;
    let seen = &runner.lines[from..];
    assert!(!seen.iter().any(|line| line["event"] == "agent.input_needed"), "{seen:#?}");
    assert!(!seen.iter().any(|line| line.to_string().contains("secret")), "{seen:#?}");
    assert!(runner.warnings(from).iter().any(|text| text.contains("interview 'Odd' cannot be read")));
}

#[tokio::test]
async fn a_dialog_of_the_real_pi_that_nobody_answers_is_an_error_also_in_a_new_conversation() {
    let mut runner = extended_pi(Some(Duration::from_millis(150))).await;
    for _ in 0..2 {
        for name in ["select", "confirm", "input", "editor", "interview"] {
            let from = runner.lines.len();
            runner.send(on("prompt", json!({"message": format!("/wait-{name}")}))).await;
            let asked = runner.event(from, "agent.input_needed").await;
            assert!(!asked["request"]["title"].as_str().unwrap().contains("qd:"), "{asked}");
            let end = format!("{name}: UI request timed out after 150ms");
            runner
                .find(from, &end, |line| line["event"] == "notify" && line["message"] == end.as_str())
                .await;
        }
        runner.ok(json!({"cmd": "session.new", "session_id": "s"})).await;
    }
}
