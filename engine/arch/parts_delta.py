"""What the hybrid families add to `parts`: gated DeltaNet, and which blocks have it in the place of attention."""

from __future__ import annotations

from array import array

from engine.arch.hparams import Header
from engine.arch.parts import MAX_HEADS, norm
from engine.arch.spec import DeltaNet, DeltaShape, Linear
from engine.errors import GgufError, UnsupportedModel

WIDTH_STEP = 16
"""Heads of the kernels are a multiple of this wide."""
MAX_DIM = 512
MAX_TAPS = 16


def recurrent_layers(header: Header, n_kv_heads: tuple[int, ...]) -> tuple[bool, ...]:
    """Whether each block is recurrent: as the file lists them, else those without heads of keys, else all but every
    full_attention_interval-th.

    Raises:
        UnsupportedModel: all are. GgufError: a list of another length or kind, an interval that is no whole number above 0.
    """
    n_layers = len(n_kv_heads)
    listed = header.metadata.get(header.key("attention.recurrent_layers"))
    if listed is None and 0 in n_kv_heads:
        return _with_attention(header, tuple(n == 0 for n in n_kv_heads))
    if listed is None:
        interval = header.integer("full_attention_interval", 4, low=1)
        return _with_attention(header, tuple((index + 1) % interval != 0 for index in range(n_layers)))
    if not isinstance(listed, list | tuple | array) or len(listed) < n_layers or not all(one in (0, 1) for one in listed):
        raise GgufError(
            f"{header.key('attention.recurrent_layers')} is no list of a yes or no for each of {n_layers} blocks; "
            "the metadata is damaged"
        )
    return _with_attention(header, tuple(bool(one) for one in listed[:n_layers]))


def _with_attention(header: Header, recurrent: tuple[bool, ...]) -> tuple[bool, ...]:
    if all(recurrent):
        raise UnsupportedModel(
            f"this {header.architecture} file has no block with attention among its {len(recurrent)} (block_count, "
            "nextn_predict_layers, attention.recurrent_layers and full_attention_interval say so); this version runs mixed models"
        )
    return recurrent


def delta_net(header: Header, n_embd: int, index: int, eps: float, *, tiled: bool) -> DeltaNet:
    """The gated DeltaNet of block `index`, its projections apart or joined as the file has them. tiled: see `DeltaShape`.

    Raises:
        UnsupportedModel: heads of a width that is not run. GgufError: missing or contradicting metadata and tensors.
    """
    at = f"blk.{index}"
    joined, paired = header.has(f"{at}.ssm_in.weight"), header.has(f"{at}.ssm_ba.weight")
    shape = _shape(header, tiled=tiled, joined=joined, paired=paired)
    n_in, n_v = shape.n_inner, shape.n_v_heads
    z, alpha = None, None
    if joined:
        qkv = header.linear(f"{at}.ssm_in", n_embd, shape.n_channels + n_in)
    else:
        qkv, z = header.linear(f"{at}.attn_qkv", n_embd, shape.n_channels), header.linear(f"{at}.attn_gate", n_embd, n_in)
    if paired:
        beta = header.linear(f"{at}.ssm_ba", n_embd, 2 * n_v)
    else:
        beta, alpha = header.linear(f"{at}.ssm_beta", n_embd, n_v), header.linear(f"{at}.ssm_alpha", n_embd, n_v)
    return DeltaNet(
        qkv=qkv,
        z=z,
        beta=beta,
        alpha=alpha,
        conv=header.tensor(f"{at}.ssm_conv1d.weight", shape.n_taps, shape.n_channels),
        dt=header.tensor(f"{at}.ssm_dt.bias", n_v),
        a=header.tensor(f"{at}.ssm_a", n_v),
        norm=norm(header, f"{at}.ssm_norm", shape.dim, eps),
        out=Linear(header.tensor(f"{at}.ssm_out.weight", n_in, n_embd), n_in, n_embd),
        shape=shape,
    )


def _shape(header: Header, *, tiled: bool, joined: bool, paired: bool) -> DeltaShape:
    dim = header.integer("ssm.state_size", low=1)
    n_k = header.integer("ssm.group_count", low=1, high=MAX_HEADS)
    n_v = header.integer("ssm.time_step_rank", low=1, high=MAX_HEADS)
    inner = header.integer("ssm.inner_size", low=1)
    if n_v % n_k or n_v * dim != inner:
        raise GgufError(
            f"{header.key('ssm')}: {n_v} value heads (time_step_rank) of {dim} (state_size) over {n_k} key heads (group_count) "
            f"do not make up an inner_size of {inner}; the metadata contradicts itself"
        )
    if dim % WIDTH_STEP or dim > MAX_DIM:
        raise UnsupportedModel(
            f"{header.key('ssm.state_size')} is {dim}; this version runs multiples of {WIDTH_STEP} up to {MAX_DIM}"
        )
    return DeltaShape(n_k, n_v, dim, header.integer("ssm.conv_kernel", low=2, high=MAX_TAPS), tiled, joined, paired)
