//! `qd pi-server`: hub and runner in one process for clients of the pi-server protocol, on stdio and on a WebSocket.
//! stdout carries the protocol and nothing else.
//!
//! Whoever starts this reads stdout as the protocol, so not even an error may be printed there; everything for people
//! goes to stderr.

mod lines;
mod refusal;
mod stdio;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use tokio::io::BufReader;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::hub_and_runner::{HubAndRunner, ServerSockets, local_socket};
use super::pi_server_port::warn_of_no_auth;
use super::stop_signals::StopSignals;
use super::up::{bind, refuse_runner_dir, serve_on_threads, stopped_unexpectedly};
use crate::arguments::Port;
use crate::client::conversation::stdin_is_terminal;
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::process_memory::SecretText;
use crate::server::data_dir::DataDir;
use crate::server::endpoint::{Endpoint, token_path};
use crate::settings::{Environment, Settings};
use stdio::{BridgeEnd, InputOver, StdinEndTimeouts};

/// The variable of the original.
const PORT_VARIABLE: &str = "PI_SERVER_PORT";
const TAKEN_HINT: &str = "another program uses the port; choose one with --port PORT or PI_SERVER_PORT (0: none, auto: any free one)";
/// How long commands may still take after the end of stdin.
const ANSWERS_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long whoever started us may leave stdout full after the end of stdin.
const UNREAD_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether somebody can still write to stdin, while stdout is full.
const HANG_UP_EVERY: Duration = Duration::from_millis(500);
/// Bytes on their way between stdio and the face, each way; a few batches.
const STREAM_BYTES: usize = 256 * 1024;
/// What is read from stdin at once.
const INPUT_BUFFER_BYTES: usize = 64 * 1024;
/// How long the last lines may take to be written when the face has said its last word; with the stop before it that
/// stays below the ten seconds we promise.
const LAST_LINES_MAX: Duration = Duration::from_millis(300);

/// Serves until stdin ends, or SIGTERM or SIGINT.
pub(crate) fn run(
    settings: &Settings,
    environment: &Environment,
    output: &Output,
    port: Option<Port>,
) -> Result<()> {
    let port = match port {
        Some(port) => port,
        None => port_of(environment)?,
    };
    if settings.pi.insecure_no_auth && port == Port::None {
        return Err(CliError::usage(
            "insecure_no_auth is for WebSocket clients, and there is no port for them",
        )
        .hint("remove it; stdio needs no token"));
    }
    let pi_listener = listener(port)?;
    // One for each editor window, say: those that name no directory do not get in each other's way.
    let data_dir = match settings.is_data_dir_default {
        true => DataDir::take_free(&settings.data_dir)?,
        false => DataDir::take(&settings.data_dir)?,
    };
    let settings = &settings.in_data_dir(data_dir.path().to_path_buf());
    refuse_runner_dir(settings)?;
    let token = data_dir.owner_token()?;
    // The command line finds its way here: `qd ls`, `qd token`.
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), TAKEN_HINT)?;
    let sockets = ServerSockets {
        listener,
        pi_listener,
        tls: None,
        local_socket: local_socket(settings),
        // As with the original.
        default_cwd: Some(std::env::current_dir()?),
    };
    let settings = &with_transports(settings, sockets.pi_listener.is_some());
    let server = PiServer { settings, environment, output, data_dir: &data_dir };
    let result = serve_on_threads(server.serve(sockets, token));
    data_dir.remove_endpoint();
    result
}

/// The settings, with what `server_ready` says of the ways in.
fn with_transports(settings: &Settings, has_websocket: bool) -> Settings {
    let mut settings = settings.clone();
    let websocket = has_websocket.then(|| "websocket".to_owned());
    settings.pi.transports = websocket.into_iter().chain(["stdio".to_owned()]).collect();
    settings
}

fn port_of(environment: &Environment) -> Result<Port> {
    let Some(text) = environment.get(PORT_VARIABLE) else { return Ok(Port::default()) };
    text.parse().map_err(|error| {
        CliError::usage(format!("the environment variable {PORT_VARIABLE} is invalid: {error}"))
    })
}

/// The listener for WebSocket clients; they are on this machine.
fn listener(port: Port) -> Result<Option<TcpListener>> {
    let port = match port {
        Port::None => return Ok(None),
        Port::Free => 0,
        Port::At(port) => port,
    };
    bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), TAKEN_HINT).map(Some)
}

struct PiServer<'a> {
    settings: &'a Settings,
    environment: &'a Environment,
    output: &'a Output,
    data_dir: &'a DataDir,
}

impl PiServer<'_> {
    async fn serve(&self, sockets: ServerSockets, token: SecretText) -> Result<()> {
        let mut signals = StopSignals::listen()?;
        self.announce(&sockets)?;
        let stop = CancellationToken::new();
        let mut hub_and_runner =
            HubAndRunner::start(self.settings, self.environment, &token, sockets, &stop).await?;
        // From here on the hub's hash of it is enough.
        drop(token);
        let (face, stream) = tokio::io::duplex(STREAM_BYTES);
        hub_and_runner.join_face(face).await?;
        let (over_sender, input_over) = oneshot::channel();
        let mut stdio = tokio::spawn(stdio::bridge(
            BufReader::with_capacity(INPUT_BUFFER_BYTES, tokio::io::stdin()),
            tokio::io::stdout(),
            stream,
            self.settings.pi.message_bytes_max,
            StdinEndTimeouts { answers: ANSWERS_WAIT_MAX, unread: UNREAD_MAX },
            hang_up,
            over_sender,
        ));
        let (mut ended_early, mut outcome) = (None, Ok(()));
        tokio::select! {
            result = hub_and_runner.finished() => ended_early = Some(result),
            ending = &mut stdio => outcome = self.report_bridge_end(ending.ok()),
            Ok(over) = input_over => outcome = check_all_answered(over),
            () = signals.recv() => {}
        }
        stop.cancel();
        if let Some(result) = ended_early {
            return result.and(Err(stopped_unexpectedly()));
        }
        let result = signals.stop_in_time(hub_and_runner.finished()).await.unwrap_or(Ok(()));
        if !stdio.is_finished() {
            // Whoever does not read them in time has the end of the stream.
            let _unread = tokio::time::timeout(LAST_LINES_MAX, stdio).await;
        }
        outcome.and(result)
    }

    /// Says on stderr where clients come in; leaves the address for the command line.
    fn announce(&self, sockets: &ServerSockets) -> Result<()> {
        let listen = sockets.listener.local_addr()?;
        self.data_dir.write_endpoint(&Endpoint {
            url: format!("http://{listen}"),
            pid: std::process::id(),
            fingerprint: None,
            listen: Some(listen.to_string()),
        })?;
        let token = token_path(&self.settings.data_dir);
        let address = match &sockets.pi_listener {
            Some(listener) if self.settings.pi.insecure_no_auth => {
                format!("ws://{} (no token needed) and stdio", listener.local_addr()?)
            }
            Some(listener) => {
                format!("ws://{} (token: {}) and stdio", listener.local_addr()?, token.display())
            }
            None => "stdio".to_owned(),
        };
        self.output.note(&format!("pi-server: {address}\n"));
        if self.settings.pi.insecure_no_auth {
            warn_of_no_auth(self.output);
        }
        if stdin_is_terminal() {
            self.output
                .note("waiting for JSON lines, such as {\"type\":\"list_sessions\"}; Ctrl-D ends it\n");
        }
        Ok(())
    }

    fn report_bridge_end(&self, ending: Option<BridgeEnd>) -> Result<()> {
        match ending {
            Some(BridgeEnd::Face) => self.output.note("the server closed the connection of stdio; ending\n"),
            // Whoever has closed stdout knows.
            Some(BridgeEnd::Output) => {}
            Some(BridgeEnd::Unread) => {
                let seconds = UNREAD_MAX.as_secs();
                return Err(CliError::failed(format!(
                    "stdin has ended and stdout was not read for {seconds} s; answers are lost"
                ))
                .hint("read stdout while writing stdin, and read it to its end"));
            }
            None => self.output.note("the connection of stdio broke; ending\n"),
        }
        Ok(())
    }
}

fn check_all_answered(over: InputOver) -> Result<()> {
    if over.unanswered == 0 {
        return Ok(());
    }
    let seconds = ANSWERS_WAIT_MAX.as_secs();
    Err(CliError::failed(format!(
        "stdin ended {seconds} s ago and {} commands have no answer yet; ending without",
        over.unanswered
    ))
    .hint("keep stdin open until the last answer has arrived"))
}

/// Ends when nobody can write to stdin any more, though not all of it may be read.
async fn hang_up() {
    loop {
        tokio::time::sleep(HANG_UP_EVERY).await;
        if has_hung_up(std::io::stdin()) {
            return;
        }
    }
}

fn has_hung_up(input: impl AsFd) -> bool {
    // What is in a file is there already; nobody waits at its other end.
    let is_file = fstat(&input).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
    let mut polled = [PollFd::new(&input, HANG_UP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    is_file || poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(HANG_UP)
}

/// Node gives its children sockets instead of pipes, which have a flag of their own for this.
#[cfg(target_os = "linux")]
const HANG_UP: PollFlags = PollFlags::HUP.union(PollFlags::RDHUP);
#[cfg(not(target_os = "linux"))]
const HANG_UP: PollFlags = PollFlags::HUP;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_comes_from_the_variable_of_the_original() {
        let port = |value: &str| port_of(&[(PORT_VARIABLE, value)].into_iter().collect());
        assert_eq!(port_of(&Environment::default()).unwrap(), Port::At(3141));
        assert_eq!(port("").unwrap(), Port::At(3141));
        assert_eq!((port("4000").unwrap(), port("0").unwrap()), (Port::At(4000), Port::None));
        assert!(port("x").unwrap_err().message.contains("PI_SERVER_PORT"));
    }

    #[test]
    fn a_taken_port_is_explained() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = listener(Port::At(taken.local_addr().unwrap().port())).unwrap_err();
        assert!(error.hint.unwrap().contains("PI_SERVER_PORT"), "{}", error.message);
        assert!(listener(Port::None).unwrap().is_none());
    }

    #[test]
    fn a_hang_up_is_seen_before_all_is_read() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"not read").unwrap();
        assert!(!has_hung_up(&reader));
        drop(writer);
        assert!(has_hung_up(&reader));
        let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &writer, b"not read").unwrap();
        assert!(!has_hung_up(&reader));
        writer.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(has_hung_up(&reader));
        assert!(has_hung_up(std::fs::File::open("Cargo.toml").unwrap()));
    }
}
