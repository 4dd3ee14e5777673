"""The page in figures and words: deltas, measured figures with their date, what does not fit, comparisons."""

from __future__ import annotations

import time

import pytest

from app.ops.placement_measure import Measured
from app.store.placements import RunRow
from app.windows.placement_compare import measured_rows, verdict
from app.windows.placement_figures import (
    comparison_rows,
    day_text,
    over_sentence,
    sentence_case,
    signed_rate,
    summary,
    whole_rate,
)
from app.windows.placement_inspector import all_layers, ms_text, one_layer
from engine.api.pure import Gpu, Numa, UnitId
from engine.api.values import LoadOptions
from tests.helpers.fake_planner import ScriptedPlanner, machine, outline

PLANNER = ScriptedPlanner(outline(), LoadOptions(), machine())
BEFORE = PLANNER.default()
AFTER = PLANNER.move(BEFORE, (UnitId("experts", 4),), Gpu(1))
NOON = time.mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))


def test_an_estimate_shows_its_bound_and_its_deltas() -> None:
    figures = summary(PLANNER.estimate(AFTER), PLANNER.estimate(BEFORE), (), NOON)
    decode = figures[0]
    assert decode.label == "Decode, estimated"
    assert decode.note.startswith("at most ")
    assert (decode.delta[0], decode.delta_tone) == ("+", "ok")
    back = summary(PLANNER.estimate(BEFORE), PLANNER.estimate(AFTER), (), NOON)
    assert (back[0].delta[0], back[0].delta_tone) == ("−", "err")
    assert all(one.delta == "" for one in summary(PLANNER.estimate(AFTER), None, (), NOON))


def test_what_was_measured_takes_the_place_of_the_estimate_with_its_time() -> None:
    runs = (RunRow(12.0, None, 64, 16, NOON - 3600), RunRow(13.0, 210.0, 64, 400, NOON - 7200))
    decode, prefill, *_ = summary(PLANNER.estimate(AFTER), PLANNER.estimate(BEFORE), runs, NOON)
    assert decode.label == "Decode, measured 11:00"
    assert decode.value == "12.5"
    assert decode.note.startswith("estimated ")
    assert (prefill.label, prefill.value) == ("Prefill, measured 11:00", "210")


def test_times_are_told_as_short_as_they_can_be() -> None:
    assert day_text(NOON - 60, NOON) == "11:59"
    assert day_text(NOON - 86_400 * 10, NOON) == "24 Apr"
    assert day_text(NOON - 86_400 * 400, NOON) == "30 Mar 2025"


def test_what_does_not_fit_is_told_with_the_arithmetic() -> None:
    full = PLANNER.move(BEFORE, tuple(UnitId("experts", layer) for layer in range(3, 9)), Gpu(0))
    prediction = PLANNER.estimate(full)
    sentence = over_sentence(prediction)
    assert sentence.startswith("GPU 0 is ") and "are planned and 24 GB can be taken." in sentence
    tightest = summary(prediction, None, (), NOON)[-1]
    assert (tightest.value, tightest.unit_tone) == ("GPU 0", "err")
    assert tightest.unit.endswith("over")
    assert over_sentence(PLANNER.estimate(BEFORE)) == ""


def test_two_placements_stand_side_by_side_by_figure_and_device() -> None:
    rows = {row.label: row for row in comparison_rows(PLANNER.estimate(BEFORE), PLANNER.estimate(AFTER))}
    assert rows["Decode, tok/s"].cells[2].startswith("+") and rows["Decode, tok/s"].tone == "ok"
    assert rows["GPU 1"].cells[2] == "+6.3 GB"
    assert rows["NUMA 0"].cells[2] == "−6.3 GB"
    assert rows["GPU 0"].cells[2] == ""


@pytest.mark.parametrize(("change", "text"), [(0.8, "+0.8"), (-12.4, "−12"), (0.04, ""), (-0.04, ""), (1449.0, "+1.4k")])
def test_signed_rates(change: float, text: str) -> None:
    assert signed_rate(change) == text


def test_rates_have_three_digits_and_sentences_begin_large_but_for_names_of_files() -> None:
    assert [whole_rate(one) for one in (12.14, 240.4, 6168.0, 33_702.0)] == ["12.1", "240", "6,170", "33,700"]
    assert [ms_text(one) for one in (1.424, 29.64)] == ["1.42 ms", "29.6 ms"]
    assert sentence_case("another placement") == "Another placement."
    assert sentence_case("m.gguf: no model.") == "m.gguf: no model."


def test_measured_rows_hold_mean_and_scatter_and_the_verdict_says_whether_it_is_chance() -> None:
    apart = Measured(((12.0, 12.1, 11.9), (12.9, 13.0, 12.8)), ((200.0, 210.0, 205.0), ()), 6, 6)
    decode, prefill = measured_rows(apart)
    assert decode.cells == ("12.0 ± 0.1", "12.9 ± 0.1", "+7.5 %")
    assert prefill.cells == ("205 ± 5", "—", "")
    assert verdict(apart) == "B decodes 7.5 % faster (p < 0.001)."
    same = Measured(((12.0, 13.0, 11.0), (12.4, 13.3, 11.6)), ((), ()), 6, 6)
    assert verdict(same).startswith("No significant difference (p = 0.")
    assert verdict(Measured(((12.0,), (12.4,)), ((), ()), 2, 2)).startswith("Too few runs")


def test_what_the_hottest_experts_serve_is_counted_exactly() -> None:
    row = [60, 20, 10, 10]
    use = one_layer(4, row, 4, 1, "100 tokens")
    assert use.sentence == "Hottest 1 of 4 serve 60 % of reads"
    assert use.top == "60.0 %"
    assert use.levels == bytes([255, 85, 42, 42])
    assert one_layer(4, [0, 0, 0, 0], 4, 1, "").empty
    whole = all_layers({3: row, 4: [1, 1, 1, 1], 5: [0, 0, 0, 0]}, 4, "")
    assert whole.layers == (3, 4)
    assert whole.sentence == "Hottest 1 of 4 serve 42 % of reads"
    assert all_layers({}, 4, "").empty


def test_devices_are_told_by_their_names() -> None:
    assert summary(PLANNER.estimate(BEFORE), None, (), NOON)[3].value in ("NUMA 0", "NUMA 1")
    assert PLANNER.estimate(BEFORE).limit_device in (Numa(0), Numa(1))
