//! The browser app as the hub serves it.

use qd_hub::AppFile;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Runner, TOKEN, World, soon};

const BROWSER: (&str, &str) = ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8");

const FIRST: &str =
    "<!doctype html><title>Quarterdeck</title><script type=module src=/assets/app-1.js></script>";

fn file(path: &'static str, mime: &'static str, content: &str, is_packed: bool) -> AppFile {
    let mut bytes = content.as_bytes().to_vec();
    if is_packed {
        // The hub needs nothing of a gzip file's head and end but their lengths.
        bytes = [&[0; 10][..], &miniz_oxide::deflate::compress_to_vec(&bytes, 6), &[0; 8]].concat();
    }
    AppFile { path, mime, tag: "W/\"1\"", length: content.len(), is_packed, bytes: bytes.leak() }
}

fn script() -> String {
    "console.log('hello');\n".repeat(1000)
}

/// A hub with an app of three files.
async fn world_with_app() -> (World, Runner) {
    let files = vec![
        file("/assets/app-1.js", "text/javascript; charset=utf-8", &script(), true),
        file("/icon.png", "image/png", "not really", false),
        file("/index.html", "text/html; charset=utf-8", FIRST, true),
    ];
    World::start_as(tempfile::tempdir().unwrap(), |config| config.app = files.leak()).await
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// The bytes of a body, which need not be text.
async fn body_bytes(world: &World, path: &str, headers: &[(&str, &str)]) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(world.request_text("GET", path, headers, "").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    soon("an answer", stream.read_to_end(&mut answer)).await.unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8(answer[..end].to_vec()).unwrap(), answer[end + 4..].to_vec())
}

/// Everybody gets the app, signed in or not; what is in it nobody gets without signing in.
#[tokio::test]
async fn every_page_of_the_app_is_its_first_page() {
    let (world, _runner) = world_with_app().await;
    let (status, head, first) = world.http("/", &[]).await;
    assert_eq!((status, &*first), (200, FIRST));
    assert_eq!(header(&head, "content-type"), Some("text/html; charset=utf-8"));
    for page in ["/new", "/s/abc", "/s/abc/files/src/main.rs", "/history?q=x", "/settings/people", "/welcome"]
    {
        let (status, _, body) = world.http(page, &[BROWSER]).await;
        assert_eq!((status, &body), (200, &first), "{page}");
    }
    let (status, head, body) = world.request("HEAD", "/", &[]).await;
    assert_eq!((status, &*body), (200, ""));
    assert_eq!(header(&head, "content-length"), Some(&*first.len().to_string()));
    assert_eq!(world.http("/api/sessions", &[BROWSER]).await.0, 401);
    world.stop().await;
}

/// A hub that was built without the app says so, and how to have it.
#[tokio::test]
async fn without_an_app_there_is_a_page_that_says_how_to_build_it() {
    let (world, _runner) = World::start().await;
    for path in ["/", "/s/abc", "/settings"] {
        let (status, _, page) = world.http(path, &[BROWSER]).await;
        assert_eq!(status, 200);
        assert!(page.contains("make web") && page.contains("<code>owner-token</code>"), "{page}");
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("style"), "{page}");
    }
    world.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let (world, _runner) = world_with_app().await;
    for path in ["/api/nothing", "/ws/nothing", "/auth/nothing", "/runs/a/b/c", "/assets/gone.js"] {
        let (status, head, body) = world.http(path, &[BROWSER]).await;
        assert_eq!((status, header(&head, "content-type")), (404, Some("application/json")), "{path}");
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["code"], "not_found");
    }
    // A person who has mistyped an address sees the app, a program is told plainly.
    for of_a_face in ["/runs/x/y/z", "/sessions/a/b/c", "/hosts/x", "/server/x", "/health/x"] {
        let (status, head, _) = world.http(of_a_face, &[BROWSER]).await;
        assert_eq!((status, header(&head, "content-type")), (404, Some("application/json")), "{of_a_face}");
    }
    let (status, head, _) = world.http("/nowhere", &[BROWSER]).await;
    assert_eq!((status, header(&head, "content-type")), (404, Some("text/html; charset=utf-8")));
    assert_eq!(header(&world.http("/nowhere", &[]).await.1, "content-type"), Some("application/json"));
    assert_eq!(world.request("POST", "/s/abc", &[]).await.0, 404);
    world.stop().await;
}

#[tokio::test]
async fn files_are_packed_for_those_who_unpack_and_sent_once() {
    let (world, _runner) = world_with_app().await;
    let path = "/assets/app-1.js";
    let (plain_head, plain) = body_bytes(&world, path, &[]).await;
    assert_eq!(header(&plain_head, "content-encoding"), None);
    assert_eq!(plain, script().as_bytes());
    for (takes, is_packed) in [("br, gzip", true), ("gzip;q=0, br", false)] {
        let (head, body) = body_bytes(&world, path, &[("Accept-Encoding", takes)]).await;
        assert_eq!(header(&head, "content-encoding"), is_packed.then_some("gzip"));
        assert_eq!(header(&head, "content-type"), Some("text/javascript; charset=utf-8"));
        assert_eq!(header(&head, "vary"), Some("accept-encoding"));
        let unpacked = || miniz_oxide::inflate::decompress_to_vec(&body[10..body.len() - 8]).unwrap();
        assert_eq!(if is_packed { unpacked() } else { body.clone() }, plain);
    }
    let (head, image) = body_bytes(&world, "/icon.png", &[("Accept-Encoding", "gzip")]).await;
    assert_eq!((header(&head, "content-encoding"), &image[..]), (None, &b"not really"[..]));

    // What has its content in its name is kept for good, the rest is asked for again, and sent if it has changed.
    assert_eq!(header(&plain_head, "cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(header(&head, "cache-control"), Some("no-cache"));
    for page in ["/", "/s/abc", "/icon.png"] {
        let (status, head, body) = world.http(page, &[("If-None-Match", "\"0\", W/\"1\"")]).await;
        assert_eq!((status, &*body, header(&head, "etag")), (304, "", Some("W/\"1\"")), "{page}");
        assert_eq!(world.http(page, &[("If-None-Match", "\"other\"")]).await.0, 200);
    }
    world.stop().await;
}

/// Also on refusals, redirects and errors.
#[tokio::test]
async fn every_answer_says_what_a_browser_must_not_do_with_it() {
    let (world, _runner) = world_with_app().await;
    let bearer = format!("Bearer {TOKEN}");
    let code = format!("/login?code={}", world.codes.issue().unwrap());
    for (path, expected) in [
        ("/", 200),
        ("/s/abc", 200),
        ("/api/openapi.json", 200),
        ("/api/sessions", 401),
        ("/api/nothing", 404),
        ("/healthz", 200),
        ("/runs", 401),
        ("/ws/mux", 401),
        ("/ws/runner", 400),
        (&*code, 303),
    ] {
        let (status, head, _) = world.http(path, &[]).await;
        assert_eq!(status, expected, "{path}");
        let policy = header(&head, "content-security-policy").unwrap();
        for rule in
            ["default-src 'self'", "script-src 'self';", "frame-ancestors 'none'", "object-src 'none'"]
        {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(header(&head, "x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(header(&head, "referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(header(&head, "cross-origin-opener-policy"), Some("same-origin"), "{path}");
        assert!(header(&head, "permissions-policy").unwrap().contains("camera=()"), "{path}");
    }
    let (_, head, _) = world.http("/api/sessions", &[("Authorization", &bearer)]).await;
    assert_eq!(header(&head, "cache-control"), Some("no-store"));
    assert_eq!(world.http("/", &[("Host", "evil.example")]).await.0, 403);
    let (_, head, _) = world.http("/", &[("Host", "evil.example")]).await;
    assert!(header(&head, "content-security-policy").is_some());
    world.stop().await;
}
