"""Settings of every test: Qt without a display, folders of the user out of reach, a logged warning is a failure."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Read when the application object is made, which is later than this line.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
# Tests speak of the CPU unless they say otherwise, also on machines with a GPU.
os.environ.setdefault("LAYERDECK_GPU", "none")
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own for whatever the application keeps."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("LAYERDECK_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting ends when what is waited for is there; a loaded machine may take longer than the 5 s that pytest-qt allows."""
    from pytestqt.qtbot import QtBot

    for name in ("waitUntil", "waitSignal", "waitSignals", "waitActive", "waitExposed"):
        monkeypatch.setattr(QtBot, name, functools.partialmethod(getattr(QtBot, name), timeout=60_000))


@pytest.fixture(autouse=True)
def no_warnings_logged(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails a test that logged a warning, unless it carries the mark `expects_warnings`."""
    yield
    if request.node.get_closest_marker("expects_warnings"):
        return
    lines = [f"{r.name}: {r.getMessage()}" for r in caplog.get_records("call") if r.levelno >= logging.WARNING]
    assert not lines, "logged: " + "; ".join(lines)


def pytest_configure(config: pytest.Config) -> None:
    """Marks used by these tests."""
    config.addinivalue_line("markers", "expects_warnings: the test makes the program log a warning on purpose")
