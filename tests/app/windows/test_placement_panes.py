"""What stands beside the board: presets, files, commands of other tools, comparison, check, context, pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtGui import QFont
from pytestqt.qtbot import QtBot

from app.ops.placement_library import same_places
from app.shots.model_header import write_header
from app.widgets.format import bytes_text
from engine.api.commands import ApplyPlacement, AskHoldings, ComparePools, LoadModel, UnloadModel, UsePools
from engine.api.events import LayerPool, PoolsCompared, PoolStats
from engine.api.pure import Gpu, Planner, UnitId
from engine.api.values import HoldingInfo
from tests.helpers.fake_engine import Prefill, Stall, words
from tests.helpers.placement_bench import DENSE, placement_bench
from tests.helpers.placement_shown import Page

pytestmark = pytest.mark.usefixtures("themed")
ANSWER = (Prefill(400, 400), words(" ".join(["word"] * 20)))


@pytest.fixture
def shown(qtbot: QtBot, tmp_path: Path) -> Iterator[Page]:
    with placement_bench(qtbot, tmp_path) as bench:
        yield Page(bench)


def test_presets_are_saved_used_and_marked_as_edited(shown: Page) -> None:
    shown.load()
    shown.bench.qtbot.waitUntil(lambda: shown.bench.parts.library.default is not None)  # which is told by the same signal
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
    assert "-t" not in pane.said
    pane.import_requested.emit("llama-server -ngl 99 -t 7 -ub 256 --rope-freq-base 10000 -c 4096 -rtr -ctk q8_0")
    assert "-t 7 -b 256" in pane.said and "rope.freq_base = 10000.0" in pane.said and "4,096" in pane.said
    assert "advises against it" in pane.said
    pane.import_requested.emit("-ngl many")
    assert "-ngl" in pane.said


def test_what_is_shown_of_a_tool_is_what_a_file_holds(shown: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown.load()
    shown.controller.show_pane("command")
    pane, asked = shown.page.command, list[str]()

    def dialog(title: str, then: Callable[[str], object], save_as: str = "") -> None:
        asked.append(save_as)
        then(str(tmp_path / save_as))

    monkeypatch.setattr(shown.controller.menus, "_file_dialog", dialog)
    for i in range(pane.tools.count()):
        pane.tools.setCurrentIndex(i)
        pane.save.click()
        assert (tmp_path / asked[-1]).read_text(encoding="utf-8") == pane.text.toPlainText()
    assert len({*asked}) == pane.tools.count() == 7 and asked[-1] == "small.placement.json"
    assert (tmp_path / "run-small.sh").stat().st_mode & 0o100
    assert not (tmp_path / "small.yaml").stat().st_mode & 0o100


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
    shown.bench.qtbot.waitUntil(lambda: "measured" in next(iter(shown.figures())))


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
    view.compare.click()
    bridge.happened.emit(replace(stats, comparing=True))
    assert not view.compare.isEnabled() and "chat" in view.text
    bridge.happened.emit(replace(stats, mode="keep"))  # chosen meanwhile, which ends it
    assert view.compare.isEnabled() and "chat" not in view.text
    bridge.happened.emit(replace(stats, switched_off=True, why="promotion took more time than it saved"))
    assert "Promotion took more time than it saved." in view.text
    bridge.happened.emit(replace(stats, layers=()))
    assert view.isHidden()


def test_chosen_experts_are_told_with_their_own_bytes_and_reads(shown: Page) -> None:
    shown.load()
    shown.controller.inspector.set_counts(500, {3: [85, *([1] * 15)]})
    shown.controller.board.select([UnitId("experts", 3)])
    whole = {fact.label: fact.value for fact in shown.page.inspector.facts}
    actions = shown.controller.inspector.split_menu().actions()
    next(action for action in actions if action.text().startswith("Hottest 4")).trigger()
    chosen = {fact.label: fact.value for fact in shown.page.inspector.facts}
    outline = shown.bench.desk.outline
    assert outline is not None
    facts = outline.of(UnitId("experts", 3))
    assert whole["Read per token"] == bytes_text(facts.read_per_token)
    assert chosen["Size"] == bytes_text(facts.nbytes * 4 // 16)
    assert chosen["Read per token"] == bytes_text(round(facts.read_per_token * 0.88))
    assert shown.page.inspector._subtitle.text().endswith("hottest 4")


def test_what_was_given_up_or_loaded_otherwise_is_no_card_in_the_wrong_place(shown: Page) -> None:
    shown.load()
    bench, check = shown.bench, shown.page.check
    bench.engine.holdings = (HoldingInfo("gpu0", "weights", 1),)
    shown.controller.show_pane("check")
    shown.move(3)
    bench.engine.apply = (Stall(60.0),)
    with bench.qtbot.waitSignal(bench.parts.apply.progressed):
        bench.parts.apply.apply()
    with bench.qtbot.waitSignal(bench.parts.apply.failed):
        bench.parts.apply.cancel()
    check.again.click()
    bench.qtbot.waitUntil(lambda: "Every card lies where it was put." in check.findings)
    bench.engine.apply = ()
    with bench.qtbot.waitSignal(bench.parts.apply.done):
        bench.parts.apply.apply()
    bench.desk.undo()
    bench.parts.models.load(bench.path)  # from elsewhere, and otherwise
    bench.qtbot.waitUntil(lambda: len(bench.engine.sent(LoadModel)) == 2 and bench.bridge.state.kind == "ready")
    check.again.click()
    bench.qtbot.waitUntil(lambda: "Every card lies where it was put." in check.findings)
    assert bench.parts.apply.asked is None


def test_what_a_longer_context_moves_is_not_what_loading_would_choose(shown: Page) -> None:
    shown.open()
    bench = shown.bench
    usual = bench.placement
    assert isinstance(bench.desk.planner, Planner)
    moved = bench.desk.planner.move(usual, (UnitId("experts", 3),), Gpu(1))
    shown.controller.context._taken = moved
    shown.controller.context.reopen_requested.emit(4096)
    bench.qtbot.waitUntil(lambda: bench.desk.n_ctx == 4096 and bench.desk.state == "ready", timeout=30_000)
    assert same_places(bench.placement, moved)
    default = bench.parts.library.default
    assert default is not None and same_places(default, usual)
    assert shown.page.header.preset.text() == "Automatic, edited"


def test_a_stop_is_not_told_of_a_model_that_has_gone_since(shown: Page) -> None:
    shown.load()
    shown.move(3)
    bench = shown.bench
    bench.engine.apply = (Stall(60.0),)
    with bench.qtbot.waitSignal(bench.parts.apply.progressed):
        bench.parts.apply.apply()
    with bench.qtbot.waitSignal(bench.parts.apply.failed):
        bench.parts.apply.cancel()
    assert "as it was" in shown.page.strip.text
    bench.bridge.submit(UnloadModel(bench.bridge.new_id()))
    bench.qtbot.waitUntil(lambda: bench.bridge.state.model is None)
    bench.qtbot.waitUntil(lambda: "as it was" not in shown.page.strip.text)
    assert "as it was" not in shown.page.pending.text


def test_what_is_pinned_stays_so_with_another_context_and_not_with_another_model(shown: Page, tmp_path: Path) -> None:
    shown.open()
    bench = shown.bench
    bench.desk.pin([UnitId("experts", 3)], True)
    shown.controller.context.reopen_requested.emit(4096)
    bench.qtbot.waitUntil(lambda: bench.desk.n_ctx == 4096 and bench.desk.state == "ready", timeout=30_000)
    card = bench.desk.card(UnitId("experts", 3))
    assert card is not None and card.pinned and bench.desk.pins == {UnitId("experts", 3)}
    write_header(tmp_path / "dense.gguf", DENSE)
    shown.controller.open(str(tmp_path / "dense.gguf"))
    bench.qtbot.waitUntil(lambda: bench.desk.state == "ready" and "dense" in bench.desk.path, timeout=30_000)
    assert bench.desk.pins == frozenset()


def test_nothing_offers_to_move_while_a_placement_is_applied(shown: Page) -> None:
    shown.load()
    shown.move(3)
    bench, header = shown.bench, shown.page.header
    shown.controller.board.select([UnitId("experts", 4)])
    buttons = [one for one in shown.page.inspector.moves._buttons if not one.isHidden()]
    free = [one.isEnabled() for one in buttons]
    assert header.undo.isEnabled() and any(free)
    bench.engine.apply = (Stall(60.0),)
    with bench.qtbot.waitSignal(bench.parts.apply.progressed):
        bench.parts.apply.apply()
    assert not header.undo.isEnabled() and not any(one.isEnabled() for one in buttons)
    assert any("being applied" in one.toolTip() for one in buttons)
    with bench.qtbot.waitSignal(bench.parts.apply.failed):
        bench.parts.apply.cancel()
    assert header.undo.isEnabled() and [one.isEnabled() for one in buttons] == free


def test_patterns_are_shown_character_by_character(shown: Page) -> None:
    for editor in (shown.page.command.text, shown.page.command.paste):
        assert editor.font().featureValue(QFont.Tag("calt")) == 0
