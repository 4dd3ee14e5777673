"""What latent attention keeps in memory: rows of the cache, and derived weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.arch.registry import build_spec
from engine.arch.spec import Mla
from engine.cli.inspect import summarise
from engine.gguf.reader import read_gguf
from engine.placement.options import KV_TYPES, KvType
from engine.quants.quantise import quantise_q8_0
from engine.quants.reference import dequantise
from engine.runtime.derived import derived_infos, head_bytes
from engine.runtime.kv_cache import token_bytes
from engine.service.loaded import model_info
from tests.helpers.latent_models import Shape, latent_header, write_latent_model
from tests.helpers.runs import EXACT, open_model

Q8_0 = 8


@given(
    rank=st.integers(1, 600),
    half_rot=st.integers(1, 64),
    n_layers=st.integers(1, 5),
    n_heads=st.integers(1, 9),
    split=st.booleans(),
    kind=st.sampled_from(KV_TYPES),
    v_kind=st.sampled_from(KV_TYPES),
)
def test_a_token_takes_a_latent_row_a_layer(
    rank: int, half_rot: int, n_layers: int, n_heads: int, split: bool, kind: KvType, v_kind: KvType
) -> None:
    shape = Shape(n_heads=n_heads, rank=rank, n_rot=2 * half_rot, n_layers=n_layers)
    spec = build_spec(latent_header(shape, split=split))
    values = rank + 2 * half_rot
    row = {"f32": 4 * values, "f16": 2 * values, "q8_0": values + 2 * -(-values // 32), "int8": values + 2}[kind]
    assert token_bytes(spec, kind, v_kind) == (n_layers * row,)


def test_a_row_of_v3_is_576_values() -> None:
    spec = build_spec(latent_header(Shape(n_heads=2, rank=512, n_rot=64, n_layers=3)))
    assert [sum(token_bytes(spec, kind, "f16")) / 3 for kind in KV_TYPES] == [576 * 4, 576 * 2, 576 * 34 / 32, 576 + 2]


@pytest.mark.parametrize("split", [True, False], ids=["split", "legacy"])
@pytest.mark.parametrize(("quant", "bytes_each"), [("F16", 2), ("F32", 4), ("Q8_0", 34 / 32)])
def test_derived_weights_are_listed_and_counted(tmp_path: Path, split: bool, quant: str, bytes_each: float) -> None:
    path = write_latent_model(tmp_path / "m.gguf", Shape(nope=32, v_dim=32, rank=64), split=split, quant=quant)
    file = read_gguf(path)
    listed = summarise(file)["derived"]
    assert [one["tensor"] for one in listed] == [f"blk.{i}.attn_{'k_b' if split else 'kv_b'}.weight" for i in range(2)]
    n_in, n_out = (64, 32) if split else (32, 64)
    nbytes = 4 * n_in * n_out * bytes_each
    assert [(one["type"], one["shape"], one["bytes"]) for one in listed] == 2 * [(quant, [n_in, n_out, 4], nbytes)]
    assert model_info(file, build_spec(file), str(path)).derived_bytes == 2 * nbytes
    model = open_model(path, EXACT)
    assert model.placed is not None
    exact = derived_infos(model.spec, {name: one.type_id for name, one in file.tensors.items()}, f32=True)
    assert model.placed.derived.nbytes == sum(one.nbytes for one in exact)
    assert model.residency.nbytes("derived") >= model.placed.derived.nbytes
    model.close()


def test_exact_runs_derive_exact_weights() -> None:
    types = {f"blk.{i}.attn_kv_b.weight": Q8_0 for i in range(2)}
    even, odd = (build_spec(latent_header(Shape(nope=nope, rank=64), split=False)) for nope in (32, 20))
    assert {one.type_name for one in derived_infos(even, types, f32=True)} == {"F32"}
    assert {one.type_name for one in derived_infos(even, types)} == {"Q8_0"}
    assert {one.type_name for one in derived_infos(odd, types)} == {"F16"}


def test_decode_reads_the_derived_matrices_and_those_of_values() -> None:
    found = build_spec(latent_header(Shape(nope=32, v_dim=32, rank=64), split=False)).blocks[0].mixer
    assert isinstance(found, Mla)
    assert head_bytes(found.absorb, Q8_0) == 4 * 64 * 34 and head_bytes(found.v, Q8_0) == 4 * 32 * 68


@given(st.integers(0, 2**32 - 1), st.floats(1e-2, 1e4))
def test_q8_0_is_off_by_half_a_step(seed: int, size: float) -> None:
    values = (np.random.default_rng(seed).standard_normal((3, 64)) * size).astype(np.float32)
    values[1, :32] = 0.0
    back = dequantise("Q8_0", quantise_q8_0(values))
    step = np.abs(values.reshape(-1, 32)).max(axis=1, keepdims=True) / 127
    assert (np.abs(back - values).reshape(-1, 32) <= 0.6 * step).all()  # the scale itself is rounded
