"""How much more time a test may take where others run beside it: caches, memory and the threads of a core are shared then."""

from __future__ import annotations

import os

BESIDE = 1.5 if "PYTEST_XDIST_WORKER" in os.environ else 1.0
"""Bounds on CPU time are multiplied by it. They are met as they are written where a test runs alone."""
