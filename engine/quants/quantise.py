"""f32 values to a stored format, in numpy: for weights that are made when a model is loaded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]


def quantise_q8_0(values: F32) -> npt.NDArray[np.uint8]:
    """[..., n] f32, n a multiple of 32, to Q8_0: [..., n / 32 * 34] uint8; x ~ d * q with q in -127..127.

    Values are divided by the scale as it is stored, rounded to f16: half a step of error, not more.
    """
    groups = values.reshape(-1, 32)
    scale = (np.abs(groups).max(axis=1, keepdims=True) / np.float32(127)).astype(np.float16)
    factor = np.divide(1.0, scale, where=scale > 0, out=np.zeros(scale.shape, np.float32), dtype=np.float32)
    quants = np.clip(np.rint(groups * factor), -127, 127).astype(np.int8)
    stored = np.concatenate((scale.view(np.uint8).reshape(-1, 2), quants.view(np.uint8)), axis=1)
    return stored.reshape(*values.shape[:-1], values.shape[-1] // 32 * 34)
