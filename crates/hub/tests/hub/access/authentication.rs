use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{TOKEN, UPGRADE, World, assert_fields, soon};

async fn upgrade(world: &World, path: &str, more: &[(&str, &str)]) -> (u16, String) {
    let headers: Vec<_> = UPGRADE.iter().chain(more).copied().collect();
    let (status, head, body) = world.http(path, &headers).await;
    (status, head + &body)
}

#[tokio::test]
async fn bearer_cookie_and_query_open_the_socket_and_nothing_else_does() {
    let (world, _runner) = World::start().await;
    let bearer = format!("Bearer {TOKEN}");
    let (status, text) = upgrade(&world, "/ws/mux", &[("Authorization", &bearer)]).await;
    assert_eq!(status, 101);
    assert!(text.to_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{text}");
    assert_eq!(upgrade(&world, &format!("/ws/mux?token={TOKEN}"), &[]).await.0, 101);

    let code = world.codes.issue().unwrap();
    let (status, head, _) = world.http(&format!("/login?code={code}"), &[]).await;
    assert_eq!(status, 303, "{head}");
    assert!(head.contains("HttpOnly") && head.contains("SameSite=Strict"), "{head}");
    let cookie = head.split("qd_login=").nth(1).unwrap().split(';').next().unwrap();
    let cookie = format!("other=1; qd_login={cookie}");
    assert_eq!(upgrade(&world, "/ws/mux", &[("Cookie", &cookie)]).await.0, 101);
    assert_eq!(world.http(&format!("/login?code={code}"), &[]).await.0, 401, "a code works once");

    for scheme in ["BEARER", "bearer"] {
        let bearer = format!("{scheme} {TOKEN}");
        assert_eq!(upgrade(&world, "/ws/mux", &[("Authorization", &bearer)]).await.0, 101);
    }
    for wrong in [vec![], vec![("Authorization", "Bearer wrong")], vec![("Cookie", "qd_login=wrong")]] {
        let (status, text) = upgrade(&world, "/ws/mux", &wrong).await;
        assert_eq!(status, 401, "{wrong:?}");
        assert!(text.contains("login link"), "{text}");
    }
    assert_eq!(upgrade(&world, "/ws/mux?token=wrong", &[]).await.0, 401);
    world.stop().await;
}

#[tokio::test]
async fn other_names_and_origins_are_refused() {
    let (world, _runner) = World::start().await;
    let bearer = format!("Bearer {TOKEN}");
    let own = format!("http://{}", world.address);
    assert_eq!(upgrade(&world, "/ws/mux", &[("Authorization", &bearer), ("Origin", &own)]).await.0, 101);
    let (status, text) =
        upgrade(&world, "/ws/mux", &[("Authorization", &bearer), ("Origin", "http://evil.example")]).await;
    assert_eq!(status, 403);
    assert!(text.contains("evil.example"), "{text}");
    let (status, _, body) = world.http("/healthz", &[("Host", "evil.example")]).await;
    assert_eq!(status, 403);
    assert!(body.contains("evil.example"), "{body}");
    let here = world.address.to_string();
    assert_eq!(world.http("/healthz", &[("Host", "[::1]evil")]).await.0, 403);
    assert_eq!(world.http("/healthz", &[("Host", &here), ("Host", &here)]).await.0, 400);
    assert_eq!(world.http("/healthz", &[("Origin", &own), ("Origin", &own)]).await.0, 400);
    world.stop().await;
}

#[tokio::test]
async fn the_plain_routes_answer() {
    let (world, _runner) = World::start().await;
    let (status, _, body) = world.http("/healthz", &[]).await;
    let health: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &health["status"], &health["runners"]), (200, &"ok".into(), &1.into()));
    let (status, _, body) = world.http("/nowhere", &[]).await;
    assert_eq!(status, 404);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["code"], "not_found");
    assert_eq!(world.http("/api/sessions", &[]).await.0, 401);
    // An address gets into logs and histories, so a token in it opens only what cannot send headers.
    for path in ["/api/sessions", "/api/me", "/api/tokens", "/runs", "/server/logs/tail"] {
        assert_eq!(world.http(&format!("{path}?token={TOKEN}"), &[]).await.0, 401, "{path}");
    }
    assert_eq!(world.api("GET", "/api/sessions").await.0, 200);
    assert_eq!(world.http(&format!("/ws/mux?token={TOKEN}"), &[]).await.0, 400, "no WebSocket");
    world.stop().await;
}

#[tokio::test]
async fn the_first_frame_says_who_we_are_and_the_last_that_we_go() {
    let (world, _runner) = World::start().await;
    let mut client = world.silent_client().await;
    let connected = client.next().await;
    assert_fields(
        &connected,
        json!({"channel": "system", "type": "connected", "protocol_version": "1.0.0",
        "connection_id": "c1"}),
    );
    world.shutdown.cancel();
    assert_fields(&client.next().await, json!({"channel": "system", "type": "shutdown"}));
    assert_eq!(client.closed().await, 1001);
    drop(client);
    world.stop().await;
}

#[tokio::test]
async fn sockets_that_say_nothing_keep_nobody_out_for_long_and_do_not_hold_the_end_up() {
    let (world, _runner) = World::start().await;
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(tokio::net::TcpStream::connect(world.address).await.unwrap());
    }
    // Those who are too many are turned away, the others give up their place soon.
    soon("a place", async {
        loop {
            let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
            let request =
                format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", world.address);
            let mut answer = Vec::new();
            if stream.write_all(request.as_bytes()).await.is_ok()
                && stream.read_to_end(&mut answer).await.is_ok()
                && answer.starts_with(b"HTTP/1.1 200")
            {
                break;
            }
        }
    })
    .await;
    for _ in 0..500 {
        silent.push(tokio::net::TcpStream::connect(world.address).await.unwrap());
    }
    world.shutdown.cancel();
    let end = tokio::time::timeout(Duration::from_secs(3), world.server).await;
    assert!(end.is_ok(), "the hub waits for those who say nothing");
    world.store.close().await;
}

#[tokio::test]
async fn a_login_code_is_used_up_by_a_login_and_by_nothing_else() {
    let (world, _runner) = World::start().await;
    let code = world.codes.issue().unwrap();
    let path = format!("/login?code={code}");
    assert_eq!(world.request("HEAD", &path, &[]).await.0, 405);
    let (status, head, _) = world.http(&path, &[]).await;
    assert_eq!(status, 303, "{head}");
    let cookie = head.split("qd_login=").nth(1).unwrap().split(';').next().unwrap();
    let cookie = format!("qd_login={cookie}");
    assert_eq!(world.http("/api/sessions", &[("Cookie", &cookie)]).await.0, 200);
    let (status, head, _) = world.request("POST", "/logout", &[("Cookie", &cookie)]).await;
    assert!(status == 303 && head.contains("Max-Age=0"), "{head}");
    assert_eq!(world.http("/api/sessions", &[("Cookie", &cookie)]).await.0, 401);

    let path = format!("/login?code={}", world.codes.issue().unwrap());
    world.store.refuse_for_tests().await.unwrap();
    for _ in 0..2 {
        let (status, _, body) = world.http(&path, &[]).await;
        assert_eq!(status, 503, "{body}");
    }
    world.stop().await;
}
