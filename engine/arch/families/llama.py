"""The llama family: Llama 1 to 3, Mistral, SmolLM2 and whatever else carries `general.architecture = llama`, dense only.

Pre-norm blocks, grouped-query attention, interleaved RoPE (the converter permuted q and k rows), SwiGLU.
"""

from __future__ import annotations

from engine.arch.hparams import MAX_BLOCKS, Header
from engine.arch.registry import family
from engine.arch.spec import Attention, BlockSpec, DenseFfn, Linear, ModelSpec, Norm, Rope
from engine.errors import GgufError, UnsupportedModel


@family("llama")
def build(header: Header) -> ModelSpec:
    """The ModelSpec of a dense llama file.

    Raises:
        UnsupportedModel: a mixture of experts, or a RoPE scaling other than none and linear.
        GgufError: missing or contradicting metadata and tensors.
    """
    if header.integer("expert_count", 0) > 0:
        raise UnsupportedModel(
            "this llama model is a mixture of experts (llama.expert_count > 0); this version runs dense llama models only"
        )
    n_embd = header.integer("embedding_length", low=1)
    n_layers = header.integer("block_count", low=1, high=MAX_BLOCKS)
    n_heads = header.per_layer("attention.head_count", n_layers, high=4096)
    n_vocab = header.n_vocab()
    eps = header.number("attention.layer_norm_rms_epsilon", low=0.0, high=1.0)
    blocks = tuple(
        _block(header, index, n_embd, heads, kv_heads, n_ff, eps)
        for index, heads, kv_heads, n_ff in zip(
            range(n_layers),
            n_heads,
            _kv_heads(header, n_heads),
            header.per_layer("feed_forward_length", n_layers),
            strict=True,
        )
    )
    embed = header.tensor("token_embd.weight", n_embd, n_vocab)
    head = header.linear("output", n_embd, n_vocab) if header.has("output.weight") else Linear(embed, n_embd, n_vocab)
    return ModelSpec(
        architecture=header.architecture,
        n_vocab=n_vocab,
        n_embd=n_embd,
        context_length=header.integer("context_length", low=1, high=1 << 30),
        embed=embed,
        blocks=blocks,
        out_norm=Norm(header.tensor("output_norm.weight", n_embd), eps),
        head=head,
    )


def _block(header: Header, index: int, n_embd: int, n_heads: int, n_kv_heads: int, n_ff: int, eps: float) -> BlockSpec:
    prefix = f"blk.{index}"
    head_dim = header.integer("attention.key_length", _default_head_dim(header, n_embd, n_heads), low=1, high=4096)
    v_dim = header.integer("attention.value_length", head_dim, low=1, high=4096)
    return BlockSpec(
        index=index,
        norm=Norm(header.tensor(f"{prefix}.attn_norm.weight", n_embd), eps),
        mixer=Attention(
            q=header.linear(f"{prefix}.attn_q", n_embd, n_heads * head_dim),
            k=header.linear(f"{prefix}.attn_k", n_embd, n_kv_heads * head_dim),
            v=header.linear(f"{prefix}.attn_v", n_embd, n_kv_heads * v_dim),
            out=header.linear(f"{prefix}.attn_output", n_heads * v_dim, n_embd),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            v_dim=v_dim,
            scale=header.number("attention.scale", 0.0, low=0.0, high=1e4) or head_dim**-0.5,
            rope=_rope(header, head_dim),
        ),
        ffn_norm=Norm(header.tensor(f"{prefix}.ffn_norm.weight", n_embd), eps),
        ffn=DenseFfn(
            gate=header.linear(f"{prefix}.ffn_gate", n_embd, n_ff),
            up=header.linear(f"{prefix}.ffn_up", n_embd, n_ff),
            down=header.linear(f"{prefix}.ffn_down", n_ff, n_embd),
        ),
    )


def _kv_heads(header: Header, n_heads: tuple[int, ...]) -> tuple[int, ...]:
    name = "attention.head_count_kv"
    kv_heads = header.per_layer(name, len(n_heads), high=4096) if header.key(name) in header.metadata else n_heads
    for n, n_kv in zip(n_heads, kv_heads, strict=True):
        if n % n_kv:
            raise GgufError(f"{header.key(name)} {n_kv} does not divide the {n} heads; the metadata contradicts itself")
    return kv_heads


def _default_head_dim(header: Header, n_embd: int, n_heads: int) -> int | None:
    if n_embd % n_heads and header.key("attention.key_length") not in header.metadata:
        raise GgufError(
            f"{header.key('embedding_length')} {n_embd} is no multiple of {header.key('attention.head_count')} {n_heads} "
            f"and {header.key('attention.key_length')} is missing; the metadata contradicts itself"
        )
    return n_embd // n_heads or None


def _rope(header: Header, head_dim: int) -> Rope:
    n_rot = header.integer("rope.dimension_count", head_dim, low=2, high=4096)
    if n_rot != head_dim or n_rot % 2:
        raise GgufError(
            f"{header.key('rope.dimension_count')} is {n_rot}, llama rotates whole heads of {head_dim} (an even number)"
        )
    scaling = header.text("rope.scaling.type", "linear", ("none", "linear", "yarn", "longrope"))
    if scaling not in ("none", "linear"):
        raise UnsupportedModel(f"{header.key('rope.scaling.type')} is {scaling}; this version runs none and linear")
    # Files from before August 2023 hold the factor under rope.scale_linear; a factor of 0 means "not scaled".
    old = header.number("rope.scale_linear", 1.0, low=0.0, high=1e6)
    factor = header.number("rope.scaling.factor", old, low=0.0, high=1e6) if scaling == "linear" else 1.0
    factors = header.tensor("rope_freqs.weight", n_rot // 2) if header.has("rope_freqs.weight") else None
    return Rope(
        kind="norm",
        n_rot=n_rot,
        freq_base=header.number("rope.freq_base", 10000.0, low=1e-3, high=1e12),
        freq_scale=1.0 / (factor or 1.0),
        factors=factors,
        attn_factor=header.number("rope.scaling.attn_factor", 1.0, low=0.0, high=1e3) or 1.0,
    )
