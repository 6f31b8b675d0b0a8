//! Whether the server encrypts, and with which certificate.
//!
//! Without encryption anybody on the way could read the token and run programs here. So an address that others can
//! reach is encrypted unless the person says otherwise in so many words.

use std::net::SocketAddr;

use qd_hub::{HubTls, tls};

use crate::error::{CliError, Result};
use crate::runner::{address_of_this_machine, hostname};
use crate::settings::{Settings, Tls};

/// Whether to encrypt; an address that others can reach needs it, or a word from the person.
pub(super) fn is_wanted(settings: &Settings, address: SocketAddr, insecure_bind: bool) -> Result<bool> {
    let has_files = settings.tls_files.is_some();
    let is_open = !address.ip().is_loopback();
    match settings.tls {
        Tls::On if insecure_bind => Err(CliError::usage("--insecure-bind disables encryption, but tls is on")
            .hint("use only one of the two")),
        Tls::On => Ok(true),
        Tls::Off if has_files => Err(CliError::usage("tls is off, but tls_cert and tls_key are set")
            .hint("turn tls on, or remove the certificate")),
        Tls::Off if is_open && !insecure_bind => Err(CliError::usage(format!(
            "{address} can be reached by other machines, and tls is off"
        ))
        .hint(
            "leave tls on, or listen on 127.0.0.1 and use a tunnel (ssh -L), or accept that everybody on the way \
             reads the token with --insecure-bind",
        )),
        Tls::Off => Ok(false),
        Tls::Auto if insecure_bind && has_files => {
            Err(CliError::usage("--insecure-bind disables encryption, but a certificate is given")
                .hint("use only one of the two"))
        }
        // Loopback traffic does not leave this machine, and a self-signed certificate would only make browsers warn.
        Tls::Auto => Ok(has_files || (is_open && !insecure_bind)),
    }
}

/// The certificate of the settings, or a self-signed one that is made at the first start.
pub(super) fn certificate(settings: &Settings, address: SocketAddr) -> Result<HubTls> {
    let made = match &settings.tls_files {
        Some((certificate, key)) => tls::load(certificate, key),
        None => tls::self_signed(&settings.data_dir.join("tls"), &names(settings, address)),
    };
    made.map_err(|error| CliError::failed(error.to_string()))
}

/// The names under which others reach a server on this address.
pub(super) fn names(settings: &Settings, address: SocketAddr) -> Vec<String> {
    let mut names = settings.allowed_hosts.0.clone();
    let address = match address.ip().is_unspecified() {
        true => address_of_this_machine(),
        false => Some(address.ip()),
    };
    // A bare address cannot be a name made to point here, and our own name is not in others' hands.
    names.extend(address.map(|address| address.to_string()));
    let hostname = hostname();
    let fits = |character: char| character.is_ascii_alphanumeric() || "-.".contains(character);
    if !hostname.is_empty() && hostname.chars().all(fits) {
        names.push(hostname);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Flags, UpFlags, test_settings};

    fn wanted(listen: &str, tls: &str, insecure_bind: bool, files: bool) -> Result<bool> {
        let file = |name: &str| files.then(|| name.into());
        let up = UpFlags {
            tls: Some(tls.parse().unwrap()),
            tls_cert: file("/c"),
            tls_key: file("/k"),
            ..UpFlags::default()
        };
        let settings = test_settings(Flags { up, ..Flags::default() });
        is_wanted(&settings, listen.parse().unwrap(), insecure_bind)
    }

    #[test]
    fn others_reach_nothing_unencrypted_without_a_word() {
        let cases = [
            ("127.0.0.1:0", "auto", false, false, Ok(false)),
            ("[::1]:0", "auto", false, false, Ok(false)),
            ("127.0.0.1:0", "auto", false, true, Ok(true)),
            ("127.0.0.1:0", "on", false, false, Ok(true)),
            ("0.0.0.0:0", "auto", false, false, Ok(true)),
            ("0.0.0.0:0", "auto", true, false, Ok(false)),
            ("0.0.0.0:0", "off", true, false, Ok(false)),
            ("127.0.0.1:0", "off", false, false, Ok(false)),
            ("0.0.0.0:0", "off", false, false, Err(())),
            ("0.0.0.0:0", "on", true, false, Err(())),
            ("0.0.0.0:0", "auto", true, true, Err(())),
            ("0.0.0.0:0", "off", true, true, Err(())),
        ];
        for (listen, tls, insecure_bind, files, expected) in cases {
            let wanted = wanted(listen, tls, insecure_bind, files);
            assert_eq!(wanted.map_err(|_| ()), expected, "{listen} {tls} {insecure_bind} {files}");
        }
        let refused = wanted("0.0.0.0:0", "off", false, false).unwrap_err();
        assert!(refused.hint.unwrap().contains("--insecure-bind"));
    }
}
