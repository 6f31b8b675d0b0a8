//! People: who is here, who may be, and what changes when that does.
//!
//! Whatever takes something away from a person is stored first and then closes what that person has open, so that no
//! connection outlives its right.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json};
use http::{HeaderMap, StatusCode};
use qd_link::clock::now_ms;
use qd_store::{PEOPLE_MAX, PersonChange, PersonRow, PersonStored};
use qd_wire::command_table::Permission;
use qd_wire::people::{ChangePerson, Me, NewPerson, People, Person};
use qd_wire::{CodedError, ErrorCode};
use serde_json::{Value, json};

use crate::access::authenticate::{check_principal_name, role_of};
use crate::access::login::{
    self, HashError, LoginAttempt, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN, browser_token,
};
use crate::access::principals::Principal;
use crate::rest::request::{Caller, Manager, RestError, RestResult, read_json};
use crate::server::Server;
use crate::server::listen::Peer;

const NO_PERSON: &str = "There is no person of this name; see 'qd user list'";

/// `GET /api/me`
pub(crate) async fn me(Caller(principal): Caller) -> Json<Me> {
    Json(Me {
        name: principal.name.to_string(),
        role: principal.role,
        permissions: principal.permissions.iter().collect(),
        access: principal.access.as_str().to_owned(),
    })
}

/// `GET /api/people`
pub(crate) async fn list(State(server): State<Server>, _: Manager) -> RestResult<Json<People>> {
    let people = server.hub.store.people().await?;
    Ok(Json(People { people: people.iter().filter_map(shown).collect() }))
}

fn shown(row: &PersonRow) -> Option<Person> {
    Some(Person {
        username: row.username.clone(),
        role: role_of(row)?,
        created_at: row.created_at,
        last_login_at: row.last_login_at,
        disabled: row.disabled,
    })
}

/// `POST /api/people`
pub(crate) async fn add(State(server): State<Server>, Manager(principal): Manager, body: Body) -> RestResult {
    let NewPerson { username, password, role } = read_new(body).await?;
    let password_hash = server.hub.logins.hasher.hash(password).await.map_err(|error| no_hash(&error))?;
    let row = PersonRow {
        username: username.clone(),
        password_hash,
        role: role.as_str().to_owned(),
        created_at: now_ms(),
        ..PersonRow::default()
    };
    let person = shown(&row);
    match server.hub.store.put_person(row).await? {
        PersonStored::Added => {
            tracing::info!(username, role = role.as_str(), "there is a new person");
            server
                .hub
                .note_change("person", &principal, format!("added {username} as {}", role.as_str()))
                .await;
            Ok((StatusCode::CREATED, Json(person)).into_response())
        }
        PersonStored::NameTaken => {
            let error = "A person or an access token has this name; take another one";
            Err(ErrorCode::AlreadyExists.with(error).into())
        }
        PersonStored::TooMany => {
            let error = format!("There are {PEOPLE_MAX} people, which is the limit; remove some first");
            let error = ErrorCode::LimitReached.with(error);
            Err(RestError::with_status(StatusCode::TOO_MANY_REQUESTS, &error))
        }
    }
}

async fn read_new(body: Body) -> Result<NewPerson, CodedError> {
    let new: NewPerson = read_json(body, |_| {
        "The body must be {\"username\":\"…\",\"password\":\"…\",\"role\":\"owner|operator|viewer\"}"
            .to_owned()
    })
    .await?;
    check_principal_name("username", &new.username)?;
    check_password(&new.password)?;
    Ok(new)
}

fn check_password(password: &str) -> Result<(), CodedError> {
    if password.chars().count() < PASSWORD_CHARS_MIN {
        return Err(CodedError::invalid(format!(
            "'password' must have at least {PASSWORD_CHARS_MIN} characters"
        )));
    }
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(CodedError::invalid(format!("'password' must have at most {PASSWORD_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// `PATCH /api/people/{username}`: who manages may change everything; everybody may change their own password, and has
/// to know the old one. A new password, another role and being disabled close all that the person had open; a new
/// password and being disabled end their logins and tokens too.
pub(crate) async fn change(
    State(server): State<Server>,
    Caller(principal): Caller,
    Path(username): Path<String>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> RestResult<Json<Option<Person>>> {
    let wanted = read_change(body).await?;
    let attempt = LoginAttempt::new(&username, &peer, browser_token(&headers));
    check_change(&server, &principal, attempt, &username, &wanted).await?;
    let mut change = PersonChange {
        password_hash: None,
        role: wanted.role.map(|role| role.as_str().to_owned()),
        disabled: wanted.disabled,
    };
    if let Some(password) = wanted.password.clone() {
        let hash = server.hub.logins.hasher.hash(password).await;
        change.password_hash = Some(hash.map_err(|error| no_hash(&error))?);
    }
    if !server.hub.store.change_person(&username, change).await? {
        return Err(ErrorCode::NotFound.with(NO_PERSON).into());
    }
    server.hub.note_change("person", &principal, changes(&username, &wanted)).await;
    // After the store: a connection that opens in between already finds the new role.
    close_all(&server, &username).await?;
    let row = server.hub.store.person(&username).await?;
    Ok(Json(row.as_ref().and_then(shown)))
}

async fn read_change(body: Body) -> Result<ChangePerson, CodedError> {
    let wanted: ChangePerson = read_json(body, |_| {
        "The body must be an object with some of \"password\", \"current_password\", \"role\" and \"disabled\"".to_owned()
    })
    .await?;
    if let Some(password) = &wanted.password {
        check_password(password)?;
    }
    if wanted.password.is_none() && wanted.role.is_none() && wanted.disabled.is_none() {
        return Err(CodedError::invalid(
            "The request changes nothing; give \"password\", \"role\" or \"disabled\"",
        ));
    }
    Ok(wanted)
}

/// Whether this principal may change that of this person.
async fn check_change(
    server: &Server,
    principal: &Principal,
    attempt: LoginAttempt,
    username: &str,
    wanted: &ChangePerson,
) -> RestResult<()> {
    let is_self = principal.person() == Some(username);
    let is_password_only = wanted.role.is_none() && wanted.disabled.is_none();
    if !(is_self && is_password_only) {
        principal.rights().check("changing people", Permission::Manage)?;
    }
    if !is_self || wanted.password.is_none() {
        return Ok(());
    }
    // A stolen token must not become a login.
    principal.check_no_token("a token cannot change a password; log in with it")?;
    let current = wanted.current_password.clone();
    let current =
        current.ok_or_else(|| CodedError::invalid("Give your present password as 'current_password'"))?;
    // Also for somebody who is logged in: an unlocked browser must not be enough to take over the account.
    let proved = login::prove(&server.hub, attempt, username, current).await;
    proved.map(drop).map_err(|refusal| refusal.response().into())
}

fn changes(username: &str, wanted: &ChangePerson) -> String {
    let mut words = vec![format!("changed {username}")];
    words.extend(wanted.password.as_ref().map(|_| "password".to_owned()));
    words.extend(wanted.role.map(|role| format!("role {}", role.as_str())));
    words.extend(wanted.disabled.map(|disabled| if disabled { "disabled" } else { "enabled" }.to_owned()));
    words.join(", ")
}

/// `DELETE /api/people/{username}`
pub(crate) async fn remove(
    State(server): State<Server>,
    Manager(principal): Manager,
    Path(username): Path<String>,
) -> RestResult<Json<Value>> {
    if !server.hub.store.delete_person(&username).await? {
        return Err(ErrorCode::NotFound.with(NO_PERSON).into());
    }
    tracing::warn!(username, "a person is removed");
    server.hub.note_change("person", &principal, format!("removed {username}")).await;
    close_all(&server, &username).await?;
    Ok(Json(json!({ "username": username })))
}

/// Closes what a person has open, and refuses what they have not begun.
async fn close_all(server: &Server, username: &str) -> Result<(), CodedError> {
    server.hub.revoke_access(username);
    server.hub.faces.revoke(&server.hub, username).await.map_err(|error| {
        let error = format!("It is done, but commands of the person are still in the store: {error}");
        ErrorCode::StoreUnavailable.with(error)
    })
}

/// Hashing is limited and can be busy; the caller may try again.
fn no_hash(error: &HashError) -> RestError {
    RestError::with_status(StatusCode::SERVICE_UNAVAILABLE, &error.code().with(error.to_string()))
}
