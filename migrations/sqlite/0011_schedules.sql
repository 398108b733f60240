-- How far each schedule has been dealt with. The schedule itself is a governance change.
CREATE TABLE schedule_records (
    tenant              TEXT NOT NULL,
    schedule_id         TEXT NOT NULL,
    -- Raised by each advance: of nodes that decide at once, one writes.
    version             INTEGER NOT NULL,
    -- The last slot that was dealt with.
    considered_until_ms INTEGER,
    PRIMARY KEY (tenant, schedule_id)
) WITHOUT ROWID;

-- One row for each slot that was dealt with, or for a stretch of them that was skipped for one reason.
CREATE TABLE schedule_fires (
    tenant         TEXT NOT NULL,
    schedule_id    TEXT NOT NULL,
    at_ms          INTEGER NOT NULL,
    -- The last slot of a stretch; of a fire, its slot.
    through_ms     INTEGER NOT NULL,
    slots          INTEGER NOT NULL,
    -- waiting, buffered, started, skipped, suppressed or dead
    state          TEXT NOT NULL,
    reason         TEXT,
    details        TEXT,
    run_id         BLOB,
    attempts       INTEGER NOT NULL,
    next_at_ms     INTEGER NOT NULL,
    recorded_at_ms INTEGER NOT NULL,
    last_at_ms     INTEGER,
    PRIMARY KEY (tenant, schedule_id, at_ms, through_ms)
) WITHOUT ROWID;
CREATE INDEX schedule_fires_due ON schedule_fires (next_at_ms) WHERE state = 'waiting';
CREATE INDEX schedule_fires_open ON schedule_fires (tenant, schedule_id) WHERE state IN ('waiting', 'buffered');
CREATE INDEX schedule_fires_started ON schedule_fires (tenant, schedule_id, last_at_ms) WHERE state = 'started';
CREATE INDEX schedule_fires_by_state ON schedule_fires (tenant, state, at_ms);
CREATE INDEX schedule_fires_old ON schedule_fires (recorded_at_ms);

-- Schedules stand in the log of changes. Older programs cannot read it.
UPDATE store_meta SET schema_version = 11, min_reader = 11;
