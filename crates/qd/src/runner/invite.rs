//! `qd runner invite`.
//!
//! Where the hub encrypts, the code carries the fingerprint of its certificate beside the secret.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use qd_link::rest::Method;
use qd_link::url::ServerUrl;
use qd_wire::fleet::Invite;

use crate::arguments::InviteArguments;
use crate::client::rest::{RestClient, server_url};
use crate::clock;
use crate::error::{CliError, Result};
use crate::output::{Output, duration, harmless};
use crate::server::endpoint::Endpoint;
use crate::settings::Settings;

/// Makes a code and prints what to type on the other machine.
pub(super) async fn run(settings: &Settings, output: &Output, arguments: &InviteArguments) -> Result<()> {
    let rest = RestClient::of(settings)?;
    let mut invite: Invite = rest.send(Method::POST, "/api/runners/invites", &serde_json::json!({})).await?;
    let (url, warning) = match &arguments.at {
        Some(typed) => (named(typed, &invite.url)?, None),
        None => reachable(settings, &invite.url),
    };
    invite.command = command(&url, &invite.code);
    invite.url = url;
    if let Some(warning) = warning {
        output.note(warning);
    }
    if output.json {
        return output.json_line(&invite);
    }
    let life = u64::try_from(invite.expires_at - clock::now_ms()).unwrap_or(0);
    let fingerprint = invite.fingerprint.as_deref().unwrap_or("none: this hub does not encrypt");
    output.out(&harmless(&format!(
        "On the other machine, type:\n\n  {}\n\n\
         code         {}\n\
         good for     {}, once\n\
         certificate  {fingerprint}\n",
        invite.command,
        invite.code,
        duration(life.next_multiple_of(1000)),
    )))
}

/// The address a person has named, with the scheme and the port of the hub where they left them out.
fn named(typed: &str, hub: &str) -> Result<String> {
    let Ok(ServerUrl::Network { port: hub_port, is_tls: hub_is_tls, .. }) = ServerUrl::parse(hub) else {
        return Ok(server_url(typed)?.to_string());
    };
    if typed.contains("://") {
        let url = server_url(typed)?;
        if hub_is_tls && !url.is_tls() {
            return Err(CliError::usage(format!("this hub uses TLS, but {url} does not"))
                .hint(format!("use https://{}", url.address())));
        }
        return Ok(url.to_string());
    }
    let scheme = if hub_is_tls { "https" } else { "http" };
    let has_port = typed.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let address = if has_port { typed.to_owned() } else { format!("{typed}:{hub_port}") };
    Ok(server_url(&format!("{scheme}://{address}"))?.to_string())
}

/// What to type on the other machine.
fn command(url: &str, code: &str) -> String {
    let plain = ServerUrl::parse(url).is_ok_and(|url| !url.is_tls() && !url.is_loopback());
    format!("qd runner join {url} --code {code}{}", if plain { " --allow-plain" } else { "" })
}

/// The hub's address as another machine sees it, as well as this one can tell, and what to say about it.
fn reachable(settings: &Settings, url: &str) -> (String, Option<&'static str>) {
    let as_asked = |warning| (url.to_owned(), warning);
    let Ok(ServerUrl::Network { host, port, is_tls }) = ServerUrl::parse(url) else { return as_asked(None) };
    if !host.parse::<IpAddr>().map_or(host == "localhost", |address| address.is_loopback()) {
        return as_asked(None);
    }
    // With a URL in the settings the hub may be on another machine, and this machine's address would be wrong.
    let endpoint = Endpoint::read(&settings.data_dir).filter(|_| settings.url.is_none());
    let listen = endpoint.and_then(|endpoint| endpoint.listen?.parse::<SocketAddr>().ok());
    match listen.filter(|listen| listen.ip().is_unspecified()).and_then(|_| address_of_this_machine()) {
        Some(host) => {
            let url = ServerUrl::Network { host: host.to_string(), port, is_tls };
            (url.to_string(), None)
        }
        None => as_asked(Some(
            "note: only this machine reaches the hub at this address; for others start it with \
             `qd up --listen 0.0.0.0:7433`, or name the right address with --at\n",
        )),
    }
}

/// The address this machine uses towards others; nothing is sent to find it.
pub(crate) fn address_of_this_machine() -> Option<IpAddr> {
    // Addresses kept for documentation: a route to them is the route to anywhere.
    let towards: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    towards.into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind((from, 0)).ok()?;
        // Connecting a UDP socket only chooses a route and a source address.
        socket.connect((to, 9)).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_unspecified() && !address.is_loopback()).then_some(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_address_is_that_of_the_hub() {
        let named = |typed: &str| named(typed, "https://127.0.0.1:7433");
        assert_eq!(named("deck.lan").unwrap(), "https://deck.lan:7433");
        assert_eq!(named("deck.lan:9").unwrap(), "https://deck.lan:9");
        assert_eq!(named("https://deck.lan:8").unwrap(), "https://deck.lan:8");
        assert!(named("http://deck.lan:8").unwrap_err().hint.unwrap().contains("https://deck.lan:8"));
    }

    #[test]
    fn the_command_can_be_typed_as_it_is() {
        assert_eq!(
            command("https://10.0.0.5:7433", "abc.ff"),
            "qd runner join https://10.0.0.5:7433 --code abc.ff"
        );
        assert_eq!(command("http://127.0.0.1:1", "-x"), "qd runner join http://127.0.0.1:1 --code -x");
        assert!(command("http://10.0.0.5:1", "abc").ends_with(" --allow-plain"));
    }
}
