//! People: roles, permissions, accounts, logins, and hosts that others run. Bodies of the REST calls about them.
//!
//! The one table of what a role may do is `Role::permissions`. A token's scopes can only take away from it.

use serde::Deserialize;

use crate::command::SessionConfig;
use crate::command_table::Permission;
use crate::derive::wire;
use crate::error::{CodedError, ErrorCode};
use crate::run::{GatePolicy, is_terminal};

/// What a person is here.
#[wire(words, Hash, PartialOrd, Ord)]
#[ts(rename = "PersonRole")]
pub enum Role {
    /// Sees.
    Viewer,
    /// Sees, works with sessions, answers questions, uses files and shell.
    Operator,
    /// Everything, people and machines included.
    Owner,
}

impl Role {
    /// What the role may do: the one permission table.
    pub const fn permissions(self) -> Permissions {
        match self {
            Role::Viewer => Permissions::of(&[Permission::View]),
            Role::Operator => Permissions::of(&[
                Permission::View,
                Permission::Operate,
                Permission::Approve,
                Permission::Files,
                Permission::Shell,
            ]),
            Role::Owner => Permissions::of(&Permission::ALL),
        }
    }
}

/// A set of permissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Permissions(u8);

impl Permissions {
    pub const fn of(list: &[Permission]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < list.len() {
            bits |= 1 << list[at] as u8;
            at += 1;
        }
        Permissions(bits)
    }

    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & (1 << permission as u8) != 0
    }

    /// Those of both.
    #[must_use]
    pub const fn and(self, other: Permissions) -> Permissions {
        Permissions(self.0 & other.0)
    }

    /// Whether it has all of those.
    pub const fn includes(self, other: Permissions) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.contains(*permission))
    }

    /// From words with spaces between them. A word of another version of qd allows nothing here.
    pub fn of_words(words: &str) -> Self {
        words.split(' ').filter_map(Permission::parse).fold(Permissions::default(), |set, permission| {
            Permissions(set.0 | Permissions::of(&[permission]).0)
        })
    }
}

/// As in the head of a command: words with spaces between them.
impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl serde::de::Visitor<'_> for Words {
            type Value = Permissions;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("permissions with spaces between them")
            }

            fn visit_str<E: serde::de::Error>(self, words: &str) -> Result<Permissions, E> {
                Ok(Permissions::of_words(words))
            }
        }
        deserializer.deserialize_str(Words)
    }
}

/// What a request may do, and as what. The hub finds it out; it travels to the runner with each command, and both ask
/// it the same. Without a word about it nothing is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    pub role: Role,
    /// Of the role, as far as the scopes of the access go.
    pub permissions: Permissions,
}

impl Default for Rights {
    fn default() -> Self {
        Rights { role: Role::Viewer, permissions: Permissions::of(&[]) }
    }
}

impl Rights {
    /// Of the owner, and of what the hub does on its own account.
    pub const ALL: Rights = Rights::of(Role::Owner);

    /// All that a role may do.
    pub const fn of(role: Role) -> Self {
        Rights { role, permissions: role.permissions() }
    }

    /// As the head of a command says. Hubs of earlier versions name only the role, and mean all of it.
    pub fn said(role: Option<Role>, permissions: Option<Permissions>) -> Self {
        let Some(role) = role else { return Rights::default() };
        let all = role.permissions();
        Rights { role, permissions: permissions.map_or(all, |permissions| permissions.and(all)) }
    }

    /// `what` is the command or address that was asked for.
    pub fn check(self, what: &str, permission: Permission) -> Result<(), CodedError> {
        if self.permissions.contains(permission) {
            return Ok(());
        }
        Err(ErrorCode::PermissionDenied.with(format!(
            "Permission denied: '{what}' needs the permission '{}', which this access (role {}) does not have; ask an \
             owner, or use a token with that scope",
            permission.as_str(),
            self.role.as_str()
        )))
    }

    /// Checks that it may create a session with this configuration. Terminals need the right to run commands too, and
    /// only an owner makes a session in which nobody is asked.
    pub fn check_config(self, what: &str, config: &SessionConfig) -> Result<(), CodedError> {
        if is_terminal(&config.harness) {
            self.check(what, Permission::Shell)?;
        }
        if config.gate != Some(GatePolicy::Open) || self.is_owner() {
            return Ok(());
        }
        Err(ErrorCode::PermissionDenied.with(format!(
            "Permission denied: only an owner with all permissions opens the gate of a session, and this access has \
             the role {}; leave 'gate' out, or ask an owner",
            self.role.as_str()
        )))
    }

    /// Whether nothing of the role is missing. What is left to a role goes with all of it only: a token with fewer
    /// scopes was made to be able to do less.
    pub const fn has_whole_role(self) -> bool {
        self.permissions.includes(self.role.permissions())
    }

    /// Whether it is an owner's, whole.
    pub const fn is_owner(self) -> bool {
        matches!(self.role, Role::Owner) && self.has_whole_role()
    }

    /// The directories of a machine that it reaches.
    pub const fn places(self) -> Places {
        if self.is_owner() {
            Places::All
        } else if self.permissions.contains(Permission::Files) {
            Places::Workspaces
        } else {
            Places::Sessions
        }
    }
}

/// Directories of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// Where sessions work.
    Sessions,
    /// The same, and the runner's `workspace_roots`.
    Workspaces,
    /// Wherever the user of the runner gets.
    All,
}

/// Body of `POST /auth/login`.
#[wire(Eq)]
pub struct LoginRequest {
    pub username: String,
    pub password: String,
}

/// Answer of `POST /auth/login`; browsers also get a cookie.
#[wire(Eq)]
pub struct LoginAnswer {
    pub access_token: String,
}

/// Answer of `GET /api/me`.
#[wire(Eq)]
pub struct Me {
    /// The principal that commands of this access are from.
    pub name: String,
    pub role: Role,
    /// What this access may do: of its role, as far as its scopes go.
    pub permissions: Vec<Permission>,
    /// `token`, `login` or `owner_token`.
    pub access: String,
}

/// Answer of `GET /api/logins`: one's own.
#[wire(Eq)]
pub struct Logins {
    /// Most recently used first.
    pub logins: Vec<LoginInfo>,
}

/// A browser or program that somebody has logged in with.
#[wire(Eq)]
pub struct LoginInfo {
    /// For `DELETE /api/logins/{login_id}`; it opens nothing.
    pub login_id: String,
    /// What the browser or program said of itself.
    pub label: String,
    /// Unix milliseconds.
    pub created_at: i64,
    /// Unix milliseconds, to the minute.
    pub last_used_at: i64,
    /// Whether it is the one that asks.
    pub current: bool,
}

/// Answer of `GET /api/people`.
#[wire(Eq)]
pub struct People {
    /// By name.
    pub people: Vec<Person>,
}

#[wire(Eq)]
pub struct Person {
    pub username: String,
    pub role: Role,
    /// Unix milliseconds.
    pub created_at: i64,
    pub last_login_at: Option<i64>,
    pub disabled: bool,
}

/// Body of `POST /api/people`.
#[wire(Eq)]
pub struct NewPerson {
    /// 1 to 64 letters, digits, `.`, `_` or `-`.
    pub username: String,
    /// At least 8 characters.
    pub password: String,
    pub role: Role,
}

/// Body of `PATCH /api/people/{username}`; what is absent stays.
#[wire(Default, Eq)]
#[serde(default)]
pub struct ChangePerson {
    /// Ends all logins of the person.
    pub password: Option<String>,
    /// One's own, where one changes one's own password.
    pub current_password: Option<String>,
    pub role: Option<Role>,
    pub disabled: Option<bool>,
}

/// Answer of `GET /api/hosts`: machines that speak the run protocol to us.
#[wire(Eq)]
pub struct ForeignHosts {
    pub hosts: Vec<ForeignHost>,
}

#[wire(Eq)]
pub struct ForeignHost {
    pub host_id: String,
    pub state: HostTrust,
    pub online: bool,
    /// Unix milliseconds.
    pub first_seen_at: i64,
    pub last_seen_at: Option<i64>,
    /// Where it first came from.
    pub address: Option<String>,
    /// Of the token it came with first: the first 16 hex digits of its SHA-256. Whoever knows the machine can compare
    /// it, and name it to confirm this machine and no other of its name.
    pub fingerprint: Option<String>,
}

/// Body of `POST /api/hosts/{host_id}/confirm`.
#[wire(Eq)]
pub struct ConfirmForeignHost {
    /// Of the token that is confirmed, as `GET /api/hosts` shows it.
    pub fingerprint: String,
}

/// Whether a foreign host is let in.
#[wire(words)]
pub enum HostTrust {
    /// It has come; an owner has to confirm it.
    Pending,
    Trusted,
    Revoked,
}

/// Body of `POST /api/hosts`: lets in a host that has not come yet.
#[wire(Default, Eq)]
#[serde(default)]
pub struct NewForeignHost {
    /// Made up where it is absent.
    pub host_id: Option<String>,
}

/// Answer of `POST /api/hosts`: what to configure the host with; the token is shown this once.
#[wire(Eq)]
pub struct AddedForeignHost {
    pub host_id: String,
    pub host_token: String,
}

/// Answer of `GET /api/audit`.
#[wire(Default, Eq)]
pub struct AuditData {
    /// Newest first.
    pub entries: Vec<AuditEntry>,
    /// Give it as `before` to go on.
    pub next: Option<u64>,
}

/// Something that was done by somebody.
#[wire(Default, Eq)]
pub struct AuditEntry {
    /// Grows with each entry.
    pub id: u64,
    /// Unix milliseconds.
    pub ts: i64,
    pub session_id: Option<String>,
    pub runner_id: Option<String>,
    pub seq: Option<u64>,
    /// `command`, `tool.call`, `tool.result`, `run.input`, `permission`, `login`, `person`, `token`, `runner`, `host`…
    pub kind: String,
    /// Who: the principal.
    pub principal: Option<String>,
    /// How: `web`, `cli`, `local`, `agent`…
    pub actor: Option<String>,
    pub tool: Option<String>,
    pub request_id: Option<String>,
    pub ok: Option<bool>,
    pub duration_ms: Option<u64>,
    /// Secrets redacted.
    pub summary: Option<String>,
}
