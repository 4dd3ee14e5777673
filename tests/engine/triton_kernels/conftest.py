"""Triton's interpreter for every test here; where torch or Triton is not installed there is nothing to test."""

from __future__ import annotations

import importlib.util
import os

THERE = all(importlib.util.find_spec(name) is not None for name in ("torch", "triton"))
collect_ignore_glob = [] if THERE else ["test_*.py"]

if THERE:
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from triton.runtime import interpreter

    # It would compute every sum of integers twice to see whether it overflows: a third of the time of these tests.
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(sanitize_overflow=False)
