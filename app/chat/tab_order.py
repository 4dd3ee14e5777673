"""Tab order of the transcript: messages are made when they come near, and Qt puts what is made later behind everything else."""

from __future__ import annotations

from itertools import pairwise

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.chat.message_view import MessageView
from app.chat.transcript_view import TranscriptView


def sort_messages(transcript: TranscriptView) -> None:
    """Puts messages and what they hold behind the transcript itself, from top to bottom. Call it before the keyboard moves on."""
    views = transcript.viewport().findChildren(MessageView, options=Qt.FindChildOption.FindDirectChildrenOnly)
    rank = {view: n for n, view in enumerate(sorted(views, key=MessageView.y))}
    held: list[list[QWidget]] = [[] for _ in rank]
    chain = _chain(transcript)
    for widget in chain:
        view = _message_of(widget)
        if view in rank:
            held[rank[view]].append(widget)
    wanted = [transcript, *(widget for one in held for widget in one)]
    if chain[: len(wanted)] != wanted:
        for before, after in pairwise(wanted):
            QWidget.setTabOrder(before, after)


def _chain(first: QWidget) -> list[QWidget]:
    """What Tab may reach, once around."""
    found, widget = [first], first.nextInFocusChain()
    while widget is not None and widget is not first:
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            found.append(widget)
        widget = widget.nextInFocusChain()
    return found


def _message_of(widget: QWidget | None) -> MessageView | None:
    while widget is not None and not isinstance(widget, MessageView):
        widget = widget.parentWidget()
    return widget
