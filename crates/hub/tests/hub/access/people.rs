//! People: accounts, logins, what they may do, and how that ends.

use std::time::Duration;

use qd_store::HubStore;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{TOKEN, World, assert_fields, soon};

pub(crate) const PASSWORD: &str = "correct horse battery";

/// A call with this token, if there is one; gives status, head and answer.
pub(crate) async fn call(
    world: &World,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String, Value) {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<(&str, &str)> = bearer.iter().map(|bearer| ("Authorization", &**bearer)).collect();
    let (status, head, body) = world.request_with(method, path, &headers, body).await;
    (status, head, serde_json::from_str(&body).unwrap_or(Value::Null))
}

/// A call of the owner.
async fn owner(world: &World, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, _, answer) = call(world, Some(TOKEN), method, path, &body).await;
    (status, answer)
}

/// A person who can log in.
pub(crate) async fn add_person(world: &World, username: &str, role: &str) {
    let body = json!({"username":username,"password":PASSWORD,"role":role});
    let (status, answer) = owner(world, "POST", "/api/people", body).await;
    assert_eq!((status, &answer["role"]), (201, &json!(role)), "{answer}");
}

async fn try_login(world: &World, username: &str, password: &str) -> (u16, String, Value) {
    let body = json!({"username":username,"password":password}).to_string();
    call(world, None, "POST", "/auth/login", &body).await
}

/// Logs in and gives the token.
pub(crate) async fn log_in(world: &World, username: &str) -> String {
    let (status, _, answer) = try_login(world, username, PASSWORD).await;
    assert_eq!(status, 200, "{answer}");
    answer["access_token"].as_str().unwrap().to_owned()
}

async fn me(world: &World, token: &str) -> (u16, Value) {
    let (status, _, answer) = call(world, Some(token), "GET", "/api/me", "").await;
    (status, answer)
}

#[tokio::test]
async fn a_person_logs_in_with_token_and_cookie() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "operator").await;
    let (status, head, answer) = try_login(&world, "alice", PASSWORD).await;
    assert_eq!(status, 200, "{answer}");
    let token = answer["access_token"].as_str().unwrap();
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.starts_with(&format!("qd_login={token};")), "{cookie}");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=2592000"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "without TLS a browser would not send it back");
    assert!(head.contains("no-store"), "{head}");
    let expected = json!({"name":"alice","role":"operator","access":"login",
        "permissions":["view","operate","approve","files","shell"]});
    assert_eq!(me(&world, token).await, (200, expected.clone()));
    let (status, _, body) = world.http("/api/me", &[("Cookie", cookie.split(';').next().unwrap())]).await;
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()), (200, expected));
    assert_eq!(call(&world, Some(token), "GET", "/api/sessions", "").await.0, 200);
    assert!(world.try_client_as(token).await.is_some());

    let owner_is = json!({"name":"owner","role":"owner","access":"owner_token",
        "permissions":["view","operate","approve","files","shell","manage"]});
    assert_eq!(me(&world, TOKEN).await, (200, owner_is));
    assert_eq!(world.http("/api/me", &[]).await.0, 401);
    world.stop().await;
}

#[tokio::test]
async fn people_are_added_listed_changed_and_removed() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "viewer").await;
    let new =
        |name: &str, password: &str, role: &str| json!({"username":name,"password":password,"role":role});
    for (body, expected) in [
        (new("alice", PASSWORD, "viewer"), 409),
        (new("bob", "short", "viewer"), 400),
        (new("bob", &"x".repeat(1025), "viewer"), 400),
        (new("bob", PASSWORD, "king"), 400),
        (new("a b", PASSWORD, "viewer"), 400),
        (new("owner", PASSWORD, "viewer"), 400),
        (new("anonymous", PASSWORD, "viewer"), 400),
        (json!({"username":"bob"}), 400),
    ] {
        let (status, answer) = owner(&world, "POST", "/api/people", body.clone()).await;
        assert_eq!(status, expected, "{body}");
        let code = if expected == 409 { "already_exists" } else { "invalid_request" };
        assert_eq!(answer["code"], code, "{answer}");
    }
    assert_eq!(owner(&world, "POST", "/api/tokens", json!({"name":"alice"})).await.0, 409);
    assert_eq!(owner(&world, "POST", "/api/tokens", json!({"name":"ci"})).await.0, 200);
    assert_eq!(owner(&world, "POST", "/api/people", new("ci", PASSWORD, "viewer")).await.0, 409);

    let (_, list) = owner(&world, "GET", "/api/people", Value::Null).await;
    assert_eq!(list["people"].as_array().unwrap().len(), 1);
    assert_fields(&list, json!({"people.0.username": "alice", "people.0.disabled": false}));
    assert!(!list.to_string().contains("argon2"), "{list}");
    let token = log_in(&world, "alice").await;
    let (status, answer) = owner(&world, "PATCH", "/api/people/alice", json!({"role":"operator"})).await;
    assert_eq!((status, &answer["role"]), (200, &json!("operator")));
    assert!(answer["last_login_at"].is_i64(), "{answer}");
    assert_eq!(me(&world, &token).await.1["role"], "operator", "from now on");
    assert_eq!(owner(&world, "PATCH", "/api/people/alice", json!({})).await.0, 400);
    assert_eq!(owner(&world, "PATCH", "/api/people/nobody", json!({"role":"viewer"})).await.0, 404);
    assert_eq!(owner(&world, "DELETE", "/api/people/alice", Value::Null).await.0, 200);
    assert_eq!(owner(&world, "DELETE", "/api/people/alice", Value::Null).await.0, 404);
    assert_eq!(me(&world, &token).await.0, 401);
    world.stop().await;
}

#[tokio::test]
async fn everybody_changes_their_own_password_and_nothing_else() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "viewer").await;
    add_person(&world, "bob", "viewer").await;
    let token = log_in(&world, "alice").await;
    let patch = async |name: &str, body: Value| {
        let path = format!("/api/people/{name}");
        call(&world, Some(&token), "PATCH", &path, &body.to_string()).await.0
    };
    assert_eq!(patch("alice", json!({"role":"owner"})).await, 403);
    assert_eq!(
        patch("alice", json!({"password":"new password","role":"owner","current_password":PASSWORD})).await,
        403
    );
    assert_eq!(patch("alice", json!({"disabled":false})).await, 403);
    assert_eq!(patch("bob", json!({"password":"new password","current_password":PASSWORD})).await, 403);
    assert_eq!(patch("alice", json!({"password":"new password"})).await, 400);
    assert_eq!(patch("alice", json!({"password":"new password","current_password":"wrong one"})).await, 401);
    assert_eq!(patch("alice", json!({"password":"new password","current_password":PASSWORD})).await, 200);
    assert_eq!(me(&world, &token).await.0, 401, "all logins are over");
    assert_eq!(try_login(&world, "alice", PASSWORD).await.0, 401);
    assert_eq!(try_login(&world, "alice", "new password").await.0, 200);
    world.stop().await;
}

/// The owner's own way out of a lost password: no account is needed, and none can lock them out.
#[tokio::test]
async fn the_last_owner_account_may_go() {
    let (world, _runner) = World::start().await;
    add_person(&world, "boss", "owner").await;
    let boss = log_in(&world, "boss").await;
    assert_eq!(call(&world, Some(&boss), "GET", "/api/people", "").await.0, 200);
    let body = json!({"disabled":true}).to_string();
    assert_eq!(call(&world, Some(&boss), "PATCH", "/api/people/boss", &body).await.0, 200);
    assert_eq!(me(&world, &boss).await.0, 401);
    assert_eq!(try_login(&world, "boss", PASSWORD).await.0, 401);
    assert_eq!(owner(&world, "PATCH", "/api/people/boss", json!({"disabled":false})).await.0, 200);
    assert_eq!(try_login(&world, "boss", PASSWORD).await.0, 200);
    world.stop().await;
}

/// Addresses get into logs and histories, and what a script can read it can send away.
#[tokio::test]
async fn hole_07_no_token_is_taken_from_an_address_and_no_script_reads_the_cookie() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "operator").await;
    let (_, head, answer) = try_login(&world, "alice", PASSWORD).await;
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Strict"), "{cookie}");
    for token in [TOKEN, answer["access_token"].as_str().unwrap()] {
        assert_eq!(me(&world, token).await.0, 200);
        for path in ["/api/me", "/api/sessions", "/runs", "/hosts"] {
            assert_eq!(world.http(&format!("{path}?token={token}"), &[]).await.0, 401, "{path}");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn hole_07_wrong_logins_all_look_the_same_and_take_the_same_time() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "viewer").await;
    add_person(&world, "off", "viewer").await;
    owner(&world, "PATCH", "/api/people/off", json!({"disabled":true})).await;
    let mut times: [Vec<Duration>; 2] = Default::default();
    let mut answers = Vec::new();
    for number in 0..4 {
        let unknown = format!("nobody{number}");
        for (place, name) in ["alice", &unknown].into_iter().enumerate() {
            let start = Instant::now();
            let (status, _, answer) = try_login(&world, name, "wrong password").await;
            times[place].push(start.elapsed());
            answers.push((status, answer));
        }
    }
    for name in ["off", "", "a b", &"x".repeat(5000)] {
        let password = if name == "off" { PASSWORD } else { "wrong password" };
        let (status, _, answer) = try_login(&world, name, password).await;
        answers.push((status, answer));
    }
    assert!(
        answers
            .iter()
            .all(|answer| *answer == (401, json!({"error":"invalid credentials","code":"not_logged_in"}))),
        "{answers:?}"
    );
    let [known, unknown] = times.map(|times| times.into_iter().min().unwrap());
    let (short, long) = (known.min(unknown), known.max(unknown));
    assert!(short * 3 > long, "a known name takes {known:?}, an unknown one {unknown:?}");
    world.stop().await;
}

#[tokio::test]
async fn hole_07_too_many_wrong_logins_have_to_wait_and_not_for_ever() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "viewer").await;
    for name in ["alice", "nobody"] {
        for _ in 0..5 {
            assert_eq!(try_login(&world, name, "wrong password").await.0, 401);
        }
        let (status, head, answer) = try_login(&world, name, PASSWORD).await;
        assert_eq!(status, 429, "{answer}");
        assert!(head.lines().any(|line| line == "retry-after: 1"), "{head}");
        assert_eq!(answer["code"], "rate_limited", "{answer}");
    }
    // It says when to come back, and then the right password opens.
    soon("a login after the wait", async {
        while try_login(&world, "alice", PASSWORD).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    world.stop().await;
}

/// Everybody behind a proxy has its address; a stranger there may fail as often as they like, with any name.
#[tokio::test]
async fn hole_07_a_stranger_behind_the_same_proxy_locks_nobody_out() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "viewer").await;
    add_person(&world, "bob", "viewer").await;
    let (_, head, _) = try_login(&world, "alice", PASSWORD).await;
    let known = head.lines().find_map(|line| line.strip_prefix("set-cookie: qd_browser=")).unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(known.contains(part), "{known}");
    }
    let known = format!("qd_browser={}", known.split(';').next().unwrap());
    for number in 0..25 {
        assert_eq!(try_login(&world, &format!("nobody{number}"), "wrong password").await.0, 401);
    }
    assert_eq!(try_login(&world, "bob", PASSWORD).await.0, 200, "who has never been here");
    for _ in 0..5 {
        assert_eq!(try_login(&world, "alice", "wrong password").await.0, 401);
    }
    let body = json!({"username":"alice","password":PASSWORD}).to_string();
    let log_in =
        async |headers: &[(&str, &str)]| world.request_with("POST", "/auth/login", headers, &body).await.0;
    assert_eq!(log_in(&[("Cookie", "qd_browser=guessed")]).await, 429, "the stranger waits");
    assert_eq!(log_in(&[("Cookie", &known)]).await, 200, "the browser that alice uses does not");
    world.stop().await;
}

/// A burst of logins takes turns: memory is bounded, and none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_logins_at_a_time_take_turns() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "viewer").await;
    let world = std::sync::Arc::new(world);
    let logins: Vec<_> = (0..12)
        .map(|_| {
            let world = std::sync::Arc::clone(&world);
            tokio::spawn(async move { try_login(&world, "alice", PASSWORD).await.0 })
        })
        .collect();
    for login in logins {
        assert_eq!(soon("a login", login).await.unwrap(), 200);
    }
    world.shutdown.cancel();
}

#[tokio::test]
async fn hole_07_what_ends_a_login_closes_its_sockets_at_once() {
    let (world, _runner) = World::start().await;
    add_person(&world, "bystander", "viewer").await;
    let mut bystander = world.client_as(&log_in(&world, "bystander").await).await;
    for (number, ending) in ["disabled", "password", "removed", "role"].into_iter().enumerate() {
        let name = format!("alice{number}");
        add_person(&world, &name, "operator").await;
        let login = log_in(&world, &name).await;
        let token = world.new_token(&login, json!({"name":"laptop"})).await;
        let mut sockets = Vec::new();
        for access in [&login, &token] {
            for path in ["/ws/mux", "/ws/pi", "/ws/app"] {
                sockets.push(world.try_client_at(path, access).await.unwrap_or_else(|| panic!("{path}")));
            }
        }
        let path = format!("/api/people/{name}");
        let (status, answer) = match ending {
            "disabled" => owner(&world, "PATCH", &path, json!({"disabled":true})).await,
            "password" => owner(&world, "PATCH", &path, json!({"password":"another password"})).await,
            "role" => owner(&world, "PATCH", &path, json!({"role":"viewer"})).await,
            _ => owner(&world, "DELETE", &path, Value::Null).await,
        };
        assert_eq!(status, 200, "{answer}");
        for socket in &mut sockets {
            assert_eq!(socket.closed().await, 1008, "{ending}");
        }
        let expected = if ending == "role" { 200 } else { 401 };
        for access in [&login, &token] {
            assert_eq!(me(&world, access).await.0, expected, "{ending}");
        }
    }
    assert_eq!(bystander.call("1", "_system", "list_sessions", json!({})).await["success"], true);
    world.stop().await;
}

#[tokio::test]
async fn hole_07_logins_are_listed_and_revoked_one_by_one() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "viewer").await;
    add_person(&world, "bob", "viewer").await;
    let (phone, desk) = (log_in(&world, "alice").await, log_in(&world, "alice").await);
    let bob = log_in(&world, "bob").await;
    let (_, _, list) = call(&world, Some(&desk), "GET", "/api/logins", "").await;
    assert!(!list.to_string().contains(&phone) && !list.to_string().contains(&desk));
    let list = list["logins"].as_array().unwrap().clone();
    assert_eq!(list.iter().filter(|login| login["current"] == true).count(), 1);
    let other = list.iter().find(|login| login["current"] == false).unwrap();
    let path = format!("/api/logins/{}", other["login_id"].as_str().unwrap());
    assert_eq!(call(&world, Some(&bob), "DELETE", &path, "").await.0, 404, "not one's own");
    let mut socket = world.client_as(&phone).await;
    assert_eq!(call(&world, Some(&desk), "DELETE", &path, "").await.0, 200);
    assert_eq!(socket.closed().await, 1008);
    assert_eq!(me(&world, &phone).await.0, 401);
    assert_eq!(me(&world, &desk).await.0, 200, "the other one stays");

    // Logging out does the same.
    let mut socket = world.client_as(&desk).await;
    let cookie = format!("qd_login={desk}");
    assert_eq!(world.request("POST", "/logout", &[("Cookie", &cookie)]).await.0, 303);
    assert_eq!(socket.closed().await, 1008);
    assert_eq!(me(&world, &desk).await.0, 401);
    // A program has the same login as a bearer.
    let mut socket = world.client_as(&bob).await;
    assert_eq!(call(&world, Some(&bob), "POST", "/logout", "").await.0, 303);
    assert_eq!(socket.closed().await, 1008);
    assert_eq!(me(&world, &bob).await.0, 401);
    // Of an owner's token and of access tokens it ends nothing.
    assert_eq!(call(&world, Some(TOKEN), "POST", "/logout", "").await.0, 303);
    assert_eq!(me(&world, TOKEN).await.0, 200);
    world.stop().await;
}

#[tokio::test]
async fn hole_07_sockets_do_not_outlive_their_login_or_token() {
    let (world, mut runner) = World::start_as(tempfile::tempdir().unwrap(), |config| {
        config.login_life = Duration::from_secs(3);
    })
    .await;
    runner.hello().await;
    add_person(&world, "alice", "viewer").await;
    let login = log_in(&world, "alice").await;
    let mut socket = world.client_as(&login).await;
    assert_eq!(socket.closed().await, 1008, "unused for too long");
    assert_eq!(me(&world, &login).await.0, 401);

    let token = world.new_token(TOKEN, json!({"name":"ci","days":1})).await;
    set_end(&world.store, "ci", 1500).await;
    let mut socket = world.client_as(&token).await;
    assert_eq!(socket.closed().await, 1008);
    assert_eq!(me(&world, &token).await.0, 401);
    world.stop().await;
}

/// Makes a token end so many milliseconds after it was made.
async fn set_end(store: &HubStore, name: &str, rest_ms: i64) {
    let mut token =
        store.access_tokens().await.unwrap().into_iter().find(|token| token.name == name).unwrap();
    store.delete_access_token(None, name).await.unwrap();
    token.expires_at = Some(token.created_at + rest_ms);
    store.put_access_token(token).await.unwrap();
}

#[tokio::test]
async fn tokens_of_people_act_as_them_within_their_scopes() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "operator").await;
    add_person(&world, "bob", "viewer").await;
    let (alice, bob) = (log_in(&world, "alice").await, log_in(&world, "bob").await);
    let add = async |login: &str, body: Value| {
        let (status, _, answer) = call(&world, Some(login), "POST", "/api/tokens", &body.to_string()).await;
        (status, answer["token"].as_str().unwrap_or_default().to_owned())
    };
    let (status, token) = add(&alice, json!({"name":"ci","scopes":["view","files"],"days":30})).await;
    assert_eq!(status, 200);
    let expected = json!({"name":"alice","role":"operator","access":"token","permissions":["view","files"]});
    assert_eq!(me(&world, &token).await, (200, expected));
    assert_eq!(add(&alice, json!({"name":"ci"})).await.0, 409);
    assert_eq!(add(&bob, json!({"name":"ci"})).await.0, 200, "names are each one's own");
    assert_eq!(add(&alice, json!({"name":"x","scopes":["manage"]})).await.0, 403);
    assert_eq!(add(&bob, json!({"name":"x","scopes":["operate"]})).await.0, 403);
    for wrong in [
        json!({"name":"x","scopes":[]}),
        json!({"name":"x","scopes":["king"]}),
        json!({"name":"x","days":0}),
        json!({"name":"x","days":99999}),
    ] {
        assert_eq!(add(&alice, wrong.clone()).await.0, 400, "{wrong}");
    }
    assert_eq!(add(&token, json!({"name":"child"})).await.0, 403, "a token makes no tokens");

    let list = async |token: &str| {
        let (_, _, list) = call(&world, Some(token), "GET", "/api/tokens", "").await;
        list["tokens"].as_array().unwrap().clone()
    };
    let own = list(&alice).await;
    assert_eq!(
        (own.len(), &own[0]["owner"], &own[0]["scopes"]),
        (1, &json!("alice"), &json!(["view", "files"]))
    );
    assert!(own[0]["expires_at"].as_i64() > own[0]["created_at"].as_i64());
    assert_eq!(list(TOKEN).await.len(), 2, "who manages sees all");

    // What a person may do no more, their tokens may not either.
    owner(&world, "PATCH", "/api/people/alice", json!({"role":"viewer"})).await;
    assert_eq!(me(&world, &token).await.1["permissions"], json!(["view"]));
    assert_eq!(call(&world, Some(&bob), "DELETE", "/api/tokens/ci?owner=alice", "").await.0, 403);
    let mut socket = world.client_as(&token).await;
    assert_eq!(call(&world, Some(&alice), "DELETE", "/api/tokens/ci", "").await.0, 200);
    assert_eq!(socket.closed().await, 1008);
    assert_eq!((me(&world, &token).await.0, me(&world, &alice).await.0), (401, 200));
    assert_eq!(owner(&world, "DELETE", "/api/tokens/ci?owner=bob", Value::Null).await.0, 200);
    assert!(list(TOKEN).await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn hosts_are_added_confirmed_revoked_and_forgotten() {
    let (world, _runner) = World::start().await;
    let (status, added) = owner(&world, "POST", "/api/hosts", json!({"host_id":"h1"})).await;
    assert_eq!((status, &added["host_id"]), (200, &json!("h1")));
    assert!(added["host_token"].as_str().unwrap().len() >= 40);
    assert_eq!(owner(&world, "POST", "/api/hosts", json!({"host_id":"h1"})).await.0, 409);
    assert_eq!(owner(&world, "POST", "/api/hosts", json!({"host_id":"r1"})).await.0, 409, "a runner's name");
    assert_eq!(owner(&world, "POST", "/api/hosts", json!({"host_id":"a/b"})).await.0, 400);
    let (status, made_up) = owner(&world, "POST", "/api/hosts", Value::Null).await;
    assert_eq!(status, 200);
    assert!(made_up["host_id"].as_str().unwrap().starts_with("host-"), "{made_up}");
    let state = async || {
        let (_, list) = owner(&world, "GET", "/api/hosts", Value::Null).await;
        let hosts = list["hosts"].as_array().unwrap();
        hosts.iter().find(|host| host["host_id"] == "h1").map(|host| host["state"].clone())
    };
    assert_eq!(state().await, Some(json!("trusted")));
    assert_eq!(owner(&world, "DELETE", "/api/hosts/h1", Value::Null).await.0, 200);
    assert_eq!(state().await, Some(json!("revoked")));
    let (_, list) = owner(&world, "GET", "/api/hosts", Value::Null).await;
    let shown = list["hosts"].as_array().unwrap().iter().find(|host| host["host_id"] == "h1");
    let confirm = json!({ "fingerprint": shown.unwrap()["fingerprint"] });
    assert_eq!(owner(&world, "POST", "/api/hosts/h1/confirm", confirm).await.0, 200);
    assert_eq!(state().await, Some(json!("trusted")));
    assert_eq!(owner(&world, "POST", "/api/hosts/nobody/confirm", Value::Null).await.0, 404);
    for _ in 0..2 {
        assert_eq!(owner(&world, "DELETE", "/api/hosts/h1", Value::Null).await.0, 200);
    }
    assert_eq!(state().await, None);
    assert_eq!(owner(&world, "DELETE", "/api/hosts/h1", Value::Null).await.0, 404);
    world.stop().await;
}

/// Only a token that was made to manage does; any other is at most an operator's, so that it skips no gate.
#[tokio::test]
async fn a_token_of_an_owner_manages_only_if_it_says_so() {
    let (world, _runner) = World::start().await;
    add_person(&world, "olga", "owner").await;
    let login = log_in(&world, "olga").await;
    for (name, scopes, role, permissions) in [
        ("all", Value::Null, "operator", json!(["view", "operate", "approve", "files", "shell"])),
        ("few", json!(["view", "shell"]), "operator", json!(["view", "shell"])),
        ("boss", json!(["view", "manage"]), "owner", json!(["view", "manage"])),
    ] {
        let mut body = json!({ "name": name });
        if !scopes.is_null() {
            body["scopes"] = scopes;
        }
        let token = world.new_token(&login, body).await;
        let expected = json!({"name":"olga","role":role,"access":"token","permissions":permissions});
        assert_eq!(me(&world, &token).await, (200, expected), "{name}");
        let may = if role == "owner" { 200 } else { 403 };
        assert_eq!(call(&world, Some(&token), "GET", "/api/people", "").await.0, may, "{name}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_token_revokes_itself_and_no_other() {
    let (world, _runner) = World::start().await;
    add_person(&world, "alice", "operator").await;
    let login = log_in(&world, "alice").await;
    let one = world.new_token(&login, json!({"name":"one"})).await;
    let two = world.new_token(&login, json!({"name":"two"})).await;
    for path in ["/api/tokens/two", "/api/tokens/two?owner=alice", "/api/tokens/nobody"] {
        let (status, _, answer) = call(&world, Some(&one), "DELETE", path, "").await;
        assert_eq!(status, 403, "{path}: {answer}");
    }
    assert_eq!(me(&world, &two).await.0, 200);
    assert_eq!(call(&world, Some(&one), "DELETE", "/api/tokens/one", "").await.0, 200);
    assert_eq!(me(&world, &one).await.0, 401);
    assert_eq!(call(&world, Some(&login), "DELETE", "/api/tokens/two", "").await.0, 200);
    assert_eq!(me(&world, &two).await.0, 401);
    world.stop().await;
}
