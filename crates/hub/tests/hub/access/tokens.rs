//! Access tokens: principals beside the owner.

use qd_hub::Limits;
use serde_json::{Value, json};

use crate::access::people::call;
use crate::support::{Runner, TOKEN, World, soon, world_with_session};

impl World {
    /// A new access token.
    pub(crate) async fn token_of(&self, name: &str) -> String {
        self.new_token(TOKEN, json!({ "name": name })).await
    }

    /// A new access token of whoever has this one, as `body` wants it.
    pub(crate) async fn new_token(&self, token: &str, body: Value) -> String {
        let (status, _, added) = call(self, Some(token), "POST", "/api/tokens", &body.to_string()).await;
        assert_eq!(status, 200, "{added}");
        added["token"].as_str().unwrap().to_owned()
    }
}

async fn add(world: &World, body: &str) -> (u16, Value) {
    add_as(world, TOKEN, body).await
}

async fn add_as(world: &World, token: &str, body: &str) -> (u16, Value) {
    let bearer = format!("Bearer {token}");
    let (status, _, body) =
        world.request_with("POST", "/api/tokens", &[("Authorization", &bearer)], body).await;
    (status, serde_json::from_str(&body).unwrap())
}

/// A new token of this name.
async fn token(world: &World, name: &str) -> String {
    let (status, added) = add(world, &json!({ "name": name }).to_string()).await;
    assert_eq!((status, &added["name"]), (200, &json!(name)), "{added}");
    added["token"].as_str().unwrap().to_owned()
}

/// The next command of the hub, answered: who it is from.
async fn answered(runner: &mut Runner) -> Value {
    let command = runner.answer_next("{}").await;
    command["user_id"].clone()
}

/// The status of a call with this token.
async fn sessions_as(world: &World, token: &str) -> u16 {
    call(world, Some(token), "GET", "/api/sessions", "").await.0
}

#[tokio::test]
async fn the_owner_adds_lists_and_revokes_tokens() {
    let (world, _runner) = World::start().await;
    assert_eq!(world.api("GET", "/api/tokens").await, (200, json!({ "tokens": [] })));
    let ci = token(&world, "ci").await;
    let bot = token(&world, "A.b_c-9").await;
    assert!(ci != bot && ci.len() >= 40, "{ci}");
    assert_eq!(add(&world, r#"{"name":"ci"}"#).await.0, 409);
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(65));
    for wrong in [
        r#"{"name":""}"#,
        r#"{"name":"a b"}"#,
        r#"{"name":"a/b"}"#,
        r#"{"name":"owner"}"#,
        r#"{"name":"anonymous"}"#,
        r#"{"name":".."}"#,
        "{}",
        "no",
        &long,
    ] {
        let (status, answer) = add(&world, wrong).await;
        assert_eq!(status, 400, "{wrong}");
        assert_eq!(answer["code"], "invalid_request", "{answer}");
    }

    assert_eq!(sessions_as(&world, &ci).await, 200);
    let (_, list) = world.api("GET", "/api/tokens").await;
    assert_eq!(list["tokens"].as_array().unwrap().len(), 2);
    assert_eq!((&list["tokens"][0]["name"], &list["tokens"][1]["name"]), (&json!("A.b_c-9"), &json!("ci")));
    assert_eq!(list["tokens"][0].get("last_used_at"), None);
    assert!(list["tokens"][1]["last_used_at"].as_i64() >= list["tokens"][1]["created_at"].as_i64(), "{list}");
    assert!(!list.to_string().contains(&ci));

    assert_eq!(world.api("DELETE", "/api/tokens/nobody").await.0, 404);
    assert_eq!(world.api("DELETE", "/api/tokens/ci").await, (200, json!({ "name": "ci" })));
    assert_eq!(world.api("DELETE", "/api/tokens/ci").await.0, 404);
    assert_eq!(sessions_as(&world, &ci).await, 401);
    assert_eq!(sessions_as(&world, &bot).await, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_token_opens_sessions_and_nothing_of_the_owners() {
    let (world, _runner) = World::start().await;
    let ci = token(&world, "ci").await;
    let bearer = format!("Bearer {ci}");
    let headers = [("Authorization", &*bearer)];
    for (method, path) in [
        ("GET", "/api/tokens"),
        ("DELETE", "/api/tokens/ci"),
        ("GET", "/api/runners"),
        ("POST", "/api/runners/invites"),
        ("POST", "/api/runners/r1/rotate"),
        ("DELETE", "/api/runners/r1"),
    ] {
        assert_eq!(world.request(method, path, &headers).await.0, 403, "{method} {path}");
    }
    assert_eq!(add_as(&world, &ci, r#"{"name":"friend"}"#).await.0, 403);
    assert_eq!(world.request("GET", "/api/sessions", &headers).await.0, 200);
    assert_eq!(
        world.request("GET", "/api/sessions", &[("Authorization", &format!("bearer  {ci} "))]).await.0,
        200
    );
    assert_eq!(sessions_as(&world, "wrong").await, 401);
    world.stop().await;
}

/// The runner keeps outcomes by principal, so two of them can use one key.
#[tokio::test]
async fn commands_carry_the_name_of_their_principal() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let ci = token(&world, "ci").await;
    let mut owner = world.client().await;
    let mut other = world.client_as(&ci).await;
    for (client, name) in [(&mut owner, "owner"), (&mut other, "ci")] {
        let rest = json!({"message":"m","idempotency_key":"same","user_id":"root"});
        client.command("1", "s", "prompt", rest).await;
        assert_eq!(answered(&mut runner).await, name);
        assert_eq!(client.next().await["success"], true);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_revoked_token_is_closed_out_at_once_and_nobody_else() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let (ci, bot) = (token(&world, "ci").await, token(&world, "bot").await);
    let mut owner = world.client().await;
    let (mut first, mut second) = (world.client_as(&ci).await, world.client_as(&ci).await);
    let mut bystander = world.client_as(&bot).await;
    let mut face = world.try_client_at("/ws/pi", &ci).await.unwrap();
    assert_eq!(face.next().await["type"], "server_ready");
    assert_eq!(world.api("DELETE", "/api/tokens/ci").await.0, 200);
    assert_eq!((first.closed().await, second.closed().await), (1008, 1008));
    assert_eq!(face.closed().await, 1008);
    assert!(world.try_client_at("/ws/pi", &ci).await.is_none());
    for client in [&mut owner, &mut bystander] {
        client.command("1", "s", "prompt", json!({"message":"m"})).await;
        answered(&mut runner).await;
        assert_eq!(client.next().await["success"], true);
    }

    let again = token(&world, "ci").await;
    assert_ne!(again, ci);
    let mut client = world.client_as(&again).await;
    client.command("1", "s", "prompt", json!({"message":"m"})).await;
    assert_eq!(answered(&mut runner).await, "ci");
    assert_eq!(sessions_as(&world, &ci).await, 401, "the old one stays void");
    world.stop().await;
}

/// Connections that are made while the token is revoked: each is refused or closed, none stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_slips_in_while_a_token_is_revoked() {
    let (world, _runner) = World::start().await;
    let world = std::sync::Arc::new(world);
    for round in 0..20 {
        let ci = token(&world, "ci").await;
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let (world, ci) = (std::sync::Arc::clone(&world), ci.clone());
                let path = if number % 2 == 0 { "/ws/mux" } else { "/ws/pi" };
                tokio::spawn(async move {
                    if let Some(mut client) = world.try_client_at(path, &ci).await {
                        assert_eq!(client.closed().await, 1008);
                    }
                })
            })
            .collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.api("DELETE", "/api/tokens/ci").await.0, 200);
        for client in clients {
            soon("the end of a client", client).await.unwrap();
        }
    }
    world.shutdown.cancel();
}
