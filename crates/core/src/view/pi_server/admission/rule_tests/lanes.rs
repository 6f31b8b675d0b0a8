//! Section 7: phases and lanes.

use super::*;

#[test]
fn a_mutation_goes_through_all_phases_in_order() {
    let mut desk = TestAdmission::new();
    let (_, told) = desk.send(command("prompt", "s").id("a"));
    assert_eq!(told, ["accepted 1", "started 1", "journal 1", "execute 1 as u1"]);
    assert_eq!(desk.succeed(1), ["store 1 as u1", "finished 1: \"1\""]);
    assert_eq!(desk.succeed(1), [""; 0], "it has finished");
}

#[test]
fn a_read_is_stored_behind_and_an_anonymous_command_never() {
    let mut desk = TestAdmission::new();
    assert_eq!(
        desk.send(command("get_state", "s").id("a")).1,
        ["accepted 1", "started 1", "execute 1 as u1"]
    );
    assert_eq!(desk.succeed(1), ["store 1 as u1 behind", "finished 1: \"1\""]);
    assert_eq!(desk.send(command("prompt", "s")).1, ["accepted 2", "started 2", "execute 2 as u2"]);
    assert_eq!(desk.succeed(2), ["finished 2: \"2\""]);
}

#[test]
fn work_of_one_session_goes_one_after_the_other() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    assert_eq!(desk.send(command("set_model", "s").id("b")).1, ["accepted 2"]);
    assert_eq!(desk.send(command("compact", "s").of("q").id("b")).1, ["accepted 3"]);
    assert_eq!(desk.send(command("prompt", "t").id("c")).1.len(), 4, "another session");
    assert_eq!(desk.fail(1, "no")[1..], ["finished 1: no", "started 2", "journal 2", "execute 2 as u2"]);
    assert_eq!(desk.succeed(2)[2..], ["started 3", "journal 3", "execute 3 as u3"]);
}

#[test]
fn a_lane_is_held_until_the_outcome_is_stored() {
    let mut desk = TestAdmission::new();
    desk.prompt_store = false;
    desk.send(command("prompt", "s").id("a"));
    desk.send(command("prompt", "s").id("b"));
    told(&desk.call(|admission, now, effects| admission.journaled(now, 1, effects)));
    assert_eq!(desk.succeed(1), ["store 1 as u1"]);
    let told = told(&desk.call(|admission, now, effects| admission.stored(now, 1, effects)));
    assert_eq!(told, ["finished 1: \"1\"", "started 2", "journal 2"]);
}

#[test]
fn reads_and_control_go_beside_the_work_and_shell_commands_are_work() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    for name in ["get_state", "abort", "steer", "follow_up", "extension_ui_response", "switch_session"] {
        assert!(desk.send(command(name, "s")).1.len() > 2, "{name}");
    }
    assert_eq!(desk.send(command("bash", "s")).1, ["accepted 8"]);
}

#[test]
fn one_that_may_take_for_ever_keeps_its_place_in_the_order_and_not_the_lane() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s"));
    let asks = PiServerSubmission { frees_lane: true, ..command("prompt", "s") };
    assert_eq!(desk.send(asks).1, ["accepted 2"], "it waits for those before it");
    desk.send(command("set_model", "s"));
    let told = desk.succeed(1);
    assert_eq!(told[1..], ["started 2", "execute 2 as u2", "started 3", "execute 3 as u3"]);
    assert_eq!(desk.send(command("prompt", "s")).1, ["accepted 4"], "the lane is that of 3");
    assert_eq!(desk.succeed(2), ["finished 2: \"2\""]);
    assert_eq!(desk.succeed(3)[1..], ["started 4", "execute 4 as u4"]);
}

#[test]
fn everything_waits_for_the_birth_of_its_session() {
    for name in ["create_session", "load_session"] {
        let mut desk = TestAdmission::new();
        desk.send(command(name, "s"));
        for name in ["switch_session", "prompt", "bash", "abort"] {
            assert_eq!(desk.send(command(name, "s")).1.len(), 1, "{name}");
        }
        assert_eq!(desk.send(command("get_state", "t")).1.len(), 3, "another session");
        let told = seen(desk.succeed(1));
        assert_eq!(told, ["finished 1: \"1\"", "started 2", "started 3", "started 5"]);
        assert_eq!(desk.send(command("get_state", "s")).1.len(), 3);
    }
}

#[test]
fn a_read_does_not_wait_for_a_birth_after_it() {
    let mut desk = TestAdmission::new();
    desk.send(command("create_session", "s"));
    desk.send(command("get_state", "s"));
    desk.send(command("create_session", "s"));
    desk.send(command("get_state", "s"));
    assert_eq!(seen(desk.succeed(1)), ["finished 1: \"1\"", "started 2", "started 3"]);
    assert_eq!(seen(desk.fail(3, "exists")), ["finished 3: exists", "started 4"]);
}

#[test]
fn a_birth_that_waits_for_others_holds_nobody_back() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "t").id("x"));
    assert_eq!(
        desk.send(command("create_session", "s").id("c").after(&["x"])).1,
        ["accepted 2", "started 2"]
    );
    assert_eq!(desk.send(command("get_state", "s")).1.len(), 3);
    assert_eq!(desk.send(command("prompt", "s")).1.len(), 3);
    assert_eq!(seen(desk.succeed(1)), ["finished 1: \"1\""], "the lane is taken");
    assert_eq!(desk.send(command("get_state", "s")).1.len(), 1, "and now it is in the lane");
    assert_eq!(desk.succeed(4), ["finished 4: \"4\"", "journal 2", "execute 2 as u2"]);
    assert_eq!(seen(desk.succeed(2)), ["finished 2: \"2\"", "started 5"]);
}

#[test]
fn a_session_is_ended_beside_its_work() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s"));
    desk.send(command("prompt", "s"));
    assert_eq!(desk.send(command("delete_session", "s").id("a")).1.len(), 4);
    assert_eq!(desk.succeed(3), ["store 3 as u3", "finished 3: \"3\""]);
}

#[test]
fn a_session_is_ended_after_its_birth_and_born_after_its_end() {
    let mut desk = TestAdmission::new();
    desk.send(command("create_session", "s"));
    assert_eq!(desk.send(command("delete_session", "s")).1, ["accepted 2"]);
    assert_eq!(desk.send(command("create_session", "s")).1, ["accepted 3"]);
    assert_eq!(desk.send(command("prompt", "s")).1, ["accepted 4"]);
    assert_eq!(seen(desk.succeed(1)), ["finished 1: \"1\"", "started 2"]);
    assert_eq!(seen(desk.succeed(2)), ["finished 2: \"2\"", "started 3"]);
    assert_eq!(seen(desk.succeed(3)), ["finished 3: \"3\"", "started 4"]);
    desk.succeed(4);
    assert_eq!(desk.admission.metrics("p", desk.now).lane_count, 0);
}

#[test]
fn a_birth_does_not_wait_for_an_end_that_waits_for_others() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "t").id("x"));
    assert_eq!(desk.send(command("delete_session", "s").after(&["x"])).1, ["accepted 2", "started 2"]);
    assert_eq!(desk.send(command("create_session", "s")).1.len(), 3);
}

#[test]
fn what_is_not_written_down_does_not_overtake_what_is() {
    let mut desk = TestAdmission::new();
    desk.prompt_store = false;
    assert_eq!(desk.send(command("prompt", "s").id("a")).1.last().unwrap(), "journal 1");
    assert_eq!(
        desk.send(command("steer", "s").id("b")).1.last().unwrap(),
        "journal 2",
        "they are written at once"
    );
    assert_eq!(desk.send(command("abort", "s").id("c")).1, ["accepted 3"]);
    assert_eq!(desk.send(command("get_state", "s")).1.len(), 3, "reads wait for nobody");
    assert_eq!(desk.send(command("abort", "t")).1.len(), 3, "nor do others");
    let journaled = |desk: &mut TestAdmission, token| {
        told(&desk.call(|admission, now, effects| admission.journaled(now, token, effects)))
    };
    assert_eq!(journaled(&mut desk, 1), ["execute 1 as u1"]);
    assert_eq!(desk.send(command("follow_up", "s")).1, ["accepted 6"]);
    assert_eq!(journaled(&mut desk, 2)[..3], ["execute 2 as u2", "started 3", "execute 3 as u3"]);
    assert_eq!(desk.send(command("steer", "s").id("d")).1.last().unwrap(), "journal 7");
    assert_eq!(desk.send(command("abort", "s")).1, ["accepted 8"]);
    let expected = ["finished 7: The disk is full", "started 8", "execute 8 as u8"];
    assert_eq!(desk.refuse(7, "The disk is full"), expected, "a full disk does not hold it back");
}
