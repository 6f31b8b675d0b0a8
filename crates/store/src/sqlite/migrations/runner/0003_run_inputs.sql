-- The inputs that a session has taken, by the sender's own name of each: one that comes again is not written again,
-- for as long as the session is there.
CREATE TABLE run_inputs (
    session_id TEXT NOT NULL,
    input_id   TEXT NOT NULL,
    PRIMARY KEY (session_id, input_id)
) WITHOUT ROWID;
