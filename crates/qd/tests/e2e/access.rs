//! Who gets in: token, login link, names and origins.

use std::os::unix::fs::PermissionsExt;

use qd_testkit::mux::Mux;
use qd_wire::ErrorCode;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::{ok, sandbox};

/// One plain HTTP request; the whole answer as text.
async fn get(url: &str, path: &str, host: Option<&str>) -> String {
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", host.unwrap_or(address));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_token_opens_the_door_as_bearer_and_in_the_query_and_nothing_else_does() {
    let qd = sandbox().up().await;
    let bearer = format!("Bearer {}", qd.token());
    assert!(Mux::open(qd.url(), &[("authorization", &bearer)]).await.is_ok());
    let query = format!("{}?token={}", qd.url(), qd.token());
    assert!(Mux::open(&query, &[]).await.is_ok());
    let wrong = format!("{}?token=wrong", qd.url());
    for refused in [
        Mux::open(qd.url(), &[]).await,
        Mux::open(&wrong, &[]).await,
        Mux::open(qd.url(), &[("authorization", "Bearer ")]).await,
        Mux::open(qd.url(), &[("cookie", "qd_login=forged")]).await,
    ] {
        assert!(refused.err().unwrap().contains("401"));
    }
    let file = qd.sandbox().data_dir().join("owner-token");
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), qd.token());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(qd.sandbox().data_dir()).unwrap().permissions().mode() & 0o777, 0o700);
    let first = qd.token().to_owned();
    assert_eq!(qd.restart().await.token(), first, "the token stays");
}

#[tokio::test]
async fn other_sites_and_other_names_are_kept_out() {
    let qd = sandbox().up().await;
    let bearer = format!("Bearer {}", qd.token());
    let own = qd.url().to_owned();
    assert!(Mux::open(qd.url(), &[("authorization", &bearer), ("origin", &own)]).await.is_ok());
    for (name, value) in [("origin", "http://evil.example"), ("origin", "null"), ("host", "evil.example")] {
        let refused = Mux::open(qd.url(), &[("authorization", &bearer), (name, value)]).await;
        assert!(refused.err().unwrap().contains("403"), "{name}: {value}");
    }
    assert!(get(qd.url(), "/healthz", Some("evil.example")).await.starts_with("HTTP/1.1 403"));
    assert!(get(qd.url(), "/healthz", None).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn the_login_link_works_once_and_its_cookie_from_then_on() {
    let sandbox = sandbox();
    let mut child = sandbox.command(&["up", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let link = loop {
        let line = lines.next_line().await.unwrap().expect("the link is printed");
        if let Some(at) = line.find("http://") {
            break line[at..].trim().to_owned();
        }
    };
    let (url, path) = link.split_at(link.find("/login").unwrap());
    let answer = get(url, path, None).await;
    assert!(answer.starts_with("HTTP/1.1 3"), "{answer}");
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert!(Mux::open(url, &[("cookie", cookie)]).await.is_ok());
    let again = get(url, path, None).await;
    assert!(again.starts_with("HTTP/1.1 4") && !again.contains("set-cookie"), "{again}");
    child.kill().await.unwrap();
    let qd = sandbox.up().await;
    assert!(Mux::open(qd.url(), &[("cookie", cookie)]).await.is_ok(), "the login survives a restart");
    // Who has lost the link asks for another.
    let printed = ok(&qd.cli(&["login-link"]).await);
    let (url, path) = printed.trim().split_at(printed.find("/login").unwrap());
    assert_eq!(url, qd.url());
    assert!(get(url, path, None).await.contains("set-cookie: "), "{printed}");
    assert!(!get(url, path, None).await.contains("set-cookie: "), "once");
}

/// A token of the owner's that may only look reads where sessions work, and not the rest of the home directory.
#[tokio::test]
async fn a_token_that_may_look_does_not_read_the_home_directory() {
    let qd = sandbox().up().await;
    let home = qd.sandbox().home();
    std::fs::write(home.join("secret.txt"), "of the owner").unwrap();
    let work = home.join("project");
    std::fs::create_dir_all(&work).unwrap();
    std::fs::write(work.join("readme.txt"), "of the session").unwrap();
    qd.connect().await.create(json!({"harness": "demo", "cwd": work})).await;
    let read = |root: &std::path::Path, path: &str| json!({"cmd": "fs.read", "root": root, "path": path});
    for (name, scopes, may) in [
        ("wall", &["--scope", "view"][..], false),
        ("prompts", &["--scope", "view", "--scope", "operate"], false),
        ("editor", &["--scope", "view", "--scope", "files"], true),
        ("script", &[], true),
    ] {
        let token = ok(&qd.cli(&[&["token", "add", name], scopes].concat()).await).trim().to_owned();
        let mut mux = Mux::connect(qd.url(), &token).await;
        if may {
            assert_eq!(mux.ok(read(&home, "secret.txt")).await["content"], "of the owner", "{name}");
        } else {
            mux.refused_as(ErrorCode::PermissionDenied, read(&home, "secret.txt")).await;
            let search = json!({"cmd": "fs.search", "root": home, "query": "owner"});
            mux.refused_as(ErrorCode::PermissionDenied, search).await;
        }
        assert_eq!(mux.ok(read(&work, "readme.txt")).await["content"], "of the session", "{name}");
    }
}
