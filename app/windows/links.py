"""Opening links of answers: only web and mail addresses, and only after the user has seen where they lead."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QMessageBox, QWidget

from app.i18n import tr

ALLOWED = frozenset({"http", "https", "mailto"})
SHOWN_LENGTH = 400


def allowed_url(link: str) -> QUrl | None:
    """The address when it may be opened; None for files, scripts, other programs' schemes, and what is no address."""
    url = QUrl(link.strip(), QUrl.ParsingMode.TolerantMode)
    if not url.isValid() or url.scheme().lower() not in ALLOWED:
        return None
    if url.scheme().lower() != "mailto" and not url.host():
        return None
    return url


def ask_and_open(link: str, parent: QWidget) -> QMessageBox | None:
    """Shows the address and opens it when the user agrees. Returns the open question; None when the link is refused."""
    url = allowed_url(link)
    if url is None:
        return None
    shown = url.toDisplayString(QUrl.ComponentFormattingOption.FullyEncoded)
    box = QMessageBox(parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setIcon(QMessageBox.Icon.Question)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setWindowTitle(tr("Links", "Open a link"))
    box.setText(tr("Links", "Open this address outside Layerdeck?"))
    box.setInformativeText(shown if len(shown) <= SHOWN_LENGTH else shown[:SHOWN_LENGTH] + "…")
    box.addButton(QMessageBox.StandardButton.Cancel)
    button = box.addButton(tr("Links", "Open"), QMessageBox.ButtonRole.AcceptRole)
    box.buttonClicked.connect(lambda clicked: QDesktopServices.openUrl(url) if clicked is button else None)
    box.open()
    return box
