"""What a GPU lane asks of its kernels: a method for each lane op, the same whether Triton or torch computes it.

A method enqueues work on the device's current stream and returns; it allocates nothing whose size depends on the data, waits for
nothing and reads nothing back, so that a lane of calls can be captured once and replayed. Buffers are f32 [n_rows, width] unless
said otherwise; a row count comes from the shapes of what is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from engine.arch.spec import Act, DeltaShape, Mla, Routing
from engine.program.lane_ops import Heads, Turn
from engine.triton_kernels.tensors import Acts, Cache, Choice, DeltaState, Matrix, NormWeight, Pooled, StepInputs, Tally

if TYPE_CHECKING:
    from torch import Tensor

Allocate = Callable[[tuple[int, ...], str], "Tensor"]
"""(shape, dtype name as torch has it) -> an uninitialised tensor of the device, counted against its capacity."""


class Kernels(Protocol):
    """The kernels of one device. f32: linears take f32 activations, exact as far as f32 is."""

    def supports(self, op: Literal["embed", "linear", "experts"], format: str) -> str | None:
        """None, or why weights of this format cannot be read by this op on the device; one clause."""

    def acts(self, allocate: Allocate, n_rows: int, width: int, formats: frozenset[str], *, f32: bool) -> Acts:
        """Room for n_rows rows that linears with weights of these formats multiply."""

    def embed(self, step: StepInputs, matrix: Matrix, scale: float, out: Tensor) -> None:
        """See LaneEmbed."""

    def norm(self, x: Tensor, norm: NormWeight, n_heads: int, out: Tensor, *, add: bool) -> None:
        """See LaneNorm; x and out may be one tensor."""

    def prepare(self, x: Tensor, acts: Acts, *, rows: Tensor | None, norm: NormWeight | None) -> None:
        """acts = x, or its rows `rows`, normed if there is a norm; see LanePrepare and Source."""

    def linear(
        self,
        acts: Acts,
        matrices: Sequence[Matrix],
        biases: Sequence[Tensor | None],
        outs: Sequence[Tensor],
        epilogue: Literal["store", "add"] | Act,
        softcap: float,
    ) -> None:
        """See LaneLinear. outs: one a matrix, or one where the epilogue is an activation."""

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
        """scores [n_rows, n_experts] = router x; choice from them, see Routing. Of equals, the lower id is chosen.

        tally: takes note of the choice; pool: is told which of it has copies there.
        """

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
        """`prepare` of all rows of x, and `route` of them, in one. False: there is no kernel for it, and nothing was done."""

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
        """out [n_rows * n_used, n_ff]: row r * n_used + j = act(gate_e x_r) * up_e x_r * weights[r, j] of e = chosen[r, j].

        A chosen of -1 makes 0. gate and up may be parts of one tensor. Biases: f32 [n_experts, n_ff].
        """

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
        """out[r] (+)= sum over j of (down_e acts[r * n_used + j] + weights[r, j] bias_e) + sigmoid(share[r]) beside[r].

        e = chosen[r, j]. What is None is left out; beside without a share counts whole.
        """

    def position(
        self,
        step: StepInputs,
        q: Tensor | None,
        k: Tensor | None,
        v: Tensor | None,
        heads: Heads,
        turn_q: Turn,
        turn_k: Turn,
        norm_q: NormWeight | None,
        norm_k: NormWeight | None,
        rope_table: Tensor | None,
        q_scale: Tensor | None,
        cache: Cache | None,
    ) -> None:
        """Turns q and k in place and stores k and v where there is a cache; see LanePosition.

        rope_table: f32 [n_positions, n_rot]: n_rot / 2 cosines, then as many sines. q_scale: f32 [n_positions], for queries.
        """

    def attend(
        self,
        step: StepInputs,
        q: Tensor,
        cache: Cache,
        heads: Heads,
        sinks: Tensor | None,
        gate: Tensor | None,
        out: Tensor,
        *,
        rows: bool,
    ) -> None:
        """out [n_rows, n_heads * v_dim]; see LaneAttend. rows: each row is of another sequence, few rows, long pasts.

        gate: the buffer of queries and gates (gates lie head_dim behind their queries), whose sigmoids multiply the result.
        """

    def attend_whole(
        self,
        step: StepInputs,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        heads: Heads,
        turn_q: Turn,
        turn_k: Turn,
        norm_q: NormWeight | None,
        norm_k: NormWeight | None,
        rope_table: Tensor | None,
        q_scale: Tensor | None,
        cache: Cache,
        sinks: Tensor | None,
        gate: Tensor | None,
        out: Tensor,
        acts: Acts | None,
    ) -> bool:
        """`position`, `attend` with rows, and `prepare` of out as acts where those are given, in one.

        What is in q and k afterwards does not matter. False: there is no kernel for it, and nothing was done.
        """

    def heads(self, x: Tensor, matrix: Matrix, x_head: int, out_head: int, out: Tensor) -> None:
        """out[r, h * out_head :] = matrix h of x[r, h * x_head :]; see LaneHeads."""

    def latent_position(
        self, step: StepInputs, q: Tensor, row: Tensor, norm: NormWeight, rope_table: Tensor, mla: Mla, cache: Cache
    ) -> None:
        """See LaneLatentPosition."""

    def latent_attend(
        self, step: StepInputs, absorbed: Tensor, q: Tensor, mla: Mla, cache: Cache, out: Tensor, *, rows: bool
    ) -> None:
        """out [n_rows, n_heads * rank]; see LaneLatentAttend."""

    def latent_heads(self, step: StepInputs, q: Tensor, mla: Mla, cache: Cache, k: Matrix, v: Matrix, out: Tensor) -> None:
        """out [n_rows, n_heads * values]; see LaneLatentHeads. k, v: matrices of all heads."""

    def delta(
        self,
        step: StepInputs,
        x: Tensor,
        z: Tensor,
        beta: Tensor,
        alpha: Tensor,
        conv: Tensor,
        dt: Tensor,
        a: Tensor,
        norm: NormWeight,
        shape: DeltaShape,
        state: DeltaState,
        out: Tensor,
        *,
        rows: bool,
    ) -> None:
        """See LaneDelta. conv: f32 [n_taps, channels]; dt, a: f32 [n_v_heads]. States: the step's slots."""

    def add(self, x: Tensor, y: Tensor, share: Tensor | None) -> None:
        """x += y, or x += sigmoid(share) * y."""

    def gated_act(self, gate: Tensor, up: Tensor, act: Act, out: Tensor) -> None:
        """out = act(gate) * up."""

    def rows(self, x: Tensor, rows: Tensor, out: Tensor) -> None:
        """out[i] = x[rows[i]]."""
