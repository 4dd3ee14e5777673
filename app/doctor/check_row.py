"""CheckRow: one check: its state, title, what was found and why it matters; opened, also the evidence and how to fix it."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QVBoxLayout, QWidget

from app import theme
from app.doctor.fix_card import FixCard
from app.doctor.rows import ICONS, TONES, CheckView, status_text
from app.i18n import tr
from app.placement.pane import Prose
from app.widgets import paint
from app.widgets.icon import draw_icon
from app.widgets.painted_button import PaintedButton

HEIGHT = 54
_INDENT = 46
_NARROW = 600


class CheckRow(QWidget):
    """toggled(open); stepped(+1 or -1): the keyboard goes on to the next row."""

    toggled = Signal(bool)
    stepped = Signal(int)

    def __init__(self, view: CheckView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._view = view
        self._stale = False
        self._body: _Body | None = None
        self.head = _Head(self)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self._column.addWidget(self.head)
        self.head.toggled.connect(self._on_toggled)
        self.head.fits_changed.connect(self._on_fits_changed)
        self.show_view(view)

    @property
    def view(self) -> CheckView:
        """What is shown."""
        return self._view

    @property
    def is_open(self) -> bool:
        """Whether evidence and fixes are shown."""
        return self.head.isChecked()

    def set_open(self, is_open: bool) -> None:
        """Shows or hides evidence and fixes."""
        self.head.setChecked(is_open)

    def set_stale(self, stale: bool) -> None:
        """Of an earlier run, while another one is under way."""
        if stale != self._stale:
            self._stale = stale
            self.head.stale = stale
            self.head.update()

    def show_view(self, view: CheckView) -> None:
        """Another result of the same check."""
        changed = view != self._view or not self.head.text()
        self._view = view
        self.set_stale(False)
        if not changed:
            return
        self.head.show_view(view)
        if self._body is not None:
            self._drop_body()
            if self.is_open:
                self._make_body()

    def text(self) -> str:
        """The row in words, for the clipboard."""
        view = self._view
        lines = [f"{view.title}: {status_text(view.status)}. {view.observed}".strip(), view.why, view.evidence]
        lines += [fix.command for fix in view.fixes]
        return "\n".join(line for line in lines if line)

    def _on_toggled(self, is_open: bool) -> None:
        if is_open and self._body is None:
            self._make_body()
        elif self._body is not None:
            self._body.setVisible(is_open)
        self.toggled.emit(is_open)

    def _make_body(self) -> None:
        self._body = _Body(self._view)
        self._body.show_texts(not self.head.says_all)
        self._column.addWidget(self._body)

    def _on_fits_changed(self, says_all: bool) -> None:
        if self._body is not None:
            self._body.show_texts(not says_all)

    def _drop_body(self) -> None:
        if self._body is not None:
            self._body.hide()
            self._body.deleteLater()
            self._body = None

    @property
    def fixes(self) -> tuple[FixCard, ...]:
        """The cards of an opened row."""
        return () if self._body is None else tuple(self._body.findChildren(FixCard))


class _Head(PaintedButton):
    """Left and right close and open, up and down go to the next row, Ctrl+C copies. fits_changed(whether it says all)."""

    fits_changed = Signal(bool)

    def __init__(self, row: CheckRow) -> None:
        super().__init__("", row)
        self._row = row
        self._view: CheckView | None = None
        self.stale = False
        self.says_all = True
        self.setCheckable(True)
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_view(self, view: CheckView) -> None:
        self._view = view
        self.setText(view.title)
        self.setAccessibleName(f"{view.title}: {status_text(view.status)}. {view.observed}".rstrip(". ") + ".")
        self.setAccessibleDescription(view.why)
        self.setToolTip("\n".join(part for part in (view.observed, view.why) if part))
        self._measure()
        self.update()

    def _room(self) -> float:
        return self.width() - _INDENT - 44

    def _measure(self) -> None:
        """Whether both texts are there to their ends."""
        view, room = self._view, self._room()
        if view is None:
            return
        title = paint.text_width(view.title, 13, 600)
        fits = title + 24 + paint.text_width(view.observed, 12, 500) <= room and paint.text_width(view.why, 12) <= room
        fits = fits and room >= _NARROW
        if fits != self.says_all:
            self.says_all = fits
            self.fits_changed.emit(fits)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._measure()

    def sizeHint(self) -> QSize:
        return QSize(400, HEIGHT)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = Qt.Key
        if event.key() in (keys.Key_Up, keys.Key_Down):
            self._row.stepped.emit(1 if event.key() == keys.Key_Down else -1)
        elif event.key() in (keys.Key_Left, keys.Key_Right):
            self.setChecked(event.key() == keys.Key_Right)
        elif event.key() == keys.Key_C and event.modifiers() == Qt.KeyboardModifier.ControlModifier:
            QGuiApplication.clipboard().setText(self._row.text())
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        view = self._view
        if view is None:
            return
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        if self.hovered:
            paint.rounded(painter, rect.adjusted(4, 3, -4, -3), 9, "raised")
        if self.stale:
            painter.setOpacity(0.45)
        draw_icon(painter, ICONS[view.status], 18, 10 if view.why or self._room() < _NARROW else 18, 17, TONES[view.status])
        room = self._room()
        if room < _NARROW:
            paint.text(painter, _INDENT, 23, view.title, 13, 600, max_width=room)
            paint.text(painter, _INDENT, 41, view.observed or view.why, 12, 400, "text2", max_width=room)
        else:
            quiet = view.status == "n/a"
            top = 23 if view.why else 31
            used = paint.text(painter, _INDENT, top, view.title, 13, 600, "text2" if quiet else "text", max_width=room * 0.5)
            tone = TONES[view.status] if view.status in ("fail", "warn") else "text2"
            paint.text(painter, _INDENT + room, top, view.observed, 12, 500, tone, "right", max_width=room - used - 24)
            paint.text(painter, _INDENT, 41, view.why, 12, 400, "text3", max_width=room)
        draw_icon(
            painter, "chevron-down" if self.isChecked() else "chevron-right", rect.width() - 32, HEIGHT / 2 - 7, 14, "text3"
        )
        if self.focus_visible:
            paint.focus_ring(painter, rect.adjusted(4, 3, -4, -3), 9)


class _Body(QWidget):
    def __init__(self, view: CheckView) -> None:
        super().__init__()
        self.setAccessibleName(tr("Doctor", "Details"))
        column = QVBoxLayout(self)
        column.setContentsMargins(_INDENT, 0, 18, 16)
        column.setSpacing(6)
        self._texts = [Prose(text, 12, token) for text, token in ((view.observed, "text"), (view.why, "text2")) if text]
        for prose in self._texts:
            column.addWidget(prose)
        if view.evidence:
            column.addWidget(_Evidence(view.evidence))
        if view.fixes:
            column.addSpacing(4)
            title = tr("Doctor", "How to fix it") if len(view.fixes) == 1 else tr("Doctor", "Ways to fix it")
            column.addWidget(Prose(title, 12, "text3"))
            for fix in view.fixes:
                column.addWidget(FixCard(fix))
            column.addWidget(Prose(tr("Doctor", "Layerdeck runs none of this: copy it and decide."), 11, "text3"))

    def show_texts(self, shown: bool) -> None:
        """What the head already says need not be said twice."""
        for prose in self._texts:
            prose.setVisible(shown)


class _Evidence(Prose):
    """Where it was read, in the letters of code."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 11, "text3")
        self.setFont(theme.font(11, 400, mono=True))
        self.setAccessibleName(tr("Doctor", "Evidence"))
