//! What the commands about files, git and the shell share: where they work, and one call.

use qd_link::client::{CallError, FrameQueue, MuxClient};
use qd_wire::CommandResponse;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::arguments::Place;
use crate::error::CliError;
use crate::output::Output;
use crate::server::{self, Connection};
use crate::settings::Settings;

/// The session a program runs in, set for everything that runs in one.
const SESSION_VARIABLE: &str = "QD_SESSION_ID";

/// A connection, and where on the other side the work is done.
pub(crate) struct Desk {
    pub(crate) client: MuxClient,
    pub(crate) frames: FrameQueue,
    place: Value,
}

impl Desk {
    pub(crate) async fn open(settings: &Settings, output: &Output, place: &Place) -> Result<Desk, CliError> {
        let Connection { client, frames, .. } = server::connect(settings, output).await?;
        let place = match &place.root {
            Some(root) => {
                let mut object = json!({ "root": root });
                if let Some(runner) = &place.runner {
                    object["runner_id"] = json!(runner);
                }
                object
            }
            None => {
                let named = place.session.clone().or_else(|| std::env::var(SESSION_VARIABLE).ok());
                let session_id = server::resolve_session(&client, named.as_deref()).await?;
                json!({ "session_id": session_id })
            }
        };
        Ok(Desk { client, frames, place })
    }

    /// The command with its parameters and its place.
    pub(crate) fn command(&self, cmd: &str, parameters: Value) -> Value {
        let mut command = parameters;
        if let (Some(command), Some(place)) = (command.as_object_mut(), self.place.as_object()) {
            command.retain(|_, value| !value.is_null());
            command.extend(place.clone());
            command.insert("cmd".to_owned(), json!(cmd));
            command.insert("actor".to_owned(), json!("cli"));
            command.insert("channel".to_owned(), json!("agent"));
        }
        command
    }

    /// Calls and reads the answer.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        cmd: &str,
        parameters: Value,
    ) -> Result<T, CliError> {
        let response = self.client.call_value(self.command(cmd, parameters)).await?;
        read(response)
    }
}

/// The data of an answer; one without success is an error.
pub(crate) fn read<T: DeserializeOwned>(response: CommandResponse) -> Result<T, CliError> {
    if !response.success {
        return Err(CallError::Refused(Box::new(response)).into());
    }
    super::data(response)
}

/// The answer as JSON, or as text.
pub(crate) fn show<T: Serialize>(
    output: &Output,
    data: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), CliError> {
    if output.json { output.json_line(data) } else { output.out(&text(data)) }
}
