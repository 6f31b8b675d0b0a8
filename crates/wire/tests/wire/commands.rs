//! The command table holds what Part 3, Part 8 and the issue name, and each command survives the way in and out.

use std::collections::BTreeSet;

use crate::support::{check_round_trip, examples};
use qd_wire::command_table::{
    Answerer, BARRIER, COMMANDS, CommandClass, CommandName, CommandSpec, Lane, Permission, TAKE_BACK,
    class_of, spec,
};
use qd_wire::mux::ClientFrame;
use qd_wire::{Command, CommandHead};
use serde_json::{Value, json};

/// The commands of Part 3, in its order.
const PART_3: &[&str] = &[
    "session.create",
    "session.close",
    "session.new",
    "session.switch",
    "prompt",
    "steer",
    "follow_up",
    "abort",
    "input_response",
    "get_state",
    "get_messages",
    "get_stats",
    "get_models",
    "get_commands",
    "get_fork_points",
    "set_model",
    "cycle_model",
    "set_thinking_level",
    "cycle_thinking_level",
    "set_auto_compaction",
    "set_auto_retry",
    "compact",
    "abort_retry",
    "set_session_name",
    "fork",
];

/// Delegation (Part 8), and what Quarterdeck adds.
const ADDED: &[&str] = &[
    "delegate",
    "delegate.cancel",
    "get_runners",
    "list_sessions",
    "queue.set",
    "search",
    "session.attach",
    "session.delete",
    "session.detach",
    "session.restart",
];

/// What the faces' documents have and Part 3 has not.
const OF_FACES: &[&str] = &[
    "abort_bash",
    "abort_compaction",
    "bash",
    "export_html",
    "get_context_usage",
    "get_last_assistant_text",
    "get_native_messages",
    "get_skills",
    "get_tools",
    "get_tree",
    "list_session_files",
    "navigate_tree",
    "runner.health",
    "runner.sessions",
    "runner.stored_sessions",
];

/// Programs in terminals, and services of the machine.
const OF_MACHINES: &[&str] = &[
    "cancel",
    "fs.copy",
    "fs.create_directory",
    "fs.delete",
    "fs.list",
    "fs.move",
    "fs.read",
    "fs.rename",
    "fs.search",
    "fs.stat",
    "fs.tree",
    "fs.upload",
    "fs.watch",
    "fs.write",
    "git.diff",
    "git.log",
    "git.status",
    "git.worktree_add",
    "git.worktree_remove",
    "git.worktrees",
    "host.bash",
    "host.capabilities",
    "host.doctor",
    "host.info",
    "host.logs",
    "run.input",
    "run.resize",
    "run.screen",
    "run.stdin",
    "run.stop",
];

#[test]
fn the_table_is_complete() {
    let lists = PART_3.iter().chain(ADDED).chain(OF_FACES).chain(OF_MACHINES);
    let expected: BTreeSet<&str> = lists.copied().collect();
    let actual: BTreeSet<&str> = COMMANDS.iter().map(|row| row.name).collect();
    assert_eq!(actual, expected);
    assert_eq!(COMMANDS.len(), expected.len(), "a name stands in the table twice");
}

#[test]
fn the_rows_agree_with_themselves() {
    for row in COMMANDS {
        if row.lane == Lane::Read {
            assert!(!row.mutating, "{}: a read changes nothing", row.name);
            assert!(row.timeout_ms.is_some(), "{}: a read ends", row.name);
        }
        if row.lane == Lane::Service {
            assert!(!row.mutating && !row.needs_session, "{}: it is of the machine", row.name);
            let is_read = row.permission == Permission::View || row.name == "host.logs";
            let is_watch = row.name == "fs.watch";
            assert_eq!(row.timeout_ms.is_some(), is_read && !is_watch, "{}", row.name);
        }
        if row.mutating {
            assert_ne!(row.permission, Permission::View, "{}", row.name);
            assert_eq!(row.answerer, Answerer::Runner, "{}: the runner is the authority", row.name);
        }
    }
}

/// The classes say what several places decide by, so each command's is named here a second time.
#[test]
fn the_classes_are_those_of_the_documents() {
    let names_of = |is_wanted: &dyn Fn(&CommandSpec) -> bool| -> Vec<&str> {
        COMMANDS.iter().filter(|row| is_wanted(row)).map(|row| row.name).collect()
    };
    let inputs = ["prompt", "steer", "follow_up", "run.input"];
    assert_eq!(names_of(&CommandSpec::is_input), inputs);
    assert_eq!(names_of(&CommandSpec::is_abort), ["abort", "abort_retry", "abort_compaction", "abort_bash"]);
    assert_eq!(names_of(&CommandSpec::is_move), ["session.new", "session.switch", "navigate_tree", "fork"]);
    let switches = names_of(&|row| row.class == CommandClass::Switch);
    assert_eq!(switches, ["session.new", "session.switch", "fork"]);
    let mut new_work = names_of(&CommandSpec::is_new_work);
    assert_eq!(new_work.remove(0), "session.create");
    assert_eq!(new_work, inputs);
    assert_eq!(
        names_of(&|row| row.class.has_place_in_stream()),
        ["session.create", "session.attach", "session.delete"]
    );
    assert_eq!(names_of(&|row| row.class.follows_session()), ["session.create", "session.attach"]);
    assert_eq!(
        names_of(&CommandSpec::runs_program),
        ["session.restart", "prompt", "steer", "follow_up", "run.input", "run.stdin"]
    );
    assert_eq!(
        names_of(&CommandSpec::needs_connection),
        ["session.attach", "session.detach", "fs.watch", "cancel"]
    );
    let of_runner = names_of(&|row| row.class == CommandClass::Runner);
    assert_eq!(of_runner, ["runner.sessions", "runner.stored_sessions", "runner.health"]);
    for row in COMMANDS.iter().filter(|row| row.lane == Lane::Service) {
        let changes = matches!(row.permission, Permission::Files | Permission::Shell);
        assert_eq!(row.is_gated(), changes, "{}: what changes the machine goes through the gate", row.name);
    }
    assert_eq!(class_of("no.such.command"), CommandClass::Other);
    assert_eq!(class_of(TAKE_BACK.name), class_of("cancel"));
    assert!(spec(TAKE_BACK.name).is_none() && spec(BARRIER).is_none(), "no client can send these");
    for row in COMMANDS {
        assert_eq!(spec(row.name).map(|found| found.name), Some(row.name));
        assert_eq!(row.command.map(CommandName::spec), Some(row));
    }
}

#[test]
fn every_command_survives_the_way_in_and_out() {
    let mut seen = BTreeSet::new();
    for (section, text) in examples(include_str!("examples/commands.jsonl")) {
        let before: Value = serde_json::from_str(&text).expect("the example is JSON");
        let head: CommandHead<'_> = serde_json::from_str(&text).expect("a head");
        let name = head.cmd.expect("a name").into_owned();
        let command = Command::parse(&name, &text).unwrap_or_else(|error| panic!("{section}: {error}"));
        assert_eq!(command.spec().name, name);
        assert_eq!(serde_json::to_value(&command).expect("serialises"), before, "{section}");
        assert_eq!(check_round_trip::<Command>(&section, &text), command);
        seen.insert(name);
    }
    let all: BTreeSet<String> = COMMANDS.iter().map(|row| row.name.to_owned()).collect();
    assert_eq!(seen, all, "each command has an example");
}

#[test]
fn the_envelope_fields_are_read_beside_the_parameters() {
    let text = r#"{"channel":"agent","id":"req-1","session_id":"s1","runner_id":"local","idempotency_key":"k",
        "depends_on":["a","b"],"if_session_version":3,"cmd":"prompt","message":"Hello"}"#;
    let frame: ClientFrame = check_round_trip("Part 3, Command Envelope", text);
    assert_eq!(frame.depends_on, Some(vec!["a".to_owned(), "b".to_owned()]));
    let head: CommandHead<'_> = serde_json::from_str(text).expect("a head");
    assert_eq!(head.id.map(|id| id.get()), Some(r#""req-1""#));
    assert_eq!(head.idempotency_key.as_deref(), Some("k"));
    assert_eq!(head.if_session_version, Some(3));
}

#[test]
fn unknown_fields_of_a_command_are_ignored() {
    let text = r#"{"cmd":"fork","entry_id":"e1","later":{"a":1},"session_id":"s1"}"#;
    let command = Command::parse("fork", text).expect("a command");
    assert_eq!(serde_json::to_value(command).expect("serialises"), json!({"cmd": "fork", "entry_id": "e1"}));
}

#[test]
fn the_image_spellings_of_other_clients_are_understood() {
    for field in ["media_type", "mime_type", "mimeType"] {
        let text =
            format!(r#"{{"cmd":"prompt","message":"x","images":[{{"data":"AA==","{field}":"image/png"}}]}}"#);
        let command = Command::parse("prompt", &text).expect("a command");
        let value = serde_json::to_value(command).expect("serialises");
        assert_eq!(value["images"], json!([{"data": "AA==", "media_type": "image/png"}]));
    }
}

#[test]
fn a_bad_command_says_what_is_wrong() {
    for (name, text, expected) in [
        ("no.such", "{}", "Unknown command 'no.such'"),
        ("prompt", "{}", "missing field `message`"),
        ("prompt", r#"{"message":7}"#, "expected a string"),
        ("set_auto_retry", r#"{"enabled":"yes"}"#, "expected a boolean"),
        ("get_messages", r#"{"limit":-1}"#, "expected u64"),
        ("prompt", r#"{"message":"x","streaming_behavior":"later"}"#, "expected `steer` or `follow_up`"),
    ] {
        let error = Command::parse(name, text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(spec("no.such"), None);
}
