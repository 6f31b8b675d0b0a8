//! People: who is here, who may be, and what changes when that does.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use http::{HeaderMap, StatusCode, Uri};
use qd_link::clock::now_ms;
use qd_store::{PEOPLE_MAX, PersonChange, PersonRow, PersonStored};
use qd_wire::command_table::Permission;
use qd_wire::people::{ChangePerson, Me, NewPerson, People, Person};
use qd_wire::{CodedError, ErrorCode};
use serde_json::json;

use crate::access::audit::AuditedAction;
use crate::access::authenticate::{check_principal_name, role_of};
use crate::access::login::{HashError, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN};
use crate::access::principals::{Access, Principal};
use crate::rest::runners::read_body;
use crate::server::Server;
use crate::server::listen::Peer;
use crate::server::router::{check_known, check_owner, failed, failed_as, failed_with, refused, unavailable};

const NO_PERSON: &str = "There is no person of this name; see 'qd user list'";

/// `GET /api/me`
pub(crate) async fn me(State(server): State<Server>, uri: Uri, headers: HeaderMap) -> Response {
    match check_known(&server.hub, &uri, &headers).await {
        Ok(principal) => Json(Me {
            name: principal.name.to_string(),
            role: principal.role,
            permissions: principal.permissions.iter().collect(),
            access: principal.access.as_str().to_owned(),
        })
        .into_response(),
        Err(refusal) => refused(&refusal),
    }
}

/// `GET /api/people`
pub(crate) async fn list(State(server): State<Server>, uri: Uri, headers: HeaderMap) -> Response {
    if let Err(refusal) = check_owner(&server.hub, &uri, &headers).await {
        return refused(&refusal);
    }
    match server.hub.store.people().await {
        Ok(people) => Json(People { people: people.iter().filter_map(shown).collect() }).into_response(),
        Err(error) => unavailable(&error),
    }
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
pub(crate) async fn add(State(server): State<Server>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    let principal = match check_owner(&server.hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(refusal) => return refused(&refusal),
    };
    let NewPerson { username, password, role } = match read_new(body).await {
        Ok(new) => new,
        Err(error) => return failed_with(&error),
    };
    let password_hash = match server.hub.logins.hasher.hash(password).await {
        Ok(hash) => hash,
        Err(error) => return no_hash(&error),
    };
    let row = PersonRow {
        username: username.clone(),
        password_hash,
        role: role.as_str().to_owned(),
        created_at: now_ms(),
        ..PersonRow::default()
    };
    let person = shown(&row);
    match server.hub.store.put_person(row).await {
        Ok(PersonStored::Added) => {
            tracing::info!(username, role = role.as_str(), "there is a new person");
            note(&server, &principal, format!("added {username} as {}", role.as_str())).await;
            (StatusCode::CREATED, Json(person)).into_response()
        }
        Ok(PersonStored::NameTaken) => {
            failed(ErrorCode::AlreadyExists, "A person or an access token has this name; take another one")
        }
        Ok(PersonStored::TooMany) => {
            let error = format!("There are {PEOPLE_MAX} people, which is the limit; remove some first");
            failed_as(StatusCode::TOO_MANY_REQUESTS, &ErrorCode::LimitReached.with(error))
        }
        Err(error) => unavailable(&error),
    }
}

async fn read_new(body: Body) -> Result<NewPerson, CodedError> {
    let body = read_body(body).await?;
    // The parser's own words may repeat the password.
    let new: NewPerson = serde_json::from_slice(&body).map_err(|_| {
        CodedError::invalid(
            "The body must be {\"username\":\"…\",\"password\":\"…\",\"role\":\"owner|operator|viewer\"}",
        )
    })?;
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
    Path(username): Path<String>,
    Extension(peer): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let principal = match check_known(&server.hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(refusal) => return refused(&refusal),
    };
    let wanted = match read_change(body).await {
        Ok(wanted) => wanted,
        Err(error) => return failed_with(&error),
    };
    if let Err(response) = check_change(&server, &principal, &peer, &username, &wanted).await {
        return response;
    }
    let mut change = PersonChange {
        password_hash: None,
        role: wanted.role.map(|role| role.as_str().to_owned()),
        disabled: wanted.disabled,
    };
    if let Some(password) = wanted.password.clone() {
        match server.hub.logins.hasher.hash(password).await {
            Ok(hash) => change.password_hash = Some(hash),
            Err(error) => return no_hash(&error),
        }
    }
    match server.hub.store.change_person(&username, change).await {
        Ok(true) => {}
        Ok(false) => return failed(ErrorCode::NotFound, NO_PERSON),
        Err(error) => return unavailable(&error),
    }
    note(&server, &principal, changes(&username, &wanted)).await;
    if let Err(response) = close_all(&server, &username).await {
        return response;
    }
    match server.hub.store.person(&username).await {
        Ok(row) => Json(row.as_ref().and_then(shown)).into_response(),
        Err(error) => unavailable(&error),
    }
}

async fn read_change(body: Body) -> Result<ChangePerson, CodedError> {
    let body = read_body(body).await?;
    let wanted: ChangePerson = serde_json::from_slice(&body).map_err(|_| {
        CodedError::invalid(
            "The body must be an object with some of \"password\", \"current_password\", \"role\" and \"disabled\"",
        )
    })?;
    if let Some(password) = &wanted.password {
        check_password(password)?;
    }
    if wanted.password.is_none() && wanted.role.is_none() && wanted.disabled.is_none() {
        return Err(CodedError::invalid(
            "Nothing is to be changed; give \"password\", \"role\" or \"disabled\"",
        ));
    }
    Ok(wanted)
}

/// Whether this principal may change that of this person.
async fn check_change(
    server: &Server,
    principal: &Principal,
    Peer(peer): &Peer,
    username: &str,
    wanted: &ChangePerson,
) -> Result<(), Response> {
    let is_self = principal.person() == Some(username);
    let is_password_only = wanted.role.is_none() && wanted.disabled.is_none();
    if !(is_self && is_password_only)
        && let Err(error) = principal.rights().check("changing people", Permission::Manage)
    {
        return Err(failed_with(&error));
    }
    if !is_self || wanted.password.is_none() {
        return Ok(());
    }
    if let Access::Token(_) = principal.access {
        let error = "Permission denied: a token cannot change a password; log in with it";
        return Err(failed(ErrorCode::PermissionDenied, error));
    }
    let Some(current) = wanted.current_password.clone() else {
        return Err(failed(ErrorCode::InvalidRequest, "Give your present password as 'current_password'"));
    };
    let proved = server.hub.logins.prove(&server.hub, peer, username, current).await;
    proved.map(drop).map_err(crate::access::login::LoginRefusal::response)
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
    Path(username): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let principal = match check_owner(&server.hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(refusal) => return refused(&refusal),
    };
    match server.hub.store.delete_person(&username).await {
        Ok(true) => {}
        Ok(false) => return failed(ErrorCode::NotFound, NO_PERSON),
        Err(error) => return unavailable(&error),
    }
    tracing::warn!(username, "a person is removed");
    note(&server, &principal, format!("removed {username}")).await;
    match close_all(&server, &username).await {
        Ok(()) => Json(json!({ "username": username })).into_response(),
        Err(response) => response,
    }
}

/// Closes what a person has open, and refuses what they have not begun.
async fn close_all(server: &Server, username: &str) -> Result<(), Response> {
    server.hub.revoke_access(username);
    server.hub.faces.revoke(&server.hub, username).await.map_err(|error| {
        let error = format!("It is done, but commands of the person are still in the store: {error}");
        failed(ErrorCode::StoreUnavailable, &error)
    })
}

async fn note(server: &Server, principal: &Principal, summary: String) {
    let deed = AuditedAction { kind: "person", principal: Some(&principal.name), ok: Some(true), summary };
    server.hub.note_deed(deed).await;
}

fn no_hash(error: &HashError) -> Response {
    failed_as(StatusCode::SERVICE_UNAVAILABLE, &error.code().with(error.to_string()))
}
