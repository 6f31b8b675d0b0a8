//! How a machine becomes a runner, and who does not.

use std::os::unix::fs::PermissionsExt;

use qd_testkit::qd::Qd;
use rustix::process::Signal;
use serde_json::json;

use super::{
    create_on, fleet, invite_code, runner, session_on, until_local_status, until_said, until_status,
};
use crate::{assert_fields, err, failed, ok, ok_json, out, sandbox, signal};

/// A hub with its own certificate.
async fn tls_hub() -> Qd {
    let mut sandbox = sandbox();
    sandbox.argument("--tls").argument("on");
    sandbox.up().await
}

#[tokio::test]
async fn a_second_machine_joins_runs_sessions_leaves_and_returns() {
    let (qd, mut mux, desk) = fleet().await;
    assert_fields(desk.ready(), json!({"runner_id": "desk", "url": qd.url(), "pid": desk.pid()}));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(desk.socket()), 0o600);
    assert_eq!(mode(&desk.sandbox().membership_path()), 0o600);
    assert_eq!(mode(desk.sandbox().membership_path().parent().unwrap()), 0o700);
    let session = session_on(&mut mux, "desk").await;
    let events = mux.prompt(&session, "/tools").await;
    assert!(events.iter().all(|event| event["runner_id"] == "desk"));
    assert_eq!(events.last().unwrap()["reason"], "stop");
    let messages = mux.messages(&session).await;
    let list = ok(&qd.cli(&["ls"]).await);
    assert!(list.contains("RUNNER") && list.contains("desk"), "{list}");
    let listed = ok(&qd.cli(&["runner", "list"]).await);
    assert!(listed.contains("desk") && listed.contains("local") && listed.contains("demo"), "{listed}");

    let sandbox = desk.terminate().await;
    until_status(&mut mux, "desk", "offline").await;
    assert_eq!(mux.messages(&session).await, messages, "the hub has a copy");
    assert!(ok(&qd.cli(&["ls"]).await).contains("offline"));
    let logs = ok(&qd.cli(&["logs", &session]).await);
    assert!(logs.starts_with("> /tools\n"), "{logs}");
    let attached = qd.cli(&["attach", &session]).await;
    assert!(ok(&attached).contains("Both tools are done"));
    assert!(err(&attached).contains("desk is offline"), "{}", err(&attached));
    let refused = failed(&qd.cli(&["send", &session, "hello"]).await, 3);
    assert!(refused.contains("desk") && refused.contains("--wait"), "{refused}");
    failed(&qd.cli(&["abort", &session]).await, 3);
    assert!(mux.refused(create_on("desk")).await.contains("desk"));

    let _desk = sandbox.runner().await;
    until_status(&mut mux, "desk", "online").await;
    let events = mux.attach_and_prompt(&session, "/text").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    let after = mux.messages(&session).await;
    assert_eq!(after[..messages.len()], messages[..]);
    assert_eq!(after.len(), messages.len() + 2);
}

#[tokio::test]
async fn a_hub_with_its_own_certificate_is_known_by_its_code() {
    let qd = tls_hub().await;
    assert!(qd.url().starts_with("https://127.0.0.1:"), "{}", qd.url());
    let invite = qd.invite().await;
    let fingerprint = invite["fingerprint"].as_str().unwrap().to_owned();
    assert!(invite["code"].as_str().unwrap().ends_with(&format!(".{fingerprint}")));
    let desk = qd.machine(sandbox(), "desk").await;
    assert_eq!(desk.sandbox().membership()["fingerprint"], fingerprint.as_str());
    let run = ["run", "--harness", "demo", "--runner", "desk", "--wait", "30", "hello"];
    let said = ok(&qd.cli(&run).await);
    assert!(said.contains("demo agent"), "{said}");
    let listed = ok(&qd.cli(&["runner", "list"]).await);
    assert!(listed.lines().any(|line| line.starts_with("desk") && line.contains("online")), "{listed}");
    assert_eq!(ok_json(&qd.cli(&["ls", "--json"]).await)[0]["runner_id"], "desk");

    // From elsewhere, with an address and a token.
    let elsewhere = sandbox();
    let ls = ["ls", "--url", qd.url(), "--token", qd.token()];
    for (more, code, text) in [
        (&[][..], 1, "--fingerprint"),
        (&["--fingerprint", &"ab".repeat(32)], 1, "another certificate"),
        (&["--fingerprint", "abc"], 2, "not a fingerprint"),
        (&["--fingerprint", &fingerprint], 0, ""),
    ] {
        let output = elsewhere.run(&[&ls, more].concat()).await;
        assert_eq!(output.status.code(), Some(code), "{more:?}: {}", err(&output));
        assert!(err(&output).contains(text), "{more:?}: {}", err(&output));
    }
    let doctor = ok(&desk.cli(&["doctor"]).await);
    assert!(doctor.contains("with the certificate that was joined"), "{doctor}");
    assert!(doctor.contains("a runner answers at"), "{doctor}");
}

#[tokio::test]
async fn wrong_used_and_damaged_codes_are_told_apart() {
    let qd = sandbox().up().await;
    let machine = sandbox();
    let wrong = failed(&machine.join(qd.url(), "AAAAAAAAAAAAAAAAAAAAAA", "desk").await, 1);
    assert!(wrong.contains("not one of this hub's") && wrong.contains("qd runner invite"), "{wrong}");
    assert!(!machine.membership_path().exists(), "a refused attempt leaves nothing");
    let damaged = failed(&machine.join(qd.url(), "a b", "desk").await, 2);
    assert!(damaged.contains("copy the whole code"), "{damaged}");
    let name = failed(&machine.join(qd.url(), "AAAA", "two words").await, 2);
    assert!(name.contains("letters"), "{name}");
    let code = invite_code(&qd).await;
    ok(&machine.join(qd.url(), &code, "desk").await);
    let used = failed(&sandbox().join(qd.url(), &code, "attic").await, 1);
    assert!(used.contains("has been used"), "{used}");
    let code = invite_code(&qd).await;
    let taken = failed(&sandbox().join(qd.url(), &code, "desk").await, 1);
    assert!(taken.contains("has joined before") && taken.contains("--name"), "{taken}");
    let own = failed(&sandbox().join(qd.url(), &code, "local").await, 1);
    assert!(own.contains("hub's own runner"), "{own}");
    ok(&sandbox().join(qd.url(), &code, "attic").await);
    until_said(|| qd.stderr(), "refused").await;
    assert!(!qd.stderr().contains(&code), "{}", qd.stderr());

    let again = failed(&machine.join(qd.url(), &code, "desk").await, 1);
    assert!(again.contains(qd.url()) && again.contains("--force"), "{again}");
    let other = sandbox().up().await;
    let refused = ["runner", "join", other.url(), "--code", "AAAA", "--no-start", "--force"];
    failed(&machine.run(&refused).await, 1);
    assert_eq!(machine.membership()["url"], qd.url(), "a refused attempt leaves the old membership");
    let code = invite_code(&other).await;
    let force = ["runner", "join", other.url(), "--code", &code, "--name", "desk", "--no-start", "--force"];
    ok(&machine.run(&force).await);
    assert_eq!(machine.membership()["url"], other.url());
    let hub_dir = failed(&other.sandbox().join(qd.url(), "AAAA", "desk").await, 2);
    assert!(hub_dir.contains("--data-dir"), "{hub_dir}");
}

/// A way to a hub on which the second answer is lost: the first says whether the hub knows the machine.
async fn losing_second_answer(hub: &str) -> String {
    use tokio::io::AsyncReadExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let hub = hub.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        let mut calls = 0;
        while let Ok((mut caller, _)) = listener.accept().await {
            let mut called = tokio::net::TcpStream::connect(&hub).await.unwrap();
            calls += 1;
            if calls == 2 {
                let (mut from_caller, _to_caller) = caller.split();
                let (mut answer, mut to_hub) = called.split();
                tokio::select! {
                    _ = tokio::io::copy(&mut from_caller, &mut to_hub) => {}
                    _ = answer.read_u8() => {}
                }
                continue;
            }
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut caller, &mut called).await });
        }
    });
    url
}

#[tokio::test]
async fn a_machine_stays_with_its_hub_until_another_one_has_said_yes() {
    let (first, second) = (sandbox().up().await, sandbox().up().await);
    let machine = first.machine(sandbox(), "desk").await.terminate().await;
    let before = machine.membership();
    assert!(machine.data_dir().join("runner.db").exists());
    let code = invite_code(&second).await;
    let join = async |url: &str| {
        machine.run(&["runner", "join", url, "--code", &code, "--no-start", "--force"]).await
    };
    let nobody = failed(&join("http://127.0.0.1:1").await, 3);
    assert!(nobody.contains("no server answers"), "{nobody}");
    assert_eq!(machine.membership(), before, "nobody was asked");

    let url = losing_second_answer(second.url()).await;
    let lost = failed(&join(&url).await, 3);
    assert!(lost.contains("may have accepted") && lost.contains(first.url()), "{lost}");
    let between = machine.membership();
    assert_fields(&between, json!({"url": before["url"], "key": before["key"], "attempt/url": url.as_str()}));
    let doctor = out(&machine.run(&["doctor"]).await);
    assert!(doctor.contains(&format!("joining {url} was started")), "{doctor}");
    let desk = machine.runner().await;
    assert_eq!(desk.ready()["url"], first.url(), "it works for the hub that knows it");
    until_said(|| desk.stderr(), "never confirmed").await;
    let mut mux = first.connect().await;
    until_status(&mut mux, "desk", "online").await;
    let machine = desk.terminate().await;

    ok(&machine.run(&["runner", "join", &url, "--code", &code, "--no-start", "--force"]).await);
    let after = machine.membership();
    assert_eq!((&after["url"], &after["key"]), (&json!(url), &between["attempt"]["key"]));
    assert_eq!(after.get("attempt"), None);
    assert!(!machine.data_dir().join("runner.db").exists(), "the sessions of the first hub are set aside");
}

#[tokio::test]
async fn a_hub_that_has_moved_keeps_its_runner_and_its_sessions() {
    let qd = sandbox().up().await;
    let machine = qd.machine(sandbox(), "desk").await.terminate().await;
    let before = machine.membership();
    let code = invite_code(&qd).await;
    let elsewhere = qd.url().replace("127.0.0.1", "localhost");
    let moved = machine.run(&["runner", "join", &elsewhere, "--code", &code, "--no-start", "--force"]).await;
    assert!(ok(&moved).contains("as 'desk'"), "the name it had: {}", out(&moved));
    assert!(err(&moved).contains("sessions are kept"), "{}", err(&moved));
    let after = machine.membership();
    assert_eq!((&after["url"], &after["key"]), (&json!(elsewhere), &before["key"]));
    assert!(machine.data_dir().join("runner.db").exists());
    let _desk = machine.runner().await;
    until_status(&mut qd.connect().await, "desk", "online").await;
}

#[tokio::test]
async fn a_code_comes_from_the_environment_or_from_stdin() {
    use tokio::io::AsyncWriteExt;
    let qd = sandbox().up().await;
    let mut machine = sandbox();
    let arguments = ["runner", "join", qd.url(), "--name", "desk", "--no-start"];
    let nothing = failed(&machine.run(&arguments).await, 2);
    assert!(nothing.contains("--code"), "{nothing}");
    let code = invite_code(&qd).await;
    let mut child = machine.command(&arguments).stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{code}\n").as_bytes()).await.unwrap();
    let joined = child.wait_with_output().await.unwrap();
    assert!(ok(&joined).contains("joined"));
    machine.set("QD_RUNNER_CODE", qd.invite().await["code"].as_str().unwrap());
    let arguments = ["runner", "join", qd.url(), "--name", "attic", "--no-start", "--force", "--json"];
    assert_eq!(ok_json(&machine.run(&arguments).await)["runner_id"], "attic");
}

#[tokio::test]
async fn a_hub_that_shows_another_certificate_gets_nothing() {
    let qd = tls_hub().await;
    let machine = sandbox();
    let code = invite_code(&qd).await;
    let (secret, _) = code.split_once('.').unwrap();
    let wrong = failed(&machine.join(qd.url(), &format!("{secret}.{}", "ab".repeat(32)), "desk").await, 1);
    assert!(wrong.contains("another certificate"), "{wrong}");
    let nobody = failed(&machine.join(qd.url(), secret, "desk").await, 1);
    assert!(nobody.contains("trust"), "{nobody}");
    let plain = qd.url().replace("https", "http");
    let plain = failed(&machine.join(&plain, &code, "desk").await, 2);
    assert!(plain.contains("https://"), "{plain}");
    // The code was never shown to a stranger, so it is still good.
    ok(&machine.join(qd.url(), &code, "desk").await);
    let elsewhere = failed(&sandbox().join("http://192.0.2.1:7433", "AAAA", "desk").await, 2);
    assert!(elsewhere.contains("does not encrypt") && elsewhere.contains("--allow-plain"), "{elsewhere}");
}

#[tokio::test]
async fn join_starts_the_runner_and_says_how_it_goes() {
    use tokio::io::AsyncReadExt;
    let qd = sandbox().up().await;
    let machine = sandbox();
    let code = invite_code(&qd).await;
    let mut child =
        machine.command(&["runner", "join", qd.url(), "--code", &code, "--name", "desk"]).spawn().unwrap();
    let mut mux = qd.connect().await;
    until_status(&mut mux, "desk", "online").await;
    assert_eq!(runner(&mut mux, "desk").await["harnesses"], json!(["demo", "pty", "terminal"]));
    // Two of them cannot share a directory, and no server can use it.
    for arguments in [&["runner", "start"][..], &["up", "--listen", "127.0.0.1:0"]] {
        let taken = failed(&machine.run(arguments).await, 1);
        assert!(taken.contains("already uses the data directory"), "{taken}");
    }
    let status = until_local_status(&machine, ": connected").await;
    assert!(status.contains("desk"), "{status}");
    signal(i32::try_from(child.id().unwrap()).unwrap(), Signal::TERM);
    let (mut said, mut noted) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut said).await.unwrap();
    child.stderr.take().unwrap().read_to_string(&mut noted).await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(0), "{noted}");
    assert!(said.contains("joined") && said.contains("qd runner status"), "{said}");
    assert!(noted.contains("connected to"), "{noted}");
    let server = failed(&machine.run(&["up", "--listen", "127.0.0.1:0"]).await, 2);
    assert!(server.contains("belongs to the runner 'desk'"), "{server}");
    let none = failed(&machine.run(&["runner", "status"]).await, 3);
    assert!(none.contains("qd runner start"), "{none}");
    let alone = failed(&sandbox().run(&["runner", "start"]).await, 1);
    assert!(alone.contains("qd runner invite"), "{}{alone}", out(&machine.run(&["ls"]).await));
}

#[tokio::test]
async fn a_runner_nobody_listens_to_stops_cleanly() {
    let (qd, mut mux, desk) = fleet().await;
    let session = session_on(&mut mux, "desk").await;
    let socket = desk.socket().to_owned();
    let machine = desk.kill9().await;
    let (nobody, closed) = std::io::pipe().unwrap();
    drop(nobody);
    let child = machine.command(&["runner", "start"]).stdout(closed).spawn().unwrap();
    let ended = child.wait_with_output().await.unwrap();
    assert_eq!(ended.status.code(), Some(0), "as every command whose reader has gone: {}", err(&ended));
    assert!(!socket.exists(), "it was stopped, not dropped");
    let _desk = machine.runner().await;
    until_status(&mut mux, "desk", "online").await;
    let events = mux.attach_and_prompt(&session, "/text").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    drop(qd);
}

#[tokio::test]
async fn two_runners_on_one_machine_have_two_sockets() {
    let runtime = tempfile::tempdir().unwrap();
    let in_runtime = || {
        let mut sandbox = sandbox();
        sandbox.set("XDG_RUNTIME_DIR", runtime.path());
        sandbox
    };
    let qd = in_runtime().up().await;
    let usual = runtime.path().join("qd-runner.sock");
    assert!(usual.exists());
    let desk = qd.machine(in_runtime(), "desk").await;
    assert_eq!(desk.socket(), desk.sandbox().data_dir().join("qd-runner.sock"));
    until_said(|| desk.stderr(), "another runner listens").await;
    let mine = until_local_status(desk.sandbox(), ": connected").await;
    assert!(mine.contains("desk"), "{mine}");
    assert!(until_local_status(qd.sandbox(), "in the same process").await.contains("local"));
    qd.terminate().await;
    assert!(!usual.exists(), "a clean stop takes the socket away");
    desk.terminate().await;
}

#[tokio::test]
async fn a_place_without_room_for_a_socket_is_a_warning_for_a_hub_and_an_error_for_a_runner() {
    let nowhere = |mut sandbox: qd_testkit::qd::Sandbox| {
        sandbox.set("QD_RUNNER_SOCKET", "/no/such/directory/qd.sock");
        sandbox
    };
    let qd = nowhere(sandbox()).up().await;
    until_said(|| qd.stderr(), "/no/such/directory").await;
    ok(&qd.cli(&["run", "--harness", "demo", "hello"]).await);
    let machine = nowhere(sandbox());
    let code = invite_code(&qd).await;
    ok(&machine.join(qd.url(), &code, "desk").await);
    let refused = failed(&machine.run(&["runner", "start"]).await, 1);
    assert!(refused.contains("--runner-socket off"), "{refused}");
    let mut machine = machine;
    let file = machine.path("notes");
    std::fs::write(&file, "mine").unwrap();
    machine.set("QD_RUNNER_SOCKET", &file);
    let refused = failed(&machine.run(&["runner", "start"]).await, 1);
    assert!(refused.contains("is not a socket"), "{refused}");
    let mut other = sandbox();
    other.set("QD_RUNNER_SOCKET", &file);
    let other = other.up().await;
    until_said(|| other.stderr(), "is not a socket").await;
    ok(&other.cli(&["run", "--harness", "demo", "hello"]).await);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    machine.set("QD_RUNNER_SOCKET", "off");
    let desk = machine.runner().await;
    assert_eq!(desk.ready()["socket"], json!(null));
    let local = failed(&desk.cli(&["ls", "--local"]).await, 3);
    assert!(local.contains("off"), "{local}");
    desk.terminate().await;
}

#[tokio::test]
async fn own_certificate_files_are_used_and_wrong_ones_are_named() {
    let first = tls_hub().await;
    let tls = first.sandbox().data_dir().join("tls");
    let (certificate, key) = (tls.join("cert.pem"), tls.join("key.pem"));
    let fingerprint = first.invite().await["fingerprint"].clone();
    let mut second = sandbox();
    second.set("QD_TLS_CERT", &certificate).set("QD_TLS_KEY", &key);
    let second = second.up().await;
    assert!(second.url().starts_with("https://"), "naming a certificate turns TLS on: {}", second.url());
    assert_eq!(second.invite().await["fingerprint"], fingerprint);
    let mut third = sandbox();
    third.set("QD_TLS_CERT", &certificate).set("QD_TLS_KEY", &certificate);
    let wrong = failed(&third.run(&["up", "--listen", "127.0.0.1:0"]).await, 1);
    assert!(wrong.contains("cert.pem") && wrong.contains("key"), "{wrong}");
    let off = failed(&third.run(&["up", "--listen", "127.0.0.1:0", "--tls", "off"]).await, 2);
    assert!(off.contains("tls is off"), "{off}");
}
