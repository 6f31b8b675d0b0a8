//! The arguments of `qd pi-server`.

use std::str::FromStr;

use clap::Args;

use crate::settings::{PiFlags, RunnerFlags};

/// Where the original listens.
const PORT_DEFAULT: u16 = 3141;

/// Serve the pi-server protocol on stdio and on a WebSocket, in place of the original program.
///
/// Runs hub, runner and agents in one process. stdin takes one JSON command per line. stdout carries only the protocol,
/// one JSON object per line, starting with `server_ready`. When stdin ends, commands in progress have up to 30 seconds to
/// finish; then the process exits with 0, or with 1 if answers were lost or stdout was not read for ten seconds. SIGTERM
/// and Ctrl-C also stop it; every client then gets `server_shutdown`.
///
/// WebSocket clients on this machine connect to ws://127.0.0.1:PORT (any path). They send the token from the file
/// `owner-token` in the data directory as `Authorization: Bearer TOKEN` or as `?token=TOKEN`. stdin needs no token.
///
/// The data directory is separate from that of `qd up`, so both can run. Sessions, outcomes and versions survive a
/// restart. For clients on other machines, or a server that runs without stdin, use `qd up --pi-server-port`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd pi-server                                        serve stdio and ws://127.0.0.1:3141
  qd pi-server --port 0                               serve stdio only
  echo '{\"type\":\"list_sessions\"}' | qd pi-server --port 0
  qd --data-dir ~/.local/share/qd/pi-server ls        list its sessions

docs/pi-server.md explains how it differs from the original.")]
pub(crate) struct PiServerArguments {
    /// Serve WebSocket clients on this port of 127.0.0.1; 0 for none, auto for a free one [env: PI_SERVER_PORT] [default: 3141]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<Port>,
    #[command(flatten)]
    pub(crate) pi: PiFlags,
    #[command(flatten)]
    pub(crate) runner: RunnerFlags,
}

/// Which port WebSocket clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    None,
    /// Any that is free.
    Free,
    At(u16),
}

impl Default for Port {
    fn default() -> Self {
        Port::At(PORT_DEFAULT)
    }
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim() {
            "0" => Ok(Port::None),
            "auto" => Ok(Port::Free),
            number => number
                .parse()
                .map(Port::At)
                .map_err(|_| format!("'{number}' is neither a port (1 to 65535), 0 for none, nor auto")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_none_or_any() {
        let cases = [("0", Ok(Port::None)), ("auto", Ok(Port::Free)), (" 3142 ", Ok(Port::At(3142)))];
        for (text, port) in cases {
            assert_eq!(text.parse(), port);
        }
        for wrong in ["", "-1", "70000", "any"] {
            assert!(wrong.parse::<Port>().is_err(), "{wrong}");
        }
    }
}
