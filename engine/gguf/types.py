"""The numbers that the GGUF format defines: value types of metadata and storage types of tensors, with their sizes."""

from __future__ import annotations

from typing import NamedTuple

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4
MAX_TENSOR_NAME_BYTES = 64

# Value types of metadata, as stored before each value.
UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)

VALUE_NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
VALUE_BYTES = {UINT8: 1, INT8: 1, UINT16: 2, INT16: 2, UINT32: 4, INT32: 4, FLOAT32: 4, BOOL: 1, UINT64: 8, INT64: 8, FLOAT64: 8}
STRUCT_CODES = {
    UINT8: "B",
    INT8: "b",
    UINT16: "H",
    INT16: "h",
    UINT32: "I",
    INT32: "i",
    FLOAT32: "f",
    BOOL: "?",
    UINT64: "Q",
    INT64: "q",
    FLOAT64: "d",
}
"""Value type -> code of `struct`, and of `array` for arrays of numbers."""


class TensorType(NamedTuple):
    """A storage type of tensors: `block` weights take `block_bytes` bytes, and a row holds whole blocks."""

    id: int
    name: str
    block: int
    block_bytes: int


TENSOR_TYPES: dict[int, TensorType] = {
    row[0]: TensorType(*row)
    for row in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
        (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    )
}
"""Every tensor type with a fixed layout, by its number in the file."""

TYPE_IDS: dict[str, int] = {row.name: row.id for row in TENSOR_TYPES.values()}

EXACT_TYPES = frozenset(
    ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0", "NVFP4", "Q1_0"),
)
"""Types that the kernels multiply as f32: exact, several times slower. Listed here too: headers are read without kernels."""

IK_LLAMA_IDS = frozenset((*range(97, 100), *range(133, 159), *range(202, 236), *range(335, 400)))
"""Numbers of the tensor types that ik_llama.cpp adds, plain and repacked: no other tool makes or runs them."""

IK_LLAMA_NAMES: dict[int, str] = {
    133: "Q6_0",
    134: "IQ1_BN",
    135: "IQ2_BN",
    137: "IQ2_K",
    138: "IQ3_K",
    139: "IQ4_K",
    140: "IQ5_K",
    141: "IQ6_K",
    144: "IQ4_KS",
    145: "IQ2_KS",
    146: "IQ4_KSS",
    151: "Q8_KV",
    152: "IQ5_KS",
    153: "IQ2_KT",
    154: "IQ3_KT",
    155: "IQ4_KT",
    156: "IQ3_KS",
    157: "IQ2_KL",
}
"""Names of those that people meet."""

FAST_TYPES = frozenset(
    (
        *("F32", "F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_0", "Q5_1", "Q4_K", "Q4_0", "Q4_1", "IQ4_XS", "IQ4_NL", "MXFP4"),
        *("Q3_K", "Q2_K"),
    )
)
"""Types with fast kernels. Types in neither set are stored in files but never multiplied."""

_FOUR_BITS = frozenset({"MXFP4", "NVFP4"})


def few_bits(type_name: str) -> int:
    """Bits of one stored weight, scales left out: 4 for Q4_K, which takes 4.5 with them. 16 for types that are not quantised."""
    if type_name in _FOUR_BITS:
        return 4
    digits = type_name.lstrip("ITQ").partition("_")[0]
    return int(digits) if type_name not in ("I8", "I16", "I32", "I64") and digits.isdigit() else 16
