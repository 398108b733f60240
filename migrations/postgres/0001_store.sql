-- The store on PostgreSQL: the tables of migrations/sqlite/0001_store.sql, with the same meaning. Instants are Unix
-- microseconds unless the column says otherwise. Hashes, JSON bodies and free text are BYTEA, so that what is read is byte
-- for byte what was written, and so that a NUL in a text hurts nobody. Identifiers are compared byte by byte, as everywhere
-- else, whatever language the database speaks.

CREATE TABLE store_meta (
    id             BIGINT  PRIMARY KEY CHECK (id = 1),
    incarnation    UUID    NOT NULL,
    -- The governance epoch: how many rows governance_changes has.
    epoch          BIGINT  NOT NULL,
    schema_version BIGINT  NOT NULL,
    -- The lowest schema version a program must know to use this store.
    min_reader     BIGINT  NOT NULL
);
INSERT INTO store_meta VALUES (1, gen_random_uuid(), 0, 1, 1);

-- A row is rewritten by every append: room on its page lets that happen without touching an index.
CREATE TABLE runs (
    run_key           UUID    PRIMARY KEY,
    tenant            TEXT    COLLATE "C" NOT NULL,
    run_id            UUID    NOT NULL,
    owner_incarnation UUID,
    lease_epoch       BIGINT  NOT NULL,
    last_seq          BIGINT  NOT NULL,
    last_hash         BYTEA   NOT NULL,
    last_at           BIGINT  NOT NULL,
    control_seq       BIGINT  NOT NULL,
    -- Commands delivered and not answered.
    inbox_len         BIGINT  NOT NULL,
    wake_at_ms        BIGINT,
    -- Given up by an append and not claimed since.
    parked            BOOLEAN NOT NULL,
    closed            BOOLEAN NOT NULL,
    format            BIGINT  NOT NULL,
    UNIQUE (tenant, run_id)
) WITH (fillfactor = 70);
CREATE INDEX runs_with_work ON runs (run_key)
    WHERE NOT closed AND owner_incarnation IS NULL AND (inbox_len > 0 OR NOT parked);
CREATE INDEX runs_due ON runs (wake_at_ms)
    WHERE NOT closed AND owner_incarnation IS NULL AND wake_at_ms IS NOT NULL;
CREATE INDEX runs_owned ON runs (owner_incarnation)
    WHERE NOT closed AND owner_incarnation IS NOT NULL;

-- What lists show: written when it changes.
CREATE TABLE run_dashboard (
    run_key           UUID   PRIMARY KEY,
    tenant            TEXT   COLLATE "C" NOT NULL,
    pipeline_id       TEXT   COLLATE "C",
    root_agent_id     TEXT   COLLATE "C" NOT NULL,
    submitted_at      BIGINT NOT NULL,
    status            TEXT   COLLATE "C" NOT NULL,
    total_cost_micros BIGINT NOT NULL,
    percent           BIGINT NOT NULL,
    waiting_for       BYTEA,
    open_approvals    BYTEA  NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX run_dashboard_by_tenant ON run_dashboard (tenant, run_key);
CREATE INDEX run_dashboard_by_status ON run_dashboard (tenant, status, run_key);

CREATE TABLE run_events (
    run_key    UUID   NOT NULL,
    seq        BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    actor_id   TEXT   COLLATE "C" NOT NULL,
    actor_role TEXT   COLLATE "C" NOT NULL,
    visibility TEXT   COLLATE "C" NOT NULL,
    kind       TEXT   COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    body       BYTEA  NOT NULL,
    prev_hash  BYTEA  NOT NULL,
    hash       BYTEA  NOT NULL,
    PRIMARY KEY (run_key, seq)
);
-- For people with a SQL prompt; the program reads the table.
CREATE VIEW run_events_text AS
    SELECT run_key, seq, to_timestamp(at / 1000000.0) AS at, actor_id, actor_role, visibility, kind, version,
           convert_from(body, 'UTF8') AS body, encode(prev_hash, 'hex') AS prev_hash, encode(hash, 'hex') AS hash
    FROM run_events;

CREATE TABLE run_snapshots (
    run_key      UUID   PRIMARY KEY,
    seq          BIGINT NOT NULL,
    fold_version BIGINT NOT NULL,
    bytes        BYTEA  NOT NULL
);

CREATE TABLE run_inbox (
    -- Order of arrival within a run: commands for one run are delivered one after the other.
    arrival        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_key        UUID   NOT NULL,
    command_id     UUID   NOT NULL,
    -- 0: control, counted in runs.control_seq; 1: everything else.
    class          BIGINT NOT NULL,
    body           BYTEA  NOT NULL,
    answer         BYTEA,
    answered_at_ms BIGINT,
    UNIQUE (run_key, command_id)
);
CREATE INDEX run_inbox_waiting ON run_inbox (run_key, class, arrival) WHERE answer IS NULL;
CREATE INDEX run_inbox_answered ON run_inbox (answered_at_ms) WHERE answer IS NOT NULL;

CREATE TABLE approvals (
    run_key         UUID   NOT NULL,
    approval_id     UUID   NOT NULL,
    tenant          TEXT   COLLATE "C" NOT NULL,
    requested_at_ms BIGINT NOT NULL,
    body            BYTEA  NOT NULL,
    PRIMARY KEY (run_key, approval_id)
);
CREATE INDEX approvals_by_tenant ON approvals (tenant, requested_at_ms, approval_id);

-- One row for each node: its lease. The runs it owns carry its incarnation.
CREATE TABLE nodes (
    incarnation UUID    PRIMARY KEY,
    name        BYTEA   NOT NULL,
    -- By this server's clock.
    expires_at  BIGINT  NOT NULL,
    given_up    BOOLEAN NOT NULL
);

CREATE TABLE governance_changes (
    epoch      BIGINT PRIMARY KEY,
    at_ms      BIGINT NOT NULL,
    changed_by TEXT   COLLATE "C" NOT NULL,
    body       BYTEA  NOT NULL
);

CREATE TABLE meters (
    budget_id            TEXT    COLLATE "C" PRIMARY KEY,
    budget               BYTEA   NOT NULL,
    window_start_seconds BIGINT  NOT NULL,
    consumed             BIGINT  NOT NULL,
    reserved             BIGINT  NOT NULL,
    grace_end_seconds    BIGINT,
    retired              BOOLEAN NOT NULL
) WITH (fillfactor = 70);
