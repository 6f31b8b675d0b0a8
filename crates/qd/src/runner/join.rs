//! `qd runner join`.

use std::io::BufRead;
use std::path::Path;

use qd_link::rest::Method;
use qd_link::url::ServerUrl;
use qd_wire::fleet::{JoinRequest, Joined};

use super::membership::{Membership, key_hash, new_key};
use crate::arguments::JoinArguments;
use crate::clock;
use crate::conversation::stdin_is_terminal;
use crate::data_dir::DataDir;
use crate::error::{CliError, ErrorKind};
use crate::output::{Output, harmless};
use crate::rest::{Refusal, Rest, server_url};
use crate::server;
use crate::settings::{Environment, Settings, checked_runner_id, runner_id_of_hostname};

const JOIN_PATH: &str = "/api/runners/join";

/// Trades the code for a membership, which is on the disk before the hub is asked.
pub(super) async fn run(
    settings: &Settings,
    environment: &Environment,
    output: &Output,
    arguments: &JoinArguments,
) -> Result<Membership, CliError> {
    let before = Membership::read(&settings.data_dir);
    let before = if arguments.force { before.unwrap_or(None) } else { before? };
    if let Some(before) = before.as_ref().filter(|before| before.joined && !arguments.force) {
        return Err(CliError::failed(format!(
            "this machine has joined {} already, as '{}'",
            before.url, before.runner_id
        ))
        .hint("run it with `qd runner start`; to join another hub instead, add --force"));
    }
    refuse_hub_dir(&settings.data_dir)?;
    let _taken = DataDir::take(&settings.data_dir)?;
    let hostname = hostname();
    let runner_id = match &arguments.name {
        Some(name) => checked_runner_id(name.clone())?,
        None => runner_id_of_hostname(&hostname),
    };
    let code = Code::read(&code_text(arguments, environment, output)?)?;
    let (url, fingerprint) = address(settings, arguments, &code)?;
    let membership = prepare(before.as_ref(), &url, runner_id, fingerprint, arguments.allow_plain)?;
    let rest = Rest { url, trust: server::trust(membership.fingerprint.as_deref())?, token: None };
    membership.write(&settings.data_dir)?;
    let request = JoinRequest {
        code: code.secret,
        runner_id: membership.runner_id.clone(),
        key_hash: key_hash(&membership.key),
        hostname,
        os: std::env::consts::OS.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    match rest.call::<Joined>(Method::Post, JOIN_PATH, Some(&request)).await? {
        Ok(_) => confirm(settings, output, before.as_ref(), membership),
        Err(refusal) => {
            restore(&settings.data_dir, before)?;
            Err(refused(refusal, &membership.runner_id))
        }
    }
}

/// The hub has said yes.
fn confirm(
    settings: &Settings,
    output: &Output,
    before: Option<&Membership>,
    mut membership: Membership,
) -> Result<Membership, CliError> {
    let is_other =
        before.is_some_and(|before| before.url != membership.url || before.runner_id != membership.runner_id);
    if is_other {
        set_sessions_aside(&settings.data_dir, output)?;
    }
    membership.joined = true;
    membership.write(&settings.data_dir)?;
    if output.json {
        output.json_line(&serde_json::json!({
            "runner_id": membership.runner_id, "url": membership.url, "fingerprint": membership.fingerprint,
        }))?;
    } else {
        output.out(&harmless(&format!(
            "joined {} as '{}'; from now on `qd runner start` runs it\n",
            membership.url, membership.runner_id
        )))?;
    }
    Ok(membership)
}

/// Sessions belong to their hub: what the old one has acknowledged the new one could never get.
fn set_sessions_aside(data_dir: &Path, output: &Output) -> Result<(), CliError> {
    let stamp = clock::now_ms();
    for name in ["runner.db", "runner.db-wal", "runner.db-shm"] {
        let (old, new) = (data_dir.join(name), data_dir.join(format!("{name}.before-{stamp}")));
        match std::fs::rename(&old, &new) {
            Ok(()) if name == "runner.db" => {
                output.note(&format!("the sessions of the hub before are kept in {}\n", new.display()));
            }
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(CliError::failed(format!("cannot set {} aside: {error}", old.display())));
            }
        }
    }
    Ok(())
}

/// A refused attempt leaves what was there before.
fn restore(data_dir: &Path, before: Option<Membership>) -> Result<(), CliError> {
    match before {
        Some(before) => before.write(data_dir),
        None => Ok(std::fs::remove_file(Membership::path(data_dir))?),
    }
}

fn refused(refusal: Refusal, runner_id: &str) -> CliError {
    let hint = match refusal.status {
        409 => format!(
            "take another name with --name, or `qd runner revoke {runner_id}` on the hub if that machine is gone"
        ),
        404 => "is this the address of a Quarterdeck hub, and of this version or newer?".to_owned(),
        _ => "`qd runner invite` where the hub runs makes a new code".to_owned(),
    };
    CliError { kind: ErrorKind::Refused, message: refusal.reason, hint: Some(hint) }
}

/// The data directory of a hub has sessions of its own, which no other hub could take over whole.
pub(super) fn refuse_hub_dir(data_dir: &Path) -> Result<(), CliError> {
    if !data_dir.join("hub.db").exists() {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "{} belongs to a hub (`qd up`), whose sessions are in it",
        data_dir.display()
    ))
    .hint("name another for the runner, here and later: --data-dir DIR or QD_DATA_DIR"))
}

/// The membership to be: the key of an attempt whose answer was lost, else a new one.
fn prepare(
    before: Option<&Membership>,
    url: &ServerUrl,
    runner_id: String,
    fingerprint: Option<String>,
    allow_plain: bool,
) -> Result<Membership, CliError> {
    let url = url.to_string();
    let is_same = |before: &&Membership| !before.joined && before.url == url && before.runner_id == runner_id;
    let key = match before.filter(is_same) {
        Some(before) => before.key.clone(),
        None => new_key()?,
    };
    Ok(Membership { url, runner_id, key, next_key: None, fingerprint, allow_plain, joined: false })
}

/// Where the hub is, and what its certificate must be.
fn address(
    settings: &Settings,
    arguments: &JoinArguments,
    code: &Code,
) -> Result<(ServerUrl, Option<String>), CliError> {
    let fingerprint = code.fingerprint.clone().or_else(|| settings.fingerprint.clone());
    let typed = &arguments.hub;
    let url = match (typed.contains("://"), fingerprint.is_some()) {
        (true, _) => server_url(typed)?,
        // A code that knows a certificate is that of a hub that encrypts.
        (false, true) => server_url(&format!("https://{typed}"))?,
        (false, false) => server_url(&format!("http://{typed}"))?,
    };
    if fingerprint.is_some() && !url.is_tls() {
        return Err(CliError::usage(format!("this code is of a hub that encrypts, and {url} does not"))
            .hint(format!("join https://{}", url.address())));
    }
    if !url.is_tls() && !url.is_loopback() && !arguments.allow_plain {
        return Err(CliError::usage(format!(
            "{url} is on another machine and does not encrypt: everybody on the way could read the key and run \
             anything here"
        ))
        .hint("use https:// (`qd up` has TLS on such an address), or accept it with --allow-plain"));
    }
    Ok((url, fingerprint))
}

/// A code as it is typed: the secret, and the fingerprint of the hub's certificate where it has one.
#[derive(Debug, PartialEq)]
struct Code {
    secret: String,
    fingerprint: Option<String>,
}

impl Code {
    fn read(text: &str) -> Result<Code, CliError> {
        let text = text.trim();
        let (secret, fingerprint) = match text.split_once('.') {
            Some((secret, fingerprint)) => (secret, Some(fingerprint)),
            None => (text, None),
        };
        let is_secret = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
        if secret.is_empty() || !secret.chars().all(is_secret) {
            return Err(
                CliError::usage("this is not a code").hint("copy it whole, as `qd runner invite` printed it")
            );
        }
        if server::trust(fingerprint).is_err() {
            return Err(CliError::usage("the code is not whole: what follows the dot is no fingerprint")
                .hint("copy it again, as `qd runner invite` printed it"));
        }
        Ok(Code { secret: secret.to_owned(), fingerprint: fingerprint.map(str::to_owned) })
    }
}

fn code_text(
    arguments: &JoinArguments,
    environment: &Environment,
    output: &Output,
) -> Result<String, CliError> {
    if let Some(code) = arguments.code.as_deref().or_else(|| environment.get("QD_RUNNER_CODE")) {
        return Ok(code.to_owned());
    }
    if stdin_is_terminal() {
        output.note("code (from `qd runner invite` on the hub's machine): ");
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if line.trim().is_empty() {
        return Err(CliError::usage("there is no code")
            .hint("`qd runner invite` where the hub runs makes one; give it with --code"));
    }
    Ok(line)
}

/// The machine's name, as it calls itself.
pub(crate) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
