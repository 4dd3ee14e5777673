// Gated DeltaNet with AVX-512: as with AVX2, in half as many registers.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")

static void ld_conv_avx512(const float *const *x, const float *w, int64_t w_stride, int64_t taps, float *y, int64_t n) {
    for (int64_t c = 0; c < n; c += 16) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t j = 0; j < taps; j++)
            sum = _mm512_fmadd_ps(_mm512_loadu_ps(w + j * w_stride + c), _mm512_loadu_ps(x[j] + c), sum);
        _mm512_storeu_ps(y + c, ld_silu16(sum));
    }
}

LD_INLINE void ld_columns_avx512(const float *from, float *to, const float *k, const float *q, const float *v, float decay,
                                 float rate, float kq, float *out, int64_t dim, int64_t next, const int vectors) {
    __m512 known[2], asked[2], d[2];
    const __m512 keep = _mm512_set1_ps(decay);
    LD_UNROLL for (int c = 0; c < vectors; c++) known[c] = asked[c] = _mm512_setzero_ps();
    for (int64_t i = 0; from && i < dim; i++) {
        const float *row = from + i * dim;
        const __m512 ki = _mm512_set1_ps(k[i]), qi = _mm512_set1_ps(q[i]);
        _mm_prefetch((const char *)(row + next), _MM_HINT_T0);
        _mm_prefetch((const char *)(row + next + 16), _MM_HINT_T0);
        LD_UNROLL for (int c = 0; c < vectors; c++) {
            const __m512 m = _mm512_loadu_ps(row + 16 * c);
            known[c] = _mm512_fmadd_ps(ki, m, known[c]);
            asked[c] = _mm512_fmadd_ps(qi, m, asked[c]);
        }
    }
    LD_UNROLL for (int c = 0; c < vectors; c++) {
        d[c] = _mm512_mul_ps(_mm512_set1_ps(rate), _mm512_fnmadd_ps(keep, known[c], _mm512_loadu_ps(v + 16 * c)));
        _mm512_storeu_ps(out + 16 * c, _mm512_fmadd_ps(_mm512_set1_ps(kq), d[c], _mm512_mul_ps(keep, asked[c])));
    }
    for (int64_t i = 0; i < dim; i++) {
        const __m512 ki = _mm512_set1_ps(k[i]);
        LD_UNROLL for (int c = 0; c < vectors; c++) {
            const __m512 old = from ? _mm512_mul_ps(keep, _mm512_loadu_ps(from + i * dim + 16 * c)) : _mm512_setzero_ps();
            _mm512_stream_ps(to + i * dim + 16 * c, _mm512_fmadd_ps(ki, d[c], old));
        }
    }
}

static void ld_delta_step_avx512(const float *from, float *to, const float *k, const float *q, const float *v, float decay,
                                 float rate, float *out, int64_t dim) {
    const float kq = ld_dot_ymm(k, q, dim);
    int64_t j = 0;
    for (; j + 32 <= dim; j += 32)
        ld_columns_avx512(from ? from + j : NULL, to + j, k, q, v + j, decay, rate, kq, out + j, dim,
                          j + 64 <= dim ? 32 : dim * dim - j, 2);
    if (j < dim) ld_columns_avx512(from ? from + j : NULL, to + j, k, q, v + j, decay, rate, kq, out + j, dim, dim * dim - j, 1);
    _mm_sfence();
}

static const ld_delta_kernels ld_delta_avx512 = LD_DELTA(LD_ISA_AVX512, avx512);

#pragma GCC pop_options
