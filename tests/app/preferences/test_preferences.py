"""The preferences dialog follows the schema and applies at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QLineEdit, QPlainTextEdit, QSpinBox
from pytestqt.qtbot import QtBot

from app.actions.tables import ACTIONS
from app.preferences.dialog import ABOUT, SHORTCUTS, PreferencesDialog
from app.preferences.form import SectionForm
from app.settings.schema import option_keys
from app.settings.store import SettingsStore


@pytest.fixture
def settings(tmp_path: Path) -> SettingsStore:
    return SettingsStore(tmp_path / "settings.toml")


def test_each_kind_of_option_has_an_editor_that_saves(qtbot: QtBot, settings: SettingsStore) -> None:
    form = SectionForm(option_keys(hidden=False), settings)
    qtbot.addWidget(form)
    assert set(form.editors) == set(option_keys(hidden=False))

    theme = form.editors["general.theme"].widget
    assert isinstance(theme, QComboBox)
    theme.setCurrentIndex(2)
    last = form.editors["general.start_with_last_model"].widget
    assert isinstance(last, QCheckBox)
    last.setChecked(False)
    temperature = form.editors["sampling.temperature"].widget
    assert isinstance(temperature, QDoubleSpinBox)
    assert (temperature.minimum(), temperature.maximum()) == (0.0, 5.0)
    temperature.setValue(0.3)
    with qtbot.waitSignal(form.reload_needed):
        chunk = form.editors["engine.prefill_chunk"].widget
        assert isinstance(chunk, QSpinBox)
        chunk.setValue(256)
    threads = form.editors["engine.threads"].widget
    assert isinstance(threads, QLineEdit)
    with qtbot.waitSignal(form.reload_needed):
        qtbot.keyClicks(threads, "0-1")
    with qtbot.waitSignal(form.failed) as told:
        qtbot.keyClicks(threads, ",1")
    assert told.args == ["Processor 1 listed twice; each runs one worker, so name it once."]
    prompt = form.editors["chat.system_prompt"].widget
    assert isinstance(prompt, QPlainTextEdit)
    prompt.setPlainText("Be kind.")
    qtbot.waitUntil(lambda: settings.values.chat.system_prompt == "Be kind.")

    again = SettingsStore(settings.path).values
    assert (again.general.theme, again.general.start_with_last_model) == ("light", False)
    assert (again.sampling.temperature, again.engine.threads) == (0.3, "0-1")


def test_showing_a_value_changes_nothing(qtbot: QtBot, settings: SettingsStore) -> None:
    form = SectionForm(option_keys(hidden=False), settings)
    qtbot.addWidget(form)
    for key, editor in form.editors.items():
        with qtbot.assertNotEmitted(editor.changed):
            editor.show_value(settings.values.get(key))
    assert not settings.path.exists()


def test_dialog_has_every_section_and_filters(qtbot: QtBot, settings: SettingsStore) -> None:
    dialog = PreferencesDialog(settings, ACTIONS, "1.2.3")
    qtbot.addWidget(dialog)
    assert dialog.current_page() == "general"
    dialog._filter.setText("repetition")
    assert dialog.current_page() == "sampling"
    dialog.show_page(ABOUT)
    assert dialog.current_page() == ABOUT
    dialog.show_page(SHORTCUTS)
    with qtbot.waitSignal(dialog.reload_requested):
        dialog._reload.button.click()
