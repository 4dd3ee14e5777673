// The dot family for AVX-VNNI: the 256-bit loops with VEX-coded vpdpbusd, on processors without AVX-512.
#pragma once
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avxvnni")

#define LD_NAME(name) name##_avxvnni
#define LD_DPBUSD _mm256_dpbusd_avx_epi32
#define LD_DPWSSD _mm256_dpwssd_avx_epi32
#define LD_MAX_SUMS 4
#define LD_ABREAST 0
#include "ymm/vnni.h"
#include "ymm/legacy.h"
#include "ymm/kquant.h"
#undef LD_NAME
#undef LD_DPBUSD
#undef LD_DPWSSD
#undef LD_MAX_SUMS
#undef LD_ABREAST
#undef LD_INT8_BIAS

#pragma GCC pop_options
