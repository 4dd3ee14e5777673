// The steps of legacy.h and kquant.h by vpdpbusd, which sums four products of unsigned by signed bytes into int32, and vpdpwssd,
// its 16-bit sister. LD_DPBUSD and LD_DPWSSD name the intrinsics of the instruction set: VEX (AVX-VNNI) or EVEX (AVX-512 VNNI)
// coded.
#define LD_INT8_BIAS 128

LD_INLINE __m256i LD_NAME(ld_dot_nibbles)(__m256i lo, __m256i x_lo, __m256i hi, __m256i x_hi) {
    return LD_DPBUSD(LD_DPBUSD(_mm256_setzero_si256(), lo, x_lo), hi, x_hi);
}

LD_INLINE __m256i LD_NAME(ld_dot_bytes)(__m256i q, __m256i x) { return LD_DPBUSD(_mm256_setzero_si256(), q, x); }

LD_INLINE __m256i LD_NAME(ld_dot_int8)(__m256i w, __m256i x) {
    return LD_DPBUSD(_mm256_setzero_si256(), _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80)), x);
}

// The four-product sums fit int16 (4 * 63 * 127 = 32004): packed they meet their scales in one vpdpwssd.
LD_INLINE __m256i LD_NAME(ld_dot_packed)(__m256i acc, __m256i q0, __m256i x0, __m256i q1, __m256i x1, __m256i scales) {
    const __m256i zero = _mm256_setzero_si256();
    return LD_DPWSSD(acc, _mm256_packs_epi32(LD_DPBUSD(zero, q0, x0), LD_DPBUSD(zero, q1, x1)), scales);
}

LD_INLINE __m256i LD_NAME(ld_dot_scaled_groups)(__m256i acc, __m256i q0, __m256i x0, __m256i q1, __m256i x1, __m256i scale8,
                                                const int j) {
    const short s0 = (short)(0x100 * (2 * j + 1) + 2 * j), s1 = (short)(0x100 * (2 * j + 3) + 2 * j + 2);
    const __m256i order = _mm256_setr_epi16(s0, s0, s0, s0, s1, s1, s1, s1, s0, s0, s0, s0, s1, s1, s1, s1);
    return LD_NAME(ld_dot_packed)(acc, q0, x0, q1, x1, _mm256_shuffle_epi8(scale8, order));
}

LD_INLINE __m256i LD_NAME(ld_dot_scaled_halves)(__m256i acc, __m256i q0, __m256i x0, __m256i q1, __m256i x1, __m128i scale8,
                                                const int j) {
    const __m128i order = _mm_setr_epi8(0, 0, 0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 3, 3, 3, 3);
    const __m256i scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scale8, _mm_add_epi8(order, _mm_set1_epi8((char)j))));
    return LD_NAME(ld_dot_packed)(acc, q0, x0, q1, x1, scales);
}

// Sums of four signed products do not fit int16, those of two do.
LD_INLINE __m256i LD_NAME(ld_dot_scaled_int8)(__m256i acc, __m256i w, __m256i x, __m256i scale8, const int j) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return LD_DPWSSD(acc, pairs, _mm256_shuffle_epi8(scale8, _mm256_set1_epi16((short)(0x100 * (2 * j + 1) + 2 * j))));
}
