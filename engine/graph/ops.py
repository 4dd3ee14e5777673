"""The op vocabulary: what one step of a model does, device-free.

`graph/build.py` emits these in order; `graph/reference.py` runs them in numpy; `program/` lowers them to lanes. An op names its
buffers (f32, [n_rows, width]) and its tensors; it holds no data. Weights stay in whatever format the file gives them.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.arch.spec import Act, DeltaShape, Mla, Routing, Temperature
from engine.arch.spec import Norm as NormSpec
from engine.arch.spec import Rope as RopeSpec
from engine.arch.units import UnitId


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named activation of `width` f32 values per row."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Embed:
    """out[r] = row token_ids[r] of `weight`, dequantised, times scale."""

    unit: UnitId
    weight: str
    out: Buffer
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Norm:
    """out = RMS norm of x, over the whole row (n_heads == 1) or over each of n_heads equal parts with one shared weight."""

    unit: UnitId
    x: Buffer
    out: Buffer
    norm: NormSpec
    n_heads: int = 1


@dataclass(frozen=True, slots=True)
class Linear:
    """out = x @ weight.T (+ bias); with softcap, softcap * tanh(out / softcap).

    first: only rows [first, first + width of out) of weight (and of a bias that is longer than out).
    """

    unit: UnitId
    x: Buffer
    out: Buffer
    weight: str
    bias: str | None = None
    softcap: float = 0.0
    first: int | None = None


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotates n_heads heads of head_dim in place, by the row's position."""

    unit: UnitId
    x: Buffer
    n_heads: int
    head_dim: int
    rope: RopeSpec


@dataclass(frozen=True, slots=True)
class KvStore:
    """Writes the rows' keys and values of `layer` into the paged cache at the rows' slots."""

    unit: UnitId
    k: Buffer
    v: Buffer
    layer: int


@dataclass(frozen=True, slots=True)
class Attention:
    """out[r] = softmax(scale * q[r] . K[: position + 1]) V, per head, over the sequence of row r.

    window: only the newest `window` keys, None = all. sinks: tensor [n_heads], a logit that only adds to the softmax's sum.
    softcap: scores become softcap * tanh(score / softcap) first, 0 = as they are.
    temperature: queries are multiplied by what it says of the row's position.
    """

    unit: UnitId
    q: Buffer
    out: Buffer
    layer: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_dim: int
    scale: float
    window: int | None = None
    sinks: str | None = None
    softcap: float = 0.0
    temperature: Temperature | None = None


@dataclass(frozen=True, slots=True)
class LatentStore:
    """Writes [norm(x[:rank]) | rotated x[rank:]] of the rows into the paged cache of `layer`, at the rows' slots."""

    unit: UnitId
    x: Buffer
    layer: int
    rank: int
    norm: NormSpec
    rope: RopeSpec


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Attention over the latent rows of `layer`; see `engine.arch.spec.Mla` for the two forms that it may be computed in.

    q: n_heads heads of [nope | rope], not rotated yet; out: n_heads heads of the values.
    """

    unit: UnitId
    q: Buffer
    out: Buffer
    layer: int
    mla: Mla


@dataclass(frozen=True, slots=True)
class Split:
    """first, second = the two halves of each of n_heads heads of x."""

    unit: UnitId
    x: Buffer
    first: Buffer
    second: Buffer
    n_heads: int


@dataclass(frozen=True, slots=True)
class SigmoidGate:
    """out = x * sigmoid(gate)."""

    unit: UnitId
    x: Buffer
    gate: Buffer
    out: Buffer


@dataclass(frozen=True, slots=True)
class Delta:
    """out = the gated delta rule over the sequence of each row, behind the convolution, normed and gated by z: see `DeltaNet`.

    x: the channels; z: the output gates (x where the two are joined); beta, alpha (beta where they are paired): one value a value
    head. Reads the state of each sequence from one slot and writes it, after the rows of the step, to another.
    """

    unit: UnitId
    x: Buffer
    z: Buffer
    beta: Buffer
    alpha: Buffer
    out: Buffer
    conv: str
    dt: str
    a: str
    norm: NormSpec
    layer: int
    shape: DeltaShape


@dataclass(frozen=True, slots=True)
class GatedAct:
    """out = act(gate) * up, or what else `act` says."""

    unit: UnitId
    gate: Buffer
    up: Buffer
    out: Buffer
    act: Act


@dataclass(frozen=True, slots=True)
class Route:
    """chosen[r] = the ids of the experts that row r passes, weights[r] = how much each of them counts; [n_rows, n_used].

    x: the router's logits, one per expert. Of equals, the expert (and the group) of the lower id is chosen.
    """

    unit: UnitId
    x: Buffer
    chosen: Buffer
    weights: Buffer
    routing: Routing


@dataclass(frozen=True, slots=True)
class Experts:
    """out[r] = the sum over the chosen experts e of weights[r, e] * down_e(act(gate_e x[r]) * (up_e x[r])).

    gate, up: tensors [width of x, n_ff, n_experts], or one tensor [width of x, 2 n_ff, n_experts] that both name; down: [n_ff,
    width of out, n_experts]. Biases: [n_ff, n_experts], [width of out, n_experts].

    pooled: only copies of n_experts experts of the tensors, `chosen` being their places; see `engine.program.pooling`.
    """

    unit: UnitId
    x: Buffer
    chosen: Buffer
    weights: Buffer
    out: Buffer
    gate: str
    up: str
    down: str
    n_ff: int
    n_experts: int
    act: Act
    gate_bias: str | None = None
    up_bias: str | None = None
    down_bias: str | None = None
    pooled: bool = False


@dataclass(frozen=True, slots=True)
class Add:
    """x += y, in place (the residual stream); with a `share` of one value a row x += sigmoid(share) * y (a shared expert)."""

    unit: UnitId
    x: Buffer
    y: Buffer
    share: Buffer | None = None


@dataclass(frozen=True, slots=True)
class OutRows:
    """out = the rows of x whose logits are wanted, in order; later ops have n_out rows."""

    unit: UnitId
    x: Buffer
    out: Buffer


Mixing = Rope | KvStore | Attention | LatentStore | LatentAttention | Split | SigmoidGate | Delta
Op = Embed | Norm | Linear | Mixing | GatedAct | Route | Experts | Add | OutRows


@dataclass(frozen=True, slots=True)
class Graph:
    """One step: ops in order of execution. The last op writes `logits`, [n_out, n_vocab]."""

    ops: tuple[Op, ...]
    logits: Buffer
