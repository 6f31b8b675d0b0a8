//! What the commands about files, git and the shell share: where they work, and one call.

use qd_link::client::CallError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::arguments::ServiceTarget;
use crate::client::connection::{self, Connection};
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::settings::Settings;

/// The session a program runs in, set for everything that runs in one.
pub(crate) const SESSION_VARIABLE: &str = "QD_SESSION_ID";

/// A connection, and where on the other side the work is done.
pub(crate) struct ServiceClient {
    connection: Connection,
    target: Value,
}

impl ServiceClient {
    pub(crate) async fn open(
        settings: &Settings,
        output: &Output,
        target: &ServiceTarget,
    ) -> Result<ServiceClient> {
        let connection = connection::connect(settings, output).await?;
        let target = match &target.root {
            Some(root) => json!({ "root": root, "runner_id": target.runner }),
            None => {
                let named = target.session.clone().or_else(|| std::env::var(SESSION_VARIABLE).ok());
                let session_id = connection.resolve_session(named.as_deref()).await?;
                json!({ "session_id": session_id })
            }
        };
        Ok(ServiceClient { connection, target })
    }

    /// The command with its parameters and its target.
    fn command(&self, cmd: &str, parameters: Value) -> Value {
        let mut command = parameters;
        if let (Some(command), Some(target)) = (command.as_object_mut(), self.target.as_object()) {
            command.extend(target.clone());
            command.retain(|_, value| !value.is_null());
            command.insert("cmd".to_owned(), json!(cmd));
            command.insert("actor".to_owned(), json!("cli"));
            command.insert("channel".to_owned(), json!("agent"));
        }
        command
    }

    /// Sends a command under this id; what comes of it is read with [`Self::next_frame`].
    pub(crate) async fn send(&self, id: &str, cmd: &str, parameters: Value) -> Result<()> {
        let mut command = self.command(cmd, parameters);
        command["id"] = json!(id);
        Ok(self.connection.client.send_text(command.to_string()).await?)
    }

    /// Takes a command back that is still under way.
    pub(crate) async fn cancel(&self, id: &str) -> Result<()> {
        let cancel = json!({"channel": "agent", "cmd": "cancel", "target": id});
        Ok(self.connection.client.send_text(cancel.to_string()).await?)
    }

    /// The next frame of the server.
    pub(crate) async fn next_frame(&mut self) -> Result<Value> {
        match self.connection.frames.next().await {
            Some(frame) => Ok(serde_json::from_str(frame.text()).unwrap_or_default()),
            None => Err(CliError::unreachable("the connection was lost")),
        }
    }

    /// Calls and reads the answer.
    pub(crate) async fn call<T: DeserializeOwned>(&self, cmd: &str, parameters: Value) -> Result<T> {
        let response = self.connection.client.call_value(self.command(cmd, parameters)).await?;
        if !response.success {
            return Err(CallError::Refused(Box::new(response)).into());
        }
        Ok(serde_json::from_value(response.data.unwrap_or_default()).map_err(CallError::Decode)?)
    }
}
