"""Facts: what the dashboard knows beside the readings, and does not change with each of them. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.api.values import ModelInfo, Topology


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of a device that the loaded model holds, by what they are for."""

    attention: int = 0
    ffn: int = 0
    experts: int = 0
    kv: int = 0
    buffers: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """held: by device, `gpu0`. ceilings: GB/s that the memory of a node gives, as measured. worker_cpus: logical processors that
    workers of the engine are pinned to; kept_cpus: those kept back for the window and for launching GPU work.

    off_node: of the sampled pages of the model, the part that lies on another node than planned. trace_time: when the shown token
    was, in words, "" for now.
    """

    topology: Topology | None = None
    model: ModelInfo | None = None
    held: Mapping[str, Held] = field(default_factory=dict)
    ceilings: Mapping[int, float] = field(default_factory=dict)
    worker_cpus: frozenset[int] = frozenset()
    kept_cpus: frozenset[int] = frozenset()
    off_node: float | None = None
    prompt_tokens: int | None = None
    first_token_p95_s: float | None = None
    trace_time: str = ""
    host: str = ""
