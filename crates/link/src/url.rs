//! Addresses of servers, read the same way everywhere.
//!
//! Whether an address is encrypted and whether it is loopback decide what may be sent to it, so there is one reading
//! of addresses for all who ask.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// The ports that a browser would take for the same address.
const PORT_PLAIN: u16 = 80;
const PORT_TLS: u16 = 443;

/// Where a hub, or a runner's own socket, is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerUrl {
    /// `http`, `https`, `ws`, `wss`. An IPv6 host is kept without its brackets.
    Network { host: String, port: u16, is_tls: bool },
    /// `unix:/path`: a runner's socket.
    Unix(PathBuf),
}

/// The text is no address of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{url}' is not a server address: {reason}")]
pub struct BadUrl {
    pub url: String,
    pub reason: &'static str,
}

impl ServerUrl {
    /// Reads an address; a missing scheme means `ws`, and what follows the host is not looked at.
    pub fn parse(url: &str) -> Result<ServerUrl, BadUrl> {
        let bad = |reason| BadUrl { url: url.to_owned(), reason };
        if let Some(path) = url.strip_prefix("unix:") {
            // `unix:///path` is what people write who know `file:///path`.
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') {
                return Err(bad("a socket needs its whole path: unix:/path"));
            }
            return Ok(ServerUrl::Unix(PathBuf::from(path)));
        }
        let (scheme, rest) = url.split_once("://").unwrap_or(("ws", url));
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "ws" | "http" => false,
            "wss" | "https" => true,
            _ => return Err(bad("it must begin with http://, https://, ws://, wss:// or unix:")),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // Addresses end up in logs, process lists and error messages; a token must not.
        if authority.contains('@') {
            return Err(bad("it must not carry a user name; give the token separately"));
        }
        let (host, port) = split_port(authority).map_err(bad)?;
        // The host is written into the `Host` header, so nothing may be in it that could end the line or the field.
        let usable = |byte: u8| byte.is_ascii_graphic() && !b"[]<>\"\\^`{|}%".contains(&byte);
        if host.is_empty() || !host.bytes().all(usable) {
            return Err(bad("it names no host"));
        }
        let port = port.unwrap_or(if is_tls { PORT_TLS } else { PORT_PLAIN });
        Ok(ServerUrl::Network { host: host.to_owned(), port, is_tls })
    }

    /// Whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, ServerUrl::Network { is_tls: true, .. })
    }

    /// Whether what is sent there stays on this machine.
    pub fn is_loopback(&self) -> bool {
        match self {
            ServerUrl::Network { host, .. } => {
                host.eq_ignore_ascii_case("localhost")
                    || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            ServerUrl::Unix(_) => true,
        }
    }

    /// The name to verify a certificate against; empty for a socket.
    pub fn host(&self) -> &str {
        match self {
            ServerUrl::Network { host, .. } => host,
            ServerUrl::Unix(_) => "",
        }
    }

    /// `host:port`, as `Dial` and the `Host` header want it; the path of a socket.
    pub fn address(&self) -> String {
        match self {
            ServerUrl::Network { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            ServerUrl::Network { host, port, .. } => format!("{host}:{port}"),
            ServerUrl::Unix(path) => path.display().to_string(),
        }
    }

    /// The `ws://` or `wss://` address of a path on this server; `None` for a socket, which has no paths.
    pub fn websocket(&self, path: &str) -> Option<String> {
        match self {
            ServerUrl::Network { is_tls, .. } => {
                Some(format!("{}://{}{path}", if *is_tls { "wss" } else { "ws" }, self.address()))
            }
            ServerUrl::Unix(_) => None,
        }
    }
}

/// The address as people type it.
impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self {
            ServerUrl::Network { is_tls: true, .. } => "https://",
            ServerUrl::Network { is_tls: false, .. } => "http://",
            ServerUrl::Unix(_) => "unix:",
        };
        write!(formatter, "{scheme}{}", self.address())
    }
}

impl std::str::FromStr for ServerUrl {
    type Err = BadUrl;

    fn from_str(url: &str) -> Result<ServerUrl, BadUrl> {
        ServerUrl::parse(url)
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    let port_of = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        Ok(_) | Err(_) => Err("its port is not a number from 1 to 65535"),
    };
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or("it names no host")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err("what stands in brackets is not an IPv6 address");
        }
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, port_of(port)?)),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("it names no host"),
        };
    }
    // `::1:8080` could be an address alone or one with a port; brackets are required instead of guessing.
    match authority.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => Err("an IPv6 address must stand in brackets"),
        Some((host, port)) => Ok((host, port_of(port)?)),
        None => Ok((authority, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_urls() {
        let cases = [
            ("http://127.0.0.1:7433", Some("127.0.0.1:7433")),
            ("ws://localhost:1/ws/mux?x=y", Some("localhost:1")),
            ("127.0.0.1:9/#code", Some("127.0.0.1:9")),
            ("http://[::1]:5/", Some("[::1]:5")),
            ("http://host", Some("host:80")),
            ("http://[::1]", Some("[::1]:80")),
            ("https://host", Some("host:443")),
            ("WSS://host/x", Some("host:443")),
            ("https://host:8443/", Some("host:8443")),
            ("unix:/run/user/1/qd-runner.sock", Some("/run/user/1/qd-runner.sock")),
            ("unix:///tmp/a", Some("/tmp/a")),
            ("unix:relative", None),
            ("ftp://host", None),
            ("http://", None),
            ("http://user@host", None),
            ("http://host:0", None),
            ("http://host:port", None),
            ("http://ho st", None),
            ("http://ho\r\nst", None),
            ("http://::1", None),
            ("http://[nonsense]:1", None),
        ];
        for (url, expected) in cases {
            assert_eq!(ServerUrl::parse(url).ok().map(|url| url.address()).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_can_be_read_again() {
        for url in ["https://host:443", "http://[::1]:80", "unix:/tmp/a"] {
            assert_eq!(ServerUrl::parse(url).unwrap().to_string(), url);
        }
        let secure = ServerUrl::parse("https://[::1]").unwrap();
        assert_eq!(secure.websocket("/ws/mux").as_deref(), Some("wss://[::1]:443/ws/mux"));
        assert_eq!((secure.is_tls(), secure.host()), (true, "::1"));
        assert_eq!(ServerUrl::parse("unix:/tmp/a").unwrap().websocket("/x"), None);
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let cases = [
            ("ws://localhost:1", true),
            ("ws://127.9.9.9", true),
            ("ws://[::1]", true),
            ("unix:/tmp/a", true),
            ("ws://localhost.example.org", false),
            ("ws://127.0.0.1.example.org", false),
            ("ws://10.0.0.1", false),
            ("ws://0.0.0.0", false),
        ];
        for (url, expected) in cases {
            assert_eq!(ServerUrl::parse(url).unwrap().is_loopback(), expected, "{url}");
        }
    }
}
