-- What the dashboard filters by, beside what it shows. Lists are ordered by the instant at which a run was accepted, by the
-- store's clock, and then by its key.
ALTER TABLE run_dashboard ADD COLUMN ended_at BIGINT;
-- 0 free, 1 low, 2 medium, 3 high, 4 extreme: changes with the band, not with every charge.
ALTER TABLE run_dashboard ADD COLUMN cost_band BIGINT NOT NULL DEFAULT 0;
-- When a run that is `running` counts as waiting for a tool; whoever reads compares.
ALTER TABLE run_dashboard ADD COLUMN slow_at_ms BIGINT;
-- A budget came near its limit or went beyond it, or a tool used more than it had reserved.
ALTER TABLE run_dashboard ADD COLUMN warned BOOLEAN NOT NULL DEFAULT FALSE;
-- What a run is found by: folded, redacted, at most 512 bytes. Runs from before have their agent and pipeline alone.
ALTER TABLE run_dashboard ADD COLUMN words BYTEA NOT NULL DEFAULT '';
UPDATE run_dashboard SET
    ended_at = CASE WHEN status IN ('completed', 'failed', 'cancelled', 'killed') THEN
        (SELECT e.at FROM run_events AS e WHERE e.run_key = run_dashboard.run_key AND e.kind = 'run-finished') END,
    cost_band = CASE WHEN total_cost_micros <= 0 THEN 0 WHEN total_cost_micros <= 50000000 THEN 1
        WHEN total_cost_micros <= 500000000 THEN 2 WHEN total_cost_micros <= 5000000000 THEN 3 ELSE 4 END,
    words = convert_to(lower(root_agent_id || chr(10) || coalesce(pipeline_id, '')), 'UTF8');

DROP INDEX run_dashboard_by_tenant;
DROP INDEX run_dashboard_by_status;
CREATE INDEX run_dashboard_by_time ON run_dashboard (submitted_at, run_key);
CREATE INDEX run_dashboard_by_tenant ON run_dashboard (tenant, submitted_at, run_key);
-- The status first: runs of one status are counted for one tenant and for all.
CREATE INDEX run_dashboard_by_status ON run_dashboard (status, tenant, submitted_at, run_key);
CREATE INDEX run_dashboard_by_agent ON run_dashboard (tenant, root_agent_id, submitted_at, run_key);
CREATE INDEX run_dashboard_by_pipeline ON run_dashboard (tenant, pipeline_id, submitted_at, run_key)
    WHERE pipeline_id IS NOT NULL;
-- What is rare has an index of its own; what is common is met on the way.
CREATE INDEX run_dashboard_warned ON run_dashboard (tenant, submitted_at, run_key) WHERE warned;
CREATE INDEX run_dashboard_costly ON run_dashboard (tenant, cost_band, submitted_at, run_key) WHERE cost_band >= 3;
CREATE INDEX run_dashboard_took_long ON run_dashboard (tenant, submitted_at, run_key)
    WHERE ended_at - submitted_at >= 120001000;

UPDATE store_meta SET schema_version = 5;
