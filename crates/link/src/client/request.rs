//! A command on its way out.
//!
//! What is set here travels beside the command and is the same for all commands: where it runs, what it waits for,
//! and under which key it runs at most once.

use qd_wire::mux::{Channel, ClientFrame};
use qd_wire::{Command, SYSTEM_SESSION};

/// A command with its envelope; the connection adds the id.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientRequest {
    frame: ClientFrame,
}

impl ClientRequest {
    /// A command to one session.
    pub fn session(session_id: impl Into<String>, command: Command) -> ClientRequest {
        let mut request = Self::anywhere(command);
        request.frame.session_id = Some(session_id.into());
        request
    }

    /// A command that belongs to no session (lists, search).
    pub fn system(command: Command) -> ClientRequest {
        Self::session(SYSTEM_SESSION, command)
    }

    /// A command that names no session: `session.create` whose id the server mints.
    pub fn anywhere(command: Command) -> ClientRequest {
        ClientRequest {
            frame: ClientFrame {
                channel: Channel::Agent,
                id: None,
                session_id: None,
                runner_id: None,
                idempotency_key: None,
                depends_on: None,
                if_session_version: None,
                wait: None,
                wait_ms: None,
                command,
            },
        }
    }

    /// The same key runs at most once, so a command whose answer was lost may be sent again.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> ClientRequest {
        self.frame.idempotency_key = Some(key.into());
        self
    }

    /// Runs on this runner.
    pub fn runner(mut self, runner_id: impl Into<String>) -> ClientRequest {
        self.frame.runner_id = Some(runner_id.into());
        self
    }

    /// Runs after the commands with these ids have succeeded.
    pub fn depends_on(mut self, ids: Vec<String>) -> ClientRequest {
        self.frame.depends_on = Some(ids);
        self
    }

    /// Runs only when the session's version is this.
    pub fn if_session_version(mut self, version: u64) -> ClientRequest {
        self.frame.if_session_version = Some(version);
        self
    }

    /// Waits for a runner that is away, at most so many milliseconds; without a number as long as the hub sees fit.
    pub fn wait(mut self, wait_ms: Option<u64>) -> ClientRequest {
        self.frame.wait = Some(true);
        self.frame.wait_ms = wait_ms;
        self
    }

    /// The command itself.
    pub fn command(&self) -> &Command {
        &self.frame.command
    }

    pub(super) fn to_text(&self, id: u64) -> Result<String, serde_json::Error> {
        let mut frame = serde_json::to_value(&self.frame)?;
        if let Some(object) = frame.as_object_mut() {
            object.insert("id".to_owned(), id.to_string().into());
        }
        serde_json::to_string(&frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qd_wire::command::{NoParams, SteerParams};

    #[test]
    fn a_request_is_one_flat_object() {
        let steer = Command::Steer(SteerParams { message: "left".into(), images: None, client_id: None });
        let text = ClientRequest::session("s1", steer).idempotency_key("k").to_text(3).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value,
            serde_json::json!({"channel":"agent","id":"3","session_id":"s1","idempotency_key":"k","cmd":"steer","message":"left"})
        );
        let list =
            ClientRequest::system(Command::ListSessions(NoParams {})).wait(Some(5)).to_text(4).unwrap();
        assert!(list.contains("\"_system\""), "{list}");
        assert!(list.contains("\"wait\":true,\"wait_ms\":5"), "{list}");
    }
}
