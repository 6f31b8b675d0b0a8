//! Pushes: what browsers are told, when not, and answers that come from them. The push service is real and local, and
//! its browsers decrypt what they get.

use std::path::Path;
use std::time::Duration;

use qd_hub::{HubConfig, PushKey};
use qd_testkit::push::{Browser, PushService};
use serde_json::{Value, json};

use crate::access::people::{add_person, call, log_in};
use crate::support::{Runner, TOKEN, World, assert_fields, record, soon};

const ALL: [&str; 4] = ["approval", "question", "done", "failed"];

fn quick(config: &mut HubConfig, directory: &Path) {
    config.faces.push.key = Some(PushKey::open(&directory.join("push-key.pem")).unwrap());
    config.faces.push.contact = "mailto:ada@example.org".to_owned();
    config.faces.push.allow_loopback = true;
    config.faces.push.done_after = Duration::ZERO;
    config.faces.push.delay = Duration::from_millis(20);
    config.faces.push.left_grace = Duration::from_millis(20);
    config.faces.push.retry_first = Duration::from_millis(5);
}

/// A hub with the session `s`, and a push service.
async fn start() -> (World, Runner, PushService) {
    start_in(tempfile::tempdir().unwrap(), |_| {}).await
}

async fn start_in(
    directory: tempfile::TempDir,
    configure: impl FnOnce(&mut HubConfig),
) -> (World, Runner, PushService) {
    let path = directory.path().to_owned();
    let (world, mut runner) = World::start_as(directory, |config| {
        quick(config, &path);
        configure(config);
    })
    .await;
    runner.come().await;
    runner.create("s").await;
    (world, runner, PushService::start().await)
}

async fn subscribe(world: &World, token: &str, browser: &Browser, topics: &[&str], content: bool) -> String {
    let body = browser.subscription(topics, content).to_string();
    let (status, _, answer) = call(world, Some(token), "POST", "/api/push/subscriptions", &body).await;
    assert_eq!(status, 201, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

async fn subscriptions(world: &World, token: &str) -> Vec<Value> {
    let (status, _, answer) = call(world, Some(token), "GET", "/api/push", "").await;
    assert_eq!(status, 200, "{answer}");
    answer["subscriptions"].as_array().unwrap().clone()
}

fn permission(seq: u64, request_id: &str) -> String {
    let request =
        json!({"type":"permission","request_id":request_id,"title":"Run a command?","description":"ls"});
    record("s", seq, "agent.input_needed", &format!(r#","request":{request}"#))
}

fn resolved(seq: u64, request_id: &str) -> String {
    let rest = format!(r#","request_id":"{request_id}","outcome":"answered","decision":"approve""#);
    record("s", seq, "agent.input_resolved", &rest)
}

async fn answer_push(world: &World, token: &Value, decision: &str) -> (u16, Value) {
    let body = json!({ "token": token, "decision": decision }).to_string();
    let (status, _, answer) = call(world, None, "POST", "/api/push/answer", &body).await;
    (status, answer)
}

/// Sends a test, which says nothing else came before if it is the browser's message with this number.
async fn probe(
    world: &World,
    service: &PushService,
    token: &str,
    browser: &Browser,
    id: &str,
    number: usize,
) {
    let body = json!({ "id": id }).to_string();
    let (status, _, answer) = call(world, Some(token), "POST", "/api/push/test", &body).await;
    assert_eq!((status, &answer["results"][0]["ok"]), (200, &json!(true)), "{answer}");
    let (_, message) = service.message(browser, number).await;
    assert_eq!(message["kind"], "test", "{message}");
}

#[tokio::test]
async fn a_question_is_told_with_content_or_without_and_taken_back() {
    let (world, runner, service) = start().await;
    let (open, closed) = (Browser::new(&service, "open"), Browser::new(&service, "closed"));
    subscribe(&world, TOKEN, &open, &ALL, true).await;
    subscribe(&world, TOKEN, &closed, &ALL, false).await;
    let other = Browser::new(&service, "other");
    let other_id = subscribe(&world, TOKEN, &other, &["question", "done"], true).await;
    runner.say(&permission(2, "q1")).await;

    let (sent, message) = service.message(&open, 0).await;
    assert_fields(
        &message,
        json!({"title": "Run a command?", "body": "w: ls", "kind": "approval",
        "session_id": "s", "request_id": "q1", "badge": 1}),
    );
    assert_eq!((sent.header("urgency"), sent.header("content-encoding")), ("high", "aes128gcm"));
    assert_eq!((sent.header("ttl"), sent.header("topic").len()), ("86400", 32));
    let (claims, key) = sent.proof();
    assert_eq!((&claims["aud"], &claims["sub"]), (&json!(service.url()), &json!("mailto:ada@example.org")));
    let (_, _, state) = call(&world, Some(TOKEN), "GET", "/api/push", "").await;
    assert_eq!(state["public_key"], key);

    let (_, plain) = service.message(&closed, 0).await;
    assert_eq!((&plain["title"], &plain["body"]), (&Value::Null, &Value::Null), "{plain}");
    assert!(plain["answer_token"].is_string());

    runner.say(&resolved(3, "q1")).await;
    let (sent_back, back) = service.message(&open, 1).await;
    let expected =
        json!({"kind":"resolved","session_id":"s","tag":message["tag"],"request_id":"q1","badge":0});
    assert_eq!(back, expected);
    assert_eq!(sent_back.header("topic"), sent.header("topic"), "one that is not delivered yet is replaced");
    service.message(&closed, 1).await;
    probe(&world, &service, TOKEN, &other, &other_id, 0).await;
    let shown = subscriptions(&world, TOKEN).await;
    assert!(
        shown.iter().all(|one| one["last_success_at"].is_i64() && one["last_failure"].is_null()),
        "{shown:?}"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_question_that_is_answered_at_once_is_not_told() {
    let (world, runner, service) = start_in(tempfile::tempdir().unwrap(), |config| {
        config.faces.push.delay = Duration::from_millis(300);
    })
    .await;
    let browser = Browser::new(&service, "phone");
    subscribe(&world, TOKEN, &browser, &ALL, false).await;
    runner.say(&permission(2, "q1")).await;
    runner.say(&resolved(3, "q1")).await;
    runner.say(&permission(4, "q2")).await;
    let (_, message) = service.message(&browser, 0).await;
    assert_eq!(message["request_id"], "q2");
    world.stop().await;
}

#[tokio::test]
async fn who_looks_is_told_when_they_look_away() {
    let (world, runner, service) = start().await;
    add_person(&world, "alice", "operator").await;
    add_person(&world, "bob", "viewer").await;
    let (alice, bob) = (log_in(&world, "alice").await, log_in(&world, "bob").await);
    let (hers, his) = (Browser::new(&service, "hers"), Browser::new(&service, "his"));
    let hers_id = subscribe(&world, &alice, &hers, &ALL, false).await;
    subscribe(&world, &bob, &his, &ALL, false).await;
    let mut screen = world.client_as(&alice).await;
    let mut elsewhere = world.client_as(&bob).await;
    let frame = |visible: bool, session: Option<&str>| {
        let mut frame = json!({"channel":"system","type":"presence","visible":visible});
        session.into_iter().for_each(|session| frame["session_id"] = json!(session));
        frame
    };
    screen.send(&frame(true, Some("s"))).await;
    elsewhere.send(&frame(true, Some("another"))).await;
    // Frames are acted on in their order: when the second is refused, the first is known.
    for client in [&mut screen, &mut elsewhere] {
        assert_eq!(client.ask(&json!({"channel":"system","type":"nonsense"})).await["type"], "error");
    }
    runner.say(&permission(2, "q1")).await;
    let (_, message) = service.message(&his, 0).await;
    assert_eq!((&message["kind"], &message["answer_token"]), (&json!("approval"), &Value::Null), "a viewer");
    probe(&world, &service, &alice, &hers, &hers_id, 0).await;

    screen.send(&frame(true, None)).await;
    runner.say(&record("s", 3, "agent.error", r#","error":"broken","recoverable":false"#)).await;
    // The question is taken back too, before or after; the failure is no news to her any more once he has it.
    for number in 1.. {
        let (_, message) = service.message(&his, number).await;
        if message["kind"] == "failed" {
            break;
        }
        assert_eq!(message["kind"], "resolved", "{message}");
    }
    probe(&world, &service, &alice, &hers, &hers_id, 1).await;
    runner.say(&permission(4, "q2")).await;
    screen.send(&frame(false, None)).await;
    let (_, message) = service.message(&hers, 2).await;
    assert_eq!((&message["kind"], &message["request_id"]), (&json!("approval"), &json!("q2")));

    // A connection that ends shows nothing any more.
    screen.send(&frame(true, None)).await;
    runner.say(&permission(5, "q3")).await;
    drop(screen);
    let (_, message) = service.message(&hers, 3).await;
    assert_eq!(message["request_id"], "q3");
    world.stop().await;
}

#[tokio::test]
async fn an_answer_from_a_push_counts_once() {
    let (world, mut runner, service) = start().await;
    add_person(&world, "alice", "operator").await;
    let alice = log_in(&world, "alice").await;
    let (phone, tablet) = (Browser::new(&service, "phone"), Browser::new(&service, "tablet"));
    let phone_id = subscribe(&world, &alice, &phone, &ALL, false).await;
    subscribe(&world, TOKEN, &tablet, &ALL, false).await;
    runner.say(&permission(2, "q1")).await;
    let token = service.message(&phone, 0).await.1["answer_token"].clone();
    service.message(&tablet, 0).await;

    let (status, _) = answer_push(&world, &json!("nonsense"), "approve").await;
    assert_eq!(status, 410);
    assert_eq!(
        call(&world, None, "POST", "/api/push/answer", r#"{"token":"x","decision":"yes"}"#).await.0,
        400
    );
    // The runner could not take it: the token stays good.
    let (first, ()) = tokio::join!(answer_push(&world, &token, "approve"), async {
        runner.refuse_next("busy").await;
    });
    assert_eq!(
        (first.0, &first.1["code"]),
        (503, &json!("failed")),
        "what an older runner says has no code of its own"
    );
    let (second, command) = tokio::join!(answer_push(&world, &token, "approve"), async {
        let command = runner.command().await;
        assert_eq!(answer_push(&world, &token, "deny").await.0, 410, "it is being used");
        runner.answer(&command, "null").await;
        command
    });
    assert_eq!(second, (200, json!({"session_id":"s","request_id":"q1"})));
    assert_fields(
        &command,
        json!({"cmd": "input_response", "request_id": "q1", "decision": "approve",
        "actor": "push", "user_id": "alice"}),
    );
    runner.say(&resolved(3, "q1")).await;
    assert_eq!(answer_push(&world, &token, "approve").await.0, 410);
    assert_eq!(service.message(&tablet, 1).await.1["kind"], "resolved");
    probe(&world, &service, &alice, &phone, &phone_id, 1).await;
    world.stop().await;
}

#[tokio::test]
async fn who_may_answer_no_more_does_not_answer_from_a_push() {
    let (world, runner, service) = start().await;
    let mut tokens = Vec::new();
    for name in ["alice", "bob", "carol", "dora"] {
        add_person(&world, name, "operator").await;
        let login = log_in(&world, name).await;
        let browser = Browser::new(&service, name);
        subscribe(&world, &login, &browser, &ALL, false).await;
        tokens.push((login, browser));
    }
    runner.say(&permission(2, "q1")).await;
    let mut answers = Vec::new();
    for (_, browser) in &tokens {
        answers.push(service.message(browser, 0).await.1["answer_token"].clone());
    }
    let change = |name: &str, body: Value| {
        let path = format!("/api/people/{name}");
        let world = &world;
        async move { call(world, Some(TOKEN), "PATCH", &path, &body.to_string()).await.0 }
    };
    assert_eq!(change("alice", json!({"role":"viewer"})).await, 200);
    assert_eq!(change("bob", json!({"disabled":true})).await, 200);
    assert_eq!(call(&world, Some(TOKEN), "DELETE", "/api/people/carol", "").await.0, 200);
    assert_eq!(call(&world, Some(&tokens[3].0), "POST", "/logout", "").await.0, 303);
    for token in &answers {
        let (status, refusal) = answer_push(&world, token, "approve").await;
        assert_eq!(status, 403, "{refusal}");
        assert_eq!(answer_push(&world, token, "approve").await.0, 410);
    }
    let left = world.store.push_subscriptions(0).await.unwrap();
    let left: Vec<&str> = left.iter().map(|row| &*row.principal).collect();
    assert_eq!(left, ["alice"], "those who are out are told nothing");
    let (_, _, audit) = call(&world, Some(TOKEN), "GET", "/api/audit?kind=push", "").await;
    let refused = audit["entries"].as_array().unwrap().iter().filter(|entry| entry["ok"] == false).count();
    assert_eq!(refused, 4, "{audit}");
    world.stop().await;
}

#[tokio::test]
async fn failures_are_tried_again_noted_or_the_end() {
    let (world, runner, service) = start().await;
    let (gone, busy, strict) =
        (Browser::new(&service, "gone"), Browser::new(&service, "busy"), Browser::new(&service, "strict"));
    for browser in [&gone, &busy, &strict] {
        subscribe(&world, TOKEN, browser, &ALL, false).await;
    }
    service.answer_with(&gone, &[410]);
    service.answer_with(&busy, &[503, 429, 201]);
    service.answer_with(&strict, &[403]);
    runner.say(&permission(2, "q1")).await;
    service.message(&busy, 2).await;
    soon("the subscriptions to be as they are", async {
        loop {
            let shown = subscriptions(&world, TOKEN).await;
            let settled =
                shown.iter().filter(|one| one["last_success_at"].is_i64() || one["last_failure"].is_string());
            if shown.len() == 2 && settled.count() == 2 {
                let failure = shown[1]["last_failure"].as_str().unwrap();
                assert!(failure.starts_with("The push service has not taken the message"), "{shown:?}");
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((service.count(&gone), service.count(&busy), service.count(&strict)), (1, 3, 1));

    service.answer_with(&busy, &[302]);
    let (_, _, tested) = call(&world, Some(TOKEN), "POST", "/api/push/test", "").await;
    let codes: Vec<&Value> = tested["results"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
    assert_eq!(codes, [&json!("failed"), &Value::Null], "redirects are not followed: {tested}");
    world.stop().await;
}

/// Whoever gives the hub addresses to try does not learn what is there.
#[tokio::test]
async fn every_failure_reads_the_same() {
    let (world, _runner, service) = start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = mute.local_addr().unwrap();
    let hang_up = tokio::spawn(async move { while mute.accept().await.is_ok() {} });
    let strict = Browser::new(&service, "strict");
    service.answer_with(&strict, &[403]);
    let mut subscription = strict.subscription(&ALL, false);
    let own = subscription["endpoint"].as_str().unwrap().to_owned();
    let mut failures = Vec::new();
    for endpoint in
        [own, format!("http://{closed}/a"), format!("http://{open}/a"), format!("https://{open}/a")]
    {
        subscription["endpoint"] = json!(endpoint);
        let (_, _, made) =
            call(&world, Some(TOKEN), "POST", "/api/push/subscriptions", &subscription.to_string()).await;
        let body = json!({ "id": made["id"] }).to_string();
        let (_, _, tested) = call(&world, Some(TOKEN), "POST", "/api/push/test", &body).await;
        let mut result = tested["results"][0].clone();
        assert_eq!(result["ok"], false, "{endpoint}: {tested}");
        result.as_object_mut().unwrap().remove("id");
        failures.push(result);
    }
    assert!(failures.iter().all(|failure| *failure == failures[0]), "{failures:?}");
    let shown = subscriptions(&world, TOKEN).await;
    assert!(shown.iter().all(|one| one["last_failure"] == shown[0]["last_failure"]), "{shown:?}");
    hang_up.abort();
    world.stop().await;
}

#[tokio::test]
async fn subscriptions_and_key_survive_a_restart_and_open_questions_are_told_again() {
    let (world, runner, service) = start().await;
    let browser = Browser::new(&service, "phone");
    let id = subscribe(&world, TOKEN, &browser, &ALL, true).await;
    runner.say(&permission(2, "q1")).await;
    let (first, message) = service.message(&browser, 0).await;
    let old = message["answer_token"].clone();
    drop(runner);
    let directory = world.end().await;

    let path = directory.path().to_owned();
    let (world, mut runner) = World::start_as(directory, |config| quick(config, &path)).await;
    let state = json!({"session_id":"s","runner_id":"r1","harness":"demo","status":"idle","session_version":1,
        "seq":2,"message_count":0,"queue":{"steering":[],"follow_up":[]},"pending_input":[
        {"type":"permission","request_id":"q1","title":"Run a command?","description":"ls"}]});
    runner.hello_with("r1", json!([{"session_id":"s","last_seq":2,"state":state}])).await;
    runner.line_of("runner.welcome").await;
    let (second, message) = service.message(&browser, 1).await;
    assert_eq!(message["request_id"], "q1");
    assert_eq!(second.proof().1, first.proof().1, "the same key");
    assert_eq!(subscriptions(&world, TOKEN).await[0]["id"], id);
    assert_eq!(answer_push(&world, &old, "approve").await.0, 410, "tokens are of one life");
    let (answered, ()) = tokio::join!(answer_push(&world, &message["answer_token"], "deny"), async {
        assert_eq!(runner.answer_next("null").await["decision"], "deny");
    });
    assert_eq!(answered.0, 200);
    world.stop().await;
}

fn live(event: &str, rest: &str) -> String {
    format!(r#"{{"type":"event","session_id":"s","runner_id":"r1","ts":1,"event":"{event}"{rest}}}"#)
}

#[tokio::test]
async fn ends_of_turns_are_told_and_aborted_ones_not() {
    let (world, runner, service) = start().await;
    let browser = Browser::new(&service, "phone");
    subscribe(&world, TOKEN, &browser, &["done", "failed"], true).await;
    let working = live("agent.working", r#","phase":"generating""#);
    let said = |seq: u64, text: &str| {
        let message = json!({"id":format!("m{seq}"),"idx":seq,"role":"assistant","created_at":1,
            "parts":[{"type":"text","id":"p","text":text}]});
        record("s", seq, "stream.message_end", &format!(r#","message":{message}"#))
    };
    runner.say(&working).await;
    runner.say(&record("s", 2, "agent.idle", r#","reason":"aborted""#)).await;
    runner.say(&working).await;
    runner.say(&said(3, "All tests pass.")).await;
    runner.say(&record("s", 4, "agent.idle", r#","reason":"stop""#)).await;
    let (sent, message) = service.message(&browser, 0).await;
    let expected =
        json!({"kind":"done","session_id":"s","tag":"end:s","title":"w","body":"All tests pass.","badge":0});
    assert_eq!((message, sent.header("urgency")), (expected, "normal"));
    runner.say(&working).await;
    runner.say(&record("s", 5, "agent.error", r#","error":"The agent died","recoverable":false"#)).await;
    runner.say(&record("s", 6, "agent.idle", r#","reason":"error""#)).await;
    let (_, message) = service.message(&browser, 1).await;
    assert_eq!((&message["kind"], &message["body"]), (&json!("failed"), &json!("The agent died")));
    world.stop().await;
}

#[tokio::test]
async fn short_turns_are_no_news() {
    let (world, runner, service) = start_in(tempfile::tempdir().unwrap(), |config| {
        config.faces.push.done_after = Duration::from_secs(3600);
    })
    .await;
    let browser = Browser::new(&service, "phone");
    subscribe(&world, TOKEN, &browser, &ALL, true).await;
    runner.say(&live("agent.working", r#","phase":"generating""#)).await;
    runner.say(&record("s", 2, "agent.idle", r#","reason":"stop""#)).await;
    runner.say(&permission(3, "q1")).await;
    assert_eq!(service.message(&browser, 0).await.1["kind"], "approval");
    world.stop().await;
}

#[tokio::test]
async fn subscriptions_are_ones_own_and_checked() {
    let (world, _runner, service) = start().await;
    add_person(&world, "alice", "viewer").await;
    let alice = log_in(&world, "alice").await;
    let browser = Browser::new(&service, "phone");
    let id = subscribe(&world, &alice, &browser, &["failed", "approval"], false).await;
    let again = subscribe(&world, &alice, &browser, &["failed", "approval"], false).await;
    assert_eq!(again, id, "the same browser");
    let shown = subscriptions(&world, &alice).await;
    assert_eq!((shown.len(), &shown[0]["topics"]), (1, &json!(["approval", "failed"])));
    assert!(subscriptions(&world, TOKEN).await.is_empty(), "not the owner's to see");

    let path = format!("/api/push/subscriptions/{id}");
    let change = json!({"content":true,"topics":["done"],"label":"Her phone"}).to_string();
    assert_eq!(call(&world, Some(TOKEN), "PATCH", &path, &change).await.0, 404);
    let (status, _, changed) = call(&world, Some(&alice), "PATCH", &path, &change).await;
    assert_eq!((status, &changed["content"], &changed["label"]), (200, &json!(true), &json!("Her phone")));
    assert_eq!(changed["topics"], json!(["done"]));
    let bad = |change: fn(&mut Value)| {
        let mut body = browser.subscription(&["done"], true);
        change(&mut body);
        body.to_string()
    };
    for body in [
        bad(|body| body["endpoint"] = json!("http://push.example/x")),
        bad(|body| body["endpoint"] = json!("ftp://127.0.0.1/x")),
        bad(|body| body["keys"]["p256dh"] = json!("AAAA")),
        bad(|body| body["keys"]["p256dh"] = json!("BA".repeat(43) + "A")),
        bad(|body| body["keys"]["auth"] = json!("not base64!")),
        bad(|body| body["topics"] = json!(["everything"])),
        "nonsense".to_owned(),
    ] {
        let (status, _, answer) = call(&world, Some(&alice), "POST", "/api/push/subscriptions", &body).await;
        assert_eq!(status, 400, "{body}: {answer}");
    }
    let token = &*world.new_token(&alice, json!({"name":"ci"})).await;
    let body = browser.subscription(&["done"], true).to_string();
    assert_eq!(call(&world, Some(token), "POST", "/api/push/subscriptions", &body).await.0, 403);
    assert_eq!(call(&world, None, "GET", "/api/push", "").await.0, 401);
    assert_eq!(call(&world, Some(TOKEN), "DELETE", &path, "").await.0, 404);
    assert_eq!(call(&world, Some(&alice), "DELETE", &path, "").await.0, 200);
    assert_eq!(call(&world, Some(&alice), "POST", "/api/push/test", "").await.0, 404);
    world.stop().await;

    let (world, _runner) = World::start().await;
    assert_eq!(call(&world, Some(TOKEN), "GET", "/api/push", "").await.0, 503, "without a key");
    world.stop().await;
}
