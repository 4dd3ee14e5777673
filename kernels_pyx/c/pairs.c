// The kernels of latent attention in 16-bit integers for each instruction set.
#include "pairs.h"

#include <immintrin.h>

#include <math.h>
#include <string.h>

#include "blocks.h"
#include "half.h"
#include "op.h"

#define LD_INLINE static inline __attribute__((always_inline))

#include "pairs/scalar.h"
#include "pairs/avx2.h"
#include "pairs/avx512.h"

const ld_pair_kernels *ld_pairs_for(ld_isa isa) {
#define MADE(to) narrow_##to, keys_f32_##to, keys_f16_##to, largest_##to, factors_##to, keys_i8_##to, cross_##to
#define USED(to) dot_##to, dot_beside_##to
    static const ld_pair_kernels scalar = {MADE(scalar), USED(scalar), weigh_scalar, sum_scalar, LD_ISA_SCALAR};
    static const ld_pair_kernels avx2 = {MADE(avx2), USED(avx2), weigh_avx2, sum_avx2, LD_ISA_AVX2};
    static const ld_pair_kernels avx512 = {MADE(avx512), USED(avx512), weigh_avx512, sum_avx512, LD_ISA_AVX512};
    static const ld_pair_kernels vnni = {MADE(avx512), USED(avx512vnni), weigh_avx512, sum_avx512vnni, LD_ISA_AVX512VNNI};
#undef MADE
#undef USED
    return isa >= LD_ISA_AVX512VNNI ? &vnni : isa >= LD_ISA_AVX512 ? &avx512 : isa >= LD_ISA_AVX2 ? &avx2 : &scalar;
}
