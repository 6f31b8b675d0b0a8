//! The pi-server protocol in `qd up`: a port of its own, and whether it may be open to everybody.

use std::net::{SocketAddr, TcpListener};

use super::hub_and_runner::ServerSockets;
use super::up::reachable;
use crate::error::{CliError, Result};
use crate::output::Output;
use crate::settings::Settings;

/// What helps when the port is taken.
const TAKEN_HINT: &str = "another program uses the port; choose one with --pi-server-port (0: any free one)";

/// Without a token only loopback may be served, where it is at least one machine, and only on the protocol's own port.
pub(super) fn check_open_port(settings: &Settings, address: SocketAddr) -> Result<()> {
    if !settings.pi.insecure_no_auth {
        return Ok(());
    }
    // Otherwise a person would believe that the option works, and look for the mistake in the client.
    if settings.pi_server_port.is_none() {
        return Err(CliError::usage(
            "insecure_no_auth is for the port of the pi-server protocol, and there is none",
        )
        .hint("add --pi-server-port PORT, or leave it out; /ws/pi always needs a token"));
    }
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "insecure_no_auth lets everybody in, and {address} can be reached by other machines"
    ))
    .hint("listen on 127.0.0.1, or leave it out and give each client a token: `qd token add NAME`"))
}

/// The listener of `pi_server_port`, on the address of the server.
pub(super) fn bind_port(settings: &Settings, address: SocketAddr) -> Result<Option<TcpListener>> {
    let Some(port) = settings.pi_server_port else { return Ok(None) };
    super::up::bind(SocketAddr::new(address.ip(), port), TAKEN_HINT).map(Some)
}

/// Where clients on this machine find that listener.
pub(super) fn url(sockets: &ServerSockets) -> Result<Option<String>> {
    let Some(listener) = &sockets.pi_listener else { return Ok(None) };
    let scheme = if sockets.tls.is_some() { "wss" } else { "ws" };
    Ok(Some(format!("{scheme}://{}", reachable(listener.local_addr()?))))
}

/// Said at every start, so that nobody forgets it.
pub(crate) fn warn_of_no_auth(output: &Output) {
    output.note(
        "WARNING: insecure_no_auth is on. Every program and every user of this machine can run any command as you, \
         without a token, through the pi-server protocol. It is for old clients only: stop the server when you are \
         done, or give the client a token (`qd token add NAME`) and leave this option out.\n",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Flags, PiFlags, UpFlags, test_settings};

    #[test]
    fn nobody_gets_in_without_a_token_from_elsewhere() {
        let pi = PiFlags { insecure_no_auth: Some(true), ..PiFlags::default() };
        let up = UpFlags { pi_server_port: Some(0), ..UpFlags::default() };
        let open = test_settings(Flags { up, pi: pi.clone(), ..Flags::default() });
        let idle = test_settings(Flags { pi, ..Flags::default() });
        let closed = test_settings(Flags::default());
        for (settings, address, is_allowed) in [
            (&open, "127.0.0.1:1", true),
            (&open, "[::1]:1", true),
            (&open, "0.0.0.0:1", false),
            (&open, "10.0.0.5:1", false),
            (&idle, "127.0.0.1:1", false),
            (&closed, "0.0.0.0:1", true),
        ] {
            assert_eq!(check_open_port(settings, address.parse().unwrap()).is_ok(), is_allowed, "{address}");
        }
    }
}
