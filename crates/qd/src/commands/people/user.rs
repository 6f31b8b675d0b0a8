//! `qd user`.

use std::io::{IsTerminal, Write};

use qd_link::rest::Method;
use qd_wire::people::{ChangePerson, NewPerson, People, Person, Role};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::Value;

use crate::arguments::UserCommand;
use crate::client::rest::{RestClient, escape};
use crate::clock;
use crate::error::{CliError, Result};
use crate::output::table::{TableRow, table};
use crate::output::{Output, ago, harmless};
use crate::settings::Settings;

const HEAD: [&str; 5] = ["NAME", "ROLE", "MADE", "LAST LOGIN", "STATE"];

/// Does what the arguments say.
pub(crate) async fn run(settings: &Settings, output: &Output, command: UserCommand) -> Result<()> {
    let rest = RestClient::of(settings)?;
    match command {
        UserCommand::Add { name, role } => {
            let person =
                NewPerson { username: name.clone(), password: read_password()?, role: parse_role(&role)? };
            rest.send::<Value>(Method::POST, "/api/people", &person).await?;
            report(output, &name, &format!("added {name}, {role}"))
        }
        UserCommand::List => list(&rest, output).await,
        UserCommand::Role { name, role } => {
            let change = ChangePerson { role: Some(parse_role(&role)?), ..ChangePerson::default() };
            change_person(&rest, output, &name, &change, &format!("is {role} now")).await
        }
        UserCommand::Passwd { name } => {
            let change = ChangePerson { password: Some(read_password()?), ..ChangePerson::default() };
            change_person(&rest, output, &name, &change, "has a new password; old logins are over").await
        }
        UserCommand::Disable { name } => {
            let change = ChangePerson { disabled: Some(true), ..ChangePerson::default() };
            change_person(&rest, output, &name, &change, "is disabled").await
        }
        UserCommand::Enable { name } => {
            let change = ChangePerson { disabled: Some(false), ..ChangePerson::default() };
            change_person(&rest, output, &name, &change, "is enabled").await
        }
        UserCommand::Remove { name } => {
            rest.delete(&format!("/api/people/{}", escape(&name))).await?;
            report(output, &name, &format!("removed {name}"))
        }
    }
}

async fn change_person(
    rest: &RestClient,
    output: &Output,
    name: &str,
    change: &ChangePerson,
    what: &str,
) -> Result<()> {
    rest.send::<Value>(Method::PATCH, &format!("/api/people/{}", escape(name)), change).await?;
    report(output, name, &format!("{name} {what}"))
}

fn report(output: &Output, name: &str, sentence: &str) -> Result<()> {
    output.report(&serde_json::json!({ "username": name }), sentence)
}

async fn list(rest: &RestClient, output: &Output) -> Result<()> {
    let People { people } = rest.get("/api/people").await?;
    let now = clock::now_ms();
    let row = |person: &Person| {
        TableRow::new(vec![
            harmless(&person.username),
            person.role.as_str().to_owned(),
            ago(now, person.created_at),
            ago(now, person.last_login_at),
            if person.disabled { "disabled".to_owned() } else { String::new() },
        ])
    };
    output.list(&people, "no accounts but the owner's; `qd user add NAME` creates one\n", |people| {
        table(&HEAD, people.iter().map(row), output.style)
    })
}

fn parse_role(role: &str) -> Result<Role> {
    Role::parse(role).ok_or_else(|| CliError::usage(format!("there is no role '{role}'")))
}

/// Asked for without being shown, or the first line of a pipe. Never an argument: those are seen by everybody.
fn read_password() -> Result<String> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let mut line = String::new();
        stdin.read_line(&mut line)?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let first = ask_hidden("password: ")?;
    if ask_hidden("again: ")? != first {
        return Err(CliError::usage("the two passwords differ").hint("type the same password twice"));
    }
    Ok(first)
}

/// The prompt goes to stderr, so that `--json` on stdout stays one line of JSON.
fn ask_hidden(prompt: &str) -> Result<String> {
    let mut error = std::io::stderr().lock();
    error.write_all(prompt.as_bytes())?;
    error.flush()?;
    let before = tcgetattr(rustix::stdio::stdin()).map_err(std::io::Error::from)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    // `Flush` drops what was typed before the echo was off: it was on the screen already.
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &hidden).map_err(std::io::Error::from)?;
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    // Before `read` is looked at: also after an error the terminal must show again what is typed.
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &before).map_err(std::io::Error::from)?;
    error.write_all(b"\n")?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
