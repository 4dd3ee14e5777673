"""The plans of a model, one for each kind of step, and which of them a batch takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.arch.spec import Mla, ModelSpec
from engine.errors import InvalidRequest
from engine.graph.ops import Graph
from engine.placement.placement import Placement
from engine.program.fuse import Phase
from engine.program.lane_latent import ABSORBED_ROWS
from engine.program.lower import DECODE_BUCKETS, lower_buckets
from engine.program.plan import Plan
from engine.runtime.step import StepBatch

MAX_CHUNK = 4096


def lower_all(
    spec: ModelSpec, graph: Graph, placement: Placement, types: Mapping[str, int], prefill_chunk: int, *, f32: bool
) -> tuple[Plan, ...]:
    """Decode plans, fewest rows first, then those of prefill.

    Raises:
        InvalidRequest: a chunk size that is out of range. PlacementError: see `lower`.
    """
    if not 1 <= prefill_chunk <= MAX_CHUNK:
        raise InvalidRequest(f"a prefill chunk of {prefill_chunk} tokens was asked for; use 1 to {MAX_CHUNK}")
    largest = max(prefill_chunk, DECODE_BUCKETS[-1] + 1)
    latent = any(isinstance(block.mixer, Mla) for block in spec.blocks)
    chunks = (ABSORBED_ROWS, largest) if latent and largest > ABSORBED_ROWS else (largest,)
    wanted: tuple[tuple[Phase, tuple[int, ...]], ...] = (("decode", DECODE_BUCKETS), ("prefill", chunks))
    return tuple(plan for phase, rows in wanted for plan in lower_buckets(graph, placement, phase, rows, types, f32=f32))


def pick(plans: Sequence[Plan], batch: StepBatch) -> int:
    """The index of the plan that runs the batch.

    Raises:
        InvalidRequest: more rows than the largest has.
    """
    n_rows = len(batch.token_ids)
    one_row_each = n_rows == 1 or len(set(batch.seq_of_row.tolist())) == n_rows
    for i, plan in enumerate(plans):
        if n_rows <= plan.max_rows and (one_row_each or plan.phase == "prefill"):
            return i
    raise InvalidRequest(f"a step of {n_rows} rows; the largest has {plans[-1].max_rows}")
