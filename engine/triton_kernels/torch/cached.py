"""The paged cache in torch: where a row's own place in it is, how values are stored, and the values of a sequence's tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.triton_kernels.tensors import Cache, StepInputs

GROUP = 32
"""Values of a q8_0 cache that share a scale; the one scale of int8 is for all of a token and KV head."""
LARGEST = 127.0


def quantised(x: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """x [..., width] as int8 codes and f16 scales [..., n_groups], rounded as `ld_store_quants` of the CPU kernels does.

    The scale is rounded first, so that values are divided by what they will be multiplied with. A group with a value that is not
    finite has the scale NaN.
    """
    width = x.shape[-1]
    size = width if n_groups == 1 else GROUP
    groups = torch.nn.functional.pad(x, (0, n_groups * size - width)).unflatten(-1, (n_groups, size))
    largest = groups.abs().amax(-1, keepdim=True)
    finite = (groups.abs() <= 3e38).all(-1, keepdim=True)
    scales = torch.where(finite, largest / LARGEST, torch.nan).half()
    factors = torch.where(scales > 0, 1.0 / scales.float(), 0.0)
    codes = torch.where(finite, (groups * factors).clamp(-LARGEST, LARGEST), 0.0).round().to(torch.int8)
    return codes.flatten(-2)[..., :width], scales.squeeze(-1)


def places(step: StepInputs, cache: Cache, n_rows: int) -> tuple[Tensor, Tensor]:
    """(block, slot within it) of each row's own position."""
    block = cache.keys.shape[2]
    positions = step.positions[:n_rows].long()
    table = step.block_tables[cache.group][step.seq_of_row[:n_rows].long()]
    return table.gather(1, (positions // block).unsqueeze(1)).squeeze(1).long(), positions % block


def store(step: StepInputs, cache: Cache, pool: Tensor, scales: Tensor | None, x: Tensor) -> None:
    """Puts x [n_rows, n_kv_heads, width] at the rows' places."""
    blocks, slots = places(step, cache, len(x))
    if scales is None:
        pool[blocks, :, slots] = x.to(pool.dtype)
    else:
        pool[blocks, :, slots], scales[blocks, :, slots] = quantised(x, scales.shape[-1])


def tokens(pool: Tensor, scales: Tensor | None, blocks: Tensor, used: Tensor) -> Tensor:
    """f32 [n_kv_heads, tokens of `blocks` in order, width]. Zeros where not used [tokens], whatever lies there."""
    found = pool[blocks.long()].float()
    if scales is not None:
        size = pool.shape[-1] if scales.shape[-1] == 1 else GROUP
        found = found * scales[blocks.long()].float().repeat_interleave(size, -1)[..., : pool.shape[-1]]
    return found.transpose(0, 1).flatten(1, 2).masked_fill(~used[:, None], 0.0)
