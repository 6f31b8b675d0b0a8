//! `qd runner rotate` and `qd runner revoke`.

use std::io::BufRead;

use qd_link::rest::Method;
use serde_json::Value;

use crate::arguments::RevokeArguments;
use crate::client::connection;
use crate::client::conversation::stdin_is_terminal;
use crate::client::rest::{HttpRefusal, RestClient};
use crate::client::sessions::resolve_name;
use crate::error::{CliError, Result};
use crate::output::{Output, harmless};
use crate::settings::Settings;

/// Tells a runner to make a new key.
pub(super) async fn rotate(settings: &Settings, output: &Output, name: &str) -> Result<()> {
    let runner_id = resolve_runner(settings, name).await?;
    let path = format!("/api/runners/{runner_id}/rotate");
    let answer: Value = RestClient::of(settings)?
        .call(Method::POST, &path, None::<&()>)
        .await?
        .map_err(HttpRefusal::into_error)?;
    output.report(
        &answer,
        &format!("{runner_id} makes a new key; the old one ends when the new one has been used"),
    )
}

/// Cuts a runner off.
pub(super) async fn revoke(settings: &Settings, output: &Output, arguments: &RevokeArguments) -> Result<()> {
    if !arguments.yes && !stdin_is_terminal() {
        return Err(CliError::usage("revoking a machine needs confirmation, and stdin is not a terminal")
            .hint("add --yes to skip the confirmation"));
    }
    let runner_id = resolve_runner(settings, &arguments.name).await?;
    if !arguments.yes {
        output.note(&harmless(&format!(
            "Revoke {runner_id}? It must join again to reconnect. Type its name to confirm: "
        )));
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        if line.trim() != runner_id {
            return Err(CliError::failed("not confirmed; nothing was changed"));
        }
    }
    let answer = RestClient::of(settings)?.delete(&format!("/api/runners/{runner_id}")).await?;
    output
        .report(&answer, &format!("revoked {runner_id}; it is disconnected; its conversations stay readable"))
}

async fn resolve_runner(settings: &Settings, name: &str) -> Result<String> {
    let runners = connection::connect_hub(settings).await?.runners().await?;
    let names: Vec<&str> = runners.iter().map(|runner| runner.runner_id.as_str()).collect();
    resolve_name(&names, name, "runner", "`qd runner list` shows the runners").map(str::to_owned)
}
