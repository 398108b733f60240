-- API keys. A row is never removed, and who made a key and who took it back is written once: it is the trace of both.
CREATE TABLE api_keys (
    key_id          BLOB    PRIMARY KEY,
    tenant          TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    role            TEXT    NOT NULL,
    -- A JSON list.
    scopes          BLOB    NOT NULL,
    -- SHA-256 of the key, which is 256 random bits.
    hash            BLOB    NOT NULL,
    created_at_ms   INTEGER NOT NULL,
    created_by      TEXT    NOT NULL,
    created_by_role TEXT    NOT NULL,
    expires_at_ms   INTEGER NOT NULL,
    revoked_at_ms   INTEGER,
    revoked_by      TEXT,
    revoked_by_role TEXT,
    -- The hour it was last used in.
    last_used_at_ms INTEGER
) WITHOUT ROWID;
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_at_ms);

-- Who submitted a run: whoever is no operator is shown only its own.
ALTER TABLE run_dashboard ADD COLUMN submitted_by TEXT NOT NULL DEFAULT '';
UPDATE run_dashboard SET submitted_by = COALESCE(
    (SELECT e.actor_id FROM run_events AS e WHERE e.run_key = run_dashboard.run_key AND e.seq = 1), '');
CREATE INDEX run_dashboard_by_submitter ON run_dashboard (tenant, submitted_by, submitted_at, run_key);

UPDATE store_meta SET schema_version = 6;
