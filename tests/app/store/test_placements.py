"""Placements in the store: presets by model and machine, what a model was loaded with, runs, and the migration that made room."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from app.ops.placement_memory import remembered_placement
from app.store import chats, placements
from app.store.chat_store import ChatStore
from app.store.db import connect, migrate, migrations
from app.store.placements import KEPT_RUNS, RunRow, Subject
from app.store.salvage import salvage

HERE = Subject("qwen3moe-1", "desk")


def test_presets_belong_to_a_model_and_a_machine_and_one_name_stands_once(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.db")
    first = store.change(lambda db: placements.save_preset(db, HERE, "Balanced", "a")).result(5)
    store.change(lambda db: placements.save_preset(db, HERE, "all on the CPU", "b")).result(5)
    store.change(lambda db: placements.save_preset(db, Subject(HERE.model, "server"), "Balanced", "c")).result(5)
    again = store.change(lambda db: placements.save_preset(db, HERE, "Balanced", "d")).result(5)
    assert again.id == first.id
    found = store.placement(lambda db: placements.presets(db, HERE))
    assert [(row.name, row.text) for row in found] == [("all on the CPU", "b"), ("Balanced", "d")]
    store.change(lambda db: placements.delete_preset(db, first.id)).result(5)
    assert [row.name for row in store.placement(lambda db: placements.presets(db, HERE))] == ["all on the CPU"]
    assert len(store.placement(lambda db: placements.presets(db, Subject(HERE.model, "server")))) == 1
    store.close()


def test_what_a_model_was_loaded_with_is_found_by_its_file_and_can_be_forgotten(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.db")
    store.change(lambda db: placements.set_used(db, "/m.gguf", "desk", "one")).result(5)
    store.change(lambda db: placements.set_used(db, "/m.gguf", "desk", "two")).result(5)
    assert store.placement(lambda db: placements.used(db, "/m.gguf", "desk")) == "two"
    assert store.placement(lambda db: placements.used(db, "/m.gguf", "server")) == ""
    store.change(lambda db: placements.set_used(db, "/m.gguf", "desk", "")).result(5)
    assert store.placement(lambda db: placements.used(db, "/m.gguf", "desk")) == ""
    store.close()


def test_runs_are_kept_by_placement_newest_first_and_only_so_many(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.db")

    def measure(db: sqlite3.Connection) -> None:
        for i in range(KEPT_RUNS + 5):
            placements.add_run(db, HERE, "a", RunRow(float(i), None, 64, 16, 1000.0 + i))
        placements.add_run(db, HERE, "b", RunRow(99.0, 400.0, 64, 16, 5000.0))

    store.change(measure).result(5)
    found = store.placement(lambda db: placements.runs(db, HERE, "a"))
    assert [row.decode_tok_s for row in found] == [float(i) for i in range(KEPT_RUNS + 4, 4, -1)]
    assert store.placement(lambda db: placements.runs(db, HERE, "b")) == (RunRow(99.0, 400.0, 64, 16, 5000.0),)
    store.close()


def test_a_database_of_the_version_before_gets_room_for_placements_and_keeps_its_chats(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    db = connect(path)
    migrate(db, migrations()[:2], path)
    chat = chats.add_chat(db, "kept").id
    db.close()
    store = ChatStore(path)
    assert store.chat(chat).title == "kept"
    assert store.placement(lambda db: placements.presets(db, HERE)) == ()
    store.change(lambda db: placements.save_preset(db, HERE, "p", "x")).result(5)
    store.close()
    db = connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (len(migrations()),)
    db.close()


def test_presets_survive_a_damaged_database(tmp_path: Path) -> None:
    store = ChatStore(tmp_path / "chats.db")
    store.change(lambda db: placements.save_preset(db, HERE, "Balanced", "{}")).result(5)
    store.close()
    target = connect(tmp_path / "new.db")
    migrate(target, migrations(), "new")
    salvage(tmp_path / "chats.db", target)
    assert [row.name for row in placements.presets(target, HERE)] == ["Balanced"]
    target.close()


def test_a_file_that_was_never_placed_costs_no_look_at_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ChatStore(tmp_path / "chats.db")
    looks: list[int] = []
    monkeypatch.setattr("app.ops.placement_memory.machine_key", lambda: looks.append(1) or "desk")
    assert remembered_placement(store, "/m.gguf") == ""
    assert looks == []
    store.change(lambda db: placements.set_used(db, "/m.gguf", "desk", "text")).result(5)
    assert remembered_placement(store, "/m.gguf") == "text"
    store.close()
