//! `qd hosts`.

use qd_link::rest::Method;
use qd_wire::people::{
    AddedForeignHost, ConfirmForeignHost, ForeignHost, ForeignHosts, HostTrust, NewForeignHost,
};
use serde_json::{Value, json};

use crate::arguments::HostsCommand;
use crate::client::rest::{RestClient, escape};
use crate::clock;
use crate::error::{CliError, Result};
use crate::output::table::{TableRow, table};
use crate::output::{Output, ago, harmless};
use crate::settings::Settings;

const HEAD: [&str; 6] = ["HOST", "STATE", "FINGERPRINT", "FIRST SEEN", "LAST SEEN", "FROM"];

const NO_HOSTS: &str =
    "no machines of the run protocol; `qd hosts add` adds one. Runners of Quarterdeck: `qd runner list`\n";

/// Does what the arguments say.
pub(crate) async fn run(settings: &Settings, output: &Output, command: Option<HostsCommand>) -> Result<()> {
    let rest = RestClient::of(settings)?;
    match command.unwrap_or(HostsCommand::List) {
        HostsCommand::List => list(&rest, output).await,
        HostsCommand::Confirm { host, fingerprint } => {
            let fingerprint = match fingerprint {
                Some(fingerprint) => fingerprint,
                None => return Err(unnamed(&rest, &host).await?),
            };
            let path = format!("/api/hosts/{}/confirm", escape(&host));
            rest.send::<Value>(Method::POST, &path, &ConfirmForeignHost { fingerprint }).await?;
            output.report(&json!({ "host_id": host }), &format!("confirmed {host}"))
        }
        HostsCommand::Remove { host } => {
            rest.delete(&format!("/api/hosts/{}", escape(&host))).await?;
            output.report(&json!({ "host_id": host }), &format!("removed {host}"))
        }
        HostsCommand::Add { host } => {
            let new = NewForeignHost { host_id: host };
            let added: AddedForeignHost = rest.send(Method::POST, "/api/hosts", &new).await?;
            if output.json {
                return output.json_line(&added);
            }
            output.note("configure the machine's daemon with these; the token is shown only once:\n");
            let (id, token) = (harmless(&added.host_id), added.host_token);
            output.out(&format!("host_id     {id}\nhost_token  {token}\n"))
        }
    }
}

/// Tells which token is waiting. It is not confirmed by its name alone: whoever came first has the name.
async fn unnamed(rest: &RestClient, host: &str) -> Result<CliError> {
    let ForeignHosts { hosts } = rest.get("/api/hosts").await?;
    let known = hosts.into_iter().find(|known| known.host_id == host);
    let Some(fingerprint) = known.and_then(|known| known.fingerprint) else {
        return Ok(CliError::failed(format!("no machine {} has come", harmless(host)))
            .hint("`qd hosts` lists those that have"));
    };
    let (host, fingerprint) = (harmless(host), harmless(&fingerprint));
    Ok(CliError::usage(format!(
        "the token of {host} has the fingerprint {fingerprint}; compare it on the machine"
    ))
    .hint(format!(
        "`printf %s TOKEN | sha256sum` there begins with it; then: qd hosts confirm {host} {fingerprint}"
    )))
}

async fn list(rest: &RestClient, output: &Output) -> Result<()> {
    let ForeignHosts { hosts } = rest.get("/api/hosts").await?;
    let now = clock::now_ms();
    output.list(&hosts, NO_HOSTS, |hosts| table(&HEAD, hosts.iter().map(|host| row(host, now)), output.style))
}

fn row(host: &ForeignHost, now: i64) -> TableRow {
    let state = match (host.state, host.online) {
        (HostTrust::Pending, _) => "waiting: qd hosts confirm",
        (HostTrust::Trusted, true) => "online",
        (HostTrust::Trusted, false) => "offline",
        (HostTrust::Revoked, _) => "removed",
    };
    let mut row = TableRow::new(vec![
        harmless(&host.host_id),
        state.to_owned(),
        harmless(host.fingerprint.as_deref().unwrap_or_default()),
        ago(now, host.first_seen_at),
        ago(now, host.last_seen_at),
        harmless(host.address.as_deref().unwrap_or_default()),
    ]);
    // A host that waits for a person must not be overlooked in a long list.
    row.is_marked = host.state == HostTrust::Pending;
    row
}
