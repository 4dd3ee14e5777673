"""The window over a scripted engine: the main job, every state, and what must never get lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.windows.picker import Picker
from engine.api.commands import Generate, LoadModel, WatchSensors
from engine.api.values import SamplingParams
from tests.app.windows.conftest import Stage
from tests.helpers.fake_engine import OUT_OF_MEMORY, Fail, Load, Prefill, Stall, Tokens, words


def test_first_run_shows_the_welcome_page_and_starts_with_one_click(stage: Stage) -> None:
    stage.window.start(None, load_last=True)
    assert stage.window.welcome.isVisible()
    stage.window.welcome.start_requested.emit("/m.gguf")
    stage.qtbot.waitUntil(lambda: stage.parts.bridge.state.kind == "ready")
    assert stage.window.page.isVisible()
    assert stage.parts.settings.values.engine.last_model == "/m.gguf"


def test_a_message_is_answered_in_the_window(stage: Stage) -> None:
    stage.load()
    stage.send("What is this?")
    assert stage.shown() == [("user", "What is this?", "done"), ("assistant", "Hello, world!", "done")]
    assert stage.window.page.composer.text() == ""
    assert stage.parts.store.chats()[0].title == "What is this?"


def test_sending_without_a_model_loads_the_last_one_first(stage: Stage, tmp_path: Path) -> None:
    model = tmp_path / "last.gguf"
    model.write_bytes(b"GGUF")
    stage.parts.settings.set("engine.last_model", str(model))
    stage.send("hi")
    loads = stage.engine.sent(LoadModel)
    assert [command.path for command in loads] == [str(model)]  # type: ignore[union-attr]
    assert stage.shown()[-1] == ("assistant", "Hello, world!", "done")


def test_sending_with_no_model_at_all_keeps_the_text(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.ops.model_ops.included_model", lambda: None)
    stage.send("precious words", wait=False)
    assert stage.window.page.composer.text() == "precious words"
    assert stage.engine.sent(Generate) == []


def test_stop_by_escape_and_continue(stage: Stage) -> None:
    stage.load()
    stage.engine.answers = [(Prefill(), Tokens(("Once ",)), Stall(60)), (Prefill(), Tokens(("more",)))]
    stage.send("x", wait=False)
    stage.qtbot.waitUntil(lambda: stage.parts.bridge.state.kind == "generating")
    stop = stage.window.actions_.action("stop")
    stage.qtbot.waitUntil(stop.isEnabled)
    stop.trigger()
    stage.settle()
    assert stage.shown()[-1] == ("assistant", "Once ", "stopped")
    assert not stop.isEnabled()
    answer = stage.controller.last_answer()
    assert answer is not None
    stage.window.page.transcript.continue_requested.emit(answer.id)
    stage.qtbot.waitUntil(lambda: stage.shown()[-1] == ("assistant", "Once more", "done"))


def test_loading_is_stopped_by_the_header(stage: Stage) -> None:
    stage.engine.load = (Load(steps=50, step_s=1.0),)
    stage.window.load("/m.gguf")
    stage.qtbot.waitUntil(lambda: stage.parts.bridge.state.kind == "loading")
    stage.window.page.header.stop_loading_requested.emit()
    stage.qtbot.waitUntil(lambda: stage.parts.bridge.state.kind == "no_model")


def test_an_error_stands_in_the_message_and_its_action_tries_again(stage: Stage) -> None:
    stage.load()
    stage.engine.answers = [(OUT_OF_MEMORY,)]
    stage.send("x")
    answer = stage.controller.last_answer()
    assert answer is not None
    assert (answer.status, answer.error) == ("error", OUT_OF_MEMORY.message)
    stage.window.page.transcript.error_action_requested.emit(answer.id)
    stage.qtbot.waitUntil(lambda: stage.shown()[-1] == ("assistant", "Hello, world!", "done"))


def test_answers_go_on_while_another_chat_is_shown(stage: Stage) -> None:
    stage.load()
    stage.engine.answers = [(Prefill(), words("one two three four five six seven eight", tok_s=40))]
    stage.send("slow", wait=False)
    stage.qtbot.waitUntil(lambda: stage.controller.chat_id is not None)
    slow = stage.controller.chat_id
    assert slow is not None
    stage.controller.new_chat()
    stage.window.page.composer.set_text("a draft")
    stage.settle()
    stage.controller.open_chat(slow)
    assert stage.shown()[-1][1] == "one two three four five six seven eight"
    assert stage.window.page.composer.text() == ""
    stage.controller.new_chat()
    assert stage.window.page.composer.text() == "a draft"


def test_the_list_is_searched_and_a_deleted_chat_comes_back(stage: Stage) -> None:
    stage.load()
    stage.send("apples and pears")
    apples = stage.controller.chat_id
    stage.controller.new_chat()
    stage.send("rust lifetimes")
    model = stage.window.page.list._list.model()
    assert model.rowCount() == 2
    stage.window.page.list.search_changed.emit("pears")
    assert [chat.id for chat in stage.controller._list.chats()] == [apples]
    stage.window.page.list.search_changed.emit("")
    undos: list[object] = []
    stage.controller.undoable.connect(undos.append)
    stage.controller.delete_shown()
    stage.qtbot.waitUntil(lambda: bool(undos))
    assert stage.controller.chat_id is None
    assert model.rowCount() == 1
    undos[0].run()  # type: ignore[attr-defined]
    stage.qtbot.waitUntil(lambda: model.rowCount() == 2)


def test_a_full_disk_gives_the_text_back_to_the_composer(stage: Stage) -> None:
    stage.load()
    db = stage.parts.store._writer._db
    db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
    text = "precious words " * 4000
    stage.send(text, wait=False)
    stage.qtbot.waitUntil(lambda: stage.window.page.composer.text() == text)


def test_options_chosen_before_the_first_message_hold_for_the_chat(stage: Stage) -> None:
    stage.load()
    stage.controller.options.set_sampling(SamplingParams(temperature=0.0))
    stage.controller.options.set_system_prompt("Rhyme.")
    stage.send("x")
    command = stage.engine.sent(Generate)[-1]
    assert isinstance(command, Generate)
    assert command.sampling.temperature == 0.0
    assert (command.messages or ())[0].content == "Rhyme."
    assert stage.controller.options.system_prompt() == "Rhyme."
    stage.controller.new_chat()
    assert stage.controller.options.system_prompt() == ""
    assert stage.controller.options.sampling() == SamplingParams()


def test_palette_opens_a_chat(stage: Stage) -> None:
    stage.load()
    stage.send("find me")
    chat = stage.controller.chat_id
    stage.controller.new_chat()
    stage.window.actions_.action("palette").trigger()
    picker = stage.window.findChild(Picker)
    assert picker is not None
    stage.qtbot.keyClicks(picker._edit, "find me")
    stage.qtbot.keyClick(picker._edit, Qt.Key.Key_Return)
    assert stage.controller.chat_id == chat


@pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
def test_every_action_runs_without_an_error(stage: Stage) -> None:
    stage.load()
    stage.send("x")
    for row in stage.window.actions_.rows:
        if row.id in ("quit", "open_model_file", "add_model_folder"):
            continue
        action = stage.window.actions_.action(row.id)
        if action.isEnabled():
            action.trigger()
            stage.qtbot.wait(5)
    stage.settle()
    stage.window.preferences.close()


def test_sensors_are_read_only_while_they_can_be_seen(stage: Stage) -> None:
    def periods() -> list[float]:
        return [command.period_s for command in stage.engine.sent(WatchSensors)]  # type: ignore[union-attr]

    assert periods()[-1] == 1.0
    stage.parts.settings.set("chat.side_panel", False)
    assert periods()[-1] == 0.0
    stage.parts.settings.set("chat.side_panel", True)
    assert periods()[-1] == 1.0
    stage.window.hide()
    assert periods()[-1] == 0.0


def test_sensors_do_not_start_anew_when_another_page_is_shown(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.ops.doctor_ops._engine_checks", tuple)
    stage.window.show_page("monitors")
    before = len(stage.engine.sent(WatchSensors))
    for key in ("doctor", "monitors", "", "doctor", ""):
        stage.window.show_page(key) if key else stage.window.show_chat()
    assert all(one.period_s > 0 for one in stage.engine.sent(WatchSensors)[before:])  # type: ignore[union-attr]


def test_closing_asks_first_and_leaves_an_unfinished_answer_interrupted(stage: Stage) -> None:
    stage.load()
    stage.engine.answers = [(Prefill(), Tokens(("so far",)), Stall(60))]
    stage.send("x", wait=False)
    stage.qtbot.waitUntil(lambda: stage.parts.bridge.state.kind == "generating")
    stage.window.close()
    assert stage.running.closing.is_set()
    assert stage.window.isVisible()
    # The answer under way would take a minute.
    start = time.monotonic()
    stage.running.shut_down()
    assert time.monotonic() - start < 20.0
    assert not stage.window.isVisible()


def test_everything_with_the_keyboard_has_a_name(stage: Stage) -> None:
    nameless = [
        widget
        for widget in stage.window.findChildren(QWidget)
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and widget.isVisible() and not widget.accessibleName()
    ]
    assert [type(widget).__name__ for widget in nameless] == []


def test_a_changed_option_of_a_chat_holds_for_its_next_answer(stage: Stage) -> None:
    stage.load()
    stage.send("x")
    for temperature in (0.1, 0.2, 0.3):
        stage.controller.options.set_sampling(SamplingParams(temperature=temperature))
    assert stage.controller.options.sampling().temperature == 0.3
    stage.controller.options.set_system_prompt("Rhyme.")
    stage.send("y")
    command = stage.engine.sent(Generate)[-1]
    assert isinstance(command, Generate)
    assert command.sampling.temperature == 0.3
    assert (command.messages or ())[0].content == "Rhyme."


def test_the_send_key_follows_the_setting(stage: Stage) -> None:
    stage.load()
    edit = stage.window.page.composer._edit
    stage.qtbot.keyClicks(edit, "one")
    stage.qtbot.keyClick(edit, Qt.Key.Key_Return)
    stage.qtbot.waitUntil(lambda: stage.controller.chat_id is not None)
    stage.settle()
    stage.parts.settings.set("chat.send_key", "ctrl_enter")
    stage.qtbot.keyClicks(edit, "two")
    stage.qtbot.keyClick(edit, Qt.Key.Key_Return)
    assert stage.window.page.composer.text() == "two\n"
    stage.qtbot.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert stage.window.page.composer.text() == ""
    stage.qtbot.waitUntil(lambda: len(stage.shown()) == 4)


@pytest.mark.filterwarnings("ignore:path is deprecated:DeprecationWarning")
def test_switching_chats_quickly_drops_what_was_still_being_rendered(stage: Stage) -> None:
    stage.load()
    stage.engine.answer = (Prefill(), Tokens(("```python\nx = 1\n```\n\nand $$a^2$$\n",)))
    stage.send("code")
    chat = stage.controller.chat_id
    assert chat is not None
    for _ in range(10):
        stage.controller.new_chat()
        stage.qtbot.wait(1)
        stage.controller.open_chat(chat)
        stage.qtbot.wait(1)
    stage.qtbot.waitUntil(lambda: stage.window.page.transcript.pending == 0)


def test_the_shown_chat_can_be_deleted_while_the_list_is_filtered(stage: Stage) -> None:
    stage.load()
    stage.send("apples")
    stage.window.page.list.search_changed.emit("nothing like it")
    stage.controller.delete_shown()
    stage.qtbot.waitUntil(lambda: stage.controller.chat_id is None)
    stage.window.page.list.search_changed.emit("")
    assert stage.controller._list.chats() == ()


def test_the_placement_page_is_reached_by_its_key_and_has_actions_of_its_own(stage: Stage) -> None:
    window = stage.window
    assert not window.actions_.action("fit_placement").isEnabled()
    window.actions_.action("placement_page").trigger()
    page = window.placement.controller().page
    assert window._stack.currentWidget() is page
    assert page.isVisible()
    assert not window.actions_.action("apply_placement").isEnabled()
    window.actions_.action("chat_page").trigger()
    assert window._stack.currentWidget() is window.page


def test_ctrl_enter_stays_with_the_composer_while_the_chat_is_shown(stage: Stage) -> None:
    stage.load()
    assert not stage.window.actions_.action("apply_placement").isEnabled()
    assert not stage.window.actions_.action("undo_placement").isEnabled()


def test_a_model_picked_on_the_placement_page_is_planned_not_loaded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(stage.window.placement, "plan", opened.append)
    monkeypatch.setattr("app.windows.main_window.open_model_picker", lambda _w, _models, _loaded, load, _other: load("/m.gguf"))
    stage.window.show_page("placement")
    stage.window._pick_model()
    assert opened == ["/m.gguf"]
    assert stage.parts.bridge.state.kind == "no_model"


def test_an_answer_that_a_full_gpu_ended_leads_to_the_placement_page(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.load()
    full = "the working memory of a kernel needs 2,000 bytes on gpu0 and 1,000 are free; place fewer layers there"
    stage.engine.answers = [(Fail("OutOfDeviceMemory", full),)]
    stage.send("hello")
    asked: list[str] = []
    monkeypatch.setattr("app.windows.placement_controller.PlacementController.make_room", lambda _self, text: asked.append(text))
    row = stage.parts.store.messages(stage.controller.chat_id or 0)[-1]
    stage.window.page.transcript.error_action_requested.emit(row.id)
    assert asked == [row.error]
    assert stage.window._door() is stage.window.placement
