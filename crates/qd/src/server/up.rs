//! `qd up`: the server. Takes the data directory, binds, starts hub and runner, says that it is ready, and stops
//! cleanly when told to.
//!
//! The order matters. The directory is locked before anything in it is written, sockets are bound before hub and
//! runner start (a taken port is told at once), and the ready line comes last, when clients can connect.

use std::io::ErrorKind as IoErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use qd_runner::driver::first_try;
use tokio_util::sync::CancellationToken;

use super::file_limit;
use super::hub_and_runner::{HubAndRunner, ServerSockets, local_socket};
use super::pi_server_port::{self, warn_of_no_auth};
use super::stop_signals::StopSignals;
use super::tls;
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::process_memory::SecretText;
use crate::runner::{Membership, address_of_this_machine};
use crate::server::data_dir::DataDir;
use crate::server::endpoint::Endpoint;
use crate::settings::{Environment, Settings};

/// Threads that serve; more than a few gain nothing for one person's sessions.
const WORKER_THREADS_MAX: usize = 4;

/// How the server presents itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpMode {
    pub(crate) ready_json: bool,
    pub(crate) insecure_bind: bool,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(
    settings: &Settings,
    environment: &Environment,
    output: &Output,
    mode: UpMode,
) -> Result<()> {
    let address = listen_address(&settings.listen)?;
    let encrypts = tls::is_wanted(settings, address, mode.insecure_bind)?;
    pi_server_port::check_open_port(settings, address)?;
    // Before anything is written or bound: two servers on one directory would damage each other's database.
    let data_dir = DataDir::take(&settings.data_dir)?;
    refuse_runner_dir(settings)?;
    let token = data_dir.owner_token()?;
    let listener = bind(address, LISTEN_HINT)?;
    let pi_listener = pi_server_port::bind_port(settings, address)?;
    let tls = if encrypts { Some(tls::certificate(settings, address)?) } else { None };
    let sockets =
        ServerSockets { listener, pi_listener, tls, local_socket: local_socket(settings), default_cwd: None };
    let server = UpServer { settings, environment, output, mode, data_dir: &data_dir };
    let result = serve_on_threads(server.serve(sockets, token));
    data_dir.remove_endpoint();
    result
}

/// Runs a server to its end, on threads of its own. One core is left to agents, databases and the kernel: what serves then stays where its memory
/// is warm, and a key's echo takes a sixth less.
pub(crate) fn serve_on_threads(serving: impl Future<Output = Result<()>>) -> Result<()> {
    file_limit::raise();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads((cores - 1).clamp(1, WORKER_THREADS_MAX)).enable_all().build()?;
    runtime.spawn(qd_runner::process::give_back_memory());
    let result = runtime.block_on(serving);
    // A thread may still wait for a line of stdin; it ends with the process.
    runtime.shutdown_background();
    result
}

/// The hub has ended although nobody stopped it.
pub(super) fn stopped_unexpectedly() -> CliError {
    CliError::failed("the server stopped unexpectedly").hint("the log lines above say why")
}

/// What serving needs to know.
struct UpServer<'a> {
    settings: &'a Settings,
    environment: &'a Environment,
    output: &'a Output,
    mode: UpMode,
    data_dir: &'a DataDir,
}

impl UpServer<'_> {
    async fn serve(&self, sockets: ServerSockets, token: SecretText) -> Result<()> {
        let mut signals = StopSignals::listen()?;
        let listen = sockets.listener.local_addr()?;
        let scheme = if sockets.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint {
            url: format!("{scheme}://{}", reachable(listen)),
            pid: std::process::id(),
            fingerprint: sockets.tls.as_ref().map(|tls| tls.fingerprint().to_string()),
            listen: Some(listen.to_string()),
        };
        let pi_server_url = pi_server_port::url(&sockets)?;
        if self.settings.pi.insecure_no_auth {
            warn_of_no_auth(self.output);
        }
        let stop = CancellationToken::new();
        let mut hub_and_runner =
            HubAndRunner::start(self.settings, self.environment, &token, sockets, &stop).await?;
        let announced = self.announce(&endpoint, &token, pi_server_url.as_deref(), &hub_and_runner);
        // From here on the hub's hash of it is enough.
        drop(token);
        let ended_early = match &announced {
            // Whoever started it cannot hear where it is.
            Err(_) => None,
            Ok(()) => tokio::select! {
                result = hub_and_runner.finished() => Some(result),
                () = signals.recv() => None,
            },
        };
        stop.cancel();
        if let Some(result) = ended_early {
            return result.and(Err(stopped_unexpectedly()));
        }
        announced.and(signals.stop_in_time(hub_and_runner.finished()).await.unwrap_or(Ok(())))
    }

    /// Says where the server is, to the command line and to whoever started it.
    fn announce(
        &self,
        endpoint: &Endpoint,
        token: &str,
        pi_server_url: Option<&str>,
        hub_and_runner: &HubAndRunner,
    ) -> Result<()> {
        // Before the ready line: a script that has read the line can use the command line at once.
        self.data_dir.write_endpoint(endpoint)?;
        let Endpoint { url, fingerprint, .. } = endpoint;
        if self.mode.ready_json || self.output.json {
            let fingerprint = fingerprint.as_deref();
            let ready = ReadyLine { url, token, pid: endpoint.pid, fingerprint, pi_server_url };
            return self.output.secret_json_line(&ready);
        }
        let login = hub_and_runner.login_url(url)?;
        let line = |name: &str, value: Option<&str>| {
            value.map(|value| format!("{name:<11} {value}\n  ")).unwrap_or_default()
        };
        let certificate = line("certificate", fingerprint.as_deref());
        let others = line("others", self.address_for_others(endpoint).as_deref());
        let pi_server = line("pi-server", pi_server_url);
        self.output.out(&format!(
            "Quarterdeck is ready.\n\n  \
             open        {login}\n  \
             (the code works once; a new start prints a new one)\n\n  \
             {others}{pi_server}{certificate}data        {}\n  \
             first try   {}\n  \
             machines    qd runner invite\n  \
             stop        Ctrl-C\n\n",
            self.settings.data_dir.display(),
            first_try()
        ))
    }

    /// Where other machines find a server that listens everywhere.
    fn address_for_others(&self, endpoint: &Endpoint) -> Option<String> {
        let listen: SocketAddr = endpoint.listen.as_ref()?.parse().ok()?;
        let (scheme, _) = endpoint.url.split_once("://")?;
        let address = address_of_this_machine().filter(|_| listen.ip().is_unspecified())?;
        Some(format!("{scheme}://{}", SocketAddr::new(address, listen.port())))
    }
}

/// The sessions of a runner belong to its hub, and cannot be taken over by another.
pub(crate) fn refuse_runner_dir(settings: &Settings) -> Result<()> {
    match Membership::read(&settings.data_dir)? {
        Some(membership) if membership.joined => Err(CliError::usage(format!(
            "{} belongs to the runner '{}' of {}",
            settings.data_dir.display(),
            membership.runner_id,
            membership.url
        ))
        .hint("start it with `qd runner start`, or use another directory for this server: --data-dir DIR")),
        Some(_) | None => Ok(()),
    }
}

/// The line of `--ready-json`, fields in this order.
#[derive(serde::Serialize)]
struct ReadyLine<'a> {
    url: &'a str,
    token: &'a str,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pi_server_url: Option<&'a str>,
}

const ADDRESS_HINT: &str = "give an address and a port, such as 127.0.0.1:7433";

/// The address to listen on.
fn listen_address(listen: &str) -> Result<SocketAddr> {
    let addresses = listen.to_socket_addrs().map_err(|error| {
        CliError::usage(format!("cannot listen on '{listen}': {error}")).hint(ADDRESS_HINT)
    })?;
    let first = addresses.into_iter().next();
    first.ok_or_else(|| CliError::usage(format!("'{listen}' has no address")).hint(ADDRESS_HINT))
}

/// Where clients on this machine find a listener; "everywhere" is not an address to connect to.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, address.port()).into(),
        IpAddr::V4(_) | IpAddr::V6(_) => address,
    }
}

/// What helps when the port of the server is taken.
const LISTEN_HINT: &str =
    "another program uses the port; choose one with --listen 127.0.0.1:PORT (0: any free one)";

/// Connections that wait to be accepted. The standard library's 128 overflow when many come at once, and then a client
/// of ours waits a second for its next try.
const WAITING_CONNECTIONS_MAX: i32 = 4096;

/// Takes an address; `taken` says what to do when somebody else has it.
pub(crate) fn bind(address: SocketAddr, taken: &str) -> Result<TcpListener> {
    let explain = |error: std::io::Error| {
        let message = format!("cannot listen on {address}: {error}");
        match error.kind() {
            IoErrorKind::AddrInUse => CliError::failed(message).hint(taken),
            IoErrorKind::PermissionDenied => {
                CliError::failed(message).hint("ports below 1024 need root; use a higher one")
            }
            IoErrorKind::AddrNotAvailable => CliError::failed(message)
                .hint("this machine does not have this address; `ip addr` lists its addresses"),
            _ => CliError::failed(message),
        }
    };
    let listener = TcpListener::bind(address).map_err(explain)?;
    rustix::net::listen(&listener, WAITING_CONNECTIONS_MAX).map_err(std::io::Error::from)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everywhere_is_reached_at_home() {
        assert!(listen_address("127.0.0.1:0").is_ok());
        assert!(listen_address("7433").is_err());
        assert_eq!(reachable("0.0.0.0:5".parse().unwrap()).to_string(), "127.0.0.1:5");
        assert_eq!(reachable("[::]:5".parse().unwrap()).to_string(), "[::1]:5");
        assert_eq!(reachable("10.1.1.1:5".parse().unwrap()).to_string(), "10.1.1.1:5");
    }

    #[test]
    fn a_taken_port_is_explained() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = bind(taken.local_addr().unwrap(), LISTEN_HINT).unwrap_err();
        assert!(error.hint.unwrap().contains("--listen"), "{}", error.message);
    }
}
