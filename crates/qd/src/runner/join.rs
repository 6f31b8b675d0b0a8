//! `qd runner join`.
//!
//! The answer of the hub can be lost, and a machine must never end up with a key that the hub does not know, or the
//! reverse. So the new key is on the disk before the hub is asked, beside the membership that counts until then; a
//! repeated join uses the same key; and only a clear no, or a hub that was never reached, brings the old state back.

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qd_link::net::{Dial, DialFuture, TcpDial};
use qd_link::rest::Method;
use qd_link::url::ServerUrl;
use qd_wire::ErrorCode;
use qd_wire::fleet::{JoinRequest, Joined};

use super::membership::{Membership, key_hash, new_key};
use crate::arguments::JoinArguments;
use crate::client::connection;
use crate::client::conversation::stdin_is_terminal;
use crate::client::rest::{HttpRefusal, RestClient, server_url};
use crate::clock;
use crate::error::{CliError, ErrorKind, Result};
use crate::output::{Output, harmless};
use crate::private_files;
use crate::server::data_dir::DataDir;
use crate::settings::{Environment, Settings, checked_runner_id, runner_id_of_hostname};

const JOIN_PATH: &str = "/api/runners/join";
/// From this status on it is trouble at the hub or on the way to it, not an answer.
const SERVER_TROUBLE: u16 = 500;

/// Trades the code for a membership, which is on the disk before the hub is asked.
pub(super) async fn run(
    settings: &Settings,
    environment: &Environment,
    output: &Output,
    arguments: &JoinArguments,
) -> Result<Membership> {
    // Before the directory is taken: a running runner holds it, and its owner should read that it has joined already.
    refuse_second(&settings.data_dir, arguments.force)?;
    refuse_hub_dir(&settings.data_dir)?;
    let _taken = DataDir::take(&settings.data_dir)?;
    let before = StoredMembership::read(&settings.data_dir, arguments.force)?;
    let runner_id = match (&arguments.name, &before.membership) {
        (Some(name), _) => checked_runner_id(name.clone())?,
        (None, Some(membership)) => membership.runner_id.clone(),
        (None, None) => runner_id_of_hostname(&hostname()),
    };
    let code = InviteCode::read(&code_text(arguments, environment, output)?)?;
    let (url, fingerprint) = address(settings, arguments, &code)?;
    let asked = before.membership.as_ref().and_then(Membership::unconfirmed);
    let membership = prepare(asked, &url, runner_id, fingerprint, arguments.allow_plain)?;
    let rest = RestClient { url, trust: connection::trust(membership.fingerprint.as_deref())?, token: None };
    if let Some(confirmed) = before.confirmed().filter(|it| it.runner_id == membership.runner_id)
        && asked.is_none_or(|asked| asked.key != membership.key)
    {
        if is_known(&rest, &code, confirmed).await? {
            output.note("the hub recognised this machine; its sessions are kept\n");
            return moved(settings, output, confirmed, membership);
        }
        if confirmed.url != membership.url {
            output.note("the hub does not know this machine; it joins as a new one, without its sessions\n");
        }
    }
    // Before the hub is asked. If this process dies after the hub said yes, the key it accepted is still here and the
    // join can be repeated.
    before.with_attempt(&membership).write(&settings.data_dir)?;
    let request = request(&code, &membership.runner_id, &membership.key);
    let dial = NotingDial::default();
    match rest.call_by::<Joined>(&dial, Method::POST, JOIN_PATH, Some(&request)).await {
        Ok(Ok(_)) => confirm(settings, output, before.confirmed(), membership),
        // A clear no: nothing was accepted, so the old state is the true one.
        Ok(Err(refusal)) if refusal.status < SERVER_TROUBLE => {
            before.restore(&settings.data_dir)?;
            Err(refused(refusal, &membership.runner_id))
        }
        Ok(Err(refusal)) => Err(unanswered(refusal.into_error(), &before)),
        // There was a connection, so the hub may have heard us: the attempt is kept.
        Err(error) if dial.has_reached() && error.kind != ErrorKind::Refused => {
            Err(unanswered(error, &before))
        }
        Err(error) => {
            before.restore(&settings.data_dir)?;
            Err(match (error.kind, &code.fingerprint) {
                (ErrorKind::Refused, None) => error.hint(
                    "copy the code whole, with the dot and what follows it: that is the hub's certificate",
                ),
                _ => error,
            })
        }
    }
}

fn request(code: &InviteCode, runner_id: &str, key: &str) -> JoinRequest {
    JoinRequest {
        code: code.secret.clone(),
        runner_id: runner_id.to_owned(),
        key_hash: key_hash(key),
        hostname: hostname(),
        os: std::env::consts::OS.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        known_only: None,
    }
}

/// Whether this is the hub that was joined before, at another address or with another certificate. The hub hears
/// the hash of the key only, and the code stays good when it is another one.
async fn is_known(rest: &RestClient, code: &InviteCode, confirmed: &Membership) -> Result<bool> {
    // A key that was just changed may count already.
    for key in std::iter::once(&confirmed.key).chain(&confirmed.next_key) {
        let request = JoinRequest { known_only: Some(true), ..request(code, &confirmed.runner_id, key) };
        match rest.call::<Joined>(Method::POST, JOIN_PATH, Some(&request)).await? {
            Ok(_) => return Ok(true),
            Err(refusal) if refusal.status == 404 => {}
            Err(refusal) => return Err(refused(refusal, &confirmed.runner_id)),
        }
    }
    Ok(false)
}

/// The same hub, elsewhere: only the way to it changes.
fn moved(
    settings: &Settings,
    output: &Output,
    confirmed: &Membership,
    way: Membership,
) -> Result<Membership> {
    let Membership { url, fingerprint, allow_plain, .. } = way;
    let membership = Membership { url, fingerprint, allow_plain, attempt: None, ..confirmed.clone() };
    membership.write(&settings.data_dir)?;
    say_joined(output, &membership)?;
    Ok(membership)
}

/// A machine belongs to one hub, unless the person says otherwise.
fn refuse_second(data_dir: &Path, force: bool) -> Result<()> {
    if force {
        return Ok(());
    }
    match Membership::read(data_dir)? {
        Some(before) if before.joined => Err(CliError::failed(format!(
            "this machine has joined {} already, as '{}'",
            before.url, before.runner_id
        ))
        .hint("start it with `qd runner start`; to join another hub instead, add --force")),
        Some(_) | None => Ok(()),
    }
}

/// What was stored before this attempt. It stays, or comes back, unless the hub says yes.
struct StoredMembership {
    text: Option<String>,
    membership: Option<Membership>,
}

impl StoredMembership {
    fn read(data_dir: &Path, force: bool) -> Result<StoredMembership> {
        let membership = Membership::read(data_dir);
        let membership = if force { membership.unwrap_or(None) } else { membership? };
        // A damaged file comes back as it was too: a person may still read the key out of it.
        let text = std::fs::read_to_string(Membership::path(data_dir)).ok();
        Ok(StoredMembership { text, membership })
    }

    /// The membership that counts until the hub says yes.
    fn confirmed(&self) -> Option<&Membership> {
        self.membership.as_ref().filter(|membership| membership.joined)
    }

    /// What is on the disk while the hub is asked.
    fn with_attempt(&self, attempt: &Membership) -> Membership {
        match self.confirmed() {
            Some(confirmed) => Membership { attempt: Some(Box::new(attempt.clone())), ..confirmed.clone() },
            None => attempt.clone(),
        }
    }

    fn restore(&self, data_dir: &Path) -> Result<()> {
        let path = Membership::path(data_dir);
        let restored = match &self.text {
            Some(text) => private_files::write_private(&path, text),
            None => std::fs::remove_file(&path),
        };
        restored.map_err(|error| CliError::cannot("restore", &path, &error))
    }
}

/// Notes whether a connection came about: before that the hub cannot have heard anything.
#[derive(Default)]
struct NotingDial {
    has_reached: Arc<AtomicBool>,
}

impl NotingDial {
    fn has_reached(&self) -> bool {
        self.has_reached.load(Ordering::Relaxed)
    }
}

impl Dial for NotingDial {
    fn dial(&self, address: &str) -> DialFuture {
        let (dialing, has_reached) = (TcpDial.dial(address), Arc::clone(&self.has_reached));
        Box::pin(async move {
            let stream = dialing.await?;
            has_reached.store(true, Ordering::Relaxed);
            Ok(stream)
        })
    }
}

/// The hub may have said yes without being heard. The key it may know is kept, for the next time it is asked.
fn unanswered(error: CliError, before: &StoredMembership) -> CliError {
    let until_then = match before.confirmed() {
        Some(confirmed) => format!("; until then `qd runner start` still works for {}", confirmed.url),
        None => String::new(),
    };
    let question = error.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    CliError {
        kind: error.kind,
        message: format!("{}; the hub may have accepted it anyway", error.message),
        hint: Some(format!(
            "repeat this command, with the same code or a new one, and the same name{until_then}{question}"
        )),
    }
}

/// The hub has said yes. `before` is the membership that counted until now.
fn confirm(
    settings: &Settings,
    output: &Output,
    before: Option<&Membership>,
    mut membership: Membership,
) -> Result<Membership> {
    // Without a membership nobody knows whose sessions there are.
    let is_same =
        before.is_some_and(|before| before.url == membership.url && before.runner_id == membership.runner_id);
    if !is_same {
        set_sessions_aside(&settings.data_dir, output)?;
    }
    membership.joined = true;
    membership.write(&settings.data_dir)?;
    say_joined(output, &membership)?;
    Ok(membership)
}

fn say_joined(output: &Output, Membership { url, runner_id, fingerprint, .. }: &Membership) -> Result<()> {
    if output.json {
        let joined = serde_json::json!({ "runner_id": runner_id, "url": url, "fingerprint": fingerprint });
        return output.json_line(&joined);
    }
    output.out(&harmless(&format!("joined {url} as '{runner_id}'; start it later with `qd runner start`\n")))
}

/// Sessions belong to their hub: what the old one has acknowledged the new one could never get.
fn set_sessions_aside(data_dir: &Path, output: &Output) -> Result<()> {
    let stamp = clock::now_ms();
    for suffix in ["", "-wal", "-shm"] {
        let old = data_dir.join(format!("runner.db{suffix}"));
        // So named, the files are still one database.
        let new = data_dir.join(format!("runner.db.before-{stamp}{suffix}"));
        match std::fs::rename(&old, &new) {
            Ok(()) if suffix.is_empty() => {
                output.note(&format!(
                    "the sessions of the hub before are kept in {}; to have them again, join that hub again and \
                     give the file its old name, {}\n",
                    new.display(),
                    old.display()
                ));
            }
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(CliError::cannot("rename", &old, &error)),
        }
    }
    Ok(())
}

fn refused(refusal: HttpRefusal, runner_id: &str) -> CliError {
    let hint = match refusal.status {
        409 if refusal.code == Some(ErrorCode::Conflict) => "take another name with --name".to_owned(),
        409 => format!(
            "take another name with --name, or `qd runner revoke {runner_id}` on the hub if that machine is gone"
        ),
        404 => "is this the address of a Quarterdeck hub, and of this version or newer?".to_owned(),
        _ => "`qd runner invite` where the hub runs makes a new code".to_owned(),
    };
    CliError { kind: ErrorKind::refused(refusal.code), message: refusal.reason, hint: Some(hint) }
}

/// The data directory of a hub has sessions of its own, which no other hub could take over whole.
pub(super) fn refuse_hub_dir(data_dir: &Path) -> Result<()> {
    if !data_dir.join("hub.db").exists() {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "{} belongs to a hub (`qd up`), whose sessions are in it",
        data_dir.display()
    ))
    .hint("use another directory for the runner, now and later: --data-dir DIR or QD_DATA_DIR"))
}

/// The membership to be: with the key of an attempt whose answer was lost, else with a new one.
fn prepare(
    asked: Option<&Membership>,
    url: &ServerUrl,
    runner_id: String,
    fingerprint: Option<String>,
    allow_plain: bool,
) -> Result<Membership> {
    let url = url.to_string();
    let key = match asked.filter(|asked| asked.url == url && asked.runner_id == runner_id) {
        Some(asked) => asked.key.clone(),
        None => new_key()?,
    };
    Ok(Membership { url, runner_id, key, fingerprint, allow_plain, ..Membership::default() })
}

/// Where the hub is, and what its certificate must be.
fn address(
    settings: &Settings,
    arguments: &JoinArguments,
    code: &InviteCode,
) -> Result<(ServerUrl, Option<String>)> {
    let fingerprint = code.fingerprint.clone().or_else(|| settings.fingerprint.clone());
    let typed = &arguments.hub;
    let url = match (typed.contains("://"), fingerprint.is_some()) {
        (true, _) => server_url(typed)?,
        // A code that knows a certificate is that of a hub that encrypts.
        (false, true) => server_url(&format!("https://{typed}"))?,
        (false, false) => server_url(&format!("http://{typed}"))?,
    };
    if fingerprint.is_some() && !url.is_tls() {
        return Err(CliError::usage(format!("this code belongs to a hub that uses TLS, but {url} does not"))
            .hint(format!("join https://{}", url.address())));
    }
    if !url.is_tls() && !url.is_loopback() && !arguments.allow_plain {
        return Err(CliError::usage(format!(
            "{url} is on another machine and does not encrypt: everybody on the way could read the key and run \
             anything here"
        ))
        .hint("use https:// (`qd up` uses TLS on such an address), or allow it with --allow-plain"));
    }
    Ok((url, fingerprint))
}

/// A code as it is typed: the secret, and the fingerprint of the hub's certificate where it has one.
#[derive(Debug, PartialEq)]
struct InviteCode {
    secret: String,
    fingerprint: Option<String>,
}

impl InviteCode {
    fn read(text: &str) -> Result<InviteCode> {
        let text = text.trim();
        let (secret, fingerprint) = match text.split_once('.') {
            Some((secret, fingerprint)) => (secret, Some(fingerprint)),
            None => (text, None),
        };
        let is_secret = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
        if secret.is_empty() || !secret.chars().all(is_secret) {
            return Err(CliError::usage("this is not a code")
                .hint("copy the whole code that `qd runner invite` printed"));
        }
        if connection::trust(fingerprint).is_err() {
            return Err(CliError::usage(
                "the code is incomplete: the part after the dot is not a fingerprint",
            )
            .hint("copy the whole code that `qd runner invite` printed"));
        }
        Ok(InviteCode { secret: secret.to_owned(), fingerprint: fingerprint.map(str::to_owned) })
    }
}

fn code_text(arguments: &JoinArguments, environment: &Environment, output: &Output) -> Result<String> {
    if let Some(code) = arguments.code.as_deref().or_else(|| environment.get("QD_RUNNER_CODE")) {
        return Ok(code.to_owned());
    }
    if stdin_is_terminal() {
        output.note("code (from `qd runner invite` on the hub's machine): ");
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if line.trim().is_empty() {
        return Err(CliError::usage("no code was given")
            .hint("run `qd runner invite` on the hub's machine, then pass the code with --code"));
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
