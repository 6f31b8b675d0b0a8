//! The channels `files` and `terminal` of `/ws/mux`, and files over HTTP.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use qd_hub::Limits;
use serde_json::{Value, json};

use crate::support::{Client, Runner, TOKEN, World, answer, assert_fields, record, soon, world_with_session};

/// Gives what a client was told before this.
async fn told_until_now(client: &mut Client) -> Vec<Value> {
    client.send(&json!({"channel":"agent","id":"now","cmd":"no.such.command"})).await;
    let mut told = Vec::new();
    loop {
        let frame = client.next().await;
        if frame["id"] == "now" {
            return told;
        }
        told.push(frame);
    }
}

async fn watch(client: &mut Client, runner: &mut Runner, id: &str, path: &str) -> Value {
    client
        .send(&json!({"channel":"files","type":"watch_files","id":id,"workspace_path":path,"runner_id":"r1"}))
        .await;
    loop {
        let command = runner.command().await;
        if command["cmd"] == "fs.watch" {
            return command;
        }
    }
}

async fn progress(runner: &Runner, command: &Value, changes: Value) {
    let line = json!({"type":"progress","id":command["id"],"data":{"changes":changes,"overflow":false}});
    runner.say(&line.to_string()).await;
}

fn place(frame: &Value) -> (&str, &str) {
    (frame["type"].as_str().unwrap_or_default(), frame["id"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_watch_is_on_when_its_runner_says_so() {
    let (world, mut runner) = World::start().await;
    let mut client = world.client().await;
    let command = watch(&mut client, &mut runner, "a", "/w").await;
    assert!(told_until_now(&mut client).await.is_empty(), "nothing is promised yet");
    progress(&runner, &command, json!([])).await;
    assert_eq!(place(&client.next().await), ("watch_files_result", "a"));
    progress(&runner, &command, json!([{"change":"created","path":"f","is_dir":false}])).await;
    assert_eq!(client.next().await["type"], "file_changed");

    let command = watch(&mut client, &mut runner, "b", "/none").await;
    runner.refuse(&command, "there is no such directory").await;
    let told = client.next().await;
    assert_eq!((place(&told), &told["code"]), (("error", "b"), &json!("failed")));
    assert!(told_until_now(&mut client).await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_second_watch_of_a_directory_outlives_the_first() {
    let (world, mut runner) = World::start().await;
    let mut client = world.client().await;
    let first = watch(&mut client, &mut runner, "a", "/w").await;
    progress(&runner, &first, json!([])).await;
    assert_eq!(place(&client.next().await), ("watch_files_result", "a"));
    client
        .send(
            &json!({"channel":"files","type":"watch_files","id":"b","workspace_path":"/w","runner_id":"r1"}),
        )
        .await;
    assert_fields(&runner.command().await, json!({"cmd": "_cancel", "target": first["id"]}));
    let second = runner.command().await;
    assert_eq!(second["cmd"], "fs.watch");
    runner.refuse(&first, "cancelled").await;
    progress(&runner, &second, json!([])).await;
    assert_eq!(place(&client.next().await), ("watch_files_result", "b"), "the end of the first is no news");
    progress(&runner, &second, json!([{"change":"modified","path":"f","is_dir":false}])).await;
    assert_eq!(client.next().await["type"], "file_changed");

    // The same path elsewhere is another directory.
    client
        .send(&json!({"channel":"files","type":"unwatch_files","id":"x","workspace_path":"/w","runner_id":"r2"}))
        .await;
    assert_eq!(client.next().await["success"], false);
    client.send(&json!({"channel":"files","type":"unwatch_files","id":"c","workspace_path":"/w"})).await;
    let told = client.next().await;
    assert_eq!((place(&told), &told["success"]), (("unwatch_files_result", "c"), &json!(true)));
    assert_fields(&runner.command().await, json!({"cmd": "_cancel", "target": second["id"]}));

    // What is watched when the connection ends is taken back.
    let third = watch(&mut client, &mut runner, "d", "/w").await;
    runner.refuse(&second, "cancelled").await;
    progress(&runner, &third, json!([])).await;
    assert_eq!(place(&client.next().await), ("watch_files_result", "d"));
    drop(client);
    assert_fields(&runner.command().await, json!({"cmd": "_cancel", "target": third["id"]}));
    world.stop().await;
}

#[tokio::test]
async fn two_who_open_a_terminal_at_once_share_it() {
    let (world, mut runner) = World::start().await;
    let mut clients = [world.client().await, world.client().await];
    let mut creates = Vec::new();
    for client in &mut clients {
        let open = json!({"channel":"terminal","type":"open","id":"o","terminal_id":"t","workspace_path":"/w",
            "runner_id":"r1","cols":80,"rows":24});
        client.send(&open).await;
        let create = runner.command().await;
        assert_eq!((&create["cmd"], &create["session_id"]), (&json!("session.create"), &json!("t")));
        creates.push(create);
    }
    let created = record("t", 1, "session.created", r#","resumed":false,"harness":"terminal","cwd":"/w""#);
    let state = r#"{"resume":"ok","seq":1,"session_id":"t","state":{"status":"idle"},"pending_input":[]}"#;
    runner.say(&format!("{created}\n{}", answer(&creates[0], state))).await;
    runner.refuse(&creates[1], "Session 't' already exists; session.attach joins it").await;
    for _ in 0..2 {
        assert_eq!(runner.answer_next(&attached(1)).await["cmd"], "session.attach");
    }
    for (client, joined) in clients.iter_mut().zip([false, true]) {
        let opened = client.next().await;
        assert_eq!((place(&opened), &opened["joined"]), (("opened", "o"), &json!(joined)), "{opened}");
    }
    world.stop().await;
}

fn attached(seq: u64) -> String {
    let state = json!({"session_id":"t","runner_id":"r1","harness":"terminal","status":"working",
        "session_version":1,"seq":seq,"message_count":0,"queue":{"steering":[],"follow_up":[]},"pending_input":[]});
    let terminal = json!({"cols":80,"rows":24,"seq":seq,"scrollback":"","screen":"$ ","alternate":false});
    json!({"resume":"gap","seq":seq,"state":state,"pending_input":[],"terminal":terminal}).to_string()
}

/// A terminal `t` that is open for a client, with its screen.
async fn open_terminal(client: &mut Client, runner: &mut Runner) {
    let created = record("t", 1, "session.created", r#","resumed":false,"harness":"terminal","cwd":"/w""#);
    runner.say(&created).await;
    runner.line_of("ack").await;
    let open = json!({"channel":"terminal","type":"open","id":"o","terminal_id":"t","cols":80,"rows":24});
    client.send(&open).await;
    assert_eq!(runner.answer_next(&attached(1)).await["cmd"], "session.attach");
    assert_eq!(place(&on_screen(client).await), ("opened", "o"));
    assert_eq!(output(&on_screen(client).await), ("$ ".to_owned(), true));
}

/// The next frame of the channel.
async fn on_screen(client: &mut Client) -> Value {
    client.until(|frame| frame["channel"] == "terminal").await
}

/// What is printed, and whether the screen is cleared for it.
fn output(frame: &Value) -> (String, bool) {
    assert_eq!(frame["type"], "output", "{frame}");
    let bytes = STANDARD.decode(frame["data_base64"].as_str().unwrap()).unwrap();
    (String::from_utf8(bytes).unwrap(), frame["reset"] == true)
}

#[tokio::test]
async fn a_screen_is_followed_until_its_program_ends() {
    let (world, mut runner) = World::start().await;
    let mut client = world.client().await;
    open_terminal(&mut client, &mut runner).await;
    let printed = |seq, text: &str| {
        record("t", seq, "run.output", &format!(",\"stream\":\"stdout\",\"text\":\"{text}\""))
    };
    runner.say(&format!("{}\n{}", printed(2, "one "), printed(3, "t\\u0077o"))).await;
    let mut seen = String::new();
    while seen != "one two" {
        let (text, is_reset) = output(&on_screen(&mut client).await);
        assert!(!is_reset && "one two".starts_with(&format!("{seen}{text}")), "{seen}+{text}");
        seen.push_str(&text);
    }
    runner.say(&record("t", 4, "run.resized", r#","cols":100,"rows":30"#)).await;
    let resized = on_screen(&mut client).await;
    assert_fields(&resized, json!({"type": "resized", "cols": 100, "rows": 30}));
    runner
        .say(&format!("{}\n{}", printed(5, "bye"), record("t", 6, "run.exited", r#","exit_code":3"#)))
        .await;
    assert_eq!(output(&on_screen(&mut client).await).0, "bye");
    let exit = on_screen(&mut client).await;
    assert_eq!((&exit["type"], &exit["exit_code"]), (&json!("exit"), &json!(3)));
    // Nobody watches any more.
    runner.say(&printed(7, "again")).await;
    assert!(told_until_now(&mut client).await.iter().all(|frame| frame["channel"] != "terminal"));
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_could_not_keep_up_gets_the_screen_again() {
    const FLOOD: u64 = 400;
    let limits = Limits { ring_bytes_max: 64 << 10, ..Limits::default() };
    let (world, mut runner) = World::start_with(limits).await;
    let mut client = world.client().await;
    open_terminal(&mut client, &mut runner).await;
    let text = "x".repeat(48 << 10);
    for seq in 2..2 + FLOOD {
        runner
            .say(&record("t", seq, "run.output", &format!(",\"stream\":\"stdout\",\"text\":\"{text}\"")))
            .await;
    }
    let rejoined = async {
        assert_eq!(runner.answer_next(&attached(1 + FLOOD)).await["cmd"], "session.attach");
    };
    let told = async {
        let mut printed = 0;
        loop {
            let frame = on_screen(&mut client).await;
            if frame["type"] == "opened" {
                assert_eq!(frame["joined"], true);
                return printed;
            }
            printed += output(&frame).0.len();
        }
    };
    let (printed, ()) = soon("the screen", async { tokio::join!(told, rejoined) }).await;
    assert!(printed < text.len() * FLOOD as usize, "something was missed");
    assert_eq!(output(&on_screen(&mut client).await), ("$ ".to_owned(), true));
    runner.say(&record("t", 2 + FLOOD, "run.output", r#","stream":"stdout","text":"on""#)).await;
    assert_eq!(output(&on_screen(&mut client).await), ("on".to_owned(), false));
    world.stop().await;
}

/// The bytes that arrive of a file of two pages of four bytes; `second` is what the runner says of it with the second.
async fn downloaded(second: (u64, i64)) -> (String, String) {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let script = tokio::spawn(async move {
        for (offset, next, (size, modified_at)) in [(0, Some(4), (8, 5)), (4, None, second)] {
            let command = runner.command().await;
            assert_eq!((&command["cmd"], &command["offset"]), (&json!("fs.read"), &json!(offset)));
            let data = json!({"path":"f","content":STANDARD.encode("abcd"),"encoding":"base64","size":size,
                "offset":offset,"next_offset":next,"truncated":next.is_some(),"modified_at":modified_at});
            runner.answer(&command, &data.to_string()).await;
        }
        runner
    });
    let bearer = format!("Bearer {TOKEN}");
    let (status, head, body) = world.http("/api/sessions/s/file?path=f", &[("Authorization", &bearer)]).await;
    assert_eq!(status, 200, "{body}");
    drop(soon("the script", script).await.unwrap());
    world.stop().await;
    (head, body)
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_sent_is_not_taken_for_whole() {
    let (head, body) = downloaded((8, 5)).await;
    assert!(head.to_lowercase().contains("content-length: 8"), "{head}");
    assert_eq!(body, "abcdabcd");
    for second in [(8, 6), (9, 5), (7, 5)] {
        let (head, body) = downloaded(second).await;
        assert!(head.to_lowercase().contains("content-length: 8"), "{head}");
        assert!(body.len() < 8, "{second:?}: {body}");
    }
}
