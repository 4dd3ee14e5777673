"""Published models at their real shapes: their headers are understood, they have as many weights as their makers count, and their
caches are as large as their shapes say."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.arch.cache_groups import windows
from engine.arch.registry import build_spec, supported
from engine.estimate.cache import token_bytes
from engine.gguf.advice import warnings_of
from engine.gguf.groups import layer_counts
from engine.gguf.reader import read_gguf
from engine.tokenizer.template_rules import template_of
from engine.tokenizer.vocab import tokenizer_kind
from tests.helpers.published_headers import published_model
from tests.helpers.published_models import MODELS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("published")


def test_every_family_but_the_small_dense_ones_is_here() -> None:
    assert set(supported()) - {model.architecture for model in MODELS.values()} == {"qwen3", "qwen35"}


@pytest.mark.parametrize("name", MODELS)
def test_a_published_model_is_understood(folder: Path, name: str) -> None:
    model, path = MODELS[name], published_model(name, folder)
    file = read_gguf(path)
    spec = build_spec(file)
    assert sum(info.n_elements for info in file.tensors.values()) / 1e9 == pytest.approx(model.billions, rel=0.01)
    assert spec.n_layers == layer_counts(file)[0]
    assert dict(zip(windows(spec), token_bytes(spec, "f16", "f16"), strict=True))[None] == model.kv
    assert tokenizer_kind(file)[1] in (model.pre, "default")
    assert template_of(file) is not None
    assert not [one for one in warnings_of(file) if "MTP" not in one]
