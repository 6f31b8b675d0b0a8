//! The codes of what REST calls refuse, with statuses that were there before the codes.

use futures_util::future::join_all;
use qd_store::{ACCESS_TOKENS_MAX, AccessTokenRow, PEOPLE_MAX, PersonRow};
use serde_json::{Value, json};

use crate::access::people::{add_person, call};
use crate::support::{TOKEN, World};

/// What a call of the owner is refused with.
async fn refused(world: &World, method: &str, path: &str, body: &str) -> (u16, String) {
    let (status, head, answer) = call(world, Some(TOKEN), method, path, body).await;
    assert!(head.contains("content-type: application/json"), "{method} {path}: {head}");
    assert!(answer["error"].is_string(), "{method} {path}: {answer}");
    (status, answer["code"].as_str().unwrap_or_default().to_owned())
}

async fn assert_refusals(world: &World, expected: &[(&str, &str, &str, u16, &str)]) {
    for (method, path, body, status, code) in expected {
        let refused = refused(world, method, path, body).await;
        assert_eq!(refused, (*status, (*code).to_owned()), "{method} {path} {body}");
    }
}

#[tokio::test]
async fn a_refusal_says_by_its_code_what_is_wrong() {
    let (world, _runner) = World::start().await;
    add_person(&world, "vera", "viewer").await;
    let person = r#"{"username":"vera","password":"long enough","role":"viewer"}"#;
    call(&world, Some(TOKEN), "POST", "/api/hosts", r#"{"host_id":"h"}"#).await;
    assert_refusals(
        &world,
        &[
            ("POST", "/api/people", person, 409, "already_exists"),
            ("POST", "/api/tokens", r#"{"name":"vera"}"#, 409, "already_exists"),
            ("POST", "/api/hosts", r#"{"host_id":"h"}"#, 409, "already_exists"),
            ("POST", "/api/hosts", r#"{"host_id":"r1"}"#, 409, "already_exists"),
            ("PATCH", "/api/people/nobody", r#"{"role":"viewer"}"#, 404, "not_found"),
            ("DELETE", "/api/runners/nobody", "", 404, "runner_not_found"),
            ("POST", "/api/runners/nobody/rotate", "", 404, "runner_not_found"),
            ("DELETE", "/api/runners/r1", "", 409, "conflict"),
            ("POST", "/api/hosts/nobody/confirm", "", 404, "runner_not_found"),
            ("DELETE", "/api/hosts/nobody", "", 404, "runner_not_found"),
            ("GET", "/login?code=old", "", 401, "code_expired"),
            ("GET", "/api/sessions/nobody", "", 404, "session_not_found"),
            ("GET", "/api/sessions/nobody/messages", "", 404, "session_not_found"),
            ("GET", "/api/sessions/nobody/messages?limit=x", "", 400, "invalid_request"),
            ("GET", "/api/search?q=a&limit=x", "", 400, "invalid_request"),
            ("GET", "/api/push", "", 503, "unsupported"),
            ("GET", "/ws/mux", "", 400, "invalid_request"),
            ("GET", "/ws/pi", "", 426, "invalid_request"),
            ("GET", "/api/nothing", "", 404, "not_found"),
        ],
    )
    .await;
    world.stop().await;
}

/// These never reach a handler, or only as what the framework could not read.
#[tokio::test]
async fn requests_that_cannot_be_read_are_refused_with_a_code_too() {
    let (world, _runner) = World::start().await;
    assert_refusals(
        &world,
        &[
            ("GET", "/api/sessions/s/file", "", 400, "invalid_request"),
            ("PUT", "/api/sessions/s/file?create_parents=perhaps&path=a", "x", 400, "invalid_request"),
            ("GET", "/api/sessions/%ff", "", 400, "invalid_request"),
            ("DELETE", "/api/hosts/%ff", "", 400, "invalid_request"),
            ("DELETE", "/api/tokens/t?owner=a&owner=b", "", 400, "invalid_request"),
            ("PUT", "/api/me", "", 405, "unknown_command"),
            ("DELETE", "/api/hosts", "", 405, "unknown_command"),
            ("GET", "/api/runners/join", "", 405, "unknown_command"),
        ],
    )
    .await;
    let (_, head, _) = call(&world, Some(TOKEN), "DELETE", "/api/hosts", "").await;
    assert!(head.contains("allow: GET,HEAD,POST") || head.contains("allow: POST,GET,HEAD"), "{head}");
    let (status, _, answer) = call(&world, None, "GET", "/api/sessions/s/file", "").await;
    assert_eq!((status, &answer["code"]), (401, &json!("not_logged_in")), "first of all one logs in");
    world.stop().await;
}

#[tokio::test]
async fn a_limit_that_waiting_does_not_lift_is_told_as_such() {
    let (world, _runner) = World::start().await;
    let (store, numbers) = (&world.store, 0..PEOPLE_MAX.max(ACCESS_TOKENS_MAX));
    let people = numbers.clone().map(|number| PersonRow {
        username: format!("p{number}"),
        role: "viewer".to_owned(),
        ..PersonRow::default()
    });
    let tokens = numbers.map(|number| AccessTokenRow {
        name: format!("t{number}"),
        token_hash: number.to_le_bytes().to_vec(),
        owner: None,
        created_at: 0,
        last_used_at: None,
        scopes: None,
        expires_at: None,
    });
    join_all(people.map(|row| store.put_person(row))).await;
    join_all(tokens.map(|row| store.put_access_token(row))).await;
    let person = r#"{"username":"vera","password":"long enough","role":"viewer"}"#;
    assert_refusals(
        &world,
        &[
            ("POST", "/api/people", person, 429, "limit_reached"),
            ("POST", "/api/tokens", r#"{"name":"vera"}"#, 429, "limit_reached"),
        ],
    )
    .await;
    world.stop().await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_told_as_such() {
    let (world, _runner) = World::start().await;
    let code = world.codes.issue().unwrap();
    world.store.close().await;
    let login = r#"{"username":"vera","password":"long enough"}"#;
    let with_code = format!("/login?code={code}");
    assert_refusals(
        &world,
        &[
            ("GET", "/api/sessions", "", 503, "store_unavailable"),
            ("GET", "/api/sessions/s", "", 503, "store_unavailable"),
            ("GET", "/api/runners", "", 503, "store_unavailable"),
            ("DELETE", "/api/runners/far", "", 503, "store_unavailable"),
            ("GET", "/api/hosts", "", 503, "store_unavailable"),
            ("GET", "/ws/host?host_id=h&host_token=t", "", 503, "store_unavailable"),
            ("POST", "/auth/login", login, 503, "store_unavailable"),
            ("POST", "/logout", "", 503, "store_unavailable"),
            ("GET", &with_code, "", 503, "store_unavailable"),
        ],
    )
    .await;
    world.stop().await;
}

#[tokio::test]
async fn a_host_is_refused_with_a_code() {
    let (world, _runner) = World::start().await;
    let (_, _, added) = call(&world, Some(TOKEN), "POST", "/api/hosts", r#"{"host_id":"old"}"#).await;
    let token = added["host_token"].as_str().unwrap();
    call(&world, Some(TOKEN), "DELETE", "/api/hosts/old", "").await;
    for (query, status, code) in [
        (String::new(), 401, "not_logged_in"),
        ("host_id=a%20b&host_token=t".to_owned(), 400, "invalid_request"),
        ("host_id=r1&host_token=t".to_owned(), 401, "not_logged_in"),
        ("host_id=new&host_token=t".to_owned(), 403, "permission_denied"),
        ("host_id=new&host_token=other".to_owned(), 401, "not_logged_in"),
        (format!("host_id=old&host_token={token}"), 401, "runner_revoked"),
    ] {
        let (answered, _, body) = world.http(&format!("/ws/host?{query}"), &[]).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((answered, &answer["code"]), (status, &json!(code)), "{query}: {answer}");
    }
    world.stop().await;
}
