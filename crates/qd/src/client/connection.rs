//! Which server a command talks to, and the connection to it.
//!
//! When no server is named, a command talks to the hub that the data directory names. When none answers, the runner
//! of this machine is asked instead, and the person is told so.

use qd_link::client::{AttachStart, Attachment, ConnectOptions, FrameQueue, MuxClient};
use qd_link::tls::{Fingerprint, Trust};

use crate::clock;
use crate::error::{CliError, ErrorKind, Result};
use crate::output::Output;
use crate::runner::{LinkState, Membership};
use crate::server::endpoint::{Endpoint, token_path};
use crate::settings::Settings;

/// Where the hub is, from the settings or from the data directory.
pub(crate) fn locate(settings: &Settings) -> Result<ConnectOptions> {
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
            .hint("pass it with --token or QD_TOKEN"));
        }
        None => {
            let path = token_path(&settings.data_dir);
            let text = std::fs::read_to_string(&path).map_err(|error| {
                CliError::unreachable(format!("cannot read the token {}: {error}", path.display()))
                    .hint("pass it with --token or QD_TOKEN")
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
                .hint("start one with `qd up`, or use --url and --token")
        }
    }
}

/// Whether this machine runs sessions for a hub elsewhere.
pub(crate) fn is_runner(settings: &Settings) -> bool {
    Membership::read(&settings.data_dir).is_ok_and(|membership| membership.is_some_and(|it| it.joined))
}

/// Whose certificate counts: the one of this fingerprint, else those the system trusts.
pub(crate) fn trust(fingerprint: Option<&str>) -> Result<Trust> {
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

impl Connection {
    /// Follows a session over this connection, and over new ones when it is lost.
    pub(crate) async fn attach(self, start: AttachStart) -> Result<Attachment> {
        let Connection { options, client, frames } = self;
        Ok(Attachment::open_on(options, client, frames, start, Box::new(clock::random_number)).await?)
    }

    /// Whether this is a runner's socket, and not a hub.
    pub(crate) fn is_local(&self) -> bool {
        self.options.url.starts_with("unix:")
    }
}

/// Connects to the hub of the settings. When it is away and no other was named, the runner of this machine is asked
/// instead: its sessions go on without a hub.
pub(crate) async fn connect(settings: &Settings, output: &Output) -> Result<Connection> {
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

/// Connects as [`connect`] does, and finds the session that a person means by `name`, or the newest one.
pub(crate) async fn connect_to(
    settings: &Settings,
    output: &Output,
    name: Option<&str>,
) -> Result<(Connection, String)> {
    let connection = connect(settings, output).await?;
    let session_id = connection.resolve_session(name).await?;
    Ok((connection, session_id))
}

/// Connects to the hub, and to nothing else.
pub(crate) async fn connect_hub(settings: &Settings) -> Result<Connection> {
    let options = locate(settings)?;
    let (client, frames) = MuxClient::connect_with(&options).await?;
    Ok(Connection { options, client, frames })
}

/// Connects to the runner of this machine; `None` when none listens.
pub(crate) async fn connect_local(settings: &Settings) -> Result<Option<Connection>> {
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

/// Nobody answers at the socket.
pub(crate) fn no_runner(settings: &Settings) -> CliError {
    let places: Vec<String> = settings.runner_sockets.iter().map(|path| path.display().to_string()).collect();
    let message = match places.is_empty() {
        true => "runner_socket is off, so there is no runner to talk to".to_owned(),
        false => format!("no runner listens on {}", places.join(" or ")),
    };
    CliError::unreachable(message).hint("start one with `qd up` or `qd runner start`, or set --runner-socket")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
