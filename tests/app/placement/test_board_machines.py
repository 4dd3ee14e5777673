"""The board over the engine's own planner on machines that are not at hand: emulated cards, and a box that a file describes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.api.pure import Gpu, Numa, Planner, UnitId, machine_of, read_outline, this_machine
from engine.api.values import LoadOptions
from tests.helpers.golden_models import golden
from tests.helpers.hollow import hollow_mixture
from tests.helpers.placement_table import opened_desk, shown_board

pytestmark = pytest.mark.usefixtures("themed")


def test_emulated_cards_are_columns(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYERDECK_GPU", "emulate:4")
    model = read_outline(str(golden("qwen3moe").path))
    with opened_desk(qtbot, model, this_machine(), Planner, LoadOptions()) as desk, shown_board(qtbot, desk) as table:
        assert [row.name for row in desk.devices()] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3", "NUMA 0"]
        assert len(desk.cards()) == len(model.units)
        before = desk.prediction
        assert before is not None
        table.drop([UnitId("mixer", 0)], Gpu(3))
        assert table.titles(Gpu(3)) == ["Attention, layer 0", "KV, layer 0"]
        assert desk.prediction is not None
        assert desk.prediction.of(Gpu(3)).attention > before.of(Gpu(3)).attention == 0


def test_a_box_of_a_file_is_planned_for(qtbot: QtBot, tmp_path: Path) -> None:
    box = {
        "gpus": [{"name": "RTX 4090", "memory_gib": 24, "count": 4}],
        "nodes": [{"name": "EPYC 7B13", "ram_gib": 256, "cores": 64, "read_gbps": 170, "count": 2}],
    }
    (tmp_path / "box.json").write_text(json.dumps(box), encoding="utf-8")
    model, machine = read_outline(str(hollow_mixture(tmp_path / "hollow.gguf"))), machine_of(str(tmp_path / "box.json"))
    with opened_desk(qtbot, model, machine, Planner, LoadOptions(n_ctx=16_384)) as desk, shown_board(qtbot, desk) as table:
        hardware = [row.hardware for row in desk.devices()]
        assert hardware == ["RTX 4090"] * 4 + ["EPYC 7B13 · 64 cores"] * 2
        layers = [unit for unit, device in desk.placement.units if unit.kind == "experts" and device == Numa(0)]  # type: ignore[union-attr]
        table.drop(layers[:4], Numa(1))
        assert [card.id for card in desk.cards_of(Numa(1))] == layers[:4]
        for device in (Gpu(0), Gpu(1), Numa(0)):
            assert table.board.column(device).head.state.now == desk.prediction.of(device)  # type: ignore[union-attr]
