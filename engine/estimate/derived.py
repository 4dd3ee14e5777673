"""Weights that loading a model makes beside those of its file, before it makes them: what they are stored as, and their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.arch.spec import HeadMatrices, Mla, ModelSpec
from engine.quants.formats import BY_ID, BY_NAME, QuantFormat


@dataclass(frozen=True, slots=True)
class DerivedInfo:
    """A derived weight as `inspect` lists it: made of `tensor`, shape with ne0 first."""

    tensor: str
    type_name: str
    shape: tuple[int, int, int]
    nbytes: int


def derived_format(part: HeadMatrices, source_type: int, *, f32: bool) -> QuantFormat:
    """What a derived weight is stored as: numbers stay what they are, blocks of the file cannot be turned and become Q8_0.

    f32: as exact as the file. Rows that are no whole blocks of Q8_0 become F16.
    """
    source = BY_ID[source_type]
    if source.is_float:
        return source
    if f32:
        return BY_NAME["F32"]
    return BY_NAME["Q8_0" if part.n_in % BY_NAME["Q8_0"].block == 0 else "F16"]


def derived_parts(spec: ModelSpec) -> tuple[HeadMatrices, ...]:
    """What a model's file holds the wrong way round."""
    return tuple(part for block in spec.blocks if isinstance(block.mixer, Mla) for part in block.mixer.derived)


def derived_infos(spec: ModelSpec, types: Mapping[str, int], *, f32: bool = False) -> tuple[DerivedInfo, ...]:
    """Every weight that loading the model makes. types: ggml type id of each tensor."""
    return tuple(derived_info(part, types[part.weight], f32=f32) for part in derived_parts(spec))


def derived_info(part: HeadMatrices, source_type: int, *, f32: bool) -> DerivedInfo:
    """What is made for one part of a tensor of this type."""
    form = derived_format(part, source_type, f32=f32)
    nbytes = part.n_heads * part.n_out * form.row_bytes(part.n_in)
    return DerivedInfo(part.weight, form.name, (part.n_in, part.n_out, part.n_heads), nbytes)


def head_bytes(part: HeadMatrices, source_type: int) -> int:
    """Bytes of the matrices of all heads as decode reads them."""
    form = derived_format(part, source_type, f32=False) if part.transposed else BY_ID[source_type]
    return part.n_heads * part.n_out * form.row_bytes(part.n_in)
