//! What survives: rows and restarts.

use super::*;

#[test]
fn done_rows_replay_after_a_restart() {
    let mut desk = TestAdmission::new();
    let prompt = command("prompt", "s").id("a").key("k");
    desk.admission.restore(row(&prompt, "old", Some((900, success("\"before\"")))));
    assert_eq!(desk.send(prompt.clone()).1, ["accepted 1", "replayed 1: \"before\""]);
    assert_eq!(desk.send(command("get_state", "s").after(&["a"])).1.len(), 3);
    assert!(
        desk.send(prompt.clone().other_payload()).1[1]
            .starts_with("finished 3: Conflicting idempotencyKey 'k'")
    );
    desk.now = 900 + 600_000;
    let fresh = desk.send(PiServerSubmission { id: Some("b".into()), ..prompt });
    assert_eq!(fresh.1.len(), 4, "the time of the key has passed");
}

#[test]
fn a_row_of_another_id_does_not_make_its_key_last_longer() {
    let mut desk = TestAdmission::new();
    desk.now = 2_000_000;
    let first = command("prompt", "s").id("a").key("k");
    let second = command("prompt", "s").id("b").key("k");
    desk.admission.restore(row(&first, "first", Some((1_500_000, success("\"1\"")))));
    desk.admission.restore(row(&second, "second", Some((1_900_000, success("\"1\"")))));
    assert_eq!(desk.send(first.clone()).1[1], "replayed 1: \"1\"");
    desk.now = 2_100_000;
    assert_eq!(desk.send(PiServerSubmission { id: None, ..first }).1.len(), 4);
    assert_eq!(desk.send(PiServerSubmission { key: None, ..second }).1[1], "replayed 3: \"1\"");
}

#[test]
fn a_command_that_cannot_be_stored_is_refused_and_forgotten() {
    let mut desk = TestAdmission::new();
    desk.prompt_store = false;
    let prompt = command("prompt", "s").id("a").key("k");
    assert_eq!(desk.send(prompt.clone()).1.last().unwrap(), "journal 1");
    assert_eq!(desk.send(PiServerSubmission { id: Some("b".into()), ..prompt.clone() }).1, ["accepted 2"]);
    assert_eq!(desk.send(command("prompt", "s").id("c")).1, ["accepted 3"]);
    assert_eq!(desk.send(command("get_state", "s").after(&["b"])).1, ["accepted 4", "started 4"]);
    let full = "The disk is full";
    let expected = [
        "finished 1: The disk is full",
        "replayed 2: The disk is full",
        "started 3",
        "journal 3",
        "finished 4: Dependency 'b' failed: The disk is full",
    ];
    assert_eq!(desk.refuse(1, full), expected);
    assert_eq!(desk.refuse(1, full), [""; 0]);
    assert_eq!(desk.admission.evicted(), ["u1".into()], "a row that is there after all is of no use");
    for id in ["a", "b"] {
        let (token, told) = desk.send(command("bash", "t").id(id));
        assert_eq!(told[0], format!("accepted {token}"), "{told:?}");
        assert!(!told.iter().any(|line| line.contains("Conflict")), "{told:?}");
    }
    assert!(!desk.send(prompt.other_payload()).1.iter().any(|line| line.contains("idempotencyKey")));
}

#[test]
fn what_is_being_done_cannot_be_refused() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    assert_eq!(desk.refuse(1, "The disk is full"), [""; 0]);
    assert_eq!(desk.succeed(1), ["store 1 as u1", "finished 1: \"1\""]);
    assert_eq!(desk.refuse(1, "The disk is full"), [""; 0]);
}

#[test]
fn aborts_are_not_written_down_first() {
    for name in ["abort", "abort_bash", "abort_compaction", "abort_retry"] {
        let mut desk = TestAdmission::new();
        desk.prompt_store = false;
        let (_, told) = desk.send(command(name, "s").id("a"));
        assert_eq!(told, ["accepted 1", "started 1", "execute 1 as u1"]);
        assert_eq!(desk.succeed(1), ["store 1 as u1 behind", "finished 1: \"1\""]);
    }
}

#[test]
fn a_revoked_principal_begins_nothing_more() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    desk.send(command("prompt", "s").id("b"));
    desk.send(command("prompt", "s").id("b"));
    desk.send(command("prompt", "s").id("c").of("q"));
    desk.send(command("get_state", "t").id("d").after(&["b"]));
    desk.prompt_store = false;
    assert_eq!(desk.send(command("prompt", "u").id("e").within(100)).1.last().unwrap(), "journal 6");
    let expected = [
        "finished 2: The access token was revoked",
        "replayed 3: The access token was revoked",
        "finished 5: The access token was revoked",
        "finished 6: The access token was revoked",
    ];
    assert_eq!(desk.revoke("p"), expected, "what had begun goes on");
    assert_eq!(desk.revoke("p"), [""; 0]);
    assert_eq!(desk.admission.evicted(), ["u6".into()]);
    assert_eq!(desk.admission.next_deadline(), None);
    assert_eq!(told(&desk.call(|admission, now, effects| admission.journaled(now, 6, effects))), [""; 0]);
    desk.prompt_store = true;
    assert_eq!(desk.succeed(1)[1..], ["finished 1: \"1\"", "started 4", "journal 4", "execute 4 as u4"]);
    assert_eq!(desk.admission.metrics("p", desk.now).replay.in_flight_count, 1);
    assert_eq!(desk.send(command("bash", "t").id("b")).1.len(), 4, "the id is free");
}
