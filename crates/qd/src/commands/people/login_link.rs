//! `qd login-link`.

use qd_link::rest::Method;
use qd_wire::rest::LoginLink;
use serde_json::json;

use crate::client::rest::RestClient;
use crate::clock;
use crate::error::Result;
use crate::output::{Output, harmless};
use crate::settings::Settings;

const MINUTE_MS: i64 = 60_000;

/// Prints a link that signs one browser in, once.
pub(crate) async fn run(settings: &Settings, output: &Output) -> Result<()> {
    let rest = RestClient::of(settings)?;
    let link: LoginLink = rest.send(Method::POST, "/api/logins/links", &json!({})).await?;
    if output.json {
        return output.json_line(&link);
    }
    let minutes = ((link.expires_at - clock::now_ms()) / MINUTE_MS).max(1);
    output.note(&format!(
        "Open this link in the browser you want to sign in. It works once, within {minutes} minutes:\n"
    ));
    output.out(&format!("{}\n", harmless(&link.url)))
}
