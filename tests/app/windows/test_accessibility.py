"""Assistive technology and the keyboard over all pages and dialogs: names, the order of Tab, and a focus that can be seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QAccessibleInterface
from PySide6.QtWidgets import QAbstractButton, QAbstractSpinBox, QApplication, QComboBox, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.shots.book import SCREENS
from app.shots.screens import Frame
from tests.app.windows.conftest import Stage

pytestmark = [pytest.mark.usefixtures("themed"), pytest.mark.filterwarnings("ignore:path is deprecated")]

ACTIVE = {
    QAccessible.Role.Button,
    QAccessible.Role.PushButton,
    QAccessible.Role.CheckBox,
    QAccessible.Role.ComboBox,
    QAccessible.Role.EditableText,
    QAccessible.Role.SpinBox,
    QAccessible.Role.Slider,
    QAccessible.Role.List,
    QAccessible.Role.Link,
}


def nodes(interface: QAccessibleInterface, depth: int = 0) -> Iterator[QAccessibleInterface]:
    """An object of the tree and all below it that can be seen."""
    if depth > 40 or not interface.isValid() or interface.state().invisible:
        return
    yield interface
    for i in range(interface.childCount()):
        child = interface.child(i)
        if child is not None:
            yield from nodes(child, depth + 1)


def nameless(root: QWidget) -> list[str]:
    """Active objects of the accessibility tree without a name; the inner field of a number box has the box's."""
    interface = QAccessible.queryAccessibleInterface(root)
    found = []
    for node in nodes(interface):
        widget = node.object()
        inner = isinstance(widget, QLineEdit) and isinstance(widget.parent(), QAbstractSpinBox | QComboBox)
        if node.role() in ACTIVE and not node.text(QAccessible.Text.Name) and not inner:
            found.append(f"{node.role().name} {type(widget).__name__}")
    return found


@pytest.mark.parametrize("name", SCREENS)
def test_every_active_object_of_every_screen_has_a_name(qtbot: QtBot, name: str) -> None:
    widget = SCREENS[name]()
    qtbot.addWidget(widget)
    widget.show()
    QApplication.processEvents()
    assert nameless(widget) == []
    assert sum(1 for _ in nodes(QAccessible.queryAccessibleInterface(widget))) > 10
    if isinstance(widget, Frame):
        widget.shut_down()


def walk(window: QWidget, n: int) -> list[QWidget]:
    """The widgets that have the keyboard after each press of Tab, until the first comes again."""
    order: list[QWidget] = []
    for _ in range(n):
        at = window.focusWidget() or window
        at.focusNextPrevChild(True)  # as the key does: every widget above it may have a say
        focused = window.focusWidget()
        if focused is None or (order and focused is order[0]):
            break
        order.append(focused)
    return order


def pane_of(stage: Stage, widget: QWidget) -> str:
    page = stage.window.page
    panes = {"list": page.list, "header": page.header, "transcript": page.transcript, "composer": page.composer}
    panes["side"] = page.side_panel
    return next((name for name, pane in panes.items() if pane is widget or pane.isAncestorOf(widget)), "rail")


def test_tab_goes_through_the_chat_page_as_it_is_read(stage: Stage) -> None:
    stage.load()
    stage.send("hello")
    stage.window.activateWindow()
    page = stage.window.page
    page.composer.focus()
    order = walk(stage.window, 80)
    panes = [pane_of(stage, widget) for widget in order]
    runs = [pane for i, pane in enumerate(panes) if i == 0 or panes[i - 1] != pane]
    start = runs.index("rail")
    turn = runs[start:] + runs[:start]
    assert [pane for i, pane in enumerate(turn) if i == 0 or turn[i - 1] != pane] == [
        "rail", "list", "header", "transcript", "composer", "side"
    ]  # fmt: skip
    assert len(order) == len(set(map(id, order)))


def test_every_control_shows_that_it_has_the_keyboard(stage: Stage) -> None:
    stage.load()
    stage.send("hello")
    stage.window.activateWindow()
    stage.qtbot.waitUntil(stage.window.isActiveWindow)
    stage.window.page.composer.focus()
    for widget in walk(stage.window, 80):
        if not isinstance(widget, QAbstractButton | QLineEdit):
            continue
        shown = widget if isinstance(widget, QAbstractButton) else widget.parentWidget()
        widget.setFocus(Qt.FocusReason.TabFocusReason)
        with_focus = shown.grab().toImage()
        widget.clearFocus()
        assert shown.grab().toImage() != with_focus, widget.accessibleName()
