"""Small llama models of any shape, opened and stepped: what the tests of program and runtime share."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arch.registry import build_spec
from engine.arch.spec import (
    DEFAULT_ROUTING,
    Act,
    BlockSpec,
    DenseFfn,
    Linear,
    ModelSpec,
    MoeFfn,
    Norm,
    Routing,
    SharedExpert,
)
from engine.gguf import types
from engine.gguf.reader import read_gguf
from engine.graph.build import build_graph
from engine.graph.reference import ReferenceModel
from engine.placement.options import LoadOptions
from engine.runtime.kv_cache import BLOCK
from engine.runtime.loader import LoadedModel, load
from engine.runtime.step import StepBatch
from kernels_pyx.executor import AbortFlag
from tests.helpers.gguf_builder import Tensor, build_gguf, tensor_bytes, tiny_metadata

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
Change = Callable[[ModelSpec], ModelSpec]

EXACT = LoadOptions(n_threads=2, f32_activations=True, k_type="f32", v_type="f32")


def same(spec: ModelSpec) -> ModelSpec:
    """No change."""
    return spec


def write_model(
    path: Path,
    *,
    quant: str = "F32",
    n_layers: int = 2,
    n_embd: int = 64,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    head_dim: int = 16,
    v_dim: int = 16,
    n_ff: int = 96,
    n_ctx: int = 1024,
    n_experts: int = 0,
    seed: int = 1,
) -> Path:
    """A random llama model with qk-norm, bias and (n_experts) expert tensors beside the usual ones, for specs that want them."""
    metadata: dict[str, Any] = tiny_metadata(
        n_layers=n_layers, n_embd=n_embd, n_heads=n_heads, n_kv_heads=n_kv_heads, n_ff=n_ff, n_ctx=n_ctx
    )
    metadata |= {
        "llama.attention.key_length": head_dim,
        "llama.attention.value_length": v_dim,
        "llama.rope.dimension_count": head_dim,
    }
    rng = random.Random(seed)
    matrix = types.TYPE_IDS[quant]

    def vector(name: str, n: int, low: float, high: float) -> Tensor:
        return (name, (n,), 0, struct.pack(f"<{n}f", *(rng.uniform(low, high) for _ in range(n))))

    def matrix_of(name: str, *shape: int) -> Tensor:
        return (name, shape, 0, vector(name, math.prod(shape), -1.0, 1.0)[3])

    def weight(name: str, *shape: int) -> Tensor:
        return (name, shape, matrix, tensor_bytes(shape, matrix, rng, 1.5 * shape[0] ** -0.5))

    n_vocab = metadata["llama.vocab_size"]
    tensors = [weight("token_embd.weight", n_embd, n_vocab), vector("output_norm.weight", n_embd, 0.5, 1.5)]
    tensors.append(weight("output.weight", n_embd, n_vocab))
    for i in range(n_layers):
        at = f"blk.{i}."
        tensors += [
            vector(at + "attn_norm.weight", n_embd, 0.5, 1.5),
            vector(at + "ffn_norm.weight", n_embd, 0.5, 1.5),
            vector(at + "attn_q_norm.weight", head_dim, 0.5, 1.5),
            vector(at + "attn_k_norm.weight", head_dim, 0.5, 1.5),
            weight(at + "attn_q.weight", n_embd, n_heads * head_dim),
            weight(at + "attn_k.weight", n_embd, n_kv_heads * head_dim),
            weight(at + "attn_v.weight", n_embd, n_kv_heads * v_dim),
            vector(at + "test_q_norm.weight", n_heads * head_dim, 0.5, 1.5),
            vector(at + "test_k_norm.weight", n_kv_heads * head_dim, 0.5, 1.5),
            vector(at + "test_q.bias", n_heads * head_dim, -1.0, 1.0),
            vector(at + "test_down.bias", n_embd, -1.0, 1.0),
            vector(at + "test_gate.bias", n_ff, -1.0, 1.0),
            weight(at + "attn_output.weight", n_heads * v_dim, n_embd),
            weight(at + "ffn_gate.weight", n_embd, n_ff),
            weight(at + "ffn_up.weight", n_embd, n_ff),
            weight(at + "ffn_down.weight", n_ff, n_embd),
        ]
        if n_experts:
            tensors += [
                (at + "router.weight", (n_embd, n_experts), 0, tensor_bytes((n_embd, n_experts), 0, rng, 1.5 * n_embd**-0.5)),
                weight(at + "gate_exps.weight", n_embd, n_ff, n_experts),
                weight(at + "up_exps.weight", n_embd, n_ff, n_experts),
                weight(at + "gate_up_exps.weight", n_embd, 2 * n_ff, n_experts),
                weight(at + "down_exps.weight", n_ff, n_embd, n_experts),
                vector(at + "router.bias", n_experts, -0.5, 0.5),
                vector(at + "pick.bias", n_experts, -0.3, 0.3),
                matrix_of(at + "gate_exps.bias", n_ff, n_experts),
                matrix_of(at + "up_exps.bias", n_ff, n_experts),
                matrix_of(at + "down_exps.bias", n_embd, n_experts),
                vector(at + "share.weight", n_embd, -0.3, 0.3),
            ]
    tensors += [vector(f"blk.{i}.test_sinks.weight", n_heads, -2.0, 4.0) for i in range(n_layers)]
    path.write_bytes(build_gguf(metadata, tensors))
    return path


def everything(spec: ModelSpec) -> ModelSpec:
    """Biases, norms of queries and keys, neox rotation of part of the head, gelu."""

    def change(block: BlockSpec) -> BlockSpec:
        at, part, ffn = f"blk.{block.index}.", block.mixer, block.ffn
        assert isinstance(ffn, DenseFfn)
        mixer = replace(
            part,
            q=replace(part.q, bias=at + "test_q.bias"),
            q_norm=Norm(at + "attn_q_norm.weight", 1e-6),
            k_norm=Norm(at + "attn_k_norm.weight", 1e-6),
            rope=replace(part.rope, kind="neox", n_rot=part.head_dim // 4 * 2, attn_factor=1.1),
        )
        gate, down = replace(ffn.gate, bias=at + "test_gate.bias"), replace(ffn.down, bias=at + "test_down.bias")
        return replace(block, mixer=mixer, ffn=replace(ffn, gate=gate, down=down, act="gelu_tanh"))

    return replace(spec, blocks=tuple(change(block) for block in spec.blocks))


def mixture(
    n_experts: int,
    n_used: int,
    routing: Routing = DEFAULT_ROUTING,
    *,
    act: Act = "silu",
    biased: bool = False,
    fused: bool = False,
    shared: bool = False,
    gated: bool = False,
) -> Change:
    """Every block but the first a mixture of experts.

    A bias in `routing` is any name: each block gets its own. biased: router and experts; fused: gate and up in one tensor;
    shared: the block's dense network beside the experts; gated: times a gate of its own.
    """

    def change(block: BlockSpec) -> BlockSpec:
        at, ffn = f"blk.{block.index}.", block.ffn
        if block.index == 0:
            return block
        assert isinstance(ffn, DenseFfn)

        def linear(like: Linear, name: str, tensor: str = "") -> Linear:
            return replace(like, weight=f"{at}{tensor or name}.weight", bias=f"{at}{name}.bias" if biased else None)

        gate = Linear(at + "share.weight", ffn.gate.n_in, 1) if gated else None
        experts = MoeFfn(
            router=replace(linear(ffn.gate, "router"), n_out=n_experts),
            gate=linear(ffn.gate, "gate_exps", "gate_up_exps" if fused else ""),
            up=linear(ffn.up, "up_exps", "gate_up_exps" if fused else ""),
            down=linear(ffn.down, "down_exps"),
            n_experts=n_experts,
            n_used=n_used,
            routing=routing if routing.bias is None else replace(routing, bias=at + "pick.bias"),
            act=act,
            shared=SharedExpert(replace(ffn, act=act), gate) if shared else None,
        )
        return replace(block, ffn=experts)

    return lambda spec: replace(spec, blocks=tuple(change(block) for block in spec.blocks))


def no_progress(phase: str, done: int, total: int) -> None:
    """Takes progress and drops it."""


def open_model(path: Path, options: LoadOptions = EXACT, change: Change = same, abort: AbortFlag | None = None) -> LoadedModel:
    """The compiled model."""
    file = read_gguf(path)
    spec = change(build_spec(file))
    return load(file, spec, build_graph(spec), options, no_progress, abort or AbortFlag())


def open_reference(path: Path, change: Change = same) -> ReferenceModel:
    """The numpy model."""
    file = read_gguf(path)
    spec = change(build_spec(file))
    return ReferenceModel(file, spec, build_graph(spec), block=BLOCK)


def prefill_batch(ids: Sequence[int], start: int, table: I32, out_rows: Sequence[int] | None = None) -> StepBatch:
    """One chunk of one sequence; all rows wanted unless told otherwise."""
    n = len(ids)
    wanted = range(n) if out_rows is None else out_rows
    return StepBatch(
        phase="prefill",
        token_ids=np.asarray(ids, np.int32),
        positions=np.arange(start, start + n, dtype=np.int32),
        seq_of_row=np.zeros(n, np.int32),
        block_tables=(table,),
        out_rows=np.asarray(list(wanted), np.int32),
    )


def decode_batch(ids: Sequence[int], positions: Sequence[int], tables: Sequence[I32]) -> StepBatch:
    """One row for each of several sequences, all wanted."""
    rows = np.arange(len(ids), dtype=np.int32)
    return StepBatch("decode", np.asarray(ids, np.int32), np.asarray(positions, np.int32), rows, tuple(tables), rows)


class Steps:
    """A sequence on a model: remembers position and block table."""

    def __init__(self, model: LoadedModel | ReferenceModel, table: I32) -> None:
        self._model, self._table, self._at = model, table, 0

    def prefill(self, ids: Sequence[int], chunk: int = 512) -> F32:
        """Logits of every row."""
        parts = []
        for start in range(0, len(ids), chunk):
            part = ids[start : start + chunk]
            parts.append(self._model.step(prefill_batch(part, self._at, self._table)))
            self._at += len(part)
        return np.concatenate(parts)

    def decode(self, token: int) -> F32:
        """Logits after one more token, [n_vocab]."""
        row: F32 = self._model.step(decode_batch([token], [self._at], [self._table]))[0]
        self._at += 1
        return row


def blocks(first: int, n: int) -> I32:
    """A block table of n consecutive blocks."""
    return np.arange(first, first + n, dtype=np.int32)


def some_ids(n: int, seed: int = 3) -> list[int]:
    """Token ids of the tiny vocabulary."""
    return np.random.default_rng(seed).integers(0, 256, n).tolist()
