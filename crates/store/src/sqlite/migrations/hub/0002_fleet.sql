-- Runners that ever joined. Keys are kept as hashes; an empty one opens nothing, and is what the hub's own runner
-- has, which joins without a key.
CREATE TABLE runners (
    runner_id      TEXT PRIMARY KEY,
    key_hash       BLOB NOT NULL,
    next_key_hash  BLOB,
    hostname       TEXT NOT NULL,
    os             TEXT NOT NULL,
    version        TEXT NOT NULL,
    harnesses_json TEXT NOT NULL,
    max_sessions   INTEGER NOT NULL,
    joined_at      INTEGER NOT NULL,
    last_seen_at   INTEGER,
    rotated_at     INTEGER,
    revoked_at     INTEGER
) WITHOUT ROWID;

-- Sessions deleted while their runner was away: it must be told when it comes back. The key grows with each
-- burial, so the smallest is the oldest whatever the clock did.
CREATE TABLE buried_sessions (
    burial_key INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    runner_id  TEXT NOT NULL,
    buried_at  INTEGER NOT NULL
);

CREATE INDEX buried_by_runner ON buried_sessions (runner_id);
