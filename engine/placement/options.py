"""What a user chooses about how a model is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KvType = Literal["f32", "f16", "q8_0", "int8"]
"""8 bits a value: `q8_0` with a scale for every 32 values of a token and KV head, `int8` with one for all of them."""
KV_TYPES: tuple[KvType, ...] = ("f32", "f16", "q8_0", "int8")
"""In the order of ld_kv_type."""

StreamExperts = Literal["auto", "on", "off"]
"""Whether long chunks of prompts bring experts that lie in the machine's memory to a GPU: where it is faster, always, never."""


NodeChoice = Literal["auto", "copied", "mapped"]
"""Whether weights are copied to the nodes of memory where they shall lie, on machines with several: where there is room, always,
never."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded. n_threads 0: one per core this process may use; n_ctx 0: min(model's context, 8192).

    cores: logical processors that work, one worker each, n_threads of them; empty: chosen for this machine.
    grow_chunk: chunks of prompts may be longer where that is faster and fits, see `engine.estimate.chunks`.
    placement: what lies on which device: flags or rules of another tool, a placement as JSON, or the path of a file with any of
    them; empty: everything in the machine's memory.
    snapshot_bytes: what states to go back to may take, in models that have states; 0: 5 % of the memory, 4 GiB at most.
    node_memory: see `NodeChoice`.
    overrides: keys of the file (the architecture's name may be left out) with values used in place of what it says.
    """

    n_threads: int = 0
    n_ctx: int = 0
    prefill_chunk: int = 512
    grow_chunk: bool = False
    k_type: KvType = "f16"
    v_type: KvType = "f16"
    f32_activations: bool = False
    reference: bool = False
    snapshot_bytes: int = 0
    placement: str = ""
    stream_experts: StreamExperts = "auto"
    overrides: tuple[tuple[str, bool | int | float | str], ...] = ()
    cores: tuple[int, ...] = ()
    node_memory: NodeChoice = "auto"
