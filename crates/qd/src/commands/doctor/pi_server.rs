//! The pi-server protocol: where it would be served, and whether it is open to everybody.

use std::net::{Ipv4Addr, TcpListener};

use super::Check;
use crate::settings::Settings;

const NAME: &str = "pi-server";
/// Where `qd pi-server` listens unless told otherwise.
const PORT: u16 = 3141;

/// Looks at the settings and at the usual port; a server that runs has it, so that is no failure.
pub(super) fn ports(settings: &Settings) -> Check {
    if settings.pi.insecure_no_auth {
        return Check::warning(
            NAME,
            "insecure_no_auth is on: every program of this machine gets a shell through it",
            "leave it out and give each client a token: qd token add NAME",
        );
    }
    let own = match settings.pi_server_port {
        Some(port) => format!("`qd up` serves it on port {port} and at /ws/pi"),
        None => "`qd up` serves it at /ws/pi".to_owned(),
    };
    match TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)) {
        Ok(_) => Check::ok(NAME, format!("{own}; port {PORT} is free for `qd pi-server`")),
        Err(error) => Check::ok(
            NAME,
            format!("{own}; port {PORT} is taken ({error}), so `qd pi-server` needs another --port"),
        ),
    }
}
