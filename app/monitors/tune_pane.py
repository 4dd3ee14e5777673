"""TunePane: the sweep over numbers of threads: how far it is, the table of what was measured, and what to do with it."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app import theme
from app.i18n import filled, tr
from app.preferences.form import plain_label, quiet_label
from app.widgets import paint
from app.widgets.buttons import PushButton
from engine.api.events import TunedRate, TuneProgress, WorkersTuned

_ROW = 22
_BAR = 150


def threads_words(n: int) -> str:
    """So many threads, in words."""
    return tr("Workers", "1 thread") if n == 1 else filled(tr("Workers", "%1 threads"), str(n))


class TunePane(QWidget):
    """The four buttons; best_clicked(number of workers)."""

    tune_clicked = Signal()
    stop_clicked = Signal()
    forget_clicked = Signal()
    best_clicked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._running = self._loaded = False
        self._best = 0
        self.start = PushButton(self.tr("Try numbers of threads"), "secondary", self, icon_name="gauge")
        self.best = PushButton(self.tr("Use the best"), "secondary", self)
        self.forget = PushButton(self.tr("Forget"), "secondary", self)
        self.forget.setToolTip(self.tr("Drop what was found for this model; the machine decides again at the next load."))
        self.state = quiet_label(
            self.tr("About five seconds on the loaded model. Answers come first; what is fastest is used at its next load.")
        )
        self.table = TuneTable(self)
        self.table.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 8, 0, 0)
        column.setSpacing(10)
        column.addWidget(plain_label(self.tr("Which number is fastest?"), 13, 600))
        row = QHBoxLayout()
        row.setSpacing(10)
        for button in (self.start, self.best, self.forget):
            row.addWidget(button)
        row.addWidget(self.state, 1)
        column.addLayout(row)
        column.addWidget(self.table)
        self.start.clicked.connect(lambda: (self.stop_clicked if self._running else self.tune_clicked).emit())
        self.best.clicked.connect(lambda: self.best_clicked.emit(self._best))
        self.forget.clicked.connect(self.forget_clicked)
        self._refresh()

    def set_model_loaded(self, on: bool) -> None:
        """Whether there is a model to try it on."""
        self._loaded = on
        self._refresh()

    def set_running(self, on: bool) -> None:
        """Whether a sweep is under way."""
        self._running = on
        self._refresh()

    def show_progress(self, event: TuneProgress) -> None:
        """How far it is, and what was measured last."""
        if event.what == "waiting":
            self.state.setText(self.tr("Waits until nobody else needs the model."))
            return
        what = (
            threads_words(event.setting) if event.what == "decode" else self.tr("prompts, %n tokens at once", "", event.setting)
        )
        rate = "" if event.tok_s is None else self.tr(": {rate} tokens/s").format(rate=f"{event.tok_s:.1f}")
        self.state.setText(f"{event.done} / {event.total}  {what}{rate}")

    def show_result(self, event: WorkersTuned) -> None:
        """The table."""
        self._best = event.threads
        self.table.set_rates(event.decode, event.threads, event.prefill, event.chunk)
        self.table.show()
        kept = (
            self.tr("kept for the next load of this model")
            if event.kept
            else self.tr("not kept: {why}").format(why=event.why_not)
        )
        told = self.tr("{threads} in {s} s, {kept}.")
        self.state.setText(told.format(threads=threads_words(event.threads), s=f"{event.seconds:.1f}", kept=kept))
        self._refresh()

    def show_stopped(self) -> None:
        """It was ended before there was a result."""
        self.state.setText(self.tr("Stopped; nothing of it was kept."))

    def _refresh(self) -> None:
        if self._running:
            self.start.set_content(self.tr("Stop"), "square", "", "secondary")
        else:
            self.start.set_content(self.tr("Try numbers of threads"), "gauge", "", "secondary")
        self.start.setEnabled(self._loaded)
        self.best.setEnabled(self._loaded and not self._running and self._best > 0)
        self.forget.setEnabled(self._loaded and not self._running)


class TuneTable(QWidget):
    """Tokens a second by setting, as bars; the one that is used is marked by colour and by a word."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._rows: tuple[tuple[str, TunedRate, bool, float], ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Tokens a second by number of threads"))
        theme.hub().changed.connect(self.update)

    def set_rates(self, decode: tuple[TunedRate, ...], threads: int, prefill: tuple[TunedRate, ...], chunk: int) -> None:
        """Show other figures."""
        rows = [(threads_words(one.setting), one, one.setting == threads, decode) for one in decode]
        rows += [(self.tr("%n prompt tokens at once", "", one.setting), one, one.setting == chunk, prefill) for one in prefill]
        self._rows = tuple((name, one, used, max(other.tok_s for other in of)) for name, one, used, of in rows)
        self.setAccessibleDescription("; ".join(f"{name}: {self._figure(one, used=used)}" for name, one, used, _ in self._rows))
        self.updateGeometry()
        self.update()

    def _figure(self, one: TunedRate, *, used: bool) -> str:
        figure = self.tr("{rate} tokens/s, ± {spread} %").format(rate=f"{one.tok_s:.1f}", spread=f"{100 * one.spread:.1f}")
        return self.tr("{figure}, best").format(figure=figure) if used else figure

    def sizeHint(self) -> QSize:
        return QSize(400, _ROW * len(self._rows))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        for i, (name, one, used, most) in enumerate(self._rows):
            y = i * _ROW
            paint.text(painter, 0, y + 15, name, 12, 500 if used else 400, "text" if used else "text2", max_width=180)
            rect = QRectF(190, y + 6, _BAR, 10)
            paint.rounded(painter, rect, 5, "overlay")
            rect.setWidth(max(10.0, _BAR * one.tok_s / most))
            paint.rounded(painter, rect, 5, "accent" if used else "text3")
            paint.text(painter, 190 + _BAR + 12, y + 15, self._figure(one, used=used), 12, 500 if used else 400, "text2")
