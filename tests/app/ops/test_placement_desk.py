"""The placement desk over a scripted planner: opening, moving, previews, refusals, pins, undo, what is applied, heat."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.ui_thread import UiThread
from app.ops.placement_cards import HotSet
from app.ops.placement_desk import PlacementDesk
from engine.api.errors import GgufError
from engine.api.pure import Gpu, ModelOutline, Numa, Pool, UnitId
from tests.helpers.fake_planner import GB, SIZES, ScriptedPlanner, machine, outline
from tests.helpers.placement_table import opened_desk


@dataclass
class Desk:
    """A desk with the model of the pictures, and what it told."""

    desk: PlacementDesk
    changed: list[frozenset[object]]
    pending: list[int]
    states: list[str]
    notices: list[str]
    predicted: list[float]

    def device(self, kind: str, layer: int = -1) -> object:
        """Where a unit lies."""
        assert self.desk.placement is not None
        return self.desk.placement.device_of(UnitId(kind, layer))  # type: ignore[arg-type]


def experts(*layers: int) -> list[UnitId]:
    return [UnitId("experts", layer) for layer in layers]


@pytest.fixture
def bare(qtbot: QtBot) -> Iterator[Desk]:
    ui, pool = UiThread(), ThreadPoolExecutor(1)

    def read(path: str) -> ModelOutline:
        if "broken" in path:
            raise GgufError("broken.gguf: byte 8: a header of 3 bytes; get the model again")
        return outline()

    desk = PlacementDesk(ui, pool, make_planner=ScriptedPlanner, read=read, machine=machine)
    made = Desk(desk, [], [], [], [], [])
    desk.changed.connect(made.changed.append)
    desk.pending_changed.connect(made.pending.append)
    desk.state_changed.connect(made.states.append)
    desk.notice.connect(made.notices.append)
    desk.predicted.connect(lambda: made.predicted.append(desk.prediction.decode_tok_s if desk.prediction else 0.0))
    yield made
    desk.close()
    ui.close()
    pool.shutdown()


@pytest.fixture
def opened(bare: Desk, qtbot: QtBot) -> Desk:
    bare.desk.open("/models/deepseek.gguf")
    qtbot.waitUntil(lambda: bare.desk.state == "ready")
    bare.changed.clear()
    bare.pending.clear()
    bare.predicted.clear()
    return bare


def test_nothing_is_open_at_first(bare: Desk) -> None:
    assert bare.desk.state == "no model"
    assert bare.desk.devices() == ()
    assert bare.desk.cards() == ()
    assert not bare.desk.move(experts(4), Gpu(0))
    assert bare.notices == ["No model is open; choose one first."]


def test_opening_reads_the_header_in_the_background_and_shows_every_unit_as_a_card(bare: Desk, qtbot: QtBot) -> None:
    bare.desk.open("/models/deepseek.gguf")
    assert bare.desk.state == "estimating"
    qtbot.waitUntil(lambda: bare.desk.state == "ready")
    assert bare.states == ["estimating", "ready"]
    assert bare.desk.outline is not None
    assert len(bare.desk.cards()) == len(bare.desk.outline.units)
    assert [row.name for row in bare.desk.devices()] == ["GPU 0", "GPU 1", "NUMA 0", "NUMA 1"]
    assert [row.hardware for row in bare.desk.devices()][2] == "EPYC 7543 · 32 cores"


def test_a_broken_file_is_told_in_a_sentence(bare: Desk, qtbot: QtBot) -> None:
    bare.desk.open("/broken.gguf")
    qtbot.waitUntil(lambda: bare.desk.state == "failed")
    assert "byte 8" in bare.desk.failure


def test_a_move_changes_two_devices_and_the_prediction(opened: Desk) -> None:
    before = opened.desk.prediction
    assert before is not None
    home = opened.device("experts", 4)
    assert home == Numa(0)
    assert opened.desk.move(experts(4), Gpu(1))
    assert opened.device("experts", 4) == Gpu(1)
    assert opened.changed == [frozenset({Numa(0), Gpu(1)})]
    assert opened.desk.prediction is not None
    assert opened.desk.prediction.decode_tok_s > before.decode_tok_s
    assert opened.predicted == [opened.desk.prediction.decode_tok_s]
    assert opened.pending == [1]
    assert UnitId("experts", 4) in [card.id for card in opened.desk.cards_of(Gpu(1))]
    assert UnitId("experts", 4) not in [card.id for card in opened.desk.cards_of(Numa(0))]


def test_the_preview_says_what_the_move_then_gives(opened: Desk) -> None:
    preview = opened.desk.preview(experts(4, 5), Gpu(1))
    assert opened.device("experts", 4) == Numa(0)
    opened.desk.move(experts(4, 5), Gpu(1))
    assert preview == opened.desk.prediction


def test_asking_for_the_same_preview_again_estimates_nothing(opened: Desk) -> None:
    planner = opened.desk.planner
    assert isinstance(planner, ScriptedPlanner)
    opened.desk.preview(experts(4), Gpu(1))
    n_estimates = planner.n_estimates
    opened.desk.preview(experts(4), Gpu(1))
    assert planner.n_estimates == n_estimates


def test_dropping_what_was_previewed_estimates_nothing(opened: Desk) -> None:
    planner = opened.desk.planner
    assert isinstance(planner, ScriptedPlanner)
    preview = opened.desk.preview(experts(4), Gpu(1))
    n_estimates = planner.n_estimates
    assert opened.desk.move(experts(4), Gpu(1))
    assert planner.n_estimates == n_estimates
    assert opened.desk.prediction is preview


def test_nothing_to_move_previews_nothing(opened: Desk) -> None:
    assert opened.desk.preview(experts(4), Numa(0)) is None


def test_a_cache_takes_its_attention_along(opened: Desk) -> None:
    assert opened.device("kv", 0) == Gpu(0)
    opened.desk.move([UnitId("kv", 0)], Gpu(1))
    assert opened.device("kv", 0) == opened.device("mixer", 0) == Gpu(1)
    assert opened.desk.pending == 1


def test_a_refused_move_says_why_and_what_to_do(opened: Desk) -> None:
    assert opened.desk.refusal([UnitId("head")], Numa(0)) == "The output head must be on a GPU; move it to GPU 1 instead."
    assert not opened.desk.move([UnitId("head")], Numa(0))
    assert opened.notices == ["The output head must be on a GPU; move it to GPU 1 instead."]
    assert opened.changed == []


def test_undo_and_redo_go_through_every_step(opened: Desk) -> None:
    placements = [opened.desk.placement]
    for layer in range(4, 9):
        opened.desk.move(experts(layer), Gpu(layer % 2))
        placements.append(opened.desk.placement)
    assert opened.desk.undo_text == "Move 1 card to GPU 0"
    for placement in reversed(placements[:-1]):
        assert opened.desk.undo()
        assert opened.desk.placement == placement
    assert not opened.desk.undo()
    assert opened.desk.pending == 0
    for placement in placements[1:]:
        assert opened.desk.redo()
        assert opened.desk.placement == placement
    assert not opened.desk.redo()


def test_pinned_cards_stay_whatever_moves(opened: Desk) -> None:
    opened.desk.pin(experts(4), True)
    card = opened.desk.card(UnitId("experts", 4))
    assert card is not None
    assert card.pinned
    assert not opened.desk.move(experts(4), Gpu(1))
    assert opened.notices == ["What is pinned does not move; press P to unpin it."]
    assert opened.desk.move(experts(4, 5), Gpu(1))
    assert opened.device("experts", 4) == Numa(0)
    assert opened.device("experts", 5) == Gpu(1)
    opened.desk.undo()
    opened.desk.undo()
    assert opened.desk.pins == frozenset()


def test_pinning_a_cache_pins_its_attention(opened: Desk) -> None:
    opened.desk.pin([UnitId("kv", 3)], True)
    assert opened.desk.pins == {UnitId("mixer", 3)}


def test_auto_fit_leaves_what_is_pinned(opened: Desk, qtbot: QtBot) -> None:
    first = next(card.id for card in opened.desk.cards_of(Numa(0)) if card.family == "experts")
    opened.desk.pin([first], True)
    opened.desk.auto_fit()
    qtbot.waitUntil(lambda: opened.desk.undo_text == "Auto-fit")
    card = opened.desk.card(first)
    assert card is not None
    assert card.device == Numa(0)
    assert any(one.family == "experts" for one in opened.desk.cards_of(Gpu(1)))


def test_auto_fit_goes_by_the_counts_that_are_shown(opened: Desk, qtbot: QtBot) -> None:
    layer = next(card.layer for card in opened.desk.cards_of(Numa(0)) if card.family == "experts")
    row = [0] * 256
    row[17] = 9
    opened.desk.set_heat({layer: row})
    opened.desk.auto_fit()
    qtbot.waitUntil(lambda: opened.desk.undo_text == "Auto-fit")
    placement, planner = opened.desk.placement, opened.desk.planner
    assert placement is not None and isinstance(planner, ScriptedPlanner)
    assert {pool.layer: pool.experts for pool in placement.pools} in ({layer: (17,)}, {})
    assert bool(placement.pools) == isinstance(placement.device_of(UnitId("experts", layer)), Numa)
    assert planner.counts[layer] == tuple(row)  # what is shown of it is predicted by the same


def test_what_does_not_fit_is_said_and_can_be_fixed(opened: Desk, qtbot: QtBot) -> None:
    opened.desk.move(experts(4, 5, 6), Gpu(1))
    assert opened.desk.state == "does not fit"
    assert opened.desk.prediction is not None
    over = {one.device: one.over for one in opened.desk.prediction.devices}
    assert over[Gpu(1)] > 0
    qtbot.waitUntil(lambda: opened.desk.proposal is not None)
    assert opened.desk.proposal is not None
    assert opened.desk.proposal.text == "Move 1 layers to NUMA 1"
    opened.desk.fix()
    assert opened.desk.state == "ready"
    assert opened.desk.proposal is None
    opened.desk.undo()
    assert opened.desk.state == "does not fit"


def test_auto_fit_leaves_devices_alone_that_are_gone(qtbot: QtBot) -> None:
    with opened_desk(qtbot, outline(20)) as desk:
        desk.set_lost(frozenset({Gpu(1)}))
        assert desk.state == "does not fit" and desk.cards_of(Gpu(1))
        desk.auto_fit()
        qtbot.waitUntil(lambda: desk.undo_text == "Auto-fit")
        assert not desk.cards_of(Gpu(1)) and desk.cards_of(Gpu(0))
        assert desk.state == "ready"


def test_a_fix_leaves_what_is_pinned(opened: Desk, qtbot: QtBot) -> None:
    opened.desk.move(experts(4, 5, 6), Gpu(1))
    qtbot.waitUntil(lambda: opened.desk.proposal is not None)
    first = opened.desk.proposal
    assert first is not None
    opened.desk.pin(first.cards, True)
    qtbot.waitUntil(lambda: opened.desk.proposal not in (None, first))
    opened.desk.fix()
    assert opened.desk.state == "ready"
    assert {opened.desk.card(one).device for one in first.cards} == {Gpu(1)}  # type: ignore[union-attr]


def test_discard_is_a_step_back_to_the_loaded_model(opened: Desk) -> None:
    first = opened.desk.placement
    opened.desk.move(experts(4, 5), Gpu(1))
    opened.desk.discard()
    assert opened.desk.placement == first
    assert opened.desk.pending == 0
    opened.desk.undo()
    assert opened.desk.pending == 2


def test_what_was_applied_is_compared_with(opened: Desk) -> None:
    opened.desk.move(experts(4), Gpu(1))
    assert opened.desk.placement is not None
    opened.desk.set_applied(opened.desk.placement)
    assert opened.desk.pending == 0
    assert opened.desk.prediction_applied == opened.desk.prediction
    opened.desk.move(experts(4), Numa(0))
    card = opened.desk.card(UnitId("experts", 4))
    assert card is not None
    assert card.moved


def test_a_device_that_went_away_keeps_its_cards_until_they_are_moved(opened: Desk) -> None:
    opened.desk.set_lost(frozenset({Gpu(1)}))
    assert [row.lost for row in opened.desk.devices()] == [False, True, False, False]
    assert opened.desk.state == "does not fit"
    there = [card.id for card in opened.desk.cards_of(Gpu(1))]
    assert there
    assert opened.desk.refusal(experts(4), Gpu(1)) == "GPU 1 is gone; choose another device."
    assert opened.desk.move(there, Gpu(0))
    assert opened.desk.state == "ready"


def test_heat_gives_the_busiest_expert_the_brightest_mark(opened: Desk) -> None:
    counts = [1] * 256
    counts[7] = 10
    opened.desk.set_heat({4: counts})
    card = opened.desk.card(UnitId("experts", 4))
    assert card is not None
    assert (card.heat[7], card.heat[0], len(card.heat)) == (255, 26, 256)
    assert 7 in opened.desk.heat.hottest(4, 1)
    assert opened.desk.heat.share(4, 1) == 10 / 265


def test_a_split_chooses_a_part_of_the_bytes(opened: Desk) -> None:
    opened.desk.split([4], 64)
    card = opened.desk.card(UnitId("experts", 4))
    assert card is not None
    assert (card.n_hot, card.hot_bytes) == (64, SIZES["experts"] // 4)
    opened.desk.split([4], 0)
    card = opened.desk.card(UnitId("experts", 4))
    assert card is not None
    assert card.n_hot == 0


def test_opening_another_model_forgets_the_first(opened: Desk, qtbot: QtBot) -> None:
    opened.desk.move(experts(4), Gpu(1))
    opened.desk.open("/models/deepseek.gguf")
    qtbot.waitUntil(lambda: opened.desk.state == "ready")
    assert opened.desk.undo_text == ""
    assert opened.desk.pending == 0
    opened.desk.close()
    assert opened.desk.state == "no model"
    assert opened.desk.cards() == ()


def test_labels_and_names(opened: Desk) -> None:
    labels = {card.label for card in opened.desk.cards_of(Gpu(0))}
    assert {"Output head", "Attention, layer 0", "KV, layer 0", "Dense FFN, layer 2", "Shared FFN, layer 3"} <= labels
    head = opened.desk.card(UnitId("head"))
    assert head is not None
    assert head.nbytes == 800_000_000
    assert opened.desk.prediction is not None
    assert opened.desk.prediction.devices[0].capacity == 24 * GB


HOT = HotSet(4, Gpu(0))


def test_chosen_experts_go_to_a_gpu_as_copies_and_all_stay_at_home(opened: Desk) -> None:
    counts = [1] * 256
    counts[200:256] = [9] * 56
    opened.desk.set_heat({4: counts})
    opened.desk.split([4], 56)
    assert opened.desk.move(experts(4), Gpu(0))
    assert opened.device("experts", 4) == Numa(0)
    assert opened.desk.placement is not None
    assert opened.desk.placement.pools == (Pool(4, Gpu(0), tuple(range(200, 256))),)
    card = opened.desk.card(HOT)
    assert card is not None
    assert (card.device, card.n_hot, card.n_experts, card.nbytes) == (Gpu(0), 56, 256, SIZES["experts"] * 56 // 256)
    assert card in opened.desk.cards_of(Gpu(0))
    assert set(card.heat) == {255}
    assert opened.desk.pending == 1
    assert opened.changed[-1] == frozenset({Gpu(0)})
    opened.desk.undo()
    assert opened.desk.card(HOT) is None


def test_copies_that_are_moved_away_are_given_up(opened: Desk) -> None:
    opened.desk.split([4], 64)
    opened.desk.move(experts(4), Gpu(0))
    assert opened.desk.move([HOT], Numa(0))
    assert opened.desk.card(HOT) is None
    assert opened.desk.placement is not None
    assert opened.desk.placement.pools == ()


def test_copies_lie_beside_their_router_and_nowhere_else(opened: Desk) -> None:
    opened.desk.split([4], 64)
    asked = "Hot experts lie beside their router: that of layer 4 is on GPU 0; drop them there."
    assert opened.desk.refusal(experts(4), Gpu(1)) == asked
    opened.desk.move(experts(4), Gpu(0))
    assert opened.desk.refusal([HOT], Gpu(1)).startswith("Hot experts lie beside the router")
    opened.desk.move([UnitId("ffn", 4)], Gpu(1))
    assert opened.desk.card(HOT) is None


def test_a_layer_that_goes_to_a_gpu_as_a_whole_needs_no_copies(opened: Desk) -> None:
    opened.desk.split([4], 64)
    opened.desk.move(experts(4), Gpu(0))
    opened.desk.split([4], 0)
    opened.desk.move(experts(4), Gpu(0))
    assert opened.device("experts", 4) == Gpu(0)
    assert opened.desk.card(HOT) is None


def test_copies_can_be_pinned(opened: Desk) -> None:
    opened.desk.split([4], 64)
    opened.desk.move(experts(4), Gpu(0))
    opened.desk.pin([HOT], True)
    card = opened.desk.card(HOT)
    assert card is not None
    assert card.pinned
    assert not opened.desk.move([HOT], Numa(0))
