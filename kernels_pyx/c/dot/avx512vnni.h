// The dot family for AVX-512 VNNI (VL): the 256-bit loops with vpdpbusd.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

#define LD_NAME(name) name##_avx512vnni
#define LD_DPBUSD _mm256_dpbusd_epi32
#define LD_DPWSSD _mm256_dpwssd_epi32
#include "ymm/vnni.h"
#include "ymm/legacy.h"
#include "ymm/kquant.h"
#undef LD_NAME
#undef LD_DPBUSD
#undef LD_DPWSSD
#undef LD_INT8_BIAS

#pragma GCC pop_options
