//! What survives: bounds, rows and restarts.

use super::*;

fn row(submission: &Submission, uid: &str, done: Option<(i64, Outcome)>) -> Restored {
    Restored {
        token: 0,
        principal: submission.principal.clone(),
        id: submission.id.clone(),
        key: submission.key.clone(),
        scope: Admission::scope(submission).to_owned(),
        command: submission.spec.name.to_owned(),
        fingerprint: submission.fingerprint,
        uid: uid.into(),
        finished_at: done.as_ref().map(|(at, _)| *at),
        outcome: done.map(|(_, outcome)| outcome),
    }
}

fn success(data: &str) -> Outcome {
    Outcome { success: true, data: Some(data.into()), ..Outcome::default() }
}

#[test]
fn outcomes_are_bounded_in_number_and_the_oldest_goes_first() {
    let mut desk = Desk::with(Limits { outcomes_max: 2, ..Limits::default() });
    for id in ["a", "b", "c"] {
        let (token, _) = desk.send(command("get_state", "s").id(id).key(id));
        desk.succeed(token);
    }
    assert_eq!(desk.admission.evicted(), ["u1".into()]);
    assert_eq!(desk.admission.evicted(), []);
    assert_eq!(desk.send(command("get_state", "s").id("b")).1[1], "replayed 4: \"2\"");
    assert_eq!(desk.send(command("get_state", "s").id("a").key("a")).1.len(), 3, "it is executed again");
}

#[test]
fn outcomes_are_bounded_in_bytes_and_those_in_flight_never_go() {
    let mut desk = Desk::with(Limits { outcome_bytes_max: 100, ..Limits::default() });
    desk.send(command("prompt", "s").id("long"));
    for id in ["a", "b", "c"] {
        let (token, _) = desk.send(command("get_state", "s").id(id));
        let outcome = success(&"x".repeat(40));
        desk.call(|admission, now, effects| admission.finish(now, token, outcome, effects));
    }
    assert_eq!(desk.admission.evicted(), ["u2".into()]);
    assert_eq!(desk.send(command("prompt", "s").id("long")).1, ["accepted 5"]);
    assert_eq!(desk.succeed(1).last().unwrap(), "replayed 5: \"1\"");
}

#[test]
fn a_store_that_fails_refuses_the_command() {
    let mut desk = Desk::new();
    desk.prompt_store = false;
    assert_eq!(desk.send(command("prompt", "s").id("a")).1.last().unwrap(), "journal 1");
    assert_eq!(desk.fail(1, "The disk is full"), ["store 1 as u1"]);
    let told = told(&desk.call(|admission, now, effects| admission.stored(now, 1, effects)));
    assert_eq!(told, ["finished 1: The disk is full"]);
}

#[test]
fn done_rows_replay_after_a_restart() {
    let mut desk = Desk::new();
    let prompt = command("prompt", "s").id("a").key("k");
    desk.admission.restore(row(&prompt, "old", Some((900, success("\"before\"")))));
    assert_eq!(desk.send(prompt.clone()).1, ["accepted 1", "replayed 1: \"before\""]);
    assert_eq!(desk.send(command("get_state", "s").after(&["a"])).1.len(), 3);
    assert!(
        desk.send(prompt.clone().other_payload()).1[1]
            .starts_with("finished 3: Conflicting idempotencyKey 'k'")
    );
    desk.now = 900 + 600_000;
    let fresh = desk.send(Submission { id: Some("b".into()), ..prompt });
    assert_eq!(fresh.1.len(), 4, "the time of the key has passed");
}

#[test]
fn a_command_in_doubt_is_taken_up_under_the_uid_it_had() {
    let mut desk = Desk::new();
    let prompt = command("prompt", "s").id("a").after(&["long gone"]);
    desk.admission.restore(row(&prompt, "old", None));
    let (_, told) = desk.send(command("get_state", "s").after(&["a"]));
    assert!(told[2].starts_with("finished 1: Dependency 'a' failed: a restart cut it off"), "{told:?}");
    assert!(desk.send(command("bash", "s").id("a")).1[1].starts_with("finished 2: Conflicting id 'a'"));
    let (_, told) = desk.send(prompt.clone());
    let expected = ["accepted 3", "started 3", "execute 3 as old"];
    assert_eq!(told, expected, "its row is there, and its dependencies had been met");
    assert_eq!(desk.send(prompt.clone()).1, ["accepted 4"]);
    assert_eq!(desk.succeed(3), ["store 3 as old", "finished 3: \"3\"", "replayed 4: \"3\""]);
    assert_eq!(desk.send(prompt).1[1], "replayed 5: \"3\"");
}

#[test]
fn one_in_doubt_can_be_taken_up_by_its_key_with_another_id() {
    let mut desk = Desk::new();
    let prompt = command("prompt", "s").id("a").key("k");
    desk.admission.restore(row(&prompt, "old", None));
    desk.now += 10_000_000;
    let (_, told) = desk.send(command("prompt", "s").id("b").key("k"));
    assert_eq!(told.last().unwrap(), "execute 1 as old");
    assert_eq!(desk.succeed(1), ["store 1 as old", "store 1 as u1 behind", "finished 1: \"1\""]);
    for id in ["a", "b"] {
        assert_eq!(desk.send(command("prompt", "s").id(id)).1[1][8..], *format!(" {}: \"1\"", desk.tokens));
    }
}

#[test]
fn rows_in_doubt_are_bounded_too() {
    let mut desk = Desk::with(Limits { outcomes_max: 1, ..Limits::default() });
    desk.admission.restore(row(&command("prompt", "s").id("a"), "old", None));
    desk.admission.restore(row(&command("prompt", "s").id("b"), "new", None));
    assert_eq!(desk.admission.evicted(), ["old".into()]);
    assert_eq!(desk.send(command("prompt", "s").id("a")).1.last().unwrap(), "execute 1 as u1");
}

#[test]
fn a_row_of_another_id_does_not_make_its_key_last_longer() {
    let mut desk = Desk::new();
    desk.now = 2_000_000;
    let first = command("prompt", "s").id("a").key("k");
    let second = command("prompt", "s").id("b").key("k");
    desk.admission.restore(row(&first, "first", Some((1_500_000, success("\"1\"")))));
    desk.admission.restore(row(&second, "second", Some((1_900_000, success("\"1\"")))));
    assert_eq!(desk.send(first.clone()).1[1], "replayed 1: \"1\"");
    desk.now = 2_100_000;
    assert_eq!(desk.send(Submission { id: None, ..first }).1.len(), 4);
    assert_eq!(desk.send(Submission { key: None, ..second }).1[1], "replayed 3: \"1\"");
}
