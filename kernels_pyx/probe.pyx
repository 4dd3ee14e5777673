# cython: boundscheck=False, wraparound=False
"""Calls one kernel of one instruction set: for tests and benches only.

Buffers are the caller's, so that tests choose alignment and look at guard bytes; sizes are checked here, as the program does it.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int64_t, uint8_t, uint16_t, uintptr_t

from kernels_pyx.dispatch cimport (
    ld_act_row_bytes, ld_act_scales_at, ld_act_sums_at, ld_format_block, ld_format_kernels, ld_isa, ld_many_scratch_bytes,
    ld_row_bytes, ld_table, ld_vec_kernels, table_for,
)
from kernels_pyx.formats cimport LD_ACT_F32, ld_act
from kernels_pyx.formats import ACTS
from kernels_pyx.isas import ISAS


cdef extern from *:
    """
    #if defined(__x86_64__)
    #include <immintrin.h>
    #endif
    #include <stdint.h>
    #include <stddef.h>
    #define LD_UNROLL _Pragma("GCC unroll 16")
    // Reads n bytes (a multiple of 256) once: the bandwidth that a kernel can hope for.
    #if defined(__x86_64__)
    __attribute__((target("avx2"))) static uint64_t ld_read_probe(const uint8_t *p, size_t n) {
        __m256i sum[8];
        LD_UNROLL for (int i = 0; i < 8; i++) sum[i] = _mm256_setzero_si256();
        for (size_t at = 0; at < n; at += 256)
            LD_UNROLL for (int i = 0; i < 8; i++)
                sum[i] = _mm256_add_epi64(sum[i], _mm256_loadu_si256((const __m256i *)(p + at + 32 * i)));
        LD_UNROLL for (int i = 1; i < 8; i++) sum[0] = _mm256_add_epi64(sum[0], sum[i]);
        return (uint64_t)_mm256_extract_epi64(sum[0], 0) + (uint64_t)_mm256_extract_epi64(sum[0], 2);
    }
    // n times 12 independent vpdpbusd of 64 bytes: 2 * 64 * 12 operations each.
    __attribute__((target("avx512f,avx512vnni"))) static int ld_vnni_probe(int64_t n) {
        __m512i a[12], x = _mm512_set1_epi8(1);
        LD_UNROLL for (int i = 0; i < 12; i++) a[i] = _mm512_setzero_si512();
        for (int64_t j = 0; j < n; j++)
            __asm__ volatile(
                "vpdpbusd %12, %12, %0\\n vpdpbusd %12, %12, %1\\n vpdpbusd %12, %12, %2\\n vpdpbusd %12, %12, %3\\n"
                "vpdpbusd %12, %12, %4\\n vpdpbusd %12, %12, %5\\n vpdpbusd %12, %12, %6\\n vpdpbusd %12, %12, %7\\n"
                "vpdpbusd %12, %12, %8\\n vpdpbusd %12, %12, %9\\n vpdpbusd %12, %12, %10\\n vpdpbusd %12, %12, %11\\n"
                : "+v"(a[0]), "+v"(a[1]), "+v"(a[2]), "+v"(a[3]), "+v"(a[4]), "+v"(a[5]), "+v"(a[6]), "+v"(a[7]), "+v"(a[8]),
                  "+v"(a[9]), "+v"(a[10]), "+v"(a[11])
                : "v"(x));
        LD_UNROLL for (int i = 1; i < 12; i++) a[0] = _mm512_add_epi32(a[0], a[i]);
        return _mm512_reduce_add_epi32(a[0]);
    }
    // The same with vpmaddubsw and vpaddw: 2 * 32 * 6 operations each.
    __attribute__((target("avx2"))) static int ld_maddubs_probe(int64_t n) {
        __m256i a[6], x = _mm256_set1_epi8(1);
        LD_UNROLL for (int i = 0; i < 6; i++) a[i] = _mm256_setzero_si256();
        for (int64_t j = 0; j < n; j++)
            LD_UNROLL for (int i = 0; i < 6; i++) {
                __m256i t;
                __asm__ volatile("vpmaddubsw %2, %2, %0\\n vpaddw %0, %1, %1" : "=&x"(t), "+x"(a[i]) : "x"(x));
            }
        LD_UNROLL for (int i = 1; i < 6; i++) a[0] = _mm256_add_epi16(a[0], a[i]);
        return _mm256_extract_epi16(a[0], 0);
    }
    #else
    static uint64_t ld_read_probe(const uint8_t *p, size_t n) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++) sum += p[i];
        return sum;
    }
    static int ld_vnni_probe(int64_t n) { return (int)n; }
    static int ld_maddubs_probe(int64_t n) { return (int)n; }
    #endif
    """
    unsigned long long ld_read_probe(const uint8_t *p, size_t n) noexcept nogil
    int ld_vnni_probe(int64_t n) noexcept nogil
    int ld_maddubs_probe(int64_t n) noexcept nogil


cdef extern from "words.h":
    pass


VNNI_PROBE_OPS = 2 * 64 * 12
MADDUBS_PROBE_OPS = 2 * 32 * 6


cdef const ld_table *_table(str isa) except NULL:
    cdef const ld_table *table = table_for(<ld_isa><int>ISAS.index(isa))
    if table == NULL:
        raise ValueError(f"this machine has no {isa}")
    return table


cdef const ld_format_kernels *_kernels(str isa, int ggml_id) except NULL:
    cdef const ld_table *table = _table(isa)
    if not 0 <= ggml_id < table.n_formats or table.formats[ggml_id].to_f32 == NULL:
        raise ValueError(f"no kernels for ggml type {ggml_id}")
    return &table.formats[ggml_id]


cdef int _need(str what, Py_ssize_t have, Py_ssize_t need) except -1:
    if have < need:
        raise ValueError(f"{what}: {have} given, {need} needed")
    return 0


def row_bytes(ggml_id: int, k: int) -> int:
    """Bytes of a weight row of k values."""
    return ld_row_bytes(ggml_id, k)


def act_row_bytes(act: str, k: int) -> int:
    """Bytes of an activation row of k values."""
    return ld_act_row_bytes(<ld_act><int>ACTS.index(act), k)


def act_parts(act: str, k: int) -> tuple[int, int]:
    """Offsets of the scales and of the sums in a quantised activation row."""
    return ld_act_scales_at(k), ld_act_sums_at(<ld_act><int>ACTS.index(act), k)


def many_scratch_bytes(k: int) -> int:
    """Scratch that `many` needs."""
    return ld_many_scratch_bytes(k)


def to_f32(str isa, int ggml_id, const uint8_t[::1] w, float[::1] y, int64_t k) -> None:
    """y = the k values of row w."""
    cdef const ld_format_kernels *kernels = _kernels(isa, ggml_id)
    _need("w", w.shape[0], ld_row_bytes(ggml_id, k))
    _need("y", y.shape[0], k)
    with nogil:
        kernels.to_f32(&w[0], &y[0], k)


def quantize(str isa, str act, const float[::1] x, uint8_t[::1] out, int64_t k) -> None:
    """The activation row of k values; `out` must be 64-byte aligned."""
    cdef const ld_table *table = _table(isa)
    cdef int layout = ACTS.index(act)
    _need("x", x.shape[0], k)
    _need("out", out.shape[0], ld_act_row_bytes(<ld_act>layout, k))
    with nogil:
        table.quantize[layout](&x[0], &out[0], k)


def linear(
    str isa, int ggml_id, const uint8_t[::1] w, size_t w_stride, const uint8_t[::1] act, size_t act_stride, int64_t n_act,
    float[::1] y, size_t y_stride, int64_t k, int64_t n, uint8_t[::1] scratch=None, bint f32=False,
) -> None:
    """y = W x: `few` without scratch, `many` with it; f32: the kernels for f32 activations."""
    cdef const ld_format_kernels *kernels = _kernels(isa, ggml_id)
    cdef ld_act layout = LD_ACT_F32 if f32 else kernels.act
    cdef bint is_many = scratch is not None
    cdef uint8_t *scratch_at = NULL
    if k % ld_format_block(ggml_id) or n < 1 or n_act < 1 or (n_act > 8 and not is_many):
        raise ValueError(f"k {k}, n {n}, n_act {n_act}")
    _need("w", w.shape[0], (n - 1) * w_stride + ld_row_bytes(ggml_id, k))
    _need("act", act.shape[0], (n_act - 1) * act_stride + ld_act_row_bytes(layout, k))
    _need("y", y.shape[0], (n_act - 1) * y_stride + n)
    if <uintptr_t>&act[0] % 64 or act_stride % 64:
        raise ValueError("activation rows must be 64-byte aligned")
    if is_many:
        _need("scratch", scratch.shape[0], ld_many_scratch_bytes(k))
        scratch_at = &scratch[0]
        if <uintptr_t>scratch_at % 64:
            raise ValueError("scratch must be 64-byte aligned")
    with nogil:
        _call(kernels, f32, is_many, &w[0], w_stride, &act[0], act_stride, n_act, &y[0], y_stride, k, n, scratch_at)


cdef void _call(
    const ld_format_kernels *kernels, bint f32, bint is_many, const uint8_t *w, size_t w_stride, const uint8_t *act,
    size_t act_stride, int64_t n_act, float *y, size_t y_stride, int64_t k, int64_t n, uint8_t *scratch,
) noexcept nogil:
    if is_many:
        (kernels.many_f32 if f32 else kernels.many)(w, w_stride, act, act_stride, n_act, y, y_stride, k, n, scratch, w + n * w_stride)
    else:
        (kernels.few_f32 if f32 else kernels.few)(w, w_stride, act, act_stride, n_act, y, y_stride, k, n)


def sum_squares(str isa, const float[::1] x) -> float:
    """The sum of x * x."""
    return _table(isa).vec.sum_squares(&x[0], x.shape[0])


def norm(str isa, const float[::1] x, const float[::1] w, float scale, float[::1] y) -> None:
    """y = x * scale * w; without w y = x * scale."""
    _need("y", y.shape[0], x.shape[0])
    cdef const float *weight = NULL
    if w is not None:
        _need("w", w.shape[0], x.shape[0])
        weight = &w[0]
    _table(isa).vec.norm(&x[0], weight, scale, &y[0], x.shape[0])


def gated(str isa, str op, const float[::1] gate, const float[::1] up, float[::1] y) -> None:
    """y = op(gate) * up; op is "silu" or "gelu_tanh"."""
    cdef const ld_vec_kernels *vec = &_table(isa).vec
    _need("up", up.shape[0], gate.shape[0])
    _need("y", y.shape[0], gate.shape[0])
    (vec.silu_mul if op == "silu" else vec.gelu_tanh_mul)(&gate[0], &up[0], &y[0], gate.shape[0])


def swiglu_clamped(str isa, const float[::1] gate, const float[::1] up, float[::1] y, float alpha, float limit) -> None:
    """y = min(gate, limit) * sigmoid(alpha * min(gate, limit)) * (clamp(up, -limit, limit) + 1)."""
    _need("up", up.shape[0], gate.shape[0])
    _need("y", y.shape[0], gate.shape[0])
    _table(isa).vec.swiglu_clamped(&gate[0], &up[0], &y[0], gate.shape[0], alpha, limit)


def add(str isa, float[::1] x, const float[::1] y) -> None:
    """x += y."""
    _need("y", y.shape[0], x.shape[0])
    _table(isa).vec.add(&x[0], &y[0], x.shape[0])


def f32_to_f16(str isa, const float[::1] x, uint16_t[::1] y) -> None:
    """y = the bits of x in half precision."""
    _need("y", y.shape[0], x.shape[0])
    _table(isa).vec.f32_to_f16(&x[0], &y[0], x.shape[0])


def f16_to_f32(str isa, const uint16_t[::1] x, float[::1] y) -> None:
    """y = the values of the half-precision bits x."""
    _need("y", y.shape[0], x.shape[0])
    _table(isa).vec.f16_to_f32(&x[0], &y[0], x.shape[0])


def maximum(str isa, const float[::1] x) -> float:
    """The largest value."""
    return _table(isa).vec.max(&x[0], x.shape[0])


def exp_sum(str isa, float[::1] x, float top) -> float:
    """x = exp(x - top) in place; the sum of it."""
    return _table(isa).vec.exp_sum(&x[0], top, x.shape[0])


def all_finite(str isa, const float[::1] x) -> bool:
    """Whether no value is infinite or NaN."""
    return bool(_table(isa).vec.all_finite(&x[0], x.shape[0]))


def sigmoid_mul(str isa, float[::1] x, const float[::1] gate) -> None:
    """x *= sigmoid(gate)."""
    _need("gate", gate.shape[0], x.shape[0])
    _table(isa).vec.sigmoid_mul(&x[0], &gate[0], x.shape[0])


def delta_conv(str isa, const float[::1] x, const float[::1] w, float[::1] y, int taps) -> None:
    """y = silu of the sum over taps of w * x, both [taps, len(y)]; len(y) a multiple of 16."""
    cdef const float *rows[16]
    cdef int64_t n = y.shape[0]
    cdef int j
    if not 1 <= taps <= 16 or n % 16:
        raise ValueError(f"{taps} taps of {n} channels")
    _need("x", x.shape[0], taps * n)
    _need("w", w.shape[0], taps * n)
    for j in range(taps):
        rows[j] = &x[j * n]
    _table(isa).delta.conv(rows, &w[0], n, taps, &y[0], n)


def delta_step(
    str isa, const float[::1] before, float[::1] after, const float[::1] k, const float[::1] q, const float[::1] v, float decay,
    float rate, float[::1] out,
) -> None:
    """One step of the delta rule: `after` and `out` from the matrix `before`, None = zeros. after None: in the place of `before`."""
    cdef int64_t dim = k.shape[0]
    cdef const float *old = NULL
    cdef float *new
    if dim % 16 or dim == 0 or (before is None and after is None):
        raise ValueError(f"dim {dim}")
    for name, have in (("q", q), ("v", v), ("out", out)):
        _need(name, have.shape[0], dim)
    if before is not None:
        _need("before", before.shape[0], dim * dim)
        old = &before[0]
    if after is not None:
        _need("after", after.shape[0], dim * dim)
        new = &after[0]
    else:
        new = <float *>old
    if <uintptr_t>new % 64:
        raise ValueError("the matrix must be 64-byte aligned")
    _table(isa).delta.step(old, new, &k[0], &q[0], &v[0], decay, rate, &out[0], dim)


def to_words(str isa, const float[::1] x, int16_t[::1] words) -> float:
    """x ~ unit * words; the unit."""
    cdef float unit = 0.0
    _need("words", words.shape[0], x.shape[0])
    _table(isa).words.to_words(&x[0], x.shape[0], &words[0], &unit)
    return unit


def words_scores(
    str isa, const int16_t[:, ::1] q, const float[::1] unit, const int8_t[::1] keys, const uint16_t[::1] scales, float[:, ::1] c,
    int64_t dim, int64_t group
) -> None:
    """c[m][32] = unit[m] * sum over groups of scale * (q . keys); keys [dim / 2][32][2], scales [groups][32]."""
    _need("q", q.shape[1], dim)
    _need("unit", unit.shape[0], q.shape[0])
    _need("keys", keys.shape[0], 32 * dim)
    _need("scales", scales.shape[0], (dim + group - 1) // group * 32)
    _need("c", c.shape[0], q.shape[0])
    _need("columns of c", c.shape[1], 32)
    _table(isa).words.scores(&q[0, 0], q.shape[1], &unit[0], &keys[0], &scales[0], &c[0, 0], c.shape[1], q.shape[0], dim,
                                         group, 0)


def words_values(
    str isa, const float[:, ::1] w, const int8_t[::1] values, const uint16_t[::1] scales, float[:, ::1] c, const float[::1] factor,
    int64_t n, int64_t group
) -> None:
    """c[m] = c * factor[m] + sum over n tokens of w * scale * values; values [16][v_pad][2], v_pad the columns of c."""
    cdef int64_t v_pad = c.shape[1]
    _need("w", w.shape[1], 32)
    _need("values", values.shape[0], 32 * v_pad)
    _need("scales", scales.shape[0], (v_pad + group - 1) // group * 32)
    _need("c", c.shape[0], w.shape[0])
    _need("factor", factor.shape[0], w.shape[0])
    _table(isa).words.values(&w[0, 0], w.shape[1], &values[0], &scales[0], &c[0, 0], &factor[0], w.shape[0], n, v_pad, group,
                                         0)


def read(const uint8_t[::1] data) -> int:
    """Reads all of `data` once: the read probe of the benches."""
    cdef unsigned long long total
    with nogil:
        total = ld_read_probe(&data[0], data.shape[0] // 256 * 256)
    return total


def vnni_peak(int64_t n) -> int:
    """n rounds of VNNI_PROBE_OPS int8 operations in 512-bit registers; needs avx512vnni."""
    _table("avx512vnni")
    return ld_vnni_probe(n)


def maddubs_peak(int64_t n) -> int:
    """n rounds of MADDUBS_PROBE_OPS int8 operations by 16-bit steps; needs avx2."""
    _table("avx2")
    return ld_maddubs_probe(n)
