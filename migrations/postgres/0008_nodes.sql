-- Which node has held its runs against the rules of which epoch, and since when, by this server's clock. Rows of a node go
-- when its lease is forgotten, and all but the newest before that.
CREATE TABLE node_sweeps (
    incarnation UUID   NOT NULL,
    epoch       BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (incarnation, epoch)
);

-- How a command finds the node that holds its run although nobody has told that node: it asks for its own runs.
CREATE INDEX runs_owned_waiting ON runs (owner_incarnation)
    WHERE NOT closed AND owner_incarnation IS NOT NULL AND inbox_len > 0;

UPDATE store_meta SET schema_version = 8;
