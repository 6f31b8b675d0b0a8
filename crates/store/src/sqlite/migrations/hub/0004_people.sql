-- People with an account. A password is kept as its argon2id hash only, in the text form that names its parameters.
CREATE TABLE people (
    username      TEXT PRIMARY KEY,
    password_hash TEXT NOT NULL,
    role          TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    last_login_at INTEGER,
    disabled      INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Whose login it is; NULL for the hub's owner, who logs in with a code.
ALTER TABLE logins ADD COLUMN username TEXT;

CREATE INDEX logins_by_person ON logins (username);

-- Tokens have owners now, and each owner has names of their own: '' is the hub's owner, others are people. `scopes`
-- has words with spaces between them; NULL is all that the owner may do.
CREATE TABLE owned_tokens (
    owner        TEXT NOT NULL,
    name         TEXT NOT NULL,
    token_hash   BLOB NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    scopes       TEXT,
    expires_at   INTEGER,
    PRIMARY KEY (owner, name)
) WITHOUT ROWID;

INSERT INTO owned_tokens (owner, name, token_hash, created_at, last_used_at)
SELECT '', name, token_hash, created_at, last_used_at FROM access_tokens;

DROP TABLE access_tokens;

ALTER TABLE owned_tokens RENAME TO access_tokens;

-- Machines of others that speak the run protocol to us.
CREATE TABLE hosts (
    host_id       TEXT PRIMARY KEY,
    token_hash    BLOB NOT NULL,
    trust         TEXT NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER,
    address       TEXT
) WITHOUT ROWID;

-- Who did what. Rows of records are written together with their record, and only when it is new; they outlive their
-- session. Keys are never used again, so that a page's cursor stays good.
CREATE TABLE audit (
    audit_key   INTEGER PRIMARY KEY AUTOINCREMENT,
    ts          INTEGER NOT NULL,
    session_id  TEXT,
    runner_id   TEXT,
    seq         INTEGER,
    kind        TEXT NOT NULL,
    principal   TEXT,
    actor       TEXT,
    tool        TEXT,
    request_id  TEXT,
    ok          INTEGER,
    duration_ms INTEGER,
    summary     TEXT
);

CREATE INDEX audit_by_session ON audit (session_id, audit_key) WHERE session_id IS NOT NULL;

CREATE INDEX audit_by_principal ON audit (principal, audit_key) WHERE principal IS NOT NULL;

CREATE INDEX audit_by_time ON audit (ts);
