-- Sessions the hub has copies of. `session_key` is the short number that record keys are made of.
CREATE TABLE sessions (
    session_key INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL UNIQUE,
    runner_id   TEXT NOT NULL,
    harness     TEXT NOT NULL,
    cwd         TEXT NOT NULL,
    title       TEXT,
    model       TEXT,
    provider    TEXT,
    state       TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL DEFAULT 0,
    closed      INTEGER NOT NULL DEFAULT 0,
    meta_json   TEXT
);

-- record_key = session_key * 2^40 + seq. One integer key keeps inserts appending to the table's own tree,
-- lets bodies of up to a page stay in the leaf (a WITHOUT ROWID row spills past a quarter page), and is the
-- primary key (session_id, seq) in other clothes.
CREATE TABLE records (
    record_key INTEGER PRIMARY KEY,
    ts         INTEGER NOT NULL,
    event      TEXT NOT NULL,
    body       BLOB NOT NULL
);

-- The view people query by hand.
CREATE VIEW record_list AS
SELECT s.session_id AS session_id, r.record_key & 1099511627775 AS seq, r.ts AS ts, r.event AS event, r.body AS body
FROM sessions s
JOIN records r ON r.record_key BETWEEN (s.session_key << 40) AND ((s.session_key << 40) | 1099511627775);

-- Messages with the columns of the canonical specification. `message_json` is the whole message, byte for byte.
CREATE TABLE messages (
    message_key  INTEGER PRIMARY KEY,
    session_id   TEXT NOT NULL,
    id           TEXT NOT NULL,
    idx          INTEGER NOT NULL,
    active       INTEGER NOT NULL DEFAULT 1,
    role         TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    model        TEXT,
    provider     TEXT,
    tokens       INTEGER,
    cost_usd     REAL,
    stop_reason  TEXT,
    tool_call_id TEXT,
    tool_name    TEXT,
    is_error     INTEGER,
    client_id    TEXT,
    usage_json   TEXT,
    metadata     TEXT,
    content      TEXT NOT NULL,
    parts_json   TEXT NOT NULL,
    message_json BLOB NOT NULL,
    UNIQUE (session_id, id)
);

CREATE INDEX messages_active ON messages (session_id, idx) WHERE active = 1;

-- External content: the index holds no text of its own, so it must be told the exact old text when a row goes.
-- Rows are only ever written by upsert, never by REPLACE, which would delete without firing the trigger.
CREATE VIRTUAL TABLE messages_fts USING fts5 (
    content,
    content = 'messages',
    content_rowid = 'message_key',
    tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts (rowid, content) VALUES (new.message_key, new.content);
END;

CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages BEGIN
    INSERT INTO messages_fts (messages_fts, rowid, content) VALUES ('delete', old.message_key, old.content);
END;

CREATE TRIGGER messages_fts_update AFTER UPDATE OF message_key, content ON messages
WHEN old.message_key IS NOT new.message_key OR old.content IS NOT new.content BEGIN
    INSERT INTO messages_fts (messages_fts, rowid, content) VALUES ('delete', old.message_key, old.content);
    INSERT INTO messages_fts (rowid, content) VALUES (new.message_key, new.content);
END;

CREATE TABLE logins (
    token_hash   BLOB PRIMARY KEY,
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    label        TEXT NOT NULL
) WITHOUT ROWID;
