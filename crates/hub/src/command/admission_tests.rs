use std::sync::Arc;

use qd_wire::people::{Permissions, Role};
use serde_json::{Value, json};

use super::*;
use crate::access::principals::Principal;
use crate::command::ask::tests::World;
use crate::command::ask::{CommandAnswer, ask};
use crate::command::{FrameSender, HandledFrame, handle, spec_of};
use crate::connection::Mailbox;

/// One command, and why it is refused.
struct Case {
    what: &'static str,
    role: Role,
    is_revoked: bool,
    /// What a client sends beside the channel and its id.
    frame: Value,
    refusal: ErrorCode,
}

fn case(what: &'static str, role: Role, frame: Value, refusal: ErrorCode) -> Case {
    Case { what, role, is_revoked: false, frame, refusal }
}

/// What is refused whatever the command is about.
fn of_access() -> Vec<Case> {
    use ErrorCode::{InvalidRequest, PermissionDenied, UnknownCommand};
    let terminal = json!({"harness": "terminal"});
    let open_gate = json!({"harness": "demo", "gate": "open"});
    let create = |config| json!({"cmd": "session.create", "session_id": "t", "config": config});
    let moon = json!({"cmd": "moon", "session_id": "s"});
    let prompt = json!({"cmd": "prompt", "session_id": "no", "message": "hi"});
    let bad = json!({"cmd": "prompt", "session_id": "no", "message": "hi", "if_session_version": -1});
    let state = json!({"cmd": "get_state", "session_id": "no"});
    vec![
        case("an unknown command", Role::Owner, moon, UnknownCommand),
        Case { is_revoked: true, ..case("a revoked access", Role::Owner, state, PermissionDenied) },
        case("no permission, before the session is looked for", Role::Viewer, prompt, PermissionDenied),
        case("a terminal without the permission", Role::Operator, create(terminal), PermissionDenied),
        case("an open gate", Role::Operator, create(open_gate), PermissionDenied),
        case("a bad condition, before the session is looked for", Role::Owner, bad, InvalidRequest),
    ]
}

/// What is refused because of the session, or of what is said about it.
fn of_sessions() -> Vec<Case> {
    use ErrorCode::{
        InvalidRequest, PermissionDenied, SessionExists, SessionNotFound, TooLarge, WrongRunner,
    };
    let nothing = json!({"cmd": "get_state"});
    let state = json!({"cmd": "get_state", "session_id": "no"});
    let read = json!({"cmd": "fs.read", "session_id": "no", "path": "a"});
    let prompt = json!({"cmd": "prompt", "session_id": "s", "runner_id": "q", "message": "hi"});
    let config = json!({"harness": "demo"});
    let create = json!({"cmd": "session.create", "session_id": "s", "runner_id": "q", "config": config});
    let typing = json!({"cmd": "run.stdin", "session_id": "unknown harness", "text": "ls\n"});
    let query = |query: Value| json!({"cmd": "search", "query": query});
    let attach = json!({"cmd": "session.attach", "session_id": "s", "after": "x"});
    vec![
        case("no session", Role::Owner, nothing, InvalidRequest),
        case("an unknown session", Role::Owner, state, SessionNotFound),
        case("an unknown session of a service", Role::Owner, read, SessionNotFound),
        case("another runner's session", Role::Owner, prompt, WrongRunner),
        case("another runner's name", Role::Owner, create, SessionExists),
        case("typing into what may be a terminal", Role::Operator, typing, PermissionDenied),
        case("an unreadable read", Role::Owner, query(json!(7)), InvalidRequest),
        case("a long query", Role::Owner, query(json!("x".repeat(5000))), TooLarge),
        case("an unreadable place to follow from", Role::Owner, attach, InvalidRequest),
    ]
}

/// What is refused because nobody can do it.
fn of_runners() -> Vec<Case> {
    use ErrorCode::{RunnerNotFound, RunnerOffline};
    let health = json!({"cmd": "runner.health", "runner_id": "no"});
    let prompt = json!({"cmd": "prompt", "session_id": "s", "message": "hi"});
    let messages = json!({"cmd": "get_messages", "session_id": "s", "if_session_version": 3});
    vec![
        case("an unknown runner", Role::Owner, health, RunnerNotFound),
        case("a runner that is away", Role::Owner, prompt, RunnerOffline),
        case("a condition that nobody can check", Role::Owner, messages, RunnerOffline),
    ]
}

fn principal(case: &Case) -> Principal {
    let mut principal = Principal::lasting("somebody", case.role);
    if case.role == Role::Operator {
        // Operators may run commands; a token of theirs need not.
        principal.permissions = Permissions::of(&[Permission::View, Permission::Operate]);
    }
    if case.is_revoked {
        principal.revoked.cancel();
    }
    principal
}

/// What a client is told.
fn refused_to_client(hub: &Arc<Hub>, case: &Case) -> String {
    let mut frame = case.frame.clone();
    frame["channel"] = json!("agent");
    frame["id"] = json!("1");
    let mailbox = Mailbox::new("c1".to_owned(), &principal(case), hub.config.limits.mail_bounds());
    let mut finished = FinishedCommands::default();
    let mut sender = FrameSender { hub, mailbox: &mailbox, attachments: &[], finished: &mut finished };
    let HandledFrame::Reply(reply) = handle(&mut sender, &frame.to_string()) else {
        panic!("{}: it was not refused", case.what)
    };
    let text = String::from_utf8_lossy(&reply).into_owned();
    let answer: Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    assert_eq!((&answer["success"], &answer["cmd"]), (&json!(false), &case.frame["cmd"]), "{}", case.what);
    answer["code"].as_str().unwrap().to_owned()
}

/// The same command as a face builds it; an unknown one cannot be built, and one with a bad condition neither.
fn built(frame: &Value) -> Result<Command<'static>, CodedError> {
    let Value::Object(mut fields) = frame.clone() else { panic!("an object") };
    let mut text = |name: &str| fields.remove(name).map(|value| value.as_str().unwrap().to_owned());
    let command = Command::of(spec_of(&text("cmd").unwrap())?);
    let command = command.on_if(text("session_id")).at_if(text("runner_id"));
    let version = fields.remove("if_session_version").map(|version| {
        version.as_u64().ok_or_else(|| CodedError::invalid("The field must be a whole number from 0"))
    });
    Ok(command.with_all(fields).if_version(version.transpose()?))
}

fn refused_to_face(hub: &Arc<Hub>, case: &Case) -> String {
    let asker = CommandSender::new(&principal(case), Arc::from("face"));
    let (sender, told) = std::sync::mpsc::channel();
    match built(&case.frame) {
        Ok(command) => {
            ask(hub, &asker, command, move |_, answer| sender.send(answer).unwrap());
        }
        Err(error) => sender.send(CommandAnswer::failure(error)).unwrap(),
    }
    let answer = told.try_recv().unwrap_or_else(|_| panic!("{}: it was not refused at once", case.what));
    assert!(!answer.success, "{}", case.what);
    answer.code.unwrap().as_str().to_owned()
}

/// The same as the body of `POST /api/commands`, which is a frame without a channel.
fn refused_to_script(hub: &Arc<Hub>, case: &Case) -> String {
    let text = case.frame.to_string();
    let fields = crate::command::head::read_fields(&text).unwrap();
    let head = crate::command::head::read_body_head(&fields).unwrap();
    let asker = CommandSender::new(&principal(case), Arc::from("http"));
    let error = spec_of(&head.cmd)
        .and_then(|spec| {
            let command = Command::from_frame(spec, &text, fields, head);
            crate::command::prepare(hub, &asker, command).map(drop)
        })
        .expect_err(case.what);
    error.code.as_str().to_owned()
}

#[tokio::test]
async fn a_client_a_face_and_a_script_are_refused_for_the_same_reason() {
    let world = World::start(None);
    let runner: Arc<str> = Arc::from("r");
    world.hub.session_or_new("s", &runner).set_harness("demo");
    world.hub.session_or_new("unknown harness", &runner);
    for case in of_access().into_iter().chain(of_sessions()).chain(of_runners()) {
        let expected = case.refusal.as_str();
        assert_eq!(refused_to_client(&world.hub, &case), expected, "{}: the client", case.what);
        assert_eq!(refused_to_face(&world.hub, &case), expected, "{}: the face", case.what);
        assert_eq!(refused_to_script(&world.hub, &case), expected, "{}: the script", case.what);
    }
    world.hub.store.close().await;
}

#[tokio::test]
async fn a_name_from_a_face_is_no_longer_than_one_from_a_client() {
    let world = World::start(None);
    for (field, length, refusal) in [
        ("session_id", 256, ErrorCode::SessionNotFound),
        ("session_id", 257, ErrorCode::InvalidRequest),
        ("runner_id", 257, ErrorCode::InvalidRequest),
    ] {
        let mut frame = json!({"cmd": "get_state", "session_id": "no"});
        frame[field] = "x".repeat(length).into();
        let case = case("a name at the limit", Role::Owner, frame, refusal);
        assert_eq!(refused_to_face(&world.hub, &case), refusal.as_str(), "{field} of {length} bytes");
    }
    world.hub.store.close().await;
}

#[test]
fn a_script_cannot_name_what_its_command_depends_on() {
    for (body, refusal) in [
        (json!({"cmd": "get_state", "session_id": "s", "depends_on": ["x"]}), Some(ErrorCode::Unsupported)),
        (json!({"cmd": "get_state", "session_id": "s", "depends_on": 7}), Some(ErrorCode::InvalidRequest)),
        (json!({"cmd": "get_state", "session_id": "s", "depends_on": []}), None),
    ] {
        let text = body.to_string();
        let fields = crate::command::head::read_fields(&text).unwrap();
        let refused = crate::command::head::read_body_head(&fields).err();
        assert_eq!(refused.map(|error| error.code), refusal, "{text}");
    }
}
