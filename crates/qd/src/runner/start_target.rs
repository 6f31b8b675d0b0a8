//! Where a runner works: at the hub it has joined, or at a server of somebody else (`--protocol run`).
//!
//! The two do not mix in one data directory: what one server acknowledges leaves the spool, and the other would never
//! get it.

use std::path::Path;

use super::join::hostname;
use super::membership::{Membership, new_key};
use crate::arguments::{Protocol, StartArguments};
use crate::client::rest::server_url;
use crate::error::{CliError, Result};
use crate::private_files;
use crate::settings::Settings;

/// The place to work for, and the token of a host if that is a foreign server.
pub(super) fn start_target(
    settings: &Settings,
    arguments: &StartArguments,
) -> Result<(Membership, Option<String>)> {
    if arguments.protocol == Protocol::Hub {
        let is_unused = arguments.server.is_none() && arguments.host_token_file.is_none();
        if !is_unused || arguments.host_id.is_some() || arguments.allow_plain {
            return Err(CliError::usage(
                "--server, --host-id, --host-token-file and --allow-plain need --protocol run",
            )
            .hint("to run sessions for a hub, join it: qd runner join URL"));
        }
        return Ok((Membership::joined(&settings.data_dir)?, None));
    }
    // What the server acknowledges leaves the spool, whoever else waits for it.
    if Membership::read(&settings.data_dir)?.is_some() {
        let data_dir = settings.data_dir.display();
        return Err(CliError::usage(format!("{data_dir} belongs to a runner that has joined a hub"))
            .hint("use another directory for this runner, now and later: --data-dir DIR or QD_DATA_DIR"));
    }
    let (Some(server), Some(file)) = (&arguments.server, &arguments.host_token_file) else {
        return Err(CliError::usage("--protocol run needs --server and --host-token-file"));
    };
    let host_id = arguments.host_id.clone().unwrap_or_else(hostname);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if host_id.is_empty() || host_id.len() > 64 || !host_id.bytes().all(is_plain) {
        return Err(CliError::usage(format!("--host-id '{host_id}' is not valid"))
            .hint("use 1 to 64 letters, digits, '.', '_' and '-'"));
    }
    let membership = Membership {
        url: server_url(server)?.to_string(),
        runner_id: host_id,
        allow_plain: arguments.allow_plain,
        // A host of the run protocol does not join; the server knows it by its token from the first message on.
        joined: true,
        ..Membership::default()
    };
    Ok((membership, Some(token(file)?)))
}

/// The token in the file; a new one, if there is no file.
fn token(path: &Path) -> Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Err(CliError::failed(format!("{} is empty", path.display()))
            .hint("put the host's token into it, or remove it to get a new one")),
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let token = new_key()?;
            private_files::write_private(path, &token).map_err(|error| {
                CliError::cannot("write", path, &error).hint("use a file in a writable directory")
            })?;
            Ok(token)
        }
        Err(error) => Err(CliError::cannot("read", path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_kept_privately() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let made = token(&path).unwrap();
        assert_eq!((made.len(), token(&path).unwrap()), (43, made));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "\n").unwrap();
        assert!(token(&path).is_err());
    }
}
