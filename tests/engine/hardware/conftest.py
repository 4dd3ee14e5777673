"""Machines to read, unpacked once a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import machines


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that machines are unpacked in."""
    return tmp_path_factory.mktemp("machines")


@pytest.fixture(params=machines.NAMES)
def machine(request: pytest.FixtureRequest, unpacked: Path) -> Path:
    """The root of each machine in turn."""
    return machines.unpack(request.param, unpacked)
