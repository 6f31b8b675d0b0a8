//! The permission table, asked at every face: each command, for each role and for tokens with few scopes.

use std::path::Path;
use std::sync::Arc;

use qd_hub::Limits;
use qd_link::mutex::Mutex;
use qd_wire::command_table::{self, COMMANDS, Permission};
use qd_wire::people::{Permissions, Role};
use qd_wire::pi_server::COMMANDS as PI_COMMANDS;
use qd_wire::run_protocol::{MessageDirection, TYPES};
use serde_json::{Value, json};

use crate::access::people::{add_person, call, log_in};
use crate::pi_server::support::{pi_world, relaxed};
use crate::support::{Client, Runner, TOKEN, World, world_with_session};

/// What a refusal begins with, on every face.
const DENIED: &str = "Permission denied: ";

/// Somebody with a way in.
struct Access {
    name: &'static str,
    role: Role,
    permissions: Permissions,
    token: String,
}

/// One of each role, two with scopes, and those that only the owner's token and tokens of the owner are.
async fn everybody(world: &World) -> Vec<Access> {
    let mut all = Vec::new();
    for (name, role) in [("vera", Role::Viewer), ("otto", Role::Operator), ("olga", Role::Owner)] {
        add_person(world, name, role.as_str()).await;
        all.push(Access { name, role, permissions: role.permissions(), token: log_in(world, name).await });
    }
    let scoped: [(&str, &[Permission]); 2] = [
        ("fs", &[Permission::View, Permission::Files]),
        ("answers", &[Permission::View, Permission::Approve]),
    ];
    for (name, scopes) in scoped {
        let words: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
        let token = world.new_token(&all[1].token, json!({"name":name,"scopes":words})).await;
        all.push(Access { name: "otto", role: Role::Operator, permissions: Permissions::of(scopes), token });
    }
    let token = world.token_of("ci").await;
    all.push(Access { name: "ci", role: Role::Operator, permissions: Role::Operator.permissions(), token });
    let permissions = Role::Owner.permissions();
    all.push(Access { name: "owner", role: Role::Owner, permissions, token: TOKEN.to_owned() });
    all
}

/// What the runner was asked; it refuses everything.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<Value>>>);

impl Asked {
    fn of(mut runner: Runner) -> Self {
        let asked = Self::default();
        let log = asked.clone();
        tokio::spawn(async move {
            loop {
                let command = runner.refuse_next("scripted").await;
                log.0.lock().push(command);
            }
        });
        asked
    }

    /// Takes what came, all of which must be from somebody who may, and under their name and role.
    fn check(&self, access: &Access) {
        for command in self.0.lock().drain(..) {
            let cmd = command["cmd"].as_str().unwrap();
            // What the hub asks on its own account.
            if command["user_id"] == "hub" || cmd.starts_with('_') {
                continue;
            }
            let spec = command_table::spec(cmd).unwrap();
            assert!(
                access.permissions.contains(spec.permission),
                "{} got through to the runner: {cmd}",
                access.name
            );
            assert_eq!(command["user_id"], access.name, "{cmd}");
            assert_eq!(command["user_role"], access.role.as_str(), "{cmd}");
            let words: Vec<&str> = access.permissions.iter().map(Permission::as_str).collect();
            assert_eq!(command["user_permissions"], words.join(" "), "{cmd}");
        }
    }
}

fn is_denied(frame: &Value) -> bool {
    frame.to_string().contains(DENIED)
}

/// Every row of the table on `/ws/mux` and over HTTP.
#[tokio::test]
async fn every_command_asks_for_its_permission_on_the_canonical_face() {
    let (world, runner) = world_with_session(Limits::default()).await;
    let all = everybody(&world).await;
    let asked = Asked::of(runner);
    for access in &all {
        let mut client = world.client_as(&access.token).await;
        for spec in COMMANDS {
            // A client cannot make itself somebody else.
            let mut frame = json!({"channel":"agent","id":spec.name,"session_id":"s","runner_id":"r1",
                "cmd":spec.name,"user_id":"owner","user_role":"owner","user_permissions":"manage"});
            if spec.name == "session.create" {
                frame["config"] = json!({"harness":"demo"});
            }
            client.send(&frame).await;
            let answer = client.until(|answer| answer["id"] == spec.name).await;
            let may = access.permissions.contains(spec.permission);
            assert_eq!(is_denied(&answer), !may, "{} {}: {answer}", access.name, spec.name);
            assert!(may || answer["success"] == false, "{answer}");
            frame.as_object_mut().unwrap().remove("channel");
            let (status, _, answer) =
                call(&world, Some(&access.token), "POST", "/api/commands", &frame.to_string()).await;
            assert_eq!(status == 403, is_denied(&answer), "{answer}");
            assert!(may != is_denied(&answer) || status == 400, "{} {}: {answer}", access.name, spec.name);
        }
        asked.check(access);
    }
    world.stop().await;
}

/// Runs and terminals are shells: a token for prompting does not open one.
#[tokio::test]
async fn a_run_needs_the_permission_for_a_shell() {
    let (world, runner) = world_with_session(Limits::default()).await;
    let asked = Asked::of(runner);
    let token = world.new_token(TOKEN, json!({"name":"prompts","scopes":["view","operate"]})).await;
    let mut client = world.client_as(&token).await;
    for (harness, may) in [("demo", true), ("pty", false), ("terminal", false)] {
        client.command(harness, "new", "session.create", json!({"config":{"harness":harness}})).await;
        let answer = client.next().await;
        assert_eq!(is_denied(&answer), !may, "{answer}");
    }
    assert_eq!(asked.0.lock().len(), 1);
    world.stop().await;
}

/// What is typed into a run is run: a token for prompting does not type into one, on no face.
#[tokio::test]
async fn a_terminal_takes_input_from_those_who_may_use_a_shell() {
    let (world, mut runner) = pi_world(relaxed()).await;
    runner.start_run("run-1").await;
    let asked = Asked::of(runner);
    let token = &*world.new_token(TOKEN, json!({"name":"prompts","scopes":["view","operate"]})).await;
    let mut client = world.client_as(token).await;
    let rest = json!({"input_id":"i","text":"x","message":"x"});
    for cmd in ["run.input", "run.stdin", "prompt", "steer", "follow_up", "session.restart"] {
        for (session, may) in [("s", true), ("run-1", false)] {
            let answer = client.call(cmd, session, cmd, rest.clone()).await;
            assert_eq!(is_denied(&answer), !may, "{answer}");
            let command = json!({"cmd":cmd,"session_id":session,"input_id":"i","text":"x","message":"x"});
            let (_, _, answer) =
                call(&world, Some(token), "POST", "/api/commands", &command.to_string()).await;
            assert_eq!(is_denied(&answer), !may, "{answer}");
        }
    }
    // What does not run anything stays with those who operate.
    assert!(!is_denied(&client.call("stop", "run-1", "run.stop", json!({})).await));
    let barrier = json!({"channel":"agent","id":"barrier","cmd":"no.such.command"});
    let input = json!({"channel":"terminal","type":"input","terminal_id":"run-1","data":"x"});
    assert!(is_refused(&mut client, &input, &barrier, "no.such.command").await);
    let mut pi = world.pi_client_of(token).await;
    for (session, may) in [("s", true), ("run-1", false)] {
        pi.send(json!({"type":"prompt","id":session,"sessionId":session,"message":"x"})).await;
        assert_eq!(is_denied(&pi.response().await), !may, "{session}");
    }
    let mut app = world.app_as(token).await;
    app.say("run.send_input", Some("run-1"), json!({"input_id":"j","text":"x","actor":"web"})).await;
    assert!(is_denied(&json!(app.heard_until_now().await)));
    let input = json!({"input_id":"k","text":"x"}).to_string();
    assert_eq!(call(&world, Some(token), "POST", "/runs/run-1/input", &input).await.0, 403);
    let commands = std::mem::take(&mut *asked.0.lock());
    let of_run = commands.iter().filter(|it| it["session_id"] == "run-1" && it["user_id"] != "hub");
    let of_run: Vec<&Value> = of_run.map(|command| &command["cmd"]).collect();
    assert_eq!(of_run, ["run.stop"], "the rest did not get through");
    world.stop().await;
}

#[tokio::test]
async fn only_an_owner_opens_the_gate_of_a_session() {
    let (world, runner) = world_with_session(Limits::default()).await;
    let all = everybody(&world).await;
    let asked = Asked::of(runner);
    for access in all.iter().filter(|access| access.permissions.contains(Permission::Operate)) {
        let mut client = world.client_as(&access.token).await;
        for (gate, may) in [("ask", true), ("roles", true), ("open", access.role == Role::Owner)] {
            let config = json!({"config":{"harness":"demo","gate":gate}});
            let answer = client.call(gate, "new", "session.create", config.clone()).await;
            assert_eq!(is_denied(&answer), !may, "{}: {answer}", access.name);
            let mut command = config;
            command["cmd"] = json!("session.create");
            let (_, _, answer) =
                call(&world, Some(&access.token), "POST", "/api/commands", &command.to_string()).await;
            assert_eq!(is_denied(&answer), !may, "{}: {answer}", access.name);
            assert!(may || answer["code"] == "permission_denied", "{answer}");
        }
        asked.check(access);
    }
    world.stop().await;
}

/// Every row of the pi-server document's table.
#[tokio::test]
async fn every_command_asks_for_its_permission_on_the_pi_server_face() {
    let (world, runner) = pi_world(relaxed()).await;
    let all = everybody(&world).await;
    let asked = Asked::of(runner);
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/pi_server/corpus");
    for access in &all {
        let mut client = world.pi_client_of(&access.token).await;
        for row in PI_COMMANDS {
            let text = std::fs::read_to_string(corpus.join(format!("{}.json", row.name))).unwrap();
            let mut frame: Value = serde_json::from_str(&text).unwrap();
            let id = format!("{}-{}", access.token, row.name);
            frame["id"] = json!(id);
            for other in ["dependsOn", "ifSessionVersion", "idempotencyKey"] {
                frame.as_object_mut().unwrap().remove(other);
            }
            if frame.get("sessionId").is_some() {
                frame["sessionId"] = json!("s");
            }
            client.send(frame).await;
            let answer = client.client.until(|frame| frame["type"] == "response" && frame["id"] == *id).await;
            let may = access.permissions.contains(row.permission);
            assert_eq!(is_denied(&answer), !may, "{} {}: {answer}", access.name, row.name);
        }
        asked.check(access);
    }
    world.stop().await;
}

/// Sends a frame and one that is certainly refused; whether the first was refused for want of permission.
async fn is_refused(client: &mut Client, frame: &Value, barrier: &Value, mark: &str) -> bool {
    client.send(frame).await;
    client.send(barrier).await;
    let mut is_refused = false;
    loop {
        let answer = client.next().await;
        is_refused |= is_denied(&answer);
        if answer.to_string().contains(mark) {
            return is_refused;
        }
    }
}

/// Every command of the run document's table.
#[tokio::test]
async fn every_command_asks_for_its_permission_on_the_run_face() {
    let (world, runner) = world_with_session(Limits::default()).await;
    let all = everybody(&world).await;
    let asked = Asked::of(runner);
    let time = "2026-01-01T00:00:00Z";
    let data = json!({"host_id":"r1","input_id":"i","text":"x","actor":"web","signal":"int","path":"a","q":"x",
        "content":"c","cmd":"ls","tool":"sh","cols":80,"rows":24});
    let rows =
        || TYPES.iter().filter(|row| matches!(row.way, MessageDirection::Command | MessageDirection::Rpc));
    assert!(rows().count() > 15);
    for access in &all {
        let mut client = world.try_client_at("/ws/app", &access.token).await.unwrap();
        for row in rows() {
            let permission = command_table::spec(row.canonical).unwrap().permission;
            let mut data = data.clone();
            data["request_id"] = json!(format!("r-{}", row.name));
            let frame = json!({"type":row.name,"ts":time,"run_id":"s","data":data});
            let mark = format!("barrier-{}", row.name);
            let barrier = json!({"type":"rpc.nothing","ts":time,"run_id":"s","data":{"request_id":mark}});
            let is_refused = is_refused(&mut client, &frame, &barrier, &mark).await;
            assert_eq!(is_refused, !access.permissions.contains(permission), "{} {}", access.name, row.name);
        }
        let input = json!({"input_id":"i2","text":"x"}).to_string();
        let (status, _, _) = call(&world, Some(&access.token), "POST", "/runs/s/input", &input).await;
        assert_eq!(
            status == 403,
            !access.permissions.contains(Permission::Operate),
            "{}: {status}",
            access.name
        );
        asked.check(access);
    }
    world.stop().await;
}

/// The other channels of `/ws/mux`.
#[tokio::test]
async fn files_and_terminals_ask_for_their_permission() {
    let (world, runner) = world_with_session(Limits::default()).await;
    let all = everybody(&world).await;
    let asked = Asked::of(runner);
    let files = |rest: Value| ("files", rest);
    let terminal = |rest: Value| ("terminal", rest);
    let cases = [
        (files(json!({"type":"tree","path":"."})), Permission::View),
        (files(json!({"type":"read","path":"a"})), Permission::View),
        (files(json!({"type":"list","path":"."})), Permission::View),
        (files(json!({"type":"stat","path":"a"})), Permission::View),
        (files(json!({"type":"watch_files"})), Permission::View),
        (files(json!({"type":"write","path":"a","content":""})), Permission::Files),
        (files(json!({"type":"delete","path":"a"})), Permission::Files),
        (files(json!({"type":"create_directory","path":"a"})), Permission::Files),
        (files(json!({"type":"rename","from":"a","to":"b"})), Permission::Files),
        (files(json!({"type":"copy","from":"a","to":"b"})), Permission::Files),
        (files(json!({"type":"move","from":"a","to":"b"})), Permission::Files),
        (terminal(json!({"type":"open","cols":80,"rows":24})), Permission::Shell),
    ];
    for access in &all {
        let mut client = world.client_as(&access.token).await;
        for ((channel, rest), permission) in &cases {
            let mut frame =
                json!({"channel":channel,"session_id":"s","workspace_path":"/w","runner_id":"r1"});
            frame.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            if *channel == "terminal" {
                frame.as_object_mut().unwrap().remove("session_id");
            }
            let barrier = json!({"channel":"agent","id":"barrier","cmd":"no.such.command"});
            let is_refused = is_refused(&mut client, &frame, &barrier, "no.such.command").await;
            assert_eq!(is_refused, !access.permissions.contains(*permission), "{} {rest}", access.name);
        }
        asked.check(access);
    }
    world.stop().await;
}

#[tokio::test]
async fn rest_calls_ask_for_their_permission() {
    let (world, runner) = world_with_session(Limits::default()).await;
    let all = everybody(&world).await;
    let asked = Asked::of(runner);
    let calls = [
        ("GET", "/api/sessions", "", Permission::View),
        ("GET", "/api/audit", "", Permission::View),
        ("GET", "/api/runners", "", Permission::Manage),
        ("POST", "/api/runners/invites", "", Permission::Manage),
        ("POST", "/api/runners/nobody/rotate", "", Permission::Manage),
        ("DELETE", "/api/runners/nobody", "", Permission::Manage),
        ("GET", "/api/people", "", Permission::Manage),
        ("POST", "/api/people", "{}", Permission::Manage),
        ("PATCH", "/api/people/nobody", r#"{"role":"owner"}"#, Permission::Manage),
        ("DELETE", "/api/people/nobody", "", Permission::Manage),
        ("GET", "/api/hosts", "", Permission::Manage),
        ("POST", "/api/hosts", r#"{"host_id":"a b"}"#, Permission::Manage),
        ("POST", "/api/hosts/nobody/confirm", "", Permission::Manage),
        ("DELETE", "/api/hosts/nobody", "", Permission::Manage),
        ("DELETE", "/api/tokens/nobody?owner=nobody", "", Permission::Manage),
    ];
    for access in &all {
        for (method, path, body, permission) in calls {
            let (status, _, answer) = call(&world, Some(&access.token), method, path, body).await;
            let may = access.permissions.contains(permission);
            assert_eq!(status == 403, !may, "{} {method} {path}: {status} {answer}", access.name);
            assert_eq!(is_denied(&answer), !may, "{answer}");
        }
        asked.check(access);
    }
    // Who may not even look gets no further than their own name.
    let blind = &*world.new_token(TOKEN, json!({"name":"blind","scopes":["approve"]})).await;
    assert_eq!(call(&world, Some(blind), "GET", "/api/me", "").await.0, 200);
    assert_eq!(call(&world, Some(blind), "GET", "/api/sessions", "").await.0, 403);
    for path in ["/ws/mux", "/ws/pi", "/ws/app"] {
        assert!(world.try_client_at(path, blind).await.is_none(), "{path}");
    }
    world.stop().await;
}
