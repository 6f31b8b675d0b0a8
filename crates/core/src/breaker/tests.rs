use proptest::prelude::*;
use qd_wire::data::CircuitState;

use super::*;

fn breakers() -> Breakers {
    Breakers::new(BreakerConfig::default())
}

fn row(breakers: &Breakers, now: i64) -> BreakerState {
    breakers.providers(now).into_iter().find(|row| row.provider == "p").unwrap()
}

fn state_of(breakers: &Breakers, now: i64) -> CircuitState {
    row(breakers, now).state
}

fn open(breakers: &mut Breakers, now: i64) {
    for _ in 0..5 {
        breakers.admit(now, "p").unwrap();
        breakers.failed(now, "p");
    }
}

#[test]
fn five_failures_open_it_and_two_good_answers_close_it() {
    let mut breakers = breakers();
    open(&mut breakers, 1000);
    let refused = breakers.admit(1001, "p").unwrap_err().to_string();
    assert_eq!(refused, "Circuit breaker open for p (recovery in 30s)");
    assert!(breakers.admit(1001, "other").is_ok());
    assert_eq!(state_of(&breakers, 31_000), CircuitState::HalfOpen);
    let call = breakers.admit(31_000, "p").unwrap();
    breakers.succeeded(31_100, "p");
    breakers.done(&call, Some(100));
    assert_eq!(state_of(&breakers, 31_100), CircuitState::HalfOpen);
    breakers.succeeded(31_200, "p");
    let row = row(&breakers, 31_200);
    assert_eq!((row.state, row.failures, row.average_latency_ms), (CircuitState::Closed, 0, 100.0));
    assert_eq!((row.total_calls, row.total_rejected, row.total_failures), (7, 1, 5));
}

#[test]
fn failures_that_lie_far_apart_do_not_open_it() {
    let mut breakers = breakers();
    for minute in 0..20 {
        breakers.failed(minute * 15_001, "p");
        assert_eq!(state_of(&breakers, minute * 15_001), CircuitState::Closed);
    }
}

#[test]
fn few_calls_test_and_a_call_without_an_answer_gives_its_place_back() {
    let mut breakers = breakers();
    open(&mut breakers, 0);
    let calls: Vec<_> = (0..5).map(|_| breakers.admit(30_000, "p").unwrap()).collect();
    let refused = breakers.admit(30_001, "p").unwrap_err().to_string();
    assert!(refused.starts_with("Circuit breaker open for p (testing recovery"), "{refused}");
    breakers.done(&calls[0], None);
    assert!(breakers.admit(30_002, "p").is_ok());
    breakers.failed(30_003, "p");
    assert!(breakers.admit(30_004, "p").is_err());
    // Calls of the test before hold no place in this one.
    assert!(breakers.admit(60_003, "p").is_ok());
    calls.iter().for_each(|call| breakers.done(call, None));
    assert_eq!(breakers.providers(60_003)[0].half_open_calls, 1);
}

#[test]
fn shell_commands_that_run_out_of_time_stop_their_session_then_all() {
    let mut breakers = breakers();
    let mut time_out = |session: &str| {
        let call = breakers.admit_bash(0, session).map_err(|rejected| rejected.to_string())?;
        breakers.bash_done(0, &call, BashEnd::TimedOut);
        Ok::<(), String>(())
    };
    for _ in 0..10 {
        time_out("a").unwrap();
    }
    let refused = time_out("a").unwrap_err();
    assert!(refused.starts_with("Bash circuit breaker open for session a: "), "{refused}");
    for number in 0..40 {
        time_out(&format!("s{}", number % 8)).unwrap();
    }
    let refused = time_out("fresh").unwrap_err();
    assert!(refused.starts_with("Bash circuit breaker open globally: "), "{refused}");
    let state = breakers.bash(0);
    assert_eq!((state.state, state.open_sessions, state.total_timeouts), (CircuitState::Open, 1, 50));
    // Two good commands later all is well, and nothing is remembered of those who had no trouble lately.
    for now in [30_000, 30_001] {
        let call = breakers.admit_bash(now, "a").unwrap();
        breakers.bash_done(now, &call, BashEnd::Done);
    }
    assert_eq!(breakers.bash(30_001).state, CircuitState::Closed);
    assert_eq!(breakers.bash(30_001).sessions, 8);
}

#[test]
fn a_session_that_is_tested_is_not_open_and_a_closed_one_is_forgotten() {
    let mut breakers = breakers();
    for _ in 0..10 {
        let call = breakers.admit_bash(0, "a").unwrap();
        breakers.bash_done(0, &call, BashEnd::TimedOut);
    }
    assert_eq!(breakers.bash(29_999).open_sessions, 1);
    assert_eq!((breakers.bash(30_000).open_sessions, breakers.bash(30_000).sessions), (0, 1));
    breakers.forget_bash("a");
    assert_eq!(breakers.bash(0).sessions, 0);
    assert!(breakers.admit_bash(0, "a").is_ok());
}

#[test]
fn a_breaker_that_is_off_counts_and_refuses_nothing() {
    let mut breakers = Breakers::new(BreakerConfig { enabled: false, ..BreakerConfig::default() });
    open(&mut breakers, 0);
    open(&mut breakers, 0);
    for _ in 0..60 {
        let call = breakers.admit_bash(0, "a").unwrap();
        breakers.bash_done(0, &call, BashEnd::TimedOut);
    }
    assert_eq!(breakers.providers(0)[0].total_failures, 10);
    assert_eq!((breakers.bash(0).state, breakers.bash(0).total_timeouts), (CircuitState::Closed, 60));
}

#[derive(Debug, Clone)]
enum Step {
    Wait(i64),
    Admit,
    Succeed,
    Fail,
    Done(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..40_000i64).prop_map(Step::Wait),
        Just(Step::Admit),
        Just(Step::Succeed),
        Just(Step::Fail),
        (0..8usize).prop_map(Step::Done),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn whatever_happens_it_recovers_and_never_tests_too_much(steps in steps()) {
        let mut breakers = breakers();
        let limits = BreakerConfig::default().provider;
        let (mut now, mut calls) = (0, Vec::new());
        // The failures of the last minute since it last closed, as a plain list: what the machine must agree with.
        let mut recent: Vec<i64> = Vec::new();
        for step in steps {
            match step {
                Step::Wait(ms) => now += ms,
                Step::Admit => {
                    let is_open = breakers.providers(now).first().is_some_and(|row| row.state == CircuitState::Open);
                    let admitted = breakers.admit(now, "p");
                    prop_assert!(!(is_open && admitted.is_ok()));
                    calls.extend(admitted.ok());
                }
                Step::Succeed => breakers.succeeded(now, "p"),
                Step::Fail => {
                    let was = breakers.providers(now).first().map_or(CircuitState::Closed, |row| row.state);
                    breakers.failed(now, "p");
                    if was == CircuitState::Closed {
                        recent.push(now);
                        recent.retain(|at| now - at < limits.window_ms);
                        prop_assert_eq!(
                            state_of(&breakers, now) == CircuitState::Open,
                            recent.len() >= limits.threshold
                        );
                    } else {
                        prop_assert_eq!(state_of(&breakers, now), CircuitState::Open);
                    }
                }
                Step::Done(index) => {
                    if index < calls.len() {
                        breakers.done(&calls.swap_remove(index), None);
                    }
                }
            }
            let rows = breakers.providers(now);
            let Some(row) = rows.first() else { continue };
            if row.state != CircuitState::Closed {
                recent.clear();
            }
            prop_assert!(row.half_open_calls <= limits.half_open_max);
        }
        // However it ended: with all calls given back and good answers it is closed after the recovery time.
        calls.iter().for_each(|call| breakers.done(call, None));
        now += limits.recovery_ms;
        for _ in 0..limits.successes_to_close {
            let call = breakers.admit(now, "p");
            prop_assert!(call.is_ok());
            breakers.succeeded(now, "p");
            breakers.done(&call.unwrap(), Some(1));
        }
        prop_assert_eq!(state_of(&breakers, now), CircuitState::Closed);
    }
}
