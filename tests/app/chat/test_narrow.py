"""Narrow windows: whole words, whole figures, buttons that stay inside."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.chat.composer import Composer
from app.chat.empty_state import LINES, EmptyState, _lines
from app.chat.error_card import ErrorCard
from app.chat.stats_bar import StatsBar
from app.store.rows import Figures
from app.widgets import paint
from app.widgets.toast import Toast

pytestmark = pytest.mark.usefixtures("themed")


def test_the_button_of_an_error_goes_below_a_narrow_sentence(qtbot: QtBot) -> None:
    card = ErrorCard()
    qtbot.addWidget(card)
    card.set_text("The context is full: 8,192 of 8,192 tokens are used.", "Make room…")
    wide, narrow = card.layout_width(720), card.layout_width(240)
    assert narrow > wide
    assert card._button.y() > card._view.y() + card._view.height()
    assert card._button.x() + card._button.width() <= 240
    card.layout_width(720)
    assert card._button.y() < card._view.y() + card._view.height()


def test_figures_are_shown_whole_or_not(qtbot: QtBot) -> None:
    bar = StatsBar()
    qtbot.addWidget(bar)
    bar.set_figures(Figures(412, 600, 12.1, 212.0, 2.9), "done")
    assert bar._fitting(1000) == "412 tokens   ·   first token 2.9 s   ·   prefill 212 tok/s".replace("   ·   ", _separator())
    assert bar._fitting(paint.text_width("412 tokens", 12) + 5) == "412 tokens"
    assert bar._fitting(10) == ""


def _separator() -> str:
    from app.chat import stats_bar

    return stats_bar._SEPARATOR


@pytest.mark.parametrize("width", [600, 700, 1280, 1440])
def test_examples_are_not_cut_off(qtbot: QtBot, width: int) -> None:
    empty = EmptyState()
    qtbot.addWidget(empty)
    empty.resize(width - 72 - 232 - (300 if width >= 1200 else 0), 600)
    empty.set_model_name("A model")
    empty.show()
    for card in empty._cards:
        lines = _lines(card.prompt, card.width() - 28)
        assert len(lines) <= LINES
        if width >= 1280:
            assert all(paint.text_width(line, 12) <= card.width() - 26 for line in lines), (card.prompt, card.width())


def test_a_chip_without_room_is_left_out(qtbot: QtBot) -> None:
    composer = Composer()
    qtbot.addWidget(composer)
    composer.resize(390, 140)
    composer.show()
    for chip in (composer._sampling, composer._system):
        assert chip.isHidden() or chip.width() >= min(72, chip.sizeHint().width())
    composer.resize(900, 140)
    assert composer._system.isVisible()


def test_a_long_notice_is_shown_whole_and_longer(qtbot: QtBot) -> None:
    from PySide6.QtWidgets import QWidget

    holder = QWidget()
    qtbot.addWidget(holder)
    holder.resize(400, 300)
    holder.show()
    toast = Toast(holder)
    toast.show_message("Copied")
    short, brief_ms = toast.height(), toast._timer.interval()
    toast.show_message("The model could not be loaded: the file is damaged or was cut short; download it again. " * 2)
    assert toast.height() > short
    assert toast._timer.interval() > brief_ms
    assert holder.rect().contains(toast.geometry())
