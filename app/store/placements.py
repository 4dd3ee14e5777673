"""Placements in the store: presets by model and machine, the one a model file was loaded with last, and runs that were measured.

Functions on a connection, as in `chats`: the writer runs those that change. A placement is kept as the text of its file.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from dataclasses import dataclass

KEPT_RUNS = 20
"""Of a placement; older ones say little about how the machine is now."""


@dataclass(frozen=True, slots=True)
class Subject:
    """model: fingerprint of what can be placed; machine: of what it is placed on."""

    model: str
    machine: str


@dataclass(frozen=True, slots=True)
class PresetRow:
    """A placement with a name."""

    id: int
    name: str
    text: str
    updated_s: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """What one answer reached. None where nothing was measured."""

    decode_tok_s: float | None
    prefill_tok_s: float | None
    n_generated: int
    n_prompt: int
    measured_s: float


def digest(text: str) -> str:
    """What tells placements apart in runs."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- reading -------------------------------------------------------------------------------------------------------------


def presets(db: sqlite3.Connection, subject: Subject) -> tuple[PresetRow, ...]:
    """All of a model on a machine, by name."""
    rows = db.execute(
        "SELECT id, name, text, updated_s FROM placement_preset WHERE model = ? AND machine = ? ORDER BY name COLLATE NOCASE, id",
        (subject.model, subject.machine),
    )
    return tuple(PresetRow(*row) for row in rows)


def is_used(db: sqlite3.Connection, path: str) -> bool:
    """Whether a model file was loaded with a placement, on whichever machine."""
    return db.execute("SELECT 1 FROM placement_used WHERE path = ? LIMIT 1", (path,)).fetchone() is not None


def used(db: sqlite3.Connection, path: str, machine: str) -> str:
    """The placement that a model file was loaded with last on a machine, "" for none."""
    row = db.execute("SELECT text FROM placement_used WHERE path = ? AND machine = ?", (path, machine)).fetchone()
    return "" if row is None else str(row[0])


def runs(db: sqlite3.Connection, subject: Subject, text: str) -> tuple[RunRow, ...]:
    """What was measured of a placement, newest first."""
    rows = db.execute(
        "SELECT decode_tok_s, prefill_tok_s, n_generated, n_prompt, measured_s FROM placement_run"
        " WHERE model = ? AND machine = ? AND digest = ? ORDER BY measured_s DESC, id DESC",
        (subject.model, subject.machine, digest(text)),
    )
    return tuple(RunRow(*row) for row in rows)


# --- changing ------------------------------------------------------------------------------------------------------------


def save_preset(db: sqlite3.Connection, subject: Subject, name: str, text: str) -> PresetRow:
    """Keeps a placement under a name; one of that name is replaced."""
    now = time.time()
    row = db.execute(
        "INSERT INTO placement_preset (model, machine, name, text, updated_s) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (model, machine, name) DO UPDATE SET text = excluded.text, updated_s = excluded.updated_s"
        " RETURNING id",
        (subject.model, subject.machine, name, text, now),
    ).fetchone()
    return PresetRow(row[0], name, text, now)


def delete_preset(db: sqlite3.Connection, preset_id: int) -> None:
    """Forgets a preset; one that is not there is no error."""
    db.execute("DELETE FROM placement_preset WHERE id = ?", (preset_id,))


def set_used(db: sqlite3.Connection, path: str, machine: str, text: str) -> None:
    """Notes what a model file is loaded with; an empty text forgets it."""
    if not text:
        db.execute("DELETE FROM placement_used WHERE path = ? AND machine = ?", (path, machine))
        return
    db.execute(
        "INSERT INTO placement_used (path, machine, text, used_s) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (path, machine) DO UPDATE SET text = excluded.text, used_s = excluded.used_s",
        (path, machine, text, time.time()),
    )


def add_run(db: sqlite3.Connection, subject: Subject, text: str, run: RunRow) -> None:
    """Notes what an answer reached; only the newest runs of a placement are kept."""
    key = (subject.model, subject.machine, digest(text))
    db.execute(
        "INSERT INTO placement_run (model, machine, digest, decode_tok_s, prefill_tok_s, n_generated, n_prompt, measured_s)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, run.decode_tok_s, run.prefill_tok_s, run.n_generated, run.n_prompt, run.measured_s),
    )
    db.execute(
        "DELETE FROM placement_run WHERE model = ? AND machine = ? AND digest = ? AND id NOT IN (SELECT id FROM placement_run"
        " WHERE model = ? AND machine = ? AND digest = ? ORDER BY measured_s DESC, id DESC LIMIT ?)",
        (*key, *key, KEPT_RUNS),
    )
