// The dot family for AVX-512 VNNI: 512-bit registers (fewer instructions and loads for a byte of weights, which is what bounds
// them) for all formats but Q8_0, which takes the 256-bit loop with vpdpbusd.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

#define LD_NAME(name) name##_avx512vnni
#define LD_DPBUSD _mm256_dpbusd_epi32
#define LD_DPWSSD _mm256_dpwssd_epi32
#define LD_MAX_SUMS 8
#define LD_ABREAST 0
#define LD_OWN_WIDE
#include "ymm/vnni.h"

// The sixteen sums as eight.
LD_INLINE __m256 ld_fold16(__m512 v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }

#include "ymm/legacy.h"
#include "zmm/legacy.h"
#include "zmm/kquant.h"
#undef LD_OWN_WIDE
#undef LD_NAME
#undef LD_DPBUSD
#undef LD_DPWSSD
#undef LD_MAX_SUMS
#undef LD_ABREAST
#undef LD_INT8_BIAS

#pragma GCC pop_options
