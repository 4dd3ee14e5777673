"""ModelSpec to the ops of one step, unfused and device-free. Fusing and placing come later, in `engine.program`."""

from __future__ import annotations

from collections.abc import Iterator

from engine.arch.spec import Attention as AttentionSpec
from engine.arch.spec import BlockSpec, DeltaNet, DenseFfn, Mla, ModelSpec, MoeFfn
from engine.arch.spec import Linear as LinearSpec
from engine.arch.spec import Norm as NormSpec
from engine.arch.units import UnitId
from engine.graph.ops import (
    Add,
    Attention,
    Buffer,
    Delta,
    Embed,
    Experts,
    GatedAct,
    Graph,
    KvStore,
    LatentAttention,
    LatentStore,
    Linear,
    Norm,
    Op,
    OutRows,
    Rope,
    Route,
    SigmoidGate,
    Split,
)


def build_graph(spec: ModelSpec) -> Graph:
    """The graph of one step of `spec`. Buffers of one name may be wider in some layers than in others."""
    stream = Buffer("x", spec.n_embd)
    logits = Buffer("logits", spec.n_vocab)
    head = UnitId("head")
    picked = Buffer("x_out", spec.n_embd)
    normed = Buffer("h_out", spec.n_embd)
    ops: list[Op] = [Embed(UnitId("embed"), spec.embed, stream, spec.embed_scale)]
    for block in spec.blocks:
        ops.extend(_mixing(block, stream))
        ops.extend(_ffn(block, stream))
    ops += [
        OutRows(head, stream, picked),
        Norm(head, picked, normed, spec.out_norm),
        Linear(head, normed, logits, spec.head.weight, spec.head.bias, spec.softcap),
    ]
    return Graph(tuple(ops), logits)


def _mixing(block: BlockSpec, stream: Buffer) -> Iterator[Op]:
    match block.mixer:
        case DeltaNet():
            return _delta(block, block.mixer, stream)
        case Mla():
            return _latent(block, block.mixer, stream)
    return _mixer(block, block.mixer, stream)


def _mixer(block: BlockSpec, part: AttentionSpec, stream: Buffer) -> Iterator[Op]:
    unit, cache = UnitId("mixer", block.index), UnitId("kv", block.index)
    h = Buffer("h", stream.width)
    q, k, v = Buffer("q", part.n_heads * part.head_dim), Buffer("k", part.k.n_out), Buffer("v", part.v.n_out)
    mixed, out = Buffer("attn", part.out.n_in), Buffer("y", stream.width)
    yield Norm(unit, stream, h, block.norm)
    both, gate, gated = Buffer("q_gate", part.q.n_out), Buffer("gate", q.width), Buffer("attn_gated", part.out.n_in)
    yield _linear(unit, h, both if part.gated else q, part.q)
    yield _linear(unit, h, k, part.k)
    yield _linear(unit, h, v, part.v)
    if part.gated:
        yield Split(unit, both, q, gate, part.n_heads)
    norms: list[Op] = []
    if part.q_norm is not None:
        norms.append(Norm(unit, q, q, part.q_norm, 1 if part.whole_norm else part.n_heads))
    if part.k_norm is not None:
        norms.append(Norm(unit, k, k, part.k_norm, 1 if part.whole_norm else part.n_kv_heads))
    ropes = [
        Rope(unit, q, part.n_heads, part.head_dim, part.rope),
        Rope(unit, k, part.n_kv_heads, part.head_dim, part.rope),
    ]
    yield from (*ropes, *norms) if part.norm_last else (*norms, *ropes)
    yield KvStore(cache, k, v, block.index)
    yield Attention(
        unit=unit,
        q=q,
        out=mixed,
        layer=block.index,
        n_heads=part.n_heads,
        n_kv_heads=part.n_kv_heads,
        head_dim=part.head_dim,
        v_dim=part.v_dim,
        scale=part.scale,
        window=part.window,
        sinks=part.sinks,
        softcap=part.softcap,
        temperature=part.temperature,
    )
    if part.gated:
        yield SigmoidGate(unit, mixed, gate, gated)
    yield _linear(unit, gated if part.gated else mixed, out, part.out)
    yield from _join(unit, stream, out, block.post_norm)


def _delta(block: BlockSpec, part: DeltaNet, stream: Buffer) -> Iterator[Op]:
    unit, state = UnitId("mixer", block.index), UnitId("state", block.index)
    h, x, beta = Buffer("h", stream.width), Buffer("channels", part.qkv.n_out), Buffer("beta", part.beta.n_out)
    mixed, out = Buffer("delta", part.out.n_in), Buffer("y", stream.width)
    yield Norm(unit, stream, h, block.norm)
    yield _linear(unit, h, x, part.qkv)
    z, alpha = x, beta
    if part.z is not None:
        z = Buffer("z", part.z.n_out)
        yield _linear(unit, h, z, part.z)
    yield _linear(unit, h, beta, part.beta)
    if part.alpha is not None:
        alpha = Buffer("alpha", part.alpha.n_out)
        yield _linear(unit, h, alpha, part.alpha)
    yield Delta(state, x, z, beta, alpha, mixed, part.conv, part.dt, part.a, part.norm, block.index, part.shape)
    yield _linear(unit, mixed, out, part.out)
    yield from _join(unit, stream, out, block.post_norm)


def _latent(block: BlockSpec, part: Mla, stream: Buffer) -> Iterator[Op]:
    unit, cache = UnitId("mixer", block.index), UnitId("kv", block.index)
    h, q, row = Buffer("h", stream.width), Buffer("q", part.q.n_out), Buffer("latent", part.latent)
    mixed, out = Buffer("attn", part.out.n_in), Buffer("y", stream.width)
    yield Norm(unit, stream, h, block.norm)
    if part.q_a is None or part.q_norm is None:
        yield _linear(unit, h, q, part.q)
        yield _linear(unit, h, row, part.kv_a)
    else:
        low, normed = Buffer("q_a", part.q_a.n_out), Buffer("q_a_normed", part.q_a.n_out)
        yield _linear(unit, h, low, part.q_a)
        yield _linear(unit, h, row, part.kv_a)
        yield Norm(unit, low, normed, part.q_norm)
        yield _linear(unit, normed, q, part.q)
    yield LatentStore(cache, row, block.index, part.rank, part.kv_norm, part.rope)
    yield LatentAttention(unit, q, mixed, block.index, part)
    yield _linear(unit, mixed, out, part.out)
    yield Add(unit, stream, out)


def _ffn(block: BlockSpec, stream: Buffer) -> Iterator[Op]:
    unit = UnitId("ffn", block.index)
    h, out = Buffer("h", stream.width), Buffer("y", stream.width)
    yield Norm(unit, stream, h, block.ffn_norm)
    if isinstance(block.ffn, MoeFfn):
        yield from _moe(unit, block.ffn, h, out)
    else:
        yield from _dense(unit, block.ffn, h, out)
    yield from _join(unit, stream, out, block.ffn_post_norm)


def _join(unit: UnitId, stream: Buffer, part: Buffer, norm: NormSpec | None) -> Iterator[Op]:
    """Adds the part to the residual stream, normed if the block norms it."""
    if norm is not None:
        normed = Buffer("y_norm", part.width)
        yield Norm(unit, part, normed, norm)
        part = normed
    yield Add(unit, stream, part)


def _dense(unit: UnitId, part: DenseFfn, h: Buffer, out: Buffer) -> Iterator[Op]:
    gate, up, act = Buffer("gate", part.gate.n_out), Buffer("up", part.up.n_out), Buffer("act", part.down.n_in)
    yield _linear(unit, h, gate, part.gate)
    yield _linear(unit, h, up, part.up)
    yield GatedAct(unit, gate, up, act, part.act)
    yield _linear(unit, act, out, part.down)


def _moe(unit: UnitId, part: MoeFfn, h: Buffer, out: Buffer) -> Iterator[Op]:
    scores = Buffer("scores", part.n_experts)
    chosen, weights = Buffer("chosen", part.n_used), Buffer("weights", part.n_used)
    yield _linear(unit, h, scores, part.router)
    yield Route(unit, scores, chosen, weights, part.routing)
    aside = UnitId("shared", unit.layer)
    beside, share = Buffer("y_shared", out.width), None
    if part.shared is not None:
        yield from _dense(aside, part.shared.ffn, h, beside)
        if part.shared.gate is not None:
            share = Buffer("share", 1)
            yield _linear(aside, h, share, part.shared.gate)
    yield Experts(
        unit=UnitId("experts", unit.layer),
        x=h,
        chosen=chosen,
        weights=weights,
        out=out,
        gate=part.gate.weight,
        up=part.up.weight,
        down=part.down.weight,
        n_ff=part.gate.n_out,
        n_experts=part.n_experts,
        act=part.act,
        gate_bias=part.gate.bias,
        up_bias=part.up.bias,
        down_bias=part.down.bias,
    )
    if part.shared is not None:
        yield Add(unit, out, beside, share)


def _linear(unit: UnitId, x: Buffer, out: Buffer, layer: LinearSpec) -> Linear:
    return Linear(unit, x, out, layer.weight, layer.bias, first=layer.first)
