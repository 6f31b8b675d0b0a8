-- What lists show of a session beside its name, kept as records come so that a list reads one row for each. `tokens`
-- and `cost_usd` are of all messages there ever were, also those that a fork or switch has left behind. An empty text
-- is none.
ALTER TABLE sessions ADD COLUMN branch TEXT;

ALTER TABLE sessions ADD COLUMN last_text TEXT;

ALTER TABLE sessions ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0;

ALTER TABLE sessions ADD COLUMN cost_usd REAL NOT NULL DEFAULT 0;

ALTER TABLE sessions ADD COLUMN error TEXT;

ALTER TABLE sessions ADD COLUMN run_tool TEXT;

UPDATE sessions SET
    tokens = (SELECT coalesce(sum(m.tokens), 0) FROM messages m WHERE m.session_id = sessions.session_id),
    cost_usd = (SELECT coalesce(sum(m.cost_usd), 0) FROM messages m WHERE m.session_id = sessions.session_id),
    last_text = (
        SELECT substr(m.content, 1, 200) FROM messages m
        WHERE m.session_id = sessions.session_id AND m.active = 1 AND m.role IN ('user', 'assistant')
            AND m.content <> ''
        ORDER BY m.idx DESC LIMIT 1
    );
