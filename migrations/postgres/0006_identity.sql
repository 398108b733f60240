-- API keys. A row is never removed, and who made a key and who took it back is written once: it is the trace of both.
CREATE TABLE api_keys (
    key_id          UUID   PRIMARY KEY,
    tenant          TEXT   COLLATE "C" NOT NULL,
    name            TEXT   COLLATE "C" NOT NULL,
    role            TEXT   COLLATE "C" NOT NULL,
    -- A JSON list.
    scopes          BYTEA  NOT NULL,
    -- SHA-256 of the key, which is 256 random bits.
    hash            BYTEA  NOT NULL,
    created_at_ms   BIGINT NOT NULL,
    created_by      TEXT   COLLATE "C" NOT NULL,
    created_by_role TEXT   COLLATE "C" NOT NULL,
    expires_at_ms   BIGINT NOT NULL,
    revoked_at_ms   BIGINT,
    revoked_by      TEXT   COLLATE "C",
    revoked_by_role TEXT   COLLATE "C",
    -- The hour it was last used in.
    last_used_at_ms BIGINT
);
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_at_ms);

-- Who submitted a run: whoever is no operator is shown only its own.
ALTER TABLE run_dashboard ADD COLUMN submitted_by TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE run_dashboard AS d SET submitted_by = e.actor_id FROM run_events AS e WHERE e.run_key = d.run_key AND e.seq = 1;
CREATE INDEX run_dashboard_by_submitter ON run_dashboard (tenant, submitted_by, submitted_at, run_key);

UPDATE store_meta SET schema_version = 6;
