# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call, misc"
"""Tiles of the paged cache for kernels in Triton: keys and values of tokens as numbers that tensor cores multiply.

Widths that are no power of two are cut: D1 values, the largest power of two, and the rest in a tile of D2, so that heads of 96,
192 or 576 values cost what they hold. Tiles of f32 caches are f32, all others f16: 8-bit codes are exact in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.triton_kernels.tensors import Cache, StepInputs

F32, F16, Q8_0, INT8 = (tl.constexpr(kind) for kind in range(4))
"""How a pool is stored; of the 8-bit ones, a group of 32 values of Q8_0 has a scale, all values of INT8 have one."""
LOG2E = tl.constexpr(1.4426950408889634)
"""Softmax is computed with powers of two."""
PRECISION = tl.constexpr("ieee" if torch.version.hip else "tf32x3")
"""Of products of f32 that are many: three products of tensor cores for one are about as exact."""


@triton.jit
def blocks_of(table, key, seen, BLOCK: tl.constexpr, PAGED: tl.constexpr):
    """The block of each key, int64; `table` maps a sequence's blocks where PAGED, else they lie in order."""
    block = key // BLOCK
    if PAGED:
        block = tl.load(table + block, mask=seen, other=0)
    return block.to(tl.int64)


@triton.jit
def starts(block, step, head, key, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Where the WIDTH values (or scales) of each key of a KV head begin; step: from block to block."""
    return block * step + (head * BLOCK + key % BLOCK) * WIDTH


@triton.jit
def halves(codes, ASM: tl.constexpr):
    """int8 as f16. Conversions of single bytes are slow; ASM: f16 with the bits 0x6400 + b is 1024 + b, so bytes only move."""
    if ASM:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 bytes, bias;
            xor.b32 bytes, $2, 0x80808080;
            mov.b32 bias, 0x64806480;
            prmt.b32 $0, bytes, 0x64646464, 0x4140;
            prmt.b32 $1, bytes, 0x64646464, 0x4342;
            sub.f16x2 $0, $0, bias;
            sub.f16x2 $1, $1, bias;
            }""",
            "=&r,=&r,r",
            [codes],
            dtype=tl.float16,
            is_pure=True,
            pack=4,
        )
    return codes.to(tl.float16)


@triton.jit
def load_tile(
    pool, scales, start, scale_start, seen,
    FROM: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, KIND: tl.constexpr, SCALED: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """[keys, WIDTH] values from FROM on, zeros beyond DIM and where not seen. INT8 that is not SCALED: the codes."""
    d = FROM + tl.arange(0, WIDTH)
    mask = seen[:, None]
    if FROM + WIDTH > DIM:
        mask = mask & (d < DIM)[None, :]
    tile = tl.load(pool + start[:, None] + d[None, :], mask=mask, other=0)
    if KIND == INT8:
        tile = halves(tile, ASM)
        if SCALED:
            tile = tile * tl.load(scales + scale_start, mask=seen, other=0)[:, None]
    if KIND == Q8_0:
        # Runs that share a scale: FROM need not be the first value of a group.
        EVEN: tl.constexpr = 32 if FROM % 32 == 0 else (16 if FROM % 16 == 0 else (8 if FROM % 8 == 0 else 1))
        SIZE: tl.constexpr = EVEN if WIDTH > EVEN else WIDTH
        GROUPS: tl.constexpr = WIDTH // SIZE
        g = (FROM + tl.arange(0, GROUPS) * SIZE) // 32
        at = scales + scale_start[:, None] + g[None, :]
        scale = tl.load(at, mask=seen[:, None] & (g * 32 < DIM)[None, :], other=0)
        grouped = tl.reshape(halves(tile, ASM), [tile.shape[0], GROUPS, SIZE]) * scale[:, :, None]
        tile = tl.reshape(grouped, [tile.shape[0], WIDTH])
    return tile


@triton.jit
def softcapped(scores, cap, CAPPED: tl.constexpr):
    """cap * tanh(score / cap), of scores in nats; the result in the logarithm's other base, 2."""
    if CAPPED:
        # tanh x = 1 - 2 / (e^2x + 1), which neither overflows nor needs a library.
        scores = (1 - 2 / (tl.exp2(scores / cap * (2 * LOG2E)) + 1)) * cap * LOG2E
    return scores


def kind_of(pool: Tensor, scales: Tensor | None) -> int:
    """The KIND of a pool."""
    if scales is None:
        return int((F32 if pool.element_size() == 4 else F16).value)
    return int((INT8 if scales.shape[-1] == 1 and pool.shape[-1] > 32 else Q8_0).value)


def cut(dim: int, least: int = 16) -> tuple[int, int]:
    """(D1, D2) for a width: D1 + D2 >= dim, D2 may be 0."""
    first = max(least, 1 << (dim.bit_length() - 1))
    return (first, 0) if first >= dim else (first, max(least, triton.next_power_of_2(dim - first)))


def padded(n: int, least: int = 16) -> int:
    """The power of two that holds n."""
    return max(least, int(triton.next_power_of_2(n)))


@dataclass(frozen=True, slots=True)
class Pages:
    """What kernels are told of a cache: pools with steps from block to block, and the tables of a step."""

    cache: Cache
    step: StepInputs
    asm: bool = False
    """Whether the device has NVIDIA's instructions."""

    @property
    def block(self) -> int:
        """Tokens of a block."""
        return self.cache.keys.shape[2]

    @property
    def table(self) -> Tensor:
        """[n_seqs, n_blocks]."""
        return self.step.block_tables[self.cache.group]

    @property
    def kinds(self) -> tuple[int, ...]:
        """How keys and values are stored."""
        pools = ((self.cache.keys, self.cache.k_scales), (self.cache.values, self.cache.v_scales))
        return tuple(kind_of(pool, scales) for pool, scales in pools if pool is not None)

    @property
    def exact(self) -> bool:
        """Whether something is multiplied as f32."""
        return int(F32.value) in self.kinds
