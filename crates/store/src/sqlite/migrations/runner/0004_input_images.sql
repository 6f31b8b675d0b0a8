-- The images of inputs that an agent has accepted and not shown, by a name that the rest of the input refers to. They are
-- apart from the session's row, which is written again with every change.
CREATE TABLE input_images (
    session_id TEXT NOT NULL,
    images_key TEXT NOT NULL,
    body       BLOB NOT NULL,
    PRIMARY KEY (session_id, images_key)
) WITHOUT ROWID;
