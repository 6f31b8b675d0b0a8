//! What is kept when there is not room for everything.

use super::*;

const YOUNG: i64 = 599_999;

/// Each of these is sent and done, with an outcome of some bytes.
fn done<'a>(
    desk: &mut TestAdmission,
    name: &str,
    principal: &str,
    ids: impl IntoIterator<Item = &'a str>,
    bytes: usize,
) {
    for id in ids {
        let (token, _) = desk.send(command(name, "s").id(id).of(principal));
        desk.finish(token, success(&"x".repeat(bytes)));
    }
}

fn bounded(outcomes_max: usize, outcome_bytes_max: usize) -> TestAdmission {
    let rate = rate::RateLimits { per_minute: 0, global_per_minute: 0, ui_per_minute: 0 };
    TestAdmission::with(AdmissionLimits {
        outcomes_max,
        outcome_bytes_max,
        rate,
        ..AdmissionLimits::default()
    })
}

fn evicted(desk: &mut TestAdmission) -> Vec<String> {
    desk.admission.evicted().into_iter().map(|uid| uid.to_string()).collect()
}

#[test]
fn reads_are_bounded_in_number_and_the_oldest_goes_first() {
    let mut desk = bounded(8, 1 << 20);
    for id in ["a", "b", "c"] {
        let (token, _) = desk.send(command("get_state", "s").id(id).key(id));
        desk.succeed(token);
    }
    assert_eq!(evicted(&mut desk), ["u1"]);
    assert_eq!(evicted(&mut desk), [""; 0]);
    assert_eq!(desk.send(command("get_state", "s").id("b")).1[1], "replayed 4: \"2\"");
    assert_eq!(desk.send(command("get_state", "s").id("a").key("a")).1.len(), 3, "it is executed again");
}

#[test]
fn reads_are_bounded_in_bytes_and_those_in_flight_never_go() {
    let mut desk = bounded(100, 4 * 1600);
    desk.send(command("prompt", "s").id("long"));
    done(&mut desk, "get_state", "p", ["a"], 99);
    let numbers: Vec<String> = (10..28).map(|number| number.to_string()).collect();
    done(&mut desk, "get_state", "p", numbers.iter().map(String::as_str), 98);
    assert_eq!(evicted(&mut desk), ["u2", "u3", "u4"], "16 times 100 bytes have room");
    assert_eq!(desk.send(command("prompt", "s").id("long")).1, ["accepted 21"]);
    assert_eq!(desk.succeed(1).last().unwrap(), "replayed 21: \"1\"");
}

#[test]
fn large_reads_go_before_small_ones() {
    let mut desk = bounded(100, 4 * 1600);
    done(&mut desk, "get_messages", "p", ["a", "b"], 699);
    done(&mut desk, "get_state", "p", ["c", "d"], 99);
    assert_eq!(evicted(&mut desk), [""; 0]);
    done(&mut desk, "get_state", "p", ["e", "f"], 99);
    assert_eq!(evicted(&mut desk), ["u1"]);
    done(&mut desk, "get_messages", "p", ["g"], 1_500);
    assert_eq!(evicted(&mut desk), ["u2", "u7"], "there is no room for the last one");
}

#[test]
fn reads_and_aborts_do_not_push_out_mutations() {
    let mut desk = bounded(8, 1 << 20);
    done(&mut desk, "prompt", "p", ["a", "b", "c", "d", "e", "f"], 10);
    desk.now += 10_000_000;
    done(&mut desk, "get_state", "q", ["a", "b", "c", "d"], 10_000);
    done(&mut desk, "abort", "q", ["e", "f"], 10);
    assert_eq!(evicted(&mut desk), ["u7", "u8", "u9", "u10"]);
    done(&mut desk, "prompt", "q", ["g"], 10);
    assert_eq!(evicted(&mut desk), ["u1"], "the time of the key is over");
}

#[test]
fn the_principal_that_has_most_gives_way() {
    let mut desk = bounded(8, 1 << 20);
    done(&mut desk, "prompt", "q", ["a", "b"], 10);
    done(&mut desk, "prompt", "p", ["a", "b", "c", "d"], 10);
    done(&mut desk, "prompt", "q", ["c"], 10);
    assert_eq!(evicted(&mut desk), ["u3"], "though those of the other are older");
    done(&mut desk, "prompt", "q", ["d"], 10);
    assert_eq!(evicted(&mut desk), ["u1"]);
    desk.now += YOUNG;
    done(&mut desk, "prompt", "q", ["e"], 10);
    assert_eq!(evicted(&mut desk), ["u2"]);
    desk.now += 1;
    done(&mut desk, "prompt", "q", ["f"], 10);
    assert_eq!(evicted(&mut desk), ["u4"], "now it is not young any more");
}

#[test]
fn bytes_count_where_there_are_too_many_bytes() {
    let mut desk = bounded(100, 1_000);
    done(&mut desk, "prompt", "q", ["a"], 500);
    done(&mut desk, "prompt", "p", ["a", "b", "c"], 100);
    assert_eq!(evicted(&mut desk), ["u1"]);
}

#[test]
fn rows_in_doubt_are_bounded_too() {
    let mut desk = bounded(1, 1 << 20);
    desk.admission.restore(row(&command("prompt", "s").id("a"), "old", None));
    desk.admission.restore(row(&command("prompt", "s").id("b"), "new", None));
    assert_eq!(evicted(&mut desk), ["old"]);
    assert_eq!(desk.send(command("prompt", "s").id("a")).1.last().unwrap(), "execute 1 as u1");
}

#[test]
fn what_is_in_doubt_goes_last_until_nobody_remembers_it() {
    let mut desk = bounded(8, 1 << 20);
    desk.admission.restore(row(&command("prompt", "s").id("in doubt"), "old", None));
    done(&mut desk, "prompt", "p", ["a", "b", "c", "d", "e", "f"], 10);
    assert_eq!(evicted(&mut desk), ["u1"]);
    desk.now = ACCEPTED_AT + IN_DOUBT_MAX_MS - 1;
    done(&mut desk, "prompt", "p", ["g"], 10);
    assert_eq!(evicted(&mut desk), ["u2"]);
    desk.now += 1;
    done(&mut desk, "prompt", "p", ["h"], 10);
    assert_eq!(evicted(&mut desk), ["old"]);
}

#[test]
fn much_in_doubt_of_one_does_not_push_out_the_others() {
    let mut desk = bounded(4, 1 << 20);
    for id in ["a", "b", "c"] {
        desk.admission.restore(row(&command("prompt", "s").id(id), id, None));
    }
    done(&mut desk, "prompt", "q", ["a"], 10);
    assert_eq!(evicted(&mut desk), ["a"]);
}

#[test]
fn nobody_can_keep_the_others_out() {
    let mut desk =
        TestAdmission::with(AdmissionLimits { in_flight_per_principal_max: 2, ..AdmissionLimits::default() });
    desk.send(command("get_state", "s").id("a"));
    desk.send(command("get_state", "s").id("a"));
    let busy = "Server busy - too many concurrent commands. Please retry.";
    assert_eq!(desk.send(command("get_state", "s")).1[1], format!("finished 3: {busy}"));
    assert_eq!(desk.send(command("get_state", "s").id("a")).1[1], format!("finished 4: {busy}"));
    assert_eq!(desk.send(command("get_state", "s").of("q")).1.len(), 3);
    assert_eq!(desk.succeed(1).len(), 3);
    assert_eq!(desk.send(command("get_state", "s")).1.len(), 3);
    assert_eq!(desk.admission.metrics("p", desk.now).replay.in_flight_count, 2);
}
