"""The placement page over its desk, a model that is only a header, and a scripted engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.api.commands import Generate, LoadModel, WatchExperts
from engine.api.events import ExpertCounts
from engine.api.pure import Gpu, UnitId
from engine.api.values import RequestId
from tests.helpers.fake_engine import Fail, Prefill, Stall, words
from tests.helpers.placement_bench import DENSE, placement_bench
from tests.helpers.placement_shown import Page

pytestmark = pytest.mark.usefixtures("themed")
FULL = Fail("OutOfDeviceMemory", "GPU 1 (RTX 3090) has 1.0 GB free and 2.0 GB are needed; move the experts of layer 4")


@pytest.fixture
def shown(qtbot: QtBot, tmp_path: Path) -> Iterator[Page]:
    with placement_bench(qtbot, tmp_path) as bench:
        yield Page(bench)


def test_without_a_model_the_page_asks_for_one(shown: Page) -> None:
    page = shown.page
    assert "Choose a model" in page.state.text
    assert not page.header.apply.isEnabled() and not page.header.fit.isEnabled()
    with shown.bench.qtbot.waitSignal(shown.controller.pick_requested):
        page.state.button.click()


def test_a_file_that_is_no_model_is_told_with_its_sentence(shown: Page, tmp_path: Path) -> None:
    path = tmp_path / "no.gguf"
    path.write_bytes(b"nothing")
    shown.controller.open(str(path))
    shown.bench.qtbot.waitUntil(lambda: shown.bench.desk.state == "failed")
    assert "cannot be planned" in shown.page.state.text
    assert "no.gguf" in shown.page.state.text


def test_a_file_that_is_no_model_is_told_also_behind_one_that_is(shown: Page, tmp_path: Path) -> None:
    shown.load()
    shown.move(3)
    path = tmp_path / "no.gguf"
    path.write_bytes(b"nothing")
    shown.controller.open(str(path))
    shown.bench.qtbot.waitUntil(lambda: shown.bench.desk.state == "failed")
    assert "cannot be planned" in shown.page.state.text and "no.gguf" in shown.page.state.text
    assert not shown.page.header.apply.isEnabled() and shown.controller.conditions() == set()
    assert "Small" not in shown.page.header.pill.accessibleName()
    shown.open()
    assert shown.page.header.pill.accessibleName() == "Model: Small" and shown.bench.desk.pending == 0


def test_a_model_is_planned_from_its_header_and_can_then_be_loaded(shown: Page) -> None:
    shown.open()
    figures = shown.figures()
    assert set(figures) == {"Decode, estimated", "Prefill, estimated", "Load time", "Limited by", "Tightest device"}
    assert "free" in figures["Tightest device"]
    assert shown.page.header.pill.accessibleName() == "Model: Small"
    assert shown.page.header.preset.text() == "Automatic"
    assert shown.page.pending.text.startswith("Not loaded")
    assert shown.page.header.apply.text() == "Load"
    assert shown.page.filters.count.text().endswith("3 devices")
    with shown.bench.qtbot.waitSignal(shown.bench.parts.apply.done):
        shown.page.header.apply.click()
    assert len(shown.bench.engine.sent(LoadModel)) == 1
    assert shown.page.pending.text.startswith("Loaded as shown")
    assert not shown.page.header.apply.isEnabled()


def test_a_move_shows_deltas_and_waits_and_undo_takes_it_back(shown: Page) -> None:
    shown.load()
    shown.move(3, 4)
    assert shown.page.pending.text == "2 changes not applied\nRunning model is unchanged"
    assert shown.page.header.preset.text() == "Automatic, edited"
    assert shown.page.header.apply.isEnabled()
    assert "Move 2 cards to GPU 1" in shown.page.header.undo.accessibleName()
    shown.page.header.undo.click()
    assert shown.page.pending.text.startswith("Loaded as shown")
    shown.page.header.redo.click()
    shown.page.pending.link.click()
    assert shown.bench.desk.pending == 0


def test_applying_shows_how_far_it_is_and_can_be_stopped(shown: Page) -> None:
    shown.load()
    shown.move(3)
    shown.bench.engine.apply = (Stall(60.0),)
    shown.controller.apply()
    shown.bench.qtbot.waitUntil(lambda: "Moving weights" in shown.page.pending.text)
    assert not shown.page.header.fit.isEnabled()
    with shown.bench.qtbot.waitSignal(shown.bench.parts.apply.failed):
        shown.page.pending.link.click()
    assert "as it was" in shown.page.strip.text


def test_a_failure_stands_above_the_board_until_it_is_dismissed_or_the_model_is_loaded_anew(shown: Page) -> None:
    shown.load()
    shown.move(3)
    shown.bench.engine.apply = (FULL,)
    with shown.bench.qtbot.waitSignal(shown.bench.parts.apply.failed):
        shown.controller.apply()
    assert shown.page.strip.text == FULL.message + "."
    assert shown.page.pending.text.startswith("Not applied")
    shown.page.strip.second.click()
    assert FULL.message not in shown.page.strip.text
    with shown.bench.qtbot.waitSignal(shown.bench.parts.apply.failed):
        shown.controller.apply()
    with shown.bench.qtbot.waitSignal(shown.bench.parts.apply.done):
        shown.page.strip.first.click()
    assert len(shown.bench.engine.sent(LoadModel)) == 2
    assert shown.bench.desk.pending == 0


def test_while_an_answer_is_written_the_bar_says_when_it_applies(shown: Page) -> None:
    shown.load()
    shown.bench.engine.answer = (Prefill(), words("a b"), Stall(60.0))
    shown.controller.inspector._on_count_requested()
    shown.bench.qtbot.waitUntil(lambda: shown.bench.bridge.state.kind == "generating")
    shown.move(3)
    assert shown.page.pending.text.endswith("Applies between two tokens")
    (request,) = shown.bench.bridge.state.answers
    shown.bench.bridge.cancel(request)


def test_loading_another_model_asks_before_it_ends_an_answer(shown: Page) -> None:
    shown.bench.parts.models.load("/other.gguf")
    shown.bench.qtbot.waitUntil(lambda: shown.bench.bridge.state.kind == "ready")
    shown.open()
    shown.bench.engine.answer = (Prefill(), words("a b"), Stall(60.0))
    request = shown.bench.bridge.new_id()
    shown.bench.bridge.submit(Generate(request, prompt="x"))
    shown.bench.qtbot.waitUntil(lambda: shown.bench.bridge.state.kind == "generating")
    assert shown.page.header.apply.text() == "Load instead"
    shown.page.header.apply.click()
    assert "is answering" in shown.page.strip.text
    assert len(shown.bench.engine.sent(LoadModel)) == 1
    shown.page.strip.second.click()
    assert "is answering" not in shown.page.strip.text
    shown.page.header.apply.click()
    shown.page.strip.first.click()
    assert len(shown.bench.engine.sent(LoadModel)) == 2
    shown.bench.bridge.cancel(request)
    shown.bench.qtbot.waitUntil(lambda: not shown.bench.parts.apply.running)


def test_what_does_not_fit_is_alarmed_and_cannot_be_applied(shown: Page, tmp_path: Path) -> None:
    file = tmp_path / "small-gpus.json"
    file.write_text(json.dumps({"ram_gib": 8, "gpus": [{"name": "Tiny", "memory_gib": 0.6, "count": 2}]}))
    shown.open()
    shown.controller.menus.choose_machine(str(file))
    shown.bench.qtbot.waitUntil(lambda: shown.bench.desk.state in ("ready", "does not fit"), timeout=30_000)
    assert shown.page.header.machine.text() == "small-gpus"
    assert "cannot be" in shown.page.header.apply.toolTip() or "another machine" in shown.page.header.apply.toolTip()
    everything = [fact.unit for fact in shown.bench.desk.outline.units if fact.unit.kind != "embed"]  # type: ignore[union-attr]
    shown.bench.desk.move(everything, Gpu(0))
    assert shown.bench.desk.state == "does not fit"
    assert "over" in shown.figures()["Tightest device"]
    assert "is planned" in shown.page.strip.text or "are planned" in shown.page.strip.text
    assert not shown.page.header.apply.isEnabled()
    shown.controller.menus.choose_machine("")
    shown.bench.qtbot.waitUntil(lambda: shown.bench.desk.state == "ready", timeout=30_000)
    assert shown.page.header.machine.text() == "This machine"


def test_a_machine_file_that_describes_none_changes_nothing(shown: Page, tmp_path: Path) -> None:
    shown.open()
    shown.controller.menus.choose_machine(str(tmp_path / "none.json"))
    assert "none.json" in shown.notices[-1]
    assert shown.bench.parts.machine.is_this


def test_the_inspector_follows_the_selection_and_its_buttons_move(shown: Page) -> None:
    shown.load()
    inspector = shown.page.inspector
    assert inspector.title == "Small"
    shown.controller.board.select([UnitId("experts", 3), UnitId("experts", 4)])
    assert inspector.title == "2 cards selected"
    labels = [fact.label for fact in inspector.facts]
    assert labels[:3] == ["Size", "Type", "Read per token"]
    assert "On GPU 0, now" in labels and "On GPU 1" in labels
    inspector.moves.chosen.emit(1)
    assert shown.bench.placement.device_of(UnitId("experts", 3)) == Gpu(1)
    inspector.pin.click()
    assert UnitId("experts", 3) in shown.bench.desk.pins


def test_counted_experts_are_shown_by_layer_and_for_all_layers(shown: Page) -> None:
    shown.load()
    assert any(isinstance(one, WatchExperts) and one.period_s > 0 for one in shown.bench.engine.commands)
    counts = {layer: [100, *([1] * 15)] for layer in range(1, 6)}
    shown.controller.inspector.set_counts(500, counts)
    use = shown.page.inspector.use
    assert use.map._n_rows == 5
    assert use.span.text() == "500 tokens"
    use.map.layer_clicked.emit(3)
    assert use.map._layers == (3,)
    assert "Hottest 4 of 16 serve 90 % of reads" in use._sentence.text()
    menu = shown.controller.inspector.split_menu()
    texts = [action.text() for action in menu.actions() if action.text()]
    assert texts[0].startswith("Hottest 2 of 16") and "% of reads" in texts[0]
    menu.actions()[0].trigger()
    assert shown.bench.desk.heat.splits == {3: 2}
    shown.controller.shown(False)
    last = [one for one in shown.bench.engine.commands if isinstance(one, WatchExperts)][-1]
    assert last.period_s == 0


def test_counts_that_were_told_before_the_model_was_planned_are_kept_for_it(shown: Page) -> None:
    shown.load()
    counts = np.ones((5, 16), np.uint64)
    shown.bench.bridge.happened.emit(ExpertCounts(RequestId("watch"), 500, tuple(range(1, 6)), counts, (500,) * 5))
    shown.open()
    assert shown.page.inspector.use.span.text() == "500 tokens"
    assert shown.page.inspector.use.map._n_rows == 5


def test_filters_and_grouping_reach_the_board(shown: Page) -> None:
    shown.open()
    board, filters = shown.controller.board, shown.page.filters
    n_rows = sum(len(one.column.rows()) for one in board.lists())
    filters.kinds["experts"].click()
    assert sum(len(one.column.rows()) for one in board.lists()) < n_rows
    filters.kinds["experts"].click()
    filters.toggle_group()
    assert sum(len(one.column.rows()) for one in board.lists()) > n_rows
    board.set_grouped(True)
    assert filters.filter.grouped


def test_letters_and_digits_work_wherever_the_keyboard_is_on_the_page(shown: Page) -> None:
    shown.open()
    shown.controller.board.select([UnitId("experts", 3)])
    shown.page.setFocus()
    shown.bench.qtbot.keyClick(shown.page, Qt.Key.Key_2)
    assert shown.bench.placement.device_of(UnitId("experts", 3)) == Gpu(1)
    shown.bench.qtbot.keyClick(shown.page, Qt.Key.Key_Slash)
    assert shown.page.filters.field.isVisible()


def test_a_dense_model_has_neither_experts_nor_their_filter(qtbot: QtBot, tmp_path: Path) -> None:
    with placement_bench(qtbot, tmp_path, DENSE) as bench:
        page = Page(bench)
        page.open()
        assert page.page.filters.kinds["experts"].isHidden()
        assert page.page.inspector.use.isHidden()


def test_a_device_that_went_away_is_told_and_its_cards_stay(shown: Page) -> None:
    shown.load()
    shown.move(3)
    shown.bench.desk.set_lost(frozenset({Gpu(1)}))
    assert shown.page.strip.text == "GPU 1 is gone. Move its cards to another device to apply."
    assert not shown.page.header.apply.isEnabled()


def test_a_device_that_ran_full_leads_to_moves_that_make_room(shown: Page) -> None:
    shown.load()
    here = [card for card in shown.bench.desk.cards() if card.family == "experts" and str(card.device) == "gpu0"]
    asked = 1000 + here[0].nbytes
    sentence = f"the working memory of a kernel needs {asked:,} bytes on gpu0 and 1,000 are free; place fewer layers there"
    shown.controller.make_room(sentence)
    assert shown.bench.desk.pending == 2
    last = max(card.layer for card in here)
    assert str(shown.bench.placement.device_of(UnitId("experts", last))) == "numa0"
    assert shown.notices[-1] == "2 cards leave GPU 0 to make room; look, then apply."
    shown.controller.make_room("something else went wrong")
    assert shown.notices[-1] == "Something else went wrong."
    assert shown.bench.desk.pending == 2


def test_a_model_that_is_being_loaded_is_planned_meanwhile_and_counts_as_loaded_when_it_is(shown: Page) -> None:
    shown.bench.engine.load = (Stall(60.0),)
    shown.bench.parts.models.load(shown.bench.path)
    shown.controller.shown(True)
    shown.bench.qtbot.waitUntil(lambda: shown.bench.desk.outline is not None, timeout=30_000)
    assert shown.bench.desk.applied is None
    shown.bench.engine.load = ()
    shown.bench.parts.models.load(shown.bench.path)
    shown.bench.qtbot.waitUntil(lambda: shown.bench.desk.applied is not None, timeout=30_000)
    assert shown.page.pending.text.startswith("Loaded as shown")


def test_the_speed_of_an_answer_does_not_make_the_page_work(shown: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    shown.load()
    n_shown: list[int] = []
    monkeypatch.setattr(shown.controller, "_show_summary", lambda: n_shown.append(1))
    state = replace(shown.bench.bridge.state, kind="generating", answers=frozenset({shown.bench.bridge.new_id()}))
    for tenths in range(100):
        shown.bench.bridge.state_changed.emit(replace(state, tok_s=tenths / 10))
    assert len(n_shown) == 1


def test_the_automatic_placement_is_not_remembered_as_one_of_ones_own(shown: Page) -> None:
    shown.load()
    used = lambda: shown.bench.store.placement(lambda db: db.execute("SELECT count(*) FROM placement_used").fetchone()[0])  # noqa: E731
    shown.move(3)
    with shown.bench.qtbot.waitSignal(shown.bench.parts.apply.done):
        shown.controller.apply()
    shown.bench.qtbot.waitUntil(lambda: used() == 1)
    shown.controller.menus.use("Automatic", shown.bench.parts.library.default)  # type: ignore[arg-type]
    with shown.bench.qtbot.waitSignal(shown.bench.parts.apply.done):
        shown.controller.apply()
    shown.bench.qtbot.waitUntil(lambda: used() == 0)


def test_tab_comes_to_the_board_before_what_stands_beside_it(shown: Page) -> None:
    shown.load()
    shown.move(3)
    page, order = shown.page, list[str]()
    one = page.header.pill.nextInFocusChain()
    while one is not page.header.pill:
        if page.isAncestorOf(one) and one.isVisible() and one.focusPolicy() & Qt.FocusPolicy.TabFocus:
            order.append(one.accessibleName())
        one = one.nextInFocusChain()
    columns = [row.name for row in shown.bench.desk.devices()]
    at = [next(i for i, name in enumerate(order) if name.startswith(f"{column},")) for column in columns]
    assert at == sorted(at)
    assert order.index("Filter: Layers 0–5") < at[0] and at[-1] < order.index("Discard")
    assert at[-1] < order.index("Count experts")
