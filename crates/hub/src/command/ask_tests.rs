use bytes::Bytes;
use qd_link::memory::{LinkEnd, pair};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::hub::{test_hub, wait_until};
use crate::runners::link::{RunnerIdentity, run};

pub(crate) struct World {
    pub(crate) hub: Arc<Hub>,
    /// What was answered, in order.
    answers: mpsc::Receiver<CommandAnswer>,
    answered: mpsc::Sender<CommandAnswer>,
    _directory: tempfile::TempDir,
}

pub(crate) struct Runner {
    link: LinkEnd,
    id: &'static str,
    lines: Vec<Value>,
    pub(crate) stop: CancellationToken,
}

impl World {
    pub(crate) fn start(command_timeout: Option<Duration>) -> World {
        let (hub, directory) = test_hub(|config| config.limits.command_timeout = command_timeout);
        let (answered, answers) = mpsc::channel(64);
        World { hub, answers, answered, _directory: directory }
    }

    pub(crate) async fn runner(&self, id: &'static str) -> Runner {
        let (hub_end, link) = pair();
        let identity = RunnerIdentity { runner_id: Arc::from(id), is_local: true, peer: "test".to_owned() };
        let stop = CancellationToken::new();
        tokio::spawn(run(Arc::clone(&self.hub), identity, hub_end, stop.clone()));
        let mut runner = Runner { link, id, lines: Vec::new(), stop };
        let hello = json!({"type":"runner.hello","runner_id":id,"hostname":"h","harnesses":["demo"],
            "max_sessions":4,"version":"1","os":"linux"});
        runner.say(&hello.to_string()).await;
        assert_eq!(runner.next().await["type"], "runner.welcome");
        wait_until(|| !self.hub.is_away(id)).await;
        runner
    }

    fn ask(&self, command: Command<'_>) {
        let answered = self.answered.clone();
        ask(&self.hub, &asker(), command, move |_, answer| answered.try_send(answer).unwrap());
    }

    async fn answer(&mut self) -> CommandAnswer {
        self.answers.recv().await.unwrap()
    }
}

fn asker() -> CommandSender {
    CommandSender { principal: Arc::from("ci \"1\""), connection_id: Arc::from("p7"), ..CommandSender::hub() }
}

impl Runner {
    pub(crate) async fn say(&self, line: &str) {
        self.link.sender.send(Bytes::from(format!("{line}\n"))).await.unwrap();
    }

    /// The next line that is no ack.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            while !self.lines.is_empty() {
                let line = self.lines.remove(0);
                if line["type"] != "ack" {
                    return line;
                }
            }
            let block = self.link.receiver.recv().await.expect("the link is closed");
            let text = std::str::from_utf8(&block).unwrap();
            self.lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
    }

    pub(crate) async fn create(&self, session: &str) {
        self.say(&self.created(session)).await;
    }

    fn created(&self, session: &str) -> String {
        format!(
            r#"{{"type":"event","session_id":"{session}","runner_id":"{}","ts":1,"seq":1,"event":"session.created","resumed":false,"harness":"demo"}}"#,
            self.id
        )
    }

    pub(crate) fn answer(&self, command: &Value, rest: &str) -> String {
        format!(
            r#"{{"type":"response","id":{},"session_id":{},"runner_id":"{}","ts":2,"cmd":{},{rest}}}"#,
            command["id"], command["session_id"], self.id, command["cmd"]
        )
    }
}

#[tokio::test]
async fn a_command_goes_to_the_sessions_runner_and_its_answer_to_the_asker() {
    let mut world = World::start(None);
    let mut runner = world.runner("r").await;
    runner.create("s").await;
    wait_until(|| world.hub.session("s").is_some()).await;
    world.ask(Command::new(CommandName::Prompt).on("s").with("message", "hi").once(Some("u1")));
    let command = runner.next().await;
    assert_eq!(
        (&command["user_id"], &command["connection_id"], &command["message"], &command["idempotency_key"]),
        (&json!("ci \"1\""), &json!("p7"), &json!("hi"), &json!("u1"))
    );
    assert!(command.get("client_command_id").is_none());
    let rest = r#""success":true,"data":{"a": [1]},"session_version":3,"replayed":true"#;
    runner.say(&runner.answer(&command, rest)).await;
    let answered = world.answer().await;
    assert!(answered.success && answered.replayed && !answered.indeterminate && !answered.timed_out);
    assert_eq!(answered.data.unwrap().get(), r#"{"a": [1]}"#);
    assert_eq!((answered.session_version, answered.session_id.as_deref()), (Some(3), Some("s")));
    assert_eq!(answered.runner_id.as_deref(), Some("r"));

    world.ask(Command::take_back("u1").on("s"));
    let command = runner.next().await;
    assert_eq!((&command["cmd"], &command["key"]), (&json!("_cancel"), &json!("u1")));
    runner
        .say(&runner.answer(&command, r#""success":false,"error":"No such command","replayed":null"#))
        .await;
    let answered = world.answer().await;
    assert_eq!((answered.success, answered.error.as_deref()), (false, Some("No such command")));
    world.hub.store.close().await;
}

#[tokio::test]
async fn what_cannot_be_sent_is_answered_at_once() {
    let mut world = World::start(None);
    for (command, error) in [
        (Command::new(CommandName::Prompt).on("s"), "Session s not found"),
        (Command::new(CommandName::Prompt), "'prompt' needs a session_id"),
        (Command::new(CommandName::RunnerHealth).at("r"), "There is no runner r"),
        (
            Command::new(CommandName::SessionCreate).with("config", json!({"harness": "demo"})),
            "No runner is connected",
        ),
        (Command::new(CommandName::SessionCreate), "missing field `config`"),
    ] {
        world.ask(command);
        let answered = world.answers.try_recv().expect("at once");
        assert!(!answered.success && answered.error.unwrap().contains(error), "{error}");
    }
    world.ask(Command::new(CommandName::ListSessions));
    let answered = world.answer().await;
    assert!(answered.success);
    assert_eq!(answered.data.unwrap().get(), r#"{"sessions":[]}"#);
    world.hub.store.close().await;
}

#[tokio::test]
async fn a_created_session_is_stored_before_the_answer_and_a_deleted_one_gone() {
    let mut world = World::start(None);
    let mut runner = world.runner("r").await;
    let config = json!({"harness": "demo"});
    world.ask(Command::new(CommandName::SessionCreate).on("s").with("config", config));
    let command = runner.next().await;
    let attached = r#""success":true,"data":{"resume":"ok","seq":1,"session_id":"s","state":{}}"#;
    let lines = format!("{}\n{}", runner.created("s"), runner.answer(&command, attached));
    runner.say(&lines).await;
    assert!(world.answer().await.success);
    assert!(world.hub.store.session("s").await.unwrap().is_some());
    let entry = world.hub.session("s").unwrap();
    assert_eq!(entry.ring.subscriber_count(), 0, "who asks follows nothing");
    world.ask(Command::new(CommandName::GetMessages).on("s"));
    assert_eq!(world.answer().await.data.unwrap().get(), r#"{"messages":[],"total":0}"#);
    world.ask(Command::new(CommandName::SessionDelete).on("s"));
    let command = runner.next().await;
    runner.say(&runner.answer(&command, r#""success":false,"error":"Session s not found""#)).await;
    let answered = world.answer().await;
    assert!(answered.success && answered.error.is_none());
    assert!(world.hub.session("s").is_none());
    assert!(world.hub.store.session("s").await.unwrap().is_none());
    world.hub.store.close().await;
}

#[tokio::test]
async fn when_the_link_ends_a_change_is_indeterminate_and_a_read_is_not() {
    let mut world = World::start(None);
    let mut runner = world.runner("r").await;
    runner.create("s").await;
    wait_until(|| world.hub.session("s").is_some()).await;
    world.ask(Command::new(CommandName::Prompt).on("s").with("message", "hi"));
    runner.next().await;
    world.ask(Command::new(CommandName::GetTools).on("s"));
    runner.next().await;
    runner.stop.cancel();
    let both = [world.answer().await, world.answer().await];
    assert!(both.iter().all(|answered| !answered.success && !answered.timed_out));
    assert_eq!(both.iter().filter(|answered| answered.indeterminate).count(), 1);
    assert!(both[0].error.as_ref().unwrap().contains("disconnected before it answered"));
    wait_until(|| world.hub.is_away("r")).await;
    // What the hub knows of the session it still tells.
    world.ask(Command::new(CommandName::SessionAttach).on("s"));
    let data: Value = serde_json::from_str(world.answer().await.data.unwrap().get()).unwrap();
    assert_eq!((&data["state"]["status"], &data["resume"]), (&json!("offline"), &json!("ok")));
    world.ask(Command::new(CommandName::Prompt).on("s").with("message", "hi"));
    let answered = world.answer().await;
    assert!(answered.error.unwrap().contains("Runner r is offline") && !answered.indeterminate);
    world.hub.store.close().await;
}

#[tokio::test]
async fn all_runners_are_asked_and_one_that_is_silent_keeps_nobody_waiting_for_ever() {
    let world = World::start(None);
    let sweeper = tokio::spawn({
        let hub = Arc::clone(&world.hub);
        async move { hub.pending.sweep(&hub).await }
    });
    let (done, mut results) = mpsc::channel(4);
    let ask_all = |done: mpsc::Sender<RunnerAnswers>| {
        let on_answers: OnAnswers = Box::new(move |_, answers| done.try_send(answers).unwrap());
        ask_runners(&world.hub, &asker(), CommandName::RunnerHealth, Duration::from_millis(200), on_answers);
    };
    ask_all(done.clone());
    assert!(results.try_recv().expect("at once").is_empty());
    let (mut one, mut two) = (world.runner("one").await, world.runner("two").await);
    ask_all(done.clone());
    let command = one.next().await;
    assert_eq!((&command["cmd"], &command["session_id"]), (&json!("runner.health"), &json!("_system")));
    assert_eq!(two.next().await["cmd"], "runner.health");
    one.say(&one.answer(&command, r#""success":true,"data":{}"#)).await;
    let answers = results.recv().await.unwrap();
    let [(first, good), (second, bad)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((&**first, good.success, &**second), ("one", true, "two"));
    assert!(!bad.success && bad.timed_out && !bad.indeterminate);
    sweeper.abort();
    world.hub.store.close().await;
}

#[tokio::test]
async fn a_runner_is_told_what_to_watch() {
    let world = World::start(None);
    let mut runner = world.runner("r").await;
    let session = world.hub.session_or_new("s", &Arc::from("r"));
    watch(&world.hub, &session, true);
    assert_eq!(runner.next().await, json!({"type":"session.watch","session_id":"s","on":true}));
    runner.stop.cancel();
    wait_until(|| world.hub.is_away("r")).await;
    watch(&world.hub, &session, false);
    world.hub.store.close().await;
}
