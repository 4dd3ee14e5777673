"""Brings together what the checks read, for the command line: one reading of the sensors, counters twice, what was measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

from engine.advice.doctor.context import LIVE, Context
from engine.advice.doctor.counters import read_counters
from engine.advice.doctor.facts import AppFacts, ModelFacts
from engine.advice.doctor.probes import Probes
from engine.hardware.gpu_watch import GpuWatch
from engine.hardware.sampler import Sampler
from engine.hardware.snapshot import HardwareSnapshot
from engine.hardware.user_data import user_data_dir

APART_S = 0.4
"""Between two readings of counters."""
QUICK_S, PATIENT_S = 1.5, 15.0
"""How long cards may take to answer: drivers that rest take seconds to start."""
LOOK_S = 0.02


def gather(
    root: Path = LIVE,
    *,
    env: Mapping[str, str],
    model: ModelFacts | None = None,
    host: str = "",
    thorough: bool = False,
    probes: Probes | None = None,
) -> Context:
    """Everything in at most QUICK_S, or PATIENT_S where it is to be thorough; what is not there by then is not known."""
    began = time.monotonic()
    deadline = began + (PATIENT_S if thorough else QUICK_S)
    before = read_counters(root)
    rates = _Rates(env) if root == LIVE else None
    snapshot = _snapshot(root, model, began, deadline)
    return Context(
        root,
        snapshot=snapshot,
        before=before,
        node_gbps=rates.wait(deadline) if rates is not None else (),
        model=model,
        app=AppFacts(data_folder=user_data_dir(env)),
        peers=probes.peers if probes is not None else None,
        links=probes.links if probes is not None else None,
        torch=probes.torch if probes is not None else None,
        host=host,
        thorough=thorough,
        env=env,
    )


def _snapshot(root: Path, model: ModelFacts | None, began: float, deadline: float) -> HardwareSnapshot:
    """One reading, once every card has answered or time is over."""
    gpus = GpuWatch(root)
    try:
        gpus.adjust(in_use=True, details=True)
        gpus.start(APART_S / 2)
        sampler = Sampler(root, gpus=gpus, slow_s=0.0)
        if model is not None:
            sampler.watch_file(model.path)
        sampler.sample()
        time.sleep(APART_S)
        while not _settled(gpus) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return sampler.sample(time.monotonic() - began)
    finally:
        gpus.close()


def _settled(gpus: GpuWatch) -> bool:
    if gpus.problem:
        return True
    found = gpus.samples()
    return gpus.begun and all(one.state not in ("silent", "ok") or one.processes is not None or one.missing for one in found)


class _Rates:
    """What was measured of this machine, looked up beside: to know which machine it is, cards have to be listed."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._found: tuple[float, ...] = ()
        self._thread: threading.Thread | None = None
        self._folder = user_data_dir(env)
        if any(self._folder.glob("calibration-*.json")):
            self._thread = threading.Thread(target=self._read, name="doctor rates", daemon=True)
            self._thread.start()

    def _read(self) -> None:
        from engine.errors import EngineError
        from engine.estimate.calibration import load_calibration
        from engine.hardware.machine import this_machine

        try:
            kept = load_calibration(self._folder, this_machine())
        except EngineError:
            return
        if kept is not None and kept.measured:
            self._found = tuple(max(gbps for _, gbps in node.read_gbps) for node in kept.nodes if node.read_gbps)

    def wait(self, deadline: float) -> tuple[float, ...]:
        """GB/s of each node; () where nothing was measured or it takes too long."""
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        return self._found
