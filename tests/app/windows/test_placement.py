"""The placement page over its desk, a model that is only a header, and a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.windows.placement_controller import PlacementController
from engine.api.commands import ApplyPlacement, AskHoldings, ComparePools, Generate, LoadModel, UsePools, WatchExperts
from engine.api.events import LayerPool, PoolsCompared, PoolStats
from engine.api.pure import Gpu, UnitId
from engine.api.values import HoldingInfo
from tests.helpers.fake_engine import Fail, Prefill, Stall, words
from tests.helpers.placement_bench import DENSE, PlacementBench, placement_bench

pytestmark = pytest.mark.usefixtures("themed")
FULL = Fail("OutOfDeviceMemory", "GPU 1 (RTX 3090) has 1.0 GB free and 2.0 GB are needed; move the experts of layer 4")
ANSWER = (Prefill(400, 400), words(" ".join(["word"] * 20)))


class Page:
    """The page with its controller, shown 1368 x 900."""

    def __init__(self, bench: PlacementBench) -> None:
        self.bench = bench
        self.controller = PlacementController(bench.parts)
        self.page = self.controller.page
        self.notices: list[str] = []
        self.controller.notice.connect(self.notices.append)
        bench.qtbot.addWidget(self.page)
        self.page.resize(1368, 900)
        self.page.show()

    def open(self) -> None:
        """Plans the model."""
        self.controller.open(self.bench.path)
        desk = self.bench.desk
        self.bench.qtbot.waitUntil(lambda: desk.state in ("ready", "does not fit") and desk.outline is not None, timeout=30_000)

    def load(self) -> None:
        """Loads it as planned and shows the page."""
        self.open()
        self.bench.load()
        self.controller.shown(True)

    def move(self, *layers: int) -> None:
        """Moves experts of layers to the second GPU."""
        assert self.bench.desk.move([UnitId("experts", layer) for layer in layers], Gpu(1))

    def figures(self) -> dict[str, str]:
        """The summary: label and what stands below it."""
        return {one.label: f"{one.value} {one.unit} {one.delta}".strip() for one in self.page.summary.figures}


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
    assert shown.page.strip.text == ""
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
    assert shown.page.strip.text == ""
    shown.page.header.apply.click()
    shown.page.strip.first.click()
    assert len(shown.bench.engine.sent(LoadModel)) == 2
    shown.bench.bridge.cancel(request)
    shown.bench.qtbot.waitUntil(lambda: not shown.bench.parts.apply.running)


def test_what_does_not_fit_is_alarmed_and_cannot_be_applied(shown: Page, tmp_path: Path) -> None:
    import json

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


# --- panes ---------------------------------------------------------------------------------------------------------------


def test_presets_are_saved_used_and_marked_as_edited(shown: Page) -> None:
    shown.load()
    shown.move(3)
    with shown.bench.qtbot.waitSignal(shown.bench.parts.library.presets_changed):
        shown.controller.menus.save("Balanced")
    assert shown.page.header.preset.text() == "Balanced"
    shown.move(4)
    assert shown.page.header.preset.text() == "Balanced, edited"
    menu = shown.controller.menus.preset_menu()
    by_name = {action.text(): action for action in menu.actions()}
    assert by_name["Balanced"].isCheckable() and not by_name["Balanced"].isChecked()
    by_name["Balanced"].trigger()
    assert shown.page.header.preset.text() == "Balanced"
    by_name["Automatic"].trigger()
    assert shown.bench.desk.pending == 0


def test_placements_are_exported_and_opened_as_files(shown: Page, tmp_path: Path) -> None:
    shown.load()
    shown.move(3, 4)
    path, before = tmp_path / "mine.json", shown.bench.placement
    shown.controller.menus.write_file(str(path))
    shown.bench.desk.discard()
    shown.controller.menus.read_file(str(path))
    assert shown.bench.placement.units == before.units
    shown.controller.menus.read_file(str(tmp_path / "missing.json"))
    assert "missing.json" in shown.notices[-1]
    shown.controller.menus.write_file(str(tmp_path / "no" / "folder.json"))
    assert "cannot be written" in shown.notices[-1]


def test_the_equivalent_command_follows_the_edits_and_a_pasted_one_is_taken(shown: Page) -> None:
    shown.load()
    shown.controller.show_pane("command")
    pane = shown.page.command
    first = pane.text.toPlainText()
    assert "llama-server" in first
    shown.move(3)
    shown.bench.qtbot.waitUntil(lambda: pane.text.toPlainText() != first)
    assert "exps" in pane.text.toPlainText()
    pane.import_requested.emit("-ngl 99 -ot exps=CPU")
    assert {str(where) for unit, where in shown.bench.placement.units if unit.kind == "experts"} == {"numa0"}
    assert "undo takes it back" in pane.said
    pane.import_requested.emit("-ngl many")
    assert "-ngl" in pane.said


def test_two_placements_are_compared_and_measured(shown: Page) -> None:
    shown.load()
    shown.move(3, 4)
    shown.controller.show_pane("compare")
    pane = shown.page.compare
    assert (pane.a.currentText(), pane.b.currentText()) == ("As loaded", "As edited")
    assert pane._differ.text() == "2 cards lie elsewhere in B."
    shown.bench.engine.answer = ANSWER
    with shown.bench.qtbot.waitSignal(shown.bench.parts.measure.ended, timeout=30_000):
        pane.measure.click()
    assert [row.label for row in pane._measured.rows] == ["Decode, tok/s", "Prefill, tok/s"]
    assert pane._verdict.text() == "No significant difference (p = 1.00)."
    assert shown.bench.desk.pending == 2
    applied = shown.bench.engine.sent(ApplyPlacement)
    assert len(applied) == 7
    assert "measured" in next(iter(shown.figures()))


def test_the_check_shows_what_is_held_against_what_was_predicted(shown: Page) -> None:
    shown.load()
    prediction = shown.bench.desk.prediction_applied
    assert prediction is not None
    weights = prediction.of(Gpu(0)).owners.weights
    shown.bench.engine.holdings = (HoldingInfo("gpu0", "weights", weights),)
    shown.controller.show_pane("check")
    shown.bench.qtbot.waitUntil(lambda: bool(shown.page.check.rows))
    assert len(shown.bench.engine.sent(AskHoldings)) == 1
    rows = shown.page.check.rows
    at = next(i for i, row in enumerate(rows) if row.label == "GPU 0")
    assert rows[at + 1].label == "Weights" and rows[at + 1].cells[2] == "0 %"
    assert "Every card lies where it was put." in shown.page.check.findings


def test_a_longer_context_is_worked_out_and_planned_with(shown: Page) -> None:
    shown.open()
    shown.controller.show_pane("context")
    pane = shown.page.context
    shown.bench.qtbot.waitUntil(lambda: "Working" not in pane._sentence.text(), timeout=30_000)
    index = pane._sizes.index(32_768)
    pane.slider.setValue(index)
    shown.bench.qtbot.waitUntil(lambda: not pane.take.isHidden(), timeout=30_000)
    assert "32" in pane._sentence.text()
    pane.take.click()
    shown.bench.qtbot.waitUntil(lambda: shown.bench.desk.n_ctx == 32_768 and shown.bench.desk.state == "ready", timeout=30_000)


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


def test_pools_of_hot_experts_say_what_they_took_and_can_be_switched_and_compared(shown: Page) -> None:
    shown.load()
    bridge, view = shown.bench.bridge, shown.page.inspector.pools
    assert view.isHidden()
    layers = (LayerPool(3, "gpu0", 67, 33, 9, (1, 2, 3, 4)), LayerPool(4, "gpu0", 0, 0, 0, (1, 2, 3, 4)))
    stats = PoolStats(bridge.new_id(), 67, 33, 9, layers, "promote")
    bridge.happened.emit(stats)
    assert not view.isHidden()
    assert view.text == "8 copies in 2 layers served 67 % of reads, 9 came and went."
    view.mode_chosen.emit("keep")
    shown.bench.qtbot.waitUntil(lambda: len(shown.bench.engine.sent(UsePools)) == 1)
    view.compare.click()
    assert not view.compare.isEnabled()
    (command,) = shown.bench.engine.sent(ComparePools)
    assert isinstance(command, ComparePools) and command.mode == "promote"
    bridge.happened.emit(PoolsCompared(command.request_id, "promote", 12.9, 12.1, 0.066, 0.012, 8))
    assert view.text.endswith("12.9 against 12.1 tok/s, +6.6 % ± 1.2 %.")
    bridge.happened.emit(PoolsCompared(command.request_id, "promote", 12.2, 12.1, 0.008, 0.012, 8))
    assert view.text.endswith("no significant difference.")
    bridge.happened.emit(replace(stats, switched_off=True, why="promotion took more time than it saved"))
    assert "Promotion took more time than it saved." in view.text
    bridge.happened.emit(replace(stats, layers=()))
    assert view.isHidden()
