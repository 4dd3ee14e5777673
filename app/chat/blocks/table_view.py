"""TableView: a framed table. Cells are documents that are made once per text, so a growing table costs only its new cells."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QAbstractTextDocumentLayout,
    QContextMenuEvent,
    QGuiApplication,
    QPainter,
    QPaintEvent,
    QPalette,
    QTextOption,
)
from PySide6.QtWidgets import QMenu, QWidget

from app import theme
from app.chat.blocks.base import BlockContext, BlockView
from app.chat.blocks.rich_text import TextStyle, fill_inline
from app.chat.blocks.safe_document import SafeDocument
from app.chat.markdown import Block
from app.chat.table_text import TableText, parse_table
from app.widgets import paint

MAX_CELLS = 400
_ROW = 32
_PAD = 14
_MIN_COLUMN = 48
_BASELINE = 20.5
_FOOT = 4
_ALIGN = {"left": Qt.AlignmentFlag.AlignLeft, "center": Qt.AlignmentFlag.AlignHCenter, "right": Qt.AlignmentFlag.AlignRight}


class TableView(BlockView):
    """At most MAX_CELLS cells: the column shows a larger table as code."""

    def __init__(self, context: BlockContext, parent: QWidget | None = None) -> None:
        super().__init__(context, parent)
        self._source = ""
        self._table = TableText((), (), ())
        self._cells: dict[tuple[str, str, str], SafeDocument] = {}
        self._natural: dict[int, float] = {}
        self._grid: list[list[SafeDocument]] = []
        self._columns: list[int] = []
        self._heights: list[int] = []

    def set_block(self, block: Block) -> None:
        """Show the table as far as it is written."""
        if block.source == self._source:
            return
        self._source = block.source
        self._table = parse_table(block.source)
        self._build()

    def _build(self) -> None:
        table = self._table
        used: dict[tuple[str, str, str], SafeDocument] = {}
        self._grid = []
        for r, row in enumerate((table.header, *table.rows)):
            line = []
            for c, text in enumerate(row):
                role = "header" if r == 0 else ("first" if c == 0 else "cell")
                key: tuple[str, str, str] = (text, role, table.aligns[c])
                used[key] = used.get(key) or self._cells.get(key) or self._make(*key)
                line.append(used[key])
            self._grid.append(line)
        for key in self._cells.keys() - used.keys():
            document = self._cells[key]
            self._natural.pop(id(document), None)
            document.deleteLater()
        self._cells = used
        self.setAccessibleName(self.tr("Table, %n rows", "", len(table.rows)))
        self.setAccessibleDescription(self._source[:500])
        self.update()

    def _make(self, text: str, role: str, align: str) -> SafeDocument:
        document = SafeDocument(self)
        style = {
            "header": TextStyle(px=12, weight=600, color="text3", line_height=120),
            "first": TextStyle(px=13, color="text", line_height=120),
            "cell": TextStyle(px=13, color="text2", line_height=120),
        }[role]
        option = QTextOption(_ALIGN[align])
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        document.setDefaultTextOption(option)
        fill_inline(document, text, style)
        self._natural[id(document)] = document.size().width() + 1
        return document

    def layout_width(self, width: int) -> int:
        """Columns share the width by what their cells want."""
        n = len(self._table.aligns)
        if not n:
            return 0
        room = width - _PAD * (n + 1)
        wants = [max(_MIN_COLUMN, *(self._natural[id(line[c])] for line in self._grid)) for c in range(n)]
        total = sum(wants)
        if total <= room:
            self._columns = [int(want * room / total) for want in wants]
        else:
            self._columns = _shrink(wants, room)
        self._heights = []
        for line in self._grid:
            height = 0.0
            for c, document in enumerate(line):
                document.setTextWidth(self._columns[c])
                height = max(height, _BASELINE - _ascent(document) + document.size().height() + _FOOT)
            self._heights.append(max(_ROW, int(height + 0.999)))
        return sum(self._heights)

    def sizeHint(self) -> QSize:
        return QSize(400, sum(self._heights))

    def restyle(self) -> None:
        """Make the cells in the new colours."""
        for document in self._cells.values():
            document.deleteLater()
        self._cells, self._natural = {}, {}
        self._build()
        self.layout_width(self.width())

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.addAction(self.tr("Copy table"), lambda: QGuiApplication.clipboard().setText(self._source.strip()))
        menu.popup(event.globalPos())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        paint.rounded(painter, QRectF(self.rect()), 10, "surface", "line")
        y = 0
        for r, line in enumerate(self._grid):
            height = self._heights[r]
            if r:
                paint.line(painter, 1, y + 0.5, self.width() - 1, y + 0.5)
            if event.rect().intersects(QRectF(0, y, self.width(), height).toAlignedRect()):
                self._paint_row(painter, line, y)
            y += height

    def _paint_row(self, painter: QPainter, line: list[SafeDocument], y: int) -> None:
        x = _PAD
        for c, document in enumerate(line):
            context = QAbstractTextDocumentLayout.PaintContext()
            context.palette.setColor(QPalette.ColorRole.Text, theme.color("text"))
            painter.save()
            # The same document may stand in several cells of other widths.
            document.setTextWidth(self._columns[c])
            painter.translate(QPointF(x, y + _BASELINE - _ascent(document)))
            document.documentLayout().draw(painter, context)
            painter.restore()
            x += self._columns[c] + _PAD


def _ascent(document: SafeDocument) -> float:
    """Distance of the first baseline from the top of the document."""
    layout = document.firstBlock().layout()
    return layout.lineAt(0).y() + layout.lineAt(0).ascent() if layout.lineCount() else 12.0


def _shrink(wants: list[float], room: int) -> list[int]:
    """Columns that want less than an equal share get what they want, the others share the rest."""
    left, open_columns = float(room), list(range(len(wants)))
    result = [0] * len(wants)
    while open_columns:
        share = left / len(open_columns)
        small = [c for c in open_columns if wants[c] <= share]
        if not small:
            for c in open_columns:
                result[c] = max(_MIN_COLUMN // 2, int(share))
            break
        for c in small:
            result[c] = int(wants[c])
            left -= wants[c]
            open_columns.remove(c)
    return result
