"""What a user chooses about how a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KvType = Literal["f32", "f16"]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded. n_threads 0: one per core this process may use; n_ctx 0: min(model's context, 8192)."""

    n_threads: int = 0
    n_ctx: int = 0
    prefill_chunk: int = 512
    k_type: KvType = "f16"
    v_type: KvType = "f16"
    f32_activations: bool = False
    reference: bool = False
