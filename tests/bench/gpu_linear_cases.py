"""The shapes that `tests.bench.gpu_linear` times: those of qwen3-8b and qwen3-30b-a3b in the formats of their files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.arch.spec import Routing
from engine.triton_kernels import experts, gemm, gemv, grouped, quantise, route
from engine.triton_kernels.experts import expert_tile
from engine.triton_kernels.formats import BLOCKS
from engine.triton_kernels.formats import WIDE as WIDE_FORMATS
from engine.triton_kernels.gemv import Tile, tile_of
from engine.triton_kernels.grouped import GroupTile, group_tile
from engine.triton_kernels.linear_kernels import LinearKernels
from engine.triton_kernels.tensors import Acts, Choice, Matrix, NormWeight
from engine.triton_kernels.torch.kernels import TorchKernels
from engine.triton_kernels.workspace import Workspace

DEVICE = "cuda"
ROTATED_BYTES = 400e6
TORCH = TorchKernels()
Call = Callable[[], None]
HALVES = {  # where blocks hold f16 scales
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2),
    "Q5_K": (0, 2), "Q6_K": (208,), "Q6_K_PADDED": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,), "MXFP4": (),
}  # fmt: skip


def allocate(shape: tuple[int, ...], dtype: str) -> Tensor:
    return torch.empty(shape, dtype=getattr(torch, dtype), device=DEVICE)


KERNELS = LinearKernels(allocate, asm=True, early=True)


def weights(name: str, n_in: int, n_out: int, n_matrices: int = 1) -> Matrix:
    """Random blocks with small scales."""
    blocks = BLOCKS[name]
    n = n_matrices * n_out * n_in // blocks.block
    if blocks.is_float:
        kinds = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
        data = torch.randn(n, device=DEVICE).mul_(0.05).to(kinds[name]).view(torch.uint8)
    else:
        raw = torch.randint(0, 256, (n, blocks.type_size), dtype=torch.uint8, device=DEVICE)
        for at in HALVES[name]:
            raw[:, at : at + 2] = torch.tensor([1e-3], dtype=torch.float16, device=DEVICE).view(torch.uint8)
        if name == "MXFP4":
            raw[:, 0] = 121
        data = raw.view(-1)
    row_bytes = blocks.row_bytes(n_in)
    return Matrix(data, name, n_in, n_out, row_bytes, 0, n_matrices, n_out * row_bytes)


def lossless(n_rows: int, width: int) -> Tensor:
    """Rows that 8-bit codes hold exactly."""
    q = torch.randint(-127, 128, (n_rows * width // 32, 32), device=DEVICE).float()
    q[:, 7] = 127
    return (q * (torch.rand(len(q), 1, device=DEVICE) * 0.01 + 0.001)).view(n_rows, width)


@dataclass(frozen=True)
class Case:
    """One shape: `many` holds rotated runs for a tile; `check` gives the relative error of the first run's result."""

    name: str
    format: str
    nbytes: float
    flops: float
    n_launches: int
    tiles: tuple[object, ...]
    run: Callable[[int, object], None]
    check: Callable[[object], float]


def prepared(x: Tensor, *formats: str) -> Acts:
    acts = KERNELS.acts(allocate, x.shape[0], x.shape[1], frozenset(formats), f32=False)
    KERNELS.prepare(x, acts, rows=None, norm=None)
    return acts


def plain(x: Tensor) -> Acts:
    return Acts(x, None, None, None)


def difference(got: Tensor, want: Tensor) -> float:
    return ((got - want).norm() / want.norm()).item()


def n_sets(nbytes: float) -> int:
    return max(2, min(64, math.ceil(ROTATED_BYTES / nbytes)))


def linear_case(name: str, shapes: list[tuple[str, int]], n_in: int, tiles: list[Tile], n_rows: int = 1) -> Case:
    """Matrices (format, n_out) of one input."""
    nbytes = float(sum(BLOCKS[fmt].row_bytes(n_in) * n for fmt, n in shapes))
    sets = [[weights(fmt, n_in, n) for fmt, n in shapes] for _ in range(n_sets(nbytes))]
    x = lossless(n_rows, n_in)
    acts = prepared(x, *(fmt for fmt, _ in shapes))
    outs = [allocate((n_rows, n), "float32") for _, n in shapes]
    none = [None] * len(shapes)

    def run(i: int, tile: object) -> None:
        gemv.linear_of_few(acts, sets[i], none, outs, add=False, softcap=0.0, asm=True, tile=tile)

    def check(tile: object) -> float:
        wants = [torch.empty_like(out) for out in outs]
        TORCH.linear(plain(x), sets[0], none, wants, "store", 0.0)
        run(0, tile)
        return max(difference(got, want) for got, want in zip(outs, wants, strict=True))

    first = tile_of(max(shapes, key=lambda shape: shape[1])[0], n_in, sum(n for _, n in shapes), n_rows)
    flops = 2.0 * n_rows * n_in * sum(n for _, n in shapes)
    return Case(name, "+".join(fmt for fmt, _ in shapes), nbytes, flops, len(sets), unique(first, tiles), run, check)


def gated_case(name: str, fmt: str, n_in: int, n_out: int, tiles: list[Tile], n_rows: int = 1) -> Case:
    nbytes = 2.0 * BLOCKS[fmt].row_bytes(n_in) * n_out
    sets = [(weights(fmt, n_in, n_out), weights(fmt, n_in, n_out)) for _ in range(n_sets(nbytes))]
    x, out = lossless(n_rows, n_in), allocate((n_rows, n_out), "float32")
    acts = prepared(x, fmt)

    def run(i: int, tile: object) -> None:
        gemv.gated_linear_of_few(acts, *sets[i], (None, None), out, "silu", asm=True, tile=tile)

    def check(tile: object) -> float:
        want = torch.empty_like(out)
        TORCH.linear(plain(x), sets[0], (None, None), [want], "silu", 0.0)
        run(0, tile)
        return difference(out, want)

    first = tile_of(fmt, n_in, 2 * n_out, n_rows)
    return Case(name, fmt, nbytes, 4.0 * n_rows * n_in * n_out, len(sets), unique(first, tiles), run, check)


def expert_case(
    name: str, fmt: str, n_in: int, n_out: int, tiles: list[object], n_rows: int = 1, *, up: bool, n: int = 128, used: int = 8
) -> Case:
    """Experts of qwen3-30b-a3b: 128, of which 8 are used. Few rows are bytes, many are flops."""
    few = n_rows <= gemv.FEW_ROWS
    per = (2.0 if up else 1.0) * BLOCKS[fmt].row_bytes(n_in) * n_out
    nbytes = per * (used if n_rows == 1 else min(n, used * n_rows))
    sets = [[weights(fmt, n_in, n_out, n) for _ in range(2 if up else 1)] for _ in range(min(8, n_sets(nbytes)) if few else 2)]
    n_runs = n_sets(nbytes) if few else len(sets)
    x = lossless(n_rows if up else n_rows * used, n_in)
    acts = prepared(x, fmt)
    out = allocate((n_rows * used if up else n_rows, n_out), "float32")
    choices = [
        Choice(
            torch.rand(n_rows, n, device=DEVICE).topk(used, dim=1).indices.int(),
            torch.full((n_rows, used), 1 / used, device=DEVICE),
        )
        for _ in range(n_runs)
    ]
    space = Workspace(allocate)

    def run(i: int, tile: object) -> None:
        matrices, choice = sets[i % len(sets)], choices[i]
        rest = {"asm": True, "tile": tile}
        if up and few:
            experts.experts_up_of_few(acts, *matrices, None, None, choice, "silu", out, **rest)
        elif up:
            grouped.experts_up_of_many(acts, *matrices, None, None, choice, "silu", out, space, **rest)
        else:
            beside = {"add": False, "beside": None, "share": None}
            if few:
                experts.experts_down_of_few(acts, *matrices, None, choice, out, **beside, **rest)
            else:
                grouped.experts_down_of_many(acts, *matrices, None, choice, out, space, **beside, **rest)

    def check(tile: object) -> float:
        want = torch.empty_like(out)
        if up:
            TORCH.experts_up(plain(x), *sets[0], None, None, choices[0], "silu", want)
        else:
            TORCH.experts_down(plain(x), *sets[0], None, choices[0], want, add=False, beside=None, share=None)
        run(0, tile)
        return difference(out, want)

    first = expert_tile(fmt, n_in) if few else group_tile(n_rows * used, n)
    flops = 2.0 * n_rows * used * n_in * n_out * (2 if up else 1)
    return Case(name, fmt, nbytes, flops, n_runs, unique(first, tiles), run, check)


def many_case(name: str, fmt: str, n_in: int, n_out: int, n_rows: int, *, gate: bool) -> Case:
    """Long products; the tile is the room of the dequantised slice, in MiB."""
    count = 2 if gate else 1
    sets = [[weights(fmt, n_in, n_out) for _ in range(count)] for _ in range(2)]
    x, out = lossless(n_rows, n_in), allocate((n_rows, n_out), "float32")
    acts = prepared(x, fmt)
    space = Workspace(allocate)

    def run(i: int, tile: object) -> None:
        gemm.SCRATCH_BYTES = int(str(tile)) << 20
        if gate:
            gemm.gated_linear_of_many(acts, *sets[i], (None, None), out, "silu", space, asm=True)
        else:
            gemm.linear_of_many(acts, sets[i], [None], [out], space, add=True, softcap=0.0, asm=True)

    def check(tile: object) -> float:
        want = torch.empty_like(out)
        TORCH.linear(plain(x), sets[0], [None] * count, [want], "silu" if gate else "store", 0.0)
        out.zero_()
        run(0, tile)
        return difference(out, want)

    nbytes = float(count * BLOCKS[fmt].row_bytes(n_in) * n_out)
    return Case(name, fmt, nbytes, 2.0 * count * n_rows * n_in * n_out, 2, (64, 128), run, check)


def small_case(name: str, call: Call, n: int = 32) -> Case:
    return Case(name, "", 0.0, 0.0, n, ("-",), lambda i, tile: call(), lambda tile: 0.0)


def small_cases() -> Iterator[Case]:
    """What a layer launches beside its products."""
    for width in (2048, 4096):
        x, norm = lossless(1, width), NormWeight(torch.ones(width, device=DEVICE), 1e-6)
        acts = KERNELS.acts(allocate, 1, width, frozenset({"Q4_K"}), f32=False)
        for early in (False, True):

            def prepare(x=x, acts=acts, norm=norm, early=early) -> None:
                quantise.prepare(x, acts, None, norm, early=early)

            yield small_case(f"norm, 8 bits {width}{' early' if early else ''}", prepare)
    wide, rows = lossless(1, 12288), lossless(8, 768)
    for x in (wide, rows):
        acts = KERNELS.acts(allocate, *x.shape, frozenset({"Q4_K"}), f32=False)
        yield small_case(f"8 bits {x.shape[0]}x{x.shape[1]}", lambda x=x, acts=acts: quantise.prepare(x, acts, None, None))
    for n_rows in (1, 8):
        x, router = lossless(n_rows, 2048), weights("F32", 2048, 128)
        acts, scores = prepared(x, "F32"), allocate((n_rows, 128), "float32")
        choice = Choice(allocate((n_rows, 8), "int32"), allocate((n_rows, 8), "float32"))
        arrivals = torch.zeros(1, dtype=torch.int32, device=DEVICE)
        for tile in (Tile(1, 128, 2), Tile(1, 128, 1), Tile(2, 128, 4), Tile(1, 128, 4)):

            def call(acts=acts, router=router, scores=scores, choice=choice, arrivals=arrivals, tile=tile) -> None:
                route.route_few(acts, router, None, None, scores, choice, Routing(), arrivals, asm=True, tile=tile)

            yield small_case(f"route {n_rows} row {tile.rows},{tile.pairs},{tile.warps}", call)


def unique(first: object, others: list[object] | list[Tile]) -> tuple[object, ...]:
    return tuple(dict.fromkeys([first, *others]))


WIDE = [Tile(r, h, w) for r, h, w in ((1, 128, 4), (2, 32, 1), (1, 64, 2), (1, 32, 1), (2, 128, 4), (2, 64, 2), (1, 256, 8))]
NARROW = [
    Tile(r, h, w)
    for r, h, w in ((1, 64, 4), (2, 64, 2), (2, 32, 1), (1, 32, 1), (1, 64, 2), (1, 32, 2), (2, 64, 4), (1, 128, 4), (1, 16, 1))
]
UP = [Tile(1, 64, 2), Tile(4, 32, 1), Tile(1, 32, 1), Tile(2, 32, 1), Tile(2, 64, 2)]
DOWN = [Tile(1, 32, 1), Tile(2, 32, 1)]
DOWN_NARROW = [Tile(1, 16, 1), Tile(1, 32, 1), Tile(1, 8, 1), Tile(1, 32, 2), Tile(2, 32, 2), Tile(2, 16, 1)]
GROUPS = [
    GroupTile(m, n, p, w)
    for m, n, p, w in (
        (64, 64, 2, 4), (64, 32, 2, 4), (64, 32, 4, 4), (64, 64, 1, 4), (128, 64, 2, 8), (128, 64, 1, 4), (32, 32, 4, 4),
        (128, 32, 4, 8), (256, 64, 2, 8),
    )
]  # fmt: skip


def tiles_for(fmt: str) -> list[Tile]:
    return WIDE if fmt in WIDE_FORMATS else NARROW


def cases() -> Iterator[Callable[[], Case]]:
    """In the order of what matters most, should the time run out."""
    q4, q6, q8 = "Q4_K", "Q6_K_PADDED", "Q8_0"
    for fmt in (q4, q8):
        yield lambda f=fmt: gated_case("8b gate+up", f, 4096, 12288, tiles_for(f)[:8])
        yield lambda f=fmt: linear_case("8b down", [(f, 4096)], 12288, tiles_for(f)[:8])
    yield lambda: linear_case("8b down", [(q6, 4096)], 12288, WIDE)
    yield lambda: linear_case("8b qkv", [(q4, 4096), (q4, 1024), (q6, 1024)], 4096, WIDE[:6])
    yield lambda: linear_case("8b out", [(q4, 4096)], 4096, WIDE)
    yield lambda: linear_case("8b head", [(q6, 151936)], 4096, WIDE[:8])
    yield lambda: expert_case("30b up", q4, 2048, 768, list(UP), up=True)
    yield lambda: expert_case("30b down", q4, 768, 2048, list(DOWN), up=False)
    yield lambda: expert_case("30b down", q6, 768, 2048, list(DOWN), up=False)
    yield lambda: linear_case("30b qkv", [(q4, 4096), (q4, 512), (q6, 512)], 2048, WIDE[:6])
    yield lambda: linear_case("30b out", [(q4, 2048)], 4096, WIDE)
    for rows in (512, 2048):
        yield lambda m=rows: many_case(f"8b gate+up pp{m}", q4, 4096, 12288, m, gate=True)
        yield lambda m=rows: many_case(f"8b down pp{m}", q6, 12288, 4096, m, gate=False)
        yield lambda m=rows: expert_case(f"30b up pp{m}", q4, 2048, 768, list(GROUPS), m, up=True)
        yield lambda m=rows: expert_case(f"30b down pp{m}", q6, 768, 2048, list(GROUPS), m, up=False)
    for rows in (2, 4, 8):
        yield lambda m=rows: gated_case(f"8b gate+up {m} rows", q4, 4096, 12288, WIDE[:4], m)
        yield lambda m=rows: linear_case(f"8b down {m} rows", [(q6, 4096)], 12288, WIDE[:4], m)
    yield lambda: linear_case("8b head", [(q4, 151936)], 4096, WIDE[:3])
    yield lambda: linear_case("8b head", [(q8, 151936)], 4096, NARROW[:3])
    yield lambda: linear_case("8b qkv", [(q8, 4096), (q8, 1024), (q8, 1024)], 4096, NARROW[:3])
    yield lambda: linear_case("8b out", [(q8, 4096)], 4096, NARROW[:3])
    yield lambda: expert_case("30b up", q8, 2048, 768, list(NARROW[:6]), up=True)
    yield lambda: expert_case("30b down", q8, 768, 2048, list(DOWN_NARROW), up=False)
    for fmt in (name for name in BLOCKS if name not in (q4, q6, q8)):
        yield lambda f=fmt: linear_case("8b out", [(f, 4096)], 4096, [])
