"""Offscreen Qt with the dark theme for everything that draws."""

from __future__ import annotations

import gc
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


_FULL_SEARCH_EACH = 25


@pytest.fixture(autouse=True)
def garbage_of_this_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """As in the application: widgets that a test left lying are destroyed on this thread, not by whoever allocates next."""
    gc.disable()
    yield
    done = request.session.stash.setdefault(_DONE, 0) + 1
    request.session.stash[_DONE] = done
    gc.collect(2 if done % _FULL_SEARCH_EACH == 0 else 1)


_DONE = pytest.StashKey[int]()
