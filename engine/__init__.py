"""The engine: from a model file to tokens. Imports no Qt; the application sees it only through `engine.api`."""

from __future__ import annotations

import sys
from pathlib import Path

VERSION = "0.1.0"
"""Version of the program; kept equal to pyproject.toml by a test."""


def build() -> str | None:
    """The commit that the native modules were built from, as `make` wrote it down; None for an installation that has none."""
    try:
        return (Path(sys.prefix) / "share" / "layerdeck" / "build").read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
