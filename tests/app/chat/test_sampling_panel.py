"""The sampling form: what is shown is what is sent."""

from __future__ import annotations

from dataclasses import fields

import pytest
from pytestqt.qtbot import QtBot

from app.chat.sampling_panel import PRESETS, SamplingPanel, preset_label
from engine.api.values import RANGES, SamplingParams

pytestmark = pytest.mark.usefixtures("themed")


def test_every_number_has_a_row(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    assert {row.spec.field for row in panel._rows} == set(RANGES)
    assert {field.name for field in fields(SamplingParams)} == {*RANGES, "seed", "stop"}


def test_showing_values_changes_none(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    params = SamplingParams(temperature=0.62, top_k=17, seed=5, stop=("END", "x"), max_tokens=99, penalty_window=-1)
    with qtbot.assertNotEmitted(panel.params_changed):
        panel.set_params(params)
    assert panel.params() == params
    panel._on_row_value_changed()
    assert panel.params() == params


def test_a_changed_row_is_reported(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    with qtbot.waitSignal(panel.params_changed) as blocker:
        panel._rows[0]._box.setValue(1.25)
    assert blocker.args == [SamplingParams(temperature=1.25)]


def test_presets_and_labels(qtbot: QtBot) -> None:
    panel = SamplingPanel()
    qtbot.addWidget(panel)
    panel._chips["Creative"].click()
    assert preset_label(panel.params()) == "Creative · 1"
    assert preset_label(SamplingParams(temperature=0.65)) == "Custom · 0.65"
    assert [preset_label(params).split(" ")[0] for _name, params in PRESETS] == [name for name, _params in PRESETS]
