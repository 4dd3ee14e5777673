"""Copies are made by the worker, once a day, and a failure is no trouble."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.ops.backup_ops import AGAIN_MS, BackupOps
from app.store.backup import backups
from tests.app.ops.conftest import Bench


def test_a_copy_is_made_by_the_worker(bench: Bench, tmp_path: Path) -> None:
    bench.load()
    bench.ask("keep me")
    with ThreadPoolExecutor(1) as worker:
        ops = BackupOps(bench.store.path, worker)
        ops.run()
        bench.qtbot.waitUntil(lambda: len(backups(bench.store.path)) == 1)
        ops.run()
    assert len(backups(bench.store.path)) == 1
    assert ops._timer.interval() == AGAIN_MS
    ops.stop()


def test_a_copy_that_fails_changes_nothing(bench: Bench) -> None:
    bench.load()
    bench.ask("keep me")
    (bench.store.path.parent / "backups").write_text("in the way")
    with ThreadPoolExecutor(1) as worker:
        ops = BackupOps(bench.store.path, worker)
        ops.run()
        ops.stop()
    assert backups(bench.store.path) == ()
