//! The arguments of `qd pi-server`.

use std::str::FromStr;

use clap::Args;

use crate::settings::{PiFlags, RunnerFlags};

/// Where the original listens.
const PORT_DEFAULT: u16 = 3141;

/// Serve the pi-server protocol on stdin and stdout and on a WebSocket, as the original program does.
///
/// One process with everything: hub, runner, agents. stdin takes one JSON command per line, stdout carries nothing but
/// the protocol, one JSON object per line; the first is `server_ready`. The end of stdin stops it: commands still under
/// way get their answers, for up to 30 seconds, and the exit code is 0; it is 1 when answers are lost, also because
/// nobody reads stdout for ten seconds. SIGTERM and Ctrl-C stop it too; every client gets `server_shutdown`.
///
/// WebSocket clients on this machine use ws://127.0.0.1:PORT (any path) with the token from the file `owner-token` of
/// the data directory, as `Authorization: Bearer TOKEN` or as `?token=TOKEN`. stdin needs none.
///
/// It keeps its data beside that of `qd up`, so that both can run. Sessions, outcomes and versions survive a restart.
/// For clients on other machines, or a server that lives without stdin, use `qd up --pi-server-port`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd pi-server                                        stdio, and ws://127.0.0.1:3141
  qd pi-server --port 0                               stdio only
  echo '{\"type\":\"list_sessions\"}' | qd pi-server --port 0
  qd --data-dir ~/.local/share/qd/pi-server ls        its sessions, on the command line

docs/pi-server.md tells how it differs from the original.")]
pub(crate) struct PiServerArguments {
    /// The port for WebSocket clients on this machine; 0: none, auto: a free one [env: PI_SERVER_PORT] [default: 3141]
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
