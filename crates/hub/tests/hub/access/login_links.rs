//! One-time links by which somebody signs in one more browser of theirs.

use serde_json::{Value, json};

use crate::access::people::{PASSWORD, add_person, call, log_in};
use crate::support::{TOKEN, World, assert_fields};

const BROWSER: (&str, &str) = ("Accept", "text/html,*/*");

/// A link of whoever has this token.
async fn link(world: &World, token: &str) -> Value {
    let (status, head, link) = call(world, Some(token), "POST", "/api/logins/links", "").await;
    assert_eq!(status, 200, "{link}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    link
}

/// Opens a link; gives status, where to, and the cookie.
async fn open(
    world: &World,
    link: &Value,
    headers: &[(&str, &str)],
) -> (u16, Option<String>, Option<String>) {
    let url = link["url"].as_str().unwrap();
    let path = url.strip_prefix(&format!("http://{}", world.address)).unwrap();
    let (status, head, _) = world.http(path, headers).await;
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let cookie = field("set-cookie: ").map(|cookie| cookie.split(';').next().unwrap().to_owned());
    (status, field("location: "), cookie)
}

async fn me(world: &World, cookie: &str) -> Value {
    let (status, _, body) = world.http("/api/me", &[("Cookie", cookie)]).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn a_link_signs_one_browser_in_as_its_maker_once() {
    let (world, _runner) = World::start().await;
    add_person(&world, "vera", "viewer").await;
    let vera = log_in(&world, "vera").await;
    for (token, name, role) in [(&*vera, "vera", "viewer"), (TOKEN, "owner", "owner")] {
        let link = link(&world, token).await;
        let (status, place, cookie) = open(&world, &link, &[BROWSER]).await;
        assert_eq!((status, place.as_deref()), (303, Some("/")));
        let cookie = cookie.unwrap();
        let who = me(&world, &cookie).await;
        assert_fields(&who, json!({"name": name, "role": role, "access": "login"}));
        let (_, _, logins) = world.http("/api/logins", &[("Cookie", &cookie)]).await;
        let logins: Value = serde_json::from_str(&logins).unwrap();
        let login =
            logins["logins"].as_array().unwrap().iter().find(|login| login["current"] == true).unwrap();
        // It was made just before, so what is left of its five minutes is nearly all.
        let left = link["expires_at"].as_i64().unwrap() - login["created_at"].as_i64().unwrap();
        assert!((200_000..=300_000).contains(&left), "{left}");
        // Again: who is signed in goes on to the app, who is not is told there, and a program is told plainly.
        let again = open(&world, &link, &[BROWSER, ("Cookie", &cookie)]).await;
        assert_eq!(again, (303, Some("/".to_owned()), None));
        let again = open(&world, &link, &[BROWSER]).await;
        assert_eq!(again, (303, Some("/welcome?link=unusable".to_owned()), None));
        assert_eq!(open(&world, &link, &[]).await, (401, None, None));
    }
    // The new login is one of vera's like the other, and ends like it.
    let (_, _, logins) = call(&world, Some(&vera), "GET", "/api/logins", "").await;
    assert_eq!(logins["logins"].as_array().unwrap().len(), 2);
    let (_, audit) = world.api("GET", "/api/audit?kind=login&principal=vera").await;
    assert!(
        audit.to_string().contains("made a sign-in link") && audit.to_string().contains("with a code"),
        "{audit}"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_link_is_void_when_its_maker_may_not_come_in() {
    let (world, _runner) = World::start().await;
    // The login that has made it is ended.
    add_person(&world, "anna", "operator").await;
    let anna = log_in(&world, "anna").await;
    let made = link(&world, &anna).await;
    assert_eq!(call(&world, Some(&anna), "POST", "/logout", "").await.0, 303);
    assert_eq!(open(&world, &made, &[]).await.0, 401);
    // The password changes, the person is disabled, or removed.
    for (method, change) in [
        ("PATCH", json!({"password":"another password"})),
        ("PATCH", json!({"disabled":true})),
        ("DELETE", Value::Null),
    ] {
        let again = json!({"password":PASSWORD,"disabled":false}).to_string();
        assert_eq!(call(&world, Some(TOKEN), "PATCH", "/api/people/anna", &again).await.0, 200);
        let anna = log_in(&world, "anna").await;
        let made = link(&world, &anna).await;
        let body = if change.is_null() { String::new() } else { change.to_string() };
        assert_eq!(call(&world, Some(TOKEN), method, "/api/people/anna", &body).await.0, 200);
        assert_eq!(open(&world, &made, &[]).await.0, 401, "{change}");
    }
    world.stop().await;
}

#[tokio::test]
async fn tokens_and_strangers_make_no_links() {
    let (world, _runner) = World::start().await;
    assert_eq!(call(&world, None, "POST", "/api/logins/links", "").await.0, 401);
    let token = world.token_of("ci").await;
    let (status, _, answer) = call(&world, Some(&token), "POST", "/api/logins/links", "").await;
    assert_eq!(status, 403, "{answer}");
    assert_eq!(answer["code"], "permission_denied", "{answer}");
    world.stop().await;
}

/// The link leads to where its maker is: a page behind somebody who speaks TLS for the hub, another name of the hub.
#[tokio::test]
async fn a_link_leads_to_the_address_that_was_used() {
    let (world, mut runner) = World::start_as(tempfile::tempdir().unwrap(), |config| {
        config.allowed_hosts = vec!["deck.example".to_owned()];
    })
    .await;
    runner.hello().await;
    let bearer = format!("Bearer {TOKEN}");
    for (headers, expected) in [
        (vec![("Host", "deck.example:7710")], "http://deck.example:7710/login?code="),
        (
            vec![("Host", "deck.example"), ("Origin", "https://deck.example")],
            "https://deck.example/login?code=",
        ),
    ] {
        let mut headers = headers;
        headers.push(("Authorization", &bearer));
        let (status, _, body) = world.request("POST", "/api/logins/links", &headers).await;
        assert_eq!(status, 200, "{body}");
        let link: Value = serde_json::from_str(&body).unwrap();
        let code = link["code"].as_str().unwrap();
        assert_eq!(link["url"], format!("{expected}{code}"));
    }
    let headers = [("Host", "evil.example"), ("Authorization", &*bearer)];
    assert_eq!(world.request("POST", "/api/logins/links", &headers).await.0, 403);
    world.stop().await;
}
