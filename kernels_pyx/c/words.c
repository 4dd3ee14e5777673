// The kernels of 8-bit caches for each instruction set.
#include "words.h"

#include <immintrin.h>

#include <math.h>
#include <string.h>

#include "blocks.h"
#include "op.h"

#define LD_WEIGHT_MIN 1e-30f // smaller ones weigh nothing: their inverse would be infinite
#define LD_ALWAYS static inline __attribute__((always_inline))
#ifdef __SANITIZE_ADDRESS__
#define LD_UNROLL_ROWS
#else
#define LD_UNROLL_ROWS _Pragma("GCC unroll 12")
#endif
#define LD_EACH_ROW_COUNT \
    case 1: ROWS(1); break; case 2: ROWS(2); break; case 3: ROWS(3); break; case 4: ROWS(4); break; \
    case 5: ROWS(5); break; case 6: ROWS(6); break; case 7: ROWS(7); break; case 8: ROWS(8); break; \
    case 9: ROWS(9); break; case 10: ROWS(10); break; case 11: ROWS(11); break; default: ROWS(12);

typedef int32_t __attribute__((may_alias)) word_pair;

// Where the sum that begins at `from` ends: with the group, and before int32 could overflow.
static inline int64_t words_slice(int64_t from, int64_t dim, int64_t group) {
    int64_t end = (from / group + 1) * group;
    end = end < from + LD_WORDS_DEPTH ? end : from + LD_WORDS_DEPTH;
    return end < dim ? end : dim;
}

#include "words/scalar.h"

// Assembly, for gcc 12 spills chains of these intrinsics.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define LD_WORDS(name) name##_avx2
#define LD_WORDS_STEP(sum, pair, byte)                              \
    do {                                                            \
        __m256i product;                                            \
        __asm__("vpmaddwd %3, %2, %1\n vpaddd %1, %0, %0"           \
                : "+x"(sum), "=&x"(product) : "x"(byte), "x"(pair)); \
    } while (0)
#include "words/ymm.h"
#undef LD_WORDS
#undef LD_WORDS_STEP
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")
#define LD_WORDS(name) name##_avxvnni
#define LD_WORDS_STEP(sum, pair, byte) __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(byte), "x"(pair))
#include "words/ymm.h"
#undef LD_WORDS
#undef LD_WORDS_STEP
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx2,fma,f16c")
#define LD_WORDS(name) name##_avx512
#define LD_WORDS_STEP(sum, words, byte)                                                              \
    do {                                                                                             \
        __m512i product;                                                                             \
        __asm__("vpmaddwd %3, %2, %1\n vpaddd %1, %0, %0"                                            \
                : "+v"(sum), "=&v"(product)                                                          \
                : "v"(byte), "v"(_mm512_set1_epi32(*(const word_pair *)(words))));                   \
    } while (0)
#include "words/zmm.h"
#undef LD_WORDS
#undef LD_WORDS_STEP
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")
#define LD_WORDS(name) name##_avx512vnni
#define LD_WORDS_STEP(sum, words, byte) \
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(byte), "m"(*(const word_pair *)(words)))
#include "words/zmm.h"
#undef LD_WORDS
#undef LD_WORDS_STEP
#pragma GCC pop_options

static void to_words(const float *x, int64_t n, int16_t *words, float *unit) {
    float max = 0.0f;
    int finite = 1;
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        finite &= size <= 3e38f;
        max = size > max ? size : max;
    }
    float inverse = finite && max > LD_WEIGHT_MIN ? LD_WORD_MAX / max : 0.0f;
    for (int64_t i = 0; i < n; i++) words[i] = inverse > 0.0f ? (int16_t)lrintf(x[i] * inverse) : 0;
    *unit = finite ? max * (1.0f / LD_WORD_MAX) : NAN;
}

const ld_words_kernels *ld_words_for(ld_isa isa) {
    static const ld_words_kernels kernels[LD_N_ISAS] = {
        [LD_ISA_SCALAR] = {scores_scalar, values_scalar, to_words, LD_ISA_SCALAR},
        [LD_ISA_AVX2] = {scores_avx2, values_avx2, to_words, LD_ISA_AVX2},
        [LD_ISA_AVXVNNI] = {scores_avxvnni, values_avxvnni, to_words, LD_ISA_AVXVNNI},
        [LD_ISA_AVX512] = {scores_avx512, values_avx512, to_words, LD_ISA_AVX512},
        [LD_ISA_AVX512VNNI] = {scores_avx512vnni, values_avx512vnni, to_words, LD_ISA_AVX512VNNI},
    };
    return &kernels[isa];
}
