//! `qd hosts`.

use qd_link::rest::Method;
use qd_wire::people::{AddedForeignHost, ForeignHost, ForeignHosts, HostTrust, NewForeignHost};
use serde_json::{Value, json};

use super::audit::escaped;
use crate::arguments::HostsCommand;
use crate::clock;
use crate::error::CliError;
use crate::output::{Output, age, harmless};
use crate::rest::{Refusal, Rest};
use crate::settings::Settings;
use crate::table::{Row, table};

const HEAD: [&str; 5] = ["HOST", "STATE", "FIRST SEEN", "LAST SEEN", "FROM"];

/// Does what the arguments say.
pub(crate) async fn run(
    settings: &Settings,
    output: &Output,
    command: Option<HostsCommand>,
) -> Result<(), CliError> {
    let rest = Rest::of(settings)?;
    match command.unwrap_or(HostsCommand::List) {
        HostsCommand::List => list(&rest, output).await,
        HostsCommand::Confirm { host } => {
            let path = format!("/api/hosts/{}/confirm", escaped(&host));
            said(rest.call::<Value>(Method::Post, &path, Some(&json!({}))).await?, output, &host, "is let in")
        }
        HostsCommand::Remove { host } => {
            let path = format!("/api/hosts/{}", escaped(&host));
            said(
                rest.call::<Value>(Method::Delete, &path, None::<&Value>).await?,
                output,
                &host,
                "is kept out",
            )
        }
        HostsCommand::Add { host } => {
            let new = NewForeignHost { host_id: host };
            let answer = rest.call::<AddedForeignHost>(Method::Post, "/api/hosts", Some(&new)).await?;
            let added = answer.map_err(Refusal::into_error)?;
            if output.json {
                return output.json_line(&added);
            }
            output.note("configure the machine's daemon with these; the token is shown this once:\n");
            output.out(&format!(
                "host_id     {}\nhost_token  {}\n",
                harmless(&added.host_id),
                added.host_token
            ))
        }
    }
}

fn said(answer: Result<Value, Refusal>, output: &Output, host: &str, what: &str) -> Result<(), CliError> {
    answer.map_err(Refusal::into_error)?;
    if output.json {
        return output.json_line(&json!({ "host_id": host }));
    }
    output.out(&format!("{} {what}\n", harmless(host)))
}

async fn list(rest: &Rest, output: &Output) -> Result<(), CliError> {
    let answer = rest.call::<ForeignHosts>(Method::Get, "/api/hosts", None::<&Value>).await?;
    let ForeignHosts { hosts } = answer.map_err(Refusal::into_error)?;
    if output.json {
        return output.json_line(&hosts);
    }
    if hosts.is_empty() {
        output.note("no machines of the run protocol; `qd hosts add` lets one in. Runners of Quarterdeck: `qd runner list`\n");
        return Ok(());
    }
    let now = clock::now_ms();
    output.out(&table(&HEAD, &hosts.iter().map(|host| row(host, now)).collect::<Vec<_>>(), output.style))
}

fn row(host: &ForeignHost, now: i64) -> Row {
    let state = match (host.state, host.online) {
        (HostTrust::Pending, _) => "waits: qd hosts confirm",
        (HostTrust::Trusted, true) => "online",
        (HostTrust::Trusted, false) => "away",
        (HostTrust::Revoked, _) => "kept out",
    };
    let ago = |then: i64| format!("{} ago", age(now, then));
    let mut row = Row::new(vec![
        harmless(&host.host_id),
        state.to_owned(),
        ago(host.first_seen_at),
        host.last_seen_at.map_or_else(|| "never".to_owned(), ago),
        harmless(host.address.as_deref().unwrap_or_default()),
    ]);
    row.is_marked = host.state == HostTrust::Pending;
    row
}
