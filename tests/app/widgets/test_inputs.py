"""The inputs of forms: mouse, keyboard, steppers, and that the wheel does not change them by accident."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.widgets.inputs import Card, RealBox, Select, Switch, WholeBox

pytestmark = pytest.mark.usefixtures("themed")


def turn_wheel(widget: QWidget) -> None:
    point = QPointF(20, 10)
    event = QWheelEvent(
        point, widget.mapToGlobal(point), QPoint(0, 0), QPoint(0, 120), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(widget, event)


def test_switch_by_mouse_and_keyboard(qtbot: QtBot) -> None:
    switch = Switch()
    qtbot.addWidget(switch)
    switch.show()
    off = switch.grab().toImage()
    qtbot.mouseClick(switch, Qt.MouseButton.LeftButton, pos=QPoint(35, 13))
    assert switch.isChecked()
    assert switch.grab().toImage() != off
    qtbot.keyClick(switch, Qt.Key.Key_Space)
    assert not switch.isChecked()


def test_choice_by_keyboard_not_by_wheel(qtbot: QtBot) -> None:
    select = Select()
    qtbot.addWidget(select)
    select.addItems(["one", "two"])
    select.show()
    first = select.grab().toImage()
    turn_wheel(select)
    assert select.currentIndex() == 0
    qtbot.keyClick(select, Qt.Key.Key_Down)
    assert select.currentText() == "two"
    assert select.grab().toImage() != first


@pytest.mark.parametrize("kind", [WholeBox, RealBox])
def test_number_by_steppers_not_by_wheel(qtbot: QtBot, kind: type[WholeBox] | type[RealBox]) -> None:
    box = kind()
    qtbot.addWidget(box)
    box.show()
    more, less = box._steppers.buttons
    more.click()
    more.click()
    less.click()
    assert box.value() == 1
    turn_wheel(box)
    assert box.value() == 1
    assert box.rect().contains(more.geometry())
    assert box.rect().contains(less.geometry())


def test_card_draws_a_line_between_its_rows(qtbot: QtBot) -> None:
    card = Card()
    qtbot.addWidget(card)
    card.resize(200, 80)
    first, second = QWidget(card), QWidget(card)
    first.setGeometry(0, 0, 200, 40)
    second.setGeometry(0, 40, 200, 40)
    card.rows += [first, second]
    card.show()
    drawn = card.grab().toImage()
    second.hide()
    assert card.grab().toImage() != drawn
