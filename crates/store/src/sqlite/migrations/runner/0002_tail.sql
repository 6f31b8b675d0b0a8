-- Acked lines are no longer deleted at once: the newest stay as the session's tail. `bytes` counts the lines after
-- `acked_seq`, which the hub has yet to store, and `tail_bytes` those up to it. All lines of an older database wait.
ALTER TABLE spool_sessions ADD COLUMN acked_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spool_sessions ADD COLUMN tail_bytes INTEGER NOT NULL DEFAULT 0;
