"""How long a step of a drag takes until the new figures are painted: 94 layers of 1,131 tensors, four GPUs and a node, the
engine's own planner; alone, and while the engine answers on its thread.

Judged by the processor time of the window's thread, which other programs take no part in, as a core would take it that shares
nothing (`tests.helpers.beside`), and by the best of three rounds.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.bridge.engine_bridge import EngineBridge
from app.qtmodels.placement_mime import card_mime
from engine.api.commands import Generate, LoadModel
from engine.api.pure import Gpu, Numa, Planner, UnitId, machine_of, read_outline
from engine.api.values import LoadOptions, SamplingParams
from engine.service.engine import Engine
from tests.helpers.beside import BESIDE, slowness
from tests.helpers.hollow import hollow_mixture
from tests.helpers.models import need_included_model
from tests.helpers.placement_table import Table, opened_desk, shown_board

pytestmark = [pytest.mark.usefixtures("themed"), pytest.mark.slow]
BOUND_MS = 16.0 * BESIDE
"""A frame. Beside another process of tests also the caches are shared."""
DROP_MS = 24.0 * BESIDE
"""Once a drag, other cards are made, and columns filled with them: with the second frame."""
N_LAYERS = 94


@pytest.fixture
def table(qtbot: QtBot, tmp_path: Path) -> Iterator[Table]:
    """Qwen3-235B-A22B in front of four cards."""
    box = {"ram_gib": 512, "gpus": [{"name": "RTX 4090", "memory_gib": 24, "count": 4}]}
    (tmp_path / "box.json").write_text(json.dumps(box), encoding="utf-8")
    model = read_outline(str(hollow_mixture(tmp_path / "hollow.gguf", N_LAYERS)))
    machine = machine_of(str(tmp_path / "box.json"))
    options = LoadOptions(n_ctx=16_384)
    with opened_desk(qtbot, model, machine, Planner, options) as desk, shown_board(qtbot, desk, (1250, 800)) as shown:
        yield shown


def one_round(table: Table, first: int) -> tuple[list[float], list[float]]:
    """Milliseconds of steps into other columns, and of drops that move something."""
    steps: list[float] = []
    drops: list[float] = []
    slow = slowness()
    devices = [row.device for row in table.desk.devices()]
    for layer in range(first, first + 8):
        cards = [UnitId("mixer", layer)]
        for device in devices:
            started = time.thread_time()
            table.enter(cards, device)
            QApplication.processEvents()
            steps.append(1e3 * (time.thread_time() - started))
        device = devices[layer % 4]
        table.enter(cards, device)
        QApplication.processEvents()
        started = time.thread_time()
        table.let_go(card_mime(cards), device)
        QApplication.processEvents()
        drops.append(1e3 * (time.thread_time() - started))
    slow = (slow + slowness()) / 2
    return [one / slow for one in steps], [one / slow for one in drops]


def judge(table: Table) -> tuple[float, float]:
    """The 90th percentile of steps and of drops, of the best of three rounds."""
    rounds = [one_round(table, 8 * i) for i in range(3)]
    return tuple(min(statistics.quantiles(one[kind], n=10)[8] for one in rounds) for kind in (0, 1))  # type: ignore[return-value]


def test_figures_follow_a_drag_within_a_frame(table: Table) -> None:
    assert len(table.desk.cards()) == 4 * N_LAYERS + 2
    assert {row.device for row in table.desk.devices()} == {*(Gpu(i) for i in range(4)), Numa(0)}
    one_round(table, 90 - 8)
    steps, drops = judge(table)
    assert steps <= BOUND_MS, (steps, drops)
    assert drops <= DROP_MS, (steps, drops)


def test_figures_follow_a_drag_while_the_engine_answers(table: Table, qtbot: QtBot) -> None:
    bridge = EngineBridge(Engine())
    try:
        bridge.submit(LoadModel(bridge.new_id(), str(need_included_model()), LoadOptions(n_threads=1)))
        qtbot.waitUntil(lambda: bridge.state.kind == "ready")
        sampling = SamplingParams(temperature=0.0, max_tokens=2000)
        asked = bridge.new_id()
        bridge.submit(Generate(asked, prompt="Once upon a time", sampling=sampling, ignore_eog=True))
        qtbot.waitUntil(lambda: bridge.state.kind == "generating")
        one_round(table, 90 - 8)
        steps, drops = judge(table)
        assert bridge.state.kind == "generating"
        bridge.cancel(asked)
        qtbot.waitUntil(lambda: bridge.state.kind == "ready")
    finally:
        bridge.close()
    assert steps <= BOUND_MS, (steps, drops)
    assert drops <= DROP_MS, (steps, drops)
