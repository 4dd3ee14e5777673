"""Offscreen Qt with the dark theme for everything that draws."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


@pytest.fixture
def themed(qapp: object) -> Iterator[None]:
    """The application with our fonts and colours."""
    from PySide6.QtWidgets import QApplication

    from app import theme

    app = QApplication.instance()
    assert isinstance(app, QApplication)
    theme.apply(app, theme.DARK)
    yield
    if theme.current() is not theme.DARK:
        theme.apply(app, theme.DARK)
