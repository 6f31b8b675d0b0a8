//! The scripted model without an agent: what any HTTP client sees.
#![allow(clippy::unwrap_used, reason = "all of this is test code, helpers included")]

use std::time::Duration;

use qd_testkit::llm::{Ending, LlmServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const READ_WAIT_MAX: Duration = Duration::from_secs(30);

async fn post(llm: &LlmServer, path: &str, body: &str) -> TcpStream {
    let address = llm.base_url().replace("http://", "");
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream
}

async fn read_all(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection broken by the script or by the end of the server may end in an error; what came before it counts.
    let _ = tokio::time::timeout(READ_WAIT_MAX, stream.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn prompt(text: &str) -> String {
    json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": text}]}).to_string()
}

/// The JSON of each SSE event.
fn events(answer: &str) -> Vec<Value> {
    answer.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

#[tokio::test]
async fn each_request_gets_its_status() {
    let cases = [
        ("/v1/chat/completions", prompt("hi"), "200", "data: [DONE]"),
        ("/v1/messages", prompt("hi"), "200", "event: message_stop"),
        ("/v1/models", prompt("hi"), "404", "does not serve POST /v1/models"),
        ("/v1/messages", "{".to_owned(), "400", "EOF"),
        ("/v1/messages", "{}".to_owned(), "200", "event: message_stop"),
        ("/v1/messages", prompt("@@overflow"), "400", "prompt is too long"),
        ("/v1/chat/completions", prompt("@@overflow"), "400", "context_length_exceeded"),
        ("/v1/chat/completions", prompt("@@error status=429 retry_after=7"), "429", "retry-after: 7"),
        ("/v1/messages", prompt("@@error message=tired"), "529", "\"message\":\"tired\""),
        ("/v1/messages", prompt("@@error status=99999"), "529", "Overloaded"),
        ("/v1/messages", prompt("@@nonsense"), "400", "no directive @@nonsense"),
    ];
    for (path, body, status, contained) in cases {
        let llm = LlmServer::start().await.unwrap();
        let answer = read_all(post(&llm, path, &body).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path} {body}: {answer}");
        assert!(answer.contains(contained), "{path} {body}: {answer}");
    }
}

#[tokio::test]
async fn a_drop_comes_after_the_deltas_asked_for() {
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let llm = LlmServer::start().await.unwrap();
        let answer = read_all(post(&llm, path, &prompt("@@deltas n=10\n@@drop after=3")).await).await;
        let texts =
            answer.matches("w1 ").count() + answer.matches("w2 ").count() + answer.matches("w3 ").count();
        assert_eq!((texts, answer.contains("w4 ")), (3, false), "{path}: {answer}");
        llm.wait_until(|requests| requests[0].ending == Ending::Dropped).await.unwrap();
        let answer = read_all(post(&llm, path, &prompt("@@deltas n=10\n@@drop after=3")).await).await;
        assert!(answer.contains("w10 "), "{path}: {answer}");
    }
}

#[tokio::test]
async fn ids_differ_between_calls_and_requests() {
    let llm = LlmServer::start().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let answer = read_all(post(&llm, "/v1/chat/completions", &prompt("@@parallel n=2")).await).await;
        let calls =
            events(&answer).into_iter().map(|event| event["choices"][0]["delta"]["tool_calls"][0].clone());
        ids.extend(calls.filter_map(|call| Some((call["index"].as_u64()?, call["id"].as_str()?.to_owned()))));
    }
    let expected = [(0, "call_1_0"), (1, "call_1_1"), (0, "call_2_0"), (1, "call_2_1")];
    assert_eq!(ids, expected.map(|(index, id)| (index, id.to_owned())));
}

#[tokio::test]
async fn dropping_the_server_ends_its_connections() {
    let llm = LlmServer::start().await.unwrap();
    let endless = post(&llm, "/v1/messages", &prompt("@@endless")).await;
    let hanging = post(&llm, "/v1/messages", &prompt("@@hang")).await;
    llm.wait_until(|requests| requests.len() == 2).await.unwrap();
    drop(llm);
    assert!(!read_all(endless).await.contains("message_stop"));
    assert_eq!(read_all(hanging).await, "");
}
