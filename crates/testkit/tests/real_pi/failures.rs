//! What goes wrong at the model: errors, broken connections, overflow; and look-alikes of pi that are wrong themselves.

use qd_testkit::llm::Ending;
use qd_testkit::pi::fake_pi;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::{Agent, answers, of_type, types};

/// An event is in the list, and before another.
fn assert_order(events: &[Value], order: &[&str], hint: &str) {
    let mut found = types(events).into_iter();
    for kind in order {
        assert!(found.any(|other| other == *kind), "{hint}: no {kind} in its place in {:?}", types(events));
    }
}

#[tokio::test]
async fn failing_requests_are_retried() {
    let cases = [
        ("fake/fake-1", "@@error status=429 times=1 retry_after=0", 1),
        ("fake/fake-1", "@@error status=500 times=1", 1),
        ("fake/fake-1", "@@error status=529 times=2\n@@text text=\"Better now.\"", 2),
        ("fake/fake-1", "@@drop after=2", 1),
        ("fake/fake-1", "@@bash command=true\n@@error status=529 round=1", 1),
        ("fakeanth/fake-anth", "@@error status=529 times=1", 1),
        ("fakeanth/fake-anth", "@@drop after=2", 1),
    ];
    for (model, prompt, retries) in cases {
        let (llm, mut pi) = Agent::with_model(&["--model", model]).await;
        let hint = format!("{model} {prompt}");
        let events = pi.prompt(prompt).await;
        assert_eq!(of_type(&events, "auto_retry_start").len(), retries, "{hint}");
        assert_order(&events, &["agent_end", "auto_retry_start", "auto_retry_end", "agent_settled"], &hint);
        assert_eq!(of_type(&events, "auto_retry_end")[0]["success"], true, "{hint}");
        assert_eq!(answers(&events).last().unwrap().0, "stop", "{hint}");
        let broken = |ending| matches!(ending, Ending::Failed | Ending::Dropped);
        let requests = llm.requests();
        assert_eq!(requests.iter().filter(|request| broken(request.ending)).count(), retries, "{hint}");
        assert_eq!(requests.last().unwrap().ending, Ending::Complete, "{hint}");
    }
}

#[tokio::test]
async fn failures_start_over_after_a_success() {
    let (_llm, mut pi) = Agent::with_model(&[]).await;
    for _ in 0..2 {
        let events = pi.prompt("@@error status=500").await;
        assert_eq!(of_type(&events, "auto_retry_start").len(), 1);
    }
}

#[tokio::test]
async fn retries_give_up_in_the_end() {
    let (llm, mut pi) = Agent::with_model(&[]).await;
    let events = pi.prompt("@@error status=529 times=9").await;
    assert_eq!(of_type(&events, "auto_retry_end")[0]["success"], false);
    assert_eq!(llm.requests().len(), 4);
}

#[tokio::test]
async fn an_overflow_is_compacted_and_retried() {
    for model in ["fake/fake-1", "fakeanth/fake-anth"] {
        let (_llm, mut pi) = Agent::with_model(&["--model", model]).await;
        let long = "word ".repeat(400);
        pi.prompt(&format!("@@text text=\"{long}\" {long}")).await;
        pi.prompt(&format!("@@text text=\"{long}\" {long}")).await;
        let events = pi.prompt("@@overflow\n@@text text=\"It fits.\"").await;
        assert_order(&events, &["compaction_start", "compaction_end", "agent_start", "agent_settled"], model);
        assert_eq!(of_type(&events, "compaction_start")[0]["reason"], "overflow", "{model}");
        assert_eq!(of_type(&events, "compaction_end")[0]["willRetry"], true, "{model}");
        assert_eq!(answers(&events).last().unwrap().1, "It fits.", "{model}");
    }
}

#[tokio::test]
async fn a_small_context_is_compacted_by_itself() {
    let (_llm, mut pi) = Agent::with_model(&["--model", "fake/fake-small"]).await;
    pi.prompt(&format!("@@text {}", "word ".repeat(400))).await;
    let events = pi.prompt(&format!("@@text {}", "word ".repeat(3_000))).await;
    assert_order(&events, &["agent_end", "compaction_start", "compaction_end", "agent_settled"], "small");
    assert_eq!(of_type(&events, "compaction_start")[0]["reason"], "threshold");
    assert_eq!(of_type(&events, "compaction_end")[0]["aborted"], false);
}

#[tokio::test]
async fn a_short_session_can_be_compacted_by_hand() {
    let (_llm, mut pi) = Agent::with_model(&[]).await;
    for _ in 0..3 {
        pi.prompt(&format!("@@text {}", "word ".repeat(200))).await;
    }
    let reply = pi.ask(json!({"type": "compact"})).await;
    assert_eq!(reply["success"], true, "{reply}");
    assert!(reply["data"]["summary"].as_str().unwrap().contains("scripted model"), "{reply}");
}

#[tokio::test]
async fn old_pi_tells_its_version() {
    let output = tokio::process::Command::new(fake_pi("old-pi")).arg("--version").output().await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0.73.1\n");
}

#[tokio::test]
async fn garbage_pi_hides_one_complete_run() {
    let command = [fake_pi("garbage-pi").display().to_string()];
    let mut pi = Agent::spawn(TempDir::new().unwrap(), &command, &[]);
    pi.send(json!({"id": 1, "type": "prompt", "message": "hi"})).await;
    let (mut events, mut rubbish, mut longest) = (Vec::new(), 0, 0);
    while let Some(line) = pi.next_line().await {
        longest = longest.max(line.len());
        match serde_json::from_slice::<Value>(&line) {
            Ok(event) if event["type"].is_string() => events.push(event),
            _ => rubbish += 1,
        }
        if events.last().is_some_and(|event| event["type"] == "agent_settled") {
            break;
        }
    }
    assert!(rubbish >= 10 && longest > 5_000_000, "{rubbish} lines of rubbish, the longest {longest}");
    assert_order(
        &events,
        &["response", "agent_start", "message_end", "message_end", "agent_settled"],
        "garbage",
    );
    assert!(answers(&events)[0].1.starts_with("You said:\u{2028}hi"), "{events:#?}");
    assert_eq!(pi.ask(json!({"type": "get_entries"})).await["data"]["entries"].as_array().unwrap().len(), 2);

    pi.send(json!({"type": "prompt", "message": "@@die"})).await;
    assert_eq!(pi.exit_code().await, Some(3));
    assert!(pi.stderr().await.contains("dying as asked"));
}
