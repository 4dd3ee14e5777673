"""The engine: from a model file to tokens. Imports no Qt; the application sees it only through `engine.api`."""

from __future__ import annotations

VERSION = "0.1.0"
"""Version of the program; kept equal to pyproject.toml by a test."""
