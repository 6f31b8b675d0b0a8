//! What a client does: creates, prompts, steers, answers, aborts, closes; and asks again whatever had no answer.

use std::rc::Rc;
use std::time::Duration;

use qd_link::client::{CallError, ClientRequest, MuxClient};
use qd_testkit::seeded_random::SeededRandom;
use qd_wire::command::{
    ImageAttachment, InputResponseParams, NoParams, PromptParams, SessionConfig, SessionCreateParams,
    SteerParams, StreamingBehavior,
};
use qd_wire::data::{RunnersData, SessionsData};
use qd_wire::run::RunInputParams;
use qd_wire::{Command, CommandResponse};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::ClientState;
use crate::oracle::{IMAGE_DATA, Submission, SubmissionKind, Verdict};
use crate::plan::RUNNERS;
use crate::state::World;
use crate::trace;

/// Longer than any command of the demo agent takes when all is well.
const PATIENCE: Duration = Duration::from_secs(8);

/// Long streams cost most, so there are few.
const SCRIPTS: [(u64, &str); 8] = [
    (6, "/text"),
    (4, "/late"),
    (6, "/question"),
    (4, "/tools"),
    (3, "/thinking"),
    (3, "/error"),
    (1, "/long"),
    (2, "hello"),
];

#[derive(Debug, Clone, Copy)]
enum ClientAction {
    Create,
    Prompt,
    Steer,
    FollowUp,
    RunInput,
    Answer,
    Abort,
    Close,
    Restart,
    AskAgain,
    Look,
}

const ACTIONS: [(u64, ClientAction); 11] = [
    (8, ClientAction::Create),
    (40, ClientAction::Prompt),
    (8, ClientAction::Steer),
    (8, ClientAction::FollowUp),
    (6, ClientAction::RunInput),
    (18, ClientAction::Answer),
    (5, ClientAction::Abort),
    (1, ClientAction::Close),
    (4, ClientAction::Restart),
    (10, ClientAction::AskAgain),
    (3, ClientAction::Look),
];

pub(super) async fn run(world: Rc<World>, state: Rc<ClientState>) {
    let actor = Actor { world: &world, state: &state };
    loop {
        let pause = if world.is_settling() { 400 } else { world.plan.think_ms };
        sleep(state.millis(5, pause)).await;
        let Some(mux) = state.mux.borrow().clone() else { continue };
        if world.is_settling() {
            actor.settle(&mux).await;
        } else {
            let action = state.random.borrow_mut().weighted(&ACTIONS);
            actor.act(&mux, action).await;
        }
    }
}

struct Actor<'a> {
    world: &'a World,
    state: &'a ClientState,
}

impl Actor<'_> {
    async fn act(&self, mux: &MuxClient, action: ClientAction) {
        match action {
            ClientAction::Create => self.create(mux).await,
            ClientAction::Prompt => self.say(mux, "prompt").await,
            ClientAction::Steer => self.say(mux, "steer").await,
            ClientAction::FollowUp => self.say(mux, "follow_up").await,
            ClientAction::RunInput => self.say(mux, "run.input").await,
            ClientAction::Answer => self.answer_question(mux).await,
            ClientAction::Abort => self.abort(mux).await,
            ClientAction::Close => self.submit_new(mux, SubmissionKind::Close).await,
            ClientAction::Restart => self.submit_new(mux, SubmissionKind::Restart).await,
            ClientAction::AskAgain => self.ask_again(mux).await,
            ClientAction::Look => self.look(mux).await,
        }
    }

    /// Finishes what was begun: nothing stays without an answer, no question stays open.
    async fn settle(&self, mux: &MuxClient) {
        if let Some(key) = self.unsettled_key() {
            return self.submit(mux, &key).await;
        }
        self.answer_question(mux).await;
        self.look(mux).await;
        if self.state.percent(30) {
            self.ask_again(mux).await;
        }
    }

    /// A submission of this client, or of a life of it that crashed, that has no fate yet.
    fn unsettled_key(&self) -> Option<String> {
        let oracle = self.world.oracle.borrow();
        let mut mine = oracle.submissions.values().filter(|it| it.client == self.state.name);
        mine.find(|it| it.fate.is_none()).map(|it| it.key.clone())
    }

    fn any_session(&self) -> Option<String> {
        let sessions: Vec<String> = self.world.oracle.borrow().created.iter().cloned().collect();
        (!sessions.is_empty()).then(|| self.state.random.borrow_mut().pick(&sessions).clone())
    }

    async fn create(&self, mux: &MuxClient) {
        let count = self.world.oracle.borrow().sessions.len();
        if count >= self.world.plan.sessions_max {
            return self.say(mux, "prompt").await;
        }
        let session = format!("s{}", count + 1);
        let runner = (*self.state.random.borrow_mut().pick(&RUNNERS)).to_owned();
        self.world.oracle.borrow_mut().sessions.insert(session.clone(), runner.clone());
        let key = self.new_submission(session, SubmissionKind::Create { runner });
        self.submit(mux, &key).await;
    }

    async fn say(&self, mux: &MuxClient, cmd: &'static str) {
        let script = self.state.random.borrow_mut().weighted(&SCRIPTS);
        // Runs take text only.
        let has_image = cmd != "run.input" && self.state.percent(20);
        self.submit_new(mux, SubmissionKind::Say { cmd, script, has_image }).await;
    }

    async fn submit_new(&self, mux: &MuxClient, kind: SubmissionKind) {
        let Some(session) = self.any_session() else { return };
        let key = self.new_submission(session, kind);
        self.submit(mux, &key).await;
    }

    fn new_submission(&self, session: String, kind: SubmissionKind) -> String {
        let key = self.state.mint_key();
        let client = self.state.name.to_owned();
        let submission = Submission { key: key.clone(), session, client, kind, sent: 0, fate: None };
        trace::count("submissions");
        self.world.oracle.borrow_mut().submissions.insert(key.clone(), submission);
        key
    }

    async fn ask_again(&self, mux: &MuxClient) {
        let keys: Vec<String> = {
            let oracle = self.world.oracle.borrow();
            let mine = oracle.submissions.values().filter(|it| it.client == self.state.name && it.sent > 0);
            mine.map(|it| it.key.clone()).collect()
        };
        if !keys.is_empty() {
            let key = self.state.random.borrow_mut().pick(&keys).clone();
            self.submit(mux, &key).await;
        }
    }

    /// Sends a submission, for the first time or once more, and takes down what it is told.
    async fn submit(&self, mux: &MuxClient, key: &str) {
        let submission = {
            let mut oracle = self.world.oracle.borrow_mut();
            let Some(submission) = oracle.submissions.get_mut(key) else { return };
            submission.sent += 1;
            submission.clone()
        };
        trace::note(self.state.name, &format!("{key} {:?} to {}", submission.kind, submission.session));
        let mut request = request(&submission, self.world.plan.seed);
        if self.state.percent(25) {
            request = request.wait(Some(self.state.random.borrow_mut().between(100, 10_000)));
        }
        let Some(response) = self.call(mux, &request, key).await else { return };
        let verdict = self.world.oracle.borrow_mut().answered(self.state.name, key, &response);
        if verdict == Verdict::Settled
            && response.success
            && matches!(submission.kind, SubmissionKind::Create { .. })
        {
            self.world.oracle.borrow_mut().created.insert(submission.session);
        }
    }

    async fn answer_question(&self, mux: &MuxClient) {
        let open: Vec<(String, String)> = {
            let views = self.state.views.borrow();
            let of = |(session, view): (&String, &crate::view::SessionView)| {
                view.questions.iter().map(|id| (session.clone(), id.clone())).collect::<Vec<_>>()
            };
            views.iter().flat_map(of).collect()
        };
        if open.is_empty() {
            return;
        }
        let (session, request_id) = self.state.random.borrow_mut().pick(&open).clone();
        let value = (*self.state.random.borrow_mut().pick(&["red", "green", "blue"])).to_owned();
        let params = InputResponseParams {
            request_id: request_id.clone(),
            value: Some(value.clone()),
            ..InputResponseParams::default()
        };
        let request = ClientRequest::session(session.clone(), Command::InputResponse(params));
        if let Some(response) = self.call(mux, &request, &request_id).await {
            let text = format!("answer to {request_id}: {} {:?}", response.success, response.error);
            trace::note(self.state.name, &text);
            if response.success {
                let mut oracle = self.world.oracle.borrow_mut();
                oracle.question_answered(self.state.name, session, request_id, value);
            }
        }
    }

    async fn abort(&self, mux: &MuxClient) {
        let Some(session) = self.any_session() else { return };
        trace::note(self.state.name, &format!("abort {session}"));
        let request = ClientRequest::session(session, Command::Abort(NoParams {}));
        self.call(mux, &request, "abort").await;
    }

    /// What lists say of runners and sessions.
    async fn look(&self, mux: &MuxClient) {
        let runners = ClientRequest::system(Command::GetRunners(NoParams {}));
        if let Some(response) = self.call(mux, &runners, "get_runners").await
            && let Ok(data) = serde_json::from_value::<RunnersData>(response.data.unwrap_or_default())
        {
            let mut oracle = self.world.oracle.borrow_mut();
            oracle.runners =
                data.runners.iter().map(|it| (it.runner_id.clone(), format!("{:?}", it.status))).collect();
        }
        let sessions = ClientRequest::system(Command::ListSessions(NoParams {}));
        if let Some(response) = self.call(mux, &sessions, "list_sessions").await
            && let Ok(data) = serde_json::from_value::<SessionsData>(response.data.unwrap_or_default())
        {
            let mut oracle = self.world.oracle.borrow_mut();
            oracle.states =
                data.sessions.iter().map(|it| (it.session_id.clone(), it.state.clone())).collect();
        }
    }

    /// An answer, or none: then the client gives up its connection and will ask again on the next.
    async fn call(&self, mux: &MuxClient, request: &ClientRequest, what: &str) -> Option<CommandResponse> {
        let is_creation = matches!(request.command(), Command::SessionCreate(_));
        let answer = async {
            if is_creation { self.create_in_order(mux, request).await } else { mux.call(request).await }
        };
        match timeout(PATIENCE, answer).await {
            Ok(Ok(response)) => Some(response),
            Ok(Err(CallError::Decode(error))) => {
                trace::violate(self.state.name, "frames", &error.to_string());
                None
            }
            Ok(Err(error)) => {
                trace::note(self.state.name, &format!("{what}: {error}"));
                trace::count("answers lost");
                None
            }
            Err(_) => {
                trace::note(self.state.name, &format!("{what}: no answer, the connection is given up"));
                trace::count("answers lost");
                *self.state.mux.borrow_mut() = None;
                None
            }
        }
    }

    async fn create_in_order(
        &self,
        mux: &MuxClient,
        request: &ClientRequest,
    ) -> Result<CommandResponse, CallError> {
        let (sender, receiver) = oneshot::channel();
        let id = mux.post(request).await?;
        self.state.creating.borrow_mut().insert(id, sender);
        receiver.await.map_err(|_| CallError::Closed("the connection ended".to_owned()))
    }
}

fn image() -> ImageAttachment {
    ImageAttachment { data: IMAGE_DATA.to_owned(), media_type: "image/png".to_owned() }
}

fn request(submission: &Submission, seed: u64) -> ClientRequest {
    let text = |script: &str| format!("{script} {}", submission.key);
    let client_id = Some(submission.key.clone());
    let images = |has_image: bool| has_image.then(|| vec![image()]);
    let command = match &submission.kind {
        SubmissionKind::Create { .. } => {
            let config = SessionConfig { harness: "demo".to_owned(), ..SessionConfig::default() };
            Command::SessionCreate(SessionCreateParams { config, check_only: None })
        }
        SubmissionKind::Say { cmd: "prompt", script, has_image } => {
            // The same submission must say the same each time, so the choice hangs on its key.
            let behaviours = [None, Some(StreamingBehavior::Steer), Some(StreamingBehavior::FollowUp)];
            let streaming_behavior = *SeededRandom::new(seed, &submission.key).pick(&behaviours);
            let (message, images) = (text(script), images(*has_image));
            Command::Prompt(PromptParams { message, images, streaming_behavior, client_id })
        }
        SubmissionKind::Say { cmd: "steer", script, has_image } => {
            Command::Steer(SteerParams { message: text(script), images: images(*has_image), client_id })
        }
        SubmissionKind::Say { cmd: "run.input", script, .. } => Command::RunInput(RunInputParams {
            input_id: submission.key.clone(),
            text: text(script),
            actor: None,
        }),
        SubmissionKind::Say { script, has_image, .. } => {
            Command::FollowUp(SteerParams { message: text(script), images: images(*has_image), client_id })
        }
        SubmissionKind::Close => Command::SessionClose(NoParams {}),
        SubmissionKind::Restart => Command::SessionRestart(NoParams {}),
    };
    let request = ClientRequest::session(&submission.session, command).idempotency_key(&submission.key);
    match &submission.kind {
        SubmissionKind::Create { runner } => request.runner(runner),
        _ => request,
    }
}
