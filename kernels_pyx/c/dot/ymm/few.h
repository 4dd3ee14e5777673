// How a `few` walks its rows: two or four in flight, so that an activation is loaded and arranged once for them, and up to four
// activations at a time, so that unpacking a row serves four. Also `few_f32`, for every format.
#pragma once

// Rows in flight are read together only while they lie close. The prefetcher of the processor follows one stream of lines in the
// order of memory best, so the lines of the rows to come are asked for in that order while these rows are used, at least LD_AHEAD
// bytes before their use. Measured on Zen 4, one thread, F16 rows of 3 KiB, GB/s: four rows with a prefetch for each at its own
// place 14, in the order of memory 33; read probe 35. Longer rows are streams by themselves.
#define LD_AHEAD 6144

// How far ahead the loops ask whose integers cost little: 512-bit registers, blocks of 256. They wait for memory, not for themselves;
// so many lines are under way only into the second cache. Zen 4, one thread, GB/s of rows of 2048 and of 6144 values, 6 KiB ahead
// into the first cache (the long ones into the second) and 16 KiB ahead into the second: Q6_K 25.1, 29.8 and 31.5, 34.2; Q4_K 30.2,
// 28.6 and 31.1, 31.0; read probe 35 to 37. Loops that are bound by their instructions gain nothing by it (IQ4_XS, AVX2), blocks of 32
// lose: they would ask for most lines twice.
#define LD_FAR_AHEAD 16384

// Four rows only for formats that ask for it (max_rows), whose arranging of activations is dear, and where rows are not very
// short. ahead: how far the lines are asked for that are not yet used, LD_AHEAD or LD_FAR_AHEAD.
LD_INLINE int ld_rows_in_flight(size_t w_stride, const int max_rows, const int ahead) {
    const size_t near = 8192;
    if (max_rows == 4 && w_stride >= 512 && 4 * w_stride <= (size_t)ahead) return 4;
    return max_rows >= 2 && 2 * w_stride <= (near > (size_t)ahead ? near : (size_t)ahead) ? 2 : 1;
}

// Where the lines to ask for begin, when the rows at w are begun.
LD_INLINE const uint8_t *ld_prefetch_from(const uint8_t *w, size_t w_stride, const int n_rows) {
    const size_t tile = (size_t)n_rows * w_stride;
    return w + (n_rows > 1 && tile > LD_AHEAD ? tile : LD_AHEAD);
}

// Asks for n_bytes, a constant; returns where the next ones begin. A long row that is taken singly goes into the second cache: the
// processor's own prefetcher brings it nearer, and in the first cache its lines and a long activation drive each other out. Zen 4,
// share of the read probe, into the first and the second cache: F16 rows of 8 KiB .64 and .91, Q8_0 of 4.3 KiB .76 and .91; but two
// Q4_1 rows of 1.3 KiB .90 and .63.
LD_INLINE const uint8_t *ld_prefetch(const uint8_t *next, const int n_bytes, const int n_rows) {
    LD_UNROLL for (int at = 0; at < n_bytes; at += 64) {
        if (n_rows == 1) _mm_prefetch((const char *)next + at, _MM_HINT_T1);
        else _mm_prefetch((const char *)next + at, _MM_HINT_T0);
    }
    return next + n_bytes;
}

// The same for loops that ask LD_FAR_AHEAD, for all rows in flight at once.
LD_INLINE const uint8_t *ld_prefetch_far(const uint8_t *next, const int n_bytes) {
    LD_UNROLL for (int at = 0; at < n_bytes; at += 64) _mm_prefetch((const char *)next + at, _MM_HINT_T1);
    return next + n_bytes;
}

LD_INLINE float ld_sum8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// y[r] = sum of acc[r] for n_rows rows.
LD_INLINE void ld_store_sums(const __m256 *acc, float *y, const int n_rows) {
    if (n_rows == 4) {
        const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(acc[0], acc[1]), _mm256_hadd_ps(acc[2], acc[3]));
        _mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
        return;
    }
    LD_UNROLL for (int r = 0; r < n_rows; r++) y[r] = ld_sum8(acc[r]);
}

// Computes n_rows rows for n_act activations, both compile-time constants; sums go to y[a * y_stride + r].
#define LD_ROWS_ARGS \
    const uint8_t *w, size_t w_stride, const uint8_t *act, size_t act_stride, float *y, size_t y_stride, int64_t k, \
        const int n_rows, const int n_act
#define LD_ROWS(rows, acts) w, w_stride, act, act_stride, y, y_stride, k, rows, acts

// Defines the function `name` with the signature of ld_linear_few over `rows_fn`, which has LD_ROWS_ARGS and is always inlined.
// max_rows: rows in flight for one activation, 1, 2 or 4. max_sums: how many rows times activations the registers hold, 4 or 8.
// LD_DEFINE_FAR: for loops that ask LD_FAR_AHEAD. LD_DEFINE_ABREAST: two rows in flight wherever they are cheaper than one, though the
// lines of long rows are then asked for just before the rows.
#define LD_DEFINE_FEW(name, rows_fn, max_rows, max_sums) \
    LD_DEFINE_FEW_EXPANDED(name, rows_fn, max_rows, max_sums, LD_AHEAD) // LD_NAME in the arguments goes first
#define LD_DEFINE_FAR(name, rows_fn, max_rows, max_sums) LD_DEFINE_FEW_EXPANDED(name, rows_fn, max_rows, max_sums, LD_FAR_AHEAD)
#define LD_DEFINE_ABREAST(name, rows_fn, max_sums, abreast) \
    LD_DEFINE_FEW_EXPANDED(name, rows_fn, 2, max_sums, (abreast) ? LD_FAR_AHEAD : LD_AHEAD)
#define LD_DEFINE_FEW_EXPANDED(name, rows_fn, max_rows, max_sums, ahead) \
    static __attribute__((noinline)) void name##_tile(const uint8_t *w, size_t w_stride, const uint8_t *act, size_t act_stride, \
                                                      float *y, size_t y_stride, int64_t k, int64_t n_rows, int64_t n_act) { \
        switch (10 * n_rows + n_act) { \
        case 11: rows_fn(LD_ROWS(1, 1)); return; \
        case 12: rows_fn(LD_ROWS(1, 2)); return; \
        case 13: rows_fn(LD_ROWS(1, 3)); return; \
        case 14: rows_fn(LD_ROWS(1, 4)); return; \
        case 21: rows_fn(LD_ROWS(2, 1)); return; \
        case 22: rows_fn(LD_ROWS(2, 2)); return; \
        case 23: if ((max_sums) == 8) rows_fn(LD_ROWS(2, 3)); return; \
        case 24: if ((max_sums) == 8) rows_fn(LD_ROWS(2, 4)); return; \
        } \
    } \
    static void name(LD_FEW_ARGS) { \
        int64_t together = ld_rows_in_flight(w_stride, n_act == 1 ? (max_rows) : 2, ahead); \
        if (n_act > 2 && (max_sums) == 4) together = 1; \
        if ((max_rows) == 4 && n_act == 1 && together == 4) /* one activation is what decoding has: its loops are inline */ \
            for (; n >= 4; n -= 4, w += 4 * w_stride, y += 4) rows_fn(LD_ROWS(4, 1)); \
        if ((max_rows) >= 2 && n_act == 1 && together == 2) \
            for (; n >= 2; n -= 2, w += 2 * w_stride, y += 2) rows_fn(LD_ROWS(2, 1)); \
        if (n_act == 1) together = 1; \
        for (int64_t row = 0, n_rows; row < n; row += n_rows) { \
            n_rows = n - row < together ? 1 : together; \
            for (int64_t a = 0; a < n_act; a += 4) \
                name##_tile(w + row * w_stride, w_stride, act + a * act_stride, act_stride, y + a * y_stride + row, y_stride, k, \
                            n_rows, n_act - a < 4 ? n_act - a : 4); \
        } \
    }

// f32 activations. Where there are few sums they are split, so that a fused multiply-add need not wait for the one before it.
#define LD_DEFINE_FEW_F32(name, format) \
    LD_INLINE void name##_rows(LD_ROWS_ARGS) { \
        const int n_parts = n_rows * n_act == 1 ? 4 : 2; \
        __m256 acc[4][4][4], v[4]; \
        LD_UNROLL for (int a = 0; a < n_act; a++) \
            LD_UNROLL for (int r = 0; r < n_rows; r++) \
                LD_UNROLL for (int i = 0; i < 4; i++) acc[a][r][i] = _mm256_setzero_ps(); \
        const uint8_t *next = ld_prefetch_from(w, w_stride, n_rows); \
        for (int64_t g = 0; g < k / 32; g++) \
            LD_UNROLL for (int r = 0; r < n_rows; r++) { \
                next = ld_prefetch(next, ld_row_bytes_##format(32), n_rows); \
                ld_values_##format(w + r * w_stride, g, v); \
                LD_UNROLL for (int a = 0; a < n_act; a++) \
                    LD_UNROLL for (int i = 0; i < 4; i++) { \
                        const __m256 x = _mm256_load_ps((const float *)(act + a * act_stride) + 32 * g + 8 * i); \
                        acc[a][r][i % n_parts] = _mm256_fmadd_ps(v[i], x, acc[a][r][i % n_parts]); \
                    } \
            } \
        if (k % 32) \
            LD_UNROLL for (int r = 0; r < n_rows; r++) { \
                ld_tail_values_##format(w + r * w_stride, k, v); \
                LD_UNROLL for (int a = 0; a < n_act; a++) { \
                    float x[32] = {0}; \
                    memcpy(x, (const float *)(act + a * act_stride) + (k & ~(int64_t)31), 4 * (size_t)(k % 32)); \
                    LD_UNROLL for (int i = 0; i < 4; i++) \
                        acc[a][r][0] = _mm256_fmadd_ps(v[i], _mm256_loadu_ps(x + 8 * i), acc[a][r][0]); \
                } \
            } \
        LD_UNROLL for (int a = 0; a < n_act; a++) { \
            __m256 sum[4]; \
            LD_UNROLL for (int r = 0; r < n_rows; r++) { \
                sum[r] = _mm256_add_ps(acc[a][r][0], acc[a][r][1]); \
                if (n_parts == 4) sum[r] = _mm256_add_ps(sum[r], _mm256_add_ps(acc[a][r][2], acc[a][r][3])); \
            } \
            ld_store_sums(sum, y + a * y_stride, n_rows); \
        } \
    } \
    LD_DEFINE_FEW(name, name##_rows, 2, 4)

// Bytes of `values` values of a row, as a constant.
#define LD_FORMAT(symbol, name, id, block, bytes, act, path) \
    LD_INLINE int ld_row_bytes_##symbol(const int values) { return values * bytes / block; }
#include "../../formats.def"
#undef LD_FORMAT

LD_DEFINE_FEW_F32(ld_few_f32_avx2, f32)
LD_DEFINE_FEW_F32(ld_few_f16_avx2, f16)
LD_DEFINE_FEW_F32(ld_few_bf16_avx2, bf16)
LD_DEFINE_FEW_F32(ld_few_q4_0_f32_avx2, q4_0)
LD_DEFINE_FEW_F32(ld_few_q4_1_f32_avx2, q4_1)
LD_DEFINE_FEW_F32(ld_few_q8_0_f32_avx2, q8_0)
LD_DEFINE_FEW_F32(ld_few_q4_k_f32_avx2, q4_k)
LD_DEFINE_FEW_F32(ld_few_q6_k_f32_avx2, q6_k)
LD_DEFINE_FEW_F32(ld_few_q5_0_f32_avx2, q5_0)
LD_DEFINE_FEW_F32(ld_few_q5_1_f32_avx2, q5_1)
LD_DEFINE_FEW_F32(ld_few_q2_k_f32_avx2, q2_k)
LD_DEFINE_FEW_F32(ld_few_q3_k_f32_avx2, q3_k)
LD_DEFINE_FEW_F32(ld_few_q5_k_f32_avx2, q5_k)
LD_DEFINE_FEW_F32(ld_few_iq4_nl_f32_avx2, iq4_nl)
LD_DEFINE_FEW_F32(ld_few_iq4_xs_f32_avx2, iq4_xs)
LD_DEFINE_FEW_F32(ld_few_mxfp4_f32_avx2, mxfp4)
