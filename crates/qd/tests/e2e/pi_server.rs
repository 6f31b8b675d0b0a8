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

/// A sandbox with pi whose face has a port of its own and no rate limits in the way.
async fn pi_sandbox() -> (Sandbox, LlmServer) {
    let llm = LlmServer::start().await.unwrap();
    let mut sandbox = Sandbox::with_pi(env!("CARGO_BIN_EXE_qd"), &llm);
    sandbox.set("QD_PI_SERVER_PORT", "0");
    unlimited(&mut sandbox);
    (sandbox, llm)
}

/// Takes the rate limits away: tests send more than people do.
fn unlimited(sandbox: &mut Sandbox) {
    for name in ["QD_PI_RATE_PER_MINUTE", "QD_PI_GLOBAL_RATE_PER_MINUTE", "QD_PI_UI_RATE_PER_MINUTE"] {
        sandbox.set(name, "0");
    }
}

/// A server with real pi and a client of the face.
async fn pi() -> (Qd, PiClient, LlmServer) {
    let (sandbox, llm) = pi_sandbox().await;
    let qd = sandbox.up().await;
    let client = qd.pi_client().await;
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
    let mut sandbox = crate::sandbox();
    sandbox.set("QD_PI_SERVER_PORT", "0");
    unlimited(&mut sandbox);
    let qd = sandbox.up().await;
    let client = qd.pi_client().await;
    (qd, client)
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
        let mut command = json!({"type": "create_session"});
        for fields in [&self.fields, &more] {
            command.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        command
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
