//! Clients of the pi-server face, and what their runner says to them.

use std::time::Duration;

use qd_hub::{Limits, PiServerConfig};
use serde_json::{Value, json};

use crate::support::{Client, Runner, TOKEN, World, assert_fields};

/// One connection of the face.
pub(crate) struct PiClient {
    pub(crate) client: Client,
}

/// The frames of a command that succeeds at once.
pub(crate) const WHOLE: [&str; 4] = ["command_accepted", "command_started", "command_finished", "response"];

/// A face without rate limits, as most tests want it.
pub(crate) fn relaxed() -> PiServerConfig {
    PiServerConfig {
        rate_per_minute: 0,
        global_rate_per_minute: 0,
        ui_rate_per_minute: 0,
        shutdown_timeout: Duration::from_millis(500),
        ..Default::default()
    }
}

/// A hub whose face is as told, with the session `s`.
pub(crate) async fn pi_world(config: PiServerConfig) -> (World, Runner) {
    let (world, mut runner) = start(tempfile::tempdir().unwrap(), config).await;
    runner.create("s").await;
    (world, runner)
}

pub(crate) async fn start(directory: tempfile::TempDir, pi_server: PiServerConfig) -> (World, Runner) {
    let (world, mut runner) = World::start_as(directory, |config| {
        config.limits = Limits { shutdown_grace: Duration::from_millis(600), ..Limits::default() };
        config.faces.pi_server = pi_server;
    })
    .await;
    runner.come().await;
    (world, runner)
}

/// Stops the hub and starts another one with the same store.
pub(crate) async fn restart(world: World, pi_server: PiServerConfig) -> (World, Runner) {
    let directory = world.end().await;
    start(directory, pi_server).await
}

impl World {
    pub(crate) async fn pi_client(&self) -> PiClient {
        self.pi_client_of(TOKEN).await
    }

    pub(crate) async fn pi_client_of(&self, token: &str) -> PiClient {
        let mut client = PiClient { client: self.try_client_at("/ws/pi", token).await.unwrap() };
        assert_fields(&client.next().await, json!({"type": "server_ready", "data.protocolVersion": "1.0.0"}));
        client
    }
}

impl PiClient {
    pub(crate) async fn send(&mut self, command: Value) {
        self.client.send(&command).await;
    }

    pub(crate) async fn next(&mut self) -> Value {
        serde_json::from_str(&self.client.next_text().await).unwrap()
    }

    /// The next frame, which must be of this type.
    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        let frame = self.next().await;
        assert_eq!(frame["type"], kind, "{frame}");
        frame
    }

    /// The next frames, which must be of these types.
    pub(crate) async fn expect_all(&mut self, kinds: &[&str]) -> Vec<Value> {
        let mut frames = Vec::new();
        for kind in kinds {
            frames.push(self.expect(kind).await);
        }
        frames
    }

    /// The next response; what comes before it is dropped.
    pub(crate) async fn response(&mut self) -> Value {
        self.client.until(|frame| frame["type"] == "response").await
    }

    /// Sends a command and gives its response; the runner has nothing to do with it.
    pub(crate) async fn call(&mut self, command: Value) -> Value {
        self.send(command).await;
        self.response().await
    }

    /// Follows the session `s`.
    pub(crate) async fn follow(&mut self, runner: &mut Runner) {
        self.send(json!({"type":"switch_session","sessionId":"s"})).await;
        assert_eq!(runner.answer_next(&state("s", 0).to_string()).await["cmd"], "get_state");
        assert_eq!(self.response().await["success"], true);
    }
}

/// How a session stands.
pub(crate) fn state(session_id: &str, version: u64) -> Value {
    json!({"session_id":session_id,"runner_id":"r1","harness":"demo","status":"idle","session_version":version,
        "seq":1,"message_count":0,"queue":{"steering":[],"follow_up":[]},"pending_input":[],"created_at":1000})
}

/// The answer to an attach.
pub(crate) fn attached(session_id: &str, message_count: u64) -> String {
    let mut state = state(session_id, 3);
    state["message_count"] = json!(message_count);
    json!({"resume":"ok","seq":1,"state":state,"pending_input":[]}).to_string()
}

/// A live event in pi's own form.
pub(crate) fn native(session: &str, event: &Value) -> String {
    format!(
        r#"{{"type":"event","session_id":"{session}","runner_id":"r1","ts":1,"event":"x-native","native":{event}}}"#
    )
}
