//! The one table of REST routes: method, path, what it is for, who may, what goes in and what comes out.
//!
//! The hub's router is compared with it by a test, and the OpenAPI document is made of it. WebSockets and the routes of
//! the run document are described elsewhere (docs/protocol.md, docs/runs.md).

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::*;
use crate::access::{AccessTokens, AddedAccessToken, NewAccessToken};
use crate::command_table::Permission;
use crate::data::{MessagesData, RunnersData, SearchData, SessionSummary, SessionsData};
use crate::fleet::{Invite, JoinRequest, Joined};
use crate::people::*;
use crate::push::*;
use crate::service::FsUploadData;

/// Makes the schema of a type.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// The name under which generated clients know it.
    pub name: &'static str,
    pub summary: &'static str,
    pub access: RouteAccess,
    pub query: &'static [RouteParameter],
    pub body: RouteBody,
    pub status: u16,
    pub answer: RouteAnswer,
    /// What else it may answer, beside what every route may.
    pub problems: &'static [(u16, &'static str)],
}

/// Who may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteAccess {
    /// Everybody who reaches the hub.
    Open,
    /// Whoever is signed in; what they may depends on what is theirs.
    Known,
    /// Who has this permission.
    Needs(Permission),
    /// Who has the permission of the command, by the table of commands.
    OfCommand,
}

/// A parameter of the query.
#[derive(Clone, Copy)]
pub struct RouteParameter {
    pub name: &'static str,
    pub kind: ParameterKind,
    pub required: bool,
    pub about: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    Text,
    Integer,
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
}

#[derive(Clone, Copy)]
pub enum RouteBody {
    None,
    Json(SchemaOf),
    /// The bytes of a file.
    Bytes,
}

#[derive(Clone, Copy)]
pub enum RouteAnswer {
    /// No body.
    Empty,
    Json(SchemaOf),
    /// The bytes of a file.
    Bytes,
    /// Text in one of these forms; JSON of this type too.
    Document(&'static [&'static str], SchemaOf),
    /// Return this description itself.
    OpenApi,
}

/// What stands for what in the paths.
pub const PATH_PARAMETERS: &[(&str, &str)] = &[
    ("session_id", "A session, by its id; see `GET /api/sessions`."),
    ("runner_id", "A runner, by its name; see `GET /api/runners`."),
    ("login_id", "One of your logins; see `GET /api/logins`."),
    ("username", "A person's name."),
    ("name", "A token's name."),
    ("host_id", "A host, by its id; see `GET /api/hosts`."),
    ("subscription_id", "One of your subscribed browsers; see `GET /api/push`."),
];

const fn route(method: &'static str, path: &'static str, name: &'static str, summary: &'static str) -> Route {
    Route {
        method,
        path,
        name,
        summary,
        access: RouteAccess::Known,
        query: &[],
        body: RouteBody::None,
        status: 200,
        answer: RouteAnswer::Empty,
        problems: &[],
    }
}

const fn get(path: &'static str, name: &'static str, summary: &'static str) -> Route {
    route("get", path, name, summary)
}

const fn post(path: &'static str, name: &'static str, summary: &'static str) -> Route {
    route("post", path, name, summary)
}

const fn delete(path: &'static str, name: &'static str, summary: &'static str) -> Route {
    route("delete", path, name, summary)
}

impl Route {
    const fn open(self) -> Self {
        Self { access: RouteAccess::Open, ..self }
    }

    const fn needs(self, permission: Permission) -> Self {
        Self { access: RouteAccess::Needs(permission), ..self }
    }

    const fn of_command(self) -> Self {
        Self { access: RouteAccess::OfCommand, ..self }
    }

    const fn query(self, query: &'static [RouteParameter]) -> Self {
        Self { query, ..self }
    }

    const fn takes<T: JsonSchema>(self) -> Self {
        Self { body: RouteBody::Json(schema_of::<T>), ..self }
    }

    const fn takes_bytes(self) -> Self {
        Self { body: RouteBody::Bytes, ..self }
    }

    const fn gives<T: JsonSchema>(self) -> Self {
        Self { answer: RouteAnswer::Json(schema_of::<T>), ..self }
    }

    const fn answers(self, answer: RouteAnswer) -> Self {
        Self { answer, ..self }
    }

    const fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    const fn or(self, problems: &'static [(u16, &'static str)]) -> Self {
        Self { problems, ..self }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn text(name: &'static str, about: &'static str) -> RouteParameter {
    RouteParameter { name, kind: ParameterKind::Text, required: false, about }
}

const fn integer(name: &'static str, about: &'static str) -> RouteParameter {
    RouteParameter { name, kind: ParameterKind::Integer, required: false, about }
}

const fn flag(name: &'static str, about: &'static str) -> RouteParameter {
    RouteParameter { name, kind: ParameterKind::Flag, required: false, about }
}

const fn word(name: &'static str, words: &'static [&'static str], about: &'static str) -> RouteParameter {
    RouteParameter { name, kind: ParameterKind::Word(words), required: false, about }
}

const fn required(parameter: RouteParameter) -> RouteParameter {
    RouteParameter { required: true, ..parameter }
}

const NO_SESSION: (u16, &str) = (404, "There is no such session.");
const NO_RUNNER: &[(u16, &str)] = &[
    (404, "No runner of this name has joined."),
    (409, "It is the hub's own runner, is revoked, or is offline."),
];
const NO_HOST: &[(u16, &str)] = &[(404, "There is no such host.")];
const NO_PUSHES: (u16, &str) = (503, "This hub sends no notifications.");
const NO_SUBSCRIPTION: (u16, &str) = (404, "You have no such subscription.");
const NO_PERSON: (u16, &str) = (404, "There is no such person.");
const THROTTLED: (u16, &str) = (429, "Too many failed logins; wait as long as `Retry-After` says.");

/// Every route, in the order of the documentation.
pub const ROUTES: &[Route] = &[
    get("/api/openapi.json", "openapi", "Return this description").open().answers(RouteAnswer::OpenApi),
    get("/healthz", "health", "Report the health of the hub").open().gives::<Health>(),
    // Signing in.
    get(
        "/login",
        "login_with_code",
        "Sign a browser in with a one-time code and redirect it to the app",
    )
    .open()
    .query(&[required(text("code", "From `qd up` or `POST /api/logins/links`."))])
    .status(303)
    .or(&[(401, "The code is used, expired or wrong.")]),
    post("/auth/login", "login", "Sign in with name and password; browsers also get a cookie")
        .open()
        .takes::<LoginRequest>()
        .gives::<LoginAnswer>()
        .or(&[(401, "The name or the password is wrong."), THROTTLED]),
    post("/logout", "logout", "Sign this browser or program out").open().status(303),
    get("/api/me", "me", "Return who you are and what you may do").gives::<Me>(),
    get("/api/logins", "list_logins", "List your logins").gives::<Logins>(),
    post("/api/logins/links", "make_login_link", "Create a one-time link that signs in another browser as you")
        .gives::<LoginLink>(),
    delete("/api/logins/{login_id}", "end_login", "End one of your logins immediately")
        .gives::<EndedLogin>()
        .or(&[(404, "You have no such login.")]),
    // Sessions.
    get("/api/sessions", "list_sessions", "List all sessions, most recently active first")
        .needs(Permission::View)
        .gives::<SessionsData>(),
    get("/api/sessions/{session_id}", "session", "Return one session as in the list")
        .needs(Permission::View)
        .gives::<SessionSummary>()
        .or(&[NO_SESSION]),
    get(
        "/api/sessions/{session_id}/messages",
        "messages",
        "Return a page of the conversation, the newest without `before`",
    )
    .needs(Permission::View)
    .query(&[
        integer("before", "Only messages with a smaller `idx`."),
        integer("limit", "How many; at most 1000, which is the default."),
    ])
    .gives::<MessagesData>()
    .or(&[NO_SESSION]),
    get("/api/sessions/{session_id}/export", "export", "Export the whole conversation as a file")
        .needs(Permission::View)
        .query(&[word("format", &["html", "json", "md"], "The format; `html` by default.")])
        .answers(RouteAnswer::Document(&["text/html", "text/markdown"], schema_of::<ExportData>))
        .or(&[NO_SESSION]),
    get("/api/sessions/{session_id}/file", "download_file", "Download a file from the session's machine")
        .of_command()
        .query(&[
            required(text("path", "Below the session's directory.")),
            flag("inline", "Show it in the browser instead of downloading it."),
        ])
        .answers(RouteAnswer::Bytes)
        .or(&[(404, "There is no such file, or it cannot be read.")]),
    route("put", "/api/sessions/{session_id}/file", "upload_file", "Write a file, completely or not at all")
        .of_command()
        .query(&[
            required(text("path", "Below the session's directory.")),
            text(
                "expected_hash",
                "Write only if the file currently has this hash; empty if it must not exist.",
            ),
            flag("create_parents", "Create missing parent directories."),
        ])
        .takes_bytes()
        .gives::<FsUploadData>()
        .or(&[(409, "The file is not as expected, or cannot be written.")]),
    get("/api/search", "search", "Search for messages that contain all these words, best match first")
        .needs(Permission::View)
        .query(&[
            required(text("q", "Words; a trailing `*` matches any ending.")),
            text("session_id", "Only this session."),
            text("runner_id", "Only sessions of this runner."),
            text("harness", "Only sessions of this harness."),
            text("role", "Only messages of this role: `user`, `assistant`, `system` or `tool`."),
            integer("from", "Only messages at or after this time, in Unix milliseconds."),
            integer("to", "Only messages before this time, in Unix milliseconds."),
            integer("limit", "How many; 20 by default, at most 200."),
            integer("offset", "How many to skip."),
        ])
        .gives::<SearchData>(),
    get("/api/usage", "usage", "Sum up tokens and cost by day, model and session")
        .needs(Permission::View)
        .query(&[
            text("from", "From this day (`2026-01-31`) or this time (Unix milliseconds) on."),
            text("to", "Until this day (inclusive) or this time (exclusive)."),
            text("by", "Any of `day`, `model` and `session`, separated by commas; `day` by default."),
            text("session_id", "Only this session."),
            integer(
                "tz_offset_minutes",
                "Offset of the day boundaries from UTC, in minutes east; 0 by default.",
            ),
            integer("limit", "How many rows; at most 5000, which is the default. The total counts all."),
        ])
        .gives::<UsageData>(),
    post("/api/commands", "run_command", "Run any command of the canonical protocol")
        .of_command()
        .takes::<crate::Command>()
        .gives::<CommandAnswer>()
        .or(&[(413, "The body is too long.")]),
    // Machines.
    get("/api/runners", "list_runners", "List all runners, including former ones")
        .needs(Permission::Manage)
        .gives::<RunnersData>(),
    post("/api/runners/invites", "invite_runner", "Create a code with which one machine can join, valid for five minutes")
        .needs(Permission::Manage)
        .gives::<Invite>()
        .or(&[(429, "Too many codes are open.")]),
    post(
        "/api/runners/join",
        "join_runner",
        "Join as a runner; the code is the permission. Not for browsers",
    )
    .open()
    .takes::<JoinRequest>()
    .gives::<Joined>()
    .or(&[
        (401, "The code is wrong."),
        (409, "The name is taken."),
        (410, "The code is used or expired."),
    ]),
    post("/api/runners/{runner_id}/rotate", "rotate_runner", "Tell a runner to create a new key")
        .needs(Permission::Manage)
        .status(202)
        .gives::<ChangedRunner>()
        .or(NO_RUNNER),
    delete("/api/runners/{runner_id}", "revoke_runner", "Revoke a runner and disconnect it immediately")
        .needs(Permission::Manage)
        .gives::<ChangedRunner>()
        .or(NO_RUNNER),
    get("/api/hosts", "list_hosts", "List third-party machines that speak the run protocol")
        .needs(Permission::Manage)
        .gives::<ForeignHosts>(),
    post("/api/hosts", "add_host", "Add a host before it connects")
        .needs(Permission::Manage)
        .takes::<NewForeignHost>()
        .gives::<AddedForeignHost>()
        .or(&[(409, "The name is taken.")]),
    post("/api/hosts/{host_id}/confirm", "confirm_host", "Confirm a host that has connected")
        .needs(Permission::Manage)
        .takes::<ConfirmForeignHost>()
        .gives::<ChangedHost>()
        .or(&[(404, "There is no such host."), (409, "It has come with a token of another fingerprint.")]),
    delete("/api/hosts/{host_id}", "revoke_host", "Revoke a host; the second time, delete it")
        .needs(Permission::Manage)
        .gives::<ChangedHost>()
        .or(NO_HOST),
    // People.
    get("/api/people", "list_people", "List the people with an account").needs(Permission::Manage).gives::<People>(),
    post("/api/people", "add_person", "Create an account")
        .needs(Permission::Manage)
        .takes::<NewPerson>()
        .status(201)
        .gives::<Person>()
        .or(&[(409, "The name is taken."), (429, "The maximum number of people is reached.")]),
    route("patch", "/api/people/{username}", "change_person", "Change an account, or your own password")
        .takes::<ChangePerson>()
        .gives::<Person>()
        .or(&[NO_PERSON, THROTTLED]),
    delete("/api/people/{username}", "remove_person", "Delete an account and close its connections")
        .needs(Permission::Manage)
        .gives::<RemovedPerson>()
        .or(&[NO_PERSON]),
    get("/api/tokens", "list_tokens", "List your access tokens, or all with the `manage` permission")
        .gives::<AccessTokens>(),
    post("/api/tokens", "add_token", "Create an access token; it is shown only once")
        .takes::<NewAccessToken>()
        .gives::<AddedAccessToken>()
        .or(&[(409, "The name is taken."), (429, "The maximum number of tokens is reached.")]),
    delete("/api/tokens/{name}", "revoke_token", "Revoke an access token and close its connections")
        .query(&[text("owner", "The owner of the token, with the `manage` permission; empty for the hub's owner.")])
        .gives::<RevokedToken>()
        .or(&[(404, "There is no such token.")]),
    // Pushes.
    get("/api/push", "push_state", "Return the push key and your subscribed browsers")
        .needs(Permission::View)
        .gives::<PushState>()
        .or(&[NO_PUSHES]),
    post(
        "/api/push/subscriptions",
        "subscribe_push",
        "Subscribe this browser to notifications; the same endpoint again renews it",
    )
    .needs(Permission::View)
    .takes::<NewPushSubscription>()
    .status(201)
    .gives::<PushSubscriptionInfo>()
    .or(&[NO_PUSHES]),
    route(
        "patch",
        "/api/push/subscriptions/{subscription_id}",
        "change_push",
        "Change what a browser is notified about",
    )
    .needs(Permission::View)
    .takes::<ChangePushSubscription>()
    .gives::<PushSubscriptionInfo>()
    .or(&[NO_SUBSCRIPTION]),
    delete(
        "/api/push/subscriptions/{subscription_id}",
        "unsubscribe_push",
        "Unsubscribe a browser",
    )
    .needs(Permission::View)
    .gives::<RemovedPushSubscription>()
    .or(&[NO_SUBSCRIPTION]),
    post("/api/push/test", "test_push", "Send your browsers a test message and report the result")
        .needs(Permission::View)
        .takes::<PushTest>()
        .gives::<PushTested>()
        .or(&[NO_SUBSCRIPTION]),
    post(
        "/api/push/answer",
        "answer_push",
        "Answer a question from its notification, with the token in it",
    )
    .open()
    .takes::<PushAnswer>()
    .gives::<PushAnswered>()
    .or(&[
        (403, "The person may no longer answer."),
        (409, "The session did not accept the answer."),
        (410, "The token was used, or its question is no longer open."),
    ]),
    get(
        "/api/audit",
        "audit",
        "List who did what, newest first: entries of sessions and your own, or all with the `manage` permission",
    )
    .needs(Permission::View)
    .query(&[
        text("session", "Only entries of this session."),
        text("principal", "Only entries of this principal."),
        text("tool", "Only entries of this tool."),
        text("kind", "Only entries of this kind."),
        integer("before", "Only entries with a smaller `id`."),
        integer("limit", "How many; 100 by default, at most 1000."),
    ])
    .gives::<AuditData>(),
];
