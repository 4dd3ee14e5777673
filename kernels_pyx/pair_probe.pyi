import numpy as np
import numpy.typing as npt

type_f32 = npt.NDArray[np.float32]
type_u16 = npt.NDArray[np.uint16]
type_i8 = npt.NDArray[np.int8]
type_i16 = npt.NDArray[np.int16]
type_i32 = npt.NDArray[np.int32]

def keys(isa: str, x32: type_f32 | None, x16: type_u16 | None, y: type_i16, zipped: type_i16 | None, scale: type_f32) -> None: ...
def cached(
    isa: str,
    x: type_i8,
    scales: type_u16,
    group: int,
    token: int,
    factors: type_i16,
    y: type_i16,
    zipped: type_i16,
    scale: type_f32,
) -> None: ...
def cross(isa: str, x: type_i32, y: type_i32) -> None: ...
def dot(
    isa: str, keys: type_i16, key_scale: type_f32, queries: type_i16, query_scale: type_f32, out: type_f32, add: bool
) -> None: ...
def largest(isa: str, x: type_u16, top: type_f32) -> None: ...
def dot_beside(
    isa: str,
    keys: type_i16,
    key_scale: type_f32,
    queries: type_i16,
    query_scale: type_f32,
    out: type_f32,
    halves: type_u16 | None,
    factor: type_f32 | None,
    cached: type_i8 | None,
    factors: type_i16 | None,
    y: type_i16,
    zipped: type_i16,
) -> None: ...
def weigh(
    isa: str, scores: type_f32, valid: type_i32, ratio: type_f32, weights: type_i16, top: type_f32, total: type_f32
) -> None: ...
def add_sums(isa: str, weights: type_i16, rows: type_i16, keep: type_f32, gain: type_f32, sums: type_f32) -> None: ...
