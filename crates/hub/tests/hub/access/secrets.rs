//! Secrets are in no log, and what is stored is for its owner's eyes only.

use std::io;
use std::sync::Arc;

use qd_hub::Limits;
use qd_link::mutex::Mutex;
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

use crate::access::people::{PASSWORD, add_person, call, log_in};
use crate::support::{TOKEN, UPGRADE, World, world_with_session};

/// All that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

/// A login of a new person, an access token of hers, and the token of a host.
async fn secrets(world: &World) -> [String; 3] {
    add_person(world, "alice", "operator").await;
    let login = log_in(world, "alice").await;
    let token = world.new_token(&login, json!({"name":"ci"})).await;
    let (_, _, added) = call(world, Some(TOKEN), "POST", "/api/hosts", r#"{"host_id":"h1"}"#).await;
    [login, token, added["host_token"].as_str().unwrap().to_owned()]
}

#[tokio::test]
async fn hole_05_no_secret_is_logged() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::TRACE)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let [login, token, host_token] = secrets(&world).await;
    // Right and wrong ones, in query strings, headers and bodies.
    for secret in [TOKEN, &login, &token, "wrong-secret-in-query"] {
        for path in ["/api/sessions", "/ws/mux", "/ws/app", "/ws/pi", "/nowhere"] {
            world.http(&format!("{path}?token={secret}"), &[]).await;
            if path.starts_with("/ws") {
                world.http(&format!("{path}?token={secret}"), &UPGRADE).await;
            }
        }
    }
    for (host, secret) in [("h1", &*host_token), ("h1", "wrong-host-secret"), ("h2", "new-host-secret")] {
        world.http(&format!("/ws/host?host_id={host}&host_token={secret}"), &UPGRADE).await;
    }
    world.http("/login?code=wrong-login-code", &[]).await;
    world.http("/api/me", &[("Cookie", "qd_login=wrong-cookie")]).await;
    for body in [
        json!({"username":"alice","password":"wrong-password"}).to_string(),
        json!({"username":"typed-password","password":["odd-password"]}).to_string(),
    ] {
        call(&world, None, "POST", "/auth/login", &body).await;
    }
    // What a person types is nobody's business either.
    let mut client = world.client_as(&token).await;
    client.command("1", "s", "run.stdin", json!({"text":"my-sudo-password\n"})).await;
    runner.answer_next("{}").await;
    client.next().await;
    client.send_text(r#"{"cmd":"run.input","text":"broken-frame-secret""#).await;
    client.next().await;
    let input = r#"{"input_id":"i","text":"http-input-secret"}"#;
    let answer = async {
        runner.answer_next("{}").await;
    };
    tokio::join!(call(&world, Some(&login), "POST", "/runs/s/input", input), answer);
    world.stop().await;

    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(log.contains("there is a new access token"), "the log is caught: {log}");
    for secret in [TOKEN, &login, &token, &host_token, PASSWORD, "-secret", "-password", "wrong-login-code"]
        .into_iter()
        .chain(["wrong-cookie"])
    {
        assert!(!log.contains(secret), "'{secret}' is in the log:\n{log}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn hole_05_files_are_for_their_owner_only_and_hold_no_secret() {
    use std::os::unix::fs::PermissionsExt;
    let (world, _runner) = world_with_session(Limits::default()).await;
    let [login, token, host_token] = secrets(&world).await;
    let mut seen = 0;
    for entry in std::fs::read_dir(world.directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{path:?}");
        let bytes = std::fs::read(&path).unwrap();
        for secret in [&login, &token, &host_token, PASSWORD, TOKEN] {
            let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_there, "{secret} is in {path:?}");
        }
        seen += 1;
    }
    assert!(seen >= 2, "the database and its log");
    world.stop().await;
}
