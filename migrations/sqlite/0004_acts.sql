-- Acts of management: who changed which rule, hash-chained. An older program would change rules without a record, so it may
-- not use this store any more.
CREATE TABLE audit_events (
    seq        INTEGER PRIMARY KEY,
    -- Microseconds since the Unix epoch.
    at         INTEGER NOT NULL,
    -- Whose rules were changed; NULL: the platform's.
    tenant     TEXT,
    actor_id   TEXT    NOT NULL,
    actor_role TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    -- What it is about, such as `switch:no-web`.
    subject    TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    -- The governance epoch after the act.
    epoch      INTEGER NOT NULL,
    body       BLOB    NOT NULL,
    prev_hash  BLOB    NOT NULL,
    hash       BLOB    NOT NULL
);
CREATE INDEX audit_events_by_subject ON audit_events (subject, seq);
CREATE INDEX audit_events_by_tenant ON audit_events (tenant, seq);

-- Where the audit journal ends, kept beside it, so that acts that are cut off are missed.
CREATE TABLE audit_head (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    seq  INTEGER NOT NULL,
    at   INTEGER NOT NULL,
    hash BLOB    NOT NULL
);
INSERT INTO audit_head VALUES (1, 0, 0, zeroblob(32));

-- Windows of budgets that are over.
CREATE TABLE meter_windows (
    budget_id     TEXT    NOT NULL,
    starts        INTEGER NOT NULL,
    ended         INTEGER NOT NULL,
    consumed      INTEGER NOT NULL,
    limit_micros  INTEGER NOT NULL,
    PRIMARY KEY (budget_id, starts)
) WITHOUT ROWID;

-- The switch that killed a run, for the count of what a switch has done.
ALTER TABLE run_dashboard ADD COLUMN killed_by TEXT;
CREATE INDEX run_dashboard_by_killer ON run_dashboard (killed_by) WHERE killed_by IS NOT NULL;

UPDATE store_meta SET schema_version = 4, min_reader = 4;
