"""Format rows: sizes, lookups and row arithmetic."""

from __future__ import annotations

import pytest

from engine.gguf.types import EXACT_TYPES, FAST_TYPES, TENSOR_TYPES
from engine.quants.formats import BY_ID, BY_NAME, FORMATS


def test_rows_are_found_by_name_and_by_id() -> None:
    assert all(BY_NAME[fmt.name] is fmt and BY_ID[fmt.ggml_id] is fmt for fmt in FORMATS)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("F32", 32), ("F16", 16), ("BF16", 16), ("Q8_0", 8.5), ("Q4_0", 4.5), ("Q4_1", 5), ("Q4_K", 4.5), ("Q6_K", 6.5625)],
)
def test_bits_per_weight_count_the_scales(name: str, bits: float) -> None:
    assert BY_NAME[name].bits_per_weight == bits


def test_float_and_exact_formats_take_f32_activations() -> None:
    assert {fmt.name for fmt in FORMATS if fmt.is_float} == {"F32", "F16", "BF16"}
    assert {fmt.name for fmt in FORMATS if fmt.is_float or fmt.path == "exact"} == {
        fmt.name for fmt in FORMATS if fmt.act == "f32"
    }


def test_common_formats_are_fast_and_rare_ones_exact() -> None:
    paths = {fmt.name: fmt.path for fmt in FORMATS}
    assert [paths[name] for name in ("Q4_K", "Q6_K", "Q8_0", "IQ4_XS", "MXFP4")] == ["fast"] * 5
    assert {name for name, path in paths.items() if path == "exact"} == EXACT_TYPES
    assert {name for name, path in paths.items() if path == "fast"} == FAST_TYPES


def test_sizes_are_those_of_the_file_format() -> None:
    assert all(TENSOR_TYPES[fmt.ggml_id] == (fmt.ggml_id, fmt.name, fmt.block, fmt.type_size) for fmt in FORMATS)


def test_row_bytes_of_whole_blocks() -> None:
    assert BY_NAME["Q4_1"].row_bytes(576) == 360


def test_row_of_a_partial_block_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Q4_K row has a multiple of 256 values, not 576"):
        BY_NAME["Q4_K"].row_bytes(576)
