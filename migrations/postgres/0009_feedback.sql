-- Which side of a rollout a run is on: written with the run. How it ended stands in its other rows, so outcomes are read and
-- never counted up.
CREATE TABLE rollout_runs (
    run_key          UUID   PRIMARY KEY,
    rollout_id       TEXT   COLLATE "C" NOT NULL,
    -- champion or challenger
    arm              TEXT   COLLATE "C" NOT NULL,
    -- What an evaluation must reach, in millionths.
    min_score_micros BIGINT NOT NULL
);
CREATE INDEX rollout_runs_by_rollout ON rollout_runs (rollout_id, run_key);

-- What people and machines say of finished runs.
CREATE TABLE run_feedback (
    run_key      UUID   NOT NULL,
    actor_id     TEXT   COLLATE "C" NOT NULL,
    -- negative, positive or evaluation
    said         TEXT   COLLATE "C" NOT NULL,
    actor_role   TEXT   COLLATE "C" NOT NULL,
    -- Of an evaluation, in millionths.
    score_micros BIGINT,
    at_ms        BIGINT NOT NULL,
    PRIMARY KEY (run_key, actor_id, said)
);

-- Gold sets. A row is never changed.
CREATE TABLE gold_set_entries (
    entry_id    UUID  PRIMARY KEY,
    tenant      TEXT  COLLATE "C" NOT NULL,
    gold_set_id TEXT  COLLATE "C" NOT NULL,
    input_hash  TEXT  COLLATE "C" NOT NULL,
    -- The whole entry, as JSON.
    body        BYTEA NOT NULL
);
CREATE UNIQUE INDEX gold_set_entries_by_input ON gold_set_entries (tenant, gold_set_id, input_hash);
CREATE INDEX gold_set_entries_by_set ON gold_set_entries (tenant, gold_set_id, entry_id);

-- What stands in the log of changes since: agents, executors, buckets of their own and rollouts. Older programs cannot read it.
UPDATE store_meta SET schema_version = 9, min_reader = 9;
