// few for two rows and one activation, which is what decoding has, of formats whose scales are dear: either half of a register holds
// 16 values of one row. So the rows share what it takes to unpack their scales, and the halves of a group are added before they meet
// its scale. Included once, inside the AVX2 target region.
#pragma once

LD_INLINE __m256i ld_abreast(const uint8_t *first, const uint8_t *second) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)first)),
                                   _mm_loadu_si128((const __m128i *)second), 1);
}
LD_INLINE __m256i ld_twice(const uint8_t *p) { return _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)p)); }

// Word i of each half in all of its places. Whatever the compiler unrolls, the orders are constants.
LD_INLINE __m256i ld_word_of_halves(__m256i v, const int i) {
    return i == 0   ? _mm256_shuffle_epi32(v, 0x00)
           : i == 1 ? _mm256_shuffle_epi32(v, 0x55)
           : i == 2 ? _mm256_shuffle_epi32(v, 0xaa)
                    : _mm256_shuffle_epi32(v, 0xff);
}
LD_INLINE __m256 ld_float_of_halves(__m256 v, const int i) {
    return _mm256_castsi256_ps(ld_word_of_halves(_mm256_castps_si256(v), i));
}

// The sums of the halves.
LD_INLINE void ld_store_abreast(__m256 acc, float *y) {
    acc = _mm256_add_ps(acc, _mm256_permute_ps(acc, 0x4e));
    acc = _mm256_add_ps(acc, _mm256_movehdup_ps(acc));
    y[0] = _mm256_cvtss_f32(acc);
    y[1] = _mm_cvtss_f32(_mm256_extractf128_ps(acc, 1));
}

// From the first 16 bytes of two blocks, which are alike in both formats: in each half eight scales, then eight mins. As
// ld_q4_k_scales, which sees the words at 4, 8 and 12 as w[0], w[1] and w[2].
LD_INLINE __m256i ld_scales_abreast(__m256i heads) {
    const __m256i words = _mm256_broadcastsi128_si256(_mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m256i tops = _mm256_broadcastsi128_si256(_mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11));
    const __m256i kept = _mm256_broadcastsi128_si256(_mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    const __m256i low = _mm256_srlv_epi32(_mm256_shuffle_epi8(heads, words), _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(heads, 2), _mm256_set1_epi8(0x30));
    return _mm256_or_si256(_mm256_and_si256(low, kept), _mm256_shuffle_epi8(high, tops));
}

// Integers of a block are exact, as in kquant.h: |sum of four products| <= 4 * 31 * 127 < 2^14.
LD_INLINE void ld_groups_abreast(const uint8_t *w, size_t w_stride, const uint8_t *act, float *y, int64_t k, const int bytes,
                                 const int has_fifth) {
    const __m256i low4 = _mm256_set1_epi8(15);
    const __m256i first4 = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1));
    const __m256i last4 = _mm256_broadcastsi128_si256(_mm_setr_epi8(4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1));
    const uint8_t *next = ld_prefetch_from(w, w_stride, 2);
    const size_t d_at = ld_act_scales_at(k), b_at = ld_act_sums_at(LD_ACT_Q8_256, k);
    __m256 acc = _mm256_setzero_ps(), acc_min = _mm256_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++) {
        const uint8_t *one = w + b * bytes, *other = one + w_stride, *x = act + 256 * b;
        next = ld_prefetch(next, 2 * bytes, 2);
        const __m256i heads = ld_scales_abreast(ld_abreast(one, other));
        const __m256i scales[2] = {_mm256_shuffle_epi8(heads, first4), _mm256_shuffle_epi8(heads, last4)};
        __m256i sum = _mm256_setzero_si256(), fifth[2];
        LD_UNROLL for (int h = 0; h < 2 && has_fifth; h++) fifth[h] = ld_abreast(one + 16 + 16 * h, other + 16 + 16 * h);
        LD_UNROLL for (int i = 0; i < 4; i++) {
            __m256i even[2], odd[2];
            LD_UNROLL for (int h = 0; h < 2; h++) {
                const int at = bytes - 128 + 32 * i + 16 * h;
                const __m256i packed = ld_abreast(one + at, other + at);
                __m256i lo = _mm256_and_si256(packed, low4), hi = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low4);
                if (has_fifth) {
                    lo = _mm256_or_si256(lo, ld_bit_at(fifth[h], 2 * i, 4));
                    hi = _mm256_or_si256(hi, ld_bit_at(fifth[h], 2 * i + 1, 4));
                }
                even[h] = _mm256_maddubs_epi16(lo, ld_twice(x + 64 * i + 16 * h));
                odd[h] = _mm256_maddubs_epi16(hi, ld_twice(x + 64 * i + 32 + 16 * h));
            }
            const __m256i by_even = ld_word_of_halves(scales[i / 2], 2 * i % 4), by_odd = ld_word_of_halves(scales[i / 2], 2 * i % 4 + 1);
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_add_epi16(even[0], even[1]), by_even));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_add_epi16(odd[0], odd[1]), by_odd));
        }
        const __m128i *b16 = (const __m128i *)((const int16_t *)(act + b_at) + 16 * b);
        const __m256i b32 = _mm256_broadcastsi128_si256(_mm_hadd_epi16(b16[0], b16[1]));
        const __m256i min_dot = _mm256_madd_epi16(_mm256_unpackhi_epi8(heads, _mm256_setzero_si256()), b32);
        const __m128i halves = _mm_insert_epi32(_mm_cvtsi32_si128((int32_t)*(const ld_packed32 *)one),
                                                (int32_t)*(const ld_packed32 *)other, 2); // d and dmin of each
        const __m256 d = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(((const float *)(act + d_at))[b]));
        acc = _mm256_fmadd_ps(ld_float_of_halves(d, 0), _mm256_cvtepi32_ps(sum), acc);
        acc_min = _mm256_fnmadd_ps(ld_float_of_halves(d, 1), _mm256_cvtepi32_ps(min_dot), acc_min);
    }
    ld_store_abreast(_mm256_add_ps(acc, acc_min), y);
}

// The first words of four blocks, the same of pairs of words: each is loaded to where it belongs. Inserted one by one they cost twice as
// many steps.
LD_INLINE __m128i ld_four_words(const uint8_t *p, const int stride) {
    const __m128i first = _mm_loadu_si128((const __m128i *)p), second = _mm_loadu_si128((const __m128i *)(p + stride - 2));
    const __m128i third = _mm_loadu_si128((const __m128i *)(p + 2 * stride - 4));
    const __m128i fourth = _mm_loadu_si128((const __m128i *)(p + 3 * stride - 6));
    return _mm_blend_epi16(_mm_blend_epi16(first, second, 2), _mm_blend_epi16(third, fourth, 8), 12);
}
LD_INLINE __m128i ld_four_pairs(const uint8_t *p, const int stride) {
    const __m128i first = _mm_loadu_si128((const __m128i *)p), second = _mm_loadu_si128((const __m128i *)(p + stride - 4));
    const __m128i third = _mm_loadu_si128((const __m128i *)(p + 2 * stride - 8));
    const __m128i fourth = _mm_loadu_si128((const __m128i *)(p + 3 * stride - 12));
    const __m128i all = _mm_blend_epi32(_mm_blend_epi32(first, second, 2), _mm_blend_epi32(third, fourth, 8), 12);
    return _mm_shuffle_epi8(all, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
}

// d and m of four blocks of each row; m is d where a format has none, for what its bias makes of it.
typedef struct { __m256 d, m; } ld_d_m_abreast;

LD_INLINE ld_d_m_abreast ld_four_abreast(const uint8_t *one, const uint8_t *other, const int stride, const int has_min) {
    const __m128i a = has_min ? ld_four_pairs(one, stride) : ld_four_words(one, stride);
    const __m128i b = has_min ? ld_four_pairs(other, stride) : ld_four_words(other, stride);
    const __m256 d = _mm256_cvtph_ps(_mm_unpacklo_epi64(a, b));
    return (ld_d_m_abreast){d, has_min ? _mm256_cvtph_ps(_mm_unpackhi_epi64(a, b)) : d};
}

// The sums of four products of a block of each row; its 16 bytes of nibbles lie at `at`, and before them fifth bits.
LD_INLINE __m256i ld_dot_abreast(const uint8_t *one, const uint8_t *other, const int at, const uint8_t *x, const int has_fifth) {
    const __m256i low4 = _mm256_set1_epi8(15), packed = ld_abreast(one + at, other + at);
    __m256i lo = _mm256_and_si256(packed, low4), hi = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low4);
    if (has_fifth) {
        const __m256i bits = _mm256_set_m128i(_mm_set1_epi32((int32_t)*(const ld_packed32 *)(other + at - 4)),
                                              _mm_set1_epi32((int32_t)*(const ld_packed32 *)(one + at - 4)));
        lo = _mm256_or_si256(lo, ld_spread_bits(bits, 0)), hi = _mm256_or_si256(hi, ld_spread_bits(bits, 2));
    }
    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(lo, ld_twice(x)), _mm256_maddubs_epi16(hi, ld_twice(x + 16)));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Q4_0, Q4_1, Q5_0 and Q5_1: x = d * q + m_factor * m.
LD_INLINE void ld_blocks_abreast(const uint8_t *w, size_t w_stride, const uint8_t *act, float *y, int64_t k, const int bytes,
                                 const int has_fifth, const float m_factor) {
    const int64_t n_blocks = k / 32;
    const int has_min = m_factor > 0;
    const uint8_t *next = ld_prefetch_from(w, w_stride, 2);
    const float *dx = (const float *)(act + ld_act_scales_at(k)), *sx = (const float *)(act + ld_act_sums_at(LD_ACT_Q8_32, k));
    __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, acc_min = _mm256_setzero_ps();
    int64_t b = 0;
    for (; b + 4 <= n_blocks; b += 4) {
        const uint8_t *one = w + b * bytes, *other = one + w_stride;
        next = ld_prefetch(next, 8 * bytes, 2);
        const ld_d_m_abreast of = ld_four_abreast(one, other, bytes, has_min);
        const __m256 scale = _mm256_mul_ps(of.d, _mm256_broadcast_ps((const __m128 *)(dx + b)));
        acc_min = _mm256_fmadd_ps(of.m, _mm256_broadcast_ps((const __m128 *)(sx + b)), acc_min);
        LD_UNROLL for (int i = 0; i < 4; i++) {
            const __m256i dot = ld_dot_abreast(one, other, (i + 1) * bytes - 16, act + 32 * (b + i), has_fifth);
            acc[i % 2] = _mm256_fmadd_ps(ld_float_of_halves(scale, i), _mm256_cvtepi32_ps(dot), acc[i % 2]);
        }
    }
    for (; b < n_blocks; b++) {
        const uint8_t *rows[2] = {w + b * bytes, w + b * bytes + w_stride};
        float d[2], m[2];
        for (int r = 0; r < 2; r++) {
            d[r] = ld_half(*(const ld_packed16 *)rows[r]);
            m[r] = has_min ? ld_half(*(const ld_packed16 *)(rows[r] + 2)) : d[r];
        }
        const __m256i dot = ld_dot_abreast(rows[0], rows[1], bytes - 16, act + 32 * b, has_fifth);
        const __m256 scale = _mm256_set_m128(_mm_set1_ps(d[1] * dx[b]), _mm_set1_ps(d[0] * dx[b]));
        acc[0] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot), acc[0]);
        acc_min = _mm256_add_ps(acc_min, _mm256_setr_ps(m[0] * sx[b], 0, 0, 0, m[1] * sx[b], 0, 0, 0));
    }
    ld_store_abreast(_mm256_fmadd_ps(_mm256_set1_ps(m_factor), acc_min, _mm256_add_ps(acc[0], acc[1])), y);
}
