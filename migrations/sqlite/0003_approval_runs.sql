-- The run of every question that was ever asked: one that is answered is no longer among the open ones, and whoever
-- answers it once more must still be told what became of the answer.
CREATE TABLE approval_runs (
    approval_id BLOB PRIMARY KEY,
    run_key     BLOB NOT NULL
) WITHOUT ROWID;
INSERT INTO approval_runs (approval_id, run_key) SELECT approval_id, run_key FROM approvals;

UPDATE store_meta SET schema_version = 3;
