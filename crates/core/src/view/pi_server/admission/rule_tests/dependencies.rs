//! Section 9: dependencies.

use super::*;

const BEHIND: &str = "is queued in the same lane and cannot be awaited from this command";

#[test]
fn a_dependency_on_the_command_before_it_in_its_lane_is_met() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    assert_eq!(desk.send(command("set_model", "s").id("b").after(&["a"])).1, ["accepted 2"]);
    assert_eq!(desk.succeed(1)[1..], ["finished 1: \"1\"", "started 2", "journal 2", "execute 2 as u2"]);
}

#[test]
fn what_cannot_be_met_fails_and_is_stored() {
    let mut desk = TestAdmission::new();
    let (_, told) = desk.send(command("prompt", "s").id("a").after(&["a"]));
    let itself = "finished 1: Command 'a' cannot depend on itself";
    assert_eq!(told, ["accepted 1", "started 1", "store 1 as u1", itself]);
    let (_, told) = desk.send(command("prompt", "s").id("b").after(&["x"]));
    assert_eq!(told[2..], ["store 2 as u2", "finished 2: Dependency 'x' is unknown"]);
    let (_, told) = desk.send(command("prompt", "s").id("c").after(&["b"]));
    assert_eq!(told[3], "finished 3: Dependency 'b' failed: Dependency 'x' is unknown");
    assert_eq!(desk.send(command("prompt", "s").id("b").after(&["x"])).1[1][..10], *"replayed 4");
}

#[test]
fn a_waiting_dependent_blocks_nobody_and_comes_back_in_order_of_arrival() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "t").id("x"));
    assert_eq!(desk.send(command("prompt", "s").id("a").after(&["x"])).1, ["accepted 2", "started 2"]);
    assert_eq!(desk.send(command("prompt", "s").id("b")).1.len(), 4, "it passes");
    desk.send(command("prompt", "s").id("c"));
    assert_eq!(seen(desk.succeed(1)), ["finished 1: \"1\""]);
    let told = desk.succeed(3);
    assert_eq!(
        told[1..],
        ["finished 3: \"3\"", "journal 2", "execute 2 as u2"],
        "before c, and started once"
    );
    assert_eq!(seen(desk.succeed(2)), ["finished 2: \"2\"", "started 4"]);
}

#[test]
fn the_failure_of_a_dependency_fails_those_that_wait_for_it() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "t").id("x"));
    desk.send(command("get_state", "s").id("a").after(&["x"]));
    desk.send(command("get_state", "s").id("b").after(&["a"]));
    let told = seen(desk.fail(1, "no model"));
    let first = "finished 2: Dependency 'x' failed: no model";
    let second = "finished 3: Dependency 'a' failed: Dependency 'x' failed: no model";
    assert_eq!(told, ["finished 1: no model", first, second]);
}

#[test]
fn all_dependencies_must_be_met_and_the_first_failure_counts() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "t").id("x"));
    desk.send(command("prompt", "u").id("y"));
    desk.send(command("get_state", "s").after(&["x", "y", "x"]));
    assert_eq!(seen(desk.succeed(1)), ["finished 1: \"1\""]);
    assert_eq!(desk.succeed(2)[1..], ["finished 2: \"2\"", "execute 3 as u3"]);
    desk.send(command("prompt", "t").id("z"));
    let (_, told) = desk.send(command("get_state", "s").after(&["z", "v", "w"]));
    assert_eq!(told[2], "finished 5: Dependency 'v' is unknown", "at once");
}

#[test]
fn a_dependency_behind_it_in_its_lane_fails_at_once() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    desk.send(command("prompt", "s").id("b").after(&["c"]));
    desk.send(command("prompt", "s").id("c"));
    let told = seen(desk.succeed(1));
    let behind = format!("finished 2: Dependency 'c' {BEHIND}");
    assert_eq!(told, ["finished 1: \"1\"", "started 2", &behind, "started 3"]);
}

#[test]
fn a_later_one_in_another_lane_can_be_waited_for() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s").id("a"));
    desk.send(command("prompt", "s").id("b").after(&["c"]));
    desk.send(command("bash", "t").id("c"));
    assert_eq!(seen(desk.succeed(1)), ["finished 1: \"1\"", "started 2"]);
    assert_eq!(desk.succeed(3)[2..], ["journal 2", "execute 2 as u2"]);
}

#[test]
fn a_circle_across_lanes_fails_at_once() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s"));
    desk.send(command("prompt", "s").id("a").after(&["c"]));
    desk.send(command("prompt", "t"));
    desk.send(command("prompt", "t").id("b").after(&["a"]));
    assert_eq!(desk.send(command("get_state", "u").id("c").after(&["b"])).1, ["accepted 5", "started 5"]);
    assert_eq!(seen(desk.succeed(3)), ["finished 3: \"3\"", "started 4"]);
    let told = seen(desk.succeed(1));
    let first = format!("finished 2: Dependency 'c' {BEHIND}");
    let second = format!("finished 4: Dependency 'a' failed: Dependency 'c' {BEHIND}");
    let third = format!("finished 5: Dependency 'b' failed: Dependency 'a' failed: Dependency 'c' {BEHIND}");
    assert_eq!(told, ["finished 1: \"1\"", "started 2", &first, &second, &third]);
}

#[test]
fn a_circle_through_a_repeat_fails_at_once() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "s"));
    desk.send(command("prompt", "s").id("a").key("k").after(&["b"]));
    desk.send(command("prompt", "s").id("b").key("k").after(&["b"]));
    let told = seen(desk.succeed(1));
    let behind = format!("Dependency 'b' {BEHIND}");
    assert_eq!(told[2..], [format!("finished 2: {behind}"), format!("replayed 3: {behind}")]);
}

#[test]
fn waiting_has_an_end() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "t").id("x"));
    desk.send(command("prompt", "u").id("y"));
    desk.send(command("get_state", "s").id("a").after(&["x", "y"]));
    desk.pass(20_000);
    desk.succeed(1);
    assert_eq!(desk.admission.next_deadline(), Some(31_000));
    let told = desk.pass(10_000);
    assert_eq!(told, ["store 3 as u3 behind", "finished 3: Command 'dependsOn:y' timed out after 30000ms"]);
    assert_eq!(seen(desk.succeed(2)), ["finished 2: \"2\""]);
    assert_eq!(desk.admission.forward_waiters, 0);
}

#[test]
fn errors_in_a_chain_of_dependents_do_not_grow_without_end() {
    let mut desk = TestAdmission::new();
    desk.send(command("prompt", "t").id("0"));
    for number in 1..=100 {
        let before = (number - 1).to_string();
        desk.send(command("get_state", "s").id(&number.to_string()).after(&[&before]));
    }
    let told = seen(desk.fail(1, "ö"));
    assert_eq!(told.len(), 101);
    let last = &told[100];
    assert!(last.starts_with("finished 101: Dependency '99' failed: Dependency '98' failed: "), "{last}");
    assert!(last.ends_with('…') && last.chars().count() < 1_050, "{last}");
}
