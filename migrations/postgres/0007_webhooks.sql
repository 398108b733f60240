-- Webhooks. The rule is a governance change; these rows follow from it. An older program would neither read the rule nor write
-- what is to be delivered, so it may not use this store any more.
CREATE TABLE webhooks (
    webhook_id        TEXT   COLLATE "C"    PRIMARY KEY,
    -- The node that sends for it, as long as it lives.
    owner_incarnation UUID,
    -- Raised by each claim.
    lease_epoch       BIGINT NOT NULL
);

-- What each enabled webhook wants to be told.
CREATE TABLE webhook_wants (
    event_type TEXT   COLLATE "C" NOT NULL,
    -- Whose events; empty: everybody's.
    tenant     TEXT   COLLATE "C" NOT NULL,
    webhook_id TEXT   COLLATE "C" NOT NULL,
    PRIMARY KEY (event_type, tenant, webhook_id)
);

-- One row for each thing told to one webhook, written with the journal's entry that it points at.
CREATE TABLE webhook_deliveries (
    webhook_id   TEXT   COLLATE "C"    NOT NULL,
    -- The run whose journal it is; nil: the audit journal.
    run_key      UUID     NOT NULL,
    -- What an act is about; empty for a run.
    subject      TEXT   COLLATE "C"    NOT NULL,
    seq          BIGINT NOT NULL,
    part         BIGINT NOT NULL,
    event_type   TEXT   COLLATE "C"    NOT NULL,
    tenant       TEXT   COLLATE "C",
    -- That of the journal's entry.
    hash         BYTEA    NOT NULL,
    -- What is told once under this name.
    once         TEXT   COLLATE "C",
    queued_at_ms BIGINT NOT NULL,
    -- 0: waits; 1: delivered; 2: given up.
    state        BIGINT NOT NULL,
    attempts     BIGINT NOT NULL,
    first_at_ms  BIGINT,
    next_at_ms   BIGINT NOT NULL,
    last_at_ms   BIGINT,
    last_status  BIGINT,
    last_problem BYTEA,
    PRIMARY KEY (webhook_id, run_key, subject, seq, part)
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, next_at_ms) WHERE state = 0;
CREATE INDEX webhook_deliveries_by_time ON webhook_deliveries (webhook_id, queued_at_ms);
CREATE INDEX webhook_deliveries_old ON webhook_deliveries (state, queued_at_ms);
CREATE UNIQUE INDEX webhook_deliveries_once ON webhook_deliveries (webhook_id, once) WHERE once IS NOT NULL;

UPDATE store_meta SET schema_version = 7, min_reader = 7;
