-- Hand-offs: which run a sub-run was handed off from. What is said to a run reaches everything below it.
ALTER TABLE runs ADD COLUMN parent_key UUID;
CREATE INDEX runs_of_parent ON runs (parent_key, run_key) WHERE parent_key IS NOT NULL;

-- Runs that others were handed off from stand in the journal since. Older programs cannot read those.
UPDATE store_meta SET schema_version = 10, min_reader = 10;
