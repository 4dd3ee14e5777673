"""Translation for classes that are no QObject, and the mark for texts that are translated later."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication


def tr(context: str, text: str, n: int = -1) -> str:
    """The text in the language of the application; `%n` stands for n where it is given."""
    return QCoreApplication.translate(context, text, "", n)


def filled(text: str, *values: object) -> str:
    """`text` with %1, %2, ... replaced by values. The only way values get into translated texts."""
    for number, value in reversed(list(enumerate(values, start=1))):
        text = text.replace(f"%{number}", str(value))
    return text
