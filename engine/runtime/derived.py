"""Weights that a file holds the wrong way round, made when it is loaded: the transposed matrices of latent attention."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.arch.spec import HeadMatrices
from engine.errors import Cancelled
from engine.estimate.derived import DerivedInfo, derived_format, derived_infos, derived_parts, head_bytes
from engine.quants.formats import QuantFormat
from engine.quants.quantise import quantise_q8_0
from engine.runtime.weights import Weights
from kernels_pyx.executor import AbortFlag

__all__ = [
    "DerivedInfo",
    "DerivedWeight",
    "DerivedWeights",
    "derive",
    "derived_format",
    "derived_infos",
    "derived_parts",
    "head_bytes",
]

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DerivedWeight:
    """Matrices [n_heads][n_out] rows of row_bytes bytes each, side by side at `address`."""

    address: int
    type_id: int
    row_bytes: int
    nbytes: int


def derive(weights: Weights, part: HeadMatrices, *, f32: bool) -> tuple[npt.NDArray[np.uint8], QuantFormat]:
    """The bytes of the matrices of all heads, side by side, and what they are stored as.

    Raises:
        UnsupportedModel, GgufError: see `Weights`.
    """
    source = weights.matrix(part.weight, part.n_out)
    form = derived_format(part, source.type_id, f32=f32)
    return _stored(_turned(part, weights.values(part.weight)), form), form


class DerivedWeights:
    """Keeps what it makes; addresses are valid as long as it lives."""

    def __init__(
        self,
        weights: Weights,
        parts: Iterable[HeadMatrices],
        abort: AbortFlag,
        *,
        f32: bool,
        beside: DerivedWeights | None = None,
    ) -> None:
        """Makes derived weights of `parts`. f32: see `derived_format`. beside: what it has already is shared with it.

        Raises:
            Cancelled: the flag was set. UnsupportedModel, GgufError: see `Weights`.
        """
        known = {} if beside is None else beside._made
        self._made: dict[HeadMatrices, tuple[npt.NDArray[np.uint8], DerivedWeight]] = {}
        for part in parts:
            if abort.is_set:
                raise Cancelled("loading was stopped")
            if part in known:
                self._made[part] = known[part]
                continue
            raw, form = derive(weights, part, f32=f32)
            self._made[part] = raw, DerivedWeight(raw.ctypes.data, form.ggml_id, form.row_bytes(part.n_in), raw.nbytes)

    def of(self, part: HeadMatrices) -> DerivedWeight:
        """What was made for `part`."""
        return self._made[part][1]

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(one.nbytes for _, one in self._made.values())


def _turned(part: HeadMatrices, values: F32) -> F32:
    """[n_heads, n_out, n_in] of a tensor that holds them transposed."""
    rows = values.reshape(-1, part.n_out)
    starts = part.first + part.step * np.arange(part.n_heads)
    found: F32 = np.ascontiguousarray(rows[starts[:, None] + np.arange(part.n_in)].transpose(0, 2, 1))
    return found


def _stored(values: F32, form: QuantFormat) -> npt.NDArray[np.uint8]:
    if form.name == "Q8_0":
        return quantise_q8_0(values).reshape(-1)
    if form.name == "BF16":  # the values come from BF16: their lower halves are zero
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(-1)
    return values.astype({"F32": np.float32, "F16": np.float16}[form.name]).view(np.uint8).reshape(-1)
