"""Recording: readings as rows of a CSV file, written by a thread of its own so that no disk holds up the window.

A row has its time as ISO 8601 with the offset of the local clock and in monotonic seconds, then one column a gauge with its unit
in the header; what was not known is empty. Gauges that nobody had when the file was begun open a second file beside it, with all
columns.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from app.telemetry import keys
from app.telemetry.readings import (
    CORE_FIELDS,
    CPU_FIELDS,
    DEVICE_FIELDS,
    DISK_FIELDS,
    ENGINE_FIELDS,
    GPU_FIELDS,
    MEMORY_FIELDS,
    NODE_FIELDS,
    PRESSURE_FIELDS,
)
from engine.api.values import HardwareSnapshot

FLUSH_S = 3.0
MAX_WAITING = 600
"""Rows that a disk may be behind, ten minutes; then it does not answer any more."""


@dataclass(frozen=True, slots=True)
class _Row:
    wall_s: float
    time_s: float
    values: Mapping[str, float]
    columns: tuple[str, ...]


def default_name(now: datetime | None = None) -> str:
    """`layerdeck-20261201-014530.csv`."""
    return f"layerdeck-{now or datetime.now():%Y%m%d-%H%M%S}.csv"


def columns_of(snapshot: HardwareSnapshot, devices: Iterable[str] = ()) -> tuple[str, ...]:
    """All gauges of a machine in order, also those that tell nothing now. devices: of the loaded model."""
    totals = (keys.decode(), keys.prefill(), keys.first_token(), keys.vram_used(), keys.ram_used(), keys.power())
    found = [*totals, *(keys.engine(field) for field in ENGINE_FIELDS)]
    names = {*devices, *(f"numa{node.node}" for node in snapshot.nodes), *(f"gpu{i}" for i in range(len(snapshot.gpus)))}
    for name in sorted(names, key=lambda name: (name.startswith("gpu"), len(name), name)):
        found += [keys.device(name, field) for field in DEVICE_FIELDS]
    for gpu in snapshot.gpus:
        found += [keys.gpu(gpu.key, field) for field in GPU_FIELDS]
    for node in snapshot.nodes:
        found += [keys.node(node.node, field) for field in (*CORE_FIELDS, *NODE_FIELDS)]
    found += [keys.cpu(field) for field in ("use_percent", *CPU_FIELDS)]
    found += [keys.memory(field) for field in MEMORY_FIELDS]
    found += [keys.pressure(field) for field in PRESSURE_FIELDS]
    return (*found, *(keys.disk(field) for field in DISK_FIELDS))


def heading(key: str) -> str:
    """`gpu/GPU-5f…/power_w (W)`."""
    unit = keys.unit(key)
    return f"{key} ({unit})" if unit else key


class Recording:
    """One recording. on_end is called once, on its thread: with a sentence when it ended by itself, with "" after `stop`."""

    def __init__(self, path: Path, on_end: Callable[[str], None], flush_s: float = FLUSH_S) -> None:
        """Raises OSError when the file or its folder cannot be made; nothing is overwritten."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._on_end, self._flush_s = on_end, flush_s
        self._file: TextIO = path.open("x", encoding="utf-8", newline="")
        self._header: tuple[str, ...] = ()
        self._n_parts = 1
        self._rows: queue.Queue[_Row | None] = queue.Queue(MAX_WAITING)
        self._late = False
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    def add(self, time_s: float, values: Mapping[str, float], columns: tuple[str, ...]) -> None:
        """One reading, by its monotonic time. columns: of this machine, see `columns_of`."""
        wall_s = time.time() - (time.monotonic() - time_s)
        try:
            self._rows.put_nowait(_Row(wall_s, time_s, dict(values), columns))
        except queue.Full:
            self._late = True

    def stop(self, timeout_s: float = 2.0) -> None:
        """Writes what waits and ends. Idempotent; gives up on a disk that does not answer."""
        try:
            self._rows.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        sentence = ""
        try:
            self._write_all()
        except OSError as error:
            sentence = f"The recording has ended: {_cause(error)} at {self.path}. What was written until then is kept."
        finally:
            try:
                self._file.close()
            except OSError as error:
                sentence = sentence or f"The recording has ended: {_cause(error)} at {self.path}."
        self._on_end(sentence)

    def _write_all(self) -> None:
        flushed = time.monotonic()
        while True:
            try:
                row = self._rows.get(timeout=self._flush_s)
            except queue.Empty:
                row = _NOTHING
            if row is None:
                self._file.flush()
                return
            if row is not _NOTHING:
                self._write(row)
            if self._late:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            if time.monotonic() - flushed >= self._flush_s:
                self._file.flush()
                flushed = time.monotonic()

    def _write(self, row: _Row) -> None:
        known = set(self._header)
        unknown = [key for key in (*row.columns, *row.values) if key not in known]
        if unknown:
            self._begin(tuple(dict.fromkeys((*row.columns, *self._header, *row.values))))
        when = datetime.fromtimestamp(row.wall_s).astimezone().isoformat(timespec="milliseconds")
        values = (row.values.get(key) for key in self._header)
        self._put([when, f"{row.time_s:.3f}", *("" if value is None else f"{value:.10g}" for value in values)])

    def _begin(self, header: tuple[str, ...]) -> None:
        if self._header:
            self._file.close()
            self._n_parts += 1
            self._file = self.path.with_stem(f"{self.path.stem}-{self._n_parts}").open("x", encoding="utf-8", newline="")
        self._header = header
        self._put(["time (ISO 8601)", "monotonic (s)", *(heading(key) for key in header)])

    def _put(self, cells: list[str]) -> None:
        # One write a row: a row is there whole or not at all.
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        self._file.write(line.getvalue())


_NOTHING = _Row(0.0, 0.0, {}, ())


def _cause(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    if error.errno == errno.ETIMEDOUT:
        return "the disk does not answer"
    return f"the file cannot be written ({error.strerror or error})"
