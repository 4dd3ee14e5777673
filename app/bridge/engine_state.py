"""EngineState: what the engine is doing, in the words that the header's pill shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EngineKind = Literal["no_model", "reading", "loading", "warming", "ready", "prefill", "generating", "stopping", "error"]


@dataclass(frozen=True, slots=True)
class EngineState:
    """done and total: bytes while loading, prompt tokens during prefill, 0 otherwise. detail: one short phrase, may be empty."""

    kind: EngineKind = "no_model"
    done: int = 0
    total: int = 0
    detail: str = ""
    tok_s: float | None = None
