-- The store on SQLite. Instants are Unix microseconds unless the column says otherwise; ids that are UUIDs, hashes and
-- JSON bodies are BLOBs, so that what is read is byte for byte what was written.

CREATE TABLE store_meta (
    id             INTEGER PRIMARY KEY CHECK (id = 1),
    incarnation    BLOB    NOT NULL,
    -- The governance epoch: how many rows governance_changes has.
    epoch          INTEGER NOT NULL,
    schema_version INTEGER NOT NULL,
    -- The lowest schema version a program must know to use this store.
    min_reader     INTEGER NOT NULL,
    -- How often the store was opened: tells the leases of this opening from older ones.
    session        INTEGER NOT NULL
);
INSERT INTO store_meta VALUES (1, randomblob(16), 0, 1, 1, 0);

CREATE TABLE runs (
    run_key           BLOB    PRIMARY KEY,
    tenant            TEXT    NOT NULL,
    run_id            BLOB    NOT NULL,
    owner_incarnation BLOB,
    lease_epoch       INTEGER NOT NULL,
    last_seq          INTEGER NOT NULL,
    last_hash         BLOB    NOT NULL,
    last_at           INTEGER NOT NULL,
    control_seq       INTEGER NOT NULL,
    -- Commands delivered and not answered.
    inbox_len         INTEGER NOT NULL,
    wake_at_ms        INTEGER,
    -- Given up by an append and not claimed since.
    parked            INTEGER NOT NULL,
    closed            INTEGER NOT NULL,
    format            INTEGER NOT NULL,
    UNIQUE (tenant, run_id)
) WITHOUT ROWID;
CREATE INDEX runs_with_work ON runs (run_key)
    WHERE closed = 0 AND owner_incarnation IS NULL AND (inbox_len > 0 OR parked = 0);
CREATE INDEX runs_due ON runs (wake_at_ms)
    WHERE closed = 0 AND owner_incarnation IS NULL AND wake_at_ms IS NOT NULL;
CREATE INDEX runs_owned ON runs (owner_incarnation)
    WHERE closed = 0 AND owner_incarnation IS NOT NULL;

-- What lists show: written when it changes.
CREATE TABLE run_dashboard (
    run_key           BLOB    PRIMARY KEY,
    tenant            TEXT    NOT NULL,
    pipeline_id       TEXT,
    root_agent_id     TEXT    NOT NULL,
    submitted_at      INTEGER NOT NULL,
    status            TEXT    NOT NULL,
    total_cost_micros INTEGER NOT NULL,
    percent           INTEGER NOT NULL,
    waiting_for       TEXT,
    open_approvals    BLOB    NOT NULL
) WITHOUT ROWID;
CREATE INDEX run_dashboard_by_tenant ON run_dashboard (tenant, run_key);
CREATE INDEX run_dashboard_by_status ON run_dashboard (tenant, status, run_key);

CREATE TABLE run_events (
    run_key    BLOB    NOT NULL,
    seq        INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    actor_id   TEXT    NOT NULL,
    actor_role TEXT    NOT NULL,
    visibility TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    body       BLOB    NOT NULL,
    prev_hash  BLOB    NOT NULL,
    hash       BLOB    NOT NULL,
    PRIMARY KEY (run_key, seq)
);
-- For people with a SQL prompt; the program reads the table.
CREATE VIEW run_events_text AS
    SELECT lower(hex(run_key)) AS run_key, seq, at, actor_id, actor_role, visibility, kind, version,
           CAST(body AS TEXT) AS body, lower(hex(prev_hash)) AS prev_hash, lower(hex(hash)) AS hash
    FROM run_events;

CREATE TABLE run_snapshots (
    run_key      BLOB    PRIMARY KEY,
    seq          INTEGER NOT NULL,
    fold_version INTEGER NOT NULL,
    bytes        BLOB    NOT NULL
);

CREATE TABLE run_inbox (
    -- Order of arrival.
    arrival        INTEGER PRIMARY KEY,
    run_key        BLOB    NOT NULL,
    command_id     BLOB    NOT NULL,
    -- 0: control, counted in runs.control_seq; 1: everything else.
    class          INTEGER NOT NULL,
    body           BLOB    NOT NULL,
    answer         BLOB,
    answered_at_ms INTEGER,
    UNIQUE (run_key, command_id)
);
CREATE INDEX run_inbox_waiting ON run_inbox (run_key, class, arrival) WHERE answer IS NULL;
CREATE INDEX run_inbox_answered ON run_inbox (answered_at_ms) WHERE answer IS NOT NULL;

CREATE TABLE approvals (
    run_key         BLOB    NOT NULL,
    approval_id     BLOB    NOT NULL,
    tenant          TEXT    NOT NULL,
    requested_at_ms INTEGER NOT NULL,
    body            BLOB    NOT NULL,
    PRIMARY KEY (run_key, approval_id)
) WITHOUT ROWID;
CREATE INDEX approvals_by_tenant ON approvals (tenant, requested_at_ms, approval_id);

CREATE TABLE nodes (
    incarnation BLOB    PRIMARY KEY,
    name        TEXT    NOT NULL,
    session     INTEGER NOT NULL,
    -- Nanoseconds since boot: comparable within one session only.
    ends_boot   INTEGER NOT NULL,
    given_up    INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE governance_changes (
    epoch      INTEGER PRIMARY KEY,
    at_ms      INTEGER NOT NULL,
    changed_by TEXT    NOT NULL,
    body       BLOB    NOT NULL
);

CREATE TABLE meters (
    budget_id            TEXT    PRIMARY KEY,
    budget               BLOB    NOT NULL,
    window_start_seconds INTEGER NOT NULL,
    consumed             INTEGER NOT NULL,
    reserved             INTEGER NOT NULL,
    grace_end_seconds    INTEGER,
    retired              INTEGER NOT NULL
) WITHOUT ROWID;
