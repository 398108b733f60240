-- Acts of management: who changed which rule, hash-chained. An older program would change rules without a record, so it may
-- not use this store any more.
CREATE TABLE audit_events (
    seq        BIGINT PRIMARY KEY,
    -- Microseconds since the Unix epoch.
    at         BIGINT NOT NULL,
    -- Whose rules were changed; NULL: the platform's.
    tenant     TEXT   COLLATE "C",
    actor_id   TEXT   NOT NULL,
    actor_role TEXT   NOT NULL,
    kind       TEXT   NOT NULL,
    -- What it is about, such as `switch:no-web`.
    subject    TEXT   COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    -- The governance epoch after the act.
    epoch      BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    prev_hash  BYTEA  NOT NULL,
    hash       BYTEA  NOT NULL
);
CREATE INDEX audit_events_by_subject ON audit_events (subject, seq);
CREATE INDEX audit_events_by_tenant ON audit_events (tenant, seq);

-- Where the audit journal ends, kept beside it, so that acts that are cut off are missed.
CREATE TABLE audit_head (
    id   BIGINT PRIMARY KEY CHECK (id = 1),
    seq  BIGINT NOT NULL,
    at   BIGINT NOT NULL,
    hash BYTEA  NOT NULL
);
INSERT INTO audit_head VALUES (1, 0, 0, decode(repeat('00', 32), 'hex'));

-- Windows of budgets that are over.
CREATE TABLE meter_windows (
    budget_id     TEXT   COLLATE "C" NOT NULL,
    starts        BIGINT NOT NULL,
    ended         BIGINT NOT NULL,
    consumed      BIGINT NOT NULL,
    limit_micros  BIGINT NOT NULL,
    PRIMARY KEY (budget_id, starts)
);

-- The switch that killed a run, for the count of what a switch has done.
ALTER TABLE run_dashboard ADD COLUMN killed_by TEXT COLLATE "C";
CREATE INDEX run_dashboard_by_killer ON run_dashboard (killed_by) WHERE killed_by IS NOT NULL;

UPDATE store_meta SET schema_version = 4, min_reader = 4;
