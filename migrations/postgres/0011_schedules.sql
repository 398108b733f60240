-- How far each schedule has been dealt with. The schedule itself is a governance change.
CREATE TABLE schedule_records (
    tenant              TEXT   COLLATE "C" NOT NULL,
    schedule_id         TEXT   COLLATE "C" NOT NULL,
    -- Raised by each advance: of nodes that decide at once, one writes.
    version             BIGINT NOT NULL,
    -- The last slot that was dealt with.
    considered_until_ms BIGINT,
    PRIMARY KEY (tenant, schedule_id)
);

-- One row for each slot that was dealt with, or for a stretch of them that was skipped for one reason.
CREATE TABLE schedule_fires (
    tenant         TEXT   COLLATE "C" NOT NULL,
    schedule_id    TEXT   COLLATE "C" NOT NULL,
    at_ms          BIGINT NOT NULL,
    -- The last slot of a stretch; of a fire, its slot.
    through_ms     BIGINT NOT NULL,
    slots          BIGINT NOT NULL,
    -- waiting, buffered, started, skipped, suppressed or dead
    state          TEXT   COLLATE "C" NOT NULL,
    reason         TEXT   COLLATE "C",
    details        BYTEA,
    run_id         UUID,
    attempts       BIGINT NOT NULL,
    next_at_ms     BIGINT NOT NULL,
    recorded_at_ms BIGINT NOT NULL,
    last_at_ms     BIGINT,
    PRIMARY KEY (tenant, schedule_id, at_ms, through_ms)
);
CREATE INDEX schedule_fires_due ON schedule_fires (next_at_ms) WHERE state = 'waiting';
CREATE INDEX schedule_fires_open ON schedule_fires (tenant, schedule_id) WHERE state IN ('waiting', 'buffered');
CREATE INDEX schedule_fires_started ON schedule_fires (tenant, schedule_id, last_at_ms) WHERE state = 'started';
CREATE INDEX schedule_fires_by_state ON schedule_fires (tenant, state, at_ms);
CREATE INDEX schedule_fires_old ON schedule_fires (recorded_at_ms);

-- Schedules stand in the log of changes. Older programs cannot read it.
UPDATE store_meta SET schema_version = 11, min_reader = 11;
