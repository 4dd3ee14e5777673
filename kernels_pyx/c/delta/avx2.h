// Gated DeltaNet with AVX2: a step takes 32 columns of the matrix at a time, 16 KiB of 128 rows, which stay in the first cache
// between the products and the update.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

static void ld_conv_avx2(const float *const *x, const float *w, int64_t w_stride, int64_t taps, float *y, int64_t n) {
    for (int64_t c = 0; c < n; c += 8) {
        __m256 sum = _mm256_setzero_ps();
        for (int64_t j = 0; j < taps; j++)
            sum = _mm256_fmadd_ps(_mm256_loadu_ps(w + j * w_stride + c), _mm256_loadu_ps(x[j] + c), sum);
        _mm256_storeu_ps(y + c, ld_silu8(sum));
    }
}

LD_INLINE float ld_dot_ymm(const float *x, const float *y, int64_t n) {
    __m256 sum = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) sum = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i), sum);
    return ld_sum8(sum);
}

// Columns [0, 8 * vectors) behind the pointers. next: what to ask for, as far from `from` as it will be read next.
LD_INLINE void ld_columns_avx2(const float *from, float *to, const float *k, const float *q, const float *v, float decay, float rate,
                               float kq, float *out, int64_t dim, int64_t next, const int vectors) {
    __m256 known[4], asked[4];
    const __m256 keep = _mm256_set1_ps(decay);
    LD_UNROLL for (int c = 0; c < vectors; c++) known[c] = asked[c] = _mm256_setzero_ps();
    for (int64_t i = 0; from && i < dim; i++) {
        const float *row = from + i * dim;
        const __m256 ki = _mm256_broadcast_ss(k + i), qi = _mm256_broadcast_ss(q + i);
        _mm_prefetch((const char *)(row + next), _MM_HINT_T0);
        _mm_prefetch((const char *)(row + next + 16), _MM_HINT_T0);
        LD_UNROLL for (int c = 0; c < vectors; c++) {
            const __m256 m = _mm256_loadu_ps(row + 8 * c);
            known[c] = _mm256_fmadd_ps(ki, m, known[c]);
            asked[c] = _mm256_fmadd_ps(qi, m, asked[c]);
        }
    }
    __m256 d[4];
    LD_UNROLL for (int c = 0; c < vectors; c++) {
        d[c] = _mm256_mul_ps(_mm256_set1_ps(rate), _mm256_fnmadd_ps(keep, known[c], _mm256_loadu_ps(v + 8 * c)));
        _mm256_storeu_ps(out + 8 * c, _mm256_fmadd_ps(_mm256_set1_ps(kq), d[c], _mm256_mul_ps(keep, asked[c])));
    }
    for (int64_t i = 0; i < dim; i++) {
        const __m256 ki = _mm256_broadcast_ss(k + i);
        LD_UNROLL for (int c = 0; c < vectors; c++) {
            const __m256 old = from ? _mm256_mul_ps(keep, _mm256_loadu_ps(from + i * dim + 8 * c)) : _mm256_setzero_ps();
            _mm256_stream_ps(to + i * dim + 8 * c, _mm256_fmadd_ps(ki, d[c], old));
        }
    }
}

static void ld_delta_step_avx2(const float *from, float *to, const float *k, const float *q, const float *v, float decay, float rate,
                               float *out, int64_t dim) {
    const float kq = ld_dot_ymm(k, q, dim);
    int64_t j = 0;
    for (; j + 32 <= dim; j += 32)
        ld_columns_avx2(from ? from + j : NULL, to + j, k, q, v + j, decay, rate, kq, out + j, dim,
                        j + 64 <= dim ? 32 : dim * dim - j, 4);
    if (j < dim) ld_columns_avx2(from ? from + j : NULL, to + j, k, q, v + j, decay, rate, kq, out + j, dim, dim * dim - j, 2);
    _mm_sfence();
}

static const ld_delta_kernels ld_delta_avx2 = LD_DELTA(LD_ISA_AVX2, avx2);

#pragma GCC pop_options
