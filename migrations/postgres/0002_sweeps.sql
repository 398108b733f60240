-- Armed switches on their way through the parked runs (KIL-010). A row begins with the change that arms its switch and goes
-- with its last page, with the change that disarms it, or when it has expired.
CREATE TABLE sweeps (
    switch_id TEXT   COLLATE "C" PRIMARY KEY,
    -- The change that began it: the oldest sweep goes on first.
    epoch     BIGINT NOT NULL,
    -- The switch, as JSON.
    switch    BYTEA  NOT NULL,
    -- The last run it has looked at; nil at first.
    cursor    UUID   NOT NULL
);

-- A sweep wakes the runs it reaches by taking their `parked` away, so that whoever claims next ends them.
CREATE INDEX runs_parked ON runs (run_key) WHERE NOT closed AND owner_incarnation IS NULL AND parked;

UPDATE store_meta SET schema_version = 2;
