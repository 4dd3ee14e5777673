"""Applying, measuring and keeping placements over a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.ops.placement_library import same_places
from app.ops.placement_measure import Measured, order, prompt_of
from app.ops.placement_moves import differing
from engine.api.commands import ApplyPlacement, Generate, LoadModel
from engine.api.errors import EngineError
from engine.api.events import Failed
from engine.api.pure import Gpu, equivalent_commands
from engine.api.values import Usage
from engine.placement.over_nodes import with_spread
from engine.placement.placement import WorkerPlan
from engine.placement.spread import Interleave, even
from tests.helpers.fake_engine import Fail, Prefill, Stall, words
from tests.helpers.placement_bench import PlacementBench, placement_bench

FULL = Fail("OutOfDeviceMemory", "GPU 1 (RTX 3090) has 1.0 GB free and 2.0 GB are needed; move the experts of layer 4")
ANSWER = (
    Prefill(400, 400),
    words("one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"),
)


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path) -> Iterator[PlacementBench]:
    with placement_bench(qtbot, tmp_path) as made:
        yield made


# --- applying ------------------------------------------------------------------------------------------------------------


def test_a_loaded_model_is_moved_and_counts_as_loaded_so(bench: PlacementBench) -> None:
    bench.load()
    bench.move_experts(3, 4)
    assert (bench.desk.pending, bench.parts.apply.can_move()) == (2, True)
    with bench.qtbot.waitSignals([bench.parts.apply.progressed, bench.parts.apply.done]):
        bench.parts.apply.apply()
        assert bench.desk.state == "applying"
    assert bench.desk.state == "ready"
    assert bench.desk.pending == 0
    assert len(bench.engine.sent(ApplyPlacement)) == 1
    model = bench.bridge.state.model
    assert model is not None and model.placement is not None
    assert same_places(model.placement, bench.placement)


def test_a_model_that_is_not_loaded_is_loaded_with_the_placement(bench: PlacementBench) -> None:
    bench.open()
    bench.move_experts(3)
    with bench.qtbot.waitSignal(bench.parts.apply.done) as told:
        bench.parts.apply.apply()
    assert told.args[0].reloaded
    (command,) = bench.engine.sent(LoadModel)
    assert isinstance(command, LoadModel)
    assert command.path == bench.path
    assert same_places(bench.parts.library.read(command.options.placement).placement, bench.placement)
    assert (bench.desk.pending, bench.desk.state) == (0, "ready")


def test_a_failure_leaves_the_model_and_the_edits_as_they_were(bench: PlacementBench) -> None:
    bench.load()
    bench.move_experts(3, 4)
    bench.engine.apply = (FULL,)
    before = bench.desk.applied
    with bench.qtbot.waitSignal(bench.parts.apply.failed) as told:
        bench.parts.apply.apply()
    assert told.args == [FULL.message]
    assert bench.parts.apply.failure == FULL.message
    assert (bench.desk.state, bench.desk.pending) == ("ready", 2)
    assert bench.desk.applied == before


def test_applying_can_be_stopped(bench: PlacementBench) -> None:
    bench.load()
    bench.move_experts(3)
    bench.engine.apply = (Stall(60.0),)
    with bench.qtbot.waitSignal(bench.parts.apply.progressed):
        bench.parts.apply.apply()
    bench.qtbot.wait(50)
    with bench.qtbot.waitSignal(bench.parts.apply.failed) as told:
        bench.parts.apply.cancel()
    assert "as it was" in told.args[0]
    assert (bench.desk.state, bench.desk.pending) == ("ready", 1)


def test_the_next_load_of_the_file_takes_the_placement_that_was_applied_last(bench: PlacementBench) -> None:
    bench.load()
    bench.move_experts(3, 4)
    with bench.qtbot.waitSignal(bench.parts.apply.done):
        bench.parts.apply.apply()
    bench.store.change(lambda db: None).result(5)
    bench.parts.models.load(bench.path)
    bench.qtbot.waitUntil(lambda: len(bench.engine.sent(LoadModel)) == 2)
    command = bench.engine.sent(LoadModel)[1]
    assert isinstance(command, LoadModel)
    assert same_places(bench.parts.library.read(command.options.placement).placement, bench.placement)


def test_a_remembered_placement_that_means_nothing_any_more_is_forgotten_and_the_model_loaded_without(
    bench: PlacementBench,
) -> None:
    bench.open()
    bench.parts.library.set_used(bench.path, bench.placement)
    bench.store.change(lambda db: None).result(5)
    bench.engine.load = (Fail("PlacementError", "the placement names gpu1, which is not there"),)
    notices: list[str] = []
    bench.parts.models.notice.connect(notices.append)
    bench.parts.models.load(bench.path)
    bench.qtbot.waitUntil(lambda: len(bench.engine.sent(LoadModel)) == 2)
    second = bench.engine.sent(LoadModel)[1]
    assert isinstance(second, LoadModel)
    assert second.options.placement == ""
    assert "gpu1" in notices[0]


def test_the_workers_of_the_loaded_model_measure_both(bench: PlacementBench) -> None:
    bench.load()
    model = bench.bridge.state.model
    assert model is not None and model.placement is not None
    workers = model.placement.workers
    other = replace(bench.placement, workers=WorkerPlan((-1,) * (workers.n_workers + 3)))
    bench.engine.answer = ANSWER
    with bench.qtbot.waitSignal(bench.parts.measure.ended, timeout=30_000):
        bench.parts.measure.start(model.placement, other, other, 2)
    sent = bench.engine.sent(ApplyPlacement)
    assert len(sent) == 5 and {one.placement.workers for one in sent if isinstance(one, ApplyPlacement)} == {workers}


# --- keeping -------------------------------------------------------------------------------------------------------------


def test_presets_are_kept_named_and_deleted(bench: PlacementBench) -> None:
    bench.open()
    library, first = bench.parts.library, bench.placement
    bench.qtbot.waitUntil(lambda: library.default is not None)  # which is told by the same signal
    bench.move_experts(2)
    with bench.qtbot.waitSignal(library.presets_changed):
        library.save("On a GPU", bench.placement)
    assert library.name_of(bench.placement) == "On a GPU"
    assert library.name_of(first) == ""
    with bench.qtbot.waitSignal(library.presets_changed):
        library.delete("On a GPU")
    assert library.presets == ()


def test_the_text_of_a_placement_reads_back_as_it_was_and_so_do_the_flags_of_another_tool(bench: PlacementBench) -> None:
    bench.open()
    bench.move_experts(2, 5)
    library, outline = bench.parts.library, bench.desk.outline
    assert outline is not None
    assert same_places(library.read(library.text_of(bench.placement)).placement, bench.placement)
    on_cpu = library.read("-ngl 99 -ot exps=CPU").placement
    assert {str(device) for unit, device in on_cpu.units if unit.kind == "experts"} == {"numa0"}
    whole = [one for one in equivalent_commands(on_cpu, outline, bench.desk.options) if not one.notes]
    assert {"llama.cpp", "KTransformers rules"} <= {one.label for one in whole}
    for one in whole:
        assert same_places(library.read(one.text).placement, on_cpu), one.label
    with pytest.raises(EngineError):
        library.read('{"layerdeck": "placement", "version": 1}')


def test_a_placement_over_several_nodes_is_not_the_one_on_the_first(bench: PlacementBench) -> None:
    bench.open()
    on_one = bench.placement
    experts = [unit for unit, where in on_one.units if unit.kind == "experts"]
    spread, other = with_spread(on_one, experts, even((0, 1))), with_spread(on_one, experts, Interleave((0, 1)))
    assert not same_places(on_one, spread) and not same_places(spread, other)
    assert same_places(spread, with_spread(on_one, experts, even((0, 1))))
    moved = replace(spread, units=tuple((unit, Gpu(0)) for unit, _ in spread.units))  # where nothing is spread any more
    assert same_places(moved, replace(moved, spreads=()))
    assert differing(on_one, spread) == differing(spread, other) == differing(spread, on_one) == frozenset(experts)
    assert not differing(spread, with_spread(on_one, experts, even((0, 1)))) and not differing(moved, replace(moved, spreads=()))


def test_only_answers_that_are_long_enough_are_noted(bench: PlacementBench) -> None:
    bench.open()
    library = bench.parts.library
    assert not library.add_run(bench.placement, Usage(n_prompt=10, n_generated=3, decode_tok_s=99.0, prefill_tok_s=99.0))
    for usage in (
        Usage(n_prompt=400, n_generated=40, decode_tok_s=12.0, prefill_tok_s=200.0),
        Usage(n_prompt=400, n_reused=390, n_generated=40, decode_tok_s=14.0, prefill_tok_s=9.0),
    ):
        with bench.qtbot.waitSignal(library.runs_changed):
            assert library.add_run(bench.placement, usage)
    newest, first = library.runs(bench.placement)
    assert (newest.decode_tok_s, newest.prefill_tok_s) == (14.0, None)
    assert (first.decode_tok_s, first.prefill_tok_s) == (12.0, 200.0)


# --- measuring -----------------------------------------------------------------------------------------------------------


def test_runs_take_turns_so_that_a_drift_falls_on_both() -> None:
    assert order(3) == (0, 1, 1, 0, 0, 1)
    assert sum(order(9)) == 9
    assert prompt_of(1) != prompt_of(2)
    assert len(prompt_of(1)) == len(prompt_of(200))


def test_two_placements_are_measured_in_turn_and_the_first_one_is_put_back(bench: PlacementBench) -> None:
    bench.load()
    first = bench.placement
    bench.move_experts(3, 4)
    second = bench.placement
    bench.engine.answer = ANSWER
    with bench.qtbot.waitSignal(bench.parts.measure.ended, timeout=20_000) as told:
        bench.parts.measure.start(first, second, first, 2)
    measured = told.args[0]
    assert isinstance(measured, Measured)
    assert (measured.done, measured.total) == (4, 4)
    assert [len(side) for side in measured.decode] == [2, 2]
    assert [len(side) for side in measured.prefill] == [2, 2]
    applied = [command.placement for command in bench.engine.sent(ApplyPlacement) if isinstance(command, ApplyPlacement)]
    assert applied == [first, second, second, first, first]
    prompts = [command.prompt for command in bench.engine.sent(Generate) if isinstance(command, Generate)]
    assert len(set(prompts)) == 4
    assert not bench.parts.measure.running


def test_measuring_can_be_stopped_and_puts_the_first_one_back(bench: PlacementBench) -> None:
    bench.load()
    first = bench.placement
    bench.move_experts(3)
    second = bench.placement
    bench.engine.answers = [ANSWER]
    bench.engine.answer = (Stall(60.0),)
    with bench.qtbot.waitSignal(bench.parts.measure.progress, check_params_cb=lambda measured: measured.done == 1):
        bench.parts.measure.start(first, second, first, 3)
    bench.qtbot.waitUntil(lambda: len(bench.engine.sent(Generate)) == 2)
    with bench.qtbot.waitSignal(bench.parts.measure.ended) as told:
        bench.parts.measure.stop()
    assert told.args[0].done == 1
    last = bench.engine.sent(ApplyPlacement)[-1]
    assert isinstance(last, ApplyPlacement) and last.placement == first


def test_a_placement_that_cannot_be_had_ends_the_measurement_with_a_sentence(bench: PlacementBench) -> None:
    bench.load()
    first = bench.placement
    bench.move_experts(3)
    bench.engine.apply = (FULL,)
    events: list[object] = []
    bench.bridge.happened.connect(events.append)
    with bench.qtbot.waitSignal(bench.parts.measure.failed) as told:
        bench.parts.measure.start(first, bench.placement, first, 2)
    assert FULL.message in told.args[0]
    assert any(isinstance(event, Failed) for event in events)
    assert not bench.parts.measure.running
