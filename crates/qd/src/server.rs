//! Which server a command talks to, and how sessions are named on the command line.

use std::path::{Path, PathBuf};

use qd_link::client::{ClientRequest, ConnectOptions, FrameQueue, MuxClient};
use qd_link::tls::{Fingerprint, Trust};
use qd_runner::driver::first_try;
use qd_wire::Command;
use qd_wire::command::NoParams;
use qd_wire::data::{RunnerInfo, RunnersData, SessionState, SessionSummary, SessionsData};
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::error::{CliError, ErrorKind};
use crate::output::Output;
use crate::runner::{LinkState, Membership};
use crate::settings::Settings;

/// What a running server leaves in its data directory for the command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) pid: u32,
    /// Of the server's certificate, so that commands on this machine know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    /// The address it listens on, which may be "every one of this machine".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<String>,
}

impl Endpoint {
    pub(crate) fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("endpoint.json")
    }

    /// The server of this data directory; one whose process is gone does not count.
    pub(crate) fn read(data_dir: &Path) -> Option<Endpoint> {
        let text = std::fs::read_to_string(Self::path(data_dir)).ok()?;
        let endpoint: Endpoint = serde_json::from_str(&text).ok()?;
        is_alive(endpoint.pid).then_some(endpoint)
    }
}

/// Whether a process exists.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    match test_kill_process(pid) {
        Ok(()) | Err(rustix::io::Errno::PERM) => true,
        Err(_) => false,
    }
}

/// The file of the owner's token.
pub(crate) fn token_path(data_dir: &Path) -> PathBuf {
    data_dir.join("owner-token")
}

/// Where the hub is, from the settings or from the data directory.
pub(crate) fn locate(settings: &Settings) -> Result<ConnectOptions, CliError> {
    let (url, fingerprint) = match &settings.url {
        Some(url) if !is_url(url) => {
            return Err(CliError::usage(format!("'{url}' is not a URL"))
                .hint("give the server's address as --url http://127.0.0.1:7433"));
        }
        Some(url) => (url.clone(), None),
        None => match Endpoint::read(&settings.data_dir) {
            Some(endpoint) => (endpoint.url, endpoint.fingerprint),
            None => return Err(no_hub(settings)),
        },
    };
    let token = match &settings.token {
        Some(token) => token.clone(),
        // The owner's token is for the owner's machine; it must not travel to whatever --url names.
        None if settings.url.is_some() && !is_local(&url) => {
            return Err(CliError::usage(format!(
                "{url} is on another machine, so it needs a token of its own"
            ))
            .hint("give it with --token or QD_TOKEN"));
        }
        None => {
            let path = token_path(&settings.data_dir);
            let text = std::fs::read_to_string(&path).map_err(|error| {
                CliError::unreachable(format!("cannot read the token {}: {error}", path.display()))
                    .hint("give it with --token or QD_TOKEN")
            })?;
            text.trim().to_owned()
        }
    };
    let mut options = ConnectOptions::new(&url, &token);
    options.trust = trust(settings.fingerprint.as_deref().or(fingerprint.as_deref()))?;
    Ok(options)
}

/// No hub runs on the data directory; on a runner's it is elsewhere.
fn no_hub(settings: &Settings) -> CliError {
    match Membership::read(&settings.data_dir) {
        Ok(Some(Membership { url, fingerprint, joined: true, .. })) => {
            let fingerprint = fingerprint.map(|it| format!(" --fingerprint {it}")).unwrap_or_default();
            let start = match LinkState::read(&settings.data_dir) {
                Some(_) => "",
                None => "; or start the runner: `qd runner start`",
            };
            CliError::unreachable(format!("this machine is a runner of {url}; no hub runs here")).hint(format!(
                "ask the hub with --url {url}{fingerprint} --token TOKEN (the file `owner-token` there){start}"
            ))
        }
        Ok(_) | Err(_) => {
            CliError::unreachable(format!("no server is running on {}", settings.data_dir.display()))
                .hint("start one with `qd up`, or name one with --url and --token")
        }
    }
}

/// Whether this machine runs sessions for a hub elsewhere.
pub(crate) fn is_runner(settings: &Settings) -> bool {
    Membership::read(&settings.data_dir).is_ok_and(|membership| membership.is_some_and(|it| it.joined))
}

/// Whose certificate counts: the one of this fingerprint, else those the system trusts.
pub(crate) fn trust(fingerprint: Option<&str>) -> Result<Trust, CliError> {
    let Some(fingerprint) = fingerprint else { return Ok(Trust::System) };
    let fingerprint: Fingerprint = fingerprint.parse().map_err(|error| {
        CliError::usage(format!("'{fingerprint}' is not a fingerprint: {error}"))
            .hint("`qd up` prints the right one when it starts")
    })?;
    Ok(Trust::Pinned(fingerprint))
}

/// Whether this can be an address: with a scheme, or as host and port, or as an address of numbers.
fn is_url(url: &str) -> bool {
    let (has_scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(|character| character.is_ascii_alphanumeric()) => {
            (!scheme.is_empty(), rest)
        }
        Some(_) => return false,
        None => (false, url),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        Some(_) | None => (authority, None),
    };
    let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let is_number = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    is_host && is_port && (has_scheme || port.is_some() || host == "localhost" || is_number)
}

/// Whether a URL names this machine by its loopback address.
fn is_local(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A connection, and how to make it again.
pub(crate) struct Connection {
    pub(crate) options: ConnectOptions,
    pub(crate) client: MuxClient,
    pub(crate) frames: FrameQueue,
}

/// Connects to the hub of the settings. When it is away and no other was named, the runner of this machine is asked
/// instead: its sessions go on without a hub.
pub(crate) async fn connect(settings: &Settings, output: &Output) -> Result<Connection, CliError> {
    if settings.local {
        return connect_local(settings).await?.ok_or_else(|| no_runner(settings));
    }
    let error = match connect_hub(settings).await {
        Ok(connection) => return Ok(connection),
        Err(error) => error,
    };
    if error.kind != ErrorKind::Unreachable || settings.url.is_some() {
        return Err(error);
    }
    match connect_local(settings).await {
        Ok(Some(connection)) => {
            let why = if is_runner(settings) { "no hub runs here" } else { "hub not reachable" };
            output.note(&format!("{why}; talking to the runner on this machine\n"));
            Ok(connection)
        }
        // A runner that cannot be talked to is a lesser trouble than the hub that is away.
        Ok(None) | Err(_) => Err(error),
    }
}

/// Connects to the hub, and to nothing else.
pub(crate) async fn connect_hub(settings: &Settings) -> Result<Connection, CliError> {
    let options = locate(settings)?;
    let (client, frames) = MuxClient::connect_with(&options).await?;
    Ok(Connection { options, client, frames })
}

/// Connects to the runner of this machine; `None` when none listens.
pub(crate) async fn connect_local(settings: &Settings) -> Result<Option<Connection>, CliError> {
    let mut problem = None;
    // The one beside the data is surely of this data; the usual place may be another runner's.
    for socket in settings.runner_sockets.iter().rev().filter(|socket| socket.exists()) {
        // The socket asks the system who is there, so no token is shown to it.
        let options = ConnectOptions::new(&format!("unix:{}", socket.display()), "");
        match MuxClient::connect_with(&options).await {
            Ok((client, frames)) => return Ok(Some(Connection { options, client, frames })),
            Err(error) => problem = Some(CliError::from(error)),
        }
    }
    match problem {
        // One that was left behind by a crash has nobody at its other end.
        Some(error) if error.kind != ErrorKind::Unreachable => Err(error),
        Some(_) | None => Ok(None),
    }
}

/// Whether this is a runner's socket, and not a hub.
pub(crate) fn is_socket(options: &ConnectOptions) -> bool {
    options.url.starts_with("unix:")
}

/// Nobody answers at the socket.
pub(crate) fn no_runner(settings: &Settings) -> CliError {
    let places: Vec<String> = settings.runner_sockets.iter().map(|path| path.display().to_string()).collect();
    let message = match places.is_empty() {
        true => "runner_socket is off, so there is no runner to talk to".to_owned(),
        false => format!("no runner listens on {}", places.join(" or ")),
    };
    CliError::unreachable(message)
        .hint("start one with `qd up` or `qd runner start`, or name its --runner-socket")
}

/// All sessions, newest first.
pub(crate) async fn sessions(client: &MuxClient) -> Result<Vec<SessionSummary>, CliError> {
    let data: SessionsData = client.query(&ClientRequest::system(Command::ListSessions(NoParams {}))).await?;
    let mut sessions = data.sessions;
    sessions.sort_by(|left, right| {
        right.created_at.cmp(&left.created_at).then_with(|| right.session_id.cmp(&left.session_id))
    });
    Ok(sessions)
}

/// All runners the server knows.
pub(crate) async fn runners(client: &MuxClient) -> Result<Vec<RunnerInfo>, CliError> {
    let data: RunnersData = client.query(&ClientRequest::system(Command::GetRunners(NoParams {}))).await?;
    Ok(data.runners)
}

/// What a session does at the moment, with its open questions.
pub(crate) async fn state(client: &MuxClient, session_id: &str) -> Result<SessionState, CliError> {
    Ok(client.query(&ClientRequest::session(session_id, Command::GetState(NoParams {}))).await?)
}

/// The session a person means by `name`, or the newest one.
pub(crate) async fn resolve_session(client: &MuxClient, name: Option<&str>) -> Result<String, CliError> {
    let sessions = sessions(client).await?;
    let ids: Vec<&str> = sessions.iter().map(|session| session.session_id.as_str()).collect();
    match name {
        Some(name) => resolve(&ids, name, "session", "`qd ls` shows the sessions").map(str::to_owned),
        None => ids.first().map(|id| (*id).to_owned()).ok_or_else(|| {
            CliError::failed("there is no session yet").hint(format!("start one: {}", first_try()))
        }),
    }
}

/// The one id that is `name` or begins with it.
pub(crate) fn resolve<'a>(ids: &[&'a str], name: &str, what: &str, hint: &str) -> Result<&'a str, CliError> {
    if let Some(exact) = ids.iter().find(|id| **id == name) {
        return Ok(exact);
    }
    let matching: Vec<&str> =
        ids.iter().copied().filter(|id| !name.is_empty() && id.starts_with(name)).collect();
    match matching.as_slice() {
        [one] => Ok(one),
        [] => Err(CliError::failed(format!("no {what} begins with '{name}'")).hint(hint)),
        several => {
            let list = several.iter().take(8).copied().collect::<Vec<_>>().join(", ");
            Err(CliError::failed(format!(
                "'{name}' is not enough: {} {what}s begin with it ({list})",
                several.len()
            ))
            .hint("write more of the id"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_beginning_names_a_session() {
        let ids = ["s1", "s12", "s123", "t9"];
        let find = |name: &str| resolve(&ids, name, "session", "look").map_err(|error| error.to_human());
        assert_eq!(find("t"), Ok("t9"));
        assert_eq!(find("s1"), Ok("s1"));
        assert_eq!(find("s123"), Ok("s123"));
        insta::assert_snapshot!([find("s"), find("x"), find("")].map(Result::unwrap_err).join("\n"));
    }

    #[test]
    fn the_owners_token_stays_on_this_machine() {
        for url in ["http://127.0.0.1:1", "ws://localhost:1/ws/mux", "http://[::1]:2", "127.9.9.9"] {
            assert!(is_local(url), "{url}");
        }
        for url in [
            "http://deck.example",
            "http://127.0.0.1.evil.example:1",
            "http://localhost@evil.example",
            "10.0.0.1:1",
        ] {
            assert!(!is_local(url), "{url}");
        }
    }

    #[test]
    fn garbage_is_not_a_url() {
        for url in
            ["http://127.0.0.1:1", "ws://deck/ws/mux", "http://[::1]:2", "[::1]", "127.0.0.1", "deck:80"]
        {
            assert!(is_url(url), "{url}");
        }
        for url in
            ["garbage", "", "http://", "://x", "http://a b", "http://deck:port", "deck:99999", "a b://x"]
        {
            assert!(!is_url(url), "{url}");
        }
    }

    #[test]
    fn an_endpoint_of_a_dead_process_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let write = |pid: u32| {
            let endpoint =
                Endpoint { url: "http://127.0.0.1:1".into(), pid, fingerprint: None, listen: None };
            std::fs::write(Endpoint::path(directory.path()), serde_json::to_string(&endpoint).unwrap())
                .unwrap();
        };
        assert_eq!(Endpoint::read(directory.path()), None);
        write(std::process::id());
        assert!(Endpoint::read(directory.path()).is_some());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        write(child.id());
        assert_eq!(Endpoint::read(directory.path()), None);
    }
}
