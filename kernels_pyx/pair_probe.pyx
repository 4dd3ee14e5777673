# cython: boundscheck=False, wraparound=False
"""Calls one kernel of latent attention in 16-bit integers, see c/pairs.h: for tests and benches only. Sizes are checked here."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t

from kernels_pyx.dispatch cimport ld_isa, ld_pair_kernels, ld_pair_next, ld_table, table_for
from kernels_pyx.isas import ISAS


cdef extern from "pairs.h":
    pass


cdef const ld_pair_kernels *_pairs(str isa) except NULL:
    cdef const ld_table *table = table_for(<ld_isa><int>ISAS.index(isa))
    if table == NULL:
        raise ValueError(f"this machine has no {isa}")
    return table.pairs


cdef int _need(str what, Py_ssize_t have, Py_ssize_t need) except -1:
    if have < need:
        raise ValueError(f"{what}: {have} given, {need} needed")
    return 0


def keys(
    str isa, const float[:, ::1] x32, const uint16_t[:, ::1] x16, int16_t[:, ::1] y, int16_t[::1] zipped, float[::1] scale
) -> None:
    """y[2] = the two rows x32, or x16 (bits of f16), as integers with a scale each, and zipped (None: not); columns by 32."""
    cdef const float *rows32[2]
    cdef const uint16_t *rows16[2]
    cdef int16_t *to[2]
    cdef int16_t *zipped_at = NULL
    cdef int64_t n = y.shape[1]
    if n % 32:
        raise ValueError(f"{n} values")
    _need("rows of y", y.shape[0], 2)
    _need("scale", scale.shape[0], 2)
    if zipped is not None:
        _need("zipped", zipped.shape[0], 2 * n)
        zipped_at = &zipped[0]
    for j in range(2):
        to[j] = &y[j, 0]
    if x32 is not None:
        _need("rows of x", x32.shape[0], 2)
        _need("x", x32.shape[1], n)
        for j in range(2):
            rows32[j] = &x32[j, 0]
        _pairs(isa).keys_f32(rows32, to, zipped_at, &scale[0], n)
    else:
        _need("rows of x", x16.shape[0], 2)
        _need("x", x16.shape[1], n)
        for j in range(2):
            rows16[j] = &x16[j, 0]
        _pairs(isa).keys_f16(rows16, to, zipped_at, &scale[0], n)


def cached(
    str isa, const int8_t[:, ::1] x, const uint16_t[:, ::1] scales, int64_t group, int64_t token, int16_t[::1] factors,
    int16_t[:, ::1] y, int16_t[::1] zipped, float[::1] scale
) -> None:
    """y[2] = the two cached rows x of tokens `token` and the next of a block; scales: f16 bits [groups][32].

    factors, scale: of all 32 tokens.
    """
    cdef const int8_t *rows[2]
    cdef int16_t *to[2]
    cdef int64_t n = y.shape[1], groups = (n + group - 1) // group
    if n % 32 or group % 32 or not 0 <= token < 31:
        raise ValueError(f"{n} values, groups of {group}, token {token}")
    _need("rows of x", x.shape[0], 2)
    _need("x", x.shape[1], n)
    _need("rows of y", y.shape[0], 2)
    _need("zipped", zipped.shape[0], 2 * n)
    _need("scale", scale.shape[0], 32)
    _need("groups", scales.shape[0], groups)
    _need("scales", scales.shape[1], 32)
    _need("factors", factors.shape[0], 32 * groups)
    for j in range(2):
        rows[j] = &x[j, 0]
        to[j] = &y[j, 0]
    _pairs(isa).factors(&scales[0, 0], groups, &factors[0], &scale[0])
    _pairs(isa).keys_i8(rows, &factors[token], group, to, &zipped[0], n)


def cross(str isa, const int32_t[:, ::1] x, int32_t[:, ::1] y) -> None:
    """y = x transposed; rows and columns by 16."""
    if x.shape[0] % 16 or x.shape[1] % 16:
        raise ValueError(f"{x.shape[0]} rows of {x.shape[1]} words")
    _need("rows of y", y.shape[0], x.shape[1])
    _need("y", y.shape[1], x.shape[0])
    _pairs(isa).cross(&x[0, 0], x.shape[1], &y[0, 0], y.shape[1], x.shape[0], x.shape[1])


def dot(
    str isa, const int16_t[:, ::1] keys, const float[::1] key_scale, const int16_t[:, :, ::1] queries, const float[::1] query_scale,
    float[:, ::1] out, bint add
) -> None:
    """out[keys][m] = (or +=) scaled products of keys [keys][n] with queries [n / 2][m][2]; m by 16."""
    cdef int64_t m = queries.shape[1]
    if m % 16 or queries.shape[2] != 2 or keys.shape[1] % 2:
        raise ValueError(f"{m} queries")
    _need("queries", queries.shape[0], keys.shape[1] // 2)
    _need("key_scale", key_scale.shape[0], keys.shape[0])
    _need("query_scale", query_scale.shape[0], m)
    _need("out", out.shape[0], keys.shape[0])
    if out.shape[1] != m:
        raise ValueError("out has other columns")
    _pairs(isa).dot(&keys[0, 0], keys.shape[1], &key_scale[0], keys.shape[0], &queries[0, 0, 0], &query_scale[0], m,
                          keys.shape[1], &out[0, 0], add)


def largest(str isa, const uint16_t[:, ::1] x, float[::1] top) -> None:
    """top[16] = the largest magnitudes of the rows x, bits of f16; columns by 32."""
    if x.shape[0] != 16 or x.shape[1] % 32:
        raise ValueError(f"{x.shape[0]} rows of {x.shape[1]} values")
    _need("top", top.shape[0], 16)
    _pairs(isa).largest(&x[0, 0], x.shape[1], x.shape[1], &top[0])


def dot_beside(
    str isa, const int16_t[:, ::1] keys, const float[::1] key_scale, const int16_t[:, :, ::1] queries, const float[::1] query_scale,
    float[:, ::1] out, const uint16_t[:, ::1] halves, const float[::1] factor, const int8_t[:, ::1] cached,
    const int16_t[:, ::1] factors, int16_t[:, ::1] y, int16_t[:, ::1] zipped
) -> None:
    """`dot` of 16 keys; meanwhile y[16] = rows of integers, and zipped[8] of each two.

    Made of halves (bits of f16) times their factors, or of cached bytes with factors [groups of 32 values, or one][32].
    """
    cdef int64_t m = queries.shape[1], n = keys.shape[1]
    cdef ld_pair_next after
    if m % 16 or queries.shape[2] != 2 or n % 32 or keys.shape[0] != 16 or out.shape[1] != m:
        raise ValueError(f"{keys.shape[0]} keys of {n} values, {m} queries")
    _need("queries", queries.shape[0], n // 2)
    _need("key_scale", key_scale.shape[0], 16)
    _need("query_scale", query_scale.shape[0], m)
    _need("out", out.shape[0], 16)
    _need("rows of y", y.shape[0], 16)
    _need("y", y.shape[1], n)
    _need("rows of zipped", zipped.shape[0], 8)
    _need("zipped", zipped.shape[1], 2 * n)
    after.halves, after.factor, after.bytes, after.factors, after.one_group = NULL, NULL, NULL, NULL, 0
    if halves is not None:
        _need("rows of halves", halves.shape[0], 16)
        _need("halves", halves.shape[1], n)
        _need("factor", factor.shape[0], 16)
        after.halves, after.factor, after.x_stride = &halves[0, 0], &factor[0], halves.shape[1]
    else:
        after.one_group = factors.shape[0] == 1
        _need("rows of cached", cached.shape[0], 16)
        _need("cached", cached.shape[1], n)
        _need("factors", factors.shape[0], 1 if after.one_group else n // 32)
        _need("tokens of factors", factors.shape[1], 32)
        after.bytes, after.factors, after.x_stride = &cached[0, 0], &factors[0, 0], cached.shape[1]
    after.ask = <const uint8_t *>&keys[0, 0]
    after.y, after.zipped, after.y_stride, after.zipped_stride = &y[0, 0], &zipped[0, 0], y.shape[1], zipped.shape[1]
    _pairs(isa).dot_beside(&keys[0, 0], n, &key_scale[0], &queries[0, 0, 0], &query_scale[0], m, n, &out[0, 0], &after)


def weigh(
    str isa, const float[:, ::1] scores, const int32_t[::1] valid, const float[::1] ratio, int16_t[:, :, ::1] weights, float[::1] top,
    float[::1] total
) -> None:
    """weights [(keys + 1) / 2][m][2] of scores [keys][m]; m by 16, valid at most the keys."""
    cdef int64_t n = scores.shape[0], m = scores.shape[1]
    if m % 16 or weights.shape[1] != m or weights.shape[2] != 2:
        raise ValueError(f"{m} queries")
    _need("weights", weights.shape[0], (n + 1) // 2)
    _need("valid", valid.shape[0], m)
    _need("ratio", ratio.shape[0], n)
    _need("top", top.shape[0], m)
    _need("total", total.shape[0], m)
    _pairs(isa).weigh(&scores[0, 0], n, m, &valid[0], &ratio[0], &weights[0, 0, 0], &top[0], &total[0])


def add_sums(
    str isa, const int16_t[:, :, ::1] weights, const int16_t[:, ::1] rows, const float[::1] keep, const float[::1] gain,
    float[:, ::1] sums
) -> None:
    """sums[n][m] = sums * keep + gain * products of weights [pairs][m][2] with zipped rows [pairs][at least 2 n]."""
    cdef int64_t m = weights.shape[1], n = sums.shape[0]
    if m % 16 or weights.shape[2] != 2 or sums.shape[1] != m:
        raise ValueError(f"{m} queries")
    _need("rows", rows.shape[0], weights.shape[0])
    _need("values of rows", rows.shape[1], 2 * n)
    _need("keep", keep.shape[0], m)
    _need("gain", gain.shape[0], m)
    _pairs(isa).sum(&weights[0, 0, 0], m, &rows[0, 0], rows.shape[1], weights.shape[0], &keep[0], &gain[0], &sums[0, 0], n)
