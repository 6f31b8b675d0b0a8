//! Commands that were cut off, by a restart or with the link to the runner.

use super::*;

const LOST: &str = "The link was lost";

fn lost() -> PiServerOutcome {
    PiServerOutcome {
        indeterminate: true,
        settled: false,
        ..error_texts::failure(qd_wire::ErrorCode::LinkLost.with(LOST))
    }
}

#[test]
fn a_command_in_doubt_is_taken_up_under_the_uid_it_had() {
    let mut desk = TestAdmission::new();
    let prompt = command("prompt", "s").id("a").after(&["long gone"]);
    desk.admission.restore(row(&prompt, "old", None));
    let (_, told) = desk.send(command("get_state", "s").after(&["a"]));
    assert!(told[2].starts_with("finished 1: Dependency 'a' failed: it was cut off"), "{told:?}");
    assert!(desk.send(command("bash", "s").id("a")).1[1].starts_with("finished 2: Conflicting id 'a'"));
    let (_, told) = desk.send(prompt.clone());
    let expected = ["accepted 3", "started 3", "execute 3 as old in s"];
    assert_eq!(told, expected, "its row is there, and its dependencies had been met");
    assert_eq!(desk.send(prompt.clone()).1, ["accepted 4"]);
    assert_eq!(desk.succeed(3), ["store 3 as old", "finished 3: \"3\"", "replayed 4: \"3\""]);
    assert_eq!(desk.send(prompt).1[1], "replayed 5: \"3\"");
}

#[test]
fn one_in_doubt_can_be_taken_up_by_its_key_with_another_id() {
    let mut desk = TestAdmission::new();
    let prompt = command("prompt", "s").id("a").key("k");
    desk.admission.restore(row(&prompt, "old", None));
    desk.now += 10_000_000;
    let (_, told) = desk.send(command("prompt", "s").id("b").key("k"));
    assert_eq!(told.last().unwrap(), "execute 1 as old in s");
    assert_eq!(desk.succeed(1), ["store 1 as old", "store 1 as u1 behind", "finished 1: \"1\""]);
    for id in ["a", "b"] {
        assert_eq!(desk.send(command("prompt", "s").id(id)).1[1][8..], *format!(" {}: \"1\"", desk.tokens));
    }
}

/// A `create_session` that names no session, for which one was minted.
fn minted(session: &str) -> PiServerSubmission {
    let create = command("create_session", "").id("a");
    PiServerSubmission { session_id: Some(session.into()), names_session: false, ..create }
}

#[test]
fn one_in_doubt_is_about_the_session_it_was_about() {
    let mut desk = TestAdmission::new();
    desk.admission.restore(row(&minted("first"), "old", None));
    desk.send(command("prompt", "first"));
    assert_eq!(desk.send(minted("second")).1, ["accepted 2"], "its lane is that of its session");
    assert_eq!(desk.send(command("get_state", "first")).1, ["accepted 3"], "and it is waited for there");
    assert_eq!(desk.send(command("get_state", "second")).1.len(), 3);
    assert_eq!(desk.succeed(1)[1..], ["started 2", "execute 2 as old in first"]);
}

#[test]
fn a_command_whose_link_was_lost_is_in_doubt() {
    let mut desk = TestAdmission::new();
    desk.send(minted("first").key("k"));
    desk.send(minted("second").id("b").key("k"));
    let told = desk.finish(1, lost());
    assert_eq!(told, ["finished 1: The link was lost", "replayed 2: The link was lost"], "nothing is stored");
    let (_, told) = desk.send(minted("third").key("k"));
    assert_eq!(told[2], "execute 3 as u1 in first");
    assert_eq!(desk.finish(3, lost()), ["finished 3: The link was lost"]);
    desk.send(minted("fourth").id("c").key("k"));
    assert_eq!(desk.succeed(4)[..2], ["store 4 as u1", "store 4 as u4 behind"]);
    assert_eq!(desk.send(minted("fifth")).1[1], "replayed 5: \"4\"");
}

#[test]
fn what_the_runner_does_not_know_stays_so() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    let told = desk.finish(1, PiServerOutcome { settled: true, ..lost() });
    assert_eq!(told, ["store 1 as u1", "finished 1: The link was lost"]);
    assert_eq!(desk.send(command("prompt", "s").id("a")).1[1], "replayed 2: The link was lost");
}

#[test]
fn a_read_whose_link_was_lost_is_forgotten() {
    for name in ["get_state", "abort"] {
        let mut desk = TestAdmission::new();
        desk.send(command(name, "s").id("a").key("k"));
        assert_eq!(desk.finish(1, lost()), ["finished 1: The link was lost"]);
        let (_, told) = desk.send(command(name, "s").id("a").key("k"));
        assert_eq!(told[2], "execute 2 as u2");
    }
}

#[test]
fn one_taken_up_that_is_not_executed_is_in_doubt_again() {
    let mut desk = TestAdmission::new();
    let create = command("prompt", "s").id("a").within(50);
    desk.admission.restore(row(&create, "old", None));
    desk.send(command("prompt", "s"));
    assert_eq!(desk.send(create.clone()).1, ["accepted 2"]);
    assert_eq!(desk.pass(50), ["finished 2: Command 'prompt' timed out after 50ms"]);
    assert_eq!(desk.send(create.clone()).1, ["accepted 3"]);
    assert_eq!(desk.revoke("p"), ["finished 3: The access token was revoked"]);
    desk.succeed(1);
    assert_eq!(desk.send(create).1[2], "execute 4 as old in s");
}

#[test]
fn one_that_nobody_remembers_is_not_done_again() {
    let mut desk = TestAdmission::new();
    let prompt = command("prompt", "s").id("a").key("k");
    desk.admission.restore(row(&prompt, "old", None));
    desk.now = ACCEPTED_AT + IN_DOUBT_MAX_MS;
    for _ in 0..2 {
        let (token, told) = desk.send(prompt.clone());
        assert!(told[1].starts_with(&format!("replayed {token}: Nobody can know any more")), "{told:?}");
    }
    desk.tokens += 1;
    let (token, prompt) = (desk.tokens, PiServerSubmission { token: desk.tokens, ..prompt });
    let effects = desk.call(|admission, now, effects| admission.submit(now, prompt, effects));
    let Some(AdmissionEffect::Announce { token: announced, outcome, .. }) = effects.last() else { panic!() };
    assert!(*announced == token && outcome.indeterminate && !outcome.success);
}

#[test]
fn one_that_is_forgotten_while_it_waits_is_not_done_again() {
    let mut desk = TestAdmission::new();
    let prompt = command("prompt", "s").id("a");
    desk.admission.restore(row(&prompt, "old", None));
    desk.send(command("prompt", "s"));
    desk.now = ACCEPTED_AT + IN_DOUBT_MAX_MS - 1;
    assert_eq!(desk.send(prompt).1, ["accepted 2"]);
    desk.now += 1;
    let told = desk.succeed(1);
    assert!(told[2].starts_with("finished 2: Nobody can know any more"), "{told:?}");
}

#[test]
fn being_taken_up_makes_nobody_remember_longer() {
    let mut desk = TestAdmission::new();
    let prompt = command("prompt", "s").id("a");
    desk.send(prompt.clone());
    let first = desk.now;
    desk.finish(1, lost());
    desk.now += IN_DOUBT_MAX_MS - 1;
    assert_eq!(desk.send(prompt.clone()).1[2], "execute 2 as u1 in s");
    desk.finish(2, lost());
    desk.now = first + IN_DOUBT_MAX_MS;
    assert!(desk.send(prompt).1[1].starts_with("replayed 3: Nobody can know any more"));
}
