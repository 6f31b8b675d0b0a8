CREATE TABLE sessions (
    session_id  TEXT PRIMARY KEY,
    version     INTEGER NOT NULL,
    next_seq    INTEGER NOT NULL,
    next_idx    INTEGER NOT NULL,
    state       TEXT NOT NULL,
    title       TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    config_json TEXT NOT NULL,
    native_json TEXT NOT NULL,
    extra_json  TEXT
) WITHOUT ROWID;

-- One row per session that ever spooled: the number its spool keys are made of, and how many bytes wait.
CREATE TABLE spool_sessions (
    session_key INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL UNIQUE,
    bytes       INTEGER NOT NULL DEFAULT 0
);

-- spool_key = session_key * 2^40 + seq, so a session's lines are one range and appends stay appends.
CREATE TABLE spool (
    spool_key INTEGER PRIMARY KEY,
    line      BLOB NOT NULL
);

-- A row is one submission: (principal, id, scope, key). The same id with another key is another submission,
-- or a reused id would wipe out the proof that the first key has already run.
CREATE TABLE outcomes (
    outcome_key     INTEGER PRIMARY KEY,
    principal       TEXT NOT NULL,
    id              TEXT NOT NULL,
    session_id      TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('in_flight', 'done', 'indeterminate')),
    created_at      INTEGER NOT NULL,
    bytes           INTEGER NOT NULL,
    cmd             TEXT NOT NULL,
    fingerprint     BLOB NOT NULL,
    response_json   BLOB,
    UNIQUE (principal, id, session_id, idempotency_key)
);

CREATE INDEX outcomes_by_key ON outcomes (principal, session_id, idempotency_key, created_at)
WHERE idempotency_key <> '';
CREATE INDEX outcomes_by_age ON outcomes (created_at, outcome_key, status, bytes);

CREATE TABLE message_index (
    session_id TEXT NOT NULL,
    idx        INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    PRIMARY KEY (session_id, idx)
) WITHOUT ROWID;

CREATE TABLE approvals (
    session_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    body_json  BLOB NOT NULL,
    PRIMARY KEY (session_id, request_id)
) WITHOUT ROWID;
