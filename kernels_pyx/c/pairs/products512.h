// The sums of pairs with AVX-512, 16 in a register; read once with VNNI, where product and sum are one instruction, and once without.
// LD_PAIRS(name) gives the names, LD_PAIR_ADD(sum, columns, at) the step.

// sum[j] += the pairs that stand at `at` + j * step, j < count, times those of 16 columns, for n_pairs.
static inline __attribute__((always_inline)) void LD_PAIRS(products)(__m512i sum[16], const int16_t *at, int64_t step, int64_t at_stride,
                                                                     const int16_t *columns, int64_t m, int64_t n_pairs,
                                                                     const int count) {
#pragma GCC unroll 16
    for (int j = 0; j < count; j++) sum[j] = _mm512_setzero_si512();
    for (int64_t p = 0; p < n_pairs; p++) {
        __m512i column = _mm512_loadu_si512(columns + p * m * 2);
#pragma GCC unroll 16
        for (int j = 0; j < count; j++) LD_PAIR_ADD(sum[j], column, at + j * step + p * at_stride);
    }
}

static inline __attribute__((always_inline)) void LD_PAIRS(store_scores)(const __m512i *sum, const float *key_scale,
                                                                         const float *query_scale, int64_t m, float *out, int add,
                                                                         const int count) {
#pragma GCC unroll 16
    for (int t = 0; t < count; t++) {
        __m512 scale = _mm512_mul_ps(_mm512_set1_ps(key_scale[t]), _mm512_loadu_ps(query_scale));
        __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[t]), scale);
        _mm512_storeu_ps(out + t * m, add ? _mm512_add_ps(_mm512_loadu_ps(out + t * m), scaled) : scaled);
    }
}

static inline __attribute__((always_inline)) void LD_PAIRS(dot_keys)(const int16_t *keys, int64_t key_stride, const float *key_scale,
                                                                     const int16_t *queries, const float *query_scale, int64_t m,
                                                                     int64_t n, float *out, int add, const int count) {
    __m512i sum[16];
    LD_PAIRS(products)(sum, keys, key_stride, 2, queries, m, n / 2, count);
    LD_PAIRS(store_scores)(sum, key_scale, query_scale, m, out, add, count);
}

// n / 4 double steps of the products, and as many squares of two rows by 32 values between them.
static inline __attribute__((always_inline)) void LD_PAIRS(dot_beside_any)(const int16_t *keys, int64_t key_stride, const float *key_scale,
                                                                           const int16_t *queries, const float *query_scale, int64_t m,
                                                                           int64_t n, float *out, const ld_pair_next *next,
                                                                           const int half) {
    const int64_t stride = next->x_stride, group_step = next->one_group ? 0 : LD_BLOCK;
    __m512i sum[16];
#pragma GCC unroll 16
    for (int t = 0; t < LD_PAIR_GROUP; t++) sum[t] = _mm512_setzero_si512();
    const int16_t *at = keys, *column_at = queries;
    const uint8_t *ask = next->ask;
    const int64_t asked = LD_PAIR_GROUP * stride * (half ? 2 : 1) / (n / 4); // bytes with each square, at most 192 and 96
    for (int64_t row = 0; row < LD_PAIR_GROUP; row += 2) {
        const uint16_t *halves = half ? next->halves + row * stride : NULL;
        const int8_t *bytes = half ? NULL : next->bytes + row * stride;
        const int16_t *factors = next->factors + row;
        int16_t *y = next->y + row * next->y_stride, *zipped = next->zipped + row / 2 * next->zipped_stride;
        const __m512 factor0 = _mm512_set1_ps(half ? next->factor[row] : 0.0f), factor1 = _mm512_set1_ps(half ? next->factor[row + 1] : 0.0f);
        for (int64_t i = 0; i < n; i += 32, at += 4, column_at += 4 * m) {
            const __m512i column0 = _mm512_loadu_si512(column_at), column1 = _mm512_loadu_si512(column_at + 2 * m);
#pragma GCC unroll 16
            for (int t = 0; t < LD_PAIR_GROUP; t++) LD_PAIR_ADD(sum[t], column0, at + t * key_stride);
            for (int line = 0; line < (half ? 192 : 128); line += 64) _mm_prefetch((const char *)ask + line, _MM_HINT_T1);
            ask += asked;
            if (half) {
                square_avx512(halves, halves + stride, factor0, factor1, y, y + next->y_stride, zipped, i, 1);
            } else {
                byte_square_avx512(bytes, bytes + stride, _mm512_set1_epi16(factors[0]), _mm512_set1_epi16(factors[1]), y,
                                   y + next->y_stride, zipped, i);
                factors += group_step;
            }
#pragma GCC unroll 16
            for (int t = 0; t < LD_PAIR_GROUP; t++) LD_PAIR_ADD(sum[t], column1, at + 2 + t * key_stride);
        }
    }
    LD_PAIRS(store_scores)(sum, key_scale, query_scale, m, out, 0, LD_PAIR_GROUP);
    for (int64_t i = 16; i < m; i += 16)
        LD_PAIRS(dot_keys)(keys, key_stride, key_scale, queries + 2 * i, query_scale + i, m, n, out + i, 0, LD_PAIR_GROUP);
}

static void LD_PAIRS(dot_beside)(const int16_t *keys, int64_t key_stride, const float *key_scale, const int16_t *queries,
                                 const float *query_scale, int64_t m, int64_t n, float *out, const ld_pair_next *next) {
    if (next->halves)
        LD_PAIRS(dot_beside_any)(keys, key_stride, key_scale, queries, query_scale, m, n, out, next, 1);
    else
        LD_PAIRS(dot_beside_any)(keys, key_stride, key_scale, queries, query_scale, m, n, out, next, 0);
}

static void LD_PAIRS(dot)(const int16_t *keys, int64_t key_stride, const float *key_scale, int64_t n_keys, const int16_t *queries,
                          const float *query_scale, int64_t m, int64_t n, float *out, int add) {
    for (int64_t i = 0; i < m; i += 16) {
        const int16_t *columns = queries + 2 * i;
        int64_t t = 0;
#define KEYS_BY(count)                                                                                                                   \
    for (; t + count <= n_keys; t += count)                                                                                              \
        LD_PAIRS(dot_keys)(keys + t * key_stride, key_stride, key_scale + t, columns, query_scale + i, m, n, out + t * m + i, add, count)
        KEYS_BY(16);
        KEYS_BY(4);
        KEYS_BY(1);
#undef KEYS_BY
    }
}

static inline __attribute__((always_inline)) void LD_PAIRS(sum_rows)(const int16_t *weights, int64_t m, const int16_t *rows,
                                                                     int64_t row_stride, int64_t n_pairs, const float *keep,
                                                                     const float *gain, float *sums, const int count) {
    __m512i sum[16];
    LD_PAIRS(products)(sum, rows, 2, row_stride, weights, m, n_pairs, count);
#pragma GCC unroll 16
    for (int d = 0; d < count; d++) {
        __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(sums + d * m), _mm512_loadu_ps(keep));
        _mm512_storeu_ps(sums + d * m, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[d]), _mm512_loadu_ps(gain), kept));
    }
}

static void LD_PAIRS(sum)(const int16_t *weights, int64_t m, const int16_t *rows, int64_t row_stride, int64_t n_pairs, const float *keep,
                          const float *gain, float *sums, int64_t n) {
    for (int64_t i = 0; i < m; i += 16) {
        int64_t d = 0;
#define VALUES_BY(count)                                                                                                                 \
    for (; d + count <= n; d += count)                                                                                                   \
        LD_PAIRS(sum_rows)(weights + 2 * i, m, rows + 2 * d, row_stride, n_pairs, keep + i, gain + i, sums + d * m + i, count)
        VALUES_BY(16);
        VALUES_BY(1);
#undef VALUES_BY
    }
}
