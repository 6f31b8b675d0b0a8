-- What clients of the pi-server face have submitted under a name of theirs: what is under way and what came of it,
-- so that a repeated submission is answered and not done again. What was said is not here, only its fingerprint.
-- The key grows with each submission, so the smallest is the oldest whatever the clock did.
CREATE TABLE submissions (
    submission_key  INTEGER PRIMARY KEY,
    uid             TEXT NOT NULL UNIQUE,
    principal       TEXT NOT NULL,
    command_id      TEXT,
    scope           TEXT NOT NULL,
    idempotency_key TEXT,
    session_id      TEXT,
    command         TEXT NOT NULL,
    fingerprint     BLOB NOT NULL,
    accepted_at     INTEGER NOT NULL,
    finished_at     INTEGER,
    success         INTEGER,
    outcome_json    BLOB,
    data_json       BLOB
);

CREATE INDEX submissions_by_principal ON submissions (principal, accepted_at);

-- Tokens that open the hub for somebody beside its owner, by name. Only their hashes are kept.
CREATE TABLE access_tokens (
    name         TEXT PRIMARY KEY,
    token_hash   BLOB NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER
) WITHOUT ROWID;
