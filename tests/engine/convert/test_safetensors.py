"""Reading checkpoints: types, parts, rows, and files that are damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from engine.convert.safetensors import Checkpoint
from engine.errors import ConversionError
from tests.helpers.checkpoints import write_llama, write_safetensors

RNG = np.random.default_rng(1)


def test_all_types_come_back_as_f32(tmp_path: Path) -> None:
    exact = RNG.integers(-8, 8, (3, 5)).astype("f4")
    stored = {
        "f64": exact.astype("f8"),
        "f32": exact,
        "f16": exact.astype("f2"),
        "bf16": (exact.view("u4") >> 16).astype("u2"),
        "i32": exact.astype("i4"),
        "scalar": np.array(2.5, "f4"),
    }
    write_safetensors(tmp_path / "a.safetensors", stored, {"bf16": "BF16"})
    checkpoint = Checkpoint(tmp_path)
    for name in ("f64", "f32", "f16", "bf16", "i32"):
        np.testing.assert_array_equal(checkpoint.read(name), exact)
        np.testing.assert_array_equal(checkpoint.read(name, 1, 3), exact[1:3])
    assert checkpoint.read("scalar") == 2.5
    assert "f64" in checkpoint and "other" not in checkpoint


def test_eight_bit_weights_are_scaled_by_blocks(tmp_path: Path) -> None:
    codes = np.array([0x00, 0x01, 0x38, 0x3C, 0x7E, 0xB8, 0xFE, 0x08], "u1")
    values = np.array([0, 2.0**-9, 1, 1.5, 448, -1, -448, 2.0**-6])
    weights = np.resize(codes, (200, 136))
    scales = RNG.uniform(0.5, 2, (2, 2)).astype("f4")
    write_safetensors(tmp_path / "a.safetensors", {"w": weights, "w_scale_inv": scales}, {"w": "F8_E4M3"})
    expected = np.resize(values, (200, 136)) * np.repeat(np.repeat(scales, 128, 0)[:200], 128, 1)[:, :136]
    checkpoint = Checkpoint(tmp_path)
    np.testing.assert_allclose(checkpoint.read("w"), expected, rtol=1e-6)
    np.testing.assert_allclose(checkpoint.read("w", 120, 140), expected[120:140], rtol=1e-6)


def test_parts_are_one_checkpoint(tmp_path: Path) -> None:
    tensors = write_llama(tmp_path, parts=3)
    checkpoint = Checkpoint(tmp_path)
    assert set(checkpoint.entries) == set(tensors)
    np.testing.assert_array_equal(checkpoint.read("lm_head.weight"), tensors["lm_head.weight"])


def test_missing_part_is_named(tmp_path: Path) -> None:
    write_llama(tmp_path, parts=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ConversionError, match=r"1 parts of the model are missing \(model-00002-of-00003.safetensors\)"):
        Checkpoint(tmp_path)


def test_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        write_safetensors(tmp_path / f"{name}.safetensors", {"w": np.zeros(4, "f4")})
    with pytest.raises(ConversionError, match=r"b.safetensors: tensor w is already in a.safetensors"):
        Checkpoint(tmp_path)


def test_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"no \*\.safetensors files are here"):
        Checkpoint(tmp_path)


def header(row: object) -> bytes:
    text = json.dumps(row).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\1\2\3",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 4) + b"{{}}",
        header([1, 2]),
        header({"w": {"dtype": "F32", "shape": [4]}}),
        header({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}),
        header({"w": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}}) + bytes(16),
        header({"w": {"dtype": "F32", "shape": [5], "data_offsets": [0, 16]}}) + bytes(16),
    ],
)
def test_damaged_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(ConversionError, match=r"a.safetensors: the file is damaged or was cut short"):
        Checkpoint(tmp_path)


def test_unknown_type_is_named(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", {"w": np.zeros(4, "u1")}, {"w": "F4"})
    with pytest.raises(ConversionError, match="tensor w is of type F4; converted are F64, F32"):
        Checkpoint(tmp_path)
