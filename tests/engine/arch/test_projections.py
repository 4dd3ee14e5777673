"""Queries, keys and values as three tensors or as one: the same model, read and computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.arch.registry import build_spec
from engine.arch.spec import Attention
from engine.cli.bench import linears
from engine.errors import GgufError
from engine.gguf.info import GgufFile
from engine.gguf.reader import read_gguf
from engine.placement.options import LoadOptions
from tests.helpers.gguf_builder import build_gguf
from tests.helpers.golden_models import batch, golden
from tests.helpers.headers import Tensor
from tests.helpers.moe_headers import DENSE, DIM, HEADS, KV, E, header
from tests.helpers.runs import EXACT, open_model, open_reference

WIDTH = (HEADS + 2 * KV) * DIM
NORM = {"ffn_norm": (E,)}


def _joined(name: str, path: Path, *, biases: bool) -> Path:
    """A golden model with q, k and v of each block in one tensor, and (biases) their biases in one too."""
    file = read_gguf(golden(name).path)
    raw = golden(name).path.read_bytes()

    def data(tensor: str) -> bytes:
        info = file.tensors[tensor]
        return raw[info.offset : info.offset + info.nbytes]

    tensors = []
    for info in file.tensors.values():
        at, _, part = info.name.rpartition(".attn_")
        kind, _, what = part.partition(".")
        if kind not in ("q", "k", "v") or (what == "bias" and not biases):
            tensors.append((info.name, info.shape, info.type_id, data(info.name)))
        elif kind == "q":
            names = [f"{at}.attn_{one}.{what}" for one in "qkv"]
            rows = sum(file.tensors[one].shape[-1] for one in names)
            shape = (rows,) if what == "bias" else (info.shape[0], rows)
            tensors.append((f"{at}.attn_qkv.{what}", shape, info.type_id, b"".join(data(one) for one in names)))
    path.write_bytes(build_gguf(dict(file.metadata), tensors))
    return path


@pytest.mark.parametrize("biases", [False, True])
def test_one_tensor_gives_the_logits_of_three(tmp_path: Path, biases: bool) -> None:
    path, ids = _joined("qwen2", tmp_path / "m.gguf", biases=biases), golden("qwen2").ids("medium")
    recorded = golden("qwen2").logits("medium")
    assert np.abs(open_reference(path).step(batch(ids)) - recorded).max() < 2e-3
    for options, worst in ((EXACT, 2e-3), (replace(LoadOptions(), n_threads=2), 0.1)):
        model = open_model(path, options)
        assert np.abs(model.step(batch(ids)) - recorded).max() < worst
        one = model.step(batch(ids[:1]))
        assert np.abs(one - recorded[:1]).max() < worst
        model.close()


def test_bytes_are_counted_once(tmp_path: Path) -> None:
    def read(file: GgufFile) -> float:
        return sum(file.tensors[one.weight].nbytes * share for one, share, _ in linears(build_spec(file)))

    apart, joined = read_gguf(golden("qwen2").path), read_gguf(_joined("qwen2", tmp_path / "m.gguf", biases=True))
    assert read(joined) == pytest.approx(read(apart))


def test_what_is_read() -> None:
    file = header("qwen2", [NORM | DENSE, NORM | DENSE])
    for part in "qkv":
        del file.tensors[f"blk.1.attn_{part}.weight"]
    file.tensors |= {"blk.1.attn_qkv.weight": Tensor((E, WIDTH)), "blk.1.attn_k.bias": Tensor((KV * DIM,))}
    mixer = build_spec(file).blocks[1].mixer
    assert isinstance(mixer, Attention)
    assert [one.first for one in (mixer.q, mixer.k, mixer.v)] == [0, HEADS * DIM, (HEADS + KV) * DIM]
    assert (mixer.q.bias, mixer.k.bias, mixer.v.weight) == (None, "blk.1.attn_k.bias", "blk.1.attn_qkv.weight")
    file.tensors["blk.1.attn_qkv.weight"] = Tensor((E, WIDTH - 1))
    with pytest.raises(GgufError, match=r"attn_qkv\.weight has shape"):
        build_spec(file)
