-- Whether an input's outcome is stored. One that was begun and has none was cut off by a crash: nobody can know whether it
-- was written, so it must not be called a duplicate of one that was. What earlier versions noted counts as settled.
ALTER TABLE run_inputs ADD COLUMN is_settled INTEGER NOT NULL DEFAULT 1;
