//! `qd token`: access for others, each under a name of its own.

use qd_link::rest::Method;
use qd_wire::access::{AccessTokenInfo, AccessTokens, AddedAccessToken, NewAccessToken};
use qd_wire::command_table::Permission;
use serde_json::Value;

use crate::arguments::{NewToken, TokenCommand};
use crate::client::rest::RestClient;
use crate::clock;
use crate::error::{CliError, ErrorKind, Result};
use crate::output::table::{TableRow, table};
use crate::output::{Output, Style, age, ago, harmless};
use crate::settings::Settings;

const HEAD: [&str; 6] = ["NAME", "OF", "MAY", "MADE", "LAST USED", "ENDS"];
/// Characters that a path carries as they are; a name with others cannot exist.
const NAME_CHARACTERS: &str = "._-";

/// Adds, lists or revokes.
pub(crate) async fn run(settings: &Settings, output: &Output, command: TokenCommand) -> Result<()> {
    match command {
        TokenCommand::Add(new) => add(settings, output, new).await,
        TokenCommand::List => list(settings, output).await,
        TokenCommand::Revoke(name) => revoke(settings, output, &name.name).await,
    }
}

async fn add(settings: &Settings, output: &Output, new: NewToken) -> Result<()> {
    let rest = RestClient::of(settings)?;
    let scopes: Vec<Permission> = new.scope.iter().filter_map(|scope| Permission::parse(scope)).collect();
    let body = NewAccessToken {
        name: new.name.name,
        scopes: (!scopes.is_empty()).then_some(scopes),
        days: new.days,
    };
    let added: AddedAccessToken = rest.send(Method::POST, "/api/tokens", &body).await?;
    if output.json {
        return output.json_line(&added);
    }
    // The sentence goes to stderr and the token alone to stdout, so that a script can capture it.
    output.note(&harmless(&format!(
        "the token of {}; it is shown this once. Whoever has it can {}:\n",
        added.name,
        match new.scope.as_slice() {
            [] => "use every session, and so run commands as you".to_owned(),
            scopes => scopes.join(", "),
        }
    )));
    output.out(&format!("{}\n", harmless(&added.token)))
}

async fn list(settings: &Settings, output: &Output) -> Result<()> {
    let AccessTokens { tokens } = RestClient::of(settings)?.get("/api/tokens").await?;
    let none = "no tokens but the owner's; `qd token add NAME` creates one\n";
    output.list(&tokens, none, |tokens| text(tokens, clock::now_ms(), output.style))
}

async fn revoke(settings: &Settings, output: &Output, name: &str) -> Result<()> {
    if name.is_empty() || !name.chars().all(|it| it.is_ascii_alphanumeric() || NAME_CHARACTERS.contains(it)) {
        return Err(CliError::usage(format!("'{name}' is not a valid token name"))
            .hint("`qd token list` shows the names"));
    }
    let path = format!("/api/tokens/{name}");
    let answer = RestClient::of(settings)?.call::<Value>(Method::DELETE, &path, None::<&Value>).await?;
    let answer = answer.map_err(|refusal| match refusal.status {
        404 => CliError {
            kind: refusal.code.map_or(ErrorKind::Failed, ErrorKind::Coded),
            message: format!("there is no token called '{name}'"),
            hint: Some("`qd token list` shows the names".to_owned()),
        },
        _ => refusal.into_error(),
    })?;
    output.report(&answer, &format!("revoked {name}; its connections are closed"))
}

fn text(tokens: &[AccessTokenInfo], now_ms: i64, style: Style) -> String {
    let row = |token: &AccessTokenInfo| {
        let (made, used) = (ago(now_ms, token.created_at), ago(now_ms, token.last_used_at));
        let may = token.scopes.as_ref().map_or_else(
            || "all but manage".to_owned(),
            |scopes| scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(","),
        );
        let ends = token.expires_at.map_or_else(
            || "never".to_owned(),
            |end| if end <= now_ms { "is over".to_owned() } else { format!("in {}", age(end, now_ms)) },
        );
        let owner = harmless(token.owner.as_deref().unwrap_or("owner"));
        TableRow::new(vec![harmless(&token.name), owner, may, made, used, ends])
    };
    table(&HEAD, tokens.iter().map(row), style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stand_in_a_table() {
        let token = |name: &str, last_used_at| AccessTokenInfo {
            name: name.into(),
            created_at: 0,
            last_used_at,
            owner: None,
            scopes: None,
            expires_at: None,
        };
        let tokens = [token("ci", None), token("phone", Some(50_000))];
        insta::assert_snapshot!(text(&tokens, 60_000, Style::PLAIN));
    }
}
