//! The runner: the hub it has joined, whether it is reached and trusted, and the socket for local commands.

use std::os::unix::fs::PermissionsExt;

use qd_link::net::TcpDial;
use qd_link::rest::{self, Method, RestError};
use qd_wire::ErrorCode;

use super::Check;
use crate::client::connection;
use crate::client::rest::server_url;
use crate::runner::{LinkState, Membership};
use crate::settings::Settings;

/// Which hub this machine has joined.
pub(super) fn membership(settings: &Settings) -> Check {
    const NAME: &str = "runner";
    let path = Membership::path(&settings.data_dir);
    match Membership::read(&settings.data_dir) {
        Ok(None) => Check::ok(NAME, "this machine has not joined another hub"),
        Ok(Some(membership)) if !membership.joined => Check::warning(
            NAME,
            format!("joining {} was started but never confirmed", membership.url),
            format!("run again: qd runner join {}", membership.url),
        ),
        Ok(Some(Membership { url, runner_id, attempt: Some(attempt), .. })) => Check::warning(
            NAME,
            format!("'{runner_id}' of {url}; joining {} was started but never confirmed", attempt.url),
            format!("to change over, repeat: qd runner join {} --force", attempt.url),
        ),
        Ok(Some(membership)) => {
            let mode = std::fs::metadata(&path).map_or(0, |metadata| metadata.permissions().mode() & 0o777);
            let found = format!("'{}' of {}", membership.runner_id, membership.url);
            match mode & 0o077 {
                0 => Check::ok(NAME, found),
                // Whoever reads the key can act as this runner, so a key that was readable has to be changed.
                _ => Check::failed(
                    NAME,
                    format!("{found}; other users may read its key"),
                    format!(
                        "chmod 600 {}, then on the hub: qd runner rotate {}",
                        path.display(),
                        membership.runner_id
                    ),
                ),
            }
        }
        Err(error) => Check::failed(NAME, error.message, error.hint.unwrap_or_default()),
    }
}

/// Whether the hub this machine has joined answers, and shows the right certificate.
pub(super) async fn hub(settings: &Settings) -> Option<Check> {
    const NAME: &str = "hub";
    let membership = Membership::read(&settings.data_dir).ok().flatten()?;
    let link = LinkState::read(&settings.data_dir);
    // Only the running runner learns that it was revoked: `/healthz` answers everybody.
    let revoked = link.filter(|link| link.failure_code == Some(ErrorCode::RunnerRevoked));
    if let Some(reason) = revoked.and_then(|link| link.last_failure) {
        return Some(Check::failed(
            NAME,
            format!("{} has revoked this runner: {reason}", membership.url),
            format!("`qd runner invite` there makes a code, then here: {}", membership.rejoin_command()),
        ));
    }
    let (url, trust) =
        match (server_url(&membership.url), connection::trust(membership.fingerprint.as_deref())) {
            (Ok(url), Ok(trust)) => (url, trust),
            (Err(error), _) | (_, Err(error)) => {
                return Some(Check::failed(NAME, error.message, "join again: qd runner join URL --force"));
            }
        };
    let answer = rest::call(&url, &trust, &TcpDial, Method::GET, "/healthz", None, None).await;
    Some(match answer {
        // Any answer will do, since only the way to the hub is tested here.
        Ok((_, _)) if !url.is_tls() => Check::ok(NAME, format!("{url} answers, without encryption")),
        Ok((_, _)) if membership.fingerprint.is_some() => {
            Check::ok(NAME, format!("{url} answers, with the certificate that was joined"))
        }
        Ok((_, _)) => Check::ok(NAME, format!("{url} answers, with a certificate the system trusts")),
        Err(error @ RestError::Untrusted { .. }) => Check::failed(
            NAME,
            error.to_string(),
            format!("if the hub has a new certificate, join again: {}", membership.rejoin_command()),
        ),
        Err(error) => Check::warning(
            NAME,
            error.to_string(),
            "sessions keep running without it; check that the hub is running and the network is up",
        ),
    })
}

/// Whether a runner listens for local commands.
pub(super) async fn socket(settings: &Settings) -> Check {
    const NAME: &str = "socket";
    let places: Vec<String> = settings.runner_sockets.iter().map(|path| path.display().to_string()).collect();
    if places.is_empty() {
        return Check::ok(NAME, "off: local commands need the hub");
    }
    match connection::connect_local(settings).await {
        Ok(Some(connection)) => Check::ok(
            NAME,
            format!("a runner answers at {}", connection.options.url.trim_start_matches("unix:")),
        ),
        Ok(None) if connection::is_runner(settings) => Check::warning(
            NAME,
            format!("the runner of this machine is not running: nothing listens on {}", places.join(" or ")),
            "start it: qd runner start",
        ),
        Ok(None) => Check::ok(NAME, format!("no runner listens on {}", places.join(" or "))),
        Err(error) => Check::warning(
            NAME,
            error.message,
            "it may belong to another user; use your own with --runner-socket",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::Health;
    use crate::settings::{Flags, test_settings};

    fn settings(data_dir: &std::path::Path) -> Settings {
        Settings { data_dir: data_dir.to_owned(), ..test_settings(Flags::default()) }
    }

    #[tokio::test]
    async fn a_key_that_others_can_read_is_an_essential_trouble() {
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(directory.path());
        assert_eq!(membership(&settings).health, Health::Ok);
        assert_eq!(hub(&settings).await, None);
        let path = Membership::path(directory.path());
        let text = r#"{"url":"http://127.0.0.1:1","runner_id":"desk","key":"k","joined":true}"#;
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(membership(&settings).health, Health::Ok);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let open = membership(&settings);
        assert_eq!(open.health, Health::Failed);
        assert!(open.advice.unwrap().contains("qd runner rotate desk"));
        assert_eq!(hub(&settings).await.unwrap().health, Health::Warning, "nothing listens on port 1");
    }
}
