-- Webhooks. The rule is a governance change; these rows follow from it. An older program would neither read the rule nor write
-- what is to be delivered, so it may not use this store any more.
CREATE TABLE webhooks (
    webhook_id        TEXT    PRIMARY KEY,
    -- The node that sends for it, as long as it lives.
    owner_incarnation BLOB,
    -- Raised by each claim.
    lease_epoch       INTEGER NOT NULL
) WITHOUT ROWID;

-- What each enabled webhook wants to be told.
CREATE TABLE webhook_wants (
    event_type TEXT NOT NULL,
    -- Whose events; empty: everybody's.
    tenant     TEXT NOT NULL,
    webhook_id TEXT NOT NULL,
    PRIMARY KEY (event_type, tenant, webhook_id)
) WITHOUT ROWID;

-- One row for each thing told to one webhook, written with the journal's entry that it points at.
CREATE TABLE webhook_deliveries (
    webhook_id   TEXT    NOT NULL,
    -- The run whose journal it is; nil: the audit journal.
    run_key      BLOB    NOT NULL,
    -- What an act is about; empty for a run.
    subject      TEXT    NOT NULL,
    seq          INTEGER NOT NULL,
    part         INTEGER NOT NULL,
    event_type   TEXT    NOT NULL,
    tenant       TEXT,
    -- That of the journal's entry.
    hash         BLOB    NOT NULL,
    -- What is told once under this name.
    once         TEXT,
    queued_at_ms INTEGER NOT NULL,
    -- 0: waits; 1: delivered; 2: given up.
    state        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    first_at_ms  INTEGER,
    next_at_ms   INTEGER NOT NULL,
    last_at_ms   INTEGER,
    last_status  INTEGER,
    last_problem TEXT,
    PRIMARY KEY (webhook_id, run_key, subject, seq, part)
) WITHOUT ROWID;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_at_ms) WHERE state = 0;
CREATE INDEX webhook_deliveries_by_time ON webhook_deliveries (webhook_id, queued_at_ms);
CREATE INDEX webhook_deliveries_old ON webhook_deliveries (state, queued_at_ms);
CREATE UNIQUE INDEX webhook_deliveries_once ON webhook_deliveries (webhook_id, once) WHERE once IS NOT NULL;

UPDATE store_meta SET schema_version = 7, min_reader = 7;
