use bytes::Bytes;
use qd_core::projection::{EventMoment, PendingQuestion, SessionDescription, read};
use serde_json::json;

use super::*;
use crate::hub::test_hub;
use crate::sessions::effects::{apply_notes, describe};

/// A hub that notes what it would do, and does nothing of it.
struct World {
    hub: Arc<Hub>,
    entry: Arc<SessionEntry>,
    jobs: mpsc::Receiver<DeliveryJob>,
    _directory: tempfile::TempDir,
}

impl World {
    fn start() -> World {
        let (hub, directory) = test_hub(|config| {
            config.faces.push.key = Some(PushKey::new().unwrap());
            config.faces.push.done_after = Duration::ZERO;
        });
        let entry = hub.session_or_new("s", &Arc::from("r"));
        let jobs = hub.faces.push.receiver.lock().take().unwrap();
        World { hub, entry, jobs, _directory: directory }
    }

    /// Events are stored and published: records with their number, live ones without.
    fn observe(&self, events: &[(Option<u64>, &str, serde_json::Value)]) {
        let notes = events.iter().flat_map(|(seq, event, body)| {
            let is_past = seq.is_some_and(|seq| self.entry.is_described(seq));
            let moment = EventMoment { seq: *seq, is_past, ..EventMoment::default() };
            read(event, *seq, &body.to_string())
                .into_iter()
                .map(move |change| SessionNote::new(moment, change))
        });
        let mut notes: Vec<SessionNote> = notes.collect();
        apply_notes(&self.hub, &self.entry, &mut notes);
        let frames = Bytes::new();
        self.hub.faces.published(&self.hub, PublishedEvents::new(&self.entry, &frames, &[], &notes));
    }

    fn described(&self, status: SessionStatus, pending: &[InputRequest]) {
        let questions = pending.iter().map(PendingQuestion::from).collect();
        let seq = self.entry.last_seq.load(Ordering::Relaxed);
        describe(&self.hub, &self.entry, SessionDescription { status, phase: None, questions, seq });
        self.hub.faces.described(&self.hub, &self.entry, status, pending);
    }

    fn is_working(&self) -> bool {
        self.entry.projection().is_in_turn()
    }

    /// What is to be done, in short.
    fn jobs(&mut self) -> Vec<String> {
        let mut jobs = Vec::new();
        while let Ok(job) = self.jobs.try_recv() {
            jobs.push(match job {
                DeliveryJob::Question(key) => format!("question {}", key.request_id),
                DeliveryJob::End(session_id) => format!("end {session_id}"),
                DeliveryJob::Resolved { key, told } => {
                    format!("resolved {} for {}", key.request_id, told.join(" "))
                }
                DeliveryJob::Send(_) => "send".to_owned(),
            });
        }
        jobs
    }
}

fn request(request_id: &str) -> InputRequest {
    let (request_id, title) = (request_id.to_owned(), "t".to_owned());
    InputRequest::Permission { request_id, title, description: None, metadata: None, timeout: None }
}

fn idle(seq: u64) -> (Option<u64>, &'static str, serde_json::Value) {
    (Some(seq), "agent.idle", json!({"reason":"stop"}))
}

fn needed(seq: u64, request_id: &str) -> (Option<u64>, &'static str, serde_json::Value) {
    (Some(seq), "agent.input_needed", json!({ "request": request(request_id) }))
}

fn working() -> (Option<u64>, &'static str, serde_json::Value) {
    (None, "agent.working", json!({"phase":"thinking"}))
}

#[tokio::test]
async fn a_turn_that_follows_another_in_the_same_block_is_a_turn_of_its_own() {
    let mut world = World::start();
    world.observe(&[idle(1)]);
    assert!(world.jobs().is_empty(), "nobody has seen it begin");
    world.observe(&[working(), idle(2), working()]);
    assert_eq!(world.jobs(), ["end s"]);
    assert!(world.is_working());
    world.observe(&[idle(3)]);
    assert!(world.jobs().is_empty(), "they are told of one end at a time");
    assert!(!world.is_working());
    assert_eq!(world.hub.faces.push.take_end("s"), Some(SessionEnd { topic: PushTopic::Done, said: None }));
}

#[tokio::test]
async fn the_worst_end_is_told() {
    let world = World::start();
    let said = |text: &str| Some(text.to_owned());
    let (id, push) = (Arc::clone(&world.entry.id), &world.hub.faces.push);
    push.ended(&id, SessionEnd { topic: PushTopic::Done, said: None });
    push.ended(&id, SessionEnd { topic: PushTopic::Failed, said: None });
    push.ended(&id, SessionEnd { topic: PushTopic::Failed, said: said("broken") });
    push.ended(&id, SessionEnd { topic: PushTopic::Failed, said: None });
    push.ended(&id, SessionEnd { topic: PushTopic::Done, said: said("Ended with code 0") });
    assert_eq!(push.take_end("s"), Some(SessionEnd { topic: PushTopic::Failed, said: said("broken") }));
}

#[tokio::test]
async fn records_of_the_past_are_not_told_and_what_the_runner_says_of_now_is() {
    let mut world = World::start();
    world.entry.note_described(5);
    world.observe(&[needed(5, "old"), needed(6, "new")]);
    assert_eq!(world.jobs(), ["question new"]);
    let (id, push) = (Arc::clone(&world.entry.id), &world.hub.faces.push);
    let key = push.questions.open(&id, Arc::new(request("gone")), 0).unwrap();
    assert!(push.questions.note_notified(&key, "phone", None));
    world.described(SessionStatus::Working, &[request("new"), request("newer")]);
    assert_eq!(world.jobs(), ["resolved gone for phone", "question newer"]);
    assert!(world.is_working());
    world.described(SessionStatus::Idle, &[]);
    assert_eq!(world.jobs(), ["end s"], "those that nobody was told of just go");
    world.described(SessionStatus::Idle, &[]);
    assert!(world.jobs().is_empty());
}

#[tokio::test]
async fn nothing_is_looked_into_while_nobody_wants_to_know() {
    let mut world = World::start();
    let subscribed = *world.hub.faces.push.subscribed.lock();
    world.hub.faces.push.note_no_subscribers(subscribed);
    world.observe(&[working(), needed(1, "q"), idle(2)]);
    assert!(world.jobs().is_empty());
    world.hub.faces.push.note_subscriber();
    // Who looked into the store before that has found nobody, and says so only now.
    world.hub.faces.push.note_no_subscribers(subscribed);
    world.observe(&[needed(3, "q")]);
    assert_eq!(world.jobs(), ["question q"]);
    world.hub.faces.push.forget(&world.entry.id);
    assert!(world.hub.faces.push.questions.ids_of("s").is_empty());
}
