"""What kernels are measured by: random weights of each format, activations quantised in numpy, the error bound of a product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.quants.formats import BY_NAME, QuantFormat
from engine.quants.padding import PADDED

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

# Where the f16 scales of a block lie: the only bytes that random bits would make infinite or NaN.
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "MXFP4": (),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ1_S": (0,),
    "IQ1_M": (),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "NVFP4": (),
    "Q1_0": (0,),
}


def random_weights(name: str, n: int, k: int, rng: np.random.Generator) -> U8:
    """n rows of k values as stored: [n, row_bytes] uint8, every bit random but for finite scales."""
    fmt = BY_NAME[name]
    if fmt.is_float:
        return _random_floats(fmt, n, k, rng)
    blocks = rng.integers(0, 256, (n * (k // fmt.block), fmt.type_size), dtype=np.uint8)
    if name == "MXFP4":  # the scale is a power of two
        blocks[:, 0] = rng.integers(118, 130, len(blocks))
    if name == "IQ1_M":  # the top bits of its scattered f16 scale
        blocks[:, 55] &= 0xBF
    for at in HALVES[name]:
        halves = rng.normal(0, 0.02, (len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(n, fmt.row_bytes(k))


def _random_floats(fmt: QuantFormat, n: int, k: int, rng: np.random.Generator) -> U8:
    values = rng.normal(0, 1, (n, k)).astype(np.float32)
    if fmt.name == "F16":
        return values.astype(np.float16).view(np.uint8)
    if fmt.name == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return values.view(np.uint8)


@dataclass(frozen=True, slots=True)
class QuantisedActivation:
    """What a quantised row stands for: integers and one scale for each `block` of them."""

    q: npt.NDArray[np.int8]
    d: F32

    def values(self) -> F64:
        """The row as f64: [k]."""
        return self.q.astype(np.float64) * np.repeat(self.d.astype(np.float64), len(self.q) // len(self.d))


def quantise_activation(x: F32, block: int) -> QuantisedActivation:
    """x [k] f32 in blocks: scale max|x| / 127, values rounded to nearest even, as the kernels define it."""
    rows = x.reshape(-1, block)
    top = np.abs(rows).max(axis=1)
    is_zero = top < np.float32(1e-35)
    factor = np.where(is_zero, np.float32(0), np.float32(127) / np.where(is_zero, np.float32(1), top)).astype(np.float32)
    q = np.rint(rows * factor[:, None]).astype(np.int8)
    return QuantisedActivation(q.reshape(-1), np.where(is_zero, np.float32(0), top / np.float32(127)).astype(np.float32))


def dot_bound(weights: F64, x: F64) -> F64:
    """The allowed error of y = weights x in f32: [n] for weights [n, k], x [k].

    A sum of k terms in any order errs by at most k * 2^-24 of the sum of their magnitudes; blocked sums stay below the square
    root of that, so this is tight enough to catch one lost value. Formats may be computed with an offset (d * unsigned q + m),
    whose terms are as large as the largest weight of their group: hence the maximum over 32 in place of each weight.
    """
    k = weights.shape[-1]
    group = 32 if k % 32 == 0 else k
    top = np.repeat(np.abs(weights).reshape(-1, k // group, group).max(axis=2), group, axis=1)
    bound: F64 = 4 * 2.0**-24 * (4 + np.sqrt(k)) * (top @ np.abs(x)) + 1e-30
    return bound


def aligned(n_bytes: int, *, offset: int = 0) -> U8:
    """A zeroed uint8 array that begins `offset` bytes after a multiple of 64."""
    raw = np.zeros(n_bytes + 64 + offset, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + n_bytes]


def file_format(name: str) -> str:
    """The format of the file whose blocks a format of the GPU holds."""
    return name.removesuffix("_PADDED")


def as_stored(name: str, raw: U8) -> U8:
    """Blocks of a file, [.., n] bytes, as `name` has them on a GPU; 255 where it has room between them."""
    if name == file_format(name):
        return raw
    stored, padded = PADDED[file_format(name)]
    made = np.full((*raw.shape[:-1], raw.shape[-1] // stored, padded), 255, np.uint8)
    made[..., :stored] = raw.reshape(*raw.shape[:-1], -1, stored)
    return made.reshape(*raw.shape[:-1], -1)
