-- Version 3. Placements with a name, for one model (the fingerprint of what of it can be placed) on one machine; the one that a model
-- file was loaded with last; and what answers were measured to reach in a placement (digest: of its text).
CREATE TABLE placement_preset (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    model     TEXT NOT NULL,
    machine   TEXT NOT NULL,
    name      TEXT NOT NULL,
    text      TEXT NOT NULL,
    updated_s REAL NOT NULL,
    UNIQUE (model, machine, name)
);
CREATE TABLE placement_used (
    path    TEXT NOT NULL,
    machine TEXT NOT NULL,
    text    TEXT NOT NULL,
    used_s  REAL NOT NULL,
    PRIMARY KEY (path, machine)
) WITHOUT ROWID;
CREATE TABLE placement_run (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    model         TEXT NOT NULL,
    machine       TEXT NOT NULL,
    digest        TEXT NOT NULL,
    decode_tok_s  REAL,
    prefill_tok_s REAL,
    n_generated   INTEGER NOT NULL,
    n_prompt      INTEGER NOT NULL,
    measured_s    REAL NOT NULL
);
CREATE INDEX placement_run_of ON placement_run (model, machine, digest, measured_s DESC);
