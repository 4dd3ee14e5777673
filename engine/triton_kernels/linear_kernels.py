"""Linears, experts, norms and sums of a lane in Triton: which kernel takes how many rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from engine.arch.spec import Act, Routing
from engine.triton_kernels import experts, gemm, gemv, grouped, pointwise, quantise, route, route_prepared
from engine.triton_kernels.dequantise import dequantise
from engine.triton_kernels.formats import BLOCKS, unsupported
from engine.triton_kernels.gemv import FEW_ROWS, MOST_MATRICES
from engine.triton_kernels.kernels import Allocate
from engine.triton_kernels.tensors import Acts, Choice, Matrix, NormWeight, Pooled, StepInputs, Tally
from engine.triton_kernels.workspace import Workspace

JOINS: frozenset[str] = frozenset({"attention", "route", "up", "down"})
"""What is done where a device can: `attention`, `route`: one launch for several ops; `up`, `down`: experts of few rows are
launched before what is before them has ended; `chain`: so is what comes behind them, behind linears and behind attention.

A token of qwen3-30b-a3b on an H200 takes 2.232 ms without any and 2.070 ms with these four; the chain costs a tenth.
"""
_MOST_USED = 32  # experts of a row: a step of few rows has at most this many times as many slots


class LinearKernels:
    """See `engine.triton_kernels.kernels.Kernels` for each method.

    Up to FEW_ROWS rows are multiplied as 8-bit codes with the blocks as they lie; more are multiplied as f16, or by f32 in exact
    runs. asm: with PTX; early: small kernels are launched before what is before them has ended, which devices from compute
    capability 9 on can. joins: see JOINS.
    """

    def __init__(self, allocate: Allocate, *, asm: bool, early: bool = False, joins: frozenset[str] = JOINS) -> None:
        self._asm = asm
        self._early = early
        self.joins = joins
        self._workspace = Workspace(allocate)

    @property
    def _ahead(self) -> int:
        """How few-row products are launched: see `gemv.linear_of_few`."""
        return int(self._early) * (2 if "chain" in self.joins else 1)

    def supports(self, op: Literal["embed", "linear", "experts"], format: str) -> str | None:
        """None, or why weights of this format cannot be read."""
        return unsupported(format)

    def acts(self, allocate: Allocate, n_rows: int, width: int, formats: frozenset[str], *, f32: bool) -> Acts:
        """f32 rows for exact runs and float formats, else codes for few rows and f16 for many.

        Where rows may be those of few rows' experts as well as many rows there are both.
        """
        quantised = not f32 and not all(BLOCKS[name].is_float for name in formats)
        codes = quantised and n_rows <= FEW_ROWS * _MOST_USED
        halves = not f32 and n_rows > FEW_ROWS
        values = f32 or any(BLOCKS[name].is_float for name in formats)

        def room(wanted: bool, columns: int, dtype: str) -> Tensor | None:
            return allocate((n_rows, columns), dtype) if wanted else None

        return Acts(
            room(values, width, "float32"),
            room(codes, width, "int8"),
            room(codes, width // 32, "float32"),
            room(codes, width // 16, "float32"),
            room(halves, width, "float16"),
        )

    def embed(self, step: StepInputs, matrix: Matrix, scale: float, out: Tensor) -> None:
        """See LaneEmbed."""
        dequantise(matrix, out, ids=step.token_ids, scale=scale, asm=self._asm)

    def norm(self, x: Tensor, norm: NormWeight, n_heads: int, out: Tensor, *, add: bool) -> None:
        """See LaneNorm."""
        pointwise.norm(x, norm, n_heads, out, add=add)

    def prepare(self, x: Tensor, acts: Acts, *, rows: Tensor | None, norm: NormWeight | None) -> None:
        """acts = x, gathered, normed, quantised."""
        quantise.prepare(x, acts, rows, norm, early=self._early)

    def linear(
        self,
        acts: Acts,
        matrices: Sequence[Matrix],
        biases: Sequence[Tensor | None],
        outs: Sequence[Tensor],
        epilogue: Literal["store", "add"] | Act,
        softcap: float,
    ) -> None:
        """See LaneLinear."""
        few = len(outs[0]) <= FEW_ROWS
        if epilogue != "store" and epilogue != "add":
            gate, up = matrices
            if few:
                gemv.gated_linear_of_few(acts, gate, up, biases, outs[0], epilogue, asm=self._asm, early=self._ahead)
            else:
                gemm.gated_linear_of_many(acts, gate, up, biases, outs[0], epilogue, self._workspace, asm=self._asm)
            return
        add = epilogue == "add"
        if not few:
            gemm.linear_of_many(acts, matrices, biases, outs, self._workspace, add=add, softcap=softcap, asm=self._asm)
            return
        for i in range(0, len(matrices), MOST_MATRICES):
            part = slice(i, i + MOST_MATRICES)
            gemv.linear_of_few(
                acts, matrices[part], biases[part], outs[part], add=add, softcap=softcap, asm=self._asm, early=self._ahead
            )

    def route(
        self,
        acts: Acts,
        router: Matrix,
        bias: Tensor | None,
        pick_bias: Tensor | None,
        scores: Tensor,
        choice: Choice,
        routing: Routing,
        tally: Tally | None = None,
        pool: Pooled | None = None,
    ) -> None:
        """Scores and choice, for few rows in one launch."""
        if len(scores) <= FEW_ROWS:
            arrivals = self._workspace.zeros("arrivals", 1)
            route.route_few(
                acts, router, bias, pick_bias, scores, choice, routing, arrivals, tally, pool, asm=self._asm, early=self._early
            )
            return
        gemm.linear_of_many(acts, [router], [bias], [scores], self._workspace, add=False, softcap=0.0, asm=self._asm)
        route.choose_rows(scores, pick_bias, choice, routing, tally, pool)

    def prepare_route(
        self,
        x: Tensor,
        norm: NormWeight | None,
        acts: Acts,
        router: Matrix,
        bias: Tensor | None,
        pick_bias: Tensor | None,
        scores: Tensor,
        choice: Choice,
        routing: Routing,
        tally: Tally | None = None,
        pool: Pooled | None = None,
    ) -> bool:
        """Both in one launch, for few rows and plain routers."""
        if "route" not in self.joins or len(scores) > FEW_ROWS or not route_prepared.fits(acts, router, routing):
            return False
        given = (x, norm, acts, router, bias, pick_bias, scores, choice, routing, self._workspace.zeros("arrivals", 1))
        route_prepared.prepare_route(*given, tally, pool, early=self._early)
        return True

    def experts_up(
        self,
        acts: Acts,
        gate: Matrix,
        up: Matrix,
        gate_bias: Tensor | None,
        up_bias: Tensor | None,
        choice: Choice,
        act: Act,
        out: Tensor,
    ) -> None:
        """A row of out for each row and expert that it passes."""
        if len(choice.chosen) <= FEW_ROWS:
            early = self._ahead if "up" in self.joins else 0
            experts.experts_up_of_few(acts, gate, up, gate_bias, up_bias, choice, act, out, asm=self._asm, early=early)
        else:
            grouped.experts_up_of_many(acts, gate, up, gate_bias, up_bias, choice, act, out, self._workspace, asm=self._asm)

    def experts_down(
        self,
        acts: Acts,
        down: Matrix,
        bias: Tensor | None,
        choice: Choice,
        out: Tensor,
        *,
        add: bool,
        beside: Tensor | None,
        share: Tensor | None,
    ) -> None:
        """The sum over the experts of a row."""
        if len(choice.chosen) <= FEW_ROWS:
            early = self._ahead if "down" in self.joins else 0
            experts.experts_down_of_few(
                acts, down, bias, choice, out, add=add, beside=beside, share=share, asm=self._asm, early=early
            )
        else:
            grouped.experts_down_of_many(
                acts, down, bias, choice, out, self._workspace, add=add, beside=beside, share=share, asm=self._asm
            )

    def add(self, x: Tensor, y: Tensor, share: Tensor | None) -> None:
        """x += y, or sigmoid(share) y."""
        pointwise.add(x, y, share)

    def gated_act(self, gate: Tensor, up: Tensor, act: Act, out: Tensor) -> None:
        """out = act(gate) * up."""
        pointwise.gated_act(gate, up, act, out)

    def rows(self, x: Tensor, rows: Tensor, out: Tensor) -> None:
        """out[i] = x[rows[i]]."""
        pointwise.rows(x, rows, out)
