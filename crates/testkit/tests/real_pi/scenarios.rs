//! Answers: text, thinking, tools, streams.

use qd_testkit::llm::{Api, Ending};
use serde_json::json;

use crate::agent::{Agent, answers, deltas, of_type};

const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

fn stop(text: &str) -> (String, String) {
    ("stop".to_owned(), text.to_owned())
}

fn tool_use(text: &str) -> (String, String) {
    ("toolUse".to_owned(), text.to_owned())
}

#[tokio::test]
async fn text_comes_in_deltas_and_usage_as_asked() {
    let (llm, mut pi) = Agent::with_model(&[]).await;
    let events = pi.prompt("@@text text=\"one two three four\"\n@@usage input=100 output=7").await;
    assert_eq!(deltas(&events, "text_delta").concat(), "one two three four");
    assert_eq!(deltas(&events, "text_delta").len(), 2);
    assert_eq!(answers(&events), [stop("one two three four")]);
    let usage = &of_type(&events, "message_end").last().unwrap()["message"]["usage"];
    assert_eq!((usage["input"].as_u64(), usage["output"].as_u64()), (Some(100), Some(7)));
    assert_eq!(llm.requests()[0].ending, Ending::Complete);
}

#[tokio::test]
async fn a_message_without_directives_gets_a_text() {
    let (_llm, mut pi) = Agent::with_model(&[]).await;
    let events = pi.prompt("what is @@error?").await;
    assert_eq!(answers(&events), [stop("Hello from the scripted model. This is a plain answer.")]);
}

#[tokio::test]
async fn an_unknown_directive_is_named_in_the_error() {
    let (_llm, mut pi) = Agent::with_model(&[]).await;
    let events = pi.prompt("@@txet").await;
    let error = of_type(&events, "message_end").last().unwrap()["message"]["errorMessage"].to_string();
    assert!(error.contains("no directive @@txet"), "{error}");
}

#[tokio::test]
async fn thinking_precedes_the_text() {
    for model in ["fake/fake-2", "fakeanth/fake-anth"] {
        let (_llm, mut pi) = Agent::with_model(&["--model", model, "--thinking", "high"]).await;
        let events = pi.prompt("@@thinking thinking=\"hm hm hm hm hm\" text=so").await;
        assert_eq!(deltas(&events, "thinking_delta").concat(), "hm hm hm hm hm", "{model}");
        assert_eq!(answers(&events), [stop("so")], "{model}");
    }
}

#[tokio::test]
async fn tools_run_and_the_final_text_follows() {
    for (model, api) in [("fake/fake-1", Api::OpenAi), ("fakeanth/fake-anth", Api::Anthropic)] {
        let (llm, mut pi) = Agent::with_model(&["--model", model]).await;
        let events =
            pi.prompt("@@text text=Running.\n@@bash command=\"echo a b\"\n@@final text=\"It ran.\"").await;
        let ends = of_type(&events, "tool_execution_end");
        assert_eq!(ends.len(), 1, "{model}");
        assert_eq!(ends[0]["result"]["content"][0]["text"], "a b\n", "{model}");
        assert_eq!(answers(&events), [tool_use("Running."), stop("It ran.")], "{model}");
        assert!(llm.requests().iter().all(|request| request.api == api), "{model}");
    }
}

#[tokio::test]
async fn files_are_written_edited_and_read() {
    let (_llm, mut pi) = Agent::with_model(&[]).await;
    pi.prompt(r#"@@write path=a.txt content="alpha\nbeta\n""#).await;
    pi.prompt(r#"@@edit path=a.txt edits=[{"oldText":"beta","newText":"BETA"}]"#).await;
    assert_eq!(std::fs::read_to_string(pi.work().join("a.txt")).unwrap(), "alpha\nBETA\n");
    let events = pi.prompt("@@tool name=read path=a.txt").await;
    let text = of_type(&events, "tool_execution_end")[0]["result"]["content"][0]["text"].to_string();
    assert!(text.contains("BETA"), "{text}");
}

#[tokio::test]
async fn parallel_tools_are_in_one_message() {
    for model in ["fake/fake-1", "fakeanth/fake-anth"] {
        let (_llm, mut pi) = Agent::with_model(&["--model", model]).await;
        let events = pi.prompt("@@parallel n=3 command=\"echo number {i}\"").await;
        let mut outputs: Vec<&str> = of_type(&events, "tool_execution_end")
            .iter()
            .map(|end| end["result"]["content"][0]["text"].as_str().unwrap())
            .collect();
        outputs.sort_unstable();
        assert_eq!(outputs, ["number 1\n", "number 2\n", "number 3\n"], "{model}");
        assert_eq!(answers(&events), [tool_use(""), stop("Done.")], "{model}");
    }
}

#[tokio::test]
async fn a_loop_takes_one_tool_per_round() {
    let (llm, mut pi) = Agent::with_model(&[]).await;
    let events = pi.prompt("@@loop n=3").await;
    assert_eq!(answers(&events), [tool_use(""), tool_use(""), tool_use(""), stop("Done.")]);
    assert_eq!(llm.requests().len(), 4);
}

#[tokio::test]
async fn deltas_are_counted_exactly() {
    for model in ["fake/fake-1", "fakeanth/fake-anth"] {
        let (_llm, mut pi) = Agent::with_model(&["--model", model]).await;
        let events = pi.prompt("@@deltas n=2000").await;
        assert_eq!(deltas(&events, "text_delta").len(), 2_000, "{model}");
    }
}

#[tokio::test]
async fn an_endless_answer_ends_with_abort() {
    let (llm, mut pi) = Agent::with_model(&[]).await;
    pi.send(json!({"type": "prompt", "message": "@@endless"})).await;
    pi.read_until(|event| event["type"] == "message_update").await;
    pi.send(json!({"type": "abort"})).await;
    let events = pi.read_until(|event| event["type"] == "agent_settled").await;
    assert_eq!(answers(&events)[0].0, "aborted");
    llm.wait_until(|requests| requests[0].ending == Ending::ClientGone).await.unwrap();
}

#[tokio::test]
async fn a_model_that_hangs_can_be_left() {
    let (llm, mut pi) = Agent::with_model(&[]).await;
    pi.send(json!({"type": "prompt", "message": "@@hang"})).await;
    llm.wait_until(|requests| !requests.is_empty()).await.unwrap();
    pi.send(json!({"type": "abort"})).await;
    pi.read_until(|event| event["type"] == "agent_settled").await;
    llm.wait_until(|requests| requests[0].ending == Ending::ClientGone).await.unwrap();
}

#[tokio::test]
async fn a_held_answer_goes_on_when_released() {
    let (llm, mut pi) = Agent::with_model(&[]).await;
    pi.send(json!({"type": "prompt", "message": "@@hold name=a"})).await;
    pi.read_until(|event| event["assistantMessageEvent"]["delta"] == "Before the gate. ").await;
    let steer = json!({"type": "prompt", "message": "@@text text=steered", "streamingBehavior": "steer"});
    assert_eq!(pi.ask(steer).await["success"], true);
    llm.release("a");
    let events = pi.read_until(|event| event["type"] == "agent_settled").await;
    assert_eq!(answers(&events), [stop("Before the gate. After it."), stop("steered")]);
}

#[tokio::test]
async fn a_slow_answer_and_one_that_stops_for_length() {
    let (_llm, mut pi) = Agent::with_model(&[]).await;
    let events = pi.prompt("@@slow n=5 delay_ms=2").await;
    assert_eq!(deltas(&events, "text_delta").len(), 5);
    // Reported as full length, so that pi does not try to make room.
    let events = pi.prompt("@@text text=cut\n@@length\n@@usage output=8192").await;
    assert_eq!(answers(&events), [("length".to_owned(), "cut".to_owned())]);
}

#[tokio::test]
async fn images_reach_the_model() {
    for model in ["fake/fake-1", "fakeanth/fake-anth"] {
        let (llm, mut pi) = Agent::with_model(&["--model", model]).await;
        let image = json!({"type": "image", "data": PIXEL, "mimeType": "image/png"});
        pi.send(json!({"type": "prompt", "message": "@@text look", "images": [image]})).await;
        pi.read_until(|event| event["type"] == "agent_settled").await;
        let request = &llm.requests()[0];
        assert_eq!(request.prompt(), "@@text look", "{model}");
        let images = request.images();
        assert_eq!(images.len(), 1, "{model}");
        assert_eq!(images[0].mime_type, "image/png", "{model}");
        assert_eq!(images[0].data, PIXEL, "{model}");
    }
}

#[tokio::test]
async fn the_home_offers_its_models() {
    let (_llm, mut pi) = Agent::with_model(&[]).await;
    let state = pi.ask(json!({"type": "get_state"})).await;
    assert_eq!(state["data"]["model"]["id"], "fake-1");
    let reply = pi.ask(json!({"type": "get_available_models"})).await;
    let mut ids: Vec<&str> =
        reply["data"]["models"].as_array().unwrap().iter().filter_map(|model| model["id"].as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["fake-1", "fake-2", "fake-anth", "fake-small"]);
    assert_eq!(
        pi.ask(json!({"type": "set_model", "provider": "fake", "modelId": "fake-2"})).await["success"],
        true
    );
    let levels = pi.ask(json!({"type": "get_available_thinking_levels"})).await;
    assert!(levels["data"]["levels"].as_array().unwrap().len() > 2, "{levels}");
}
