"""ChatListView: New chat, search, and the conversations by day; rename in place, delete, menu per row.

It shows any list model with the roles of ChatListRole and only emits
signals: the model changes when the operation has been carried out. Additions: set_current(chat_id), rename_current(),
focus_search().
"""

from __future__ import annotations

from PySide6.QtCore import QAbstractItemModel, QEvent, QModelIndex, QObject, QPoint, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QLineEdit, QListView, QMenu, QWidget

from app import theme
from app.chat.chat_list_delegate import ChatListDelegate, menu_rect, row_rect
from app.qtmodels.chat_list import ChatListRole
from app.widgets import paint
from app.widgets.buttons import PushButton
from app.widgets.icon import draw_icon

WIDTH = 232
_SEARCH_DELAY_MS = 150


class ChatListView(QWidget):
    """The left column of the chat page."""

    new_requested = Signal()
    opened = Signal(int)
    rename_requested = Signal(int, str)
    delete_requested = Signal(int)
    search_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFixedWidth(WIDTH)
        self._new = PushButton(self.tr("New chat"), icon_name="plus", keys="Ctrl N", parent=self, icon_size=16)
        self._search = _SearchBox(self)
        self._list = _List(self)
        self._editor = _RenameEditor(self._list.viewport())
        self._menu = QMenu(self)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_SEARCH_DELAY_MS)
        self._connect()

    def _connect(self) -> None:
        self._new.clicked.connect(self.new_requested)
        self._search.edit.textChanged.connect(lambda _text: self._timer.start())
        self._timer.timeout.connect(lambda: self.search_changed.emit(self._search.edit.text()))
        self._list.row_opened.connect(lambda index: self.opened.emit(self._chat_id(index)))
        self._list.row_menu_requested.connect(self._on_row_menu_requested)
        self._list.rename_key_pressed.connect(self.rename_current)
        self._list.delete_key_pressed.connect(lambda index: self.delete_requested.emit(self._chat_id(index)))
        self._editor.committed.connect(self.rename_requested)
        self._list.verticalScrollBar().valueChanged.connect(lambda _value: self._editor.cancel())
        theme.hub().changed.connect(self.update)

    @staticmethod
    def _chat_id(index: QModelIndex) -> int:
        return int(index.data(ChatListRole.ID))

    def set_model(self, model: QAbstractItemModel) -> None:
        """Show the rows of `model`."""
        self._list.setModel(model)

    def set_current(self, chat_id: int | None) -> None:
        """Select the row of a chat, or none."""
        model = self._list.model()
        for row in range(model.rowCount() if model is not None and chat_id is not None else 0):
            index = model.index(row, 0)
            if self._chat_id(index) == chat_id:
                self._list.setCurrentIndex(index)
                return
        self._list.clearSelection()
        self._list.setCurrentIndex(QModelIndex())

    def rename_current(self) -> None:
        """Edit the title of the selected chat in place; Enter commits, Escape leaves it."""
        index = self._list.currentIndex()
        if index.isValid():
            self._editor.open(
                self._chat_id(index), str(index.data(ChatListRole.TITLE) or ""), row_rect(self._list.visualRect(index), index)
            )

    def focus_search(self) -> None:
        """Put the keyboard into the search box."""
        self._search.edit.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._search.edit.selectAll()

    def _on_row_menu_requested(self, index: QModelIndex, position: QPoint) -> None:
        chat_id = self._chat_id(index)
        self._menu.clear()
        self._menu.addAction(self.tr("Rename"), lambda: self._rename_row(index)).setShortcut("F2")
        self._menu.addAction(self.tr("Delete"), lambda: self.delete_requested.emit(chat_id)).setShortcut("Del")
        self._menu.popup(position)

    def _rename_row(self, index: QModelIndex) -> None:
        self._list.setCurrentIndex(index)
        self.rename_current()

    def resizeEvent(self, event: QResizeEvent) -> None:
        width = self.width()
        self._new.setGeometry(14, 14, width - 28, 34)
        self._search.setGeometry(14, 56, width - 28, 30)
        self._list.setGeometry(0, 90, width - 1, self.height() - 90)

    def sizeHint(self) -> QSize:
        return QSize(WIDTH, 600)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.color("panel"))
        paint.line(painter, self.width() - 0.5, 0, self.width() - 0.5, self.height())


class _SearchBox(QWidget):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.edit = QLineEdit(self)
        self.edit.setObjectName("bare")
        self.edit.setFrame(False)
        self.edit.setFont(theme.font(12))
        self.edit.setPlaceholderText(self.tr("Search chats"))
        self.edit.setAccessibleName(self.tr("Search chats"))
        self.edit.textChanged.connect(lambda _text: self.update())
        self.edit.installEventFilter(self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.edit.setGeometry(30, 4, self.width() - 30 - 52, 22)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self.update()
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() == Qt.Key.Key_Escape
            and self.edit.text()
        ):
            self.edit.clear()
            return True
        return super().eventFilter(watched, event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        paint.begin(painter)
        rect = QRectF(self.rect())
        paint.rounded(painter, rect, 8, "surface", None)
        draw_icon(painter, "search", 10, 8, 14, "text3")
        if not self.edit.hasFocus() and not self.edit.text():
            paint.key_hint(painter, rect.width() - 10, 6.5, "Ctrl K", "right")
        if self.edit.hasFocus():
            paint.focus_ring(painter, rect, 8)


class _List(QListView):
    row_opened = Signal(QModelIndex)
    row_menu_requested = Signal(QModelIndex, QPoint)
    rename_key_pressed = Signal()
    delete_key_pressed = Signal(QModelIndex)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setItemDelegate(ChatListDelegate(self))
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setMouseTracking(True)
        self.viewport().setAutoFillBackground(False)
        self.setStyleSheet("QListView { background: transparent; border: none; }")
        self.setAccessibleName(self.tr("Chats"))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        index = self.currentIndex()
        if not index.isValid():
            super().keyPressEvent(event)
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.row_opened.emit(index)
        elif event.key() == Qt.Key.Key_F2:
            self.rename_key_pressed.emit()
        elif event.key() == Qt.Key.Key_Delete:
            self.delete_key_pressed.emit(index)
        elif event.key() == Qt.Key.Key_Menu:
            self.row_menu_requested.emit(index, self.viewport().mapToGlobal(self.visualRect(index).center()))
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        position = event.position().toPoint()
        index = self.indexAt(position)
        if not index.isValid() or not row_rect(self.visualRect(index), index).contains(position):
            return
        on_menu = menu_rect(self.visualRect(index), index).contains(position)
        if event.button() == Qt.MouseButton.RightButton or on_menu:
            self.row_menu_requested.emit(index, event.globalPosition().toPoint())
            return
        super().mousePressEvent(event)
        self.row_opened.emit(index)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.rename_key_pressed.emit()


class _RenameEditor(QLineEdit):
    committed = Signal(int, str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._chat_id = 0
        self._before = ""
        self.setAccessibleName(self.tr("Chat title"))
        self.setMaxLength(200)
        self.hide()
        self.returnPressed.connect(self._commit)

    def open(self, chat_id: int, title: str, rect: QRect) -> None:
        self._chat_id, self._before = chat_id, title
        self.setText(title)
        self.setGeometry(rect)
        self.selectAll()
        self.show()
        self.setFocus(Qt.FocusReason.OtherFocusReason)

    def cancel(self) -> None:
        self.hide()

    def _commit(self) -> None:
        title = self.text().strip()
        self.hide()
        if title and title != self._before:
            self.committed.emit(self._chat_id, title)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.cancel()
            return
        super().keyPressEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        if self.isVisible():
            self._commit()
        super().focusOutEvent(event)
