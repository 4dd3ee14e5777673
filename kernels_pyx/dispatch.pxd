from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t

from kernels_pyx.formats cimport ld_act


cdef extern from "dispatch.h":
    ctypedef enum ld_isa:
        LD_ISA_SCALAR
        LD_N_ISAS

    ctypedef void (*ld_linear_few)(
        const uint8_t *w, size_t w_stride, const uint8_t *act, size_t act_stride, int64_t n_act, float *y, size_t y_stride,
        int64_t k, int64_t n,
    ) noexcept nogil
    ctypedef void (*ld_linear_many)(
        const uint8_t *w, size_t w_stride, const uint8_t *act, size_t act_stride, int64_t n_act, float *y, size_t y_stride,
        int64_t k, int64_t n, uint8_t *scratch, const uint8_t *next,
    ) noexcept nogil
    ctypedef void (*ld_quantize)(const float *x, uint8_t *act, int64_t k) noexcept nogil
    ctypedef void (*ld_to_f32)(const uint8_t *w, float *y, int64_t k) noexcept nogil

    ctypedef struct ld_format_kernels:
        ld_act act
        ld_linear_few few
        ld_linear_few few_f32
        ld_linear_many many
        ld_linear_many many_f32
        ld_to_f32 to_f32
        ld_isa few_isa
        ld_isa many_isa

    ctypedef struct ld_vec_kernels:
        float (*sum_squares)(const float *x, int64_t n) noexcept nogil
        void (*norm)(const float *x, const float *w, float scale, float *y, int64_t n) noexcept nogil
        void (*silu_mul)(const float *gate, const float *up, float *y, int64_t n) noexcept nogil
        void (*gelu_tanh_mul)(const float *gate, const float *up, float *y, int64_t n) noexcept nogil
        void (*swiglu_clamped)(const float *gate, const float *up, float *y, int64_t n, float alpha, float limit) noexcept nogil
        void (*add)(float *x, const float *y, int64_t n) noexcept nogil
        void (*f32_to_f16)(const float *x, uint16_t *y, int64_t n) noexcept nogil
        void (*f16_to_f32)(const uint16_t *x, float *y, int64_t n) noexcept nogil
        float (*max)(const float *x, int64_t n) noexcept nogil
        float (*exp_sum)(float *x, float max, int64_t n) noexcept nogil
        int (*all_finite)(const float *x, int64_t n) noexcept nogil
        void (*sigmoid_mul)(float *x, const float *gate, int64_t n) noexcept nogil
        ld_isa isa

    ctypedef struct ld_delta_kernels:
        void (*conv)(const float *const *x, const float *w, int64_t w_stride, int64_t taps, float *y, int64_t n) noexcept nogil
        void (*step)(const float *before, float *to, const float *k, const float *q, const float *v, float decay, float rate,
                     float *out, int64_t dim) noexcept nogil

    ctypedef struct ld_words_kernels "struct ld_words_kernels":
        void (*scores)(const int16_t *q, size_t q_stride, const float *unit, const int8_t *keys, const uint16_t *scales, float *c,
                       size_t c_stride, int64_t m, int64_t dim, int64_t group, int64_t ahead) noexcept nogil
        void (*values)(const float *w, size_t w_stride, const int8_t *values, const uint16_t *scales, float *c, const float *factor,
                       int64_t m, int64_t n, int64_t v_pad, int64_t group, int64_t ahead) noexcept nogil
        void (*to_words)(const float *x, int64_t n, int16_t *words, float *unit) noexcept nogil

    ctypedef struct ld_pair_next "ld_pair_next":
        const uint16_t *halves
        const float *factor
        const int8_t *bytes
        const int16_t *factors
        int one_group
        int16_t *y
        int16_t *zipped
        int64_t x_stride
        int64_t y_stride
        int64_t zipped_stride
        const uint8_t *ask

    ctypedef struct ld_pair_kernels "struct ld_pair_kernels":
        void (*narrow)(const float *x, float factor, int16_t *y, int64_t n) noexcept nogil
        void (*keys_f32)(const float **x, int16_t **y, int16_t *zipped, float *scale, int64_t n) noexcept nogil
        void (*keys_f16)(const uint16_t **x, int16_t **y, int16_t *zipped, float *scale, int64_t n) noexcept nogil
        void (*largest)(const uint16_t *x, int64_t x_stride, int64_t n, float *max) noexcept nogil
        void (*factors)(const uint16_t *scales, int64_t n_groups, int16_t *factors, float *scale) noexcept nogil
        void (*keys_i8)(const int8_t **x, const int16_t *factors, int64_t group, int16_t **y, int16_t *zipped, int64_t n) noexcept nogil
        void (*cross)(const void *x, int64_t x_stride, void *y, int64_t y_stride, int64_t rows, int64_t columns) noexcept nogil
        void (*dot)(const int16_t *keys, int64_t key_stride, const float *key_scale, int64_t n_keys, const int16_t *queries,
                    const float *query_scale, int64_t m, int64_t n, float *out, int add) noexcept nogil
        void (*dot_beside)(const int16_t *keys, int64_t key_stride, const float *key_scale, const int16_t *queries,
                           const float *query_scale, int64_t m, int64_t n, float *out, const ld_pair_next *next) noexcept nogil
        void (*weigh)(const float *scores, int64_t n_keys, int64_t m, const int32_t *valid, const float *ratio, int16_t *weights,
                      float *max, float *total) noexcept nogil
        void (*sum)(const int16_t *weights, int64_t m, const int16_t *rows, int64_t row_stride, int64_t n_pairs, const float *keep,
                    const float *gain, float *sums, int64_t n) noexcept nogil

    ctypedef struct ld_table:
        ld_isa isa
        const ld_format_kernels *formats
        int n_formats
        ld_quantize *quantize
        ld_vec_kernels vec
        ld_delta_kernels delta
        const ld_words_kernels *words
        const ld_pair_kernels *pairs

    # Inline in the header: any extension that includes it may call these.
    int64_t ld_format_block(int format) noexcept nogil
    size_t ld_row_bytes(int format, int64_t k) noexcept nogil
    size_t ld_act_scales_at(int64_t k) noexcept nogil
    size_t ld_act_sums_at(ld_act act, int64_t k) noexcept nogil
    size_t ld_act_row_bytes(ld_act act, int64_t k) noexcept nogil
    size_t ld_many_scratch_bytes(int64_t k) noexcept nogil


# The functions of dispatch.c, which only the dispatch extension compiles.
cdef const ld_table *active_table() noexcept nogil
cdef const ld_table *table_for(ld_isa isa) noexcept nogil
cdef ld_isa detected() noexcept nogil
