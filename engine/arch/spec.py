"""What a model is: dimensions and blocks, as values.

A family file turns metadata into a `ModelSpec`; units, graph, reference, loader and estimate read it. Nothing here computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RopeKind = Literal["norm", "neox"]
"""`norm` rotates the pairs (2j, 2j+1); `neox` the pairs (j, j + n_rot/2)."""


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm: weight * x / sqrt(mean(x^2) + eps), in f32. `weight` is a tensor name, [width]."""

    weight: str
    eps: float


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of the first `n_rot` dimensions of a head.

    Angles: theta_j = position * freq_base**(-2j/n_rot) / factor_j * freq_scale; cos and sin are multiplied by `attn_factor`.
    `factors` names a tensor [n_rot/2] f32 (llama3 scaling) or is None. YaRN applies when `yarn` is set.
    """

    kind: RopeKind
    n_rot: int
    freq_base: float
    freq_scale: float = 1.0
    factors: str | None = None
    attn_factor: float = 1.0
    yarn: Yarn | None = None


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN interpolation (https://arxiv.org/abs/2309.00071): context of training and the two ramp bounds, in rotations.

    Pairs that turn more than `beta_fast` times within `original_context` keep their speed, those below `beta_slow` turn `factor`
    times slower, those between are mixed. `rounded`: the ramp begins and ends at whole pairs.
    """

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    rounded: bool = True


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x @ W.T (+ bias). `weight` and `bias` are tensor names; W is [n_in, n_out] in GGUF order.

    Where several layers share a tensor, W is its n_out rows from `first` on; so is the bias, if it has more than n_out values.
    """

    weight: str
    n_in: int
    n_out: int
    bias: str | None = None
    first: int | None = None


@dataclass(frozen=True, slots=True)
class Temperature:
    """Sharper attention far beyond the context of training: queries times 1 + beta * log(1 + floor(position / length))."""

    beta: float
    length: int


@dataclass(frozen=True, slots=True)
class HeadMatrices:
    """One matrix for each head: y_h = x_h @ W_h.T, n_in values to n_out.

    W_h are the rows [first + h * step, first + h * step + n_out) of the tensor `weight`, n_in values each, whatever its shape.
    With `transposed` the tensor holds W_h.T, n_in rows of n_out values: no kernel reads it so, a derived weight is made.
    """

    weight: str
    n_in: int
    n_out: int
    n_heads: int
    step: int
    first: int = 0
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Mla:
    """Multi-head latent attention (https://arxiv.org/abs/2405.04434, section 2.1): keys and values come from one vector a token.

    q_h = [q_nope | q_pe] of q(x), or of q(q_norm(q_a(x))) where there is a `q_a`; kv_a(x) = [c | k_pe], c normed, k_pe shared by
    all heads; the n_rot values of q_pe and k_pe are rotated. Naively k_h = [k c | k_pe] and v_h = v c. Absorbed, the same scores
    come from q'_h = [absorb q_nope | q_pe] and the latent row [c | k_pe] itself, and sum p c goes through v. Only latent rows are
    cached, rank + n_rot values a token.
    """

    q: Linear
    kv_a: Linear
    kv_norm: Norm
    absorb: HeadMatrices
    k: HeadMatrices
    v: HeadMatrices
    out: Linear
    n_heads: int
    rank: int
    scale: float
    rope: Rope
    q_a: Linear | None = None
    q_norm: Norm | None = None

    @property
    def head_dim(self) -> int:
        """Values of a query head."""
        return self.absorb.n_in + self.rope.n_rot

    @property
    def latent(self) -> int:
        """Values that a token takes in the cache."""
        return self.rank + self.rope.n_rot

    @property
    def derived(self) -> tuple[HeadMatrices, ...]:
        """The matrices that the file holds the wrong way round."""
        return tuple(one for one in (self.absorb, self.k, self.v) if one.transposed)


@dataclass(frozen=True, slots=True)
class Attention:
    """Causal softmax attention with grouped KV heads: query head h reads KV head h // (n_heads / n_kv_heads).

    window: a row sees its own key and window - 1 before it, None = all. sinks: tensor [n_heads] f32, a logit per head that takes
    part in the softmax without a value. softcap: scores become softcap * tanh(score / softcap), 0 = as they are.
    `q_norm` and `k_norm` are over each head, or over all heads at once where `whole_norm`; they come before the rotation, or
    after it where `norm_last`.
    """

    q: Linear
    k: Linear
    v: Linear
    out: Linear
    n_heads: int
    n_kv_heads: int
    head_dim: int
    v_dim: int
    scale: float
    rope: Rope
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    window: int | None = None
    sinks: str | None = None
    softcap: float = 0.0
    whole_norm: bool = False
    norm_last: bool = False
    temperature: Temperature | None = None
    gated: bool = False
    """q gives head_dim gates behind the queries of each head; the heads' outputs are multiplied with their sigmoids."""


@dataclass(frozen=True, slots=True)
class ClampedSwiglu:
    """min(gate, limit) * sigmoid(alpha * min(gate, limit)) * (clamp(up, -limit, limit) + 1): the gated activation of gpt-oss."""

    alpha: float = 1.702
    limit: float = 7.0


Act = Literal["silu", "gelu_tanh"] | ClampedSwiglu
"""What makes one value of gate and up: act(gate) * up, or `ClampedSwiglu`."""


@dataclass(frozen=True, slots=True)
class DenseFfn:
    """down(act(gate x) * (up x))."""

    gate: Linear
    up: Linear
    down: Linear
    act: Act = "silu"


@dataclass(frozen=True, slots=True)
class Routing:
    """How a router's logits become n_used experts and their weights.

    Each expert has a likelihood: `softmax` over all experts, `sigmoid`, or the logit itself (`softmax_chosen`). The experts with
    the largest likelihood + bias are chosen (`bias` names a tensor [n_experts]); with n_groups > 1 only from the n_groups_used
    groups whose two best add up to most. Weights are the likelihoods of the chosen, without the bias; with `softmax_chosen` the
    softmax over their logits. `norm_weights` divides them by their sum (at least 2**-14); then they are multiplied by `scale`.
    """

    gating: Literal["softmax", "sigmoid", "softmax_chosen"] = "softmax"
    bias: str | None = None
    n_groups: int = 1
    n_groups_used: int = 1
    norm_weights: bool = True
    scale: float = 1.0


DEFAULT_ROUTING = Routing()


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """A feed-forward network that every row passes beside the chosen experts, times sigmoid(gate x) where it has a `gate`."""

    ffn: DenseFfn
    gate: Linear | None = None


@dataclass(frozen=True, slots=True)
class MoeFfn:
    """A router and n_experts feed-forward networks, of which one passes n_used: sum of w_e * down_e(act(gate_e x) * (up_e x)).

    `gate`, `up` and `down` describe one expert; their tensors hold all of them, [n_in, n_out, n_experts], their biases [n_out,
    n_experts]. Where gate and up name the same tensor it is [n_in, 2 n_out, n_experts], the rows of gate first in each expert.
    """

    router: Linear
    gate: Linear
    up: Linear
    down: Linear
    n_experts: int
    n_used: int
    routing: Routing = DEFAULT_ROUTING
    act: Act = "silu"
    shared: SharedExpert | None = None


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """The shape of a gated DeltaNet: n_k_heads of queries and keys, n_v_heads of values, all `dim` wide; a convolution of n_taps.

    `tiled`: value head h reads key head h % n_k_heads, else h // (n_v_heads / n_k_heads).
    `joined`: one projection holds, key head by key head, its query, its key, its values and their output gates.
    `paired`: one projection holds, key head by key head, the betas of its values and then their alphas.
    """

    n_k_heads: int
    n_v_heads: int
    dim: int
    n_taps: int
    tiled: bool
    joined: bool = False
    paired: bool = False

    @property
    def n_channels(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return (2 * self.n_k_heads + self.n_v_heads) * self.dim

    @property
    def n_inner(self) -> int:
        """Values of all value heads."""
        return self.n_v_heads * self.dim

    @property
    def conv_floats(self) -> int:
        """f32 values of a sequence's convolution state: the inputs of its last n_taps - 1 tokens."""
        return (self.n_taps - 1) * self.n_channels

    @property
    def state_floats(self) -> int:
        """f32 values of a sequence's whole state: that of the convolution and a dim x dim matrix a value head."""
        return self.conv_floats + self.n_v_heads * self.dim * self.dim


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Linear attention by the gated delta rule (https://arxiv.org/abs/2412.06464) behind a causal depthwise convolution.

    Per value head, with M the state (keys x values), q and k of unit length and q scaled by dim**-0.5:
    M *= exp(min(0, a) * softplus(alpha + dt)); M += k (sigmoid(beta) * (v - M^T k))^T; out = norm(M^T q) * silu(z).

    a is -exp of what was trained. Where a file has it positive, matrices would grow without bound; they then just do not fade.

    qkv: to the channels of the convolution (`joined`: with z); conv [n_taps, n_channels], dt and a [n_v_heads], norm [dim] name
    tensors. z is None where `joined`; alpha is None where `paired`: then beta gives both.
    """

    qkv: Linear
    z: Linear | None
    beta: Linear
    alpha: Linear | None
    conv: str
    dt: str
    a: str
    norm: Norm
    out: Linear
    shape: DeltaShape


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """x += post_norm(mixer(norm(x))); x += ffn_post_norm(ffn(ffn_norm(x))). Post-norms that are None change nothing."""

    index: int
    norm: Norm
    mixer: Attention | Mla | DeltaNet
    ffn_norm: Norm
    ffn: DenseFfn | MoeFfn
    post_norm: Norm | None = None
    ffn_post_norm: Norm | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A whole decoder: embedding, blocks, final norm, head. `head.weight` equals `embed` where the two are tied.

    embed_scale multiplies the rows of the embedding. softcap: logits become softcap * tanh(logit / softcap), 0 = as they are.
    """

    architecture: str
    n_vocab: int
    n_embd: int
    context_length: int
    embed: str
    blocks: tuple[BlockSpec, ...]
    out_norm: Norm
    head: Linear
    embed_scale: float = 1.0
    softcap: float = 0.0

    @property
    def n_layers(self) -> int:
        """Number of blocks that compute (MTP blocks are not among them)."""
        return len(self.blocks)
