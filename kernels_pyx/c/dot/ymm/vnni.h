// The steps of legacy.h and kquant.h by vpdpbusd, which sums four products of unsigned by signed bytes into int32, and vpdpwssd,
// its 16-bit sister. LD_DPBUSD and LD_DPWSSD name the intrinsics of the instruction set: VEX (AVX-VNNI) or EVEX (AVX-512 VNNI)
// coded.
#define LD_INT8_BIAS 128

LD_INLINE __m256i LD_NAME(ld_dot_nibbles)(__m256i lo, __m256i x_lo, __m256i hi, __m256i x_hi) {
    return LD_DPBUSD(LD_DPBUSD(_mm256_setzero_si256(), lo, x_lo), hi, x_hi);
}

LD_INLINE __m256i LD_NAME(ld_dot_int8)(__m256i w, __m256i x) {
    return LD_DPBUSD(_mm256_setzero_si256(), _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80)), x);
}

// The four-product sums fit int16 (4 * 63 * 127 = 32004): packed they meet their scales in one vpdpwssd.
LD_INLINE __m256i LD_NAME(ld_dot_scaled)(__m256i acc, __m256i q0, __m256i x0, __m256i q1, __m256i x1, __m256i scales, const int i,
                                         const int j) {
    const short s0 = (short)(0x100 * (2 * i + 1) + 2 * i), s1 = (short)(0x100 * (2 * j + 1) + 2 * j);
    const __m256i order = _mm256_setr_epi16(s0, s0, s0, s0, s1, s1, s1, s1, s0, s0, s0, s0, s1, s1, s1, s1);
    const __m256i zero = _mm256_setzero_si256();
    return LD_DPWSSD(acc, _mm256_packs_epi32(LD_DPBUSD(zero, q0, x0), LD_DPBUSD(zero, q1, x1)),
                     _mm256_shuffle_epi8(scales, order));
}

// Sums of four signed products do not fit int16, those of two do.
LD_INLINE __m256i LD_NAME(ld_dot_scaled_int8)(__m256i acc, __m256i w0, __m256i x0, __m256i w1, __m256i x1, __m256i scale) {
    acc = LD_DPWSSD(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(x0, w0)), scale);
    return LD_DPWSSD(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(x1, w1)), scale);
}
