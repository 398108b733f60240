-- Which side of a rollout a run is on: written with the run. How it ended stands in its other rows, so outcomes are read and
-- never counted up.
CREATE TABLE rollout_runs (
    run_key          BLOB    PRIMARY KEY,
    rollout_id       TEXT    NOT NULL,
    -- champion or challenger
    arm              TEXT    NOT NULL,
    -- What an evaluation must reach, in millionths.
    min_score_micros INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX rollout_runs_by_rollout ON rollout_runs (rollout_id, run_key);

-- What people and machines say of finished runs.
CREATE TABLE run_feedback (
    run_key      BLOB    NOT NULL,
    actor_id     TEXT    NOT NULL,
    -- negative, positive or evaluation
    said         TEXT    NOT NULL,
    actor_role   TEXT    NOT NULL,
    -- Of an evaluation, in millionths.
    score_micros INTEGER,
    at_ms        INTEGER NOT NULL,
    PRIMARY KEY (run_key, actor_id, said)
) WITHOUT ROWID;

-- Gold sets. A row is never changed.
CREATE TABLE gold_set_entries (
    entry_id    BLOB PRIMARY KEY,
    tenant      TEXT NOT NULL,
    gold_set_id TEXT NOT NULL,
    input_hash  TEXT NOT NULL,
    -- The whole entry, as JSON.
    body        BLOB NOT NULL
) WITHOUT ROWID;
CREATE UNIQUE INDEX gold_set_entries_by_input ON gold_set_entries (tenant, gold_set_id, input_hash);
CREATE INDEX gold_set_entries_by_set ON gold_set_entries (tenant, gold_set_id, entry_id);

-- What stands in the log of changes since: agents, executors, buckets of their own and rollouts. Older programs cannot read it.
UPDATE store_meta SET schema_version = 9, min_reader = 9;
