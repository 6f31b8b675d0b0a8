//! Section 8: replay, conflicts and keys.

use super::*;

#[test]
fn the_same_id_replays_without_being_started() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    desk.fail(1, "no model");
    let (_, told) = desk.send(command("prompt", "s").id("a"));
    assert_eq!(told, ["accepted 2", "replayed 2: no model"]);
}

#[test]
fn the_same_id_for_something_else_is_a_conflict_that_changes_nothing() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    let in_flight = "Conflicting id 'a': previously used for 'prompt', now used for 'bash'";
    assert_eq!(
        desk.send(command("bash", "s").id("a")).1,
        ["accepted 2", &format!("finished 2: {in_flight}")]
    );
    desk.succeed(1);
    let done = "Conflicting id 'a': previously used for 'prompt', now used for 'prompt'";
    let (_, told) = desk.send(command("prompt", "s").id("a").other_payload());
    assert_eq!(told, ["accepted 3", &format!("finished 3: {done}")]);
    assert_eq!(desk.send(command("prompt", "s").id("a")).1[1], "replayed 4: \"1\"");
}

#[test]
fn a_repeat_of_a_command_in_flight_waits_and_is_a_replay() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a").key("k"));
    assert_eq!(desk.send(command("prompt", "s").id("a").key("k")).1, ["accepted 2"]);
    assert_eq!(desk.send(command("prompt", "s").key("k")).1, ["accepted 3"]);
    let told = desk.succeed(1);
    assert_eq!(told, ["store 1 as u1", "finished 1: \"1\"", "replayed 2: \"1\"", "replayed 3: \"1\""]);
}

#[test]
fn ids_and_keys_are_each_principals_own() {
    let mut desk = TestAdmission::new();
    desk.send(command("get_state", "s").id("a").key("k"));
    desk.succeed(1);
    assert_eq!(desk.send(command("get_messages", "s").of("q").id("a").key("k")).1.len(), 3);
    let (_, told) = desk.send(command("get_messages", "s").of("q").after(&["a"]));
    assert_eq!(told, ["accepted 3", "started 3"], "it waits for the other principal's own");
}

#[test]
fn a_key_replays_in_its_scope_and_time_only() {
    let mut desk = TestAdmission::new();
    desk.send(command("get_state", "s").key("k"));
    desk.succeed(1);
    assert_eq!(desk.send(command("get_state", "s").key("k")).1[1], "replayed 2: \"1\"");
    assert_eq!(desk.send(command("get_state", "t").key("k")).1.len(), 3, "another session");
    assert_eq!(desk.send(command("list_sessions", "").key("k")).1.len(), 3, "no session");
    let conflict = "Conflicting idempotencyKey 'k': previously used for 'get_state', now used for 'bash'";
    assert_eq!(desk.send(command("bash", "s").key("k")).1[1], format!("finished 5: {conflict}"));
    desk.pass(599_999);
    assert_eq!(desk.send(command("get_state", "s").key("k")).1[1], "replayed 6: \"1\"");
    desk.pass(1);
    assert_eq!(desk.send(command("bash", "s").key("k")).1.len(), 4, "it is a new key now");
    assert_eq!(desk.send(command("get_state", "s").key("k")).1[1][..30], *"finished 8: Conflicting idempo");
}

#[test]
fn an_id_does_not_expire_with_its_key() {
    let mut desk = TestAdmission::new();
    desk.send(command("get_state", "s").id("a").key("k"));
    desk.succeed(1);
    desk.pass(600_000);
    assert_eq!(desk.send(command("get_state", "s").id("a").key("k")).1[1], "replayed 2: \"1\"");
}

#[test]
fn a_minted_session_is_not_the_scope_of_a_key() {
    let mut desk = TestAdmission::new();
    let minted = |name: &str| PiServerSubmission {
        session_id: Some(name.into()),
        names_session: false,
        ..command("create_session", "").key("k")
    };
    desk.send(minted("session-1"));
    desk.succeed(1);
    assert_eq!(desk.send(minted("session-2")).1, ["accepted 2", "replayed 2: \"1\""]);
}

#[test]
fn the_key_is_looked_at_before_the_id() {
    let mut desk = TestAdmission::new();
    desk.send(command("get_state", "s").id("a"));
    desk.send(command("get_messages", "s").key("k"));
    desk.succeed(1);
    desk.succeed(2);
    assert_eq!(desk.send(command("get_messages", "s").id("a").key("k")).1[1], "replayed 3: \"2\"");
    assert_eq!(desk.send(command("get_state", "s").id("a")).1[1], "replayed 4: \"1\"", "the id is as it was");
}

#[test]
fn an_id_answered_by_a_key_can_be_depended_on() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a").key("k"));
    assert_eq!(desk.send(command("prompt", "s").id("b").key("k")).1, ["accepted 2"]);
    assert_eq!(desk.send(command("get_state", "s").after(&["b"])).1, ["accepted 3", "started 3"]);
    let told = desk.succeed(1);
    let expected = [
        "store 1 as u1",
        "finished 1: \"1\"",
        "store 2 as u2 behind",
        "replayed 2: \"1\"",
        "execute 3 as u3",
    ];
    assert_eq!(told, expected);
    let (_, told) = desk.send(command("prompt", "s").id("c").key("k"));
    assert_eq!(told, ["accepted 4", "store 4 as u4 behind", "replayed 4: \"1\""]);
    assert_eq!(desk.send(command("get_state", "s").after(&["b", "c"])).1.len(), 3);
    assert_eq!(desk.send(command("bash", "s").id("c")).1[1][..27], *"finished 6: Conflicting id ");
}
