//! Section 7: phases and lanes.

use super::*;

#[test]
fn a_mutation_goes_through_all_phases_in_order() {
    let mut desk = Desk::new();
    let (_, told) = desk.send(command("prompt", "s").id("a"));
    assert_eq!(told, ["accepted 1", "started 1", "journal 1", "execute 1 as u1"]);
    assert_eq!(desk.succeed(1), ["store 1 as u1", "finished 1: \"1\""]);
    assert_eq!(desk.succeed(1), [""; 0], "it has finished");
}

#[test]
fn a_read_is_stored_behind_and_an_anonymous_command_never() {
    let mut desk = Desk::new();
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
    let mut desk = Desk::new();
    desk.send(command("prompt", "s").id("a"));
    assert_eq!(desk.send(command("set_model", "s").id("b")).1, ["accepted 2"]);
    assert_eq!(desk.send(command("compact", "s").of("q").id("b")).1, ["accepted 3"]);
    assert_eq!(desk.send(command("prompt", "t").id("c")).1.len(), 4, "another session");
    assert_eq!(desk.fail(1, "no")[1..], ["finished 1: no", "started 2", "journal 2", "execute 2 as u2"]);
    assert_eq!(desk.succeed(2)[2..], ["started 3", "journal 3", "execute 3 as u3"]);
}

#[test]
fn a_lane_is_held_until_the_outcome_is_stored() {
    let mut desk = Desk::new();
    desk.prompt_store = false;
    desk.send(command("prompt", "s").id("a"));
    desk.send(command("prompt", "s").id("b"));
    told(&desk.call(|admission, now, effects| admission.journaled(now, 1, effects)));
    assert_eq!(desk.succeed(1), ["store 1 as u1"]);
    let told = told(&desk.call(|admission, now, effects| admission.stored(now, 1, effects)));
    assert_eq!(told, ["finished 1: \"1\"", "started 2", "journal 2"]);
}

#[test]
fn reads_control_and_shell_go_beside_the_work() {
    let mut desk = Desk::new();
    desk.send(command("prompt", "s").id("a"));
    for name in
        ["get_state", "abort", "steer", "follow_up", "extension_ui_response", "bash", "switch_session"]
    {
        assert!(desk.send(command(name, "s")).1.len() > 2, "{name}");
    }
    assert_eq!(desk.send(command("bash", "s")).1, ["accepted 9"], "shell commands wait for each other");
    assert_eq!(desk.succeed(7), ["finished 7: \"7\"", "started 9", "execute 9 as u9"]);
}

#[test]
fn everything_waits_for_the_birth_of_its_session() {
    for name in ["create_session", "load_session"] {
        let mut desk = Desk::new();
        desk.send(command(name, "s"));
        for name in ["switch_session", "bash", "prompt", "abort"] {
            assert_eq!(desk.send(command(name, "s")).1.len(), 1, "{name}");
        }
        assert_eq!(desk.send(command("get_state", "t")).1.len(), 3, "another session");
        let told = seen(desk.succeed(1));
        assert_eq!(told, ["finished 1: \"1\"", "started 2", "started 3", "started 4", "started 5"]);
        assert_eq!(desk.send(command("get_state", "s")).1.len(), 3);
    }
}

#[test]
fn a_read_does_not_wait_for_a_birth_after_it() {
    let mut desk = Desk::new();
    desk.send(command("create_session", "s"));
    desk.send(command("get_state", "s"));
    desk.send(command("create_session", "s"));
    desk.send(command("get_state", "s"));
    assert_eq!(seen(desk.succeed(1)), ["finished 1: \"1\"", "started 2", "started 3"]);
    assert_eq!(seen(desk.fail(3, "exists")), ["finished 3: exists", "started 4"]);
}

#[test]
fn a_birth_that_waits_for_others_holds_nobody_back() {
    let mut desk = Desk::new();
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
