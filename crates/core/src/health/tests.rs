use std::time::Duration;

use proptest::prelude::*;
use qd_wire::data::RunningTool;

use super::*;

const SECOND: i64 = 1000;

fn config(restart_after: Option<u64>) -> HealthConfig {
    HealthConfig { restart_after: restart_after.map(Duration::from_secs), ..HealthConfig::default() }
}

fn tool(name: &str, started_at: i64) -> RunningTool {
    RunningTool {
        tool_call_id: name.to_owned(),
        name: name.to_owned(),
        input: None,
        partial_output: None,
        started_at,
    }
}

/// The machine on a clock of its own: every order with its time, and an agent that answers, or does not.
struct Bench {
    health: AgentHealth,
    now: i64,
    answers: bool,
    orders: Vec<(i64, HealthAction)>,
}

impl Bench {
    fn working(restart_after: Option<u64>) -> Bench {
        let mut health = AgentHealth::new(&config(restart_after));
        health.process_started(0);
        health.ready(0);
        health.activity(0, busy(&[]));
        Bench { health, now: 0, answers: true, orders: Vec::new() }
    }

    fn run_until(&mut self, end: i64) {
        // What came in since the last step is looked at at once.
        self.step();
        while let Some(at) = self.health.next_deadline().filter(|at| *at <= end) {
            assert!(at > self.now, "no deadline stays due");
            self.now = at;
            self.step();
        }
        self.now = end;
        self.step();
    }

    fn step(&mut self) {
        let orders = self.health.due(self.now);
        for order in orders {
            if order == HealthAction::Probe && self.answers {
                self.health.answered();
            }
            self.orders.push((self.now, order));
        }
    }

    fn texts(&self) -> Vec<String> {
        let text = |(at, order): &(i64, HealthAction)| match order {
            HealthAction::Warn(text) => Some(format!("{at} warn: {text}")),
            HealthAction::Status(text) => Some(format!("{at} status: {}", text.as_deref().unwrap_or("-"))),
            HealthAction::Restart(text) => Some(format!("{at} restart: {text}")),
            HealthAction::Kill(text) => Some(format!("{at} kill: {text}")),
            HealthAction::Sample | HealthAction::Heartbeat | HealthAction::Probe => None,
        };
        self.orders.iter().filter_map(text).collect()
    }

    fn times(&self, wanted: &HealthAction) -> Vec<i64> {
        self.orders.iter().filter(|(_, order)| order == wanted).map(|(at, _)| *at / SECOND).collect()
    }
}

fn busy(tools: &[RunningTool]) -> SessionActivity<'_> {
    SessionActivity { is_busy: true, phase: Some(AgentPhase::Generating), tools, has_questions: false }
}

#[test]
fn the_times_are_those_of_the_protocol() {
    let mut bench = Bench::working(None);
    bench.run_until(61 * SECOND);
    assert_eq!(bench.times(&HealthAction::Sample), (2..=60).step_by(2).collect::<Vec<i64>>());
    assert_eq!(bench.times(&HealthAction::Heartbeat), [10, 20, 30, 40, 50, 60]);
    assert_eq!(bench.times(&HealthAction::Probe), [30, 60]);
    let texts = bench.texts();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].starts_with("30000 warn: The agent has been silent for 30 s while it was generating"));
    assert_eq!(texts[1], "30000 status: The agent is silent");
}

#[test]
fn each_silence_is_told_once_and_taken_back() {
    let mut bench = Bench::working(None);
    bench.run_until(100 * SECOND);
    bench.health.output(bench.now);
    bench.run_until(200 * SECOND);
    bench.health.activity(bench.now, SessionActivity::default());
    bench.run_until(500 * SECOND);
    let texts: Vec<String> =
        bench.texts().into_iter().map(|text| text.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!(
        texts,
        ["30000 warn", "30000 status", "100000 status", "130000 warn", "130000 status", "200000 status"]
    );
}

#[test]
fn a_silent_tool_is_named_and_never_called_a_hang() {
    let mut bench = Bench::working(Some(60));
    bench.answers = false;
    let tools = [tool("bash", 0)];
    bench.health.activity(0, busy(&tools));
    bench.run_until(200 * SECOND);
    let own: Vec<String> = bench.texts().into_iter().filter(|text| !text.contains("not respond")).collect();
    assert_eq!(own, ["30000 status: Running bash for 30 s"]);
    let mut bench = Bench::working(Some(60));
    bench.health.activity(0, busy(&tools));
    bench.run_until(95 * SECOND);
    bench.health.output(bench.now);
    bench.run_until(96 * SECOND);
    assert_eq!(
        bench.texts(),
        [
            "30000 status: Running bash for 30 s",
            "60000 status: Running bash for 60 s",
            "90000 status: Running bash for 90 s",
            "95000 status: -"
        ]
    );
}

#[test]
fn a_person_may_think_as_long_as_they_like() {
    let mut bench = Bench::working(Some(60));
    bench.health.activity(0, SessionActivity { has_questions: true, ..busy(&[]) });
    bench.run_until(3600 * SECOND);
    bench.health.activity(bench.now, busy(&[]));
    bench.run_until(3629 * SECOND);
    assert!(bench.texts().is_empty(), "{:?}", bench.texts());
    bench.run_until(3630 * SECOND);
    assert_eq!(bench.texts().len(), 2);
}

#[test]
fn an_unanswered_probe_is_told_and_a_late_answer_takes_it_back() {
    let mut bench = Bench::working(None);
    bench.health.activity(0, SessionActivity::default());
    bench.answers = false;
    bench.run_until(300 * SECOND);
    assert_eq!(bench.times(&HealthAction::Probe), [30], "no probe while one is open");
    bench.health.answered();
    bench.answers = true;
    bench.run_until(400 * SECOND);
    let texts = bench.texts();
    assert!(texts[0].starts_with("35000 warn: The agent does not respond"), "{texts:?}");
    assert_eq!(texts[1..], ["35000 status: The agent does not respond", "300000 status: -"]);
    assert_eq!(bench.times(&HealthAction::Probe)[1..], [300, 330, 360, 390]);
}

#[test]
fn a_probe_that_cannot_be_sent_is_tried_again() {
    let mut health = AgentHealth::new(&config(None));
    health.ready(0);
    assert_eq!(health.due(30 * SECOND), [HealthAction::Probe]);
    health.probe_refused(30 * SECOND);
    assert_eq!(
        health.due(30 * SECOND),
        [HealthAction::Status(Some("The agent does not respond".to_owned()))]
    );
    assert_eq!(health.next_deadline(), Some(60 * SECOND));
    assert_eq!(health.due(60 * SECOND), [HealthAction::Probe]);
}

#[test]
fn only_a_silent_agent_that_does_not_answer_is_restarted() {
    let mut bench = Bench::working(Some(60));
    bench.run_until(600 * SECOND);
    assert!(!bench.texts().iter().any(|text| text.contains("restart:")), "it answers");
    let mut bench = Bench::working(None);
    bench.answers = false;
    bench.run_until(600 * SECOND);
    assert!(!bench.texts().iter().any(|text| text.contains("restart:")), "nobody wants it");
    let mut bench = Bench::working(Some(60));
    bench.answers = false;
    bench.run_until(600 * SECOND);
    let restarts: Vec<String> = bench.texts().into_iter().filter(|text| text.contains("restart:")).collect();
    assert_eq!(restarts.len(), 1, "{restarts:?}");
    assert!(restarts[0].starts_with("60000 restart: The agent hung: no output for 60 s"), "{restarts:?}");
}

#[test]
fn a_living_process_with_a_closed_output_is_killed() {
    let mut health = AgentHealth::new(&config(None));
    health.process_started(0);
    let deaf = ProcessSample { is_alive: true, is_stdout_open: false };
    health.sampled(deaf);
    health.sampled(ProcessSample { is_alive: true, is_stdout_open: true });
    health.sampled(deaf);
    assert_eq!(health.due(0), []);
    health.sampled(deaf);
    assert!(matches!(health.due(0)[..], [HealthAction::Kill(_)]));
    assert_eq!(health.due(0), [], "once");
    for _ in 0..9 {
        health.sampled(ProcessSample { is_alive: false, is_stdout_open: false });
    }
    assert_eq!(health.due(0), [], "a dead one is somebody else's business");
}

#[test]
fn a_machine_that_slept_does_not_blame_the_agent() {
    for jump in [3600 * SECOND, -3600 * SECOND] {
        let mut bench = Bench::working(Some(60));
        bench.answers = false;
        // A probe is open, and the agent silent, when the lid closes.
        bench.run_until(31 * SECOND);
        let told = bench.texts().len();
        bench.now += jump;
        let woken = bench.now;
        bench.step();
        assert_eq!(bench.texts().len(), told, "{:?}", bench.texts());
        bench.answers = true;
        bench.health.answered();
        bench.run_until(woken + 500 * SECOND);
        assert!(!bench.texts().iter().any(|text| text.contains("restart:")), "{:?}", bench.texts());
        let samples =
            bench.times(&HealthAction::Sample).into_iter().filter(|at| *at > woken / SECOND).count();
        assert!(samples >= 249, "supervision goes on: {samples}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Wait(i64),
    Output,
    Busy(bool),
    Tools(u8),
    Questions(bool),
    Answer,
    Refuse,
    Sampled(bool, bool),
    Restarted,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1i64..40_000).prop_map(Step::Wait),
        2 => Just(Step::Output),
        2 => any::<bool>().prop_map(Step::Busy),
        1 => (0u8..3).prop_map(Step::Tools),
        1 => any::<bool>().prop_map(Step::Questions),
        2 => Just(Step::Answer),
        1 => Just(Step::Refuse),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(alive, open)| Step::Sampled(alive, open)),
        1 => Just(Step::Restarted),
    ]
}

/// The truth, kept by other means, to hold the machine against.
#[derive(Default)]
struct Truth {
    is_busy: bool,
    has_questions: bool,
    tools: Vec<RunningTool>,
    is_probe_open: bool,
    /// Since the last output, start of work or answer of a person.
    quiet_since: i64,
    warned_silence: Option<i64>,
    restarts_in_stretch: u32,
}

proptest! {
    #[test]
    fn supervision_is_never_rash(steps in prop::collection::vec(step(), 1..80), restart in any::<bool>()) {
        let restart_after = restart.then_some(60);
        let mut health = AgentHealth::new(&config(restart_after));
        let (mut now, mut truth) = (0i64, Truth::default());
        health.process_started(0);
        health.ready(0);
        for step in steps {
            let mut waits = 0;
            match step {
                Step::Wait(ms) => waits = ms,
                Step::Output => { health.output(now); truth.quiet_since = now; }
                Step::Busy(is_busy) => {
                    if is_busy && !truth.is_busy { truth.quiet_since = now; truth.restarts_in_stretch = 0; }
                    truth.is_busy = is_busy;
                }
                Step::Tools(count) => truth.tools = (0..count).map(|n| tool(&format!("t{n}"), now)).collect(),
                Step::Questions(has) => {
                    if truth.has_questions && !has { truth.quiet_since = now; }
                    truth.has_questions = has;
                }
                Step::Answer => { health.answered(); truth.is_probe_open = false; }
                Step::Refuse => if truth.is_probe_open { health.probe_refused(now); truth.is_probe_open = false; },
                Step::Sampled(is_alive, is_stdout_open) => health.sampled(ProcessSample { is_alive, is_stdout_open }),
                Step::Restarted => {
                    health.gone();
                    prop_assert_eq!(health.next_deadline(), None);
                    prop_assert_eq!(health.due(now), []);
                    health.process_started(now);
                    health.ready(now);
                    truth = Truth { quiet_since: now, ..Truth::default() };
                }
            }
            let Truth { is_busy, has_questions, .. } = truth;
            health.activity(now, SessionActivity { is_busy, phase: None, tools: &truth.tools, has_questions });
            let end = now + waits;
            // Time passes from deadline to deadline, as a session's loop does it.
            loop {
                for order in health.due(now) {
                    check(&order, now, &mut truth, restart_after)?;
                }
                prop_assert_eq!(health.due(now), [], "everything is said once");
                match health.next_deadline() {
                    Some(at) if at <= end => {
                        prop_assert!(at > now, "no deadline stays due: {} at {}", at, now);
                        now = at;
                    }
                    _ => break,
                }
            }
            now = end;
            for order in health.due(now) {
                check(&order, now, &mut truth, restart_after)?;
            }
            let is_silent = truth.is_busy && !truth.has_questions && truth.tools.is_empty();
            if is_silent && now - truth.quiet_since >= 30 * SECOND {
                prop_assert_eq!(truth.warned_silence, Some(truth.quiet_since), "no silence goes untold");
            }
        }
    }
}

proptest! {
    /// Whatever the clock does, supervision goes on at its pace, and nobody is blamed for time we did not run.
    #[test]
    fn a_jump_of_the_clock_blames_nobody(
        steps in prop::collection::vec((0i64..20_000, -9_000_000i64..9_000_000, any::<bool>()), 1..30),
    ) {
        let mut bench = Bench::working(Some(60));
        for (wait, jump, answers) in steps {
            bench.answers = answers;
            bench.run_until(bench.now + wait);
            let told = bench.texts().len();
            bench.now += jump;
            bench.step();
            if !(0..=10 * SECOND).contains(&jump) {
                prop_assert_eq!(bench.texts().len(), told, "{:?}", bench.texts());
            }
            let next = bench.health.next_deadline().unwrap();
            prop_assert!(next > bench.now && next <= bench.now + 2 * SECOND, "{} at {}", next, bench.now);
        }
    }
}

fn check(
    order: &HealthAction,
    now: i64,
    truth: &mut Truth,
    restart_after: Option<u64>,
) -> Result<(), TestCaseError> {
    match order {
        HealthAction::Probe => {
            prop_assert!(!truth.is_probe_open, "never a probe while one is open");
            truth.is_probe_open = true;
        }
        HealthAction::Warn(text) if text.contains("silent") => {
            prop_assert!(truth.is_busy && !truth.has_questions && truth.tools.is_empty());
            prop_assert!(now - truth.quiet_since >= 30 * SECOND);
            prop_assert_ne!(truth.warned_silence, Some(truth.quiet_since), "one warning per silence");
            truth.warned_silence = Some(truth.quiet_since);
        }
        HealthAction::Restart(_) => {
            prop_assert!(restart_after.is_some(), "only who asked for it gets it");
            prop_assert!(truth.tools.is_empty(), "no kill while a tool runs");
            prop_assert!(truth.is_busy && !truth.has_questions);
            prop_assert!(now - truth.quiet_since >= 60 * SECOND);
            truth.restarts_in_stretch += 1;
            prop_assert_eq!(truth.restarts_in_stretch, 1);
        }
        HealthAction::Sample
        | HealthAction::Heartbeat
        | HealthAction::Warn(_)
        | HealthAction::Status(_)
        | HealthAction::Kill(_) => {}
    }
    Ok(())
}
