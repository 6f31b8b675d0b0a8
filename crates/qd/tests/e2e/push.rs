//! Pushes of the whole binary: a real question of a session of the demo agent, told to a browser and answered from there.

use qd_testkit::push::{Browser, PushService};
use serde_json::json;

use crate::{assert_fields, demo_session, sandbox, up};

#[tokio::test]
async fn an_approval_is_pushed_and_given_from_the_notification_once() {
    let service = PushService::start().await;
    let mut sandbox = sandbox();
    sandbox.set("QD_PUSH_LOOPBACK", "on");
    let (qd, mut mux) = up(sandbox).await;
    let session = demo_session(&mut mux).await;
    let person = json!({"username":"otto","password":"correct horse battery","role":"operator"});
    assert_eq!(qd.http("POST", "/api/people", Some(&person)).await.status, 201);
    let login = json!({"username":"otto","password":"correct horse battery"});
    let otto = qd.http_as(None, "POST", "/auth/login", Some(&login)).await.json();
    let otto = otto["access_token"].as_str().unwrap().to_owned();

    let phone = Browser::new(&service, "phone");
    let subscription = phone.subscription(&["approval"], true);
    let subscribed = qd.http("POST", "/api/push/subscriptions", Some(&subscription)).await;
    assert_eq!(subscribed.status, 201, "{}", subscribed.text());
    // What an operator does to a machine waits for somebody's yes.
    let command = json!({"cmd":"host.bash","session_id":session,"command":"echo from-the-gate"});
    let (answer, ()) =
        tokio::join!(qd.http_as(Some(&otto), "POST", "/api/commands", Some(&command)), async {
            let (_, message) = service.message(&phone, 0).await;
            assert_fields(&message, json!({"kind": "approval", "session_id": session}));
            assert!(message["body"].as_str().unwrap().contains("from-the-gate"), "{message}");
            let answer = json!({"token":message["answer_token"],"decision":"approve"});
            let answered = qd.http_as(None, "POST", "/api/push/answer", Some(&answer)).await;
            assert_eq!(answered.status, 200, "{}", answered.text());
            assert_eq!(qd.http_as(None, "POST", "/api/push/answer", Some(&answer)).await.status, 410);
        });
    let answer = answer.json();
    assert_eq!(answer["success"], true, "{answer}");
    assert!(answer["data"].to_string().contains("from-the-gate"), "{answer}");
    let audit = qd.http("GET", "/api/audit?kind=permission", None).await.json();
    let entry = &audit["entries"][0];
    assert_fields(entry, json!({"principal": "owner", "actor": "push", "ok": true}));
    let key = qd.sandbox().data_dir().join("push-key.pem");
    assert!(key.exists());
}
