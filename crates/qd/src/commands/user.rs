//! `qd user`.

use std::io::{IsTerminal, Write};

use qd_link::rest::Method;
use qd_wire::people::{ChangePerson, NewPerson, People, Person, Role};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::Value;

use super::audit::escaped;
use crate::arguments::UserCommand;
use crate::clock;
use crate::error::CliError;
use crate::output::{Output, age, harmless};
use crate::rest::{Refusal, Rest};
use crate::settings::Settings;
use crate::table::{Row, table};

const HEAD: [&str; 5] = ["NAME", "ROLE", "MADE", "LAST LOGIN", "STATE"];

/// Does what the arguments say.
pub(crate) async fn run(settings: &Settings, output: &Output, command: UserCommand) -> Result<(), CliError> {
    let rest = Rest::of(settings)?;
    match command {
        UserCommand::Add { name, role } => {
            let person = NewPerson { username: name.clone(), password: password()?, role: parsed(&role)? };
            let answer = rest.call::<Value>(Method::Post, "/api/people", Some(&person)).await?;
            answer.map_err(Refusal::into_error)?;
            said(output, &name, &format!("added {name}, {role}"))
        }
        UserCommand::List => list(&rest, output).await,
        UserCommand::Role { name, role } => {
            let change = ChangePerson { role: Some(parsed(&role)?), ..ChangePerson::default() };
            changed(&rest, output, &name, &change, &format!("{name} is {role} now")).await
        }
        UserCommand::Passwd { name } => {
            let change = ChangePerson { password: Some(password()?), ..ChangePerson::default() };
            changed(&rest, output, &name, &change, &format!("{name} has a new password; old logins are over"))
                .await
        }
        UserCommand::Disable { name } => {
            let change = ChangePerson { disabled: Some(true), ..ChangePerson::default() };
            changed(&rest, output, &name, &change, &format!("{name} is kept out")).await
        }
        UserCommand::Enable { name } => {
            let change = ChangePerson { disabled: Some(false), ..ChangePerson::default() };
            changed(&rest, output, &name, &change, &format!("{name} may come in again")).await
        }
        UserCommand::Remove { name } => {
            let path = format!("/api/people/{}", escaped(&name));
            let answer = rest.call::<Value>(Method::Delete, &path, None::<&Value>).await?;
            answer.map_err(Refusal::into_error)?;
            said(output, &name, &format!("removed {name}"))
        }
    }
}

async fn changed(
    rest: &Rest,
    output: &Output,
    name: &str,
    change: &ChangePerson,
    sentence: &str,
) -> Result<(), CliError> {
    let path = format!("/api/people/{}", escaped(name));
    let answer = rest.call::<Value>(Method::Patch, &path, Some(change)).await?;
    answer.map_err(Refusal::into_error)?;
    said(output, name, sentence)
}

fn said(output: &Output, name: &str, sentence: &str) -> Result<(), CliError> {
    if output.json {
        return output.json_line(&serde_json::json!({ "username": name }));
    }
    output.out(&format!("{}\n", harmless(sentence)))
}

async fn list(rest: &Rest, output: &Output) -> Result<(), CliError> {
    let answer = rest.call::<People>(Method::Get, "/api/people", None::<&Value>).await?;
    let People { people } = answer.map_err(Refusal::into_error)?;
    if output.json {
        return output.json_line(&people);
    }
    if people.is_empty() {
        output.note("nobody but the owner; `qd user add NAME` makes an account\n");
        return Ok(());
    }
    let now = clock::now_ms();
    let row = |person: &Person| {
        let ago = |then: i64| format!("{} ago", age(now, then));
        Row::new(vec![
            harmless(&person.username),
            person.role.as_str().to_owned(),
            ago(person.created_at),
            person.last_login_at.map_or_else(|| "never".to_owned(), ago),
            if person.disabled { "kept out".to_owned() } else { String::new() },
        ])
    };
    output.out(&table(&HEAD, &people.iter().map(row).collect::<Vec<_>>(), output.style))
}

fn parsed(role: &str) -> Result<Role, CliError> {
    Role::parse(role).ok_or_else(|| CliError::usage(format!("there is no role '{role}'")))
}

/// Asked for without being shown, or the first line of a pipe. Never an argument: those are seen by everybody.
fn password() -> Result<String, CliError> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let mut line = String::new();
        stdin.read_line(&mut line)?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let first = ask("password: ")?;
    if ask("again: ")? != first {
        return Err(CliError::usage("the two are not the same"));
    }
    Ok(first)
}

fn ask(prompt: &str) -> Result<String, CliError> {
    let mut error = std::io::stderr().lock();
    error.write_all(prompt.as_bytes())?;
    error.flush()?;
    let before = tcgetattr(rustix::stdio::stdin()).map_err(std::io::Error::from)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &hidden).map_err(std::io::Error::from)?;
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &before).map_err(std::io::Error::from)?;
    error.write_all(b"\n")?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
