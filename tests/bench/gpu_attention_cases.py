"""What `gpu_attention` measures of attention and positions of known models, with the launches worth trying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.arch.spec import HeadMatrices, Linear, Mla, Norm, Rope
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels.attention_decode import DecodeConfig, attend_rows
from engine.triton_kernels.attention_kernels import AttentionKernels
from engine.triton_kernels.attention_prefill import TileConfig, attend_tiles
from engine.triton_kernels.latent_attend import LatentConfig, latent_attend
from engine.triton_kernels.paged import Pages
from engine.triton_kernels.position import position
from engine.triton_kernels.tensors import Cache, Matrix, NormWeight, StepInputs
from engine.triton_kernels.torch.attention_forms import AttentionForms
from engine.triton_kernels.torch.cached import quantised
from engine.triton_kernels.workspace import Workspace

DEVICE = "cuda"
BLOCK = 32
N_BLOCKS = 1056
"""Entries of a block table: a context of 33,792 tokens, whatever the depth."""
ROTATED = 256 << 20
"""Bytes of caches that are gone through in turns, so that no cache of the device holds them."""
TORCH = AttentionForms()
PLAIN = Turn(None, None)


def allocate(shape: tuple[int, ...], dtype: str) -> Tensor:
    """Of the device."""
    return torch.empty(shape, dtype=getattr(torch, dtype), device=DEVICE)


class Kernels(AttentionKernels):
    """As a lane has them."""

    def __init__(self) -> None:
        self._workspace = Workspace(allocate)
        self._asm = True


ROOM, KERNELS = Workspace(allocate), Kernels()


@dataclass
class Case:
    """run(i, config) launches on the i-th copy of the inputs; wanted and out: what is compared. flops, nbytes: of one launch."""

    name: str
    kind: str
    configs: Sequence[Any]
    n_launches: int
    run: Callable[[int, Any], None]
    wanted: Callable[[], Tensor]
    out: Tensor
    nbytes: float
    flops: float = 0.0

    def check(self, config: Any) -> float:
        """The norm of the difference beside that of what is wanted."""
        self.out.fill_(float("nan"))
        self.run(0, config)
        wanted = self.wanted()
        return float((self.out - wanted).norm() / wanted.norm())


def step_of(rows: Sequence[tuple[int, int]], n_seqs: int, n_blocks: int, states: object = None) -> StepInputs:
    """Rows (sequence, position). Blocks lie in no order."""
    tables = torch.randperm(n_blocks * n_seqs, generator=torch.Generator().manual_seed(1)).int().view(n_seqs, n_blocks)
    tables = torch.nn.functional.pad(tables, (0, N_BLOCKS - n_blocks))
    ints = [torch.tensor(values, dtype=torch.int32, device=DEVICE) for values in zip(*rows, strict=True)]
    taken = None if states is None else torch.tensor(states, dtype=torch.int32, device=DEVICE)
    return StepInputs(ints[0], ints[1], ints[0], tables[None].to(DEVICE), ints[0], taken)


def pool(kind: str, n_blocks: int, n_heads: int, dim: int) -> tuple[Tensor, Tensor | None]:
    """Random keys or values."""
    x = torch.randn(n_blocks, n_heads, BLOCK, dim, device=DEVICE)
    if kind in ("f32", "f16"):
        return x.to(torch.float16 if kind == "f16" else torch.float32), None
    return quantised(x, 1 if kind == "int8" else -(-dim // 32))


def cache_of(kind: str, n_blocks: int, n_heads: int, dim: int, v_dim: int) -> Cache:
    """v_dim 0: latent rows."""
    keys, k_scales = pool(kind, n_blocks, n_heads, dim)
    values, v_scales = pool(kind, n_blocks, n_heads, v_dim) if v_dim else (None, None)
    return Cache(keys, values, k_scales, v_scales)


def nbytes_of(cache: Cache) -> int:
    """Bytes of a cache."""
    return sum(one.nbytes for one in (cache.keys, cache.values, cache.k_scales, cache.v_scales) if one is not None)


MODELS = {
    "8b": Heads(32, 8, 128, 128, 128**-0.5, 128),
    "30b": Heads(32, 4, 128, 128, 128**-0.5, 128),
    "next": Heads(16, 2, 256, 256, 256**-0.5, 512),
}
USUAL = DecodeConfig()
DECODES = [
    USUAL,
    replace(USUAL, stages=2),
    replace(USUAL, stages=4),
    replace(USUAL, stages=4, programs=1.0),
    replace(USUAL, programs=1.0),
    replace(USUAL, programs=3.0),
    replace(USUAL, programs=4.0),
    replace(USUAL, least=1),
    replace(USUAL, least=4),
    replace(USUAL, fused=False),
    replace(USUAL, early=True),
    replace(USUAL, fused=False, early=True),
    replace(USUAL, warps=8),
    replace(USUAL, keys=32, stages=4, programs=4.0),
    replace(USUAL, keys=32, stages=5, warps=2, programs=4.0),
    replace(USUAL, keys=128, warps=8),
    replace(USUAL, keys=128),
    replace(USUAL, keys=128, fused=False, early=True),
]


def decode(model: str, kind: str, depth: int, n_rows: int = 1) -> Case:
    """Decode attention."""
    heads, n_blocks = MODELS[model], depth // BLOCK
    step = step_of([(row, depth - 1) for row in range(n_rows)], n_rows, n_blocks)
    first = cache_of(kind, n_blocks * n_rows, heads.n_kv_heads, heads.head_dim, heads.v_dim)
    caches = [first]
    while len(caches) * nbytes_of(first) < ROTATED and len(caches) < 48:
        caches.append(cache_of(kind, n_blocks * n_rows, heads.n_kv_heads, heads.head_dim, heads.v_dim))
    q, out = (
        torch.randn(n_rows, heads.n_heads * heads.q_step, device=DEVICE),
        allocate((n_rows, heads.n_heads * heads.v_dim), "float32"),
    )

    def run(i: int, config: DecodeConfig) -> None:
        attend_rows(ROOM, multiprocessors(), config, Pages(caches[i % len(caches)], step, True), q, heads, None, None, out)

    def wanted() -> Tensor:
        found = torch.empty_like(out)
        TORCH.attend(step, q, first, heads, None, None, found, rows=True)
        return found

    name = f"decode {model} at {depth}" + (f" x {n_rows}" if n_rows > 1 else "")
    return Case(name, kind, DECODES, len(caches), run, wanted, out, nbytes_of(first))


def mla_of(n_heads: int) -> Mla:
    """As DeepSeek's."""

    def part(n_in: int, n_out: int) -> HeadMatrices:
        return HeadMatrices("", n_in, n_out, n_heads, n_out)

    none, norm = Linear("", 0, 0), Norm("", 1e-6)
    sizes = part(128, 512), part(512, 128), part(512, 128)
    return Mla(none, none, norm, *sizes, none, n_heads, 512, 192**-0.5, Rope("norm", 64, 1e4))


LATENT = LatentConfig()
LATENTS = [
    LATENT,
    replace(LATENT, stages=2),
    replace(LATENT, warps=4),
    replace(LATENT, warps=4, stages=2),
    replace(LATENT, keys=32, stages=4),
    replace(LATENT, keys=32, stages=2, programs=2.0),
    replace(LATENT, keys=32, stages=5),
    replace(LATENT, programs=0.5),
    replace(LATENT, early=True),
    replace(LATENT, least=4),
    replace(LATENT, least=1),
]
WIDE = LatentConfig()
"""For more queries, and for 8-bit rows."""
WIDES = [
    WIDE,
    replace(WIDE, stages=2),
    replace(WIDE, keys=32),
    replace(WIDE, keys=32, stages=2),
    replace(WIDE, keys=32, stages=5),
    replace(WIDE, programs=2.0),
    replace(WIDE, programs=0.5),
    replace(WIDE, queries=32),
    replace(WIDE, queries=32, warps=4, stages=2),
    replace(WIDE, queries=16, warps=4),
    replace(WIDE, keys=128, stages=2),
]


def latent(n_heads: int, kind: str, depth: int, n_rows: int = 1, *, rows: bool = True) -> Case:
    """Absorbed latent attention: decode, or a short chunk."""
    mla, n_blocks = mla_of(n_heads), depth // BLOCK
    at = [(row, depth - 1) for row in range(n_rows)] if rows else [(0, depth - n_rows + row) for row in range(n_rows)]
    n_seqs = n_rows if rows else 1
    step = step_of(at, n_seqs, n_blocks)
    first = cache_of(kind, n_blocks * n_seqs, 1, mla.latent, 0)
    caches = [first]
    while len(caches) * nbytes_of(first) < ROTATED and len(caches) < 48:
        caches.append(cache_of(kind, n_blocks * n_seqs, 1, mla.latent, 0))
    absorbed, q = torch.randn(n_rows, n_heads * 512, device=DEVICE), torch.randn(n_rows, n_heads * 192, device=DEVICE)
    out = torch.empty_like(absorbed)

    def run(i: int, config: LatentConfig) -> None:
        pages = Pages(caches[i % len(caches)], step, True)
        latent_attend(ROOM, multiprocessors(), config, pages, absorbed, q, mla, out, rows=rows)

    def wanted() -> Tensor:
        found = torch.empty_like(out)
        TORCH.latent_attend(step, absorbed, q, mla, first, found, rows=rows)
        return found

    flops = 2.0 * n_rows * n_heads * depth * (576 + 512)
    name = f"latent {n_heads} heads at {depth}" + (f", {n_rows} {'rows' if rows else 'of a chunk'}" if n_rows > 1 else "")
    configs = LATENTS if rows and n_heads <= 16 and kind == "f16" else WIDES
    return Case(name, kind, configs, len(caches), run, wanted, out, nbytes_of(first), flops)


TILES = [
    TileConfig(128, 128, 8, 2),
    TileConfig(128, 128, 8, 3),
    TileConfig(128, 64, 8, 3),
    TileConfig(128, 64, 8, 4),
    TileConfig(64, 64, 4, 3),
    TileConfig(64, 128, 4, 3),
    TileConfig(128, 32, 8, 3),
]


def prefill(model: str, kind: str, n_rows: int, past: int) -> Case:
    """A chunk behind `past` tokens."""
    heads, n_blocks = MODELS[model], (past + n_rows) // BLOCK
    step = step_of([(0, past + row) for row in range(n_rows)], 1, n_blocks)
    cache = cache_of(kind, n_blocks, heads.n_kv_heads, heads.head_dim, heads.v_dim)
    q = torch.randn(n_rows, heads.n_heads * heads.q_step, device=DEVICE)
    out = allocate((n_rows, heads.n_heads * heads.v_dim), "float32")

    def wanted() -> Tensor:
        found = torch.empty_like(out)
        TORCH.attend(step, q, cache, heads, None, None, found, rows=False)
        return found

    pairs = n_rows * (past + (n_rows + 1) / 2)
    flops = 2.0 * pairs * heads.n_heads * (heads.head_dim + heads.v_dim)
    name = f"prefill {model} {n_rows} rows behind {past}"
    configs = (
        TILES
        if heads.head_dim <= 128
        else [TileConfig(64, 64, 8, 2), TileConfig(128, 32, 8, 2), TileConfig(128, 64, 8, 2), TileConfig(64, 32, 4, 2)]
    )
    run = lambda i, config: attend_tiles(config, Pages(cache, step, True), q, heads, None, None, out)  # noqa: E731
    return Case(name, kind, configs, 4, run, wanted, out, nbytes_of(cache), flops)


def short(model: str, kind: str, n_rows: int, past: int) -> Case:
    """A short chunk behind a long past: split as decode is, or as tiles."""
    made = prefill(model, kind, n_rows, past)
    made.configs = [USUAL, replace(USUAL, stages=2), replace(USUAL, warps=8), replace(USUAL, programs=4.0), TILES[0], TILES[5]]
    heads, n_blocks = MODELS[model], (past + n_rows) // BLOCK
    step = step_of([(0, past + row) for row in range(n_rows)], 1, n_blocks)
    cache = cache_of(kind, n_blocks, heads.n_kv_heads, heads.head_dim, heads.v_dim)
    q, out = torch.randn(n_rows, heads.n_heads * heads.q_step, device=DEVICE), made.out

    def run(i: int, config: Any) -> None:
        pages = Pages(cache, step, True)
        if isinstance(config, DecodeConfig):
            attend_rows(ROOM, multiprocessors(), config, pages, q, heads, None, None, out, queries=64)
        else:
            attend_tiles(config, pages, q, heads, None, None, out)

    def wanted() -> Tensor:
        found = torch.empty_like(out)
        TORCH.attend(step, q, cache, heads, None, None, found, rows=False)
        return found

    made.run, made.wanted = run, wanted
    return made


def latent_prefill(n_heads: int, kind: str, n_rows: int, past: int) -> Case:
    """The same with keys and values of every head made on the way."""
    mla, n_blocks = mla_of(n_heads), (past + n_rows) // BLOCK
    step = step_of([(0, past + row) for row in range(n_rows)], 1, n_blocks)
    cache = cache_of(kind, n_blocks, 1, mla.latent, 0)
    raw = [(torch.randn(n_heads * 128, 512) / 23).half().view(torch.uint8).view(-1).to(DEVICE) for _ in range(2)]
    k, v = (Matrix(data, "F16", 512, 128, 1024, 0, n_heads, 128 * 1024) for data in raw)
    q, out = torch.randn(n_rows, n_heads * 192, device=DEVICE), allocate((n_rows, n_heads * 128), "float32")

    def wanted() -> Tensor:
        found = torch.empty_like(out)
        TORCH.latent_heads(step, q, mla, cache, k, v, found)
        return found

    pairs = n_rows * (past + (n_rows + 1) / 2)
    flops = 2.0 * n_heads * (pairs * (192 + 128) + (past + n_rows) * 512 * 256)
    run = lambda i, config: KERNELS.latent_heads(step, q, mla, cache, k, v, out)  # noqa: E731
    return Case(f"latent heads {n_heads}, {n_rows} rows behind {past}", kind, ["-"], 4, run, wanted, out, nbytes_of(cache), flops)


def head_products(n_heads: int, n_rows: int) -> Case:
    """Absorbing queries, from Q8_0."""
    nbytes = n_heads * 512 * 128 // 32 * 34
    data = [torch.randint(0, 60, (nbytes + 64,), dtype=torch.uint8, device=DEVICE) for _ in range(24)]
    given = [Matrix(one, "Q8_0", 128, 512, 136, 0, n_heads, 512 * 136) for one in data]
    x, out = torch.randn(n_rows, n_heads * 192, device=DEVICE), allocate((n_rows, n_heads * 512), "float32")

    def wanted() -> Tensor:
        found = torch.empty_like(out)
        TORCH.heads(x, given[0], 192, 512, found)
        return found

    run = lambda i, config: KERNELS.heads(x, given[i], 192, 512, out)  # noqa: E731
    return Case(f"absorb {n_heads} heads, {n_rows} rows", "Q8_0", ["-"], 24, run, wanted, out, nbytes)


def positions(model: str, kind: str, n_rows: int) -> Case:
    """Norms, rotation and the cache of one layer."""
    heads, turn = MODELS[model], Turn(Norm("", 1e-6), Rope("neox", 128, 1e6))
    step = step_of([(0, row) for row in range(n_rows)], 1, -(-n_rows // BLOCK))
    cache, norm = (
        cache_of(kind, -(-n_rows // BLOCK), heads.n_kv_heads, 128, 128),
        NormWeight(torch.ones(128, device=DEVICE), 1e-6),
    )
    q, k, v = (torch.randn(n_rows, n * 128, device=DEVICE) for n in (heads.n_heads, heads.n_kv_heads, heads.n_kv_heads))
    given, table = q.clone(), torch.randn(4096, 128, device=DEVICE)

    def run(i: int, config: Any) -> None:
        position(step, q, k, v, heads, turn, turn, norm, norm, table, None, cache, early=config == "early")

    def wanted() -> Tensor:
        found = given.clone()
        TORCH.position(step, found, None, None, heads, turn, turn, norm, norm, table, None, None)
        return found

    made = Case(
        f"position {model}, {n_rows} rows", kind, ["-", "early"], 16, run, wanted, q, 2.0 * (q.nbytes + k.nbytes + v.nbytes)
    )
    made.check = lambda config: (q.copy_(given), run(0, config), float((q - wanted()).norm() / wanted().norm()))[2]  # type: ignore[method-assign]
    return made


def multiprocessors() -> int:
    """Of the device."""
    return int(torch.cuda.get_device_properties(DEVICE).multi_processor_count)
