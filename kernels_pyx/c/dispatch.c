// Fills the kernel tables: for each ISA that this machine has, the best kernel at or below it. Compiles all kernels but those of
// attention, of words.c and of pairs.c.
#include "dispatch.h"
#include "pairs.h"
#include "words.h"
#if defined(__x86_64__)
#include <immintrin.h> // before the first target region: gcc 12 refuses it inside one
#endif
#include "dot/scalar.h"
#include "dot/exact.h"
#include "quantize/scalar.h"
#include "vec/scalar.h"
#include "delta/scalar.h"
#if defined(__x86_64__)
#include "panel.h"
#include "dot/avx2.h"
#include "quantize/avx2.h"
#include "vec/avx2.h"
#include "delta/avx2.h"
#include "panel/unpack.h"
#include "panel/blocks.h"
#include "panel/avx2.h"
#include "dot/avxvnni.h"
#include "panel/avxvnni.h"
#include "quantize/avx512.h"
#include "vec/avx512.h"
#include "delta/avx512.h"
#include "panel/avx512.h"
#include "panel/exact.h"
#include "dot/avx512vnni.h"
#include "panel/avx512vnni.h"
#endif

static ld_table ld_tables[LD_N_ISAS];
static ld_format_kernels ld_formats[LD_N_ISAS][LD_N_FORMATS];
static ld_isa ld_cap;

typedef struct {
    const ld_kernel_row *rows;
    int n_rows;
    const ld_vec_kernels *vec;
    ld_quantize q8_32, q8_256;
    const ld_delta_kernels *delta;
} ld_isa_kernels;

#if defined(__x86_64__)
// Rows that set own activations only, f32 activations only, both; and those that replace `few` once the panels are there.
#define LD_INT_ROW(id, name, isa) {.format = id, .few = ld_few_##name##_##isa, .many = ld_many_##name##_##isa}
#define LD_F32_ROW(id, name, isa) {.format = id, .many_f32 = ld_many_##name##_f32_##isa}
#define LD_FLOAT_ROW(id, name, isa) {.format = id, .many = ld_many_##name##_##isa, .many_f32 = ld_many_##name##_##isa}
#define LD_PANEL_ROW(id, name, isa) {.format = id, .few = ld_few_or_panel_##name##_##isa}
#define LD_PANEL_ROWS_OF(isa) \
    LD_PANEL_ROW(2, q4_0, isa), LD_PANEL_ROW(3, q4_1, isa), LD_PANEL_ROW(6, q5_0, isa), LD_PANEL_ROW(7, q5_1, isa), \
        LD_PANEL_ROW(8, q8_0, isa), LD_PANEL_ROW(10, q2_k, isa), LD_PANEL_ROW(11, q3_k, isa), LD_PANEL_ROW(12, q4_k, isa), \
        LD_PANEL_ROW(13, q5_k, isa), LD_PANEL_ROW(20, iq4_nl, isa), LD_PANEL_ROW(23, iq4_xs, isa), LD_PANEL_ROW(39, mxfp4, isa)
static const ld_kernel_row ld_rows_avx2[] = {LD_FLOAT_FORMATS(LD_ROW_FLOAT, avx2), LD_QUANT_FORMATS(LD_ROW_QUANT, avx2),
                                             LD_EXACT_FORMATS(LD_ROW_FLOAT, avx2), LD_PANEL_ROWS_OF(avx2)};
static const ld_kernel_row ld_rows_avxvnni[] = {LD_QUANT_FORMATS(LD_INT_ROW, avxvnni), LD_PANEL_ROWS_OF(avxvnni)};
static const ld_kernel_row ld_rows_avx512[] = {LD_FLOAT_FORMATS(LD_FLOAT_ROW, avx512), LD_QUANT_FORMATS(LD_F32_ROW, avx512),
                                               LD_EXACT_FORMATS(LD_FLOAT_ROW, avx512)};
static const ld_kernel_row ld_rows_avx512vnni[] = {LD_QUANT_FORMATS(LD_INT_ROW, avx512vnni), LD_PANEL_ROWS_OF(avx512vnni)};
#endif

static const ld_kernel_row ld_rows_scalar[] = {LD_FLOAT_FORMATS(LD_ROW_FLOAT, scalar), LD_QUANT_FORMATS(LD_ROW_QUANT, scalar),
                                               LD_EXACT_FORMATS(LD_ROW_FLOAT, scalar)};

#define LD_COUNTED(rows) rows, (int)(sizeof rows / sizeof *rows)

static const ld_isa_kernels ld_added[LD_N_ISAS] = {
    [LD_ISA_SCALAR] = {LD_COUNTED(ld_rows_scalar), &ld_vec_scalar, ld_quantize_q8_32_scalar, ld_quantize_q8_256_scalar,
                        &ld_delta_scalar},
#if defined(__x86_64__)
    [LD_ISA_AVX2] = {LD_COUNTED(ld_rows_avx2), &ld_vec_avx2, ld_quantize_q8_32_avx2, ld_quantize_q8_256_avx2,
                      &ld_delta_avx2},
    [LD_ISA_AVXVNNI] = {LD_COUNTED(ld_rows_avxvnni), NULL, NULL, NULL, NULL},
    [LD_ISA_AVX512] = {LD_COUNTED(ld_rows_avx512), &ld_vec_avx512, ld_quantize_q8_32_avx512, ld_quantize_q8_256_avx512,
                        &ld_delta_avx512},
    [LD_ISA_AVX512VNNI] = {LD_COUNTED(ld_rows_avx512vnni), NULL, NULL, NULL, NULL},
#endif
};

static int ld_has_isa(ld_isa isa) {
    __builtin_cpu_init();
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    switch (isa) {
    case LD_ISA_SCALAR: return 1;
    case LD_ISA_AVX2: return avx2;
    case LD_ISA_AVXVNNI: return avx2 && __builtin_cpu_supports("avxvnni");
    case LD_ISA_AVX512: return avx512;
    case LD_ISA_AVX512VNNI: return avx512 && __builtin_cpu_supports("avx512vnni");
    default: return 0;
    }
}

ld_isa ld_isa_detected(void) {
    int isa = LD_N_ISAS - 1;
    while (!ld_has_isa((ld_isa)isa)) isa--;
    return (ld_isa)isa;
}

static void ld_set_format_acts(ld_format_kernels *formats) {
#define LD_FORMAT(symbol, name, id, block, bytes, layout, path) formats[id].act = layout;
#include "formats.def"
#undef LD_FORMAT
}

static void ld_add_row(ld_format_kernels *kernels, const ld_kernel_row *row, ld_isa isa) {
    if (row->few) kernels->few = row->few, kernels->few_isa = isa;
    if (row->few_f32) kernels->few_f32 = row->few_f32;
    if (row->many) kernels->many = row->many, kernels->many_isa = isa;
    if (row->many_f32) kernels->many_f32 = row->many_f32;
    if (row->to_f32) kernels->to_f32 = row->to_f32;
}

static void ld_add_isa(ld_table *table, ld_format_kernels *formats, ld_isa isa) {
    const ld_isa_kernels *added = &ld_added[isa];
    for (int i = 0; i < added->n_rows; i++) ld_add_row(&formats[added->rows[i].format], &added->rows[i], isa);
    if (added->vec) table->vec = *added->vec;
    if (added->delta) table->delta = *added->delta;
    if (added->q8_32) table->quantize[LD_ACT_Q8_32] = added->q8_32;
    if (added->q8_256) table->quantize[LD_ACT_Q8_256] = added->q8_256;
}

// avx512 means without VNNI of either coding, so that it shows what such machines get.
static int ld_may_use(ld_isa cap, ld_isa isa) { return isa <= cap && !(cap == LD_ISA_AVX512 && isa == LD_ISA_AVXVNNI); }

void ld_dispatch_init(ld_isa cap) {
    ld_expand_grids();
    for (int isa = 0; isa < LD_N_ISAS; isa++) {
        ld_table *table = &ld_tables[isa];
        *table = (ld_table){
            .isa = (ld_isa)isa, .formats = ld_formats[isa], .n_formats = LD_N_FORMATS, .words = ld_words_for((ld_isa)isa),
            .pairs = ld_pairs_for((ld_isa)isa)};
        table->quantize[LD_ACT_F32] = ld_quantize_f32_scalar;
        ld_set_format_acts(ld_formats[isa]);
        for (int below = 0; below <= isa; below++)
            if (ld_has_isa((ld_isa)below) && ld_may_use((ld_isa)isa, (ld_isa)below))
                ld_add_isa(table, ld_formats[isa], (ld_isa)below);
    }
    while (!ld_has_isa(cap)) cap = (ld_isa)(cap - 1);
    ld_cap = cap;
}

const ld_table *ld_table_active(void) { return &ld_tables[ld_cap]; }
const ld_table *ld_table_for(ld_isa isa) { return ld_has_isa(isa) ? &ld_tables[isa] : NULL; }
