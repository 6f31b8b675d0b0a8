//! `qd runner rotate` and `qd runner revoke`.

use std::io::BufRead;

use qd_link::rest::Method;
use serde_json::Value;

use crate::arguments::RevokeArguments;
use crate::conversation::stdin_is_terminal;
use crate::error::CliError;
use crate::output::{Output, harmless};
use crate::rest::{Refusal, Rest};
use crate::server::{self, Connection};
use crate::settings::Settings;

/// Tells a runner to make a new key.
pub(super) async fn rotate(settings: &Settings, output: &Output, name: &str) -> Result<(), CliError> {
    let runner_id = resolve(settings, name).await?;
    let answer = call(settings, Method::Post, &format!("/api/runners/{runner_id}/rotate")).await?;
    report(
        output,
        &answer,
        &format!("{runner_id} makes a new key; the old one ends when the new one has been used"),
    )
}

/// Cuts a runner off.
pub(super) async fn revoke(
    settings: &Settings,
    output: &Output,
    arguments: &RevokeArguments,
) -> Result<(), CliError> {
    if !arguments.yes && !stdin_is_terminal() {
        return Err(CliError::usage("this cuts a machine off, and nobody is here to confirm it")
            .hint("add --yes to do it without a question"));
    }
    let runner_id = resolve(settings, &arguments.name).await?;
    if !arguments.yes {
        output.note(&harmless(&format!(
            "cut off {runner_id}? It has to join again to come back. Type its name to confirm: "
        )));
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        if line.trim() != runner_id {
            return Err(CliError::failed("not confirmed; nothing was changed"));
        }
    }
    let answer = call(settings, Method::Delete, &format!("/api/runners/{runner_id}")).await?;
    report(output, &answer, &format!("revoked {runner_id}; it is cut off, its conversations stay readable"))
}

async fn resolve(settings: &Settings, name: &str) -> Result<String, CliError> {
    let Connection { client, frames: _frames, .. } = server::connect_hub(settings).await?;
    let runners = server::runners(&client).await?;
    let names: Vec<&str> = runners.iter().map(|runner| runner.runner_id.as_str()).collect();
    server::resolve(&names, name, "runner", "`qd runner list` shows the runners").map(str::to_owned)
}

async fn call(settings: &Settings, method: Method, path: &str) -> Result<Value, CliError> {
    let answer = Rest::of(settings)?.call::<Value>(method, path, None::<&Value>).await?;
    answer.map_err(Refusal::into_error)
}

fn report(output: &Output, answer: &Value, sentence: &str) -> Result<(), CliError> {
    if output.json { output.json_line(answer) } else { output.out(&harmless(&format!("{sentence}\n"))) }
}
