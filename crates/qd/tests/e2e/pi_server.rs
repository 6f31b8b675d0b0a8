//! The pi-server face of the whole binary: clients written for its document, real pi with the scripted model.

mod breakers;
mod commands;
mod dependencies;
mod dialogs;
mod durability;
mod events;
mod files;
mod identity;
mod limits;
mod running;
mod sessions;
mod stdio;

use qd_testkit::llm::LlmServer;
use qd_testkit::pi_server::PiClient;
use qd_testkit::qd::{Qd, Sandbox};
use serde_json::{Value, json};

use crate::with;

/// A server whose face has a port of its own, and a client of the face. The rate limits are taken away, because tests
/// send more than people do; `settings` can set them again.
async fn up(mut sandbox: Sandbox, settings: &[(&str, &str)]) -> (Qd, PiClient) {
    sandbox.set("QD_PI_SERVER_PORT", "0");
    for name in ["QD_PI_RATE_PER_MINUTE", "QD_PI_GLOBAL_RATE_PER_MINUTE", "QD_PI_UI_RATE_PER_MINUTE"] {
        sandbox.set(name, "0");
    }
    for (name, value) in settings {
        sandbox.set(name, value);
    }
    let qd = sandbox.up().await;
    let client = qd.pi_client().await;
    (qd, client)
}

/// The server, killed and started again, and a new client.
async fn restarted(qd: Qd) -> (Qd, PiClient) {
    let qd = qd.restart().await;
    let client = qd.pi_client().await;
    (qd, client)
}

/// A server with real pi and a client of the face.
async fn pi() -> (Qd, PiClient, LlmServer) {
    pi_with(&[]).await
}

/// The same with these settings.
async fn pi_with(settings: &[(&str, &str)]) -> (Qd, PiClient, LlmServer) {
    let (sandbox, llm) = crate::pi_sandbox().await;
    let (qd, client) = up(sandbox, settings).await;
    (qd, client, llm)
}

/// The same with a session of pi that the client follows.
async fn pi_with_session() -> (Qd, PiClient, LlmServer, String) {
    let (qd, mut client, llm) = pi().await;
    let session = pi_session(&qd, &mut client).await;
    (qd, client, llm, session)
}

/// A server with the demo agent only.
async fn demo() -> (Qd, PiClient) {
    up(crate::sandbox(), &[]).await
}

/// The same with a session of the demo agent that the client follows.
async fn demo_with_session() -> (Qd, PiClient, String) {
    let (qd, mut client) = demo().await;
    let session = demo_session(&mut client).await;
    (qd, client, session)
}

/// A server, a client of the face and the agent of its sessions: for tests that must hold for any agent.
struct FaceStage {
    qd: Qd,
    client: PiClient,
    /// What `create_session` needs to make a session of this agent.
    fields: Value,
    _llm: Option<LlmServer>,
}

impl FaceStage {
    async fn demo() -> FaceStage {
        let (qd, client) = demo().await;
        FaceStage { qd, client, fields: json!({"harness": "demo"}), _llm: None }
    }

    async fn pi() -> FaceStage {
        let (qd, client, llm) = pi().await;
        let fields = json!({"cwd": qd.sandbox().work()});
        FaceStage { qd, client, fields, _llm: Some(llm) }
    }

    /// A followed session.
    async fn session(&mut self) -> String {
        self.client.create(self.fields.clone()).await
    }

    /// A `create_session` with these fields too.
    fn create(&self, more: Value) -> Value {
        with(with(json!({"type": "create_session"}), self.fields.clone()), more)
    }
}

/// Runs each test with the demo agent and with real pi.
macro_rules! with_each_agent {
    ($($name:ident),+ $(,)?) => {
        mod with_demo {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(crate::pi_server::FaceStage::demo().await).await;
                }
            )+
        }
        mod with_pi {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(crate::pi_server::FaceStage::pi().await).await;
                }
            )+
        }
    };
}
use with_each_agent;

/// A followed session of real pi in the sandbox's directory.
async fn pi_session(qd: &Qd, client: &mut PiClient) -> String {
    client.create(json!({"cwd": qd.sandbox().work()})).await
}

/// A followed session of the demo agent.
async fn demo_session(client: &mut PiClient) -> String {
    client.create(json!({"harness": "demo"})).await
}

fn prompt(session: &str, message: &str) -> Value {
    json!({"type": "prompt", "sessionId": session, "message": message})
}

fn on(session: &str, kind: &str) -> Value {
    json!({"type": kind, "sessionId": session})
}

/// The command that names a session.
fn rename(session: &str, name: &str) -> Value {
    with(on(session, "set_session_name"), json!({"name": name}))
}

/// A shell command in a session.
fn bash(session: &str, command: &str) -> Value {
    with(on(session, "bash"), json!({"command": command}))
}

/// What a command that succeeds answers with.
async fn data(client: &mut PiClient, command: Value) -> Value {
    client.ok(command).await["data"].clone()
}
