// Vectors of f32: what lies between the linear ops. Signatures are ld_vec_kernels of dispatch.h; names are <op>_<isa>. Lengths
// are any, 0 included (sum 0, max -infinity, all_finite 1); pointers need only the alignment of their element; x and y may be the
// same pointer but must not overlap otherwise.
// Accuracy: exp within 1e-6 relative for arguments in [-87, 88]; below it goes to 0, above to infinity; NaN stays NaN. Sums are
// in f32 with at least 8 partial sums on vector ISAs; max ignores nothing: a NaN anywhere may or may not be returned. f16
// conversions give the bits of F16C: nearest even, NaN made quiet.
#pragma once
#include "blocks.h"
#include "dispatch.h"
