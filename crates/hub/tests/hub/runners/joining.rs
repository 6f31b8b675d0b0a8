//! How a runner joins, proves who it is, gets a new key and is cut off.

use std::sync::Arc;
use std::time::Duration;

use qd_hub::INVITES_MAX;
use qd_link::clock;
use qd_link::runner::{ConnectFailure, HubConnector, RunnerDialer};
use qd_link::url::ServerUrl;
use qd_wire::ErrorCode;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Runner, TOKEN, UPGRADE, World, assert_fields, soon};

fn key_hash(key: &str) -> String {
    Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn join_body(code: &str, runner_id: &str, key: &str) -> Value {
    json!({"code":code,"runner_id":runner_id,"key_hash":key_hash(key),"hostname":"h","os":"linux","version":"1"})
}

impl World {
    async fn invite(&self) -> String {
        let (status, invite) = self.api("POST", "/api/runners/invites").await;
        assert_eq!(status, 200, "{invite}");
        invite["code"].as_str().unwrap().to_owned()
    }

    async fn post_join(&self, body: &str) -> (u16, Value) {
        let (status, _, answer) = self.request_with("POST", "/api/runners/join", &[], body).await;
        (status, serde_json::from_str(&answer).unwrap())
    }

    async fn join(&self, code: &str, runner_id: &str, key: &str) -> (u16, Value) {
        self.post_join(&join_body(code, runner_id, key).to_string()).await
    }

    async fn joined(&self, runner_id: &str, key: &str) {
        let (status, answer) = self.join(&self.invite().await, runner_id, key).await;
        assert_eq!((status, &answer["runner_id"]), (200, &runner_id.into()), "{answer}");
    }

    async fn dial(&self, runner_id: &str, key: &str) -> Result<Runner, ConnectFailure> {
        let url = ServerUrl::parse(&format!("http://{}", self.address)).unwrap();
        let key = key.to_owned();
        let dialer = RunnerDialer::new(url, runner_id, Arc::new(move || vec![key.clone()]));
        soon("an answer to the dial", dialer.connect()).await.map(Runner::over)
    }

    async fn refused(&self, runner_id: &str, key: &str) -> ErrorCode {
        let failure = self.dial(runner_id, key).await.err().unwrap();
        assert!(failure.is_refusal, "{failure}");
        failure.code.unwrap()
    }

    /// The status of an upgrade, and the code of a refusal.
    async fn link_status(&self, runner_id: Option<&str>, more: &[(&str, &str)]) -> (u16, String) {
        let name = runner_id.map(|runner_id| ("X-Qd-Runner", runner_id));
        let headers: Vec<_> = UPGRADE.iter().chain(more).copied().chain(name).collect();
        let (status, _, body) = self.http("/ws/runner", &headers).await;
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        (status, answer["code"].as_str().unwrap_or_default().to_owned())
    }
}

#[track_caller]
fn assert_error((answered, answer): (u16, Value), status: u16, code: ErrorCode) {
    assert_eq!((answered, &answer["code"]), (status, &json!(code.as_str())), "{answer}");
    assert!(answer["error"].is_string(), "{answer}");
}

/// Names are not told apart by who has no key: not those of runners, of revoked ones, nor the hub's own.
#[tokio::test]
async fn known_names_look_like_unknown_ones_without_their_key() {
    let (world, _runner) = World::start().await;
    world.joined("known", "key").await;
    world.joined("revoked", "old key").await;
    assert_eq!(world.api("DELETE", "/api/runners/revoked").await.0, 200);
    let answer = async |name: &str, key: Option<&str>| {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let name = [("X-Qd-Runner", name)];
        let key: Vec<_> = bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
        let (status, _, body) = world.http("/ws/runner", &[&name[..], &key[..], &UPGRADE[..]].concat()).await;
        (status, body)
    };
    for key in [Some("guess"), None] {
        let unknown = answer("unknown", key).await;
        assert_eq!(unknown.0, 401, "{}", unknown.1);
        for name in ["known", "revoked", "r1"] {
            assert_eq!(answer(name, key).await, unknown, "{name}");
        }
    }
    assert!(answer("revoked", Some("old key")).await.1.contains("revoked"), "it is told itself");
    world.stop().await;
}

#[tokio::test]
async fn a_runner_joins_with_a_code_and_its_link_works() {
    let (world, _local) = World::start().await;
    let (status, invite) = world.api("POST", "/api/runners/invites").await;
    assert_eq!(status, 200);
    let code = invite["code"].as_str().unwrap();
    assert!(!code.contains('.') && invite.get("fingerprint").is_none(), "{invite}");
    assert_fields(
        &invite,
        json!({"url": format!("http://{}", world.address),
        "command": format!("qd runner join http://{} --code {code}", world.address)}),
    );
    let life = invite["expires_at"].as_i64().unwrap() - clock::now_ms();
    assert!((240_000..=300_000).contains(&life), "{life}");

    let (status, joined) = world.join(code, "far", "key of far").await;
    assert_eq!((status, joined), (200, json!({"runner_id":"far"})));
    assert_fields(&world.is_shown("far", "offline").await, json!({"hostname": "h"}));
    let mut far = world.dial("far", "key of far").await.unwrap();
    assert_eq!(far.come_as("far").await["runner_id"], "far");
    world.is_shown("far", "online").await;
    world.stop().await;
    soon("the link's end", async { while far.link.receiver.recv().await.is_some() {} }).await;
}

#[tokio::test]
async fn wrong_used_and_taken_are_told_apart() {
    let (world, _local) = World::start().await;
    assert_error(world.join("nonsense", "far", "k").await, 401, ErrorCode::NotLoggedIn);

    let code = world.invite().await;
    assert_eq!(world.join(&code, "far", "k").await.0, 200);
    assert_eq!(world.join(&code, "far", "k").await.0, 200, "the answer was lost: the same again");
    assert_error(world.join(&code, "other", "k").await, 410, ErrorCode::CodeExpired);
    assert_error(world.join(&code, "far", "other key").await, 410, ErrorCode::CodeExpired);

    let code = world.invite().await;
    assert_error(world.join(&code, "far", "other key").await, 409, ErrorCode::AlreadyExists);
    assert_error(world.join(&code, "r1", "k").await, 409, ErrorCode::AlreadyExists);
    assert_eq!(world.join(&code, "free", "k2").await.0, 200, "a refused name does not use the code up");
    assert!(world.store.runner("other").await.unwrap().is_none());
    world.stop().await;
}

#[tokio::test]
async fn two_who_use_a_code_at_once_are_one() {
    let (world, _local) = World::start().await;
    let code = world.invite().await;
    let (one, two) = tokio::join!(world.join(&code, "one", "k1"), world.join(&code, "two", "k2"));
    let mut statuses = [one.0, two.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 410]);
    assert_eq!(world.store.runners().await.unwrap().iter().filter(|row| !row.key_hash.is_empty()).count(), 1);
    world.stop().await;
}

thread_local! {
    static LATER: std::cell::Cell<i64> = const { std::cell::Cell::new(1_000_000) };
}

#[tokio::test]
async fn an_expired_code_is_told_so() {
    // A test has a thread of its own, so the clock is nobody else's.
    clock::simulate(Some(|| LATER.get()));
    let (world, _local) = World::start().await;
    let code = world.invite().await;
    LATER.set(1_299_999);
    assert_eq!(world.join(&code, "early", "k").await.0, 200);
    let code = world.invite().await;
    LATER.set(1_600_000);
    assert_error(world.join(&code, "late", "k").await, 410, ErrorCode::CodeExpired);
    clock::simulate(None);
    world.stop().await;
}

#[tokio::test]
async fn what_is_no_join_is_answered_with_what_is_wrong_with_it() {
    let (world, _local) = World::start().await;
    let code = world.invite().await;
    let body = |field: &str, value: Value| {
        let mut body = join_body(&code, "far", "k");
        body[field] = value;
        body.to_string()
    };
    for (body, about) in [
        ("nonsense".to_owned(), "no join request"),
        ("{}".to_owned(), "no join request"),
        (body("runner_id", "".into()), "'runner_id'"),
        (body("runner_id", "a/b".into()), "'runner_id'"),
        (body("runner_id", "ä".into()), "'runner_id'"),
        (body("runner_id", "..".into()), "'runner_id' cannot be"),
        (body("runner_id", "join".into()), "'runner_id' cannot be"),
        (body("runner_id", "x".repeat(65).into()), "'runner_id'"),
        (body("key_hash", "00".into()), "'key_hash'"),
        (body("key_hash", "zz".repeat(32).into()), "'key_hash'"),
        (body("key_hash", "ä".repeat(32).into()), "'key_hash'"),
        (body("hostname", "x\ny".into()), "'hostname'"),
        (body("os", "x".repeat(257).into()), "'os'"),
        (body("version", "x".repeat(70 << 10).into()), "cannot be read"),
    ] {
        let answer = world.post_join(&body).await;
        assert!(answer.1["error"].as_str().unwrap().contains(about), "{answer:?}");
        assert_error(answer, 400, ErrorCode::InvalidRequest);
    }
    assert_eq!(world.join(&code, &"x".repeat(64), "k").await.0, 200, "the code is still good");
    world.stop().await;
}

#[tokio::test]
async fn only_the_owner_invites_lists_rotates_and_revokes() {
    let (world, _local) = World::start().await;
    world.joined("far", "k").await;
    for (method, path) in [
        ("POST", "/api/runners/invites"),
        ("GET", "/api/runners"),
        ("POST", "/api/runners/far/rotate"),
        ("DELETE", "/api/runners/far"),
    ] {
        assert_eq!(world.request(method, path, &[]).await.0, 401, "{method} {path}");
        let stranger = [("Authorization", "Bearer k")];
        assert_eq!(world.request(method, path, &stranger).await.0, 401, "a runner's key is not the owner's");
    }
    for (method, path) in [("POST", "/api/runners/none/rotate"), ("DELETE", "/api/runners/none")] {
        assert_error(world.api(method, path).await, 404, ErrorCode::RunnerNotFound);
    }
    assert_error(world.api("DELETE", "/api/runners/r1").await, 409, ErrorCode::Conflict);
    assert_error(world.api("POST", "/api/runners/far/rotate").await, 409, ErrorCode::RunnerOffline);
    world.stop().await;
}

#[tokio::test]
async fn open_invites_are_bounded() {
    let (world, _local) = World::start().await;
    for _ in 0..INVITES_MAX {
        world.invite().await;
    }
    assert_error(world.api("POST", "/api/runners/invites").await, 429, ErrorCode::RateLimited);
    world.stop().await;
}

#[tokio::test]
async fn a_link_needs_the_key_of_the_runner_it_names() {
    let (world, _local) = World::start().await;
    world.joined("a", "key of a").await;
    world.joined("b", "key of b").await;
    assert_eq!(world.refused("a", "nonsense").await, ErrorCode::NotLoggedIn);
    assert_eq!(world.refused("b", "key of a").await, ErrorCode::NotLoggedIn, "a stolen name");
    assert_eq!(world.refused("c", "key of a").await, ErrorCode::NotLoggedIn);
    assert_eq!(world.refused("r1", "key of a").await, ErrorCode::NotLoggedIn);
    assert_eq!(world.refused("a", TOKEN).await, ErrorCode::NotLoggedIn, "the owner is no runner");

    assert_eq!(world.link_status(Some("a"), &[]).await, (401, "not_logged_in".to_owned()));
    let bearer = ("Authorization", "Bearer key of a");
    for name in [None, Some(""), Some("a/b")] {
        assert_eq!(world.link_status(name, &[bearer]).await, (400, "invalid_request".to_owned()));
    }
    let no_upgrade = world.http("/ws/runner", &[bearer, ("X-Qd-Runner", "a")]).await;
    assert_eq!(no_upgrade.0, 400);
    assert_eq!(world.link_status(Some("a"), &[bearer]).await.0, 101);
    assert_eq!(world.link_status(Some("a"), &[bearer, ("Host", "any.example")]).await.0, 101);
    world.stop().await;
}

#[tokio::test]
async fn a_runner_that_says_another_name_than_its_key_proves_is_refused() {
    let (world, _local) = World::start().await;
    world.joined("a", "key of a").await;
    world.joined("b", "key of b").await;
    let mut thief = world.dial("a", "key of a").await.unwrap();
    thief.hello_as("b").await;
    assert_fields(&thief.line_of("runner.refused").await, json!({"code": "conflict"}));
    soon("the link's end", async { while thief.link.receiver.recv().await.is_some() {} }).await;
    let (_, list) = world.api("GET", "/api/runners").await;
    let runners = list["runners"].as_array().unwrap();
    assert!(
        runners.iter().all(|runner| runner["runner_id"] == "r1" || runner["status"] == "offline"),
        "{list}"
    );
    world.stop().await;
}

#[tokio::test]
async fn pages_of_browsers_have_no_business_at_the_runners_doors() {
    let (world, _local) = World::start().await;
    world.joined("a", "k").await;
    let own = format!("http://{}", world.address);
    let headers = [("Authorization", "Bearer k"), ("Origin", &own)];
    assert_eq!(world.link_status(Some("a"), &headers).await, (403, "forbidden_origin".to_owned()));
    let code = world.invite().await;
    let body = join_body(&code, "far", "k").to_string();
    let (status, _, _) = world.request_with("POST", "/api/runners/join", &[("Origin", &own)], &body).await;
    assert_eq!(status, 403);
    world.stop().await;
}

#[tokio::test]
async fn who_is_revoked_is_cut_off_and_may_join_again_with_a_new_code() {
    let (world, _local) = World::start().await;
    let code = world.invite().await;
    assert_eq!(world.join(&code, "far", "k").await.0, 200);
    let mut far = world.dial("far", "k").await.unwrap();
    far.come_as("far").await;
    let (status, answer) = world.api("DELETE", "/api/runners/far").await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(far.line_of("runner.refused").await["code"], "runner_revoked");
    soon("the link's end", async { while far.link.receiver.recv().await.is_some() {} }).await;
    assert_eq!(world.refused("far", "k").await, ErrorCode::RunnerRevoked);

    // An old code does not undo it.
    assert_error(world.join(&code, "far", "k").await, 410, ErrorCode::CodeExpired);
    assert_error(world.api("DELETE", "/api/runners/far").await, 409, ErrorCode::Conflict);
    world.joined("far", "new key").await;
    assert_eq!(world.refused("far", "k").await, ErrorCode::NotLoggedIn);
    let mut far = world.dial("far", "new key").await.unwrap();
    assert_eq!(far.come_as("far").await["runner_id"], "far");
    world.stop().await;
}

#[tokio::test]
async fn a_new_key_counts_from_its_first_use_and_the_old_one_until_then() {
    let (world, _local) = World::start().await;
    world.joined("far", "old").await;
    let mut far = world.dial("far", "old").await.unwrap();
    far.come_as("far").await;
    // The runner is known a moment after its welcome.
    soon("the order to make a new key", async {
        while world.api("POST", "/api/runners/far/rotate").await.0 != 202 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    far.line_of("runner.rotate").await;
    far.say(&json!({"type":"runner.rekey","key_hash":key_hash("new")}).to_string()).await;
    assert_eq!(far.line_of("runner.rekeyed").await["key_hash"], key_hash("new"));
    assert!(world.dial("far", "old").await.is_ok(), "the old key is good until the new one was used");
    assert!(world.dial("far", "new").await.is_ok());
    assert_eq!(world.refused("far", "old").await, ErrorCode::NotLoggedIn);
    assert!(world.dial("far", "new").await.is_ok());
    world.stop().await;
}
