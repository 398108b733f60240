-- Which node has held its runs against the rules of which epoch, and since when, in Unix microseconds. Rows of a node go
-- when its lease is forgotten, and all but the newest before that.
CREATE TABLE node_sweeps (
    incarnation BLOB    NOT NULL,
    epoch       INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (incarnation, epoch)
) WITHOUT ROWID;

-- How a command finds the node that holds its run although nobody has told that node: it asks for its own runs.
CREATE INDEX runs_owned_waiting ON runs (owner_incarnation)
    WHERE closed = 0 AND owner_incarnation IS NOT NULL AND inbox_len > 0;

UPDATE store_meta SET schema_version = 8;
