-- The run of every question that was ever asked: one that is answered is no longer among the open ones, and whoever
-- answers it once more must still be told what became of the answer.
CREATE TABLE approval_runs (
    approval_id UUID PRIMARY KEY,
    run_key     UUID NOT NULL
);
INSERT INTO approval_runs (approval_id, run_key) SELECT approval_id, run_key FROM approvals;

UPDATE store_meta SET schema_version = 3;
