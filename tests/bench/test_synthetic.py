"""Synthetic models are read and computed like real ones, their activations stay near 1, and routing is diverse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.arch.registry import build_spec
from engine.gguf.reader import read_gguf
from engine.placement.options import LoadOptions
from engine.tokenizer.build import Tokenizer
from engine.tokenizer.vocab import Vocab
from tests.bench import synthetic
from tests.helpers.golden_models import batch
from tests.helpers.runs import open_model


@pytest.mark.parametrize("kind", synthetic.SHAPES)
def test_a_small_one_of_each_kind(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = synthetic.SHAPES[kind]
    small = replace(
        usual, embd=256, ff=512, heads=4, kv_heads=min(2, usual.kv_heads), vocab=512, expert_ff=usual.expert_ff and 256
    )
    monkeypatch.setitem(synthetic.SHAPES, kind, small)
    monkeypatch.setattr(synthetic, "POOL_BYTES", 1 << 20)
    monkeypatch.setattr(synthetic, "WRITE_BYTES", 1 << 16)
    path = tmp_path / "model.gguf"
    nbytes = synthetic.write_synthetic(kind, path, layers=3)
    file = read_gguf(path)
    assert sum(tensor.nbytes for tensor in file.tensors.values()) == nbytes <= path.stat().st_size
    assert build_spec(file).n_layers == 3
    assert file.metadata["tokenizer.ggml.model"] == "none"  # llama.cpp refuses a file that does not say
    model = open_model(path, LoadOptions(n_threads=1, n_ctx=64))
    logits = model.step(batch(list(range(0, 512, 16))))
    model.close()
    assert 0.2 < logits.std() < 5
    assert len(np.unique(logits.argmax(axis=1))) > 8


def test_one_that_answers_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(synthetic.SHAPES["qwen3-8b"], embd=256, ff=512, heads=4, kv_heads=2, vocab=512)
    monkeypatch.setitem(synthetic.SHAPES, "qwen3-8b", small)
    monkeypatch.setattr(synthetic, "POOL_BYTES", 1 << 20)
    path = tmp_path / "model.gguf"
    synthetic.write_synthetic("qwen3-8b", path, layers=2, words=True)
    tokenizer = Tokenizer(Vocab.from_gguf(read_gguf(path)))
    assert tokenizer.decode(tokenizer.encode("Count: 1", special=False, bos=True)) == b"Count: 1"
