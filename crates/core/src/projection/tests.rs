use qd_wire::message::StopReason;
use serde_json::{Value, json};

use super::*;

/// A session, and how many records it has.
#[derive(Default)]
struct World {
    session: Projection,
    seq: u64,
}

impl World {
    fn record(&mut self, event: &str, body: Value) -> Vec<ProjectionUpdate> {
        self.seq += 1;
        let moment = EventMoment {
            seq: Some(self.seq),
            ts: self.seq as i64,
            now: 1000 + self.seq as i64,
            is_past: false,
        };
        self.take(event, moment, &body)
    }

    fn live(&mut self, event: &str, body: Value, now: i64) -> Vec<ProjectionUpdate> {
        self.take(event, EventMoment { now, ..EventMoment::default() }, &body)
    }

    fn past(&mut self, event: &str, body: Value) -> Vec<ProjectionUpdate> {
        self.seq += 1;
        let moment = EventMoment { seq: Some(self.seq), ts: 1, now: 1, is_past: true };
        self.take(event, moment, &body)
    }

    fn take(&mut self, event: &str, moment: EventMoment, body: &Value) -> Vec<ProjectionUpdate> {
        let changes = read(event, moment.seq, &body.to_string());
        changes.iter().map(|change| self.session.apply(change, moment)).collect()
    }
}

fn question(request_id: &str, title: &str) -> Value {
    json!({"request":{"type":"confirm","request_id":request_id,"title":title,"message":""}})
}

#[test]
fn texts_become_one_harmless_line() {
    assert_eq!(one_line(" a\n\tb\u{1b}[31mc\u{202e}d ", 200), "a b [31mcd");
    assert_eq!(one_line("\u{0}\n", 200), "");
    let long = one_line(&"word ".repeat(100), 200);
    assert!(long.chars().count() <= 200 && long.ends_with('…'), "{long}");
    assert_eq!(one_line("exactly", 8), "exactly");
}

#[test]
fn a_turn_begins_and_ends_and_lists_follow() {
    let mut world = World::default();
    world.record("session.created", json!({"harness":"demo","cwd":"/w"}));
    assert_eq!(world.session.status(), SessionStatus::Idle);
    let began = world.live("agent.working", json!({"phase":"thinking"}), 7);
    assert_eq!(began[0], ProjectionUpdate { news: ListUrgency::Now, is_new_status: true, ended_turn: None });
    let moved = world.live("agent.working", json!({"phase":"generating"}), 8);
    assert_eq!(moved[0].news, ListUrgency::Soon);
    assert_eq!(world.live("agent.working", json!({"phase":"generating"}), 9)[0].news, ListUrgency::None);
    let summary = world.session.summary(false);
    assert_eq!((summary.state.as_str(), summary.working_since), ("working", Some(7)));
    assert_eq!((summary.cwd.as_deref(), summary.created_at), (Some("/w"), 1));
    assert_eq!(world.session.summary(true).working_since, None, "its runner is away");
    let ended = world.record("agent.idle", json!({"reason":"stop"}));
    assert_eq!(
        ended[0],
        ProjectionUpdate { news: ListUrgency::Now, is_new_status: true, ended_turn: Some(7) }
    );
    assert!(!world.session.is_in_turn());
    assert_eq!(world.record("agent.idle", json!({}))[0], ProjectionUpdate::default(), "that is no news");
}

#[test]
fn what_a_session_says_and_is_called_is_in_its_line() {
    let mut world = World::default();
    world.record("session.created", json!({"harness":"demo"}));
    assert_eq!(world.record("session.title_changed", json!({"title":"Docs"}))[0].news, ListUrgency::Now);
    assert_eq!(world.record("session.title_changed", json!({"title":"Docs"}))[0].news, ListUrgency::None);
    world.record("config.model_changed", json!({"provider":"p","model_id":"m"}));
    world.record("session.branch_changed", json!({"branch":"main"}));
    let said = |text: Option<&str>, count| ProjectionChange::Said { text: text.map(str::to_owned), count };
    world.session.apply(&said(Some("hello"), 1), EventMoment::default());
    world.session.apply(&said(None, 2), EventMoment::default());
    world.session.set_usage(Some(5), Some(0.5));
    let line = world.session.summary(false);
    assert_eq!((line.title.as_deref(), line.branch.as_deref()), (Some("Docs"), Some("main")));
    assert_eq!((line.provider.as_deref(), line.model.as_deref()), (Some("p"), Some("m")));
    assert_eq!((line.last_text.as_deref(), line.message_count), (Some("hello"), 2));
    assert_eq!((line.tokens, line.cost_usd), (Some(5), Some(0.5)));
    world.session.apply(&said(Some(""), 0), EventMoment::default());
    world.record("session.branch_changed", json!({}));
    let line = world.session.summary(false);
    assert_eq!((line.last_text, line.branch), (None, None));
}

#[test]
fn questions_are_kept_and_counted() {
    let mut world = World::default();
    for number in 0..70 {
        world.record("agent.input_needed", question(&format!("q{number}"), "Go\non?"));
    }
    assert_eq!(world.session.question_count(), 70);
    assert_eq!(world.session.summary(false).pending_title.as_deref(), Some("Go on?"));
    world.record("agent.input_resolved", json!({"request_id":"q0"}));
    world.record("agent.input_resolved", json!({"request_id":"q69"}));
    assert_eq!(world.session.question_count(), 68);
    world.record("run.input", json!({"input_id":"q1","actor":"web"}));
    world.record("tool.result", json!({"request_id":"q2","tool":"bash"}));
    assert_eq!(world.session.question_count(), 66, "who asked does not record decisions");
    assert_eq!(world.record("run.input", json!({"input_id":"q1"}))[0].news, ListUrgency::None);
    world.record("session.closed", json!({}));
    assert_eq!(world.session.question_count(), 0);
}

#[test]
fn a_question_of_a_later_version_is_shown_by_its_title() {
    let mut world = World::default();
    world.record("session.created", json!({"harness":"demo"}));
    world
        .record("agent.input_needed", json!({"request":{"type":"hologram","request_id":"q","title":"Look"}}));
    assert_eq!(world.session.summary(false).pending_title.as_deref(), Some("Look"));
    assert!(world.session.run().unwrap().1.is_empty(), "nobody could answer it");
}

#[test]
fn what_is_stored_of_a_status_is_what_is_shown_of_it() {
    let (created, idle) = (
        ProjectionChange::Created { harness: "pi".to_owned(), cwd: None },
        ProjectionChange::Idle { reason: None },
    );
    let failed = ProjectionChange::Failed { error: "no\nkey".to_owned() };
    let mut stored = SessionStatus::Starting;
    let mut shown = Projection::default();
    for (seq, change, expected) in [
        (1, &created, SessionStatus::Idle),
        (2, &failed, SessionStatus::Failed),
        (3, &idle, SessionStatus::Failed),
        (4, &created, SessionStatus::Idle),
        (5, &idle, SessionStatus::Idle),
        (6, &ProjectionChange::Closed, SessionStatus::Closed),
    ] {
        stored = LinePatch::of(change).status_after(stored);
        shown.apply(change, EventMoment { seq: Some(seq), ..EventMoment::default() });
        assert_eq!((stored, shown.status()), (expected, expected), "{seq}");
    }
    assert_eq!(LinePatch::of(&failed).error.as_deref(), Some("no key"));
}

#[test]
fn an_agent_that_died_stays_failed_until_it_runs_again() {
    let mut world = World::default();
    world.record("session.created", json!({"harness":"demo"}));
    world.live("agent.working", json!({}), 5);
    world.record("agent.error", json!({"error":"x","recoverable":true}));
    assert_eq!(world.session.status(), SessionStatus::Working);
    world.record("agent.error", json!({"error":"no\nkey","recoverable":false}));
    world.record("agent.idle", json!({}));
    let line = world.session.summary(false);
    assert_eq!((line.state.as_str(), line.error.as_deref()), ("failed", Some("no key")));
    world.record("session.created", json!({"harness":"demo"}));
    let line = world.session.summary(false);
    assert_eq!((line.state.as_str(), line.error), ("idle", None));
    assert_eq!(line.created_at, 1, "it is the same session");
}

#[test]
fn what_the_runner_says_counts_more_than_records_of_before() {
    let mut world = World::default();
    let state = json!({"state":{"status":"working","phase":"dreaming","seq":9,"pending_input":[
        {"type":"confirm","request_id":"q","title":"Go?","message":""}]}});
    world.live("session.resync", state, 3);
    assert_eq!((world.session.status(), world.session.question_count()), (SessionStatus::Working, 1));
    world.past("agent.idle", json!({}));
    world.past("agent.input_resolved", json!({"request_id":"q"}));
    world.past("session.title_changed", json!({"title":"Old"}));
    world.past("agent.error", json!({"error":"gone","recoverable":false}));
    assert_eq!((world.session.status(), world.session.question_count()), (SessionStatus::Working, 1));
    let line = world.session.summary(false);
    assert_eq!((line.title.as_deref(), line.error.as_deref()), (Some("Old"), Some("gone")));
    assert!(world.session.is_in_turn());
}

#[test]
fn a_run_follows_its_records() {
    let mut world = World::default();
    let started = json!({"tool":"codex","cwd":"/w","command":"codex x"});
    world.record("run.started", started.clone());
    world.record("agent.input_needed", question("q-1", "Go?"));
    world.record("agent.input_needed", question("q-2", "Name?"));
    let (run, questions) = world.session.run().unwrap();
    assert_eq!(
        (run.tool.as_deref(), run.command.as_deref(), run.started_at),
        (Some("codex"), Some("codex x"), Some(1))
    );
    assert_eq!(questions.len(), 2);
    assert_eq!(world.session.line().harness, qd_wire::run::PTY_HARNESS, "a foreign host's run");
    world.record("agent.input_resolved", json!({"request_id":"q-1"}));
    assert_eq!(world.session.run().unwrap().1[0].request_id(), "q-2");
    let exited = world.record("run.exited", json!({"exit_code":3}));
    assert!(exited[0].is_new_status && exited[0].ended_turn.is_some());
    world.record("session.closed", json!({}));
    let run = world.session.run().unwrap().0;
    assert_eq!((run.exit_code, run.ended_at), (Some(3), Some(5)));
    world.record("run.started", started);
    let run = world.session.run().unwrap().0;
    assert_eq!((run.exit_code, run.ended_at, run.started_at), (None, None, Some(1)));
    assert_eq!(world.session.status(), SessionStatus::Working);
}

#[test]
fn the_past_of_a_run_is_learned_from_its_log() {
    let mut log = World::default();
    log.record("session.created", json!({"harness":"demo"}));
    log.record("agent.input_needed", question("q", "Go?"));
    let mut session = Projection::stored(SessionSummary::default(), false);
    assert!(session.run().is_none());
    session.learn_past(log.session.clone());
    let (run, questions) = session.run().unwrap();
    assert_eq!((run.tool.as_deref(), questions.len()), (Some("demo"), 1));
    assert_eq!(session.question_count(), 0, "lists wait for what its runner says");
    assert!(!session.settle("q"));
    assert!(session.run().unwrap().1.is_empty());
}

#[test]
fn why_a_turn_ended_is_read_once_for_all() {
    let idle = |body: Value| read("agent.idle", Some(2), &body.to_string());
    assert_eq!(
        idle(json!({"reason":"aborted"})),
        [ProjectionChange::Idle { reason: Some(StopReason::Aborted) }]
    );
    assert_eq!(idle(json!({"reason":"of a later version"})), [ProjectionChange::Idle { reason: None }]);
    assert!(read("stream.text_delta", None, "nonsense").is_empty());
    assert!(read("agent.input_needed", Some(2), "{}").is_empty());
    assert!(read("run.output", Some(2), "{}").is_empty());
    let foreign = read("run.output", Some(1), r#"{"cwd":"/w"}"#);
    assert!(matches!(&foreign[..], [ProjectionChange::Created { cwd: Some(cwd), .. }] if cwd == "/w"));
}
