//! `qd up`: the server. Takes the data directory, binds, starts hub and runner, says that it is ready, and stops
//! cleanly when told to.

mod data_dir;
mod spine;

use std::io::ErrorKind as IoErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::CliError;
use crate::output::Output;
use crate::server::Endpoint;
use crate::settings::{Environment, Settings};
use data_dir::DataDir;
use spine::Spine;

/// Threads that serve; more than a few gain nothing for one person's sessions.
const WORKER_THREADS_MAX: usize = 4;
/// How long a clean stop may take.
const STOP_TIME_MAX: Duration = Duration::from_millis(9500);
/// The exit code of a program ended by SIGINT, as shells say it.
const EXIT_INTERRUPTED: i32 = 130;

/// How the server presents itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) ready_json: bool,
    pub(crate) insecure_bind: bool,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(
    settings: &Settings,
    environment: &Environment,
    output: &Output,
    mode: Mode,
) -> Result<(), CliError> {
    let address = listen_address(&settings.listen, mode.insecure_bind)?;
    let data_dir = DataDir::take(&settings.data_dir)?;
    let token = data_dir.owner_token()?;
    let listener = bind(address)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.min(WORKER_THREADS_MAX))
        .enable_all()
        .build()?;
    let result = runtime.block_on(serve(settings, environment, output, mode, &data_dir, &token, listener));
    data_dir.remove_endpoint();
    runtime.shutdown_background();
    result
}

async fn serve(
    settings: &Settings,
    environment: &Environment,
    output: &Output,
    mode: Mode,
    data_dir: &DataDir,
    token: &str,
    listener: TcpListener,
) -> Result<(), CliError> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    let mut hangups = signal(SignalKind::hangup())?;
    let url = format!("http://{}", reachable(listener.local_addr()?));
    let stop = CancellationToken::new();
    let mut spine = Spine::start(settings, environment, token, listener, &stop).await?;
    data_dir.write_endpoint(&Endpoint { url: url.clone(), pid: std::process::id() })?;
    announce(output, mode, settings, &url, token, &spine)?;
    let ended_early = tokio::select! {
        result = spine.finished() => Some(result),
        _ = interrupts.recv() => None,
        _ = terminations.recv() => None,
        _ = hangups.recv() => None,
    };
    stop.cancel();
    if let Some(result) = ended_early {
        return result.and(Err(CliError::failed("the server stopped by itself").hint("see the lines above")));
    }
    tokio::select! {
        result = spine.finished() => result,
        () = tokio::time::sleep(STOP_TIME_MAX) => {
            tracing::warn!("not everything stopped in time; ending anyway");
            Ok(())
        }
        _ = interrupts.recv() => std::process::exit(EXIT_INTERRUPTED),
    }
}

fn announce(
    output: &Output,
    mode: Mode,
    settings: &Settings,
    url: &str,
    token: &str,
    spine: &Spine,
) -> Result<(), CliError> {
    if mode.ready_json || output.json {
        return output.json_line(&ReadyLine { url, token, pid: std::process::id() });
    }
    let login = spine.login_url(url)?;
    output.out(&format!(
        "Quarterdeck is ready.\n\n  \
         open        {login}\n  \
         (the code works once; a new start prints a new one)\n\n  \
         data        {}\n  \
         first try   qd run --harness demo \"hello\"\n  \
         stop        Ctrl-C\n\n",
        settings.data_dir.display()
    ))
}

/// The line of `--ready-json`, fields in this order.
#[derive(serde::Serialize)]
struct ReadyLine<'a> {
    url: &'a str,
    token: &'a str,
    pid: u32,
}

/// The address to listen on; one that others can reach needs a word from the person.
fn listen_address(listen: &str, insecure_bind: bool) -> Result<SocketAddr, CliError> {
    let addresses = listen.to_socket_addrs().map_err(|error| {
        CliError::usage(format!("cannot listen on '{listen}': {error}"))
            .hint("write address and port, such as 127.0.0.1:7433")
    })?;
    let address = addresses
        .into_iter()
        .next()
        .ok_or_else(|| CliError::usage(format!("'{listen}' has no address")).hint("write 127.0.0.1:7433"))?;
    if !address.ip().is_loopback() && !insecure_bind {
        return Err(CliError::usage(format!("{address} can be reached by other machines, and TLS is not built in yet"))
            .hint(
                "listen on 127.0.0.1 and use a tunnel (ssh -L), or accept that everybody on the way reads the token \
                 with --insecure-bind",
            ));
    }
    Ok(address)
}

/// Where clients on this machine find a listener; "everywhere" is not an address to connect to.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, address.port()).into(),
        IpAddr::V4(_) | IpAddr::V6(_) => address,
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, CliError> {
    let explain = |error: std::io::Error| {
        let message = format!("cannot listen on {address}: {error}");
        match error.kind() {
            IoErrorKind::AddrInUse => CliError::failed(message).hint(
                "another program uses the port; choose one with --listen 127.0.0.1:PORT (0: any free one)",
            ),
            IoErrorKind::PermissionDenied => {
                CliError::failed(message).hint("ports below 1024 are for root; take a higher one")
            }
            IoErrorKind::AddrNotAvailable => {
                CliError::failed(message).hint("this machine has no such address")
            }
            _ => CliError::failed(message),
        }
    };
    let listener = TcpListener::bind(address).map_err(explain)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_bound_without_a_word() {
        assert!(listen_address("127.0.0.1:0", false).is_ok());
        assert!(listen_address("[::1]:0", false).is_ok());
        let refused = listen_address("0.0.0.0:7433", false).unwrap_err();
        assert!(refused.message.contains("TLS") && refused.hint.unwrap().contains("--insecure-bind"));
        assert!(listen_address("0.0.0.0:7433", true).is_ok());
        assert!(listen_address("7433", false).is_err());
        assert_eq!(reachable("0.0.0.0:5".parse().unwrap()).to_string(), "127.0.0.1:5");
        assert_eq!(reachable("[::]:5".parse().unwrap()).to_string(), "[::1]:5");
        assert_eq!(reachable("10.1.1.1:5".parse().unwrap()).to_string(), "10.1.1.1:5");
    }

    #[test]
    fn a_taken_port_is_explained() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = bind(taken.local_addr().unwrap()).unwrap_err();
        assert!(error.hint.unwrap().contains("--listen"), "{}", error.message);
    }
}
