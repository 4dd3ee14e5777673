"""Recordings: a row a reading, units in the header, whole rows after a crash, a full disk ends them and nothing else."""

from __future__ import annotations

import csv
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from app.telemetry import keys
from app.telemetry.recording import Recording, columns_of, default_name
from engine.api.values import DeviceWork, EngineSample
from tests.app.ops.conftest import Bench
from tests.app.ops.test_monitor_ops import read, snapshot, start


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def wait_for(condition: Any, within_s: float = 5.0) -> None:
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.01)


def test_rows_of_readings(bench: Bench) -> None:
    at = start(bench)
    changes: list[str] = []
    bench.monitors.recording_changed.connect(changes.append)
    bench.monitors.record()
    path = Path(bench.monitors.recording_path)
    assert path.parent.name == "recordings"
    for i in range(3):
        work = EngineSample(at + i, 1.0, decode_tok_s=13.1 + i, devices=(DeviceWork("numa0", 70.0),))
        read(bench, at + i, work)
    bench.monitors.stop_recording()
    assert changes == [str(path), ""]
    rows = rows_of(path)
    assert [row["engine/decode_tok_s (tok/s)"] for row in rows] == ["13.1", "14.1", "15.1"]
    assert [row["device/numa0/working_percent (%)"] for row in rows] == ["70"] * 3
    assert [row["gpu/GPU-a/power_w (W)"] for row in rows] == ["300"] * 3
    # Nobody could say; the column is there all the same.
    assert [row["gpu/GPU-a/fan_percent (%)"] for row in rows] == [""] * 3
    assert [float(row["monotonic (s)"]) for row in rows] == pytest.approx([at, at + 1, at + 2], abs=1e-3)
    when = [datetime.fromisoformat(row["time (ISO 8601)"]) for row in rows]
    assert all(one.tzinfo is not None for one in when)
    assert abs((when[1] - when[0]).total_seconds() - 1.0) < 0.01
    assert not bench.notices


def test_recording_watches_even_when_nobody_looks(bench: Bench) -> None:
    bench.monitors.record()
    assert bench.monitors.period_s == 1.0
    bench.monitors.stop_recording()
    assert bench.monitors.period_s == 0.0


def test_nothing_is_overwritten(bench: Bench, tmp_path: Path) -> None:
    target = tmp_path / "mine.csv"
    target.write_text("mine")
    bench.monitors.record(str(target))
    assert bench.monitors.recording_path == ""
    assert bench.notices == [f"{target} is there already; choose another name."]
    assert target.read_text() == "mine"
    bench.monitors.record("/proc/no/such/folder/x.csv")
    assert "cannot be made" in bench.notices[-1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_ends_the_recording_and_nothing_else(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    at = start(bench)
    opened = Path.open

    def full(path: Path, mode: str = "r", **more: Any) -> Any:
        return opened(Path("/dev/full"), "w", **more) if path.suffix == ".csv" else opened(path, mode, **more)

    monkeypatch.setattr(Path, "open", full)
    monkeypatch.setattr("app.telemetry.recording.FLUSH_S", 0.0)
    monkeypatch.setattr(Recording.__init__, "__defaults__", (0.01,))
    bench.monitors.record()
    i = 0
    while not bench.notices and i < 500:
        read(bench, at + i)
        bench.qtbot.wait(2)
        i += 1
    assert len(bench.notices) == 1
    assert "the disk is full" in bench.notices[0]
    assert bench.monitors.recording_path == ""
    # The monitors live.
    read(bench, at + 1000)
    snapshot_now = bench.monitors.snapshot
    assert snapshot_now is not None
    assert snapshot_now.time_s == at + 1000


def test_new_gauges_open_a_second_file_with_all_columns(tmp_path: Path) -> None:
    ended: list[str] = []
    recording = Recording(tmp_path / "r.csv", ended.append)
    recording.add(1.0, {keys.decode(): 1.0}, (keys.decode(),))
    recording.add(2.0, {keys.decode(): 2.0, keys.gpu("new", "power_w"): 5.0}, (keys.decode(),))
    recording.stop()
    assert ended == [""]
    assert [row["engine/decode_tok_s (tok/s)"] for row in rows_of(tmp_path / "r.csv")] == ["1"]
    second = rows_of(tmp_path / "r-2.csv")
    assert [(row["engine/decode_tok_s (tok/s)"], row["gpu/new/power_w (W)"]) for row in second] == [("2", "5")]


def test_rows_are_on_disk_within_seconds(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "r.csv", lambda _: None, flush_s=0.05)
    recording.add(1.0, {keys.decode(): 1.0}, ())
    wait_for(lambda: len((tmp_path / "r.csv").read_text().splitlines()) == 2)
    recording.stop()


def test_a_disk_that_does_not_answer_ends_it_without_holding_anybody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr("app.telemetry.recording.MAX_WAITING", 3)
    recording = Recording(tmp_path / "r.csv", ended.append)
    held = [True]

    def slow(_: Any) -> None:
        while held:
            time.sleep(0.01)

    monkeypatch.setattr(recording, "_write", slow)
    began = time.monotonic()
    for i in range(10):
        recording.add(float(i), {}, ())
    assert time.monotonic() - began < 1.0
    held.clear()
    wait_for(lambda: bool(ended))
    assert "does not answer" in ended[0]


def test_columns_and_names() -> None:
    columns = columns_of(snapshot(1.0), ("gpu0", "numa0", "gpu10", "gpu2"))
    assert len(set(columns)) == len(columns)
    devices = list(dict.fromkeys(keys.split(key)[1] for key in columns if key.startswith("device/")))
    assert devices == ["numa0", "gpu0", "gpu2", "gpu10"]
    assert default_name(datetime(2026, 2, 3, 4, 5, 6)) == "layerdeck-20260203-040506.csv"
