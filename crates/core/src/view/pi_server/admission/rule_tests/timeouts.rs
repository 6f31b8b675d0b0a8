//! Section 11: timeouts.

use super::*;

#[test]
fn a_timeout_is_the_stored_outcome_and_the_late_one_is_ignored() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a").within(300));
    desk.send(command("prompt", "s").id("b"));
    assert_eq!(desk.admission.next_deadline(), Some(1_300));
    assert_eq!(desk.pass(299), [""; 0]);
    let told = desk.pass(1);
    let timeout = "Command 'prompt' timed out after 300ms";
    let expected = ["cancel 1 as u1", "store 1 as u1", &format!("finished 1: {timeout}")];
    assert_eq!(told[..3], expected);
    assert_eq!(told[3..], ["started 2", "journal 2", "execute 2 as u2"], "the lane is free");
    assert_eq!(desk.succeed(1), [""; 0]);
    assert_eq!(desk.send(command("prompt", "s").id("a").within(300)).1[1], format!("replayed 3: {timeout}"));
}

#[test]
fn the_outcome_says_that_it_timed_out() {
    let mut desk = TestAdmission::new();
    desk.send(command("get_state", "s").within(1));
    desk.now += 1;
    let effects = desk.call(|admission, now, effects| admission.tick(now, effects));
    let Some(AdmissionEffect::Announce { outcome, .. }) = effects.last() else { panic!("{effects:?}") };
    assert!(outcome.timed_out && !outcome.success);
}

#[test]
fn waiting_counts() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    desk.send(command("prompt", "s").id("b").within(100));
    desk.send(command("get_state", "s").id("c").after(&["a"]).within(100));
    let told = desk.pass(100);
    let prompt = "finished 2: Command 'prompt' timed out after 100ms";
    let state = "finished 3: Command 'get_state' timed out after 100ms";
    let expected = ["store 2 as u2", "store 3 as u3 behind", state, prompt];
    assert_eq!(told, expected, "neither was executed, so that there is nothing to cancel");
    assert_eq!(seen(desk.succeed(1)), ["finished 1: \"1\""]);
    assert_eq!(desk.admission.metrics("p", desk.now).lane_count, 0);
}

#[test]
fn a_timeout_while_its_row_is_stored_is_not_executed() {
    let mut desk = TestAdmission::new();
    desk.prompt_store = false;
    desk.send(command("prompt", "s").id("a").within(100));
    assert_eq!(desk.pass(100), ["store 1 as u1"]);
    assert_eq!(told(&desk.call(|admission, now, effects| admission.journaled(now, 1, effects))), [""; 0]);
    let told = told(&desk.call(|admission, now, effects| admission.stored(now, 1, effects)));
    assert_eq!(told, ["finished 1: Command 'prompt' timed out after 100ms"]);
    assert_eq!(desk.admission.next_deadline(), None);
}

#[test]
fn a_result_that_is_being_stored_cannot_time_out() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a").within(100));
    desk.prompt_store = false;
    desk.succeed(1);
    assert_eq!(desk.pass(1_000), [""; 0]);
    let told = told(&desk.call(|admission, now, effects| admission.stored(now, 1, effects)));
    assert_eq!(told, ["finished 1: \"1\""]);
}

#[test]
fn a_timed_out_birth_lets_the_others_go() {
    let mut desk = TestAdmission::new();
    desk.send(command("create_session", "s").within(10));
    desk.send(command("get_state", "s"));
    let told = seen(desk.pass(10));
    assert_eq!(told, ["finished 1: Command 'create_session' timed out after 10ms", "started 2"]);
}
