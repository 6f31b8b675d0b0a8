-- Browsers that people want to be told on: where their push service takes messages, and the keys that only they can
-- read them with. `login_hash` is the login that the subscription was made with; NULL for the owner's token. `topics`
-- has words with spaces between them.
CREATE TABLE push_subscriptions (
    subscription_id TEXT PRIMARY KEY,
    principal       TEXT NOT NULL,
    login_hash      BLOB,
    endpoint        TEXT NOT NULL UNIQUE,
    p256dh          BLOB NOT NULL,
    auth            BLOB NOT NULL,
    label           TEXT NOT NULL,
    topics          TEXT NOT NULL,
    content         INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    last_success_at INTEGER,
    last_failure_at INTEGER,
    last_failure    TEXT
) WITHOUT ROWID;

CREATE INDEX push_by_principal ON push_subscriptions (principal);

CREATE INDEX push_by_login ON push_subscriptions (login_hash) WHERE login_hash IS NOT NULL;

-- A browser that is logged out, by whatever way, gets nothing more; a person who is gone neither.
CREATE TRIGGER push_goes_with_its_login AFTER DELETE ON logins BEGIN
    DELETE FROM push_subscriptions WHERE login_hash = old.token_hash;
END;

CREATE TRIGGER push_goes_with_its_person AFTER DELETE ON people BEGIN
    DELETE FROM push_subscriptions WHERE principal = old.username;
END;
